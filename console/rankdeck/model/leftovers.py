"""What `rankdeck clean` asks for and gets: things that jobs, agents and
consoles left on nodes and on this machine.
"""

from collections.abc import Iterable, Mapping

from msgspec import field

from rankdeck.values import Value
from rankdeck_agent.wire.leftovers import GOES, KEEP_DAYS, Ground

LOCKS = "locks"
"""Kind: locks of launches whose console was killed."""
DATABASES = "databases"
"""Kind: databases of this user that could not be used and were renamed."""


class CleanOrder(Value):
    """What the user keeps; with `dry`, nothing is removed."""

    dry: bool
    days: float = KEEP_DAYS
    size: int | None = None
    """Most bytes of all run folders on a node; None: any."""


class LeftoverGroup(Value):
    """Things of one kind on one machine that go or stay for the same reason."""

    kind: str
    """A value of the agent's LeftoverKind, LOCKS or DATABASES."""
    ground: Ground
    count: int
    bytes: int
    names: tuple[str, ...]
    """The first of them."""
    place: str = ""
    """Equal for machines that see the same folder; "" if that is not known."""

    @property
    def goes(self) -> bool:
        return self.ground in GOES


class DoubtfulClock(Value):
    """Why a machine does not know the age of its files."""

    newest: str
    """Name of the newest thing there, if it is newer than the clock."""
    ahead: float
    """Seconds by which it is newer."""
    console: float
    """Seconds by which the machine's clock is ahead of this machine's."""


class Cleaned(Value):
    """The answer of one machine."""

    groups: tuple[LeftoverGroup, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name -> why it could not be removed."""
    doubt: DoubtfulClock | None = None

    @property
    def going(self) -> tuple[LeftoverGroup, ...]:
        """What would be removed, or was."""
        return tuple(one for one in self.groups if one.goes)


class CleanReport(Value):
    """The answers of all machines."""

    here: Cleaned
    """Of this machine."""
    nodes: Mapping[str, Cleaned]
    missing: Mapping[str, str]
    """Node -> why it could not be asked, or does not answer."""

    @property
    def well(self) -> bool:
        """Whether every machine answered and nothing resisted."""
        return not self.missing and not any(one.failed for one in self.machines)

    @property
    def machines(self) -> tuple[Cleaned, ...]:
        return (*self.nodes.values(), self.here)


def total_leftovers(machines: Iterable[Cleaned], *, dry: bool) -> tuple[int, int]:
    """(number, bytes) of all that goes.

    In a dry run, a folder that several machines see is counted once.
    """
    going = [one for machine in machines for one in machine.going]
    if dry:
        seen = {(one.place or str(n), one.kind, one.ground): one for n, one in enumerate(going)}
        going = list(seen.values())
    return sum(one.count for one in going), sum(one.bytes for one in going)
