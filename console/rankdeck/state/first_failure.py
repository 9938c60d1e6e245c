"""The first failure of a job: prepares its record for
rules/root_cause.py and completes the answer.
"""

from collections import Counter
from collections.abc import Sequence

from rankdeck.model.first_failure import EMPTIED, RESTARTED, FirstFailure
from rankdeck.model.job import RankState
from rankdeck.model.job_spec import Launch
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.rank import Activity, State, exit_status, signal_of
from rankdeck.model.safe_text import strip_controls
from rankdeck.model.stall import Explained
from rankdeck.rules.certainty_table import WEIGHTS
from rankdeck.rules.ends import LAUNCHER_ENDINGS, End, LauncherEnding, Role, ends_in_output
from rankdeck.rules.failed_job import FailedJob, was_told_to_end
from rankdeck.rules.failure_evidence import WeighedFailure, weigh_failure
from rankdeck.rules.message_table import MessageKind
from rankdeck.rules.messages import (
    EVERY_RANK_ALONE,
    believes_alone,
    explain_end,
    kinds_of,
    lone_line,
    signal_in_report,
    tells_used_up_memory,
)
from rankdeck.rules.root_cause import Cause, find_cause
from rankdeck.state.own_messages import NAME as OWN_MESSAGES
from rankdeck.state.own_messages import use_own_messages
from rankdeck.state.record import (
    LAST_LINES,
    LOST_SLACK,
    EndReport,
    JobRecord,
    NodeRecord,
    last_lines,
)
from rankdeck.state.scheduler_events import SCHEDULER, decided_failure, is_cancelled
from rankdeck.values import replace
from rankdeck_agent.wire import LAUNCHER

UNSEEN_SLACK = 3.0
"""Seconds within which a supervisor notices that a rank is gone if its shim was killed too."""
_LOST = Explained(
    "the machine, its network or its sshd went away",
    "look at its console, its power and its network; what it wrote until then is kept on it",
)
_RESTARTED = Explained(
    "the machine was restarted: somebody did it, its kernel panicked, or its power failed",
    "`journalctl -k -b -1` there shows the end of the kernel before, `last -x` who restarted it;"
    " what the job wrote is kept on it, but a crash may have taken its last half minute",
)
_EMPTIED = Explained(
    "somebody on that node, or something that watches it, ended all ranks at once",
    "its kernel log, its scheduler's log and `last` there: a clean-up script, a limit of memory for"
    " all of them together, another user with the rights",
)
_OF_NODES = {"": _LOST, RESTARTED: _RESTARTED, EMPTIED: _EMPTIED}
_LEFT = Explained(
    "it left while others still needed it",
    "every rank must reach the end of the communication: MPI_Finalize, destroy_process_group",
)
_HELD_UP = Explained(
    "the others waited for it until they gave up",
    "see where it was, and its last lines; if it hangs there again, `rankdeck inspect` tells more",
)
_NETWORK = (
    "no rank failed by itself: look at the network between its node and the others (error counters"
    " of ports and switches, `rankdeck preflight`)"
)
_OUT_OF_MEMORY = Explained(
    "the kernel ended it: memory was used up",
    "fewer ranks a node or a smaller problem; `rankdeck status` shows the node's memory",
)


def first_failure(record: JobRecord) -> FirstFailure | None:
    """What most likely made this job fail, according to all that is
    known now; None if nothing failed.
    """
    if record.settled and record.first_failure:
        return record.first_failure
    if any(node.restored for node in record.nodes.values()) and record.first_failure:
        # The nodes send their events again: until all have, the earlier answer is kept.
        return record.first_failure
    if is_cancelled(record):
        return None
    if record.in_scheduler and record.in_scheduler.array:
        return _failed_task(record)
    if decided := decided_failure(record):
        return decided
    use_own_messages()
    if verdict := find_cause(_failed_job(record)):
        return _weighed(record, verdict)
    return _nothing_done(record) if record.ended and not record.cancelled else None


