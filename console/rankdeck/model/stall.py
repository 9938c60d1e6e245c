"""Ranks that do not go on: who, since when, why, and how sure that is."""

from rankdeck.model.nodeset import fold_ranks
from rankdeck.values import Value

NOT_CALIBRATED = "how sure: not calibrated"
"""Told where a verdict was not weighed: the word of a scheduler, or too little evidence."""
LONG_PAUSE = 10.0
"""Seconds without output after which a rank has paused, not only written slowly."""


class Explained(Value):
    """An error message explained in plain words."""

    means: str
    remedy: str
    """What to try."""
    line: str = ""
    """The line of output that is explained; "" if it is the exit status."""
    sure: float | None = None
    """How sure it is that it means this: a share from 0 to 1; None if that is not calibrated."""


class Price(Value):
    """What ranks for which the others wait cost a job."""

    share: float
    """Share of the time that would be saved without what holds them back, from 0 to 1."""
    longer: float
    """By which share of a step without it each step is longer."""
    seconds: float
    """Seconds that it has cost since it was first seen."""


class Stall(Value, kw_only=True):
    """Ranks that make no progress although they should."""

    kind: str
    """`start`: has not begun; `rank`: silent while others go on; `all`: every rank is silent;
    `raised`: runs on after an exception; `stopped`: by a signal; `device`: in state D; `slow`: the
    others wait for it; `absent`: never entered the operation in which others wait; `agent`: not
    seen, because the agent of their `node` stands still.
    """
    ranks: tuple[int, ...]
    since: float
    """Epoch seconds."""
    text: str
    first: tuple[int, ...] = ()
    """Ranks that fell silent clearly before the others."""
    odd: tuple[int, ...] = ()
    """Among the silent ranks, those that do something different from the others."""
    heard: float = 0.0
    """Epoch seconds of the newest sign of life of these ranks; a newer one ends the stall."""
    explained: tuple[Explained, ...] = ()
    price: Price | None = None
    """What slow ranks cost; None if that is not known."""
    node: str = ""
    """The node that is to blame, and no rank; "" for all kinds but `agent`."""
    sure: float | None = None
    """How sure it is that those who are accused are to blame, or at a deadlock that nobody is:
    a calibrated share from 0 to 1; None if nobody is accused, or if it was not weighed.
    """
    between: tuple[int, ...] = ()
    """Ranks between which it is undecided who is to blame; nobody is accused then."""

    @property
    def accused(self) -> tuple[int, ...]:
        """The ranks that are said to be to blame; () if it is undecided, or a node or nobody is."""
        if self.between or self.node:
            return ()
        return self.odd or self.first or (() if self.kind == "all" else self.ranks)

    @property
    def sentence(self) -> str:
        """`text`, and how sure it is."""
        if self.between:
            return f"{self.text}; it is undecided who of ranks {fold_ranks(self.between)} is to blame: `rankdeck inspect` may tell"
        return self.text if self.sure is None else f"{self.text} ({share_words(self.sure)} sure)"


def share_words(share: float) -> str:
    """`94 %`."""
    return f"{share:.0%}".replace("%", " %")


def holds_up(stall: Stall) -> bool:
    """Whether ranks are accused by it that the others may wait for until they give up: slow ones
    go on.
    """
    return bool(stall.accused) and stall.sure is not None and stall.kind != "slow"


def tell_who_held_up(stall: Stall | None) -> tuple[str, ...]:
    """A sentence beside the word of a scheduler that ended the job, of the rank for which the
    others waited then; () if none was accused.
    """
    return (f"before that: {stall.sentence}",) if stall is not None else ()
