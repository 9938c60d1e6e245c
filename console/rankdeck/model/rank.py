"""Ranks and processes: their states, what they were doing, how they ended,
and the words for these used everywhere.
"""

import signal
from enum import StrEnum

from rankdeck.values import Value


class State(StrEnum):
    """State of a rank or job."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The node stopped answering; what became of the rank is not known."""

    @property
    def final(self) -> bool:
        """Whether it is over; LOST is not final."""
        return self not in (State.PENDING, State.RUNNING, State.LOST)


class RankStatus(StrEnum):
    """Why a rank needs attention, in addition to its state; the worst first."""

    FIRST = "failed first"
    FAILED = "failed"
    STALLED = "stalled"
    VICTIM = "ended by it"


WORST = tuple(RankStatus)


BUSY = 0.5
"""A rank that uses more than this many cores computes, whatever its main thread does."""


def is_computing(state: str, cores: float) -> bool:
    """Whether a process computes: `state` as in /proc, `cores` in use
    on average since the look before.
    """
    return state == "R" or cores > BUSY


def describe_process_state(state: str, wchan: str, *, busy: bool) -> str:
    """What a process does: `computes`, or its state and kernel function such as `S ep_poll`."""
    return "computes" if busy else f"{state} {wchan}".strip()


class Activity(Value):
    """One look at a rank by the supervisor of its node."""

    state: str
    """State of the process that does the work, as in /proc: R, S, D, T, t, Z."""
    wchan: str
    """The kernel function it waits in; "" if it runs or this may not be read."""
    cores: float
    """CPU cores that all processes of the rank used since the look before."""
    system: float | None
    """The kernel's share of that CPU time, from 0 to 1; None if it used hardly any."""
    at: float
    """Epoch seconds on the console's clock."""
    throttled: float | None = None
    """Share of the periods since the look before in which a CPU quota
    (cgroup) held it back; None if it has none.
    """
    moves: int | None = None
    """Its page faults, reads and writes since the look before; None if not known."""
    wants: float | None = None
    """Share of that time in which it had something to do itself, on a core or waiting for one."""
    held: float | None = None
    """Share of that time in which a CPU quota held it back; None if it has none."""
    delayed: float | None = None
    """Share of what it `wants` in which it waited for a core; None if not known."""
    blocked: float | None = None
    """Share of that time in which it waited for a disk or a file system; None if its kernel does
    not count it.
    """

    @property
    def computes(self) -> bool:
        return is_computing(self.state, self.cores)

    @property
    def place(self) -> str:
        """What it did, in a few words; see `describe_process_state`."""
        return describe_process_state(self.state, self.wchan, busy=self.computes)

    @property
    def work(self) -> float:
        """Cores that ran its own code, not the kernel's: few for a rank
        that waits in a loop of system calls.
        """
        return self.cores * (1.0 - (self.system or 0.0))


SHELL_SIGNAL = 128
"""A shell adds this to the number of the signal that ended a program."""
_SIGNALS = frozenset(signal.Signals)


def exit_status(code: int | None, number: int | None) -> int:
    """The exit status as in a shell: 128 + signal `number`, else
    `code`, else 1 if neither is known.
    """
    if number is not None:
        return SHELL_SIGNAL + number
    return 1 if code is None else code


def signal_of(code: int | None, number: int | None) -> int | None:
    """The signal that ended a process, also if a container runtime turned it
    into an exit code; None: no signal.
    """
    if number is not None or code is None:
        return number
    found = code - SHELL_SIGNAL
    return found if found in _SIGNALS else None


def signal_name(number: int) -> str:
    """`SIGKILL`, or `signal 64` for a signal without a name."""
    known = number in _SIGNALS
    return signal.Signals(number).name if known else f"signal {number}"


def how_it_ended(exit_code: int | None, number: int | None) -> str:
    """`exit 3`, `signal 9 (SIGKILL)`."""
    if number:
        name = signal_name(number)
        return f"signal {number} ({name})" if name.startswith("SIG") else name
    return "ended, exit code not known" if exit_code is None else f"exit {exit_code}"
