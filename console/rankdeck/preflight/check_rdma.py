"""Checks of RDMA ports: whether the GID index that a job sets means the same on every node."""

from collections.abc import Iterable, Mapping

from rankdeck.backends.launchers import RankPlace
from rankdeck.model.nodeset import fold_nodes
from rankdeck.preflight.facts import NodeFacts, RdmaPort
from rankdeck.preflight.findings import Change, Finding, group_nodes, make_finding
from rankdeck.preflight.job_context import JobContext, job_interface
from rankdeck.values import Value
from rankdeck_agent.rules.levels import Level

_VARIABLES = (
    "NCCL_IB_GID_INDEX",
    "NVSHMEM_IB_GID_INDEX",
    "UCX_IB_GID_INDEX",
    "OMPI_MCA_btl_openib_gid_index",
)
_MOST_SHOWN = 6


class GidChoice(Value):
    """The index that a variable sets for all RDMA ports of the job."""

    variable: str
    index: int


def chosen_gids(case: JobContext) -> list[GidChoice]:
    """The GID indexes that the job file or the cluster file sets."""
    env = {**case.layout.cluster.environment, **case.spec.env}
    values = ((name, env.get(name, "").strip()) for name in _VARIABLES)
    # UCX also has `auto`, NCCL -1: these look for themselves.
    return [
        GidChoice(name, int(text)) for name, text in values if text.isascii() and text.isdecimal()
    ]


def check_gids(case: JobContext) -> Iterable[Finding]:
    """Check each index: it is there, in the job network, and of one kind, on every node."""
    for chosen in chosen_gids(case):
        ports = {p.node.name: _ports_of(case, p, facts) for p, facts in case.answered}
        wrong = list(_wrong_ones(case, chosen, ports))
        yield from wrong or _mixed_kinds(case, chosen, ports)


def _ports_of(case: JobContext, place: RankPlace, facts: NodeFacts) -> list[RdmaPort]:
    """The ports of RoCE that the job uses on this node: those of its interface, else all."""
    ports = [port for port in facts.rdma if port.link == "Ethernet" and port.active]
    interface = job_interface(case, place, facts)
    own = [port for port in ports if interface and interface.name in port.devices]
    return own or ports


def _wrong_ones(
    case: JobContext, chosen: GidChoice, ports: Mapping[str, list[RdmaPort]]
) -> Iterable[Finding]:
    """Findings for ports that have no such GID, or one outside the job network."""
    said = group_nodes(
        (node, _what_is_wrong(case, chosen, port)) for node, some in ports.items() for port in some
    )
    for text, nodes in said.items():
        yield _finding(case, chosen, nodes, text)


def _what_is_wrong(case: JobContext, chosen: GidChoice, port: RdmaPort) -> str | None:
    said, gid = f"`{chosen.variable}={chosen.index}`", port.gids.get(chosen.index)
    there = ", ".join(f"{n} ({one.words})" for n, one in list(port.gids.items())[:_MOST_SHOWN])
    if gid is None:
        return f"{said}: {port.name} has no GID {chosen.index}; it has {there or 'none'}"
    inside = [n for n, one in port.gids.items() if case.network and one.address in case.network]
    if inside and chosen.index not in inside:
        best = max(inside, key=lambda n: "v2" in port.gids[n].kind)
        return (
            f"{said}: that GID of {port.name} is {gid.words}, outside the job network"
            f" {case.network}; GID {best} is {port.gids[best].words}"
        )
    return None


def _mixed_kinds(
    case: JobContext, chosen: GidChoice, ports: Mapping[str, list[RdmaPort]]
) -> Iterable[Finding]:
    """A finding if the GIDs of this index cannot talk to each other."""
    kinds = group_nodes(
        (node, port.gids[chosen.index].family) for node, some in ports.items() for port in some
    )
    if len(kinds) > 1:
        parts = ", ".join(f"{kind} on {nodes}" for kind, nodes in kinds.items())
        text = f"`{chosen.variable}={chosen.index}` is not the same on all nodes: {parts}"
        yield _finding(case, chosen, fold_nodes(ports), text)


def _finding(case: JobContext, chosen: GidChoice, nodes: str, text: str) -> Finding:
    name = chosen.variable
    own = (Change(f"env.{name}", None),) if name in case.spec.env else ()
    where = "" if own else " of `environment` in the cluster file"
    fix = (
        f"take {name} out{where}, so that each node looks for its own GID; or give the interfaces"
        " the same addresses in the same order (`ip address`), which sets the index"
    )
    return make_finding(Level.BAD, "gid", nodes, text, fix, *own)
