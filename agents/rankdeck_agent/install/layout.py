"""What an installed agent is made of: pure text and paths, decided before anything is done."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNIT = "rankdeck-agent.service"
USER = "rankdeck-agent"
GROUPS = ("adm", "systemd-journal", "video", "render")
"""Those that are there: the kernel's log, GPUs of AMD, the firmware of a Raspberry Pi."""


@dataclass(frozen=True)
class Place:
    """Where things go; `system` or the user's own."""

    system: bool
    agent: Path
    config: Path
    unit: Path

    @property
    def systemctl(self) -> tuple[str, ...]:
        return ("systemctl",) if self.system else ("systemctl", "--user")


@dataclass(frozen=True)
class File:
    """One file of the installation."""

    path: Path
    data: bytes
    mode: int


def place(root: Path, home: Path, *, system: bool) -> Place:
    """The paths of an installation."""
    if system:
        return Place(
            True,
            root / "usr/local/lib/rankdeck/agent.pyz",
            root / "etc/rankdeck/agent.conf",
            root / "etc/systemd/system" / UNIT,
        )
    return Place(
        False,
        home / ".local/lib/rankdeck/agent.pyz",
        home / ".config/rankdeck/agent.conf",
        home / ".config/systemd/user" / UNIT,
    )


def files(
    at: Place, python: str, archive: bytes, config: Mapping[str, Any], groups: str
) -> tuple[File, ...]:
    """Every file, in the order in which they are written: the unit last."""
    text = json.dumps(dict(config), indent=1, sort_keys=True) + "\n"
    return (
        File(at.agent, archive, 0o755),
        File(at.config, text.encode(), 0o600),
        File(at.unit, unit(at, python, groups).encode(), 0o644),
    )


def unit(at: Place, python: str, groups: str = "") -> str:
    """The text of the unit."""
    command = " ".join(_quoted(word) for word in (python, "-I", str(at.agent), "--config", "-"))
    hardened = _SYSTEM.format(user=USER, groups=groups) if at.system else ""
    target = "multi-user.target" if at.system else "default.target"
    return _UNIT.format(
        command=command,
        config=str(at.config).replace("%", "%%"),
        hardened=hardened,
        target=target,
        after="Wants=network-online.target\nAfter=network-online.target\n" if at.system else "",
    )


def _quoted(word: str) -> str:
    """As systemd reads command lines."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + plain.replace("%", "%%").replace("$", "$$") + '"'


_UNIT = """\
# Written by `rankdeck agent install`; `rankdeck agent uninstall` takes it away.
[Unit]
Description=Rankdeck agent: telemetry of this node
{after}StartLimitIntervalSec=0

[Service]
# The configuration holds a password: the manager opens it, the agent only reads.
StandardInput=file:{config}
StandardOutput=journal
ExecStart={command}
Restart=always
RestartSec=5
Nice=5
MemoryMax=256M
TasksMax=64
NoNewPrivileges=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RestrictRealtime=yes
SystemCallArchitectures=native
UMask=0077
{hardened}
[Install]
WantedBy={target}
"""
_SYSTEM = """\
User={user}
{groups}AmbientCapabilities=CAP_SYSLOG
CapabilityBoundingSet=CAP_SYSLOG
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
# No ProtectSystem, ProtectHome, PrivateTmp or DynamicUser (which brings them): each gives the
# service mounts of its own, read-only ones among them, and the agent has to report the node's.
# No PrivateDevices: the GPUs are devices.
"""
