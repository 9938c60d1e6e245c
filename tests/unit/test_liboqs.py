"""Compiler and linker are not asked for liboqs by each command, but where there is one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """What the only program `gcc` in PATH writes into when it is run."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gcc").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\nexit 1\n')
    (tmp_path / "bin" / "gcc").chmod(0o700)
    return tmp_path / "asked"


def imported(asked: Path, line: str, **more: str) -> None:
    env = {"PATH": str(asked.parent / "bin"), "PYTHONPATH": os.pathsep.join(sys.path), **more}
    subprocess.run([sys.executable, "-c", line], env=env, check=True, timeout=120)


def test_no_compiler_is_run_where_there_is_no_liboqs(asked: Path) -> None:
    imported(asked, "import rankdeck.remote.ssh")

    assert not asked.exists()


def test_it_is_sought_where_a_folder_has_it(asked: Path, tmp_path: Path) -> None:
    (tmp_path / "liboqs.so.5").touch()

    imported(asked, "import rankdeck.remote.ssh", LD_LIBRARY_PATH=str(tmp_path))

    assert "-loqs" in asked.read_text()


def test_other_libraries_are_sought_as_usual(asked: Path) -> None:
    imported(asked, "import rankdeck.remote, ctypes.util; ctypes.util.find_library('no-such')")

    assert "-lno-such" in asked.read_text()
