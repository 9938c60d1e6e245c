"""Processes of nodes, and commands on many: how each ended, and who wrote the same."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rankdeck.model.job import Job, RankState, RemainingProcess
from rankdeck.model.rank import signal_name, signal_of
from rankdeck.model.text import as_table, clean, integer, natural, number

_MOST_GPUS = 64
NO_STATE = "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProcess:
    """One process of a node."""

    node: str
    pid: int
    start: int
    """Clock ticks since boot: tells a reused pid from the old one."""
    ppid: int = 0
    user: str = ""
    state: str = NO_STATE
    """As /proc has it: R, S, D, T, t."""
    command: str = ""
    cpu: float = 0.0
    """Cores that it uses."""
    rss: int = 0
    """Bytes."""
    read: float | None = None
    """Bytes a second through system calls; None if that may not be read."""
    write: float | None = None
    gpus: Mapping[str, int] = field(default_factory=dict[str, int])
    """GPU -> bytes of its memory."""
    job: str = ""
    rank: int | None = None

    @property
    def gpu_memory(self) -> int:
        return sum(self.gpus.values())

    @property
    def traffic(self) -> float | None:
        return None if self.read is None or self.write is None else self.read + self.write


def process_of(node: str, row: Mapping[str, Any]) -> NodeProcess | None:
    """A row of the agent's answer; None for what is none, and what is not as it should be is left out."""
    pid, start, rank, gpus = row.get("pid"), row.get("start"), row.get("rank"), row.get("gpus")
    if not integer(pid) or not integer(start) or pid <= 0:
        return None
    told = list(as_table(gpus).items())[:_MOST_GPUS]
    return NodeProcess(
        node=node,
        pid=pid,
        start=start,
        ppid=natural(row.get("ppid")),
        user=clean(row.get("user"), 40),
        state=clean(row.get("state"), 1) or NO_STATE,
        command=clean(row.get("command")),
        cpu=_amount(row.get("cpu")) or 0.0,
        rss=natural(row.get("rss")),
        read=_amount(row.get("read")),
        write=_amount(row.get("write")),
        gpus={clean(gpu, 40): natural(size) for gpu, size in told},
        job=clean(row.get("job"), 120),
        rank=rank if integer(rank) and rank >= 0 else None,
    )


def _amount(value: object) -> float | None:
    return float(value) if number(value) and value >= 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankUse:
    """What all processes of a rank use together."""

    rank: int
    node: str
    pid: int | None
    """The pid of the program that was started."""
    processes: tuple[NodeProcess, ...] = ()
    """Those that belong to it; () if nothing is known of them."""

    @property
    def state(self) -> str:
        """Of the process that computes most."""
        busiest = max(self.processes, key=lambda one: one.cpu, default=None)
        return busiest.state if busiest else NO_STATE

    @property
    def cpu(self) -> float | None:
        return sum(one.cpu for one in self.processes) if self.processes else None

    @property
    def rss(self) -> int | None:
        return sum(one.rss for one in self.processes) if self.processes else None

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(sorted({gpu for one in self.processes for gpu in one.gpus}))

    @property
    def gpu_memory(self) -> int | None:
        return sum(one.gpu_memory for one in self.processes) if self.gpus else None

    @property
    def traffic(self) -> float | None:
        told = [one.traffic for one in self.processes if one.traffic is not None]
        return sum(told) if told else None


def uses_of(job: Job, found: Iterable[NodeProcess]) -> dict[int, RankUse]:
    """Rank -> what it uses: its program and all that this started, or processes marked with its number."""
    mine = [one for one in found if one.job == job.id]
    by_pid = {(one.node, one.pid): one for one in mine}
    roots = {(rank.node, rank.pid): rank.rank for rank in job.ranks if rank.pid is not None}
    belongs: dict[int, list[NodeProcess]] = {}
    for one in mine:
        rank = _rank_above(one, by_pid, roots)
        if rank is not None:
            belongs.setdefault(rank, []).append(one)
    return {rank.rank: _use(rank, belongs.get(rank.rank, ())) for rank in job.ranks}


def _use(rank: RankState, processes: Iterable[NodeProcess]) -> RankUse:
    return RankUse(rank=rank.rank, node=rank.node, pid=rank.pid, processes=tuple(processes))


def _rank_above(
    one: NodeProcess,
    by_pid: Mapping[tuple[str, int], NodeProcess],
    roots: Mapping[tuple[str, int], int],
) -> int | None:
    """The rank of the nearest ancestor that is a rank's program; else the number it carries."""
    seen: set[int] = set()
    above: NodeProcess | None = one
    while above is not None and above.pid not in seen:
        seen.add(above.pid)
        if (rank := roots.get((above.node, above.pid))) is not None:
            return rank
        above = by_pid.get((one.node, above.ppid))
    return one.rank


LIMIT, CANCELLED = "limit", "cancelled"
"""Why the agent ended a command."""


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How the command ended on one node."""

    code: int | None = None
    """Its exit status, 128 + N where signal N ended it; None: not known."""
    why: str = ""
    """LIMIT or CANCELLED where it was ended, a sentence if the node could not tell; "" it ended by itself."""
    left: tuple[RemainingProcess, ...] = ()
    """What would not end."""
    behind: int = 0
    """Processes that it left running in the background."""
    cut: int = 0
    """Bytes of its output that were left out."""
    seconds: float = 0.0

    @property
    def told(self) -> bool:
        """Whether the agent there saw its end; if not, remaining processes are not known."""
        return self.code is not None or self.why in (LIMIT, CANCELLED)

    @property
    def well(self) -> bool:
        return self.code == 0 and not self.why

    @property
    def status(self) -> int:
        """Its share in the exit status of `rankdeck sh`: 124 for the time limit, 255 for a node not reached."""
        if self.why == LIMIT:
            return 124
        if not self.told:
            return 255
        return self.code or 0

    @property
    def words(self) -> str:
        """How it ended, in a few words; seconds are left out: they differ."""
        parts = [self._verdict()]
        if self.left:
            parts.append(f"{_processes(len(self.left))} would not end")
        if self.behind:
            parts.append(f"{_processes(self.behind)} left running in the background")
        if self.cut:
            parts.append("the rest of its output is left out")
        return ", ".join(parts)

    def _verdict(self) -> str:
        if self.why == LIMIT:
            return "ended at the time limit"
        if self.why == CANCELLED:
            return "cancelled"
        if self.why:
            return self.why
        by = signal_of(self.code, None)
        return f"exit {self.code or 0}" + (f": {signal_name(by)}" if by else "")


@dataclass(frozen=True, slots=True)
class OutputGroup:
    """Nodes with the same output and the same progress."""

    nodes: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]
    """Stream (`out` or `err`) and text, in the order in which they came."""
    end: CommandEnd | None
    """None: it still runs there, or has not begun."""
    begun: bool = True

    @property
    def words(self) -> str:
        """How far it is there."""
        if self.end is not None:
            return self.end.words
        return "runs" if self.begun else "waits for its turn"

    @property
    def text(self) -> tuple[str, ...]:
        return tuple(line for _, line in self.lines)


def _processes(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"
