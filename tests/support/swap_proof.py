"""Swap proofs as front ends get them: the real planner and judge, on runs that a test makes up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Job, RankState
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.model.stall import Stall
from rankdeck.swap.fault import fault_in
from rankdeck.swap.judge import judge_swap
from rankdeck.swap.planning import Around, SwapError, plan_swap
from rankdeck.swap.values import LIMIT, RunOutcome, Swap, SwapPlan, SwapResult, SwapRun
from rankdeck.values import replace
from rankdeck_agent.wire import NodePlan

START = 1_700_000_000.0


def cluster_with(count: int = 3, slots: int = 4) -> Cluster:
    return Cluster(
        name="c", nodes=tuple(Node(name=f"n{at + 1}", slots=slots) for at in range(count))
    )


def failed_job(
    nodes: int = 3, each: int = 2, rank: int | None = 3, after: float = 8.0, **more: object
) -> Job:
    """A job of which this rank failed `after` seconds."""
    names = [f"n{at + 1}" for at in range(nodes)]
    ranks = tuple(
        RankState(rank=n, node=names[n // each], state=State.FAILED, started=START, ended=START + after)
        for n in range(nodes * each)
    )  # fmt: skip
    spec = JobSpec(
        name="train", launch=Launch.PLAIN, command=("x",), nodes=nodes, ranks_per_node=each
    )
    plans = tuple(
        NodePlan("train-1", name, tuple(range(at * each, at * each + each)))
        for at, name in enumerate(names)
    )
    plan = Plan(job="train-1", name="train", cluster="c", backend="ssh", nodes=plans, spec=spec)
    node = "n1" if rank is None else names[rank // each]
    failure = FirstFailure(rank=rank, node=node, exit_code=3, signal=None, at=START + after)
    fields = {"state": State.FAILED, "first_failure": failure, "ended": START + after, **more}
    return Job(
        id="train-1", name="train", cluster="c", plan=plan, created=START, ranks=ranks,
        **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def stalled_job(stall: Stall | None = None, **more: object) -> Job:
    """A job that runs and stands still."""
    found = stall or Stall(kind="rank", ranks=(3,), since=START + 8, text="rank 3 is silent")
    job = failed_job()
    ranks = tuple(replace(one, state=State.RUNNING, ended=None) for one in job.ranks)
    fields = {"state": State.RUNNING, "first_failure": None, "ended": None, "ranks": ranks, "stalled": (found,), **more}  # fmt: skip
    return replace(job, **fields)  # type: ignore[arg-type]


def planned_swap(
    job: Job | None = None, count: int = 3, slots: int = 4, **more: object
) -> SwapPlan:
    made = failed_job() if job is None else job
    return plan_swap(cluster_with(count, slots), made, fault_in(made), Around(**more))  # type: ignore[arg-type]


Law = Callable[[SwapRun], tuple[tuple[int, ...], tuple[str, ...]] | None]
"""Who is named in a run: (ranks, nodes); None: it goes well."""


def of_rank(rank: int) -> Law:
    """The fault stays with a rank."""
    return lambda run: ((rank,), ())


def of_node(node: str) -> Law:
    """The fault goes with a node: its first rank is named."""
    return lambda run: ((run.places[node][0],), ()) if node in run.places else None


def results_of(plan: SwapPlan, law: Law, runs: Sequence[int] = ()) -> tuple[SwapResult, ...]:
    """The results of these runs of a plan, from 1; () for all but an unchanged one."""
    chosen = [plan.runs[number - 1] for number in runs] or plan.runs
    found: list[SwapResult] = []
    for run in chosen:
        said = law(run)
        fault = None if said is None else replace(plan.fault, ranks=said[0], nodes=said[1])
        outcome = RunOutcome.NONE if fault is None else RunOutcome.AGAIN
        found.append(
            SwapResult(run=run, outcome=outcome, fault=fault, places=run.places, seconds=9.0, job="train-2")
        )  # fmt: skip
    return tuple(found)


def ended_swap(law: Law | None = None, runs: Sequence[int] = (1, 2)) -> Swap:
    plan = planned_swap()
    results = results_of(plan, law or of_node("n2"), runs)
    return Swap(
        id="w1", plan=plan, results=results, started=START, ended=START + 60,
        verdict=judge_swap(plan, results),
    )  # fmt: skip


@dataclass
class SwapPort:
    """A session's swap proofs, which make no run: `after` is what has come out."""

    current: Swap | None = None
    after: Swap | None = None
    refused: str = ""
    changed: Callable[[], None] = field(default=lambda: None)
    planned: list[tuple[str, float]] = field(default_factory=list)
    started: int = 0
    stopped: int = 0

    async def plan(self, job_id: str, limit: float = LIMIT) -> Swap:
        if self.refused:
            raise SwapError(self.refused)
        self.planned.append((job_id, limit))
        self.current = Swap(id="w1", plan=replace(planned_swap(), job=job_id))
        return self.current

    async def start(self) -> Swap:
        assert self.current is not None
        self.started += 1
        self.current = self.after or replace(self.current, going=True)
        self.changed()
        return self.current

    async def stop(self) -> tuple[str, ...]:
        self.stopped += 1
        return ()
