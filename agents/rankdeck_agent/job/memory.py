"""How many processes were killed for want of memory around a job, as far as its node counts them."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Optional

from rankdeck_agent.job import cgroup

_COUNT = re.compile(rb"^oom_kill (\d{1,18})$", re.MULTILINE)
_NODE = Path("/proc/vmstat")
_SAYS = "out-of-memory kills on this node since the rank began: {} (control group {})"
_SAYS_LESS = "out-of-memory kills somewhere on this node since the rank began: {} (of which job is not known)"


class Counter(NamedTuple):
    """A file that has the count, and the sentence for what it counts."""

    path: Path
    says: str


class Kills:
    """The first of these counters that can be read."""

    def __init__(self, counters: Iterable[Counter]) -> None:
        there = (c for c in counters if _value(c.path) is not None)
        self._counter: Optional[Counter] = next(there, None)

    def count(self) -> int:
        """Kills so far; 0 where nobody counts."""
        return (_value(self._counter.path) or 0) if self._counter else 0

    def sentence(self, kills: int) -> str:
        """In words, that there were so many since a rank began."""
        return self._counter.says.format(kills) if self._counter else ""


def counters(group: Optional[Path]) -> Iterator[Counter]:
    """Those that count a job's kills, the nearest first; last the node's own."""
    for path in cgroup.memory_files(group):
        whose = "of the job" if path.parent == group else "that the job runs in"
        yield Counter(path, _SAYS.format("{}", whose))
    yield Counter(_NODE, _SAYS_LESS)


def _value(path: Path) -> Optional[int]:
    try:
        found = _COUNT.search(path.read_bytes()[: 1 << 16])
    except OSError:
        return None
    return int(found[1]) if found else None
