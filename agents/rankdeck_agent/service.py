"""`service`: installs the agent as a systemd service on this node,
removes it, or reports its state.
"""

import contextlib
import grp
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Callable, Optional

from rankdeck_agent.config import SIZE_LIMIT, AgentConfigError, from_mapping
from rankdeck_agent.gpu_release import SIGNALS, tell_agents
from rankdeck_agent.install_steps import (
    InstallError,
    InstallStep,
    command_output,
    command_step,
    do_steps,
)
from rankdeck_agent.service_files import (
    UNIT,
    USER,
    File,
    InstallPlace,
    list_service_files,
    place_installation,
)
from rankdeck_agent.text import print_complaint, print_json_line
from rankdeck_agent.values import Value

_USERADD = (
    *("useradd", "--system", "--no-create-home", "--home-dir", "/"),
    *("--shell", "/usr/sbin/nologin", USER),
)
GROUPS = ("adm", "systemd-journal", "video", "render")
"""Groups that the service joins, if they exist: for the kernel log, AMD
GPUs and the firmware of a Raspberry Pi.
"""
ROOT_VARIABLE = "RANKDECK_ROOT"
"""Environment variable: another root folder to install to, such as that of a system image."""
_VERSION = re.compile(rb'__version__ = "([^"\n]{1,40})"')
_NAMES = ("install", "uninstall", "status", *SIGNALS)
_USAGE = f"usage: agent.pyz service {'|'.join(_NAMES)} --system|--user [--dry-run]"


class Site(Value):
    """What an installation needs to know about the node; `archive`: the bytes of agent.pyz."""

    at: InstallPlace
    root: Path
    archive: bytes


def main(given: Sequence[str]) -> int:
    """Run install, uninstall or status; prints one line of JSON (except after wrong usage).

    Returns the exit code.
    """
    words = set(given[1:])
    scope = words & {"--system", "--user"}
    if not given or given[0] not in _NAMES or len(scope) != 1:
        return print_complaint(_USAGE, 2)

    system, dry = "--system" in words, "--dry-run" in words
    if system and os.geteuid() != 0 and given[0] != "status":
        return _as_root(given)
    try:
        root = Path(os.environ.get(ROOT_VARIABLE, "/"))
        at = place_installation(root, Path.home(), system=system)
        site = Site(at, root, _archive_path().read_bytes())
        answer = _VERBS[given[0]](site, dry)
    except (InstallError, AgentConfigError) as error:
        answer = {"ok": False, "why": str(error)}
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        answer = {"ok": False, "why": f"{type(error).__name__}: {error}"}
    return print_json_line(answer)


def _as_root(given: Sequence[str]) -> int:
    """Run the same command under sudo, which must not ask for a password."""
    sudo = shutil.which("sudo")
    if sudo is None:
        why = "a system service needs root, and there is no sudo; log in as root or use --user"
        return print_json_line({"ok": False, "why": why})
    again = ("-n", sys.executable, "-I", str(_archive_path()), "service", *given)
    os.execv(sudo, (sudo, *again))
    return 1


def _archive_path() -> Path:
    path = Path(sys.argv[0]).absolute()
    if not zipfile.is_zipfile(path):
        raise InstallError("only the agent in one file (agent.pyz) can install itself")
    return path


def _install(site: Site, dry: bool) -> dict[str, Any]:
    at = site.at
    _need_systemd(site)

    config = _config()
    wanted = list_service_files(at, sys.executable, site.archive, config, _groups())
    changed = [file for file in wanted if not _is_there(file)]
    old, new = _label(_read(at.agent)), _label(site.archive)

    steps = _steps(at, changed)
    if dry:
        steps = _steps(at, list(wanted))
        return {"ok": True, "did": "dry run", "old": old, "new": new, **_steps_row(steps)}
    if changed or _state(at)["ActiveState"] != "active":
        do_steps(steps, {str(file.path): file for file in changed})

    did = "installed" if not old else "upgraded" if old != new else "changed"
    return {
        "ok": True,
        "did": did if changed else "unchanged",
        "old": old,
        "new": new,
        "state": _state(at)["ActiveState"],
        "notes": _notes(at),
    }


def _config() -> dict[str, Any]:
    """The agent's configuration from standard input, as JSON; raises
    AgentConfigError, ValueError if it is not valid.
    """
    text = sys.stdin.buffer.read(SIZE_LIMIT + 1)
    raw = json.loads(text[:SIZE_LIMIT])
    from_mapping(raw)
    return raw


def _groups() -> str:
    known = {group.gr_name for group in grp.getgrall()}
    there = [name for name in GROUPS if name in known]
    return f"SupplementaryGroups={' '.join(there)}\n" if there else ""


def _steps(at: InstallPlace, changed: Sequence[File]) -> list[InstallStep]:
    steps = [command_step(*_USERADD)] if at.system and not _has_user() else []
    for file in changed:
        text = "" if file.path == at.agent else file.data.decode("utf-8", "replace")
        shown = re.sub(r'("password": )"[^\n]*"', r'\1"…"', text)
        steps.append(InstallStep("write", str(file.path), shown))

    tail = (("daemon-reload",), ("enable", UNIT), ("restart", UNIT))
    return steps + [command_step(*at.systemctl, *words) for words in tail]


