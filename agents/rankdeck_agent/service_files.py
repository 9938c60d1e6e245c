"""The files of the agent as a systemd service: where they lie, and the text of
the unit.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankdeck_agent.values import Value

UNIT = "rankdeck-agent.service"
USER = "rankdeck-agent"
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


class InstallPlace(Value):
    """Paths of an installation: for the whole system (`system`), or for one user."""

    system: bool
    agent: Path
    config: Path
    unit: Path

    @property
    def systemctl(self) -> tuple[str, ...]:
        """The systemctl command for this place."""
        return ("systemctl",) if self.system else ("systemctl", "--user")


class File(Value):
    """One file of the installation."""

    path: Path
    data: bytes
    mode: int


def place_installation(root: Path, home: Path, *, system: bool) -> InstallPlace:
    """The paths of an installation."""
    if system:
        return InstallPlace(
            True,
            root / "usr/local/lib/rankdeck/agent.pyz",
            root / "etc/rankdeck/agent.conf",
            root / "etc/systemd/system" / UNIT,
        )
    return InstallPlace(
        False,
        home / ".local/lib/rankdeck/agent.pyz",
        home / ".config/rankdeck/agent.conf",
        home / ".config/systemd/user" / UNIT,
    )


def list_service_files(
    at: InstallPlace, python: str, archive: bytes, config: Mapping[str, Any], groups: str
) -> tuple[File, ...]:
    """The files to write, in this order, the unit last; `groups`: a line of the unit, or ""."""
    text = json.dumps(dict(config), indent=1, sort_keys=True) + "\n"
    return (
        File(at.agent, archive, 0o755),
        File(at.config, text.encode(), 0o600),
        File(at.unit, write_unit_text(at, python, groups).encode(), 0o644),
    )


def write_unit_text(at: InstallPlace, python: str, groups: str = "") -> str:
    """The text of the systemd unit."""
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
    """The word, quoted for a systemd command line."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + plain.replace("%", "%%").replace("$", "$$") + '"'
