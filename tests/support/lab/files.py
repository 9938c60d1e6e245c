"""Keys, users and configuration of a lab."""

import os
from collections.abc import Mapping
from pathlib import Path

import asyncssh

_ROOTS_OWN = 3000
"""The user outside that is root inside the lab: an ordinary one, as sshd and mpirun require."""


def uid() -> int:
    """The user's number inside the lab."""
    return os.getuid() or _ROOTS_OWN


def gid() -> int:
    """The group's number inside the lab."""
    return os.getgid() or _ROOTS_OWN


def user_name() -> str:
    return "lab"


def lay(folder: Path, nodes: Mapping[str, str], helpers: Path) -> None:
    """Write all files that the scripts expect in the folder of the
    lab; `helpers` are programs of sshd.
    """
    for name in ("shared", "console", *nodes):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("hostkey", "id"):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_public_key(folder / f"{name}.pub")
        (folder / name).touch(mode=0o600)
        (folder / name).write_bytes(key.export_private_key())
    hosts = {"localhost": "127.0.0.1", **nodes}
    host_key = " ".join((folder / "hostkey.pub").read_text().split()[:2])
    for name, text in {
        "hosts": "".join(f"{address} {name}\n" for name, address in hosts.items()),
        "passwd": _passwd(),
        "group": f"root:x:0:\nlab:x:{gid()}:\n",
        "known_hosts": "".join(f"{name},{at} {host_key}\n" for name, at in nodes.items()),
        "sshd_config": _SSHD + _helpers(helpers),
        "ssh_config": _ssh_config(folder),
    }.items():
        (folder / name).write_text(text)


def _passwd() -> str:
    return (
        "root:x:0:0:root:/root:/bin/sh\n"
        "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
        f"{user_name()}:x:{uid()}:{gid()}::/run/home:/bin/bash\n"
    )


def _helpers(folder: Path) -> str:
    """Lines for the configuration of sshd with the paths of its helper
    programs, which it has since 9.8.
    """
    programs = {"SshdSessionPath": "sshd-session", "SshdAuthPath": "sshd-auth"}
    there = {key: folder / name for key, name in programs.items() if (folder / name).exists()}
    return "".join(f"{key} {path}\n" for key, path in there.items())


def _ssh_config(folder: Path) -> str:
    return (
        "Host *\n"
        f"  User {user_name()}\n"
        f"  IdentityFile {folder}/id\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n"
        "  StrictHostKeyChecking yes\n"
        "  ConnectTimeout 5\n"
        "  BatchMode yes\n"
        "  LogLevel ERROR\n"
    )


_SSHD = """\
Port 22
HostKey /run/lab/hostkey
PidFile none
UsePAM no
UseDNS no
StrictModes no
PasswordAuthentication no
AuthorizedKeysFile /run/lab/id.pub
AllowTcpForwarding yes
MaxStartups 100:30:200
MaxSessions 100
Subsystem sftp internal-sftp
"""
