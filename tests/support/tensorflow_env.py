"""TensorFlow for the CPU from PyPI, in an environment of its own: made once, in the cache folder.

It is not in the lock: it takes 1.6 GB, and its numpy is not ours.
"""

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.programs import UNPACKED
from tests.support.pythons import AbsentError

VERSION = "2.21.0"
_FOLDER = UNPACKED.parent / f"tensorflow-{VERSION}-py{sys.version_info[0]}.{sys.version_info[1]}"
_LIMIT = 900
_SPACE = 4 << 30
"""Bytes that must be free."""


def tensorflow_python() -> Path:
    """The Python that has it. Raises AbsentError."""
    _FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with _FOLDER.with_name(f"{_FOLDER.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (_FOLDER / "ready").exists():
            _install()
    return _FOLDER / "bin/python"


def _install() -> None:
    if shutil.disk_usage(_FOLDER.parent).free < _SPACE:
        raise AbsentError("needs 4 GB in the cache folder for TensorFlow")
    shutil.rmtree(_FOLDER, ignore_errors=True)
    pip = (str(_FOLDER / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install")
    wanted = ("--quiet", "--only-binary", ":all:", f"tensorflow-cpu=={VERSION}")
    try:
        subprocess.run([sys.executable, "-m", "venv", _FOLDER], check=True, timeout=_LIMIT)
        subprocess.run([*pip, *wanted], check=True, timeout=_LIMIT, capture_output=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise AbsentError(f"needs tensorflow-cpu {VERSION} from PyPI: {error}") from error
    (_FOLDER / "ready").touch()
