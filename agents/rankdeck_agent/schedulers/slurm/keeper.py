"""`slurm keep`: one process keeps all Slurm jobs of a user.

It checks their marks every second and asks Slurm a few times a minute.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Optional

from rankdeck_agent.agent_file import mark_agent_used
from rankdeck_agent.job.folder import RunFolder, is_closed
from rankdeck_agent.schedulers.slurm.answers import ClusterPoll
from rankdeck_agent.schedulers.slurm.array import ArrayRun
from rankdeck_agent.schedulers.slurm.call_budget import (
    JOB_CALLS,
    QUEUE_CALLS,
    Budget,
    QueueTimer,
    calls_a_minute,
    look_period,
)
from rankdeck_agent.schedulers.slurm.commands import BETWEEN, LIMIT, Slurm, SlurmReply
from rankdeck_agent.schedulers.slurm.environment import variables_in
from rankdeck_agent.schedulers.slurm.folder import not_taken, read_id, read_job_settings, write_id
from rankdeck_agent.schedulers.slurm.job_reports import (
    SQUEUE,
    SlurmJobRow,
    account_question,
    account_rows,
    queue_rows,
    shown_job,
    shown_jobs,
    these_jobs,
)
from rankdeck_agent.schedulers.slurm.keeper_lease import (
    Lease,
    OpenJobs,
    take_change,
    unregister_job,
)
from rankdeck_agent.schedulers.slurm.queue import Row, job_rows
from rankdeck_agent.schedulers.slurm.run import Run
from rankdeck_agent.schedulers.slurm.silence import SILENCE_CALLS
from rankdeck_agent.schedulers.slurm.values import user_name_of
from rankdeck_agent.schedulers.slurm.verdict import FINAL, PLACES, queue_places

_TURN = 1.0
_LINGER = 20.0
"""Seconds without a job after which the keeper ends."""
_FIRST, _AFTER_END = 1.5, 1.0
"""Seconds until Slurm is asked: after a job was submitted, and after a
rank or its batch script has ended.
"""
_MISSES = 2
"""Answers of squeue in a row that lack a job before accounting is asked about it."""
_UNSUBMITTED = 300.0
"""Seconds for a job that `sbatch` may have submitted to appear in the queue."""
_PLACES_EVERY, _PLACES_SOON = 120.0, 15.0
"""Seconds between two looks at the whole queue: usually, and while the
place of a waiting job is not known.
"""
_WATCHED = 3.0
"""While everybody's jobs are asked for, our own are asked for this many times
less often: the former show what changed.
"""
_CUT = 90
_COMPARED = ("state", "partition", "limit")
"""Fields that can change while a job waits or runs, and that both questions return."""
_SILENCE = 2
"""Failed questions in a row after which the jobs report that Slurm does not answer."""


class Keeper:
    """Keeps all open jobs; the only writer of their events."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._unsubmitted: dict[str, tuple[RunFolder, float]] = {}
        """Path -> (run folder, since when in monotonic seconds) of jobs
        whose Slurm id is not known yet.
        """
        self._open_jobs = OpenJobs()
        self._budget, self._rhythm = Budget(), QueueTimer()
        self._steps = Budget(SILENCE_CALLS)
        self._cluster = ClusterPoll()
        self._most = calls_a_minute({})
        self._placed = float("-inf")
        self._empty = time.monotonic()
        self._told_silence = False
        self._changed = False
        """The user has just changed a job: one question about that does not wait for
        the budget, as none of `cancel` does.
        """

    def turn(self, now: float) -> bool:
        """One round; `now` in monotonic seconds.

        False once there has been nothing to do for _LINGER seconds.
        """
        self._keep_list(now)
        for run in list(self._runs.values()):
            self._look(run, now)
        watched = self._cluster.wanted(now)
        busy = bool(self._runs or self._unsubmitted)
        self._allow(watched=watched, busy=busy)
        if busy and self._rhythm.due(now):
            self._ask(now)
        if watched:
            self._ask_for_cluster(now, busy=busy)
        self._let_go(now)
        if self._runs or self._unsubmitted or watched:
            self._empty = now
        return now - self._empty < _LINGER

    # ---- jobs

    def _keep_list(self, now: float) -> None:
        for folder in self._open_jobs.folders(now):
            if str(folder.path) in self._runs:
                continue
            if read_id(folder)[0]:
                self._open(folder, now)
            else:
                self._wait_for_id(folder, now)
        if self._open_jobs.rung:
            for run in self._runs.values():
                run.hurry()
            if take_change():
                self._changed = True
                self._rhythm.want(now)

    def _open(self, folder: RunFolder, now: float) -> None:
        self._unsubmitted.pop(str(folder.path), None)
        try:
            run = open_run(folder)
        except OSError as error:
            print(f"{folder.path}: {error}", file=sys.stderr, flush=True)
            return
        self._runs[str(folder.path)] = run
        self._most = calls_a_minute(read_job_settings(folder))
        self._rhythm.want(now + _FIRST)
        self._cluster.want_queue(now + _FIRST)

    def _wait_for_id(self, folder: RunFolder, now: float) -> None:
        """Wait while `sbatch` runs; if it was killed before it printed
        the id, the queue shows the job.
        """
        _, since = self._unsubmitted.setdefault(str(folder.path), (folder, now))
        late = now - since > _UNSUBMITTED
        if late:
            not_taken(folder)
        if late or not folder.path.exists() or is_closed(folder.events):
            unregister_job(folder)
            del self._unsubmitted[str(folder.path)]

    def _look(self, run: Run, now: float) -> None:
        with _apart(run):
            if run.turn(now):
                self._rhythm.want(now + _AFTER_END)
                self._cluster.want_queue(now + _AFTER_END)
            if run.over:  # a cancel has seen its end
                run.close()
            elif run.is_silent and self._steps.allows(SILENCE_CALLS, now):
                self._steps.spend(SILENCE_CALLS, now)
                run.silence.ask()

    def _let_go(self, now: float) -> None:
        for key, run in list(self._runs.items()):
            if run.closed:
                run.end()
                unregister_job(run.folder)
                del self._runs[key]
                self._cluster.want_queue(now)

    # ---- Slurm

    def _allow(self, *, watched: bool, busy: bool) -> None:
        """Set how often Slurm may be asked: by the settings of the jobs, or without
        jobs, of the console that shows the cluster.
        """
        self._budget.most = self._most if busy or not watched else self._cluster.most
        self._rhythm.period = look_period(self._budget.most) * (_WATCHED if watched else 1.0)

    def _ask_for_cluster(self, now: float, *, busy: bool) -> None:
        """Ask for all nodes and everybody's jobs; if one of our jobs has
        changed, ask for our jobs next.
        """
        reserve = QUEUE_CALLS if busy else 0
        text = self._cluster.ask(self._slurm(), self._budget, now, reserve=reserve)
        if not text or not busy:
            return
        self._take_places(text)
        lasts = {run.id: run.track.last for run in self._runs.values()}
        lines = (line for line in text.splitlines() if line.partition(BETWEEN)[0] in lasts)
        rows = {row["id"]: row for row in job_rows("\n".join(lines))}
        arrays = any(isinstance(run, ArrayRun) for run in self._runs.values())
        same = all(last and is_same(rows.get(name), last) for name, last in lasts.items())
        if same and not arrays:
            self._rhythm.asked(now, well=True)
        else:
            self._rhythm.want(now)

    def _take_places(self, text: str) -> None:
        """Take the places of our waiting jobs from everybody's queue, so
        that they need not be asked for.
        """
        waiting = {run.id: run for run in self._runs.values() if _waits(run)}
        for row in job_rows(text) if waiting else ():
            if row["id"] in waiting and "position" in row:
                place = {key: row[key] for key in ("position", "waiting")}
                self._place(waiting[row["id"]], place)

    def _place(self, run: Run, place: Mapping[str, int]) -> None:
        run.track.place = place
        with _apart(run):
            run.take(run.track.last or SlurmJobRow(run.id, "PENDING"))

    def _ask(self, now: float) -> None:
        runs = list(self._runs.values())
        # For others' jobs scontrol is not trusted: a job's name may imitate the fields after it.
        alone = len(runs) == 1 and not self._unsubmitted and not runs[0].attached
        lone = runs[0] if alone else None
        if not self._changed and not self._budget.allows(JOB_CALLS if lone else QUEUE_CALLS, now):
            return
        self._changed = False
        if lone:
            self._ask_for_one(lone, now)
        else:
            self._ask_for_all(now)
        self._ask_for_places(now)

    def _slurm(self) -> Slurm:
        return next((run.slurm for run in self._runs.values()), self._cluster.slurm)

    def _ask_for_one(self, run: Run, now: float) -> None:
        self._budget.spend(JOB_CALLS, now)
        reply = ask_for_job(self._slurm(), run.id)
        if self._note_answer(reply, now):
            found = list(shown_jobs(reply.out)) if reply.well else []
            if found or is_unknown(reply):
                self._take(found, now)

    def _ask_for_all(self, now: float) -> None:
        found: list[SlurmJobRow] = []
        for question in self._questions():
            self._budget.spend(QUEUE_CALLS, now)
            reply = self._slurm().ask(*question)
            if not self._note_answer(reply, now):
                return
            found += queue_rows(reply.out)
        self._take(found, now)

    def _questions(self) -> list[tuple[str, ...]]:
        """The squeue commands: for our own jobs, and by id for those
        that somebody else submitted.
        """
        others = [run.id for run in self._runs.values() if run.attached]
        own = len(others) < len(self._runs) or self._unsubmitted
        asked = [SQUEUE] if own else []
        return [*asked, these_jobs(others)] if others else asked

    def _note_answer(self, reply: SlurmReply, now: float) -> bool:
        """Whether Slurm has answered, be it that it does not know a job; the
        jobs report its silence, and its return.
        """
        well = reply.well or is_unknown(reply)
        self._rhythm.asked(now, well=well)
        if well and self._told_silence:
            self._told_silence = False
            for run in self._runs.values():
                run.trouble("Slurm answers again")
        elif not well and self._rhythm.failures >= _SILENCE and not self._told_silence:
            self._told_silence = True
            for run in self._runs.values():
                run.trouble(
                    f"Slurm does not answer: {reply.error}; what is shown of it is from before"
                )
        return well

    def _take(self, found: Sequence[SlurmJobRow], now: float) -> None:
        self._find_unsubmitted(found)
        rows = {seen.id: seen for seen in found}
        missing: list[Run] = []
        for run in self._runs.values():
            if isinstance(run, ArrayRun):
                own = [seen for seen in found if seen.job == run.id and run.owns(seen)]
                self._take_array(run, own, now)
                continue
            seen = rows.get(run.id)
            if seen is not None and run.owns(seen):
                self._take_one(run, seen, now)
            else:
                missing.append(run)
        if missing:
            self._ask_accounting(missing, now)

    def _find_unsubmitted(self, found: Iterable[SlurmJobRow]) -> None:
        """Find the ids of jobs whose `sbatch` did not print one: their
        working directory is the run folder.
        """
        folders = {
            os.path.realpath(folder.path): folder for folder, _ in self._unsubmitted.values()
        }
        for seen in found:
            if seen.folder in folders:
                folder = folders[seen.folder]
                path = variables_in(read_job_settings(folder)).get("PATH")
                write_id(folder, seen.job, path or os.environ.get("PATH", os.defpath))

    def _take_one(self, run: Run, seen: SlurmJobRow, now: float) -> None:
        with _apart(run):
            full = self._in_full(run, seen, now)
            if full is None:
                # Slurm keeps the row of an ended job for minutes:
                # better late than without the node.
                self._rhythm.want(now + 5.0)
                return
            run.take(full)
            if run.over:
                run.close()
            elif run.track.batch_over:
                # Slurm is still cleaning it up: ask again soon, then less and less often.
                run.track.missed += 1
                self._rhythm.want(now + min(2.0**run.track.missed, 30.0))

    def _take_array(self, run: ArrayRun, rows: Sequence[SlurmJobRow], now: float) -> None:
        with _apart(run):
            if run.tasks.cancelled_by_others(rows):
                by = {row.array: row.by for row in self._accounting([run.id])[0]}
                rows = [row._replace(by=by.get(row.array, "")) for row in rows]
            run.take_rows(rows)
            if run.tasks.unsure():
                known, silent = self._accounting([run.id])
                run.settle(known, patient=run.waits_for_accounting(silent or run.is_behind(known)))
            if run.over:
                run.close()
            elif not rows:
                self._rhythm.want(now + 5.0)

    def _in_full(self, run: Run, seen: SlurmJobRow, now: float) -> Optional[SlurmJobRow]:
        """The row, completed if needed: which node failed (from scontrol), who
        cancelled the job (from accounting).

        None if scontrol is needed and the budget does not allow it yet.
        """
        queued_again = seen.restarts > run.track.attempt
        known = seen.failed_node or run.attached
        if known or (seen.state != "NODE_FAIL" and not queued_again):
            return self._with_who(run, seen)
        if not self._budget.allows(JOB_CALLS, now):
            return None
        self._budget.spend(JOB_CALLS, now)
        reply = ask_for_job(self._slurm(), run.id)
        return (shown_job(reply.out) if reply.well else None) or seen

    def _with_who(self, run: Run, seen: SlurmJobRow) -> SlurmJobRow:
        if seen.state != "CANCELLED" or run.track.ours or seen.by:
            return seen
        row = run.accounted(self._accounting([run.id])[0])
        return seen._replace(by=row.by) if row is not None else seen

    def _ask_accounting(self, runs: list[Run], now: float) -> None:
        """Find out from accounting (slurmdbd, not the controller) how jobs
        ended that are no longer in the queue.
        """
        for run in runs:
            run.track.missed += 1
        due = [run for run in runs if run.track.missed >= _MISSES or run.track.batch_over]
        rows, silent = self._accounting([run.id for run in due]) if due else ([], "")
        for run in due:
            with _apart(run):
                _end_by_accounting(run, rows, silent)
        if any(not run.closed for run in runs) and not silent:
            self._rhythm.want(now + 5.0)

    def _accounting(self, ids: list[str]) -> tuple[list[SlurmJobRow], str]:
        """(rows of accounting about these jobs, a sentence if it does not answer or "")."""
        reply = self._slurm().ask(*account_question(ids))
        rows = account_rows(reply.out) if reply.well else ()
        return [row._replace(by=user_name_of(row.by)) for row in rows], is_silent(reply)

    def _ask_for_places(self, now: float) -> None:
        """Ask from time to time where our waiting jobs are in the queue."""
        waiting = {run.id: run for run in self._runs.values() if _waits(run)}
        fresh = any(not run.track.place for run in waiting.values())
        late = now - self._placed >= (_PLACES_SOON if fresh else _PLACES_EVERY)
        if not waiting or not late or not self._budget.allows(QUEUE_CALLS, now):
            return
        self._placed = now
        self._budget.spend(QUEUE_CALLS, now)
        reply = self._slurm().ask(*PLACES)
        for number, where in (queue_places(reply.out) if reply.well else {}).items():
            if number in waiting:
                self._place(waiting[number], where)


