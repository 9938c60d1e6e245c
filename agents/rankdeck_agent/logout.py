"""Whether systemd-logind ends what a user started over SSH when that login ends (`KillUserProcesses`)."""

import os
import pwd
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

_CGROUP = Path("/proc/self/cgroup")
_SESSION = re.compile(r"/session-[^/\n]+\.scope")
_LIMIT = 5.0
_PROPERTIES = ("KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers")
_ASK = ("busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")  # fmt: skip


def ends_with_login() -> bool:
    """Whether a process that this one starts is ended with the login; False where that cannot be found out."""
    try:
        if not _SESSION.search(_CGROUP.read_text(errors="replace")):
            return False
        name = pwd.getpwuid(os.getuid()).pw_name
        done = subprocess.run(
            (*_ASK, *_PROPERTIES), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=_LIMIT, check=False
        )  # fmt: skip
    except (OSError, KeyError, subprocess.TimeoutExpired):
        return False
    lines = done.stdout[:65536].decode("utf-8", "replace").splitlines()
    return done.returncode == 0 and is_ended(name, lines)


def is_ended(user: str, properties: Sequence[str]) -> bool:
    """The same for the properties as busctl prints them: a truth, and two lists of users."""
    try:
        kills, only, spared = (shlex.split(line)[1:] for line in properties)
    except ValueError:
        return False
    return kills == ["true"] and user not in spared[1:] and (not only[1:] or user in only[1:])
