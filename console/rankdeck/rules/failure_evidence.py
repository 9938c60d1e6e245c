"""The evidence about who failed first, for each candidate; how sure the answer is. No I/O."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from signal import SIGKILL

from rankdeck.model.first_failure import Suspect
from rankdeck.model.rank import signal_of
from rankdeck.rules.absent_rank import host_sought_by_all
from rankdeck.rules.certainty import (
    BAR,
    MOST_BETWEEN,
    Candidate,
    Part,
    Sign,
    Weights,
    rivals_of,
    share_blame,
    tell_share,
)
from rankdeck.rules.ends import (
    CRASHES,
    FROM_OUTSIDE,
    End,
    Meaning,
    Role,
    exception_of,
    keep_own_lines,
    telling_words,
    tells_own_fault,
)
from rankdeck.rules.failed_job import (
    WINDOW,
    View,
    end_time,
    failure_start,
    was_killed,
    was_told_to_end,
)
from rankdeck.rules.messages import (
    missing_ranks,
    others_that_aborted,
    others_with_error,
    tells_cut_message,
    tells_unknown_name,
)
from rankdeck.rules.root_cause import Cause, end_signature, is_surely_earlier
from rankdeck.values import Value

MOST = 12
"""Most candidates that are weighed."""
MANY = 2
"""So many ranks that end alike may be a culprit and its victim; more are all to blame."""
_COMPARED = 3
"""Last lines of two ranks that are compared."""
_NUMBERS = re.compile(r"[0-9]+")
_NOT_STARTED = (126, 127)
"""Exit codes of a shell that could not start the program."""
_CUT = 15
"""Open MPI's code for a message that did not fit its buffer."""
HAIR = 0.05
"""Seconds between two records of one node below which their order is not sure."""
_BY_FINDER: Mapping[str, Sign] = {
    "held_up": Sign.ABSENT, "emptied": Sign.GONE, "daemon": Sign.GONE,
    "own": Sign.OWN, "absent": Sign.ABSENT, "left": Sign.LEFT, "launcher": Sign.FAILED,
    "peers": Sign.PEERS, "words": Sign.PEERS, "nodes": Sign.PEERS, "lost": Sign.PEERS,
    "told": Sign.TOLD, "scheduler": Sign.SCHEDULER,
}  # fmt: skip
_BY_ROLE: Mapping[Role, Sign] = {
    Role.CAUSE: Sign.WORDS, Role.LIKELY: Sign.UNEXPLAINED, Role.KILLED: Sign.KILLED,
    Role.WELL: Sign.WELL, Role.GOING: Sign.GOING,
}  # fmt: skip
_NOBODY = {"own": Sign.NOBODY_OWN, "absent": Sign.NOBODY_ABSENT}


class FailureEvidence(Value):
    """The candidates of a failed job, the chosen one first; without those that fail by the same
    fault as that one, if it is not one that made the other fail.
    """

    meanings: tuple[Meaning, ...]
    candidates: tuple[Candidate, ...]
    nobody: frozenset[Sign]
    alike: tuple[int, ...] = ()
    """Ranks on several nodes that fail by the same words as the chosen one, or that did not come
    with it, all of its node: one is as much to blame as the other.
    """


