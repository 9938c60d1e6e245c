"""Plans a swap proof: which runs, which ranks on which nodes, how long at most. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations, islice

from msgspec import field

from rankdeck.backends.launchers import lay_out
from rankdeck.errors import LaunchError, RankdeckError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.rank import State
from rankdeck.swap.fault import places_of
from rankdeck.swap.values import LIMIT, FaultKind, JobFault, RunWay, SwapPlan, SwapRun
from rankdeck.values import Value, replace
from rankdeck_agent.rules.units import write_duration

_TWICE = 2.0
"""A run lasts so many times as long as the fault took in the job."""
_TO_TELL = {FaultKind.FAILED: 20.0, FaultKind.HANG: 90.0, FaultKind.SLOW: 150.0}
"""Seconds more, in which a fault of this kind is noticed."""
_MOST_HALVES = 4
"""Most runs where nobody is named."""
Places = Mapping[str, tuple[int, ...]]


class SwapError(RankdeckError):
    """A swap proof that cannot be made for this job; the text says why."""


class Around(Value, kw_only=True):
    """What is known of the nodes, besides the job."""

    free: tuple[str, ...] = ()
    """Nodes of the cluster that are not of the job and could stand in."""
    silent: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node that does not answer -> why."""


def refuse_job(job: Job, fault: JobFault | None) -> tuple[JobSpec, JobFault]:
    """The job file and the fault of a job that a swap proof can be made of; raises SwapError."""
    if job.plan.replay_of:
        raise SwapError(f"{job.id} is a replay: name the job itself, {job.plan.replay_of}")
    if fault is None:
        raise SwapError(_no_fault(job))
    if job.not_started or job.began is None:
        why = f": {job.not_started}" if job.not_started else ""
        raise SwapError(f"no rank of {job.id} began, so none can be swapped{why}")
    spec = job.plan.spec
    if spec is None or not spec.command:
        raise SwapError(
            f"the job file of {job.id} is not known here: start it again with `run`, then swap that"
        )
    if job.in_scheduler is not None and job.in_scheduler.array:
        raise SwapError(
            f"{job.id} is an array: its tasks do not know each other, so start one elsewhere"
        )
    return spec, fault


def _no_fault(job: Job) -> str:
    if not job.state.final:
        return f"{job.id} runs, and nothing is wrong with it: there is no fault to look for"
    if job.state is State.DONE:
        return f"{job.id} ended well: there is no fault to look for"
    return f"{job.id} was {job.state.value} and shows no fault: there is none to look for"


def plan_swap(cluster: Cluster, job: Job, fault: JobFault | None, around: Around, limit: float = LIMIT) -> SwapPlan:  # fmt: skip
    """The swap proof of this job; raises SwapError."""
    spec, fault = refuse_job(job, fault)
    places = places_of(job)
    _refuse_nodes(cluster, job, places, around)
    base = replace(spec, file="", part_of="")
    plan = SwapPlan(
        cluster=cluster.name, job=job.id, fault=fault, places=places, runs=(),
        ends_job=not job.state.final,
    )  # fmt: skip
    within = _run_limit(fault, limit, cluster.access.patience)
    if cluster.can.chooses_nodes:
        runs = _scheduled(cluster, plan, base)
    elif plan.suspects:
        runs = _named(_Maker(cluster, base, plan), around.free)
    else:
        runs = _unnamed(_Maker(cluster, base, plan), around.free)
    if not runs:
        raise SwapError(_no_room(job, places))
    runs = [replace(run, limit=within) for run in runs]
    return replace(plan, runs=tuple(runs), notes=tuple(_notes(plan, runs, limit)))


