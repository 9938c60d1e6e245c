"""Failures written after public reports, played as events of nodes into a job, and what is
made of them: who failed first, why, and what to do.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job_spec import JobSpec, Launch, MpiOptions
from rankdeck.model.plan import Plan
from rankdeck.model.stall import Stall
from rankdeck.state.jobs import Jobs
from rankdeck_agent.rules.scheduler_verdict import SchedulerVerdict, verdict_row
from rankdeck_agent.wire import NodePlan
from rankdeck_agent.wire.job_events import Origin, Part
from tests.support.node_events import ANY_RANK, node_event

NOBODY, SCHEDULER, LAUNCHER = "nobody", "the scheduler", "a launcher"
_BEGAN, _AFTER = 1000.0, 0.3
_KEEPER = Origin("n1", Part.KEEPER, "kubernetes", ANY_RANK)
_MPI = ("openmpi4", "openmpi5", "mpich")
_LAUNCHERS = {"openmpi4": "mpirun", "openmpi5": "mpirun", "mpich": "mpiexec", "slurm": "srun"}


@dataclass(frozen=True)
class Ended:
    """How a rank ended: seconds after the start, its code or signal, and its last lines."""

    rank: int
    at: float
    code: int | None = None
    signal: int | None = None
    said: tuple[str, ...] = ()
    kernel: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Told:
    """A launcher that failed, where, and its last lines."""

    said: tuple[str, ...]
    node: str = "n1"
    name: str = ""
    at: float | None = None
    """None: a little after the last rank."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A job that failed, two ranks on each node; and the truth about it."""

    right: frozenset[int] | str
    """The ranks of which some, and no others, have to be named; a node that lost its ranks, all of
    which may be named instead; or NOBODY, SCHEDULER, LAUNCHER.
    """
    or_nobody: bool = False
    """Whether it may also be left undecided."""
    why: str = ""
    """A pattern of what the reason has to say."""
    do: str = ""
    """A pattern of what has to be advised."""
    ends: tuple[Ended, ...]
    running: frozenset[int] = frozenset()
    """Ranks whose end nobody saw."""
    unstarted: frozenset[int] = frozenset()
    launch: str = ""
    """openmpi4, openmpi5, mpich, torchrun, slurm, kubernetes; "": each rank by itself."""
    told: tuple[Told, ...] = ()
    verdict: SchedulerVerdict | None = None
    cancel: float | None = None
    """When somebody told the job to end."""
    lost: tuple[tuple[str, float], ...] = ()
    """Nodes that stopped answering, and when they were last heard."""
    held_up: Stall | None = None
    """Who was seen to hold up the others."""


@dataclass(frozen=True)
class Score:
    """What was made of a report."""

    who: str
    """right, wrong, undecided (although somebody is to blame) or accused (although nobody is)."""
    why: bool
    do: bool
    first: FirstFailure | None


def play_report(report: Report) -> FirstFailure | None:
    """What a console says of the job once everything has arrived."""
    jobs, plan = Jobs(), _plan(report)
    jobs.add(plan, _BEGAN)
    jobs.learn_held_up(plan.job, report.held_up)
    seqs = {part.node: 0 for part in plan.nodes}
    for at, node, kind, fields in sorted(_events(report, plan), key=lambda event: event[0]):
        origin = _KEEPER if "verdict" in fields else None
        event = node_event(plan.job, node, kind, _BEGAN + at, origin=origin, seq=seqs[node], **fields)  # fmt: skip
        jobs.apply(event)
        seqs[node] += 1
    return jobs.job(plan.job).first_failure


def judge_report(report: Report) -> Score:
    first = play_report(report)
    explained = first.explained if first else ()
    reason = "\n".join([*first.evidence, first.how, *(one.line + one.means for one in explained)]) if first else ""  # fmt: skip
    advice = "\n".join(one.remedy for one in explained[:2])
    return Score(
        _judge_who(report, first),
        re.search(report.why, reason, re.IGNORECASE) is not None,
        re.search(report.do, advice, re.IGNORECASE) is not None,
        first,
    )


def _judge_who(report: Report, first: FirstFailure | None) -> str:
    nobody = first is None or first.what in ("undecided", "all", "scheduler", "job")
    if report.right in (NOBODY, SCHEDULER) or (report.or_nobody and nobody):
        return "right" if nobody else "accused"
    if first is None or nobody:
        return "undecided"
    return "right" if _names_no_others(report, first) else "wrong"