def gather_evidence(cause: Cause) -> FailureEvidence:
    """Who may be to blame besides the chosen one, and the evidence about each."""
    pool, more, twins = _pool(cause), set[Sign](), list[Meaning]()
    chosen, ranks, seen = pool[0], cause.view.ranks, _witnesses(cause.view)
    alike = all(_likeness(m) == _likeness(chosen) for m in ranks)
    if len(ranks) > MANY and (alike or all(map(was_killed, ranks))):
        # Of ranks that all only lost each other, or were all killed or told to end, none is to
        # blame, unless most or a launcher name it, or it is known by what it did.
        own = was_killed(chosen) or (chosen.end.what == "launcher" and chosen.end.signal == SIGKILL)
        killed = own and not _was_killed_first(chosen, ranks)
        suffered = _is_victim(chosen) or killed or was_told_to_end(chosen)
        named = Sign.BY_MOST in _of_others(chosen, cause.view, seen)
        # A launcher names the one whose exit it saw first: among victims that says nothing.
        named = named or (chosen.end.rank in cause.view.faulty and not _is_victim(chosen))
        blamed = not suffered or named or cause.finder == "absent"
        pool, more = (pool[:1] if blamed else pool), {Sign.EVERYBODY}
    elif cause.finder != "lost" and (twins := _twins_of(cause, pool[1:])):
        pool, more = [m for m in pool if m not in twins], {Sign.TWINS}
    signs = [{*_signs(m, pool, cause), *_of_others(m, cause.view, seen)} for m in pool]
    signs[0] |= more
    candidates = tuple(
        Candidate(_who(m), frozenset(some)) for m, some in zip(pool, signs, strict=True)
    )
    nobody = frozenset({_NOBODY.get(cause.finder, Sign.NOBODY_OTHER)})
    all_told = cause.finder == "absent" or _spread(chosen, twins)
    told = [m.end.rank for m in twins if m.end.rank is not None] if all_told else []
    return FailureEvidence(tuple(pool), candidates, nobody, tuple(told))


def _pool(cause: Cause) -> list[Meaning]:
    """The chosen one, those tied with it, then all others that failed, the earliest first."""
    view, choice = cause.view, cause.choice
    failed = [m for m in (*view.ranks, *view.launchers) if m.end.failed_unstopped]
    if any(m.end.what == "rank" for m in failed):
        own = not view.job.ending.repeats
        failed = [m for m in failed if m.end.what == "rank" or (m.end.killed and own)]
    rest = sorted([*failed, *view.lost], key=lambda m: (m.role > Role.KILLED, failure_start(m)))
    known = {id(m.end): m for m in (choice.chosen, *choice.tied)}
    return [*known.values(), *(m for m in rest if id(m.end) not in known)][:MOST]


def _who(meaning: Meaning) -> frozenset[Part]:
    end = meaning.end
    if end.what == "rank" and end.rank is not None:
        return frozenset({(end.what, end.rank)})
    return frozenset({(end.what, end.node)})


def _likeness(meaning: Meaning) -> tuple[object, ...]:
    return (meaning.role, *end_signature(meaning.end))


def _is_victim(meaning: Meaning) -> bool:
    return meaning.role in (Role.PEER, Role.TIMEOUT)


def _was_killed_first(chosen: Meaning, ranks: Sequence[Meaning]) -> bool:
    """Whether it was surely killed before all others: by more than records are late where no
    launcher can have killed the others for it.
    """
    least = WINDOW if chosen.role is Role.LIKELY else HAIR
    return all(_is_proven(chosen, m, least) for m in ranks if m is not chosen)


def _twins_of(cause: Cause, others: Sequence[Meaning]) -> list[Meaning]:
    """Those that fail by the same error of their own as the chosen one: on its node; or on any, if
    they are many and say the same. Or those of its node that did not come either.
    """
    chosen = cause.choice.chosen
    if cause.finder == "absent" and (absent := _absent_with_it(cause)):
        return absent
    twins = [m for m in others if _is_twin(m, chosen)]
    same = [m for m in twins if m.role is Role.CAUSE and _say_same(m, chosen)]
    here = [m for m in twins if m.end.node == chosen.end.node]
    return same if len(same) >= MANY and _spread(chosen, same) else here


def _absent_with_it(cause: Cause) -> list[Meaning]:
    """Those that never came as the chosen one, if together they are all ranks of its node: then
    the whole node did not come. Or if all who say who did not come name just these.
    """
    chosen, tied, view = cause.choice.chosen, list(cause.choice.tied), cause.view
    here = [m for m in view.ranks if m.end.node == chosen.end.node and m is not chosen]
    whole = len(here) == len(tied) and all(m in tied for m in here)
    lists = {view.ranks_of(m) for m in view.of(Role.TIMEOUT)} - {frozenset()}
    listed = lists == {frozenset(m.end.rank for m in (chosen, *tied))}
    return tied if (whole or listed) and all(m.role is chosen.role for m in tied) else []


