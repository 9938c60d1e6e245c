"""What is concluded about a job: why it failed, who is stuck, how far it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rankdeck.model.health import Level


@dataclass(frozen=True, slots=True)
class Explained:
    """A message in plain words."""

    means: str
    remedy: str
    """What to try."""
    line: str = ""
    """The line it was read from; "" where the exit status said it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Ranks that should be heard and are not."""

    kind: str
    """`start`: has not begun; `rank`: silent while others go on; `all`: everybody is silent;
    `raised`: an exception, and it runs on; `stopped`; `device`: in state D; `slow`: the others wait for it."""
    ranks: tuple[int, ...]
    since: float
    """Epoch seconds."""
    text: str
    first: tuple[int, ...] = ()
    """Ranks that fell silent clearly before the others."""
    odd: tuple[int, ...] = ()
    """Of all that are silent those that do something else than the others."""
    heard: float = 0.0
    """The newest sign of life of these ranks: while there is none newer, it holds."""
    explained: tuple[Explained, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is, read from its output."""

    step: float | None = None
    steps: float | None = None
    """How many there will be."""
    values: Mapping[str, float] = field(default_factory=dict[str, float])
    """loss, tokens_s, mflops, …: the newest number under each name."""
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    """The last numbers under each name, oldest first."""
    rank: int | None = None
    """Who wrote it."""
    at: float = 0.0

    @property
    def share(self) -> float | None:
        """From 0 to 1; None where it is not known how long the job is."""
        if self.step is None or not self.steps or self.steps <= 0:
            return None
        return min(max(self.step / self.steps, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a run; `end` None: it goes on."""

    name: str
    start: float
    end: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNote:
    """What happened on a node of a job while it ran, shortly before or after."""

    at: float
    """Epoch seconds on the console's clock; where `before` is set, when it was first seen."""
    node: str
    level: Level
    check: str
    text: str
    device: str = ""
    count: int = 1
    """How many alike there were."""
    before: bool = False
    """It was there before the job, or already when its node was first looked at."""
    simulated: bool = False
    """Made up by an agent that was asked to."""
