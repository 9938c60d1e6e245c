"""Proposes to leave out nodes on which jobs fail more often than on others."""

from collections.abc import Callable, Collection, Mapping, Sequence

from rankdeck.backends.launchers import choose_nodes
from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.nodeset import fold_nodes
from rankdeck.preflight.findings import Change, Finding, make_finding
from rankdeck.rules.lemons import NodeRecord
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level

CHECK = "record"


def lemon_findings(
    cluster: Cluster,
    spec: JobSpec,
    lemons: Mapping[str, NodeRecord],
    may_use: Callable[[str], bool],
) -> list[Finding]:
    """A finding for each lemon that the job would use, with the job file's
    change that leaves all of them out; `may_use`: whether another node may take their place.
    """
    if cluster.can.chooses_nodes:
        return _of_scheduler(cluster, spec, lemons)
    try:
        chosen = [node.name for node in choose_nodes(cluster, spec)]
    except LaunchError:
        return []
    found = [lemons[name] for name in chosen if name in lemons]
    if not found:
        return []
    better = _nodes_without(cluster, replace(spec, on=tuple(chosen)), lemons, may_use)
    fix = (
        f"leave it out: `on: {fold_nodes(better)}`"
        if better
        else "leave it out: fewer nodes, or mend it"
    )
    change = (Change("on", list(better)),) if better else ()
    return [make_finding(Level.WARN, CHECK, one.node, one.sentence, fix, *change) for one in found]


def _nodes_without(
    cluster: Cluster, spec: JobSpec, out: Collection[str], may_use: Callable[[str], bool]
) -> Sequence[str]:
    """The nodes of the job with others in place of those in `out`; () if too few are left."""
    free = (
        node.name
        for node in cluster.nodes
        if node.name not in out and node.name not in spec.on
        and node.slots >= spec.ranks_per_node and may_use(node.name)
    )  # fmt: skip
    found = [name if name not in out else next(free, "") for name in spec.on]
    return found if all(found) else ()


def _of_scheduler(
    cluster: Cluster, spec: JobSpec, lemons: Mapping[str, NodeRecord]
) -> list[Finding]:
    key = f"{cluster.backend}.exclude"
    given = [name for name in spec.options.get(key, "").split(",") if name]
    new = [name for name in lemons if name not in given]
    if spec.on:
        new = [name for name in new if name in spec.on]
    change = Change(key, ",".join([*given, *new]))
    fix = f"leave it out: `{cluster.backend}: {{exclude: {change.value}}}`"
    return [
        make_finding(
            Level.WARN, CHECK, name, lemons[name].sentence,
            "leave it out: other nodes in `on`" if spec.on else fix, *(() if spec.on else (change,)),
        )
        for name in new
    ]  # fmt: skip