def _spread(chosen: Meaning, others: Sequence[Meaning]) -> bool:
    return any(m.end.node != chosen.end.node for m in others)


def _is_twin(one: Meaning, chosen: Meaning) -> bool:
    """Whether it fails by the same error of its own as the chosen one."""
    known = one.role is Role.CAUSE or bool(exception_of(telling_words(one.end.lines)))
    by_words = one.end.code is not None and bool(one.end.lines) and not one.end.kernel
    # Who was killed for a fault that is known did not follow another one into it.
    told = by_words or (one.role is Role.CAUSE and _was_asked(one.end))
    return _likeness(one) == _likeness(chosen) and told and known and one.end.what == "rank"


def fails_as_one(cause: Cause) -> bool:
    """Whether every rank failed by itself, and alike: by the same words, or without words by the
    same exit code or signal, and none surely before all others. Then what they share is to blame.
    """
    ranks, chosen = cause.view.ranks, cause.choice.chosen
    if len(ranks) < MANY or chosen not in ranks:
        return False
    if _all_aborted(cause) or host_sought_by_all(cause.view):
        return True
    if not all(map(_failed_by_itself, ranks)):
        return False
    others = [m for m in ranks if m is not chosen]
    if any(end_signature(m.end) != end_signature(chosen.end) for m in others):
        return False
    if all(_say_same(m, chosen) for m in others):
        return True
    if chosen.role is Role.LIKELY and exception_of(telling_words(chosen.end.lines)):
        return False  # of an exception that may mean anything, the same class says nothing
    alike = all(m.role is chosen.role for m in others) and len(ranks) > MANY
    # Of exit codes that anything may have, a launcher knows more: whose it saw first.
    clear = chosen.role is Role.CAUSE or chosen.end.code in _NOT_STARTED
    first = all(_is_proven(chosen, m) for m in others)
    return alike and not first and (clear or not cause.view.faulty)


def _all_aborted(cause: Cause) -> bool:
    """Whether a launcher counts every rank among those that called MPI_Abort, which has ended some
    of them before they could: then none did it since another one had.
    """
    counted = sum(map(others_that_aborted, _said_by_launchers(cause))) + len(cause.view.aborted)
    return counted >= len(cause.view.ranks) > 1 and cause.finder == "own"


def _fail_as_most(cause: Cause) -> tuple[Meaning, ...]:
    """More than half of the ranks, on several nodes, that failed alike in one moment by an
    exception that says nothing about whose fault it is, or by words of a start that needs ranks
    which have not written anything; else (). What they share may be to blame, or a rank that is
    unlike them.
    """
    ranks, chosen = cause.view.ranks, cause.choice.chosen
    raised = exception_of(telling_words(keep_own_lines(chosen.end)))
    if not (raised and _is_unexplained(cause)) and not _starts_without_some(cause):
        return ()
    alike = [
        m
        for m in ranks
        if m is not chosen
        and _likeness(m) == _likeness(chosen)
        and _say_same(m, chosen)
        and not _is_proven(chosen, m, WINDOW)
    ]
    most = 2 * (len(alike) + 1) > len(ranks) > MANY
    return (chosen, *alike) if most and _spread(chosen, alike) else ()


def _starts_without_some(cause: Cause) -> bool:
    """Whether the chosen one did not find another one by its name when it started, and the only
    ranks that did not fail have neither ended nor written anything.
    """
    chosen = cause.choice.chosen
    rest = [m for m in cause.view.ranks if not m.end.failed_unstopped]
    words = telling_words(keep_own_lines(chosen.end))
    silent = all(m.role is Role.GOING and not m.end.lines for m in rest)
    return bool(rest) and silent and any(map(tells_unknown_name, words))


