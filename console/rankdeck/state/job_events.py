"""Applies each event of a node to the record of a job. What a scheduler reports is applied by
`state/scheduler_events.py`.

Events are values whose sender may say what they say
(`rankdeck_agent.wire.job_events`): nothing is checked again here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rankdeck.model.job import RankState
from rankdeck.model.job_events import ClockSet, Closing, Connected, Lost, NodeEvent, NotStarted
from rankdeck.model.rank import State, describe_process_state, exit_status, is_computing
from rankdeck.model.safe_text import strip_controls
from rankdeck.rules.ends import End, fill_word_caches, program_in
from rankdeck.state.own_messages import use_own_messages
from rankdeck.state.record import (
    EndReport,
    JobRecord,
    NodeRecord,
    last_lines,
    note_looks,
    read_progress,
)
from rankdeck.state.scheduler_events import (
    begin_attempt,
    is_ended_by_scheduler,
    restart_ranks,
    take_scheduler_report,
    take_task_report,
)
from rankdeck.values import replace
from rankdeck_agent.wire import LAUNCHER
from rankdeck_agent.wire.job_events import (
    AttemptBegan,
    CancelBegan,
    DiskSpace,
    LastLook,
    LauncherEnded,
    Looks,
    MessagesRefused,
    NodeClosed,
    RankExited,
    RanksReset,
    RankStarted,
    SchedulerReport,
    SupervisorGone,
    SupervisorReady,
    TaskReport,
    Trouble,
    Waiting,
)

SUPERVISOR = "supervisor"
"""Launcher name in the failure of a supervisor that was gone before its ranks had ended."""


# ---- supervisors and followers -------------------------------------------------------------


def reported_ranks(record: JobRecord, node: NodeRecord) -> Iterable[int]:
    """The ranks that this node, and no other, reports."""
    return next(plan.ranks for plan in record.plan.nodes if plan.node == node.name)


def forget_reports(record: JobRecord, node: NodeRecord) -> None:
    """Reset what this node has reported about the job: it sends all its events again."""
    node.restored = node.closed = node.sending = False
    node.seen, node.restarted = -1, None
    record.settled = record.over = False
    record.in_scheduler = None
    record.tasks.clear()
    for mark in ("ready", "started"):
        record.marks.pop(mark, None)
    for rank in reported_ranks(record, node):
        last_line = record.ranks[rank].last_line
        record.ranks[rank] = RankState(rank=rank, node=node.name, last_line=last_line)
        record.end_reports.pop(rank, None)
    for key in [key for key in record.launchers if key[0] == node.name]:
        del record.launchers[key]


def _note_ready(
    record: JobRecord, node: NodeRecord, event: NodeEvent, said: SupervisorReady
) -> None:
    record.mark("ready", event.at, latest=True)
    node.addresses = said.addresses


def _start_rank(record: JobRecord, node: NodeRecord, event: NodeEvent, said: RankStarted) -> None:
    record.mark("started", event.at, latest=True)
    # `host` may name another machine only if the run folder is shared.
    there = record.plan.supervising_node(said.host) == node.name
    record.end_reports.pop(said.rank, None)
    record.looks.pop(said.rank, None)
    record.ranks[said.rank] = RankState(
        rank=said.rank,
        node=(said.host if there else "") or record.ranks[said.rank].node,
        state=State.RUNNING,
        pid=said.pid,
        started=event.at,
    )


def _exit_rank(record: JobRecord, node: NodeRecord, event: NodeEvent, said: RankExited) -> None:
    well = exit_status(said.code, said.signal) == 0
    record.end_reports[said.rank] = EndReport(
        said.said, said.kernel, _doing(said.activity), said.ago, said.inside if well else None
    )
    if well and (why := _failed_inside(said)):
        record.note(f"rank {said.rank} on {node.name} ended with exit 0, but {why}")
    if not well or said.inside is not None:
        use_own_messages()
        fill_word_caches(said.said)
    read_progress(record, said.rank, event.at)
    _end_rank(record, node, event.at, said.rank, said)


def _failed_inside(said: RankExited) -> str:
    """What tells that a program of a rank that ended with exit 0
    failed, in words; "" if nothing does.
    """
    if said.inside is not None:
        return program_in(said.inside)
    return f"the kernel says of a process of it: {said.kernel[-1]}" if said.kernel else ""


def _doing(look: LastLook | None) -> str:
    """What the rank did last, in words; "" if that is not known."""
    if look is None:
        return ""
    return describe_process_state(look.state, look.wchan, busy=is_computing(look.state, look.cores))


def _end_rank(
    record: JobRecord, node: NodeRecord, at: float, rank: int, said: RankExited | LauncherEnded
) -> None:
    failed = exit_status(said.code, said.signal) != 0
    stopped = failed and record.is_stopped(at, node)
    # A program that saves its state when it is told to end may report
    # success: it was cancelled all the same.
    if node.cancelled_at is not None:
        record.cut_short = True
    end = State.CANCELLED if stopped else State.FAILED if failed else State.DONE
    record.ranks[rank] = replace(
        record.ranks[rank], state=end, exit_code=said.code, signal=said.signal, ended=at
    )


def _end_launcher(
    record: JobRecord, node: NodeRecord, event: NodeEvent, said: LauncherEnded
) -> None:
    record.scheduler = said.verdict or record.scheduler
    plan = next(plan for plan in record.plan.nodes if plan.node == node.name)
    process = next((p for p in plan.processes if p.name == said.name), None)
    if process is not None and process.rank is not None:
        state = record.ranks.get(process.rank)
        if state is not None and not state.state.final:
            _end_rank(record, node, event.at, state.rank, said)
    elif exit_status(said.code, said.signal) != 0:
        record.launchers[node.name, said.name] = End(
            what="launcher",
            name=said.name,
            node=node.name,
            code=said.code,
            signal=said.signal,
            at=event.at,
            slack=node.uncertainty,
            stopped=record.is_stopped(event.at, node),
            lines=said.said or _launcher_tail(record, node),
        )
    elif process is not None:
        record.launchers_ok.add((node.name, said.name))


def _launcher_tail(record: JobRecord, node: NodeRecord) -> tuple[str, ...]:
    """The launcher's last lines that this console has, for a node that
    sends none with the launcher's end.
    """
    lines = last_lines(record.log(node.name, LAUNCHER))
    return tuple(strip_controls(line) for line in lines)


def _note_trouble(record: JobRecord, node: NodeRecord, event: NodeEvent, said: Trouble) -> None:
    if said.text:
        record.note(f"{node.name}: {said.text}")


def _note_waiting(record: JobRecord, node: NodeRecord, event: NodeEvent, said: Waiting) -> None:
    record.waits, record.waited = said.text, event.at


def _note_disk(record: JobRecord, node: NodeRecord, event: NodeEvent, said: DiskSpace) -> None:
    record.note(f"{node.name}: {said.text}")
    if said.full:
        record.full_disks[node.name] = None


def _note_refused(
    record: JobRecord, node: NodeRecord, event: NodeEvent, said: MessagesRefused
) -> None:
    """Count what was left out; the first of each node is named."""
    if not record.refused.get(node.name):
        record.note(f"{node.name}: {said.text}")
    there, here = node.refused
    node.refused = (said.count, here) if event.seq is not None else (there, said.count)
    record.refused[node.name] = sum(node.refused)


def _lose_supervisor(
    record: JobRecord, node: NodeRecord, event: NodeEvent, said: SupervisorGone
) -> None:
    record.note(f"{node.name}: {said.text}")
    at = event.at if said.last is None else min(said.last, event.at)
    if said.restarted:
        # Nobody may have asked it anything until it was back: the time of its end counts.
        node.restarted = at
        return
    if record.is_stopped(event.at, node):
        return
    record.launchers[node.name, SUPERVISOR] = End(
        what="launcher", name=SUPERVISOR, node=node.name, at=at, slack=node.uncertainty
    )


def _begin_cancel(record: JobRecord, node: NodeRecord, event: NodeEvent, said: CancelBegan) -> None:
    record.cancelled = True
    record.aborted = record.aborted or said.by == "abort"
    if node.cancelled_at is not None:
        return
    node.cancelled_at = event.at
    for rank in reported_ranks(record, node):
        state = record.ranks[rank]
        # The launcher on another node may have ended it before the cancel came here.
        early = state.state is State.FAILED and state.ended is not None
        if early and record.is_stopped(state.ended or event.at, node):
            record.ranks[rank] = replace(state, state=State.CANCELLED)


def _close_soon(record: JobRecord, node: NodeRecord, event: NodeEvent, _: Closing) -> None:
    """The job is over on this node, but not all its output has arrived."""
    # A restored job's events are applied all at once, so `closed` follows at once.
    if node.restored or node.closed:
        return
    _close_node(record, node, event, NodeClosed())
    node.sending = True


def _close_node(record: JobRecord, node: NodeRecord, event: NodeEvent, _: NodeClosed) -> None:
    node.closed, node.sending = True, False
    _note_back(record, node)
    stopped = record.is_stopped(event.at, node) or is_ended_by_scheduler(record)
    well = bool(record.launchers_ok) and not stopped
    for rank in reported_ranks(record, node):
        state = record.ranks[rank]
        if state.state.final:
            continue
        # Ranks without a record ended well if their launcher did.
        end = State.CANCELLED if stopped else State.DONE if well else State.FAILED
        record.ranks[rank] = replace(state, state=end, ended=event.at)


def _close_unknown(record: JobRecord, node: NodeRecord, event: NodeEvent, said: NotStarted) -> None:
    """The node does not know the job; if no node does, it was never started."""
    node.unstarted = True
    node.restored = False  # it has no events to send again
    record.note(f"{node.name}: {said.why}")
    if not all(other.unstarted for other in record.nodes.values()) or record.begun:
        # It cannot say itself that the job was cancelled there: the record of that is gone.
        cancels = [
            one.cancelled_at for one in record.nodes.values() if one.cancelled_at is not None
        ]
        node.cancelled_at = min(cancels, default=None)
        _close_node(record, node, event, NodeClosed())
        return
    # One sentence for all nodes; no rank has failed.
    node.closed, node.sending = True, False
    record.notes = {"it was never started: none of its nodes knows it": None}
    record.refused_launch = record.settled = True
    record.ranks = {
        rank: replace(state, state=State.PENDING, ended=None)
        for rank, state in record.ranks.items()
    }


def _note_connected(record: JobRecord, node: NodeRecord, event: NodeEvent, said: Connected) -> None:
    _note_back(record, node)
    if said.uncertainty is not None:
        node.uncertainty = said.uncertainty


def _note_back(record: JobRecord, node: NodeRecord) -> None:
    node.lost, node.mute = False, ""
    if not record.aborted:
        # If the lost node made us stop the job, it stays the cause even when it is back.
        node.gone = None


def _note_clock(record: JobRecord, node: NodeRecord, event: NodeEvent, said: ClockSet) -> None:
    node.uncertainty = said.uncertainty
    record.note(f"{node.name}: {said.sentence}")


def _lose_node(record: JobRecord, node: NodeRecord, event: NodeEvent, said: Lost) -> None:
    if node.closed:
        # It has reported how the job ended: losing it now does not matter to the job.
        if node.sending:
            record.note(f"{node.name}: the rest of the output is on the node")
        return
    if node.lost:
        return  # a repeated failure to reach it is nothing new, and must not move the time of its loss
    node.lost, node.mute, node.why = True, said.why, said.sentence
    if node.gone is None:
        node.gone = event.at if said.heard is None else min(said.heard, event.at)


HANDLERS: Mapping[type, Callable[[JobRecord, NodeRecord, NodeEvent, Any], None]] = {
    SupervisorReady: _note_ready,
    RankStarted: _start_rank,
    RankExited: _exit_rank,
    Looks: note_looks,
    LauncherEnded: _end_launcher,
    Trouble: _note_trouble,
    Waiting: _note_waiting,
    DiskSpace: _note_disk,
    MessagesRefused: _note_refused,
    SupervisorGone: _lose_supervisor,
    CancelBegan: _begin_cancel,
    SchedulerReport: take_scheduler_report,
    AttemptBegan: begin_attempt,
    TaskReport: take_task_report,
    RanksReset: restart_ranks,
    NodeClosed: _close_node,
    Closing: _close_soon,
    NotStarted: _close_unknown,
    Connected: _note_connected,
    ClockSet: _note_clock,
    Lost: _lose_node,
}
"""Class of an event's body -> function that applies it."""
