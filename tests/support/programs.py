"""Finds the programs that tests run: on PATH, in the folders of the
system, or unpacked by packages.sh.
"""

import os
import shutil
import sys
from pathlib import Path

_CACHE = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
UNPACKED = Path(_CACHE, "rankdeck-tests/servers")
"""Folders of unpacked packages; read here because tests change the environment later."""


def search_path() -> str:
    """A PATH with all of them: first the folder of this interpreter, because `python3` may be
    a script of pyenv, then the PATH of the user.
    """
    interpreter = str(Path(sys.executable).resolve().parent)
    unpacked = map(str, sorted(UNPACKED.glob("*/usr/*bin")))
    mine = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([interpreter, *mine, "/usr/sbin", "/sbin", *unpacked]))


def python_script(text: str) -> str:
    """A script of this Python, to be written to a file that is started: the
    path of the Python may have blanks.
    """
    return f"#!/bin/sh\n'''exec' '{sys.executable}' \"$0\" \"$@\"\n' '''\n{text}"


def sshd() -> Path:
    """The path of sshd, installed or unpacked by packages.sh; if there is none, the usual path."""
    return Path(shutil.which("sshd", path=search_path()) or "/usr/sbin/sshd").resolve()