def _ranks_with_cut_messages(cause: Cause) -> tuple[Meaning, ...]:
    """The chosen rank and others, if several ranks got a message that did not fit its buffer: the
    rank that sent them may be to blame as well; else ().
    """
    chosen = cause.choice.chosen
    if len(cause.view.ranks) <= MANY:
        return ()
    if any(map(tells_cut_message, keep_own_lines(chosen.end))) and _is_unexplained(cause):
        # NCCL tells whose message it was not, and sends in rings and trees: it may be that of any.
        return (chosen, *(m for m in cause.view.ranks if m is not chosen))
    if not _got_cut_message(cause):
        return ()
    alike = [m for m in cause.view.ranks if m.end.code == _CUT and m is not chosen]
    others = [m for m in cause.view.ranks if m is not chosen and m not in alike]
    several = alike or any(map(others_with_error, _said_by_launchers(cause)))
    return (chosen, *alike, *others) if several else ()


def _ended_alone(cause: Cause) -> bool:
    """Whether a launcher names the chosen rank, which lost another one, and has told all others to
    end after it: nobody else can have been first, though it may be a victim of the network.
    """
    chosen = cause.choice.chosen
    others = [m for m in cause.view.ranks if m is not chosen]
    told = all(m.role is Role.TERMINATED and _is_proven(chosen, m) for m in others)
    return cause.finder == "lost" and chosen.end.rank in cause.view.faulty and told


def _got_cut_message(cause: Cause) -> bool:
    """Whether a launcher says that it is why the chosen rank ended: its sender may be to blame."""
    told = any(map(tells_cut_message, _said_by_launchers(cause)))
    return told and cause.choice.chosen.end.code == _CUT and _is_unexplained(cause)


def _said_by_launchers(cause: Cause) -> list[str]:
    return [line for one in cause.view.job.launchers for line in one.lines]


def _is_unexplained(cause: Cause) -> bool:
    """Whether the chosen rank returned an exit code, and why is not known."""
    chosen = cause.choice.chosen
    return cause.finder == "own" and chosen.role is Role.LIKELY and chosen.end.code is not None


def _failed_by_itself(meaning: Meaning) -> bool:
    """Whether it is known to have, whatever code it returned; or nobody ended it from outside."""
    end = meaning.end
    asked = meaning.told or _was_asked(end)
    own = meaning.role is Role.CAUSE or (meaning.role is Role.LIKELY and not asked)
    return end.failed_unstopped and own


def _was_asked(end: End) -> bool:
    return signal_of(end.code, end.signal) in FROM_OUTSIDE


def _is_as_good(one: Meaning, chosen: Meaning) -> bool:
    """Whether it ended like the chosen one and in the same moment, on the same node."""
    alike = one.end.node == chosen.end.node and _likeness(one) == _likeness(chosen)
    return alike and abs(failure_start(one) - failure_start(chosen)) <= HAIR


def _say_same(one: Meaning, other: Meaning) -> bool:
    """Whether both ended by the same words, numbers apart: then neither made the other fail."""
    mine = _last_words(one)
    return bool(mine) and mine == _last_words(other)


def _last_words(meaning: Meaning) -> list[str]:
    """What tells how it failed, without numbers and the name of its node: its exception and its
    last lines, which may be a stack; if it was ended from outside and tells no fault, what is known
    of it; [] if nothing is.
    """
    end = meaning.end
    words = telling_words(end.lines)
    raised = words[:1] if exception_of(words) else ()
    lines = (*raised, *end.lines[-_COMPARED:])
    if end.signal in FROM_OUTSIDE and not tells_own_fault(end):
        lines = (meaning.why,) if meaning.role is Role.CAUSE else ()
    # Folders are often named after their node.
    return [_NUMBERS.sub("", line.replace(end.node or "\n", "")) for line in lines]


def _signs(meaning: Meaning, pool: Sequence[Meaning], cause: Cause) -> Iterator[Sign]:
    chosen = cause.choice.chosen
    # Who never came is known by what it did, not by when it ended.
    as_good = cause.finder != "absent" and _is_as_good(meaning, chosen)
    if meaning in (chosen, *cause.choice.tied) or as_good:
        yield _BY_FINDER[cause.finder]
    yield _of_end(meaning, cause.view)
    others = [m for m in pool if m is not meaning]
    if meaning.role <= Role.KILLED and not any(m.role <= Role.KILLED for m in others):
        yield Sign.ALONE
    if any(_likeness(m) == _likeness(meaning) for m in others):
        yield Sign.ALIKE
    well = cause.view.of(Role.WELL)[:1]
    # Nobody crashes because another one has ended well.
    crashed = meaning.role is Role.CAUSE and meaning.end.signal is not None
    if meaning.end.failed and not crashed and any(end_time(m) < end_time(meaning) for m in well):
        yield Sign.AFTER_WELL
    yield from _of_time(meaning, others)


