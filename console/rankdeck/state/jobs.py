"""The owner of the state of all jobs: events in, frozen snapshots out."""

from collections.abc import Mapping

from rankdeck.errors import UnknownJobError, suggest_word
from rankdeck.model.cancel_report import CancelReport, NodeProof, ProofState
from rankdeck.model.job import Countdown, Job, NodeNote
from rankdeck.model.job_events import NodeEvent
from rankdeck.model.plan import Plan
from rankdeck.model.rank import Activity, State
from rankdeck.model.rank_output import Chunk, Followed
from rankdeck.model.safe_text import strip_controls
from rankdeck.model.stall import Stall, holds_up
from rankdeck.state.job_additions import Additions
from rankdeck.state.job_events import HANDLERS, reported_ranks
from rankdeck.state.job_snapshot import job_snapshot
from rankdeck.state.lines import RankLog, ReadPositionsOf
from rankdeck.state.node_records import NodeRecords
from rankdeck.state.record import JobRecord, NodeRecord, new_record, note_output, restored_record
from rankdeck.state.repeated_events import RepeatedEvents
from rankdeck.values import replace
from rankdeck_agent.wire import LAUNCHER
from rankdeck_agent.wire.job_events import Now


class Jobs:
    """Every job of the session, by id."""

    def __init__(self) -> None:
        self._records: dict[str, JobRecord] = {}
        self._changed: set[str] = set()
        self._added = Additions()
        self._repeated = RepeatedEvents()
        self._node_records = NodeRecords()

    # ---- reading and adding jobs

    def add(self, plan: Plan, created: float) -> Job:
        """Add a job that is about to be launched, was found, or is
        replayed from the start; returns it.
        """
        self._added.forget(plan.job)
        self._records[plan.job] = new_record(plan, created)
        return self._touch(plan.job)

    def planned(self, plan: Plan) -> Job:
        """Replace the plan by the one that was carried out, with its port."""
        self._record(plan.job).plan = plan
        return self._touch(plan.job)

    def refused(self, job_id: str, why: str) -> Job:
        """Note that the job could not be started, and why: nothing of it runs."""
        record = self._record(job_id)
        record.note(strip_controls(why)[:500])
        record.refused_launch = record.settled = True
        return self._touch(job_id)

    def restore(self, job: Job, seen: Mapping[str, int] | None = None) -> Job:
        """Add a job of an earlier session; events that its nodes
        send again replace what was stored.

        `seen` is node -> number of the last event that `job` includes. Events up to that number are
        applied all at once, so that the job never appears in an earlier state.
        """
        record = self._records[job.id] = restored_record(job)
        self._repeated.expect(job, seen or {})
        self._added.forget(job.id)
        self._added.tell(job)
        self._added.note(job.id, job.node_notes)
        self._touch_record(record)
        if job.state.final:
            # Until a node reports something, there is nothing to compute again.
            record.snapshot = job
        return self.job(job.id)

    def tell(self, job: Job) -> None:
        """Apply what another console wrote about a job that is known here."""
        if job.kept and not self._record(job.id).kept:
            self.keep(job.id)
        if self._added.tell(job):
            self._touch(job.id)

    def only_recorded(self, job_id: str) -> bool:
        """Whether the end of this job is known only from another console."""
        final = self.job(job_id).state.final
        return final and not job_snapshot(self._record(job_id)).state.final

    def unreported(self, job_id: str) -> frozenset[str]:
        """If `only_recorded`: the nodes that have not yet reported the end to this console."""
        nodes = self._record(job_id).nodes.values() if self.only_recorded(job_id) else ()
        return frozenset(node.name for node in nodes if not node.closed)

    def forget(self, job_id: str) -> None:
        """Drop a job that was removed from the history."""
        self._records.pop(job_id, None)
        self._added.forget(job_id)
        self._changed.add(job_id)

    def knows(self, job_id: str) -> bool:
        return job_id in self._records

    def job(self, job_id: str) -> Job:
        """The job now; raises UnknownJobError."""
        return self._added.shown(job_snapshot(self._record(job_id)))

    def find(self, text: str) -> Job:
        """Find a job by its id (Rankdeck's or its scheduler's), its name (the newest; never a
        run of a study, drill or swap proof), or the beginning of one id only.

        Raises UnknownJobError.
        """
        jobs = self.all() if text else ()
        names = [
            (
                job.id,
                job.in_scheduler.id if job.in_scheduler else "",
                "" if job.plan.part_of else job.name,
            )
            for job in jobs
        ]
        for kind in zip(*names, strict=True):  # the most specific first
            if text in kind:
                return jobs[kind.index(text)]
        found = [job for job in jobs if job.id.startswith(text)]
        if len(found) == 1:
            return found[0]
        shown = strip_controls(text)[:60]
        if found:
            begun = ", ".join(job.id for job in found[:5])
            raise UnknownJobError(f"`{shown}` begins more than one job: {begun}")
        hint = suggest_word(text, {name for of_job in names for name in of_job if name})
        raise UnknownJobError(f"no job `{shown}`{hint or '; `rankdeck jobs --all` lists them'}")

    def busy(self) -> frozenset[str]:
        """The nodes of all jobs that have not ended."""
        running = (job for job in self.all() if not job.state.final)
        return frozenset(node for job in running for node in job.nodes)

    def all(self) -> tuple[Job, ...]:
        """All jobs without replays, newest first."""
        return self._listed(replays=False)

    def replays(self) -> tuple[Job, ...]:
        """All replays, newest first."""
        return self._listed(replays=True)

    def _listed(self, *, replays: bool) -> tuple[Job, ...]:
        some = (one for one in self._records.values() if bool(one.plan.replay_of) is replays)
        records = sorted(some, key=lambda record: -record.created)
        return tuple(self._added.shown(job_snapshot(record)) for record in records)

    def log(self, job_id: str, rank: int, node: str = "") -> RankLog:
        """Output of a rank. For LAUNCHER: that of `node`, or without `node`
        of the first node with a launcher.

        Raises UnknownJobError.
        """
        record = self._record(job_id)
        if rank == LAUNCHER:
            logs = list(record.launcher_logs())
            return record.log(node, rank) if node or not logs else logs[0]
        if rank not in record.ranks:
            raise UnknownJobError(f"job {job_id} has no rank {rank}")
        return record.log("", rank)

    def looks(self, job_id: str) -> dict[int, tuple[Activity, ...]]:
        """Rank -> the last looks at what it did, oldest first."""
        kept = self._record(job_id).looks.items()
        return {rank: tuple(looks) for rank, looks in kept}

    def reported(self, job_id: str) -> dict[str, float]:
        """Node -> epoch seconds up to which it has reported everything;
        without nodes that were never heard.
        """
        nodes = self._record(job_id).nodes.values()
        return {node.name: node.reported for node in nodes if node.reported is not None}

    def judge_nodes(self) -> NodeRecords:
        """How often jobs failed on each node by its own fault, and which nodes are lemons."""
        self._node_records.judge(self.all())
        return self._node_records

    def take_changes(self) -> frozenset[str]:
        """Ids of the jobs that changed since the last call."""
        changed, self._changed = frozenset(self._changed), set()
        return changed

    def seen(self, job_id: str) -> dict[str, int]:
        """Node -> number of the last event that was applied."""
        nodes = self._record(job_id).nodes.values()
        return {node.name: node.seen for node in nodes if node.seen >= 0}

    def positions_of(self, job_id: str) -> ReadPositionsOf:
        """A function (node, rank) -> how far that log of this job was read."""
        record = self._record(job_id)
        return lambda node, rank: record.log(node, rank).read

    # ---- changes

    def apply(self, event: Followed) -> Followed | None:
        """Apply one item from a follower; returns its new and valid part, or None."""
        record = self._records.get(event.job)
        node = record.nodes.get(event.node) if record else None
        new: Followed | None = event
        if record is None or node is None:
            return None
        if isinstance(event, NodeEvent) and isinstance(event.body, Now):
            # Comes every two seconds and changes nothing on screen: no new snapshot.
            node.reported = event.at
            return event
        if isinstance(event, NodeEvent):
            self._apply_event(record, node, event)
            record.judged = False
        elif event.rank != LAUNCHER and event.rank not in reported_ranks(record, node):
            return None
        elif isinstance(event, Chunk):
            new = record.log(node.name, event.rank).add(event)
            record.judged = record.judged and (record.over or not _is_evidence(record, event))
            note_output(record, event.rank, event.at)
        else:
            record.log(node.name, event.rank).tell(event)
            note_output(record, event.rank, event.at)
        self._touch_record(record)
        return new

    def set_countdown(self, job_id: str, countdown: Countdown | None) -> None:
        """Show the gang abort that is about to happen, or with None remove it."""
        self._record(job_id).countdown = countdown
        self._touch(job_id)

    def keep(self, job_id: str) -> None:
        """Note that the user keeps the other ranks running: no gang abort."""
        record = self._record(job_id)
        record.kept, record.countdown = True, None
        self._touch(job_id)

    def output_over(self, job_id: str) -> None:
        """Note that no more output of the job will arrive here."""
        record = self._record(job_id)
        for node in record.nodes.values():
            node.sending = False
        self._touch_record(record)
        if record.ended and not record.over:
            record.ranks = {rank.rank: rank for rank in job_snapshot(record).ranks}
            record.over = True

    def set_clock(self, job_id: str, at: float) -> None:
        """Show the time that a replay has reached, in epoch seconds."""
        self._record(job_id).clock = at
        self._touch(job_id)

    def set_stalled(self, job_id: str, stalled: tuple[Stall, ...]) -> None:
        """Set which ranks are stalled."""
        record = self._record(job_id)
        if not any(rank.state is State.FAILED for rank in record.ranks.values()):
            record.held_up = next(filter(holds_up, stalled), None)
        if record.stalled != stalled:
            record.stalled = stalled
            self._touch(job_id)

    def learn_held_up(self, job_id: str, stall: Stall | None) -> None:
        """Take who held up the others before the job failed, if no console has seen it."""
        record = self._record(job_id)
        if stall is not None and record.held_up is None and not record.settled:
            record.held_up, record.judged = stall, False
            self._touch(job_id)

    def cancelling(self, job_id: str, at: float, *, abort: bool, grace: float = 0.0) -> None:
        """Note that the job is being stopped: ranks that end from `at`
        (epoch seconds) on end because of that.

        What has not ended `grace` seconds later is killed.
        """
        record = self._record(job_id)
        record.kill_at = at + grace
        record.asked_at = at if record.asked_at is None else record.asked_at
        record.cancelled, record.aborted = True, record.aborted or abort
        for name in record.nodes:
            again = _was_unproven(record.proofs.get(name))
            record.proofs[name] = NodeProof(state=ProofState.NOT_ASKED, at=at, again=again)
        record.judged = False
        self._touch_record(record)

    def not_cancelled(self, job_id: str) -> None:
        """Undo `cancelling`: the cancel was refused, and the job runs on as before."""
        record = self._record(job_id)
        record.asked_at = record.kill_at = None
        record.cancelled, record.aborted = False, False
        record.proofs.clear()
        self._touch_record(record)

    def set_node_notes(self, job_id: str, notes: tuple[NodeNote, ...]) -> None:
        """Show what happened on the job's nodes while it ran."""
        if self._added.note(job_id, notes):
            self._touch(job_id)

    def cancelled(self, job_id: str, report: CancelReport, at: float) -> None:
        """Apply the result of a cancel, which came `at` (epoch seconds)."""
        record = self._record(job_id)
        record.kill_at = None
        record.proofs = {name: _proof(record, report, name, at) for name in record.nodes}
        for name, proof in record.proofs.items():
            if proof.state is not ProofState.UNVERIFIED:
                record.nodes[name].mute = ""
            if proof.proven and proof.again:
                _end_lost_ranks(record, record.nodes[name])
        # A lost node cannot close, and a cancelled job must not wait for it forever.
        lost = [node for node in record.nodes.values() if not node.closed]
        if not report.left and lost and all(n.name in report.unverified for n in lost):
            record.settled = True
        record.cancelled, record.judged = True, False
        self._touch_record(record)

    def note(self, job_id: str, text: str) -> None:
        """Add a sentence for the operator."""
        self._record(job_id).note(strip_controls(text)[:500])
        self._touch(job_id)

    # ---- events

    def _apply_event(self, record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
        before = node.restored
        for one in self._repeated.due(record, node, event):
            self._take_event(record, node, one)
        complete = before and not any(n.restored for n in record.nodes.values())
        if complete and not record.ended:
            self._added.doubt(record.plan.job)

    def _take_event(self, record: JobRecord, node: NodeRecord, event: NodeEvent) -> None:
        if event.seq is not None:
            if event.seq <= node.seen:
                return
            node.seen = event.seq
            record.latest = max(record.latest, event.at)
        if handler := HANDLERS.get(type(event.body)):
            handler(record, node, event, event.body)

    def _record(self, job_id: str) -> JobRecord:
        if job_id not in self._records:
            raise UnknownJobError(
                f"no job `{strip_controls(job_id)[:60]}`; `rankdeck jobs --all` lists them"
            )
        return self._records[job_id]

    def _touch(self, job_id: str) -> Job:
        self._touch_record(self._records[job_id])
        return self.job(job_id)

    def _touch_record(self, record: JobRecord) -> None:
        record.snapshot = None
        self._changed.add(record.plan.job)


def _was_unproven(before: NodeProof | None) -> bool:
    """Whether an earlier cancel had not proven that nothing is left on the node."""
    return before is not None and (before.again or not before.proven)


def _proof(record: JobRecord, report: CancelReport, node: str, at: float) -> NodeProof:
    """What a cancel found out about one node."""
    before = record.proofs.get(node)
    asking = before is not None and before.state is ProofState.NOT_ASKED
    again = before.again if before is not None and asking else _was_unproven(before)
    left = tuple(
        replace(one, command=strip_controls(one.command)[:200])
        for one in report.left
        if one.node == node
    )
    why = report.unverified.get(node)
    if left:
        return NodeProof(state=ProofState.LEFT, at=at, left=left, again=again)
    if why is not None:
        text = strip_controls(why)[:300]
        return NodeProof(state=ProofState.UNVERIFIED, at=at, why=text, again=again)
    return NodeProof(state=ProofState.EMPTY, at=at, again=again)


def _end_lost_ranks(record: JobRecord, node: NodeRecord) -> None:
    """Note that the ranks of a lost node are gone: the node was
    asked, and nothing is left there.
    """
    for rank in reported_ranks(record, node):
        state = record.ranks[rank]
        if not state.state.final and (node.lost or state.state is State.LOST):
            record.ranks[rank] = replace(state, state=State.CANCELLED)


def _is_evidence(record: JobRecord, chunk: Chunk) -> bool:
    """Whether this output may change the verdict: it is that of a
    launcher, or of a rank that has failed.
    """
    rank = record.ranks.get(chunk.rank)
    return rank is None or rank.state is State.FAILED
