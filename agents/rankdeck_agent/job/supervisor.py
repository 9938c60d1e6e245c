"""The supervisor of one job on one node: starts processes, copies output, records events."""

import contextlib
import os
import selectors
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Optional

from rankdeck_agent.agent_file import mark_agent_used
from rankdeck_agent.job import cgroups, processes
from rankdeck_agent.job.activity import ActivityWatch
from rankdeck_agent.job.black_box import BlackBox
from rankdeck_agent.job.cancel import end_node_processes, remove_containers
from rankdeck_agent.job.evidence import EndEvidence
from rankdeck_agent.job.folder import (
    UNKNOWN,
    End,
    Journal,
    RunFolder,
    all_events,
    decode_end,
    exact_outcome,
    has_failed,
    next_seq,
    shell_status,
)
from rankdeck_agent.job.kernel_evidence import KernelLog, own_ring
from rankdeck_agent.job.kill_counters import Kills, find_kill_counters
from rankdeck_agent.job.last_words import RANK, read_last_words
from rankdeck_agent.job.layout import unlink_links
from rankdeck_agent.job.logs import DiskFullError, Space, Stream, pipe_stream, rank_streams
from rankdeck_agent.job.mpi_daemons import Daemons
from rankdeck_agent.job.orders import Orders, RankMessages, is_allowed
from rankdeck_agent.job.process_chains import list_children
from rankdeck_agent.job.rank_table import Orphans, RankTable, describe_lost_ranks
from rankdeck_agent.job.start import StartError, planned_command, start_process
from rankdeck_agent.job.supervisor_state import SharedRunFolder
from rankdeck_agent.job.verdict import read_verdict
from rankdeck_agent.job.wrapped import WrappedPrograms
from rankdeck_agent.machine import local_addresses
from rankdeck_agent.rules.scheduler_verdict import SchedulerVerdict
from rankdeck_agent.text import plain_line
from rankdeck_agent.values import replace
from rankdeck_agent.wire import LAUNCHER, NodePlan, ProcessPlan
from rankdeck_agent.wire.black_box import CANCELLED, FAILED
from rankdeck_agent.wire.job_events import (
    ASKERS,
    CancelBegan,
    LauncherEnded,
    LauncherStarted,
    MessagesRefused,
    NodeClosed,
    Part,
    RankExited,
    RanksReset,
    RankStarted,
    SupervisorReady,
    Trouble,
    Waiting,
)

_TICK = 0.25
_DRAIN = _RETRY = 1.0
_MOST_TROUBLES = 200
"""Most sentences of the keeper that are recorded."""
_TAKEN_UP = (
    "what kept the job here was gone (it was killed, or this machine was restarted); it goes on"
)
_TAKEN_OUT = "{:,} bytes are gone (the log was emptied, moved or removed); what follows is kept"
_KEEPER_KILLED = "the keeper of the job was killed; another one goes on"
_MOST_RESTARTS = 20
_MOST_REAPED = 1000
"""Most children reaped in one turn: some programs never stop leaving orphans."""
_CANCEL_TAKES = 40.0
"""Seconds beyond the grace period after which a cancel is over."""
_LATE = 5.0
"""Seconds for the files of ranks on other machines to appear after their launcher has ended."""