def _of_end(meaning: Meaning, view: View) -> Sign:
    end = meaning.end
    if end.what != "rank":
        return Sign.GONE if end.what == "node" else Sign.LAUNCHER
    if meaning.told:
        return Sign.ASKED
    if meaning.role is not Role.CAUSE:
        return _BY_ROLE.get(meaning.role, Sign.VICTIM)
    if end.kernel and "somewhere" not in end.kernel[0]:
        return Sign.KERNEL
    if end.signal in CRASHES:
        return Sign.CRASH
    return Sign.ABORT if end.rank in view.aborted else Sign.WORDS


class _Witness(Value):
    """A rank that lost a peer or gave up waiting, and whom its words name."""

    meaning: Meaning
    ranks: frozenset[int]
    nodes: frozenset[str]
    missing: frozenset[int]
    """Ranks that did not come, as it says."""

    def names(self, meaning: Meaning) -> bool:
        by_node = self.meaning.end.node != meaning.end.node and meaning.end.node in self.nodes
        return by_node or meaning.end.rank in self.ranks


def _witnesses(view: View) -> list[_Witness]:
    found = view.of(Role.PEER, Role.TIMEOUT)
    said = [missing_ranks(keep_own_lines(m.end)) for m in found]
    return [
        _Witness(m, view.ranks_of(m), view.peers_of(m), some)
        for m, some in zip(found, said, strict=True)
    ]


def _of_others(meaning: Meaning, view: View, witnesses: Sequence[_Witness]) -> Iterator[Sign]:
    if meaning.end.what == "rank" and view.named:
        yield Sign.NAMED if meaning.end.rank in view.named else Sign.NOT_NAMED
    others = [one for one in witnesses if one.meaning is not meaning]
    naming = sum(one.names(meaning) for one in others)
    if naming:
        most = len(others) > 1 and 2 * naming > len(witnesses)
        # What one says who keeps a list of those that did not come, it says for all.
        missing = {rank for one in others for rank in one.missing}
        most = most or missing == {meaning.end.rank}
        yield Sign.BY_MOST if most else Sign.BY_PEERS


def _of_time(meaning: Meaning, others: Sequence[Meaning]) -> Iterator[Sign]:
    if meaning.end.what == "node" or not others:
        return
    if all(_is_proven(meaning, m) for m in others):
        yield Sign.FIRST
    elif any(_is_proven(m, meaning) for m in others if m.role <= meaning.role):
        yield Sign.LATER
    elif all(failure_start(meaning) <= failure_start(m) for m in others) and not any(
        _is_open(meaning, m) for m in others
    ):
        yield Sign.FIRST_SEEN


def _is_proven(one: Meaning, other: Meaning, least: float = HAIR) -> bool:
    """Whether clocks and records prove that one came first, by more than `least` seconds."""
    apart = failure_start(other) - failure_start(one)
    return is_surely_earlier(one, other) and apart > least


def _is_open(one: Meaning, other: Meaning) -> bool:
    """Whether the order of two ends is not known: they are nearer in time than clocks, or the
    records of one node, are exact.
    """
    if other.role > one.role:
        return False
    if one.end.node == other.end.node:
        return _is_as_good(one, other)
    return not is_surely_earlier(one, other) and not is_surely_earlier(other, one)


# ---- the verdict -----------------------------------------------------------------------------

CLOCKS = "clocks that differ by less than the two ends (chrony or PTP on both nodes)"
KERNEL = "the kernel logs of the nodes: whether memory was used up, or who sent the signal"
NETWORK = (
    "the network between their nodes: error counters of ports and switches, `rankdeck preflight`"
)
OTHERS = "what sets these ranks apart from the others: input, options, versions of both"
WORDS = "what each wrote before its end: its log, a core dump, PYTHONFAULTHANDLER=1"


