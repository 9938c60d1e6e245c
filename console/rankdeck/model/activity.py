"""What the processes of a rank were doing at one look of the supervisor."""

from dataclasses import dataclass

BUSY = 0.5
"""Cores from which on a rank computes, whatever its main thread does."""


def computes(state: str, cores: float) -> bool:
    """Whether a process in this state that used so many cores computes."""
    return state == "R" or cores > BUSY


def place(state: str, wchan: str, *, busy: bool) -> str:
    """What a process does, in few words: `S ep_poll`, or `computes`."""
    return "computes" if busy else f"{state} {wchan}".strip()


@dataclass(frozen=True, slots=True)
class Activity:
    """One look at a rank by the supervisor of its node."""

    state: str
    """Of the process that does the work, as /proc has it: R, S, D, T, t, Z."""
    wchan: str
    """The kernel function it waits in; "" where it runs or that may not be read."""
    cores: float
    """CPU cores that the rank used since the look before, all its processes together."""
    system: float | None
    """The share of that which the kernel took, from 0 to 1; None where it used hardly any."""
    at: float
    """Epoch seconds on the console's clock."""

    @property
    def computes(self) -> bool:
        return computes(self.state, self.cores)

    @property
    def place(self) -> str:
        """What it did, in few words."""
        return place(self.state, self.wchan, busy=self.computes)

    @property
    def work(self) -> float:
        """Cores of its own code: who waits in a loop of system calls does little of that."""
        return self.cores * (1.0 - (self.system or 0.0))
