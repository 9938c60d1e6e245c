"""One job on its nodes, as the checks see it."""

from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Network, ip_network

from rankdeck.backends.launchers import Placement, RankPlace
from rankdeck.model.job_spec import JobSpec
from rankdeck.preflight.facts import Interface, NodeFacts
from rankdeck.preflight.findings import Change, Finding, group_nodes, make_finding
from rankdeck.values import Value
from rankdeck_agent.rules.levels import Health, Level


class JobContext(Value, kw_only=True):
    """One job on its nodes. Nodes that did not answer are not in `facts`."""

    layout: Placement
    facts: Mapping[str, NodeFacts]
    health: Mapping[str, Health]
    """Health from telemetry; a node that is missing was not judged."""
    image_here: int | None = None
    """Size of the image on the console's machine in bytes; None: it is not there."""
    programs_here: frozenset[str] = frozenset()
    """Those of the job's programs that are files on the console's machine."""

    @property
    def spec(self) -> JobSpec:
        return self.layout.spec

    @property
    def answered(self) -> tuple[tuple[RankPlace, NodeFacts], ...]:
        """The places of ranks whose nodes answered, with the facts, in rank order."""
        places = self.layout.places
        return tuple((p, self.facts[p.node.name]) for p in places if p.node.name in self.facts)

    @property
    def network(self) -> IPv4Network | None:
        """The job network of the cluster file."""
        text = self.layout.cluster.network
        net = ip_network(text, strict=False) if text else None
        return net if isinstance(net, IPv4Network) else None


def findings_for_each(
    case: JobContext,
    level: Level,
    check: str,
    tell: Callable[[RankPlace, NodeFacts], str | None],
    fix: str = "",
    *patch: Change,
) -> Iterable[Finding]:
    """A finding for each sentence that `tell` returns (None: nothing); nodes
    with the same sentence share a finding.
    """
    sentences = group_nodes((p.node.name, tell(p, facts)) for p, facts in case.answered)
    return [
        make_finding(level, check, nodes, text, fix, *patch) for text, nodes in sentences.items()
    ]


def job_interface(case: JobContext, place: RankPlace, facts: NodeFacts) -> Interface | None:
    """The interface that the job will use on this node: by name, or
    else by network, or else by address.
    """
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
