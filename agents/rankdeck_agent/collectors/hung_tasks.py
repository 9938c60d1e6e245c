"""Processes that have hung in state D for long."""

from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.older_python import is_ascii
from rankdeck_agent.system_files import MISSING, Tree

_LONG = 240.0
"""Seconds in state D that count as long: five looks, one per minute."""
_TASKS = 16384
_KINDS = ("nvidia", "other")
Task = tuple[str, bytes]
"""(process id, start time): process ids are reused."""


class TaskCollector:
    """How many processes have been in state D for long; those of
    NVIDIA's driver are counted apart.
    """

    name = "tasks"
    lane = "slow"
    period = 60.0
    metrics: tuple[str, ...] = ("kernel.dstate",)

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._since: dict[Task, float] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.attempt(self.metrics, lambda: self._count(reading, now))
        return reading

    def _count(self, reading: Reading, now: float) -> None:
        counts = dict.fromkeys(_KINDS, 0)
        waiting: dict[Task, float] = {}
        names = self._tree.names("proc", _TASKS)
        pids = [n for n in names if is_ascii(n) and n.isdecimal() and len(n) <= 10]
        for pid in pids:
            stat = self._stat(pid)
            if stat is None or stat[1] != b"D":
                continue
            task = (pid, stat[2])
            waiting[task] = self._since.get(task, now)
            if now - waiting[task] >= _LONG:
                counts["nvidia" if stat[0].startswith(b"nvidia") else "other"] += 1
        self._since = waiting
        if pids:
            for kind, count in counts.items():
                reading.put("kernel.dstate", count, kind)

    def _stat(self, pid: str) -> "tuple[bytes, bytes, bytes] | None":
        """(name, state, start) of a process; None if it has ended meanwhile. Raises OSError."""
        try:
            data = self._tree.once(f"proc/{pid}/stat")
        except OSError as error:
            if error.errno in MISSING or isinstance(error, ProcessLookupError):
                return None
            raise
        # The name may contain anything, even ") D ".
        name, _, rest = data.partition(b"(")[2].rpartition(b")")
        fields = rest.split()
        return (name, fields[0], fields[19]) if len(fields) > 19 else None