def _weighed(record: JobRecord, verdict: Cause) -> FirstFailure:
    """The answer with how sure it is, or one that accuses nobody."""
    weighed = weigh_failure(verdict, WEIGHTS)
    if record.in_scheduler and len(weighed.between) == 1:
        # A scheduler kills ranks too, and the weights were fitted on launchers: it is told all the
        # same, because there is nobody else, but not how sure it is.
        return _in_full(record, verdict)
    if weighed.everybody:
        return _of_all(record, verdict, weighed)
    if weighed.between:
        return _undecided(record, verdict, weighed)
    told = _in_full(record, verdict)
    return replace(told, sure=weighed.sure, tied=tuple(sorted({*told.tied, *weighed.tied})))


def _failed_task(record: JobRecord) -> FirstFailure | None:
    """The task of an array that failed first; tasks do not make each other fail."""
    failed = [rank for rank in record.ranks.values() if rank.state is State.FAILED]
    if not failed:
        return None
    first = min(failed, key=lambda rank: rank.ended or record.latest)
    task, end = record.tasks.get(first.rank), _rank_end(record, first)
    decided = task if task is not None and task.decided else None
    lines = _lines(record, end)
    others = fold_ranks(rank.rank for rank in failed)
    explained = explain_end(lines, exit_status(first.exit_code, first.signal))
    return FirstFailure(
        what=SCHEDULER if decided else "rank",
        rank=first.rank,
        node=first.node,
        name=f"{record.plan.can.scheduler}: {decided.state}" if decided else "",
        exit_code=None if decided else first.exit_code,
        signal=None if decided else first.signal,
        at=first.ended or record.latest,
        lines=lines,
        explained=(Explained(decided.text, decided.do),) if decided and decided.do else explained,
        evidence=(f"{len(failed)} of {len(record.ranks)} tasks failed: {others}",),
        settled=record.ended,
    )


def _nothing_done(record: JobRecord) -> FirstFailure | None:
    """A failure if all ranks ended well but each was rank 0 of 1: launcher
    and program differ in MPI. Else None.
    """
    spec = record.plan.spec
    if spec is None or spec.launch is not Launch.MPI or len(record.ranks) < 2:
        return None
    tails = {rank: _log_tail(record, state) for rank, state in record.ranks.items()}
    if not believes_alone(tails):
        return None
    line = lone_line(tails)
    return FirstFailure(
        what="job",
        rank=None,
        node=record.plan.nodes[0].node,
        exit_code=0,
        signal=None,
        at=record.latest,
        evidence=(f"every rank that wrote says: {line}",),
        explained=(replace(EVERY_RANK_ALONE, line=line),),
    )


def _failed_job(record: JobRecord) -> FailedJob:
    claims = Counter(name for node in record.nodes.values() for name in {*node.addresses})
    names = {
        name: node.name
        for node in record.nodes.values()
        for name in node.addresses
        if claims[name] == 1
    }
    # Last: no node can take the name of another.
    names |= {node.name: node.name for node in record.nodes.values()}
    heard = ends_in_output((*record.launchers.values(),))
    return FailedJob(
        ends=tuple(
            heard[rank.rank] if rank.rank in heard and not rank.started else _rank_end(record, rank)
            for rank in record.ranks.values()
        ),
        launchers=tuple(record.launchers.values()),
        lost=tuple(
            end
            for node in record.nodes.values()
            if (end := _lost_end(node)) and not record.is_stopped(end.at or 0.0, node)
        ),
        names=names,
        ending=_ending(record),
        scheduler=record.scheduler,
        held_up=record.held_up,
    )


def _lost_end(node: NodeRecord) -> End | None:
    """How this node was lost to the job; None if it was not."""
    if node.restarted is not None:
        at, slack = node.restarted, node.uncertainty
        return End(what="node", name=RESTARTED, node=node.name, at=at, slack=slack)
    if node.gone is None:
        return None
    return End(what="node", node=node.name, at=node.gone, slack=LOST_SLACK, lines=(node.why,))


def _ending(record: JobRecord) -> LauncherEnding:
    plan, spec = record.plan, record.plan.spec
    can = plan.can
    if (spec.launch if spec else "") in can.ends_ranks:
        return LAUNCHER_ENDINGS[can.ending]
    if spec is None:
        return LAUNCHER_ENDINGS[""]
    if spec.launch is Launch.MPI:
        return LAUNCHER_ENDINGS[spec.mpi.flavour]
    return LAUNCHER_ENDINGS["torchrun" if spec.launch is Launch.TORCHRUN else ""]