def _refuse_nodes(cluster: Cluster, job: Job, places: Places, around: Around) -> None:
    if not places:
        raise SwapError(f"it is not known on which nodes the ranks of {job.id} were")
    if cluster.can.chooses_nodes:
        return
    if gone := [node for node in places if not cluster.has(node)]:
        raise SwapError(
            f"{job.id} ran on {fold_nodes(gone)}, which `{cluster.name}` no longer has: put it back into the cluster file first"
        )
    if silent := [node for node in places if node in around.silent]:
        raise SwapError(
            f"{silent[0]} does not answer now ({around.silent[silent[0]]}): a swap needs the nodes of {job.id}"
        )


def _no_room(job: Job, places: Places) -> str:
    count = len(places)
    if count == 1:
        return f"{job.id} ran on {next(iter(places))} alone, and no other free node has slots for its ranks: nothing can be swapped"
    return f"the ranks of {job.id} cannot be moved: its {count} nodes have different numbers of them, or too few slots"


def _run_limit(fault: JobFault, limit: float, patience: float) -> float:
    """Most seconds of a run: twice what it took, and what it takes to tell it."""
    if fault.seconds is None:
        return limit
    return min(limit, (_TWICE * fault.seconds + _TO_TELL[fault.kind]) * patience)


def _notes(plan: SwapPlan, runs: Sequence[SwapRun], limit: float) -> Iterable[str]:
    after = plan.fault.seconds
    if after is not None and after >= limit:
        yield (
            f"the fault came late, after {write_duration(after)}: a run is stopped after {write_duration(limit)}, before that"
            f" time. Better start from a checkpoint shortly before it, or give --limit {_span(after)}"
        )
    if not any(run.way is RunWay.WITHOUT for run in runs):
        yield (
            f"no run without {fold_nodes(plan.suspects or plan.places)}: no other node is free, and the ranks do not"
            " fit evenly on the others"
        )
    if all(run.way is not RunWay.MOVED for run in runs) and plan.suspects:
        yield "the scheduler places the ranks: none is moved by itself, the job runs without the node and unchanged"


def _span(seconds: float) -> str:
    """Twice the time, as an option takes it."""
    minutes = int(_TWICE * seconds / 60) + 1
    return f"{minutes}m" if minutes < 120 else f"{minutes // 60 + 1}h"


# ---- where nodes can be chosen


class _Maker(Value):
    """Makes runs of one job on chosen nodes."""

    cluster: Cluster
    base: JobSpec
    plan: SwapPlan

    def run_on(
        self, way: RunWay, nodes: Sequence[str], *, each: int | None = None
    ) -> SwapRun | None:
        """The run with these nodes, in this order; None if it does not have the same ranks."""
        count = self.base.ranks_per_node if each is None else each
        spec = replace(self.base, nodes=len(nodes), on=tuple(nodes), ranks_per_node=count)
        try:
            layout = lay_out(self.cluster, spec, self.plan.job)
        except LaunchError:
            return None
        places = {place.node.name: place.ranks for place in layout.places}
        without = tuple(node for node in self.plan.places if node not in places)
        same = sum(map(len, places.values())) == sum(map(len, self.plan.places.values()))
        left_out = without if way is RunWay.WITHOUT else ()
        return SwapRun(way=way, spec=spec, places=places, without=left_out) if same else None

    def moved(self, nodes: Sequence[str]) -> SwapRun | None:
        """The same, if each rank that is named is on another node than it was, and the nodes that
        are suspected have others.
        """
        run = self.run_on(RunWay.MOVED, nodes)
        if run is None:
            return None
        named = self.plan.fault.ranks or tuple(
            rank for node in self.plan.suspects for rank in self.plan.places.get(node, ())
        )
        stays = any(
            rank in run.places.get(node, ()) and rank in named
            for node, ranks in self.plan.places.items()
            for rank in ranks
        )
        used = all(run.places.get(node) for node in self.plan.suspects)
        return None if stays or not used else run