@contextlib.contextmanager
def _apart(run: Run) -> Generator[None, None, None]:
    """Print an OSError instead of raising it: one unusable run folder must not stop the other jobs.

    A removed one is closed.
    """
    try:
        yield
    except OSError as error:
        print(f"{run.folder.path}: {error}", file=sys.stderr, flush=True)
        run.closed = run.closed or not run.folder.path.exists()


def _end_by_accounting(run: Run, rows: Sequence[SlurmJobRow], silent: str) -> None:
    """Close a job that is no longer in the queue: as accounting says, or
    without it once it is not worth waiting.
    """
    row = run.accounted(rows)
    if row is not None and row.state in FINAL:
        run.take(row._replace(restarts=run.track.attempt))
        run.close()
        return
    behind = silent or run.is_behind(rows)
    if not run.waits_for_accounting(behind) and run.track.missed > _MISSES:
        run.lose(behind)


def open_run(folder: RunFolder) -> Run:
    """The Run of this folder, an ArrayRun for an array; raises OSError."""
    array = read_job_settings(folder).get("array")
    return ArrayRun(folder, array) if isinstance(array, str) else Run(folder)


def _waits(run: Run) -> bool:
    return run.track.last is not None and run.track.last.state == "PENDING"


def ask_for_job(slurm: Slurm, number: str, limit: float = LIMIT) -> SlurmReply:
    """What the controller knows about one job; waits at most `limit` seconds."""
    return slurm.ask("scontrol", "--local", "--oneliner", "show", "job", number, limit=limit)