def _rank_end(record: JobRecord, rank: RankState) -> End:
    ended = record.end_reports.get(rank.rank)
    node = record.nodes[record.plan.supervising_node(rank.node)]
    last_lines, looks = ended.lines if ended else (), record.looks.get(rank.rank)
    # Of a rank that still runs, or that ended well, they tell whether it raised before.
    going = (rank.last_line,) if rank.last_line and not rank.state.final else ()
    lines = last_lines or _log_tail(record, rank) or going
    look = looks[-1] if looks else None
    made_of = (rank, ended, look, node.uncertainty, lines)
    kept = record.ends.get(rank.rank)
    if kept is None or kept[0] != made_of:
        kept = record.ends[rank.rank] = (made_of, _new_end(rank, ended, look, node, lines))
    return kept[1]


def _new_end(
    rank: RankState,
    ended: EndReport | None,
    look: Activity | None,
    node: NodeRecord,
    lines: tuple[str, ...],
) -> End:
    return End(
        rank=rank.rank,
        node=rank.node,
        code=rank.exit_code,
        signal=rank.signal,
        at=rank.ended if rank.state.final and (ended or _known(rank)) else None,
        slack=node.uncertainty if _known(rank) else UNSEEN_SLACK,
        stopped=rank.state is State.CANCELLED,
        lines=lines,
        ago=ended.ago if ended and lines is ended.lines else (),
        kernel=ended.kernel if ended else (),
        doing=(ended.doing if ended else "") or (look.place if look else ""),
        inside=ended.inside if ended else None,
    )


def _known(rank: RankState) -> bool:
    """Whether its exit status is known."""
    return rank.exit_code is not None or rank.signal is not None


def _log_tail(record: JobRecord, rank: RankState) -> tuple[str, ...]:
    log = record.logs.get(("", rank.rank))
    return tuple(strip_controls(line) for line in last_lines(log)) if log else ()


# ---- the answer ----------------------------------------------------------------------------


def _in_full(record: JobRecord, verdict: Cause) -> FirstFailure:
    end = verdict.end
    # The same failure as an earlier session judged it; None if that was another.
    earlier = record.first_failure
    same = earlier and (earlier.what, earlier.rank, earlier.node)
    before = earlier if same == (end.what, end.rank, end.node) else None
    lines = _lines(record, end) or (before.lines if before else ())
    return FirstFailure(
        what=end.what,
        rank=end.rank,
        node=end.node,
        name=end.name,
        exit_code=end.code,
        signal=end.signal,
        at=end.at if end.at is not None else record.latest or record.created,
        lines=lines,
        tied=verdict.tied,
        uncertainty=before.uncertainty if before else end.slack,
        victims=verdict.victims,
        explained=(
            *(_explained(record, verdict) or (before.explained if before else ())),
            *_trouble_of_own_messages(),
        ),
        evidence=verdict.evidence,
        others=verdict.others,
        settled=record.ended,
    )


def _undecided(record: JobRecord, verdict: Cause, weighed: WeighedFailure) -> FirstFailure:
    """The answer that accuses nobody: between whom it is undecided, and what would decide it.

    If all of them ended alike, the lines of one say what it means, whoever it was.
    """
    alike = weighed.code is not None or weighed.signal is not None
    nodes = {one.node for one in weighed.between}
    ranks = {one.rank for one in weighed.between}
    return FirstFailure(
        what="undecided",
        rank=None,
        node=nodes.pop() if len(nodes) == 1 else "",
        exit_code=weighed.code,
        signal=weighed.signal,
        at=verdict.end.at if verdict.end.at is not None else record.latest or record.created,
        uncertainty=verdict.end.slack,
        victims=tuple(rank for rank in verdict.victims if rank not in ranks),
        lines=_lines(record, verdict.end) if alike else (),
        explained=(
            *(_explained(record, verdict) if alike else ()),
            *_trouble_of_own_messages(),
        ),
        evidence=tuple(f"{one.who}: {one.why}" for one in weighed.between),
        settled=record.ended,
        between=weighed.between,
        decides=weighed.decides,
    )