def _named(maker: _Maker, free: Sequence[str]) -> list[SwapRun]:
    """Moved, without the suspects, unchanged (only if none had a fault), moved once more."""
    nodes = list(maker.plan.places)
    turns = (nodes[k:] + nodes[:k] for k in range(1, len(nodes)))
    pairs = (_exchanged(nodes, one, other) for one, other in combinations(nodes, 2))
    moved = list(islice(filter(None, map(maker.moved, chain(turns, pairs))), 2))
    without = _left_out(maker, nodes, free)
    again = maker.run_on(RunWay.AGAIN, nodes)
    first, second = moved[:1], (moved[1:] or moved[:1])
    if not first and without is None:
        return []
    return [run for run in (*first, without, again, *second) if run is not None]


def _exchanged(nodes: Sequence[str], one: str, other: str) -> list[str]:
    names = {one: other, other: one}
    return [names.get(node, node) for node in nodes]


def _left_out(maker: _Maker, nodes: Sequence[str], free: Sequence[str]) -> SwapRun | None:
    """The run without the suspects: others stand in, or the remaining nodes take more ranks."""
    suspects = maker.plan.suspects
    if len(suspects) > 1 and len(suspects) == len(nodes):
        return None
    stand_in = iter(free)
    whole = [next(stand_in, "") if node in suspects else node for node in nodes]
    if "" not in whole:
        run = maker.run_on(RunWay.WITHOUT, whole)
        if run is not None:
            return run
    return _packed(maker, [node for node in nodes if node not in suspects])


def _packed(maker: _Maker, nodes: Sequence[str]) -> SwapRun | None:
    ranks = sum(map(len, maker.plan.places.values()))
    if not nodes or ranks % len(nodes) or maker.base.launch is Launch.TENSORFLOW:
        return None
    return maker.run_on(RunWay.WITHOUT, nodes, each=ranks // len(nodes))


def _unnamed(maker: _Maker, free: Sequence[str]) -> list[SwapRun]:
    """Runs on parts of the nodes that have no node in common: a fault of one node cannot come in
    all of them. None if the ranks do not fit.
    """
    nodes, pool = list(maker.plan.places), [*maker.plan.places, *free]
    for size in range(1, len(pool)):
        runs = _on_parts(maker, pool, size, len(nodes))
        if runs:
            # Once more those in which it goes well: that may be chance.
            return [*runs, *filter(None, [maker.run_on(RunWay.AGAIN, nodes)]), *runs]
    return []


def _on_parts(maker: _Maker, pool: Sequence[str], size: int, whole: int) -> list[SwapRun]:
    used = dict.fromkeys(pool, 0)
    shared, runs = set(pool), list[SwapRun]()
    while shared & set(maker.plan.places) and len(runs) < _MOST_HALVES:
        part = sorted(pool, key=lambda node: (used[node], node in shared))[:size]
        part.sort(key=list(pool).index)
        run = maker.run_on(RunWay.WITHOUT, part) if size == whole else _packed(maker, part)
        if run is None:
            return []
        runs.append(run)
        shared &= set(part)
        for node in part:
            used[node] += 1
    return [] if shared & set(maker.plan.places) else runs


# ---- where a scheduler chooses


def _scheduled(cluster: Cluster, plan: SwapPlan, base: JobSpec) -> list[SwapRun]:
    """Without the suspects (all nodes of the job, if nobody is named), then on the same nodes."""
    out = plan.suspects or tuple(plan.places)
    key = f"{cluster.backend}.exclude"
    named = {name: text for name, text in base.options.items() if not name.endswith(".nodelist")}
    excluded = ",".join(filter(None, (named.get(key, ""), *out)))
    free = replace(base, on=(), options={**named, key: excluded})
    same = replace(base, on=tuple(plan.places), nodes=len(plan.places), options=named)
    without = SwapRun(way=RunWay.WITHOUT, spec=free, without=out)
    # Nobody is moved: only a second run without them tells chance from the node.
    return [without, SwapRun(way=RunWay.AGAIN, spec=same, places=plan.places), without]
