"""Who failed first, why, and who else may have been it."""

from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.rank import how_it_ended
from rankdeck.model.stall import NOT_CALIBRATED, Explained, share_words
from rankdeck.values import Value

RESTARTED, EMPTIED = "restarted", "emptied"
"""The `name` of a node that failed because its machine was restarted, or because all ranks there
were killed, or told to end, in one moment, nobody knows by whom.
"""
WAS_RESTARTED = "was restarted while the job ran"
_NODE_ENDS = {RESTARTED: WAS_RESTARTED, EMPTIED: "all its ranks were ended in one moment"}
_WHOLE = {"job": "the job", "all": "every rank"}


class FailedPart(Value, kw_only=True):
    """A part of a job that failed."""

    what: str
    """`rank`, `launcher` (mpirun, torchrun, a daemon), `node` (lost, or
    without ranks), `job`, `scheduler` (Slurm ended it), `undecided` or `all` (every rank
    failed by itself, and alike): of these two nobody is accused.
    """
    rank: int | None
    """None if the part is not a rank."""
    node: str
    name: str = ""
    """Name of a launcher (mpirun, torchrun, `daemon 12`, supervisor), or
    scheduler and state (`Slurm: TIMEOUT`; `the scheduler` if only a launcher
    prints that it ended the job), or of a node RESTARTED or EMPTIED.
    """

    @property
    def who(self) -> str:
        """`rank 5 on n2`, `mpirun on n1`, `node n2`, `the job`."""
        return self.part

    @property
    def part(self) -> str:
        """The same; never two of them."""
        if self.what == "node":
            return f"node {self.node}"
        if self.what in _WHOLE:
            return _WHOLE[self.what]
        if self.what == "scheduler":
            return self.name
        name = self.name or "the launcher" if self.rank is None else f"rank {self.rank}"
        return f"{name} on {self.node}"


class Suspect(FailedPart, kw_only=True):
    """A rank, launcher or node that failed too, and why it is less likely to be the cause."""

    why: str
    """One sentence without a full stop, e.g.

    `exit 14, Open MPI's code for a lost peer, 3 ms earlier`.
    """


class FirstFailure(FailedPart, kw_only=True):
    """What most likely made the job fail, judged by all reports of nodes, ranks and launchers."""

    what: str = "rank"
    exit_code: int | None
    signal: int | None
    at: float
    lines: tuple[str, ...] = ()
    tied: tuple[int, ...] = ()
    """Ranks that may have failed first instead: the clocks are not exact enough to tell."""
    uncertainty: float = 0.0
    """Error of `at`: ± seconds by which the node's clock may be off."""
    victims: tuple[int, ...] = ()
    """Ranks that ended because of it: by a signal, or because they lost their peer."""
    explained: tuple[Explained, ...] = ()
    evidence: tuple[str, ...] = ()
    """Sentences that say why this is the cause, the strongest first."""
    others: tuple[Suspect, ...] = ()
    """A few other possible causes, most likely first."""
    settled: bool = True
    """False while nodes may still report something that changes the answer."""
    sure: float | None = None
    """How sure it is that this one is to blame: a calibrated share from 0 to 1; None if it is
    undecided, or was not weighed: a scheduler's word, a history older than this field.
    """
    between: tuple[Suspect, ...] = ()
    """If it is undecided: those who may be to blame, the likeliest first; of `all`: some."""
    decides: str = ""
    """If it is undecided: what would decide it."""

    @property
    def suspects(self) -> tuple[FailedPart, ...]:
        """Those who may be to blame: where nobody is accused, all between whom it is undecided."""
        return self.between or (self,)

    @property
    def who(self) -> str:
        """As of any part; `undecided between rank 3 on n1 and rank 7 on n2`."""
        names = [] if self.what == "all" else [one.who for one in self.between]
        if not names:
            return self.part
        if len(names) == 1:
            return f"undecided whether it was {names[0]}"
        return f"undecided between {', '.join(names[:-1])} and {names[-1]}"

    @property
    def how(self) -> str:
        """`exit 3`, `signal 9 (SIGKILL)`, `stopped answering`."""
        if self.between:
            alike = self.exit_code is not None or self.signal is not None
            each = "each " if len(self.between) > 1 else ""
            ends = f"{each}{how_it_ended(self.exit_code, self.signal)}: " if alike else ""
            return f"{ends}nobody is accused"
        if self.what == "node":
            return _NODE_ENDS.get(self.name, "stopped answering")
        if self.what == "job":
            return "ended well and did nothing"
        if self.what == "scheduler":
            return "".join(self.evidence[:1])
        return how_it_ended(self.exit_code, self.signal)

    @property
    def certainty(self) -> str:
        """How sure it is who failed first: `94 % sure`, `how sure: not calibrated`."""
        return NOT_CALIBRATED if self.sure is None else f"{share_words(self.sure)} sure"

    @property
    def sentence(self) -> str:
        """Who failed first and how, in one line."""
        so_far = "" if self.settled else "so far: "
        tied = f"; too close to tell from {fold_ranks(self.tied)}" if self.tied else ""
        after = (
            f"; {len(self.victims)} ended by it: {fold_ranks(self.victims)}" if self.victims else ""
        )
        sure = "" if self.between else f" ({self.certainty})"
        decides = f"; it could be decided by {self.decides}" if self.decides else ""
        return f"{so_far}{self.who}, {self.how}{sure}{tied}{decides}{after}"
