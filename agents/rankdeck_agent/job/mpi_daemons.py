"""MPI daemons: asks the console to start them elsewhere, and starts those of other nodes here."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Callable, Optional

from rankdeck_agent.job.folder import End, Journal, RunFolder, has_failed
from rankdeck_agent.job.rank_table import RankTable
from rankdeck_agent.job.start import StartCommand, StartError, process_environment, start_process
from rankdeck_agent.private_files import replace_private
from rankdeck_agent.rules.mpi_daemon import daemon_of, daemons_of, in_place
from rankdeck_agent.text import parse_json_table, plain_line
from rankdeck_agent.wire import NodePlan
from rankdeck_agent.wire.job_events import (
    DaemonAnswered,
    DaemonAsked,
    LauncherStarted,
    is_request_id,
)
from rankdeck_agent.wire.run_folder import SPAWN

ANSWER_LIMIT = 60.0
"""Seconds, times the `patience` of the plan, in which a console has to start a daemon elsewhere."""
_LONGEST = 1 << 18


class Daemons:
    """MPI daemons: passes requests of this node's launcher to the console, and
    starts daemons for other nodes' launchers.
    """

    def __init__(
        self,
        plan: NodePlan,
        folder: RunFolder,
        journal: Journal,
        ranks: RankTable,
        ended: Callable[[str, End], None],
    ) -> None:
        self._plan, self._folder = plan, folder
        self._limit = ANSWER_LIMIT * plan.patience
        self._journal, self._table = journal, ranks
        self._record_end = ended
        self._deadlines: dict[str, float] = {}
        self._done: set[str] = set()
        self._background = ""
        """Name of a daemon that went into the background: its first process ended with
        code 0 and left another one; "" if none.
        """
        self._adopted: Optional[set[int]] = None
        """Pids of the processes that it left; None until they were looked for."""
        self._strays: set[int] = set()
        self._before: set[int] = set()
        """Pids of the orphans that were there when the daemon was started."""

    # ---- this node's launcher asks -------------------------------------------------------

    def ask(self, request: str) -> None:
        """Pass a request of the launch agent to the console, as a `spawn` event. Raises OSError."""
        if not is_request_id(request) or request in self._deadlines:
            return
        text = (self._place(request, "ask")).read_bytes()[:_LONGEST].decode("utf-8", "replace")
        host, _, command = text.partition("\n")
        self._deadlines[request] = time.monotonic() + self._limit
        self._journal.add(DaemonAsked(request, plain_line(host, 255), command))

    def answer(self, request: str, text: str) -> None:
        """Pass the console's answer to the waiting launch agent."""
        if self._deadlines.pop(request, None) is None:
            return
        text_of_answer = "ok" if text == "ok" else plain_line(text) or "no reason given"
        self._reply(request, text_of_answer)
        self._journal.add(DaemonAnswered(request, text_of_answer == "ok", text_of_answer))

    def expire(self, now: float) -> None:
        """Refuse requests that were not answered in time; `now` in
        seconds of the monotonic clock.
        """
        for request in [r for r, deadline in self._deadlines.items() if deadline <= now]:
            self.answer(request, f"no console started the daemon within {self._limit:.0f} s")

    def refuse_all(self, why: str) -> None:
        """Refuse every open request, with the reason `why`."""
        for request in list(self._deadlines):
            self.answer(request, why)

    def _reply(self, request: str, text: str) -> None:
        try:
            fd = os.open(self._place(request, "reply"), os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return  # the launch agent is gone
        os.write(fd, text.encode() + b"\n")
        os.close(fd)

    # ---- another node's launcher wants a daemon here ------------------------------------

    def start(self, request: str, outputs: tuple[int, int], group: Optional[Path]) -> None:
        """Start the command in `spawn/ID.json`; write "ok", or why not, to `spawn/ID.started`.

        Raises OSError.
        """
        if not is_request_id(request) or request in self._done:
            return
        self._done.add(request)

        raw = parse_json_table(
            self._place(request, "json").read_text(encoding="utf-8", errors="replace")
        )
        line = str((raw or {}).get("command", ""))
        why = self._refusal(line)
        if why:
            self._say(request, why)
            return

        # `exec` leaves no shell in between, so that what the daemon leaves is known to be its own.
        command = ("sh", "-c", in_place(line))
        env = process_environment(self._plan, self._folder, {})
        try:
            child = start_process(
                StartCommand("the daemon", command, env, str(Path.home())), outputs, group
            )
        except StartError as error:
            self._say(request, str(error))
            return

        child.returncode = 0
        self._table.daemons[child.pid] = f"daemon {request}"
        self._table.had_daemons = True
        self._before = self._strays
        self._journal.add(LauncherStarted(f"daemon {request}", child.pid))
        self._say(request, "ok")

    def _refusal(self, command: str) -> str:
        """Why this command is refused; "" if it is an MPI daemon that this job may start here."""
        if daemon_of(command) is None:
            return "the command is no MPI daemon: refused"
        plans = self._plan.processes
        if plans and not any(daemons_of(p.argv, self._plan.job) for p in plans):
            return "this job has no launcher of MPI: refused"
        if self._table.daemons or self._background:
            return "the job has its MPI daemon here already: refused"
        return ""

    def _say(self, request: str, text: str) -> None:
        replace_private(self._place(request, "started"), text.encode())

    def ended(self, pid: int, end: End) -> None:
        """Handle the end of a child that was not planned: record it if it was a daemon."""
        name = self._table.daemons.pop(pid, None)
        if name is not None and has_failed(end):
            self._record_end(name, end)
        elif name is not None:
            self._background, self._adopted = name, None
        elif self._background and has_failed(end):
            # Until the orphans were looked for, every new one counts as the daemon's own.
            adopted = self._adopted
            own = pid not in self._before if adopted is None else pid in adopted
            if own:
                name, self._background = self._background, ""
                self._record_end(name, end)

    def adopt(self, strays: Iterable[int]) -> None:
        """Note the orphans: those that appeared since a daemon was started
        belong to it once it is in the background.
        """
        now = set(strays)
        if self._background and self._adopted is None:
            # Compared with the start of the daemon: the look before this one may have seen them.
            self._adopted = now - self._before
        self._strays = now

    def left_over(self, strays: Iterable[int]) -> list[int]:
        """Those of these orphans that are not a daemon in the background: its launcher on another
        node ends that one.
        """
        own = self._adopted if self._background else None
        return [pid for pid in strays if own is None or pid not in own]

    def settle(self, others: int) -> None:
        """Record the end, with code 0, of a daemon in the background when no orphan is left."""
        if not self._background or others:
            return
        name, self._background = self._background, ""
        self._record_end(name, {"code": 0, "signal": None})

    def _place(self, request: str, kind: str) -> Path:
        return self._folder / SPAWN / f"{request}.{kind}"