def _names_no_others(report: Report, first: FirstFailure) -> bool:
    if report.right == LAUNCHER:
        return first.what == "launcher"
    named = {first.rank, *first.tied} - {None}
    if isinstance(report.right, str):
        there = first.node == report.right
        return there and (first.what in ("node", "launcher") or named <= _ranks_on(report.right))
    return first.what == "rank" and named <= report.right


def _ranks_on(node: str) -> set[int]:
    number = int(node[1:])
    return {2 * number - 2, 2 * number - 1}


def _node_of(rank: int) -> str:
    return f"n{rank // 2 + 1}"


def _plan(report: Report) -> Plan:
    ranks = sorted({*(end.rank for end in report.ends), *report.running, *report.unstarted})
    nodes = sorted({_node_of(rank) for rank in ranks}, key=lambda node: int(node[1:]))
    return Plan(
        job="t-1", name="t", cluster="c",
        backend=report.launch if report.launch in ("slurm", "kubernetes") else "ssh",
        nodes=tuple(NodePlan("t-1", node, tuple(r for r in ranks if _node_of(r) == node)) for node in nodes),
        spec=JobSpec(
            name="t", command=("a",), launch=_launch(report.launch),
            mpi=MpiOptions(flavour=report.launch if report.launch in _MPI else "openmpi5"),
        ),
    )  # fmt: skip


def _launch(name: str) -> Launch:
    if name in _MPI:
        return Launch.MPI
    return Launch.TORCHRUN if name in ("torchrun", "kubernetes") else Launch.PLAIN


def _events(report: Report, plan: Plan) -> Iterator[tuple[float, str, str, dict[str, object]]]:
    last = max([0.0, *(end.at for end in report.ends), *(told.at or 0.0 for told in report.told)])
    over = last + 5
    for part in plan.nodes:
        yield 0.0, part.node, "ready", {"addresses": [f"10.0.0.{part.node[1:]}", part.node]}
        for rank in set(part.ranks) - report.unstarted:
            yield 0.1, part.node, "started", {"rank": rank, "pid": 100 + rank}
        if report.cancel is not None:
            yield report.cancel, part.node, "cancel", {"grace": 10}
        if part.node not in dict(report.lost):
            yield over, part.node, "closed", {}
    yield from map(_exit, report.ends)
    for told in report.told:
        name = told.name or _LAUNCHERS.get(report.launch, "torchrun")
        said = {"name": name, "code": 1, "signal": None, "said": list(told.said)}
        yield told.at or last + _AFTER, told.node, "ended", said
    if report.verdict is not None:
        said = {"name": "keeper", "code": 1, "signal": None, "verdict": verdict_row(report.verdict)}
        yield last + _AFTER, "n1", "ended", said
    for node, heard in report.lost:
        yield heard + 15, node, "lost", {"why": "no route", "heard": _BEGAN + heard}


def _exit(end: Ended) -> tuple[float, str, str, dict[str, object]]:
    fields = {"rank": end.rank, "code": end.code, "signal": end.signal, "said": list(end.said), "kernel": list(end.kernel)}  # fmt: skip
    return end.at, _node_of(end.rank), "exited", fields


# ---- short words for tables of reports ---------------------------------------------------------


def end(rank: int, at: float, code: int | None = None, *said: str, **more) -> Ended:
    """`{r}` in a line is the rank, `{n}` the number of its node, `{o}` that of another."""
    node = rank // 2 + 1
    numbers = {"{r}": rank, "{n}": node, "{o}": 2 if node == 1 else 1}
    lines = []
    for line in said:
        for mark, number in numbers.items():
            line = line.replace(mark, str(number))
        lines.append(line)
    return Ended(rank, at, code, said=tuple(lines), **more)


def ends(ranks: Iterable[int], at: float, code: int | None = None, *said: str, **more) -> list[Ended]:  # fmt: skip
    """The ends of these ranks, 10 ms apart."""
    return [end(rank, at + place / 100, code, *said, **more) for place, rank in enumerate(ranks)]


def but(count: int, *ranks: int) -> list[int]:
    return [rank for rank in range(count) if rank not in ranks]


def report(right: Iterable[int] | str, *some: Ended, why: str = "", do: str = "", told: tuple[str, ...] = (), **more) -> Report:  # fmt: skip
    """`told` are the last lines of the launcher on n1."""
    who = right if isinstance(right, str) else frozenset(right)
    launchers = (*more.pop("launchers", ()), *((Told(said=told),) if told else ()))
    return Report(right=who, ends=tuple(some), why=why, do=do, told=launchers, **more)
