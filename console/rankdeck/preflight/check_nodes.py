"""Checks of the nodes: clocks, cores, memory, disks, host names, GPUs, telemetry."""

from collections.abc import Iterable

from rankdeck.model.cluster import Node
from rankdeck.model.health import Level
from rankdeck.model.job import Launch
from rankdeck.model.text import duration, size
from rankdeck.preflight.facts import (
    Finding,
    JobContext,
    NodeFacts,
    each,
    found,
    is_address,
    needs_names,
)

SKEW = 2.0
"""Seconds: from there on lines of different nodes are out of order."""
_SHM_PER_RANK = 16 << 20
_RUN_LEAST, _RUN_FEW = 16 << 20, 256 << 20


def clock(case: JobContext) -> Iterable[Finding]:
    """Clocks that are off from the console's for certain."""
    off = {p.node.name: f.skew for p, f in case.answered if abs(f.skew) > SKEW}
    for node, skew in off.items():
        way = "ahead of" if skew > 0 else "behind"
        yield found(
            Level.WARN, "clock", node, f"the clock is {duration(abs(skew))} {way} the console's",
            "switch time synchronisation on there: `timedatectl set-ntp true`",
        )  # fmt: skip


def slots(case: JobContext) -> Iterable[Finding]:
    """More ranks than cores."""
    return each(
        case, Level.WARN, "slots",
        lambda p, f: f"{len(p.ranks)} ranks share {f.cores} core{'s' * (f.cores != 1)}"
        if f.cores and len(p.ranks) > f.cores else None,
        "lower `ranks_per_node`, or `slots` in the cluster file",
    )  # fmt: skip


def memlock(case: JobContext) -> Iterable[Finding]:
    """Locked memory is limited where RDMA needs it."""
    return each(
        case, Level.WARN, "memlock",
        lambda p, f: f"only {size(f.memlock)} of memory may be locked: RDMA falls back or fails"
        if p.node.rdma and f.memlock is not None else None,
        "put `* - memlock unlimited` into /etc/security/limits.d there, and for sshd `LimitMEMLOCK=infinity`",
    )  # fmt: skip


def shared_memory(case: JobContext) -> Iterable[Finding]:
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


def space(case: JobContext) -> Iterable[Finding]:
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


def folder(case: JobContext) -> Iterable[Finding]:
    """The job's working directory is not there."""
    return each(
        case, Level.BAD, "workdir",
        lambda _, f: None if f.base_there else f"no folder {f.base}",
        "make it there, or change `workdir`",
    )  # fmt: skip


def names(case: JobContext) -> Iterable[Finding]:
    """Host names that mean nothing on some node."""
    if not needs_names(case.spec) or len(case.layout.places) < 2:
        return
    for place in case.layout.places:
        host = place.node.host
        if not is_address(host):
            yield from each(
                case, Level.BAD, "names",
                lambda _, f, h=host: f"`{h}` does not resolve: {f.names[h].error}"
                if h in f.names and f.names[h].error else None,
                "give the node an `address` in the cluster file, or add it to /etc/hosts there",
            )  # fmt: skip
    if case.spec.launch is Launch.TORCHRUN:
        yield from own_name(case)


def own_name(case: JobContext) -> Iterable[Finding]:
    """A node whose own name means loopback, or nothing: Gloo listens where the others never come."""

    def tell(node: Node, facts: NodeFacts) -> str | None:
        if node.interface or "GLOO_SOCKET_IFNAME" in case.spec.env:
            return None
        if facts.own.error:
            return f"its own name `{facts.own_name}` does not resolve: {facts.own.error}"
        loopback = all(a.startswith("127.") or a == "::1" for a in facts.own.addresses)
        return (
            f"its own name `{facts.own_name}` is {facts.own.addresses[0]}: Gloo will listen on loopback"
            if facts.own.addresses and loopback and not node.host.startswith("127.")
            else None
        )

    return each(
        case, Level.WARN, "names", lambda p, f: tell(p.node, f),
        "name the `interface` of the job network in the cluster file",
    )  # fmt: skip


def gpus(case: JobContext) -> Iterable[Finding]:
    """GPUs that are missing, ailing or in use."""
    for place, facts in case.answered:
        node, told = place.node, facts.gpus
        if told is None or (not node.gpus and told.error):
            continue
        if told.error or len(told.names) < node.gpus:
            have = told.error or f"the driver shows {len(told.names)}"
            yield found(
                Level.BAD,
                "gpu",
                node.name,
                f"the cluster file says {node.gpus} GPUs: {have}",
                "look at `nvidia-smi` and `dmesg` there, or correct `gpus`",
            )
        for index, errors in enumerate(told.uncorrected):
            if errors:
                yield found(
                    Level.WARN,
                    "gpu",
                    node.name,
                    f"GPU {index} has {errors} uncorrected memory errors since boot",
                    f"`nvidia-smi --gpu-reset -i {index}` there when nobody uses it, or leave the node out with `on`",
                )
        if told.users:
            yield found(
                Level.WARN,
                "gpu",
                node.name,
                f"GPUs are in use: {', '.join(told.users[:3])}",
                "wait, end it, or choose other nodes with `on`",
            )


def health(case: JobContext) -> Iterable[Finding]:
    """What telemetry has against a node."""
    for place in case.layout.places:
        known = case.health.get(place.node.name)
        for reason in known.reasons if known else ():
            if reason.level in (Level.WARN, Level.BAD):
                # The job may still run well: the operator decides.
                yield found(Level.WARN, "health", place.node.name, reason.text)
