"""Which ranks run on which node; the same for every launcher."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from rankdeck import plugins
from rankdeck.config.document import suggest
from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job import CLAIM, Container, JobSpec, Launch
from rankdeck.model.nodeset import fold
from rankdeck.runtimes import Runtime
from rankdeck_agent.wire import NodeFile, NodePlan

HOST_PATHS = ("PATH", "LD_LIBRARY_PATH", "MANPATH")
"""Variables that a cluster file sets for its nodes and that are of no use in an image."""


@dataclass(frozen=True, slots=True)
class RankPlace:
    """A node of the job and the ranks on it."""

    node: Node
    index: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Everything a launcher needs to write its commands."""

    cluster: Cluster
    spec: JobSpec
    job: str
    places: tuple[RankPlace, ...]
    runtime: Runtime

    @property
    def world_size(self) -> int:
        return sum(len(place.ranks) for place in self.places)

    @property
    def even(self) -> bool:
        return len({len(place.ranks) for place in self.places}) == 1

    def wrapped(self, command: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The command of a rank, or another, in the job's container where there is one."""
        command = command or self.spec.command
        container = self.spec.container
        if container is None:
            return command
        return self.runtime.wrap(command, container, self._inside(), self.spec.launch)

    def variables(self) -> dict[str, str]:
        """What cluster and job set on the nodes, with what the runtime needs to pass it on."""
        given = self.runtime.variables(self._inside())
        return {**self.cluster.environment, **self.spec.env, **given}

    def _inside(self) -> dict[str, str]:
        """What is set in the containers."""
        env = {**self.cluster.environment, **self.spec.env}
        return {key: value for key, value in env.items() if key not in HOST_PATHS}

    def node_plan(self, place: RankPlace, extra: Mapping[str, str]) -> NodePlan:
        """The plan of a node without any process; the job's own variables win over `extra`."""
        env = {"PYTHONUNBUFFERED": "1", **extra, **self.variables()}
        files = tuple(NodeFile(name, text) for name, text in self.spec.files.items())
        return NodePlan(
            job=self.job,
            node=place.node.name,
            ranks=place.ranks,
            files=files,
            env=env,
            tty=self.spec.tty,
            grace=self.spec.grace,
        )


def lay_out(cluster: Cluster, spec: JobSpec, job: str) -> Placement:
    """The places of a job's ranks: node by node, in order; raises LaunchError."""
    if not spec.command:
        raise LaunchError("plan", f"job `{spec.name}` has no command")
    refuse_claims(spec.container)
    first = 0
    places: list[RankPlace] = []
    for index, node in enumerate(choose_nodes(cluster, spec)):
        count = _count(node, spec)
        places.append(RankPlace(node, index, tuple(range(first, first + count))))
        first += count
    runtime = find_runtime(spec.container)
    return Placement(cluster=cluster, spec=spec, job=job, places=tuple(places), runtime=runtime)


def find_runtime(container: Container | None) -> Runtime:
    """The runtime of the job's container."""
    return plugins.find("runtimes", container.runtime if container else "none")()


def refuse_claims(container: Container | None) -> None:
    """Raise LaunchError where a mount is a volume claim, which only Kubernetes has."""
    for mount in container.mounts if container else ():
        if mount.startswith(CLAIM):
            raise LaunchError("plan", f"mount `{mount}`: volume claims are only on Kubernetes")


def without(cluster: Cluster, spec: JobSpec, excluded: Mapping[str, str]) -> JobSpec:
    """The job on nodes that nobody excluded; raises LaunchError where it names one that is, or too few are left.

    `excluded` is node -> why. A scheduler that chooses the nodes itself is told by its option `exclude`.
    """
    named = [name for name in spec.on if name in excluded]
    if named:
        why = f"`{named[0]}` is {excluded[named[0]]}; take it back with `rankdeck accept --readmit {named[0]}`"
        raise LaunchError("plan", why)
    if spec.on or not excluded:
        return spec
    if cluster.backend == "slurm":
        return replace(spec, options={**spec.options, "exclude": ",".join(sorted(excluded))})
    left = [node.name for node in cluster.nodes if node.name not in excluded]
    if (
        not left
        or cluster.backend == "kubernetes"
        or excluded.keys().isdisjoint(n.name for n in cluster.nodes[: spec.nodes])
    ):
        return spec
    if spec.nodes > len(left):
        out = fold(node.name for node in cluster.nodes if node.name in excluded)
        raise LaunchError(
            "plan",
            f"job `{spec.name}` wants {spec.nodes} nodes, {len(left)} are left: {out} excluded by `rankdeck accept`",
        )
    return replace(spec, on=tuple(left[: spec.nodes]))


def placed(
    cluster: Cluster, spec: JobSpec, excluded: Mapping[str, str], bad: Set[str], busy: Set[str]
) -> JobSpec:
    """The job `without` excluded nodes and, where it names none, without bad ones as long as good ones are free."""
    chosen = without(cluster, spec, excluded)
    if spec.on or not bad or cluster.backend in ("slurm", "kubernetes"):
        return chosen
    first = chosen.on or tuple(node.name for node in cluster.nodes[: spec.nodes])
    out = {*first, *excluded} | bad | busy
    free = (n.name for n in cluster.nodes if n.name not in out and n.slots >= spec.ranks_per_node)
    on = tuple(next(free, name) if name in bad else name for name in first)
    return chosen if on == first else replace(chosen, on=on)


def choose_nodes(cluster: Cluster, spec: JobSpec) -> tuple[Node, ...]:
    """The nodes named by the job, else the first ones of the cluster."""
    if spec.on:
        return tuple(_named(cluster, name) for name in spec.on)
    if spec.nodes > len(cluster.nodes):
        have = f"cluster `{cluster.name}` has {len(cluster.nodes)}"
        names = f" ({fold(node.name for node in cluster.nodes)})" if cluster.nodes else ""
        raise LaunchError("plan", f"job `{spec.name}` wants {spec.nodes} nodes; {have}{names}")
    if spec.nodes < 1:
        raise LaunchError("plan", f"job `{spec.name}` wants no node at all")
    return cluster.nodes[: spec.nodes]


def _named(cluster: Cluster, name: str) -> Node:
    try:
        return cluster.node(name)
    except KeyError:
        known = [node.name for node in cluster.nodes]
        hint = suggest(name, known) or f"; there are: {fold(known)}"
        raise LaunchError("plan", f"no node `{name}` in cluster `{cluster.name}`{hint}") from None


def _count(node: Node, spec: JobSpec) -> int:
    if spec.launch is Launch.TENSORFLOW:
        return 1
    if spec.ranks_per_node > node.slots:
        raise LaunchError(
            "plan",
            f"{spec.ranks_per_node} ranks do not fit on `{node.name}`: it has {node.slots}"
            f" slot{'s' if node.slots != 1 else ''}; raise `slots` in the cluster file"
            " or lower `ranks_per_node`",
        )
    return spec.ranks_per_node or node.slots


def with_files(plan: NodePlan, *files: NodeFile) -> NodePlan:
    """The plan with more files in the run folder."""
    return replace(plan, files=(*plan.files, *files))


def interface_env(node: Node) -> dict[str, str]:
    """Which interface NCCL and Gloo take; `=` makes NCCL match the whole name."""
    if not node.interface:
        return {}
    return {
        "NCCL_SOCKET_IFNAME": f"={node.interface}",
        "GLOO_SOCKET_IFNAME": node.interface,
    }
