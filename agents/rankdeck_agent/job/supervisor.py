"""The supervisor of one job on one node: starts, copies, records, and closes."""

import os
import selectors
import signal
import time
from pathlib import Path
from typing import Callable, Optional

from rankdeck_agent.job import cgroup, containers, processes
from rankdeck_agent.job.cancel import cancel
from rankdeck_agent.job.control import Control
from rankdeck_agent.job.daemons import Daemons
from rankdeck_agent.job.elsewhere import Elsewhere, Report
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.journal import Journal, outcome
from rankdeck_agent.job.layout import unlink_links
from rankdeck_agent.job.starting import NOT_STARTED, StartError, planned, start
from rankdeck_agent.job.streams import DiskFullError, Stream, pipe_stream, rank_streams
from rankdeck_agent.job.tally import Tally
from rankdeck_agent.wire import LAUNCHER, NodePlan, ProcessPlan

_TICK = 0.25
_DRAIN = 1.0
_RETRY = 1.0
_LATE = 5.0
"""Seconds for the files of ranks elsewhere to appear after their launcher has ended."""


class Supervisor:
    """Owns the run folder until it writes `closed`."""

    def __init__(self, plan: NodePlan, folder: RunFolder) -> None:
        self._plan, self._folder = plan, folder
        self._journal = Journal(folder / "events")
        self._selector = selectors.DefaultSelector()
        self._tally = Tally(plan.ranks)
        self._streams: dict[int, tuple[Stream, ...]] = {}
        self._blocked: list[Stream] = []
        self._exit_pending: dict[int, int] = {}
        """rank -> status of a shim that was our child, in case its own record never comes."""
        self._children: dict[int, ProcessPlan] = {}
        self._group: Optional[Path] = None
        self._outputs = (-1, -1)
        self._looked = self._retried = 0.0
        self._others = 0
        self._canceller = 0
        self._elsewhere = Elsewhere(folder, plan.ranks if plan.elsewhere else ())
        self._launched = 0.0

    def run(self, ready: Callable[[], None]) -> None:
        """Do the whole job; `ready` is called when it stands, before anything starts."""
        self._prepare()
        self._journal.add("ready", pid=os.getpid(), boot=_boot())
        ready()
        for process in self._plan.processes:
            self._start(process)
        while not self._done():
            self._turn()
        self._close()

    # ---- beginning ---------------------------------------------------------------------

    def _prepare(self) -> None:
        self._journal.reserve()
        self._group = cgroup.make(self._folder)
        self._control = Control(self._folder / "control")
        out, out_end = pipe_stream(self._folder.place(LAUNCHER) / "out")
        err, err_end = pipe_stream(self._folder.place(LAUNCHER) / "err")
        self._outputs = (out_end, err_end)
        self._streams[LAUNCHER] = (out, err)
        for rank in () if self._plan.elsewhere else self._plan.ranks:
            self._streams[rank] = rank_streams(self._folder.place(rank), self._plan.tty)
        self._daemons = Daemons(self._plan, self._folder, self._journal, self._tally)
        for stream in self._all_streams():
            self._selector.register(stream.fd, selectors.EVENT_READ, stream)
        self._selector.register(self._control.fd, selectors.EVENT_READ)
        self._catch_signals()

    def _catch_signals(self) -> None:
        reading, writing = os.pipe()
        for fd in (reading, writing):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noted)
        signal.signal(signal.SIGTERM, self._cancel_self)
        self._wakeup = reading
        self._selector.register(reading, selectors.EVENT_READ)

    def _start(self, process: ProcessPlan) -> None:
        self._tally.had_processes = True
        try:
            command = planned(self._plan, self._folder, process)
            child = start(command, self._outputs, self._group)
        except StartError as error:
            self._journal.add("trouble", text=str(error))
            self._record_end(process, NOT_STARTED)
            return
        child.returncode = 0  # we reap by waitpid(-1): Popen must not try as well
        self._tally.processes[child.pid] = process.name
        self._children[child.pid] = process
        if process.rank is None:
            self._journal.add("process", name=process.name, pid=child.pid)

    def _record_end(self, process: ProcessPlan, status: int) -> None:
        if process.rank is not None:
            self._rank_exited(process.rank, status)
            return
        self._drain(LAUNCHER)
        self._journal.add("ended", name=process.name, **outcome(status))

    # ---- one turn ----------------------------------------------------------------------

    def _turn(self) -> None:
        for key, _ in self._selector.select(_TICK):
            if isinstance(key.data, Stream):
                self._pump(key.data)
            elif key.fd == self._wakeup:
                os.read(self._wakeup, 4096)
        self._obey()
        self._reap()
        now = time.monotonic()
        self._daemons.expire(now)
        if now - self._retried >= _RETRY:
            self._retried = now
            self._retry_blocked()
            self._find_lost_ranks()
            self._hear_from_elsewhere(now)

    def _pump(self, stream: Stream) -> None:
        try:
            stream.pump()
        except DiskFullError:
            self._block(stream)
        except OSError as error:
            self._selector.unregister(stream.fd)
            self._journal.add(
                "trouble", text=f"the output of a rank can no longer be read: {error}"
            )

    def _block(self, stream: Stream) -> None:
        self._selector.unregister(stream.fd)
        if not self._blocked:
            self._journal.spend_reserve()
            where = self._folder.path
            self._journal.add(
                "trouble",
                text=f"no space left for {where}: the ranks wait until there is some",
            )
        self._blocked.append(stream)

    def _retry_blocked(self) -> None:
        if not self._journal.flush() or not self._blocked:
            return
        still = [stream for stream in self._blocked if not stream.retry()]
        for stream in self._blocked:
            if stream not in still:
                self._selector.register(stream.fd, selectors.EVENT_READ, stream)
        self._blocked = still
        if not still:
            self._journal.reserve()
            self._journal.add(
                "trouble",
                text="there is space again: nothing was lost, the ranks go on",
            )

    def _obey(self) -> None:
        verbs: dict[str, Callable[[list[str]], None]] = {
            "started": lambda words: self._rank_started(
                *(int(word) for word in words[:3])
            ),
            "exited": lambda words: self._rank_exited(int(words[0]), int(words[1])),
            "spawn": lambda words: self._daemons.ask(words[0]),
            "daemon": lambda words: self._daemons.start(
                words[0], self._outputs, self._group
            ),
            "answer": lambda words: self._daemons.answer(words[0], " ".join(words[1:])),
            "cancel": lambda words: self._cancelled(float(words[0])),
        }
        for verb, words in self._control.read():
            self._serve(verbs.get(verb), words)

    def _serve(
        self, obey: Optional[Callable[[list[str]], None]], words: list[str]
    ) -> None:
        """Anything of the job may write to the control FIFO: what is no message is no matter."""
        if obey is None:
            return
        try:
            obey(words)
        except (ValueError, IndexError, TypeError):
            return
        except OSError as error:
            self._journal.add(
                "trouble", text=f"a request of the job could not be served: {error}"
            )

    # ---- ranks -------------------------------------------------------------------------

    def _rank_started(self, rank: int, pid: int, shim: int) -> None:
        if rank not in self._streams or rank == LAUNCHER:
            return
        # A pid of another pid namespace says nothing here: then only the record counts.
        self._tally.started(rank, pid, shim if processes.is_alive(shim) else 0)
        self._journal.add("started", rank=rank, pid=pid)

    def _rank_exited(self, rank: int, status: int) -> None:
        if rank not in self._streams or rank == LAUNCHER:
            return
        self._exit_pending.pop(rank, None)
        self._drain(rank)
        if self._tally.exited(rank):
            self._journal.add("exited", rank=rank, **outcome(status))

    def _drain(self, rank: int) -> None:
        for stream in self._streams[rank]:
            if stream in self._blocked:
                continue
            try:
                stream.drain(_DRAIN)
            except DiskFullError:
                self._block(stream)
            except OSError:
                continue

    def _find_lost_ranks(self) -> None:
        """Ranks whose shim was killed: nobody will write their exit record."""
        for rank, record in self._tally.ranks.items():
            alive = not record.shim or any(
                map(processes.is_alive, (record.shim, record.pid))
            )
            if not record.running or alive:
                continue
            # Seen twice a second apart: the record may still be in the control FIFO.
            if rank in self._exit_pending:
                self._rank_exited(rank, self._exit_pending[rank])
            else:
                self._exit_pending[rank] = 128 + signal.SIGKILL

    def _hear_from_elsewhere(self, now: float) -> None:
        if self._tally.processes:
            self._launched = now
        news = self._elsewhere.look()
        if not self._tally.processes and now - self._launched > _LATE:
            news += self._elsewhere.give_up(128 + signal.SIGKILL)
        for report in news:
            self._note_elsewhere(report)

    def _note_elsewhere(self, report: Report) -> None:
        common = {"rank": report.rank, "at": round(report.at, 6)}
        if report.status is None:
            self._tally.started(report.rank, 0, 0)
            self._journal.add("started", host=report.host, **common)
        elif self._tally.exited(report.rank):
            self._journal.add("exited", **common, **outcome(report.status))

    # ---- children ----------------------------------------------------------------------

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._others = 0
                return
            if pid == 0:
                self._count_others()
                return
            self._reaped(pid, _shell_status(status))

    def _reaped(self, pid: int, status: int) -> None:
        # Shims write their record before they end: what they said comes before that they ended.
        self._obey()
        process = self._children.pop(pid, None)
        self._tally.processes.pop(pid, None)
        self._looked = 0.0
        if process is None:
            self._daemons.ended(pid, status)
        elif process.rank is None:
            self._record_end(process, status)
        else:
            record = self._tally.ranks.get(process.rank)
            if record is None or record.running:
                self._record_end(process, status)

    def _count_others(self) -> None:
        """Children that are neither planned nor a daemon's first process: left to us by others."""
        now = time.monotonic()
        if now - self._looked < 1.0:
            return
        self._looked = now
        self._others = len(self._strays())

    def _strays(self) -> list[int]:
        known = {*self._children, *self._tally.daemons, self._canceller}
        rows = processes.everything().values()
        return [
            row.pid for row in rows if row.ppid == os.getpid() and row.pid not in known
        ]

    # ---- the end -----------------------------------------------------------------------

    def _cancelled(self, grace: float) -> None:
        self._tally.cancelled = True
        self._journal.add("cancel", grace=grace)

    def _cancel_self(self, _number: int, _frame: object) -> None:
        """SIGTERM to the supervisor means: cancel, with the plan's grace."""
        if self._canceller:
            return
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                cancel(self._folder, self._plan.grace)
            finally:
                os._exit(0)
        self._canceller = pid

    def _done(self) -> bool:
        if self._blocked or self._elsewhere.waiting:
            return False
        self._obey()
        self._daemons.settle(self._others)
        return self._tally.may_close(time.monotonic(), self._others)

    def _close(self) -> None:
        left = (
            [f"{pid} {processes.command(pid)}" for pid in self._strays()[:5]]
            if self._others
            else []
        )
        if left:
            self._journal.add(
                "trouble",
                text="still running after the ranks have ended: " + "; ".join(left),
            )
        for rank in self._streams:
            self._drain(rank)
        self._journal.spend_reserve()
        self._journal.add("closed")
        while not self._journal.flush():
            time.sleep(_RETRY)
        containers.remove(self._folder)
        cgroup.remove(self._folder)
        unlink_links(self._folder)

    def _all_streams(self) -> list[Stream]:
        return [stream for pair in self._streams.values() for stream in pair]


def _noted(_number: int, _frame: object) -> None:
    """The wake-up descriptor says it; without a handler it would not be written to."""


def _shell_status(status: int) -> int:
    return (
        128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    )


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
