"""This machine as a node or login node, without SSH: when the login node is
found to be it, and what programs start in.
"""

import asyncio
import os
import pwd
import shutil
import socket
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from rankdeck.model.cluster import Cluster
from rankdeck.remote.shell import LocalShell
from rankdeck.remote.ssh_config import HostSettings
from rankdeck.values import Value

_RESOLVE_LIMIT = 5.0
_KEPT = frozenset(("SLURM_CONF", "RANKDECK_STATE"))
"""Variables that programs here get although their names begin as those of a job do."""
_OF_A_JOB = ("SLURM_", "RANKDECK_")
"""How variables begin that a job of Slurm or Rankdeck has, in which
the console may have been started.
"""


class LoginWay(Value):
    """Where a login to the login node would lead."""

    user: str
    port: int
    detour: bool
    """Whether a jump host or proxy leads there."""
    addresses: frozenset[str]
    """Of the host; none if its name does not resolve."""


class OwnPlace(Value):
    """What this machine has."""

    user: str
    addresses: frozenset[str]
    """Those of the login that are this machine's."""
    program: str
    """Where the scheduler's program lies; "" if there is none."""


def leads_here(way: LoginWay, own: OwnPlace) -> bool:
    """Whether the login leads back to this machine, to the same account, and
    the scheduler can be asked without it.

    Another port may be that of a container or tunnel, and one of several
    addresses that of another login node.
    """
    return (
        bool(own.program)
        and way.user == own.user
        and way.port == 22
        and not way.detour
        and bool(way.addresses)
        and way.addresses <= own.addresses
    )


async def login_leads_here(cluster: Cluster, settings: HostSettings | None) -> bool:
    """Whether the cluster's login node is this machine; `settings`:
    OpenSSH's for it, None if they are not read.
    """
    login = next(node for node in cluster.hosts if node.name == cluster.options.get("login"))
    path = cluster.environment.get("PATH")
    # A console in a container has the host's addresses without the program.
    program = shutil.which(cluster.can.program, path=path) or ""
    own = pwd.getpwuid(os.getuid()).pw_name
    host = settings.host if settings else login.host
    addresses = await _addresses(host, _RESOLVE_LIMIT * cluster.access.patience)
    way = LoginWay(
        user=(settings.user if settings else cluster.access.user) or own,
        port=settings.port if settings else login.port,
        detour=bool(settings and (settings.one("proxyjump") or settings.one("proxycommand"))),
        addresses=addresses,
    )
    return leads_here(way, OwnPlace(own, frozenset(filter(_is_own, addresses)), program))


async def _addresses(host: str, limit: float) -> frozenset[str]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(limit):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):  # TimeoutError is an OSError; UnicodeError: no name of a host
        return frozenset()
    return frozenset(str(address[0]) for *_, address in found)


def _is_own(address: str) -> bool:
    """Whether an address is this machine's: packets to it would come from it. None is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if address.startswith("127."):
        return True
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return False
        source: str = probe.getsockname()[0]
        return source == address


def shell_here(cluster: Cluster) -> LocalShell:
    """The shell for nodes that are this machine: programs start in
    the home folder, as after a login.

    They have the console's environment without its secrets, and without
    variables of a job in which it was started.
    """
    return LocalShell(str(Path.home()), environment_here(os.environ, _secrets(cluster)))


def program_environment(cluster: Cluster) -> dict[str, str]:
    """The same environment for a program of the site on this machine, with
    what the cluster file says under `environment`.
    """
    return {**environment_here(os.environ, _secrets(cluster)), **cluster.environment}


def environment_here(own: Mapping[str, str], secrets: Collection[str]) -> dict[str, str]:
    """The environment of programs on this machine; `own` is the
    console's, `secrets` are names of variables.
    """
    return {
        name: value
        for name, value in own.items()
        if name in _KEPT or not (name in secrets or name.startswith(_OF_A_JOB))
    }


def _secrets(cluster: Cluster) -> frozenset[str]:
    """The variables in which the cluster file has passwords and tokens."""
    broker, metrics = cluster.broker, cluster.metrics
    named: Iterable[str] = (
        broker.password_env if broker else "",
        *((metrics.password_env, metrics.token_env) if metrics else ()),
        *(switch.password_env for switch in cluster.switches),
    )
    return frozenset(filter(None, named))
