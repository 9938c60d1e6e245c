"""Decides which nodes may be measured, and reads what each node reports about itself. Pure."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import cast

from msgspec import field

from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.field_checks import is_number
from rankdeck.model.json_tables import Table, as_table, parse_table
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import clean_line
from rankdeck.model.scheduler_node import SchedulerNode
from rankdeck.values import Value

PROGRAM = "facts.py"
_MARK = b"#rankdeck-facts "
_LONGEST = 1 << 18
_MOST_SHOWN = 8
_MOST = 64


class Network(Value, kw_only=True):
    """A network interface."""

    addresses: tuple[str, ...]
    gbps: float
    """Rate in Gb/s; 0: not known."""
    mtu: str


class Identity(Value, kw_only=True):
    """What a node reports about itself."""

    hostname: str
    machine: str
    """Two nodes with the same text are one machine."""
    boot: str
    """The same on nodes that share a kernel; the load that each
    reports is then that of all of them.
    """
    busy: float | None
    """Share of all cores in use before our measurements, from 0 to 1."""
    users: tuple[str, ...] = ()
    heat: tuple[str, ...] = ()
    """Devices that are so hot before the measurements that they will
    be throttled: `GPU 3 at 91 °C`.
    """
    gpu: str = ""
    """`nvidia` or `amd`; "" for no GPUs."""
    gpus: int = 0
    gpu_pids: tuple[str, ...] = ()
    has: frozenset[str] = frozenset()
    """What the node has: programs, Python modules (`module:NAME`),
    `rdma`, `gpu:nvidia`, `gpu:amd`.
    """
    networks: Mapping[str, Network] = field(default_factory=dict[str, Network])
    rdma: Mapping[str, float] = field(default_factory=dict[str, float])
    """Active RDMA port -> Gb/s, named as NCCL does: `mlx5_0`, or
    `mlx5_0:2` for another port than 1.
    """
    at: float = 0.0
    """The node's clock, in epoch seconds."""
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Fact -> value, for the table."""


def read_identity(output: bytes) -> Identity | None:
    """Parse what the program wrote on a node; None if it wrote nothing valid."""
    _, found, rest = output.partition(_MARK)
    facts = parse_table(rest.split(b"\n")[0].strip(), _LONGEST) if found else None
    return _identity(facts) if facts is not None else None


def _identity(facts: Table) -> Identity:
    gpu, rdma = as_table(facts.get("gpu")), as_table(facts.get("rdma"))
    kind = _text(gpu, "kind") if _text(gpu, "kind") in ("nvidia", "amd") else ""
    networks = {
        clean_line(name, 32): _network(as_table(one))
        for name, one in list(as_table(facts.get("networks")).items())[: 4 * _MOST]
    }
    has = {*_words(facts, "programs"), *(f"module:{name}" for name in _words(facts, "modules"))}
    has |= {"rdma"} if rdma else set()
    has |= {f"gpu:{kind}"} if kind else set()
    busy, at, count = facts.get("busy"), facts.get("at"), gpu.get("count")
    return Identity(
        hostname=_text(facts, "hostname"),
        machine=_text(facts, "machine", 1000),
        boot=_text(facts, "boot"),
        busy=float(busy) if is_number(busy) else None,
        users=_words(facts, "users"),
        heat=_words(facts, "heat")[:_MOST_SHOWN],
        gpu=kind,
        gpus=int(count) if is_number(count) and 0 <= count <= _MOST else 0,
        gpu_pids=_words(facts, "gpu_pids"),
        has=frozenset(has),
        networks=networks,
        rdma=_active(rdma),
        at=float(at) if is_number(at) else 0.0,
        facts=_facts(facts, gpu, rdma, kind),
    )


_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9])?) Gb/sec")


def _active(rdma: Table) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, one in list(rdma.items())[:_MOST]:
        device, _, port = clean_line(name, 32).partition("/")
        rate = _RATE.match(_text(as_table(one), "rate"))
        if rate and "ACTIVE" in _text(as_table(one), "state"):
            found[device if port in ("", "1") else f"{device}:{port}"] = float(rate[1])
    return found


_PLAIN = ("kernel", "arch", "system", "cpu", "governor", "mpi", "nccl", "python")
_GPU = ("name", "driver", "pcie", "power", "limits")
_GIB = 1 << 20
"""KiB of a GiB."""


def _facts(row: Table, gpu: Table, rdma: Table, kind: str) -> dict[str, str]:
    """The facts that have a value; without those that change with
    each boot (addresses, free memory).
    """
    facts = {name: _text(row, name) for name in _PLAIN}
    facts["cores"] = _text(row, "cores")
    memory = _text(row, "memory")
    facts["memory"] = f"{int(memory) / _GIB:.0f} GiB" if memory.isdecimal() else ""
    if kind:
        facts |= {f"gpu {name}": _text(gpu, name) for name in _GPU}
        facts["gpu count"] = _text(gpu, "count")
    for port, one in list(rdma.items())[:_MOST]:
        words = ("rate", "state", "firmware")
        facts |= {
            f"rdma {clean_line(port, 32)} {name}": _text(as_table(one), name) for name in words
        }
    return {name: value for name, value in facts.items() if value}


def of_network(identity: Identity, address: str) -> dict[str, str]:
    """Rate and MTU of the interface with this address, the one of the job network."""
    carrier = _carrier(identity, address)
    if carrier is None:
        return {}
    rate = {"link rate": f"{carrier.gbps:g} Gb/s"} if carrier.gbps else {}
    return {"mtu": carrier.mtu, **rate} if carrier.mtu else rate


def link_gbps(identity: Identity, address: str) -> float:
    """Rate of the interface with this address in Gb/s; 0 if it is not known."""
    carrier = _carrier(identity, address)
    return carrier.gbps if carrier else 0.0


def _carrier(identity: Identity, address: str) -> Network | None:
    return next((one for one in identity.networks.values() if address in one.addresses), None)


def job_address(cluster: Cluster, node: Node, identity: Identity | None) -> str:
    """The node's address on the job network: by `network:`, or else `interface:`, or
    else the address that the console uses.
    """
    own: Mapping[str, Network] = identity.networks if identity else {}
    if cluster.network and not ip_network(cluster.network, strict=False).is_loopback:
        inside = [
            one for net in own.values() for one in net.addresses if _within(one, cluster.network)
        ]
        if inside:
            return inside[0]
    if (net := own.get(node.interface)) is not None and net.addresses:
        return net.addresses[0]
    return node.host


def _within(address: str, network: str) -> bool:
    try:
        return ip_address(address) in ip_network(network, strict=False)
    except ValueError:
        return False


def _network(one: Table) -> Network:
    rate = one.get("rate")
    return Network(
        addresses=_words(one, "addresses"),
        gbps=float(rate) if is_number(rate) and 0 < rate <= 10_000 else 0.0,
        mtu=_text(one, "mtu", 10),
    )


def _text(row: Table, key: str, most: int = 120) -> str:
    value = row.get(key)
    return clean_line(str(value), most) if isinstance(value, str | int | float) else ""


def _words(row: Table, key: str) -> tuple[str, ...]:
    found = row.get(key)
    words = cast("list[object]", found) if isinstance(found, list) else []
    return tuple(clean_line(one, 80) for one in words[:_MOST] if isinstance(one, str))


BUSY = 0.5
"""A node with a larger share of busy cores counts as in use."""
CLOCK = 5.0
"""A larger difference between clocks, in seconds, is reported."""


class OutsideFacts(Value, kw_only=True):
    """What the console knows about the nodes beyond their own reports."""

    jobs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> a Rankdeck job that runs there."""
    away: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why it cannot take part at all: it did not answer, or its
    scheduler does not give it to us.
    """
    excluded: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why jobs are kept away from it.

    Such a node is measured: passing a run ends the exclusion.
    """
    bad: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why the judge of Fleet calls it bad, without what is acknowledged."""
    scheduled: bool = False
    """Whether a scheduler gives us the nodes exclusively, so that no others use them."""


class Admitted(Value, kw_only=True):
    """Which nodes take part, and which do not."""

    nodes: tuple[str, ...]
    left_out: Mapping[str, str]
    """Node -> why it does not take part."""
    virtual: tuple[str, ...] = ()
    """Nodes that intentionally share one machine; there is no network between them."""
    notes: tuple[str, ...] = ()


def admit_nodes(
    cluster: Cluster,
    wanted: Sequence[str],
    identities: Mapping[str, Identity],
    around: OutsideFacts,
    include: Sequence[str] = (),
) -> Admitted:
    """Decide for each node whether it takes part; `include` names busy
    and bad nodes that take part nevertheless.
    """
    doubled = _doubled(cluster, wanted, identities)
    kernels = _together({name: identities[name].boot for name in wanted if name in identities})
    left_out: dict[str, str] = {}
    taken: list[str] = []
    for name in wanted:
        never = around.away.get(name, "") or doubled.get(name, "")
        if name not in identities and not never:
            never = "it did not say what it is"
        why = never or (
            "" if name in include else _busy(name, identities[name], around, name in kernels)
        )
        if why:
            left_out[name] = why
        else:
            taken.append(name)
    return Admitted(
        nodes=tuple(taken),
        left_out=left_out,
        virtual=_virtual(taken, identities),
        notes=_notes(taken, identities, kernels, around),
    )


def kept_by_scheduler(
    views: Mapping[str, SchedulerNode], include: Collection[str] = ()
) -> dict[str, str]:
    """Node -> why its scheduler would not give it to us now; for the nodes
    in `include` our jobs may wait.
    """
    whys = {name: view.why_closed(shared=name in include) for name, view in views.items()}
    return {name: why for name, why in whys.items() if why}


def _busy(name: str, one: Identity, around: OutsideFacts, shared: bool) -> str:
    """Why the node counts as bad, in use or too hot, "" if it does not; load and
    heat are ignored if nodes share a kernel.
    """
    if bad := around.bad.get(name):
        return f"bad: {bad}; mend it, or acknowledge it"
    if job := around.jobs.get(name):
        return f"busy: {job} runs there"
    if one.heat and not shared:
        return f"too hot: {', '.join(one.heat)}; it would be slow now: let it cool, look at fans and inlet air"
    if around.scheduled:
        return ""
    if one.gpu_pids:
        return (
            f"busy: {len(one.gpu_pids)} processes on its GPUs (pid {', '.join(one.gpu_pids[:3])})"
        )
    if one.busy is not None and one.busy > BUSY and not shared:
        return f"busy: {one.busy:.0%} of its cores are in use".replace("%", " %")
    return ""


def _doubled(
    cluster: Cluster, wanted: Sequence[str], identities: Mapping[str, Identity]
) -> dict[str, str]:
    """Node -> why it is left out: its machine already takes part under another name."""
    first: dict[str, str] = {}
    found: dict[str, str] = {}
    for name in wanted:
        machine = identities[name].machine if name in identities else ""
        if not machine:
            continue
        other = first.setdefault(machine, name)
        if other != name and not _meant(cluster.node(other), cluster.node(name)):
            found[name] = (
                f"it is the same machine as {other} (it says it is {identities[name].hostname}): "
                "one of the two names leads to the wrong address"
            )
    return found


def _meant(one: Node, other: Node) -> bool:
    """Whether both are virtual nodes: the cluster file gives them the same address."""
    return one.host == other.host and one.port != other.port


def _together(keys: Mapping[str, str]) -> frozenset[str]:
    """Nodes that share their key with another node."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name, key in keys.items():
        groups[key].append(name)
    return frozenset(
        name for key, names in groups.items() if key and len(names) > 1 for name in names
    )