def _of_all(record: JobRecord, verdict: Cause, weighed: WeighedFailure) -> FirstFailure:
    """The answer that every rank failed by itself, and alike: nobody is accused, and the lines of
    one say what it means.
    """
    return replace(
        _in_full(record, verdict),
        what="all",
        rank=None,
        node="",
        exit_code=weighed.code,
        signal=weighed.signal,
        tied=(),
        victims=(),
        evidence=(
            f"all {len(record.ranks)} ranks failed alike; each: {verdict.choice.chosen.why}",
        ),
        others=(),
        between=weighed.between,
    )


def _trouble_of_own_messages() -> tuple[Explained, ...]:
    """A hint where the user's own messages cannot be used."""
    trouble = use_own_messages()
    if trouble is None:
        return ()
    why = f"your {OWN_MESSAGES} is not used: {trouble.problems[0]}"
    return (Explained(why, "correct the file, then start Rankdeck again"),)


def _lines(record: JobRecord, end: End) -> tuple[str, ...]:
    """The last lines of the rank or launcher, safe to show."""
    if end.what == "node":
        return ()
    key = ("", end.rank) if end.rank is not None else (end.node, LAUNCHER)
    log = record.logs.get(key)
    return end.lines[-LAST_LINES:] or (last_lines(log) if log else ())


def _explained(record: JobRecord, verdict: Cause) -> tuple[Explained, ...]:
    end = verdict.end
    if end.what == SCHEDULER:
        return explain_end(end.lines)
    if verdict.finder == "scheduler":  # its word counts, not the signal that it sent
        word = verdict.view.job.scheduler
        return explain_end((word.text,) if word else end.lines)
    if end.what == "node":
        said = explain_end(_without(_OF_OTHERS, end.lines))
        return said or (_OF_NODES[end.name],)
    if verdict.finder == "held_up":
        return (_HELD_UP, *explain_end(_without(_OF_ENDED, end.lines)))
    if verdict.role is Role.WELL:
        return (_LEFT,)
    killed = tuple(line for line in end.kernel if tells_used_up_memory(line))
    if killed:
        return (replace(_OUT_OF_MEMORY, line=killed[0]),)
    # Of a rank whose output stayed with its launcher, its own lines are known already.
    stayed = end.rank is not None and bool(end.lines) and not record.ranks[end.rank].started
    how = end.inside or end
    of_launcher = launcher_lines(record) if end.rank is not None and not stayed else []
    # A launcher that crashes while it ends the job reports its own signal, not that of the rank.
    number = signal_of(how.code, how.signal)
    of_launcher = [line for line in of_launcher if signal_in_report(line) in (None, number)]
    own = [*map(strip_controls, end.lines or _lines(record, end))]
    told = was_told_to_end(verdict.choice.chosen)
    # The newest lines are explained first: who was told to end says less than the launcher.
    lines = [*own, *of_launcher] if told else [*of_launcher, *own]
    if verdict.role <= Role.KILLED:
        lines = _without(_OF_ENDED if told else _OF_OTHERS, lines)
    explained = explain_end((*lines, *end.kernel), exit_status(how.code, how.signal))
    return tuple(map(_of_network, explained)) if verdict.finder == "lost" else explained


def _of_network(told: Explained) -> Explained:
    """The explanation of a line about others, where nobody else failed by itself."""
    of_others = any(kind in _OF_OTHERS for kind, _ in kinds_of((told.line,)))
    return replace(told, remedy=_NETWORK) if of_others else told


_OF_OTHERS = frozenset({MessageKind.PEER, MessageKind.TIMEOUT, MessageKind.TERMINATED})
"""Kinds of lines that say no more than that something else failed."""
_OF_ENDED = frozenset({MessageKind.PEER, MessageKind.TIMEOUT, MessageKind.OWN})
"""Kinds of lines that do not say why a rank was told to end."""


def _without(kinds: frozenset[MessageKind], lines: Sequence[str]) -> list[str]:
    """The lines that are of none of these kinds."""
    return [line for line in lines if not any(kind in kinds for kind, _ in kinds_of((line,)))]


def launcher_lines(record: JobRecord) -> list[str]:
    """The last lines of the launchers of all nodes."""
    seen = [log for log in record.launcher_logs() if log.held]
    last_lines = [line for end in record.launchers.values() for line in end.lines]
    return last_lines or [
        strip_controls(line.text) for log in seen for line in log.newest(LAST_LINES)
    ]