def is_unknown(reply: SlurmReply) -> bool:
    """Whether the controller answers that it does not know the job, or no longer."""
    return "Invalid job id" in reply.error


def is_silent(reply: SlurmReply) -> str:
    """A sentence if accounting does not answer; "" if it does, or
    if this Slurm has no accounting.
    """
    none = any(word in reply.error for word in ("accounting storage is disabled", "No such file"))
    return "" if reply.well or none else f"Slurm's accounting does not answer: {reply.error}"


def is_same(row: Optional[Row], seen: SlurmJobRow) -> bool:
    """Whether a row of everybody's queue agrees with what is known about
    the job; texts in both may be cut.
    """
    if row is None or any(row[key] != getattr(seen, key) for key in _COMPARED):
        return False
    moved = seen.state != "PENDING" and row["nodes"][:_CUT] != seen.nodes[:_CUT]
    return not moved and row["reason"][:_CUT] == seen.reason[:_CUT]


def keep_slurm_jobs() -> int:
    """Keep the jobs until there are none, or another keeper has
    taken over; returns the exit code.
    """
    mine = Lease()
    if not mine.take():
        return 0
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    keeper = Keeper()
    try:
        while mine.holds() and keeper.turn(time.monotonic()):
            mark_agent_used()
            time.sleep(_TURN)
    finally:
        mine.leave()
    return 0