def _steps_row(steps: Sequence[InstallStep]) -> dict[str, Any]:
    shown = ("what", "text", "detail")
    return {"steps": [{key: getattr(step, key) for key in shown} for step in steps]}


def _notes(at: InstallPlace) -> list[str]:
    """Sentences that the operator should know about the installation."""
    if at.system:
        return []
    name = pwd.getpwuid(os.getuid()).pw_name
    answer = command_output(("loginctl", "show-user", name, "--property=Linger"))
    if "Linger=yes" in answer:
        return []
    return [
        f"it runs only while {name} is logged in; `sudo loginctl enable-linger {name}` lets it stay"
    ]


def _uninstall(site: Site, dry: bool) -> dict[str, Any]:
    at = site.at
    there = [path for path in (at.unit, at.config, at.agent) if path.exists()]
    old = _label(_read(at.agent))

    steps = [
        command_step(*at.systemctl, "disable", "--now", UNIT, needed=False),
        # It erases the node's retained messages on the broker, so that no console waits for it.
        command_step(sys.executable, "-I", str(at.agent), "forget", str(at.config), needed=False),
        *(InstallStep("remove", str(path)) for path in there),
        command_step(*at.systemctl, "daemon-reload", needed=False),
        command_step(*at.systemctl, "reset-failed", UNIT, needed=False),
    ]
    if at.system and _has_user():
        steps.append(command_step("userdel", USER, needed=False))

    if dry:
        return {"ok": True, "did": "dry run", "old": old, **_steps_row(steps)}
    if not there:
        return {"ok": True, "did": "was not there", "old": old, "notes": []}
    _need_systemd(site)
    do_steps(steps, {})
    return {"ok": True, "did": "removed", "old": old, "notes": []}


def _status(site: Site, dry: bool) -> dict[str, Any]:
    at = site.at
    if not at.unit.exists():
        return {"ok": True, "installed": False, "state": "", "version": ""}
    _need_systemd(site)
    shown = _state(at)
    failed = shown["ActiveState"] != "active"
    journal = ("journalctl", *at.systemctl[1:], "-u", UNIT, "-n", "1", "-o", "cat")
    return {
        "ok": True,
        "installed": True,
        "version": _label(_read(at.agent)),
        "state": shown["ActiveState"],
        "enabled": shown["UnitFileState"] == "enabled",
        "restarts": int(shown["NRestarts"] or 0),
        "says": command_output(journal).strip()[:300] if failed else "",
    }


def _state(at: InstallPlace) -> dict[str, str]:
    keys = ("ActiveState", "UnitFileState", "NRestarts")
    found: dict[str, str] = dict.fromkeys(keys, "")
    show = (*at.systemctl, "show", UNIT, *(f"--property={key}" for key in keys))
    for line in command_output(show).splitlines():
        key, _, value = line.partition("=")
        if key in found:
            found[key] = value
    return found


def _need_systemd(site: Site) -> None:
    runs = (site.root / "run/systemd/system").is_dir() and shutil.which("systemctl")
    if not runs:
        raise InstallError(
            "no systemd runs there; start `agent.pyz --config FILE` with what starts programs on that node"
        )

    folder = f"/run/user/{os.getuid()}"
    if not site.at.system and "XDG_RUNTIME_DIR" not in os.environ:
        if not Path(folder, "systemd").is_dir():
            raise InstallError(
                "no user manager of systemd runs for this user; enable lingering, or use --system"
            )
        os.environ["XDG_RUNTIME_DIR"] = folder


def _has_user() -> bool:
    with contextlib.suppress(KeyError):
        pwd.getpwnam(USER)
        return True
    return False


def _read(path: Path) -> Optional[bytes]:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return None


def _is_there(file: File) -> bool:
    return _read(file.path) == file.data and file.path.stat().st_mode & 0o777 == file.mode


def _label(archive: Optional[bytes]) -> str:
    """Version and digest of an agent.pyz, like `0.1.0 (1a2b3c4d)`; "" for None."""
    if archive is None:
        return ""
    import io

    found = None
    file = io.BytesIO(archive)
    with contextlib.suppress(zipfile.BadZipFile, KeyError), zipfile.ZipFile(file) as packed:
        found = _VERSION.search(packed.read("rankdeck_agent/__init__.py"))
    version = found.group(1).decode("ascii", "replace") if found else "?"
    return f"{version} ({sha256(archive).hexdigest()[:8]})"


def _tell_agents(command: str, _site: Site, _dry: bool) -> dict[str, Any]:
    return tell_agents(command)


_VERBS: "dict[str, Callable[[Site, bool], dict[str, Any]]]" = {
    "install": _install,
    "uninstall": _uninstall,
    "status": _status,
    **{name: partial(_tell_agents, name) for name in SIGNALS},
}
