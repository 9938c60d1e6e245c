"""Ranks on machines that share the run folder (Slurm), or of which the launcher writes there what became of them (Kubernetes)."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.job.folder import STREAMS, RunFolder
from rankdeck_agent.job.journal import UNKNOWN, plain

NOT_KNOWN = "unknown"
"""In the place of an exit status that nobody saw."""
COMPLETE = "complete"
"""A file by which a launcher says that no more records of ranks will come."""


@dataclass(frozen=True)
class Report:
    """What became of a rank: it began (`status` None) or it ended. `at`: by the file server's clock."""

    rank: int
    host: str
    status: Optional[int]
    at: float


class SharedRunFolder:
    """Which ranks began and ended since the last look; their logs get a time index as well."""

    def __init__(self, folder: RunFolder, ranks: Iterable[int]) -> None:
        self._folder = folder
        self._hosts: dict[int, str] = {}
        self._waiting = set(ranks)
        self._sizes: dict[Path, int] = {}

    @property
    def complete(self) -> bool:
        """Whether the launcher left word that it wrote all that there is."""
        return (self._folder / COMPLETE).exists()

    @property
    def waiting(self) -> bool:
        """Whether there may be more to hear."""
        return bool(self._waiting)

    def resume(self, events: Iterable[Mapping[str, Any]]) -> None:
        """An earlier supervisor has reported these already."""
        for event in events:
            if event["kind"] == "started":
                self._hosts[event["rank"]] = str(event.get("host", ""))
            elif event["kind"] == "exited":
                self._waiting.discard(event["rank"])

    def look(self) -> list[Report]:
        """The news, oldest first: who failed first is told by the times."""
        news = [report for rank in sorted(self._waiting) for report in self._news(rank)]
        self._waiting -= {report.rank for report in news if report.status is not None}
        return sorted(news, key=lambda report: report.at)

    def give_up(self) -> list[Report]:
        """Ends, with unknown status, for ranks of which no more files are expected."""
        running, now = sorted(self._waiting & set(self._hosts)), time.time()
        self._waiting.clear()
        return [Report(rank, self._hosts[rank], UNKNOWN, now) for rank in running]

    def _news(self, rank: int) -> Iterator[Report]:
        place = self._folder.place(rank)
        # NFS looks again at a folder that is listed; a name alone may be answered from memory.
        with os.scandir(place) as entries:
            times = {entry.name: entry.stat().st_mtime for entry in entries}
        for name in STREAMS:
            self._stamp(place / name)
        if rank not in self._hosts and "started" in times:
            self._hosts[rank] = _first_line(place / "started")
            yield Report(rank, self._hosts[rank], None, times["started"])
        word = _first_line(place / "exit") if "exit" in times else ""
        if word.isdigit() or word == NOT_KNOWN:
            status = int(word) if word.isdigit() else UNKNOWN
            yield Report(rank, self._hosts.get(rank, ""), status, times["exit"])

    def _stamp(self, log: Path) -> None:
        size = log.stat().st_size if log.exists() else 0
        known = self._sizes.get(log, 0)
        if size > known:
            self._sizes[log] = size
            with log.with_name(log.name + ".idx").open("a") as index:
                index.write(f"{known} {time.time():.6f}\n")


def _first_line(file: Path) -> str:
    try:
        return plain(file.read_text(errors="replace").partition("\n")[0], 64)
    except OSError:
        return ""
