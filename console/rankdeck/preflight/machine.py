"""Checks of the machines: clocks, cores, memory, disks."""

from collections.abc import Iterable

from rankdeck.model.health import Level
from rankdeck.model.units import duration, size
from rankdeck.preflight.case import (
    Case,
    each,
)
from rankdeck.preflight.facts import NodeFacts
from rankdeck.preflight.findings import Finding, found

SKEW = 2.0
"""Seconds: from there on lines of different nodes are out of order."""
_SHM_PER_RANK = 16 << 20
_RUN_LEAST, _RUN_FEW = 16 << 20, 256 << 20


def clock(case: Case) -> Iterable[Finding]:
    """Clocks that are off from the console's for certain."""
    off = {p.node.name: f.skew for p, f in case.answered if abs(f.skew) > SKEW}
    for node, skew in off.items():
        way = "ahead of" if skew > 0 else "behind"
        yield found(
            Level.WARN, "clock", node, f"the clock is {duration(abs(skew))} {way} the console's",
            "switch time synchronisation on there: `timedatectl set-ntp true`",
        )  # fmt: skip


def slots(case: Case) -> Iterable[Finding]:
    """More ranks than cores."""
    return each(
        case, Level.WARN, "slots",
        lambda p, f: f"{len(p.ranks)} ranks share {f.cores} core{'s' * (f.cores != 1)}"
        if f.cores and len(p.ranks) > f.cores else None,
        "lower `ranks_per_node`, or `slots` in the cluster file",
    )  # fmt: skip


def memlock(case: Case) -> Iterable[Finding]:
    """Locked memory is limited where RDMA needs it."""
    return each(
        case, Level.WARN, "memlock",
        lambda p, f: f"only {size(f.memlock)} of memory may be locked: RDMA falls back or fails"
        if p.node.rdma and f.memlock is not None else None,
        "put `* - memlock unlimited` into /etc/security/limits.d there, and for sshd `LimitMEMLOCK=infinity`",
    )  # fmt: skip


def shared_memory(case: Case) -> Iterable[Finding]:
    """Too little of /dev/shm for the ranks of a node to talk through."""

    def tell(ranks: int, facts: NodeFacts) -> str | None:
        shm = facts.spaces.get("shm")
        if shm is None or shm.free is None:
            return "/dev/shm cannot be read"
        needed = ranks * _SHM_PER_RANK
        if ranks < 2 or shm.free >= needed:
            return None
        return f"/dev/shm has {size(shm.free)} free of {size(shm.total)}; {ranks} ranks want {size(needed)}"

    return each(
        case, Level.WARN, "shm", lambda p, f: tell(len(p.ranks), f),
        "see what lies in /dev/shm there, or `mount -o remount,size=50% /dev/shm`",
    )  # fmt: skip


def space(case: Case) -> Iterable[Finding]:
    """No room for what the ranks write, or for their temporary files."""

    def tell(facts: NodeFacts, which: str, least: int, below: int) -> str | None:
        at = facts.spaces.get(which)
        if at is None or at.free is None:
            return None if least else f"the space for {which} cannot be read"
        if not least and not at.writable:
            return f"{at.path} cannot be written"
        if not least and at.inodes == 0:
            return f"{at.path} has no inodes left"
        lacking = least <= at.free < below
        return f"{at.path} has {size(at.free)} left" if lacking else None

    fix = "make room there; old runs are under ~/.local/state/rankdeck/jobs"
    for which in ("run", "tmp"):
        yield from each(
            case, Level.BAD, "space", lambda _, f, w=which: tell(f, w, 0, _RUN_LEAST), fix
        )
        yield from each(
            case, Level.WARN, "space", lambda _, f, w=which: tell(f, w, _RUN_LEAST, _RUN_FEW), fix
        )


def folder(case: Case) -> Iterable[Finding]:
    """The job's working directory is not there."""
    return each(
        case, Level.BAD, "workdir",
        lambda _, f: None if f.base_there else f"no folder {f.base}",
        "make it there, or change `workdir`",
    )  # fmt: skip
