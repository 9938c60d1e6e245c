"""Where liboqs is: asyncssh looks for it whenever it is imported, for key exchanges that withstand
quantum computers.

`ctypes.util.find_library` runs ldconfig, gcc and ld for each name, until one knows it: 30 to 60 ms,
a fifth of what the import of asyncssh costs each command. Few machines have the library.
"""

import ctypes.util
import os
import sysconfig
from functools import cache
from pathlib import Path

_NAMES = ("oqs", "liboqs")
_FOLDERS = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64")


def hasten_search() -> None:
    """Have `ctypes.util.find_library` answer at once where none of the usual folders has liboqs,
    and ask as usual for it where one has, and for any other library always.
    """
    usual = ctypes.util.find_library

    def find_library(name: str) -> str | None:
        return None if name in _NAMES and not _is_installed() else usual(name)

    ctypes.util.find_library = find_library


@cache
def _is_installed() -> bool:
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    named = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders = [*_FOLDERS, *(f"{folder}/{multiarch}" for folder in _FOLDERS), *filter(None, named)]
    return any(next(Path(folder).glob("liboqs.so*"), None) for folder in folders)