class WeighedFailure(Value):
    """How sure it is who failed first."""

    sure: float | None
    """A share from 0 to 1; None if it is undecided, or not known."""
    between: tuple[Suspect, ...] = ()
    """If it is undecided: those who may be to blame, the likeliest first; if every rank failed
    alike, some of them.
    """
    decides: str = ""
    code: int | None = None
    signal: int | None = None
    """How they ended, if all ended alike."""
    tied: tuple[int, ...] = ()
    """Ranks that ended like the chosen one and by the same words, in the same moment and on the
    same node: `sure` is that it was one of them. Or those that fail by the same words on other
    nodes.
    """
    everybody: bool = False
    """Whether every rank failed by itself, and alike: nobody is accused."""


def weigh_failure(cause: Cause, weights: Weights) -> WeighedFailure:
    """How sure it is that the chosen one is to blame; below the bar it is undecided. Neither what
    a scheduler says is weighed nor a node that lost all ranks; who held up the others has been.
    """
    if cause.finder in ("scheduler", "emptied", "daemon"):
        return WeighedFailure(None)
    if cause.finder == "held_up" and cause.view.job.held_up is not None:
        return WeighedFailure(cause.view.job.held_up.sure)
    if (alike := _weigh_alike(cause)) is not None:
        return alike
    found = gather_evidence(cause)
    shares = share_blame([*(one.signs for one in found.candidates), found.nobody], weights)
    if shares[0] >= BAR:
        return WeighedFailure(tell_share(shares[0]), tied=found.alike)
    chosen, *others = found.meanings
    alike = [
        at
        for at, one in enumerate(others, 1)
        if _is_as_good(one, chosen) and _say_same(one, chosen)
    ]
    if (together := shares[0] + sum(shares[at] for at in alike)) >= BAR:
        ranks = (found.meanings[at].end.rank for at in alike)
        return WeighedFailure(
            tell_share(together), tied=tuple(rank for rank in ranks if rank is not None)
        )
    if len(found.meanings) == 1:
        return WeighedFailure(None)  # nothing else failed: it is told, and not how sure that is
    rivals = [found.meanings[at] for at in rivals_of(shares[:-1], [0])]
    ends = {(m.end.code, m.end.signal) for m in rivals}
    code, signal = ends.pop() if len(ends) == 1 else (None, None)
    return WeighedFailure(None, tuple(map(_suspect, rivals)), _decider(rivals), code, signal)


def _weigh_alike(cause: Cause) -> WeighedFailure | None:
    """The answer where ranks fail alike, or only got a message that another one sent, whatever the
    weights say; else None.
    """
    end = cause.choice.chosen.end
    if fails_as_one(cause):
        rest = (m for m in cause.view.ranks if m is not cause.choice.chosen)
        some = tuple(map(_suspect, islice(chain((cause.choice.chosen,), rest), MOST_BETWEEN)))
        code, signal = (None, None) if host_sought_by_all(cause.view) else (end.code, end.signal)
        return WeighedFailure(None, some, code=code, signal=signal, everybody=True)
    if _ended_alone(cause) or (cause.finder == "words" and end.rank in cause.view.faulty):
        return WeighedFailure(None)
    if most := _fail_as_most(cause) or _ranks_with_cut_messages(cause):
        between = tuple(map(_suspect, most[:MOST_BETWEEN]))
        return WeighedFailure(None, between, OTHERS, end.code, end.signal)
    return WeighedFailure(None) if _got_cut_message(cause) else None


def _suspect(meaning: Meaning) -> Suspect:
    end = meaning.end
    return Suspect(what=end.what, rank=end.rank, node=end.node, name=end.name, why=meaning.why)


def _decider(rivals: Sequence[Meaning]) -> str:
    """What would decide between these."""
    first, *rest = rivals
    if rest and all(map(_is_victim, rivals)):
        return NETWORK
    if any(first.end.node != m.end.node and _is_open(first, m) for m in rest):
        return CLOCKS
    return KERNEL if any(m.role is Role.KILLED or m.end.killed for m in rivals) else WORDS
