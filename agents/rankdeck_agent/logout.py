"""Whether systemd-logind ends what a user started over SSH when that login
ends (`KillUserProcesses`), and a way out.

Where lingering is on for the user, the user's own manager of systemd runs without a login: a
process that has a scope there stays. This is what `systemd-run --user --scope` does, but for a
process that runs already.
"""

import os
import pwd
import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_CGROUP = Path("/proc/self/cgroup")
_SESSION = re.compile(r"/session-[^/\n]+\.scope")
_LIMIT = 5.0
_PROPERTIES = ("KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers")
_LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_ASK = ("busctl", "get-property", *_LOGIN)
_MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")  # fmt: skip
_SCOPE = ("busctl", "--user", "call", *_MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))")


class LogoutFacts(NamedTuple):
    """What decides whether a process outlives the login that started it."""

    session: bool
    """Whether it is in the scope of a login."""
    kills: bool
    """Whether logind ends what is in such a scope."""
    lingers: bool
    """Whether the user's manager of systemd runs without a login."""


class LogoutPlan(NamedTuple):
    """What becomes of a process when the login ends."""

    ends: bool
    moves: bool
    """Whether it must get a scope of the user's manager first."""


def judge_logout(facts: LogoutFacts) -> LogoutPlan:
    """What becomes of a process that a login starts now."""
    in_danger = facts.session and facts.kills
    return LogoutPlan(ends=in_danger and not facts.lingers, moves=in_danger and facts.lingers)


def logout_facts() -> LogoutFacts:
    """The facts for this process; what cannot be found out is false.

    What decides nothing more is not asked.
    """
    session = _in_session()
    name = _own_name()
    kills = session and is_ended(name, _said_by((*_ASK, *_PROPERTIES)).splitlines())
    words = ("loginctl", "show-user", name, "--property=Linger")
    return LogoutFacts(session, kills, kills and "Linger=yes" in _said_by(words).split())


def leave_session(name: str) -> str:
    """Give this process a scope of its own if the login would end it;
    returns why it will end all the same, or "".

    `name`: for the scope; letters, digits, `-`.
    """
    plan = judge_logout(logout_facts())
    if plan.moves:
        os.environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
        _said_by((*_SCOPE, *scope_words(name, os.getpid())))
        # The manager answers before the process has been moved.
        limit = time.monotonic() + _LIMIT
        while _in_session() and time.monotonic() < limit:
            time.sleep(0.05)
        if _in_session():
            return "it ends with the login (KillUserProcesses): the user's systemd gave it no scope"
    return "it ends with the login (KillUserProcesses)" if plan.ends else ""


def scope_words(name: str, pid: int) -> Sequence[str]:
    """The arguments of StartTransientUnit for a scope with this process."""
    properties = ("2", "PIDs", "au", "1", str(pid), "Delegate", "b", "true")
    return (f"rankdeck-{name}-{pid}.scope", "fail", *properties, "0")


def _in_session() -> bool:
    try:
        return bool(_SESSION.search(_CGROUP.read_text(errors="replace")))
    except OSError:
        return False


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def _said_by(words: Sequence[str]) -> str:
    """What a program prints; "" if it fails or cannot be started."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout[:65536].decode("utf-8", "replace")


def is_ended(user: str, properties: Sequence[str]) -> bool:
    """Whether logind ends this user's processes, by the properties as busctl
    prints them: a truth, and two lists of users.
    """
    try:
        kills, only, spared = (shlex.split(line)[1:] for line in properties)
    except ValueError:
        return False
    return kills == ["true"] and user not in spared[1:] and (not only[1:] or user in only[1:])
