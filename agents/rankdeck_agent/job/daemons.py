"""MPI daemons: requested by a launcher on this node, or started here for a launcher on another node."""

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Callable, Optional

from rankdeck_agent.job.folder import End, Journal, RunFolder, failed
from rankdeck_agent.job.ranks import RankTable
from rankdeck_agent.job.starting import StartCommand, StartError, environment, start
from rankdeck_agent.rules.mpi_daemon import daemon_of, daemons_of, in_place
from rankdeck_agent.text import plain, table
from rankdeck_agent.wire import NodePlan

ANSWER_LIMIT = 60.0
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
_LONGEST = 1 << 18


def good_id(text: str) -> bool:
    """Whether this can be the id of a request."""
    return bool(_ID.match(text))


class Daemons:
    """Both ends of `spawn` on one node."""

    def __init__(
        self,
        plan: NodePlan,
        folder: RunFolder,
        journal: Journal,
        ranks: RankTable,
        ended: Callable[[str, End], None],
    ) -> None:
        self._plan, self._folder = plan, folder
        self._journal, self._table = journal, ranks
        self._record_end = ended
        self._deadlines: dict[str, float] = {}
        self._done: set[str] = set()
        self._background = ""
        """A daemon whose first process ended well and left another behind."""
        self._adopted: Optional[set[int]] = None
        """What it left behind, once that was looked for."""
        self._strays: set[int] = set()
        self._before: set[int] = set()
        """Orphans that we had when the daemon was started."""

    # ---- this node's launcher asks -------------------------------------------------------

    def ask(self, request: str) -> None:
        """Pass a request of the launch agent to the console."""
        if not good_id(request) or request in self._deadlines:
            return
        text = (self._place(request, "ask")).read_bytes()[:_LONGEST].decode("utf-8", "replace")
        host, _, command = text.partition("\n")
        self._deadlines[request] = time.monotonic() + ANSWER_LIMIT
        self._journal.add("spawn", id=request, host=plain(host, 255), command=command)

    def answer(self, request: str, text: str) -> None:
        """Pass the console's answer to the waiting launch agent."""
        if self._deadlines.pop(request, None) is None:
            return
        said = "ok" if text == "ok" else plain(text) or "no reason given"
        self._reply(request, said)
        self._journal.add("answered", id=request, ok=said == "ok", text=said)

    def expire(self, now: float) -> None:
        """Refuse requests that were not answered in time."""
        for request in [r for r, deadline in self._deadlines.items() if deadline <= now]:
            self.answer(request, f"no console started the daemon within {ANSWER_LIMIT:.0f} s")

    def refuse_all(self, why: str) -> None:
        """Refuse every open request, because no daemon is needed any more."""
        for request in list(self._deadlines):
            self.answer(request, why)

    def _reply(self, request: str, text: str) -> None:
        try:
            fd = os.open(self._place(request, "reply"), os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return  # the launcher has gone and its agent with it
        os.write(fd, text.encode() + b"\n")
        os.close(fd)

    # ---- another node's launcher wants a daemon here ------------------------------------

    def start(self, request: str, outputs: tuple[int, int], group: Optional[Path]) -> None:
        """Start the command of `spawn/ID.json` and say in `spawn/ID.started` what came of it."""
        if not good_id(request) or request in self._done:
            return
        self._done.add(request)
        raw = table(self._place(request, "json").read_text(encoding="utf-8", errors="replace"))
        line = str((raw or {}).get("command", ""))
        if why := self._refusal(line):
            self._say(request, why)
            return
        # Without a shell between: what a daemon leaves behind is then seen to be its own.
        command = ("sh", "-c", in_place(line))
        env = environment(self._plan, self._folder, {})
        try:
            child = start(
                StartCommand("the daemon", command, env, str(Path.home())), outputs, group
            )
        except StartError as error:
            self._say(request, str(error))
            return
        child.returncode = 0
        self._table.daemons[child.pid] = f"daemon {request}"
        self._table.had_daemons = True
        self._before = self._strays
        self._journal.add("process", name=f"daemon {request}", pid=child.pid)
        self._say(request, "ok")

    def _refusal(self, command: str) -> str:
        """Why this is not started here; "" for the daemon of a launcher that is not here yet."""
        if daemon_of(command) is None:
            return "the command is no MPI daemon: refused"
        plans = self._plan.processes
        if plans and not any(daemons_of(p.argv, self._plan.job) for p in plans):
            return "this job has no launcher of MPI: refused"
        if self._table.daemons or self._background:
            return "the job has its MPI daemon here already: refused"
        return ""

    def _say(self, request: str, text: str) -> None:
        fresh = self._place(request, "new")
        fresh.write_text(text)
        fresh.replace(self._place(request, "started"))

    def ended(self, pid: int, end: End) -> None:
        """A child that was not planned ended: note it where it was a daemon."""
        name = self._table.daemons.pop(pid, None)
        if name is None:
            self._background_ended(pid, end)
        elif failed(end):
            self._record_end(name, end)
        else:
            self._background, self._adopted = name, None

    def _background_ended(self, pid: int, end: End) -> None:
        # Before it was looked who was left to us, whoever is new is the daemon's own.
        adopted = self._adopted
        own = pid not in self._before if adopted is None else pid in adopted
        if self._background and failed(end) and own:
            name, self._background = self._background, ""
            self._record_end(name, end)

    def adopt(self, strays: Iterable[int]) -> None:
        """Take orphans: those that are new since a daemon began belong to it once its first process has ended."""
        now = set(strays)
        if self._background and self._adopted is None:
            # Not since the look before this one: it may have seen them already.
            self._adopted = now - self._before
        self._strays = now

    def settle(self, others: int) -> None:
        """Note the end of a daemon in the background, when no process of it remains."""
        if not self._background or others:
            return
        name, self._background = self._background, ""
        self._record_end(name, {"code": 0, "signal": None})

    def _place(self, request: str, kind: str) -> Path:
        return self._folder / "spawn" / f"{request}.{kind}"
