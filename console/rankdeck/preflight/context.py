"""Everything that the checks look at: the job, its places, and what the nodes told."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_address, ip_network
from typing import TypeVar

from rankdeck.backends.placement import Placement, RankPlace
from rankdeck.model.health import Health, Level
from rankdeck.model.job import JobSpec, Launch
from rankdeck.model.nodeset import fold
from rankdeck.preflight.facts import Interface, NodeFacts
from rankdeck.preflight.findings import Change, Finding, found
from rankdeck_agent.wire import RUN_TOKEN

K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One job on its nodes. Nodes that did not answer are not in `facts`."""

    layout: Placement
    facts: Mapping[str, NodeFacts]
    health: Mapping[str, Health]
    """From telemetry; a node that is not in it is not judged."""
    image_here: int | None = None
    """Bytes of the image on the console's own machine; None: it is not there."""

    @property
    def spec(self) -> JobSpec:
        return self.layout.spec

    @property
    def answered(self) -> tuple[tuple[RankPlace, NodeFacts], ...]:
        """The places whose nodes answered, in rank order."""
        places = self.layout.places
        return tuple((p, self.facts[p.node.name]) for p in places if p.node.name in self.facts)

    @property
    def network(self) -> IPv4Network | None:
        """The job network of the cluster file."""
        text = self.layout.cluster.network
        net = ip_network(text, strict=False) if text else None
        return net if isinstance(net, IPv4Network) else None


def group(pairs: Iterable[tuple[str, K | None]]) -> dict[K, str]:
    """What nodes have in common -> the node set that has it; None values are left out."""
    groups: dict[K, list[str]] = {}
    for node, value in pairs:
        if value is not None:
            groups.setdefault(value, []).append(node)
    return {value: fold(nodes) for value, nodes in groups.items()}


def each(
    case: Context,
    level: Level,
    check: str,
    tell: Callable[[RankPlace, NodeFacts], str | None],
    fix: str = "",
    *patch: Change,
) -> Iterable[Finding]:
    """A finding per sentence that `tell` gives, nodes with the same sentence together."""
    sentences = group((p.node.name, tell(p, facts)) for p, facts in case.answered)
    return [found(level, check, nodes, text, fix, *patch) for text, nodes in sentences.items()]


def programs_of(spec: JobSpec) -> tuple[str, ...]:
    """What must be on every node: the launcher's command, and the program outside of images."""
    launcher = {Launch.MPI: spec.mpi.path, Launch.TORCHRUN: spec.torch.path}
    boxed = spec.container is not None and spec.container.runtime != "none"
    # Torchrun is the image's where there is one.
    outside = spec.launch is Launch.MPI or not boxed
    names = [launcher.get(spec.launch, "") if outside else ""]
    if spec.container is None or not boxed:
        names += own_files(spec)
    elif spec.container.runtime:
        names.append(spec.container.runtime)
    return tuple(name for name in dict.fromkeys(names) if name)


def own_files(spec: JobSpec) -> list[str]:
    """The program and, behind an interpreter, its script, where the job does not bring them."""
    words = [spec.command[0]]
    words += [word for word in spec.command[1:3] if word.endswith(".py")][:1]
    return [word for word in words if RUN_TOKEN not in word]


def needs_names(spec: JobSpec) -> bool:
    """Whether ranks look for other nodes by the cluster file's host names."""
    return spec.launch in (Launch.TORCHRUN, Launch.TENSORFLOW)


def is_address(host: str) -> bool:
    """Whether a host is given by number."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def job_interface(case: Context, place: RankPlace, facts: NodeFacts) -> Interface | None:
    """The interface that the job will use there: by name, else by network, else by address."""
    named = place.node.interface
    for interface in facts.interfaces:
        address = interface.address
        if named:
            if interface.name == named:
                return interface
        elif address is not None:
            if case.network is not None and address.ip in case.network:
                return interface
            if case.network is None and str(address.ip) == place.node.host:
                return interface
    return None
