"""What jobs leave on a node, as `job clean` answers it: kinds of
things, and why each goes or stays.
"""

from enum import Enum


class LeftoverKind(str, Enum):
    """What it is."""

    RUN = "runs"
    """A run folder."""
    LINKS = "links"
    """The links to run folders of one job, in /tmp."""
    AGENT = "agents"
    """One version of the agent, which a console copied here, with its compiled modules."""
    ASIDE = "aside"
    """A run folder whose removal was interrupted."""


class Ground(str, Enum):
    """Why it goes or stays."""

    OLD = "old"
    """Goes: it is older than the limit."""
    SIZE = "size"
    """Goes: it is among the oldest, and all run folders together are larger than the limit."""
    USELESS = "useless"
    """Goes at any age: nobody can use it any more."""
    RECENT = "recent"
    """Stays: it is not older than the limit."""
    RUNS = "runs"
    """Stays: the job runs, or a process of it is left."""
    OPEN = "open"
    """Stays: nobody has recorded the end of the job, and no supervisor of it runs here."""
    STARTING = "starting"
    """Stays: the job is being started, or its start was interrupted."""
    IN_USE = "in use"
    """Stays: a process here runs from it."""
    FOREIGN = "foreign"
    """Stays: it belongs to another user."""
    UNKNOWN = "unknown"
    """Stays: it is not what Rankdeck makes, or cannot be read."""
    CLOCK = "clock"
    """Stays: the clock of the node is wrong, so its age is not known."""
    FAILED = "failed"
    """Stays: it was to go, and could not be removed."""


GOES = frozenset({Ground.OLD, Ground.SIZE, Ground.USELESS})
KEEP_DAYS = 30.0
"""Days for which everything stays, unless the user says otherwise."""