class Supervisor:
    """Runs the processes of one job on one node; the only writer of its
    run folder until it writes `closed`.
    """

    def __init__(self, plan: NodePlan, folder: RunFolder, warning: str, box: BlackBox) -> None:
        """`warning`: a sentence about the whole job for its events; "": none."""
        self._plan, self._folder, self._warning, self._box = plan, folder, warning, box
        self._journal = Journal(folder.events, successor=next_seq(folder.events) > 0)
        self._selector = selectors.DefaultSelector()
        self._table = RankTable(plan.ranks)
        self._activity = ActivityWatch(folder)
        self._wrapped = WrappedPrograms()

        self._streams: dict[int, tuple[Stream, ...]] = {}
        self._space = Space(folder.path, self._journal, self._selector)
        self._orphans = Orphans(self._table)

        self._children: dict[int, ProcessPlan] = {}
        self._keepers: set[int] = set()
        """Pids of those children that keep a job of a scheduler: agents of
        our own, no processes of the user.
        """

        self._group: Optional[Path] = None
        self._outputs = (-1, -1)
        self._looked = self._retried = 0.0
        self._others = 0
        self._canceller = self._reaping = 0
        self._elsewhere = SharedRunFolder(folder, plan.ranks if plan.elsewhere else ())

        self._killed: list[ProcessPlan] = []
        """Keepers of ranks on other machines that were killed and must be started again."""
        self._restarts = 0
        self._failed = False
        """Whether a rank has failed (ended with a code other than 0, or by a signal)."""
        self._launched = 0.0
        self._troubles = 0
        self._refused = 0
        """Messages that their senders may not send, or that were not true."""

    def run(self, ready: Callable[[], None]) -> None:
        """Run the job to its end.

        Calls `ready` once, when the run folder is prepared and before the first process starts.
        """
        earlier = all_events(self._folder.events)
        self._prepare()
        self._journal.add(
            SupervisorReady(os.getpid(), processes.read_boot_id(), tuple(local_addresses()))
        )
        if self._warning:
            self._journal.add(Trouble(self._warning))
        if earlier:
            self._resume(earlier)
        ready()
        for process in self._plan.processes:
            self._start(process)

        while not self._done():
            self._copy_output()
            self._look_around()
        self._close()

    def _resume(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take over from a supervisor that is gone (its machine may have been
        restarted): restore the state from its events.
        """
        self._journal.add(Trouble(_TAKEN_UP))
        self._elsewhere.resume(events)
        for event in events:
            if event["kind"] == "started":
                self._table.started(event["rank"], 0, 0)
            elif event["kind"] == "exited":
                self._table.exited(event["rank"])
            elif event["kind"] == "again":
                self._table.ranks.clear()

    # ---- beginning ---------------------------------------------------------------------

    def _prepare(self) -> None:
        self._journal.reserve()
        self._group = cgroups.make_cgroup(self._folder)
        kills = Kills(find_kill_counters(self._group))
        self._evidence = EndEvidence(self._folder, KernelLog(own_ring()), kills)
        self._messages = RankMessages(self._folder)
        self._orders = Orders(self._folder, self._keepers, self._selector)

        out, out_end = pipe_stream(self._folder.place(LAUNCHER) / "out")
        err, err_end = pipe_stream(self._folder.place(LAUNCHER) / "err")
        self._outputs = (out_end, err_end)
        self._streams[LAUNCHER] = (out, err)
        for rank in () if self._plan.elsewhere else self._plan.ranks:
            self._streams[rank] = rank_streams(self._folder.place(rank), self._plan.tty)
        self._daemons = Daemons(self._plan, self._folder, self._journal, self._table, self._ended)

        for stream in self._all_streams():
            self._selector.register(stream.fd, selectors.EVENT_READ, stream)
        self._selector.register(self._messages.fd, selectors.EVENT_READ)
        self._catch_signals()

    def _catch_signals(self) -> None:
        reading, writing = os.pipe()
        for fd in (reading, writing):
            os.set_blocking(fd, False)
        if sys.version_info >= (3, 7):  # noqa: UP036 - 3.6 would complain on stderr
            signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        else:
            signal.set_wakeup_fd(writing)
        # Without a handler, the signal would not write to the wake-up descriptor.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGTERM, self._cancel_self)
        self._wakeup = reading
        self._selector.register(reading, selectors.EVENT_READ)

    def _start(self, process: ProcessPlan) -> None:
        self._table.had_processes = True
        try:
            command = planned_command(self._plan, self._folder, process)
            child = start_process(command, self._outputs, self._group)
        except StartError as error:
            self._not_started(process, error)
            return
        child.returncode = 0  # waitpid(-1) reaps all children, so Popen must not try to
        self._table.processes[child.pid] = process.name
        self._children[child.pid] = process
        if self._plan.elsewhere and process.rank is None:
            self._keepers.add(child.pid)
        if process.rank is None:
            self._journal.add(LauncherStarted(process.name, child.pid))

    def _not_started(self, process: ProcessPlan, error: StartError) -> None:
        text = plain_line(str(error))
        self._journal.add(Trouble(text))
        end = decode_end(error.code)
        if process.rank is None:
            ended = LauncherEnded(process.name, end["code"], end["signal"], (text,))
            self._journal.add(replace(ended, verdict=self._verdict()))
        elif self._table.exited(process.rank):
            self._failed = True
            self._journal.add(RankExited(process.rank, end["code"], end["signal"], (text,)))

    def _ended(self, name: str, end: End) -> None:
        """Record the end of a launcher or daemon."""
        self._drain(LAUNCHER)
        at = round(time.time(), 6)
        said = self._evidence.of_launcher() if has_failed(end) else ()
        if has_failed(end):
            self._box.freeze(FAILED)
        ended = LauncherEnded(name, end["code"], end["signal"], said, self._verdict())
        self._journal.add(ended, at)

    def _verdict(self) -> Optional[SchedulerVerdict]:
        """What the keeper of a scheduler's job has written about its end; None for other jobs."""
        return read_verdict(self._folder) if self._plan.elsewhere else None

    # ---- one turn ----------------------------------------------------------------------

    def _copy_output(self) -> None:
        """Copy output to the logs until there is something else to do (a message, the end
        of a child), at most _TICK seconds.
        """
        until = time.monotonic() + _TICK
        only_output = True
        while only_output:
            left = until - time.monotonic()
            ready = self._selector.select(max(left, 0.0))
            only_output = left > 0 and bool(ready)
            for key, _ in ready:
                if isinstance(key.data, Stream):
                    self._pump(key)
                    continue
                only_output = False
                if key.fd == self._wakeup:
                    os.read(self._wakeup, 4096)

    def _pump(self, key: selectors.SelectorKey) -> None:
        try:
            key.data.pump()
        except DiskFullError:
            self._space.block(key.data)
        except OSError as error:
            self._selector.unregister(key.fd)
            text = f"the output of a rank can no longer be read: {error}"
            self._journal.add(Trouble(text))

    def _look_around(self) -> None:
        """Handle messages, reap children and, every _RETRY seconds, check everything else."""
        self._obey()
        self._reap()
        now = time.monotonic()
        self._daemons.expire(now)
        if now - self._retried >= _RETRY:
            self._retried = now
            self._space.retry()
            self._look_at_logs()
            self._start_again()
            self._give_up(self._orphans.lost())
            self._activity.look(self._table.running(), now)
            self._hear_from_elsewhere(now)
            mark_agent_used()

    def _look_at_logs(self) -> None:
        """Report bytes that somebody removed from the logs."""
        for stream in self._all_streams():
            stream.look()
            if stream.gone:
                self._journal.add(Trouble(f"{stream.name}: {_TAKEN_OUT.format(stream.gone)}"))
                stream.gone = 0

    def _obey(self) -> None:
        """Do what messages ask, of those who may send them."""
        verbs: dict[str, Callable[[list[str]], None]] = {
            "started": lambda words: self._rank_started(*(int(word) for word in words[:3])),
            "exited": lambda words: self._said_exited(int(words[0]), int(words[1])),
            "spawn": lambda words: self._daemons.ask(words[0]),
            "daemon": lambda words: self._daemons.start(words[0], self._outputs, self._group),
            "answer": lambda words: self._daemons.answer(words[0], " ".join(words[1:])),
            "cancel": lambda words: self._cancelled(float(words[0]), words[1:]),
            "trouble": lambda words: self._troubled(" ".join(words)),
            "again": lambda words: self._begin_again(" ".join(words)),
            "waits": lambda words: self._journal.add(Waiting(plain_line(" ".join(words)))),
        }

        messages = [*self._messages.read(), *self._orders.read()]
        if any(message.verb == "started" for message in messages):
            self._evidence.look()
        for message in messages:
            verb = message.verb
            if not is_allowed(message):
                by_keeper = message.sender == Part.KEEPER.value
                who = "the keeper" if by_keeper else "a process of the job"
                self._refuse(f"{who} sent `{verb}`, which it may not send: left out")
                continue
            try:
                verbs[verb](message.words)
            except (ValueError, IndexError, TypeError):
                self._refuse(f"sent `{verb}` without what belongs to it: left out")
            except OSError as error:
                self._journal.add(Trouble(f"a request of the job could not be served: {error}"))

    def _refuse(self, why: str) -> None:
        """Count a message that changes nothing; the first is recorded at
        once, the number of all at the end.
        """
        self._refused += 1
        if self._refused == 1:
            self._journal.add(MessagesRefused(why))

    def _troubled(self, text: str) -> None:
        """Record a sentence of a launcher for the operator."""
        if self._troubles < _MOST_TROUBLES:
            self._troubles += 1
            self._journal.add(Trouble(plain_line(text)))

    # ---- ranks -------------------------------------------------------------------------

    def _rank_started(self, rank: int, pid: int, shim: int) -> None:
        """Handle what the shim of a rank wrote when it began."""
        why = self._contradiction(rank)
        if why:
            self._refuse(f"a process of the job said that rank {rank} began, {why}: left out")
            return
        # A pid of another pid namespace is useless here: then only the shim's messages count.
        ours = shim in self._children or pid == self._reaping or processes.any_exists(shim, pid)
        self._table.started(rank, pid, shim if ours else 0)
        self._evidence.began(rank, pid if ours else 0)
        self._journal.add(RankStarted(rank, pid))

    def _contradiction(self, rank: int) -> str:
        """Why nothing that somebody says of the start or end of this rank
        is true, in words; "" if it may be.
        """
        if rank not in self._streams or rank == LAUNCHER:
            return "which the plan has not on this node (its output, if any, is with its launcher)"
        record = self._table.visible().get(rank)
        runs = record is not None and all(map(processes.is_alive, (record.pid, record.shim)))
        return "which runs" if runs else ""

    def _said_exited(self, rank: int, status: int) -> None:
        """Handle what somebody wrote about the end of a rank; its shim
        does so when the program is gone.
        """
        why = self._contradiction(rank)
        if why:
            self._refuse(f"a process of the job said that rank {rank} ended, {why}: left out")
        else:
            self._rank_exited(rank, status)

    def _rank_exited(self, rank: int, status: int) -> None:
        if rank not in self._streams or rank == LAUNCHER:
            return
        self._drain(rank)
        if self._table.exited(rank):
            self._record_exit(rank, status, time.time())

    def _record_exit(self, rank: int, status: int, at: float) -> None:
        """Record the end of a rank with the time `at` when it was
        noticed: collecting evidence takes time.
        """
        end, asked = decode_end(status), self._table.cancelled
        event = RankExited(rank, end["code"], end["signal"])
        if has_failed(end):
            self._failed = True
            self._box.freeze(FAILED)
            seen, activity = (
                self._evidence.of_rank(rank, end, asked=asked),
                self._activity.of_failed(rank),
            )
            # The clock may have been set back meanwhile.
            ago = tuple(max(round(at - written, 3), 0.0) for written in seen.written)
            event = replace(event, said=seen.said, kernel=seen.kernel, activity=activity, ago=ago)
        else:
            event = self._ended_well(event)

        self._journal.add(event, round(at, 6))

    def _ended_well(self, event: RankExited) -> RankExited:
        """The end of a rank with code 0, with what tells that its program failed all the same."""
        rank = event.rank
        told = self._evidence.of_well_ended(rank)
        inside = self._wrapped.failed_program(rank) or told.inside
        kernel = self._evidence.kernel_lines(rank)
        if inside is None and not kernel and not told.raised:
            return event
        said = tuple(read_last_words(self._folder.place(rank), RANK))
        return replace(event, said=said, kernel=kernel, inside=inside)

    def _drain(self, rank: int) -> None:
        for stream in self._streams[rank]:
            if self._space.waits(stream):
                continue
            try:
                stream.drain(_DRAIN)
            except DiskFullError:
                self._space.block(stream)
            except OSError:
                continue

    def _give_up(self, ranks: list[int]) -> None:
        """Record that ranks ended and nobody saw how."""
        if not ranks:
            return

        # A cancel or a launcher that is ending the ranks here may kill shims: that is no trouble.
        table = self._table
        by_launcher = self._failed and any(p.rank is None for p in self._plan.processes)
        by_daemon = table.had_daemons and (self._failed or not table.daemons)
        if not (table.cancelled or by_launcher or by_daemon):
            self._journal.add(Trouble(describe_lost_ranks(ranks)))
        for rank in ranks:
            self._rank_exited(rank, UNKNOWN)

    def _hear_from_elsewhere(self, now: float) -> None:
        """Record the starts and ends of ranks on other machines."""
        if self._table.processes:
            self._launched = now
        news = self._elsewhere.look()
        late = now - self._launched > _LATE or self._elsewhere.complete
        if not self._table.processes and late:
            news += self._elsewhere.give_up()
        for report in news:
            rank, at = report.rank, round(report.at, 6)
            if report.status is None:
                self._table.started(rank, 0, 0)
                self._journal.add(RankStarted(rank, host=report.host), at)
            elif self._table.exited(rank):
                self._record_exit(rank, report.status, at)

    def _begin_again(self, why: str) -> None:
        """Start over: the ranks on other machines were suspended, and their
        earlier starts and exits no longer count.
        """
        self._elsewhere.begin_again()
        self._table.ranks.clear()
        self._journal.add(RanksReset(plain_line(why)))

    # ---- children ----------------------------------------------------------------------

    def _reap(self) -> None:
        for _ in range(_MOST_REAPED):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._others = 0
                return
            if pid == 0:
                break
            self._reaped(pid, status)
        self._count_others()

    def _reaped(self, pid: int, status: int) -> None:
        # A shim writes its messages before it ends: read them before handling its end.
        self._reaping = pid
        self._obey()

        if pid in self._children or pid in self._table.daemons:
            self._looked = 0.0
        process = self._children.pop(pid, None)
        self._keepers.discard(pid)
        self._table.processes.pop(pid, None)

        orphan = self._orphans.rank_of(pid)
        if orphan is not None:
            self._rank_exited(orphan, shell_status(status))
        elif process is None:
            self._daemons.ended(pid, decode_end(shell_status(status)))
        elif process.rank is None:
            self._launcher_ended(process, status)
        else:
            # A shim; usually it has already reported the end of its rank.
            record = self._table.ranks.get(process.rank)
            if record is None or (record.running and not os.WIFSIGNALED(status)):
                self._rank_exited(process.rank, shell_status(status))

    def _launcher_ended(self, process: ProcessPlan, status: int) -> None:
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGTERM
        over = self._table.cancelled or self._elsewhere.complete
        # A keeper of ranks on other machines that was killed while they run is needed again.
        if self._plan.elsewhere and killed and not over and self._restarts < _MOST_RESTARTS:
            self._restarts += 1
            self._killed.append(process)
            self._journal.add(Trouble(_KEEPER_KILLED))
        else:
            self._ended(process.name, exact_outcome(status))

    def _start_again(self) -> None:
        waiting, self._killed = self._killed, []
        for process in waiting:
            if not self._table.cancelled:
                self._start(process)

    def _count_others(self) -> None:
        """Count the orphans: children that are neither planned processes
        nor first processes of daemons.
        """
        now = time.monotonic()
        if now - self._looked < 1.0:
            return
        self._looked = now
        strays = self._strays()
        self._others = len(strays)
        self._daemons.adopt(strays)

        rows = processes.list_processes()
        self._evidence.saw(rows, self._table.pids())
        self._wrapped.saw(rows, self._table.running())

    def _strays(self) -> list[int]:
        known = {*self._children, *self._table.daemons, self._canceller}
        return [pid for pid in list_children(os.getpid()) if pid not in known]

    # ---- the end -----------------------------------------------------------------------

    def _cancelled(self, grace: float, rest: list[str]) -> None:
        self._table.cancelled = True
        self._table.linger = grace + _CANCEL_TAKES
        self._box.freeze(CANCELLED)
        by = rest[0] if rest and rest[0] in ASKERS else ASKERS[0]
        self._journal.add(CancelBegan(grace, by))

    def _cancel_self(self, _number: int, _frame: object) -> None:
        """On SIGTERM to the supervisor: cancel the job in a child
        process, with the plan's grace period.
        """
        if self._canceller:
            return
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                end_node_processes(self._folder, self._plan.grace, by="system")
            finally:
                os._exit(0)
        self._canceller = pid
        self._orders.cancellers.add(pid)

    def _done(self) -> bool:
        if self._space.short or self._elsewhere.waiting or self._killed:
            return False
        self._obey()
        if not self._table.busy:
            # A short job may be over before the console has answered the launch agent.
            self._daemons.refuse_all("the launcher has ended")
        self._daemons.settle(self._others)
        return self._table.may_close(time.monotonic(), self._others)

    def _close(self) -> None:
        strays = self._strays() if self._others else []
        if not (self._failed or self._table.cancelled):
            strays = self._daemons.left_over(strays)
        alive = filter(processes.is_alive, strays)
        left = [f"{pid} {processes.command_line(pid)}" for pid in islice(alive, 5)]
        if left:
            text = "still running after the ranks have ended: " + "; ".join(left)
            self._journal.add(Trouble(text))

        for rank in self._streams:
            self._drain(rank)

        while self._space.short:
            time.sleep(_RETRY)
            self._space.retry()
        self._space.report_space()
        self._box.close()
        self._activity.end()

        if self._refused > 1:
            text = f"{self._refused} messages of processes of the job were left out"
            self._journal.add(MessagesRefused(text, self._refused))

        self._journal.spend_reserve()
        self._journal.add(NodeClosed())
        while not self._journal.flush():
            time.sleep(_RETRY)

        remove_containers(self._folder)
        cgroups.remove_cgroup(self._folder)
        unlink_links(self._folder)

        # Stay the parent of the processes that are left, so that a cancel finds them.
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        cgroups.remove_cgroup(self._folder)

    def _all_streams(self) -> list[Stream]:
        return [stream for pair in self._streams.values() for stream in pair]
