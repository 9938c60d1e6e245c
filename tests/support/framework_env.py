"""Frameworks for the CPU from PyPI, each in an environment of its own in the cache, made once.

They are not in the lock: they take 0.6 to 1.6 GB, and their numpy is not ours.
"""

import fcntl
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.programs import UNPACKED
from tests.support.pythons import AbsentError

_LIMIT = 900


@dataclass(frozen=True)
class Framework:
    """One framework."""

    name: str
    version: str
    packages: tuple[str, ...]
    space: int
    """Bytes that must be free."""

    @property
    def folder(self) -> Path:
        python = f"py{sys.version_info[0]}.{sys.version_info[1]}"
        return UNPACKED.parent / f"{self.name}-{self.version}-{python}"


TENSORFLOW = Framework("tensorflow", "2.21.0", ("tensorflow-cpu==2.21.0",), 4 << 30)
JAX = Framework("jax", "0.10.2", ("jax==0.10.2",), 2 << 30)
LIGHTNING = Framework("lightning", "2.6.6", ("lightning==2.6.6", "torch==2.13.0", "numpy"), 3 << 30)
"""With the torch of torch.sh: where that comes only with CUDA, in gigabytes, it is refused."""


def framework_or_skip(framework: Framework) -> Path:
    """The Python that has it; skips the test if there is none."""
    try:
        return framework_python(framework)
    except AbsentError as absent:
        pytest.skip(str(absent))


def framework_python(framework: Framework) -> Path:
    """The Python that has it. Raises AbsentError."""
    folder = framework.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _install(framework)
    return folder / "bin/python"


def _install(framework: Framework) -> None:
    folder = framework.folder
    if shutil.disk_usage(folder.parent).free < framework.space:
        raise AbsentError(
            f"needs {framework.space >> 30} GB in the cache folder for {framework.name}"
        )
    shutil.rmtree(folder, ignore_errors=True)
    pip = (str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install")
    wanted = ("--quiet", "--only-binary", ":all:", *framework.packages)
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=_LIMIT)
        asked = [*pip, "--dry-run", "--report", "-", *wanted]
        report = subprocess.run(asked, check=True, timeout=_LIMIT, capture_output=True).stdout
        names = [one["metadata"]["name"] for one in json.loads(report)["install"]]
        if any(name.startswith("nvidia-") for name in names):
            raise AbsentError(f"{framework.name} comes only with CUDA here (gigabytes)")
        subprocess.run([*pip, *wanted], check=True, timeout=_LIMIT, capture_output=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise AbsentError(f"needs {' and '.join(framework.packages)} from PyPI: {error}") from error
    (folder / "ready").touch()
