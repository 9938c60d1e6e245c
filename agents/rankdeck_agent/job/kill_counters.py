"""Counts out-of-memory kills: in the cgroup of the job, above it, on the node."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

from rankdeck_agent.job import cgroups

if TYPE_CHECKING:
    pass


_COUNT = re.compile(rb"^oom_kill (\d{1,18})$", re.MULTILINE)
_NODE = Path("/proc/vmstat")
_SAYS = "out-of-memory kills on this node since the rank began: {} (control group {})"
_SAYS_LESS = "out-of-memory kills somewhere on this node since the rank began: {} (of which job is not known)"


class KillCounter(NamedTuple):
    """A file with an `oom_kill` count, and the sentence that reports it."""

    path: Path
    sentence: str


Counts = tuple[int, ...]
"""The values of all counters of a `Kills`."""


class Kills:
    """Out-of-memory kill counters, nearest first; those that cannot be read are dropped."""

    def __init__(self, counters: Iterable[KillCounter]) -> None:
        self._counters = [c for c in counters if _value(c.path) is not None]

    def count(self) -> Counts:
        """Kills so far according to each counter."""
        return tuple(_value(counter.path) or 0 for counter in self._counters)

    def since(self, began: Counts, first: Counts, explained: int) -> str:
        """A sentence with the kills since `began`, from the nearest
        counter that saw any; "" for none.

        A counter is skipped if its kills since `first` are no more than `explained`, those that
        explain other ends already. A container has a cgroup of its own, often not below the job's:
        then only the node's counter sees it.
        """
        for counter, then, before, now in zip(self._counters, began, first, self.count()):
            if now > then and now - before > explained:
                return counter.sentence.format(now - then)
        return ""


def find_kill_counters(group: Optional[Path]) -> Iterator[KillCounter]:
    """The counters that may count the job's kills: its cgroup (`group`), the
    cgroups above it, last the whole node.
    """
    for path in cgroups.memory_files(group):
        whose = "of the job" if path.parent == group else "that the job runs in"
        yield KillCounter(path, _SAYS.format("{}", whose))
    yield KillCounter(_NODE, _SAYS_LESS)


def _value(path: Path) -> Optional[int]:
    try:
        found = _COUNT.search(path.read_bytes()[: 1 << 16])
    except OSError:
        return None
    return int(found[1]) if found else None
