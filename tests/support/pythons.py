"""Other Pythons of this machine, each with an environment from the lock:
Rankdeck's dependencies and Open MPI.

An environment is made once, in the cache folder, and keyed by the interpreter and the lock.
Rankdeck itself is not in it: its code comes from this checkout, by PYTHONPATH.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.install import LOCK, ROOT
from tests.support.programs import UNPACKED

_CACHE = UNPACKED.parent / "pythons"
_LAYERS = ("default", "mpi")
_LIMIT = 900
CODE: Mapping[str, str] = {"PYTHONPATH": f"{ROOT / 'console'}{os.pathsep}{ROOT / 'agents'}"}
"""Has a Python of `environment` run the code of this checkout."""


class AbsentError(Exception):
    """Why there is no such Python or environment here."""


def python_of(version: str) -> Path:
    """An interpreter of this version, such as 3.12, that can make environments.

    Raises AbsentError.
    """
    for place in _places(version):
        if _made_by(place) == version:
            return place
    raise AbsentError(f"needs Python {version} with its venv module")


def _places(version: str) -> Iterator[Path]:
    if found := shutil.which(f"python{version}"):
        yield Path(found)
    root = Path(os.environ.get("PYENV_ROOT") or Path("~/.pyenv").expanduser())
    yield from sorted((root / "versions").glob(f"{version}.*/bin/python"))


def _made_by(python: Path) -> str:
    """The version of this interpreter; "" if it does not start or cannot make environments."""
    asked = "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        said = subprocess.run(
            [python, "-c", asked], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError:
        return ""
    return said.stdout.strip()


def environment(python: Path) -> Path:
    """The Python of an environment made by this interpreter. Raises AbsentError."""
    version = _made_by(python)
    if not version:
        raise AbsentError(f"needs {python} with its venv module (Debian: python3-venv)")
    if tuple(map(int, version.split("."))) < (3, 11):
        raise AbsentError(f"{python} is {version}: Rankdeck needs 3.11")
    folder = _CACHE / f"{version}-{_digest(python)}"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _make(python, folder)
    return folder / "bin/python"


def _digest(python: Path) -> str:
    """Changes with the interpreter, the lock and how it is installed."""
    state = python.resolve().stat()
    parts = [str(python.resolve()), str(state.st_size), str(state.st_mtime_ns)]
    files = [LOCK / f"{name}.txt" for name in ("build", *_LAYERS)]
    parts += [file.read_text() for file in files]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _make(python: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    script = ROOT / "tests/support/install.py"
    steps = ([python, "-m", "venv", folder], [folder / "bin/python", script, *_LAYERS])
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, timeout=_LIMIT, check=False)
        if done.returncode:
            raise AbsentError(f"no environment of {python}: {done.stderr.strip()[-500:]}")
    (folder / "ready").touch()