def _virtual(taken: Sequence[str], identities: Mapping[str, Identity]) -> tuple[str, ...]:
    together = _together({name: identities[name].machine for name in taken})
    return tuple(name for name in taken if name in together)


def _notes(
    taken: Sequence[str],
    identities: Mapping[str, Identity],
    kernels: frozenset[str],
    around: OutsideFacts,
) -> tuple[str, ...]:
    notes: list[str] = []
    virtual = _virtual(taken, identities)
    if virtual:
        notes.append(f"{fold_nodes(virtual)} are one machine: what is between them is no network")
    shared = [name for name in taken if name in kernels]
    if shared:
        loads = [share for name in shared if (share := identities[name].busy) is not None]
        much = f" ({max(loads):.0%} of its cores are in use)".replace("%", " %") if loads else ""
        one = len(shared) == 1
        who = "shares its kernel with another node" if one else "share one kernel"
        notes.append(
            f"{fold_nodes(shared)} {who}{much}: Rankdeck cannot tell which of them makes that load"
        )
    notes += [f"{name} is {around.excluded[name]}" for name in taken if name in around.excluded]
    held = {name: identities[name].facts.get("gpu limits", "none") for name in taken}
    notes += [f"{name}: its GPUs are {why}" for name, why in held.items() if why != "none"]
    users = {
        name: ", ".join(identities[name].users[:3]) for name in taken if identities[name].users
    }
    if users and not around.scheduled:
        notes.append(
            "logged in: " + "; ".join(f"{who} on {name}" for name, who in list(users.items())[:6])
        )
    clocks = sorted((identities[name].at, name) for name in taken if identities[name].at)
    if clocks and clocks[-1][0] - clocks[0][0] > CLOCK:
        apart = clocks[-1][0] - clocks[0][0]
        notes.append(
            f"clocks differ by up to {apart:.0f} s ({clocks[0][1]} behind, {clocks[-1][1]} ahead)"
        )
    return tuple(notes)
