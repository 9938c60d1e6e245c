"""Where the programs are that tests run: on PATH, in the system's folders, or unpacked by packages.sh."""

import os
import shutil
import sys
from pathlib import Path

_CACHE = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
UNPACKED = Path(_CACHE, "rankdeck-tests/servers")
"""A folder per package; found before any test gets folders of its own."""


def search_path() -> str:
    """A PATH with all of them: this interpreter first, whose name may be a shell script of pyenv else, then what the user has."""
    interpreter = str(Path(sys.executable).resolve().parent)
    unpacked = map(str, sorted(UNPACKED.glob("*/usr/*bin")))
    mine = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([interpreter, *mine, "/usr/sbin", "/sbin", *unpacked]))


def sshd() -> Path:
    """The machine's sshd, installed or unpacked by packages.sh; where it would be, if it is not here."""
    return Path(shutil.which("sshd", path=search_path()) or "/usr/sbin/sshd").resolve()
