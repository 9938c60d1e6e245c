"""What is sent with the end of a rank or launcher, so that any console can judge later why it ended."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.journal import End
from rankdeck_agent.job.kernel import KernelLog
from rankdeck_agent.job.memory import Kills
from rankdeck_agent.job.processes import Process
from rankdeck_agent.job.said import LAUNCHER as LAUNCHER_BOUND
from rankdeck_agent.job.said import RANK, TOLD, last_words
from rankdeck_agent.names import LAUNCHER

Evidence = dict[str, list[str]]
_MOST_PIDS = 200
"""Of one rank: some start a process a second all their life."""
_ASKED = (signal.SIGTERM, signal.SIGKILL)


@dataclass
class _Began:
    """How things stood when a rank began."""

    mark: int
    """In the kernel's log."""
    kills: int
    pids: dict[int, None] = field(default_factory=dict[int, None])
    """Its processes as far as seen, the newest last."""


class Witness:
    """Remembers of each rank what its end is judged by."""

    def __init__(self, folder: RunFolder, kernel: KernelLog, kills: Kills) -> None:
        self._folder, self._kernel, self._kills = folder, kernel, kills
        self._first = self._kills.count()
        self._told = 0
        """Kills that an end was explained by."""
        self._ranks: dict[int, _Began] = {}

    def began(self, rank: int, pid: int) -> None:
        """A rank has begun; `pid` is 0 where it counts in another namespace than ours."""
        began = _Began(self._kernel.mark(), self._kills.count())
        if pid:
            began.pids[pid] = None
        self._ranks[rank] = began

    def saw(self, rows: Mapping[int, Process], roots: Mapping[int, int]) -> None:
        """Remember which processes are whose; `roots` are pid -> rank."""
        for pid, rank in _owners(rows, roots).items():
            if rank in self._ranks:
                pids = self._ranks[rank].pids
                pids[pid] = None
                if len(pids) > _MOST_PIDS:
                    del pids[next(iter(pids))]

    def of_rank(self, rank: int, end: End, *, asked: bool) -> Evidence:
        """The evidence for a rank that failed; less where its end was `asked` for."""
        told = asked and end["signal"] in _ASKED
        said = last_words(self._folder.place(rank), TOLD if told else RANK)
        kernel = [] if told else self._of_kernel(rank, end)
        return _without_empty({"said": said, "kernel": kernel})

    def of_launcher(self) -> Evidence:
        """The evidence for a launcher or daemon that failed."""
        place = self._folder.place(LAUNCHER)
        return _without_empty({"said": last_words(place, LAUNCHER_BOUND)})

    def _of_kernel(self, rank: int, end: End) -> list[str]:
        began = self._ranks.get(rank)
        if began is None:
            return []
        lines = self._kernel.about(began.pids, began.mark)
        self._told += len(self._kernel.killed(began.mark) & set(began.pids))
        if lines or end["signal"] != signal.SIGKILL:
            return lines
        return self._counted(began)

    def _counted(self, began: _Began) -> list[str]:
        """What the counters say, where there are kills that no other end was explained by."""
        count = self._kills.count()
        if count <= began.kills or count - self._first <= self._told:
            return []
        self._told += 1
        return [self._kills.sentence(count - began.kills)]


def _owners(rows: Mapping[int, Process], roots: Mapping[int, int]) -> dict[int, int]:
    """pid -> rank of every process below these roots."""
    known: dict[int, Optional[int]] = {**roots}
    for pid in rows:
        line: list[int] = []
        while pid in rows and pid not in known:
            known[pid] = None
            line.append(pid)
            pid = rows[pid].ppid
        known.update(dict.fromkeys(line, known.get(pid)))
    return {pid: rank for pid, rank in known.items() if rank is not None}


def _without_empty(evidence: Evidence) -> Evidence:
    return {name: lines for name, lines in evidence.items() if lines}
