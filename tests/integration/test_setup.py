"""`make setup` takes everything from the lock, and says in one sentence why it cannot."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.install import LOCK, ROOT, explain

pytestmark = pytest.mark.slow
NOBODY = "127.0.0.1:9"
"""An address where nothing listens."""


def bare(**more: str) -> dict[str, str]:
    """This environment without what it tells pip and make."""
    told = ("PIP_", "MAKE", "MFLAGS", "HTTP_", "HTTPS_", "ALL_", "NO_PROXY", "WHEELS")
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(told)}
    return {**kept, "PIP_CONFIG_FILE": os.devnull, **more}


def setup(
    folder: Path, env: Mapping[str, str], *words: str, limit: float = 120
) -> subprocess.CompletedProcess[str]:
    """`make setup` with a virtual environment in this folder."""
    return subprocess.run(
        [*words, "make", "--no-print-directory", "setup", f"VENV={folder}"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment where nothing is installed."""
    folder = tmp_path_factory.mktemp("setup") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    return folder


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"PIP_INDEX_URL": f"http://{NOBODY}/simple"}, "no package index can be reached from here"),
        (
            {
                "PIP_INDEX_URL": "https://index.invalid/",
                "HTTPS_PROXY": f"http://me:secret@{NOBODY}",
            },
            f"the proxy http://{NOBODY} does not let pip through",
        ),
        ({"WHEELS": "{empty}"}, "{empty} has no file of"),
        ({"WHEELS": "{empty}/none"}, "WHEELS={empty}/none is no folder"),
    ],
    ids=["offline", "proxy", "empty folder", "no folder"],
)
def test_setup_that_cannot_install_says_why_in_one_sentence(
    env: Mapping[str, str], said: str, venv: Path, tmp_path: Path
) -> None:
    filled = {name: value.format(empty=tmp_path) for name, value in env.items()}

    done = setup(venv, bare(**filled))

    lines = [line for line in done.stderr.splitlines() if "***" not in line]  # make's own
    assert len(lines) == 1
    assert lines[0].startswith(f"make: {said.format(empty=tmp_path)}")
    assert done.returncode
    assert "secret" not in done.stderr


def test_other_ends_of_pip_are_explained_too() -> None:
    said = {
        "OSError: [Errno 28] No space left on device": "the disk is full",
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM": "a file differs from the one",
        "SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]')": "the certificate of the package index",
        "noise\nERROR: Something else": "Something else",
        "Killed": "pip failed: Killed",
    }

    assert all(explain(printed, {}).startswith(meaning) for printed, meaning in said.items())


@pytest.mark.left_out
def test_setup_takes_all_from_a_folder_without_network(tmp_path: Path) -> None:
    wheels, venv = tmp_path / "wheels", tmp_path / "venv"
    files = [f"--requirement={LOCK / name}.txt" for name in ("build", "default", "mpi")]
    fetch = (sys.executable, "-m", "pip", "download", "-q", "--require-hashes")
    got = subprocess.run(
        [*fetch, "--only-binary=:all:", "-d", wheels, *files],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if got.returncode:
        pytest.skip(f"the wheels cannot be had: {explain(got.stdout + got.stderr, os.environ)}")
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=120)
    alone = ("unshare", "-r", "-n")  # not even loopback is up
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("needs unshare and user namespaces")

    done = setup(venv, bare(WHEELS=str(wheels)), *alone, limit=300)

    assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run([venv / "bin/rankdeck", "--version"], check=True, timeout=60)
