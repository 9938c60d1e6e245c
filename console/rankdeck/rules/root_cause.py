"""Finds what made a job fail, from the ends of ranks, launchers, nodes. No I/O."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from signal import SIGALRM, SIGPIPE

from rankdeck.model.first_failure import EMPTIED, Suspect
from rankdeck.model.safe_text import clean_line
from rankdeck.rules.absent_rank import never_came
from rankdeck.rules.ended_from_outside import (
    find_emptied_node,
    find_end_by_scheduler,
    find_lost_node,
)
from rankdeck.rules.ends import (
    CRASHES,
    LONGEST_QUOTE,
    End,
    Meaning,
    Role,
    exception_of,
    keep_own_lines,
    telling_words,
)
from rankdeck.rules.failed_job import (
    AT_ONCE,
    WINDOW,
    CauseChoice,
    FailedJob,
    View,
    end_time,
    failure_start,
    name_of,
    ranks_in_words,
    ranks_name,
    view_of,
    was_told_to_end,
)
from rankdeck.rules.messages import (
    first_by_launcher,
    is_stack_frame,
    kinds_of,
    missing_ranks,
    named_ranks,
    ready_ranks,
    replace_numbers,
    tells_giving_up,
)
from rankdeck.values import Value

PEER_WINDOW = 10.0
"""Seconds after the first lost peer within which the cause may be
recorded: containers end slowly.
"""
MOST_OTHERS = 2
OF_PEERS, ELSEWHERE = " that lost a peer", " on other nodes"


class Cause(Value):
    """The end that most likely made the job fail, and why."""

    end: End
    role: Role
    evidence: tuple[str, ...]
    others: tuple[Suspect, ...]
    tied: tuple[int, ...]
    """Ranks that may have failed first instead: the clocks are not exact enough to tell."""
    victims: tuple[int, ...]
    view: View
    choice: CauseChoice
    finder: str
    """Which of FINDERS found it."""


def find_cause(job: FailedJob) -> Cause | None:
    """What made the job fail; None if nothing failed.

    The answer may change as more becomes known: the loss of a node, for example, is noticed only
    seconds after the end of the ranks that lost their peer on that node.
    """
    view = view_of(job)
    for name, find in FINDERS.items():
        if choice := find(view):
            return _verdict(view, choice, name)
    return None


# ---- finders of a cause, tried one after the other ------------------------------------------


def _held_up(view: View) -> CauseChoice | None:
    """The rank that was seen to hold up the others before the first of them failed, if nothing
    failed by itself: who was only killed, lost a peer or gave up may have waited for it.
    """
    stall = view.job.held_up
    ended = [m for m in (*view.ranks, *view.launchers) if m.end.failed_unstopped]
    own = [m for m in view.of(Role.CAUSE, Role.LIKELY) if not (m.told or _gave_up(m.end))]
    if stall is None or not ended or view.lost or own:
        return None
    accused = [m for m in view.ranks if m.end.rank in stall.accused]
    if not accused or any(m.role is Role.CAUSE and m.end.killed for m in view.launchers):
        return None
    chosen, *tied = accused
    gave_up = [m for m in view.of(Role.CAUSE, Role.LIKELY) if m not in accused and not m.told]
    evidence = (f"before any rank failed: {stall.text}", chosen.why, *_earliest(gave_up, chosen))
    return CauseChoice(chosen, evidence, tuple(tied))


_AT_ITS_END = 5.0
"""Seconds before its end in which a rank writes why it ends."""


def _gave_up(end: End) -> bool:
    """Whether a rank that others keep waiting may have ended itself for that: by its own alarm,
    with words about waiting in vain, or without a word.
    """
    if end.signal == SIGALRM:
        return True
    if end.signal in CRASHES or end.kernel or end.inside:
        return False
    if len(end.ago) != len(end.lines):
        return any(map(tells_giving_up, telling_words(end.lines)))
    said = [line for ago, line in zip(end.ago, end.lines, strict=True) if ago < _AT_ITS_END]
    return not said or any(map(tells_giving_up, said))


def _own_cause(view: View) -> CauseChoice | None:
    """The first part that failed by its own fault: a rank, a killed launcher, or a lost node."""
    ranks = view.of(Role.CAUSE, Role.LIKELY, Role.KILLED)
    killed = [m for m in view.launchers if m.role is Role.CAUSE and m.end.killed]
    if ranks and view.job.ending.repeats:
        killed = []
    horizon = _horizon(view)
    able = [m for m in ranks if failure_start(m) <= horizon and not _followed_named(view, m)]
    own = [*able, *(m for m in killed if failure_start(m) <= horizon), *view.lost]
    if not own or (all(_ended_by_launcher(view, m) for m in own) and _left_early(view)):
        return None
    first = min(own, key=failure_start)
    # If the launcher kills ranks at once, the cause may be recorded later
    # than the killed rank: search longer.
    reach = PEER_WINDOW if first.role is Role.KILLED else WINDOW
    edge = failure_start(first) + first.end.slack + reach
    near = [m for m in own if failure_start(m) - m.end.slack <= edge]
    places = list(zip(_places(view, near, first), near, strict=True))
    best, chosen = min(places, key=lambda one: one[0])
    tied = [
        m for place, m in places if place[:3] == best[:3] and m is not chosen and _tied(chosen, m)
    ]
    return CauseChoice(chosen, _beside(view, chosen), tuple(tied))


Place = tuple[bool, int, int, float]
"""How likely an end is the cause, lowest first: not named by a launcher,
role, how many are alike, when it began.
"""


def _places(view: View, near: Sequence[Meaning], first: Meaning) -> list[Place]:
    """The place of each of these ends, which are so near in time
    that not only their order counts.
    """
    crowd = Counter(end_signature(meaning.end) for meaning in near)
    likely = [m for m in near if m.role <= Role.LIKELY]
    clear = min(likely, key=failure_start, default=first)
    untold = min((m for m in likely if not was_told_to_end(m)), key=failure_start, default=None)

    def place(meaning: Meaning) -> Place:
        named = meaning.end.rank in view.named and not any(
            _outweighs(view, m, meaning) for m in near
        )
        late = _in_kill_sequence(view, meaning, clear)
        # Nobody tells a rank to end for nothing: it is a victim unless
        # it surely ended before all others.
        told = (
            was_told_to_end(meaning)
            and untold is not None
            and not is_surely_earlier(meaning, untold)
        )
        # Among unexplained ends, the one unlike the others is the cause,
        # and many equal ones are its victims.
        alike = crowd[end_signature(meaning.end)] if meaning.role is Role.LIKELY else 0
        return (
            not named,
            Role.KILLED if late or told else meaning.role,
            alike,
            failure_start(meaning),
        )

    return [place(meaning) for meaning in near]


def _outweighs(view: View, one: Meaning, named: Meaning) -> bool:
    """Whether one is more likely the cause than another that the launcher names.

    It is a fault of its own on another node, and the clocks prove that it came first; or the other
    was only killed, as the launcher kills too, and one is a fault of its own. srun names ranks in
    the order in which it heard of their ends: there one that ended by itself, earlier, will do.
    """
    if named.role is Role.KILLED and view.job.ending.repeats:
        earlier = failure_start(one) <= failure_start(named)
        return one.role is Role.CAUSE or (one.role is Role.LIKELY and earlier)
    if named.role is Role.KILLED:
        return one.role is Role.CAUSE and not is_surely_earlier(named, one)
    elsewhere = one.end.node != named.end.node
    return one.role is Role.CAUSE and elsewhere and is_surely_earlier(one, named)


def is_surely_earlier(one: Meaning, other: Meaning) -> bool:
    """Whether one surely began before the other; records of one node keep their order."""
    same = one.end.node == other.end.node
    return failure_start(one) + (0.0 if same else one.end.slack + other.end.slack) < failure_start(
        other
    )


def _in_kill_sequence(view: View, meaning: Meaning, clear: Meaning) -> bool:
    """Whether it only wrote why it fails when its launcher may have told
    it to end, after the first clear end.
    """
    ends_ranks = view.job.ending.kill_after < float("inf")
    return (
        ends_ranks
        and meaning.wrote is not None
        and meaning is not clear
        and is_surely_earlier(clear, meaning)
    )


def _ended_by_launcher(view: View, meaning: Meaning) -> bool:
    """Whether its launcher may have ended it: by a signal, or with its
    shim, before the shim recorded the end.
    """
    kill_after = view.job.ending.kill_after
    at_once = kill_after == 0 and meaning.role is Role.KILLED
    told = kill_after < float("inf") and was_told_to_end(meaning)
    return at_once or told or _ended_with_its_shim(view, meaning)


def _ended_with_its_shim(view: View, meaning: Meaning) -> bool:
    """Whether the launcher may have killed this rank together with its
    shim, before the shim recorded the end.
    """
    end, kill_after = meaning.end, view.job.ending.kill_after
    unseen = end.what == "rank" and end.code is None and end.signal is None
    return unseen and end_time(meaning) - view.first >= kill_after > 0


def _followed_named(view: View, meaning: Meaning) -> bool:
    """Whether the launcher may have killed this rank together with its shim after another one that
    it says it saw first.
    """
    named = [m for m in view.ranks if m.end.rank in view.named and m is not meaning]
    return _ended_with_its_shim(view, meaning) and any(
        is_surely_earlier(m, meaning) for m in named if m.end.failed_unstopped
    )


def _horizon(view: View) -> float:
    """The latest possible time of the cause: a later end cannot have made the others fail."""
    waited = min(map(end_time, view.of(Role.TIMEOUT)), default=float("inf"))
    lost_peer = min(map(end_time, view.of(Role.PEER)), default=float("inf"))
    return min(waited + WINDOW, lost_peer + PEER_WINDOW)


@lru_cache(maxsize=1 << 14)
def end_signature(end: End) -> tuple[object, ...]:
    """How it ended, as a value: equal for ends that look alike."""
    words = telling_words(keep_own_lines(end))
    return end.what, end.code, end.signal, exception_of(words)


def _tied(one: Meaning, other: Meaning) -> bool:
    """Whether the clocks cannot tell which came first; records of one node keep their order."""
    if one.end.node == other.end.node or other.end.rank is None:
        return False
    return abs(end_time(one) - end_time(other)) <= one.end.slack + other.end.slack


def _left_early(view: View) -> CauseChoice | None:
    """A rank that ended with exit code 0 while others still needed it."""
    roles = (Role.LIKELY, Role.KILLED, Role.PEER, Role.TERMINATED)
    pulled = [m for m in view.of(*roles) if m.role > Role.KILLED or _ended_by_launcher(view, m)]
    # Others fail as soon as it closes its connections, which may be before it has ended. Later a
    # launcher may have told it to end.
    late = AT_ONCE if view.job.ending.kill_after < float("inf") else WINDOW
    last = end_time(pulled[-1]) + late if pulled else 0.0
    left = [m for m in view.of(Role.WELL) if end_time(m) <= last]
    unhappy = [m for m in view.ranks if m.role is not Role.WELL]
    if not left or len(left) > len(unhappy):
        return None
    chosen = left[0]
    why = f"it ended with exit 0 while {ranks_in_words(len(unhappy))} still needed it"
    tied = tuple(m for m in left[1:] if end_time(m) - end_time(chosen) < WINDOW)
    return CauseChoice(chosen, (why, *_blamed_by_others(view, chosen), *_earliest(pulled)), tied)


def _launcher(view: View) -> CauseChoice | None:
    """A launcher that failed although no rank did; its own faults count first."""
    if any(m.end.failed_unstopped for m in view.ranks):
        return None
    failed = [m for m in view.launchers if m.end.failed_unstopped]
    if not failed:
        return None
    chosen = min(failed, key=lambda m: (m.role, end_time(m)))
    return CauseChoice(chosen, (chosen.why,))


def _lost_peers(view: View) -> CauseChoice | None:
    """If no end was its own fault: the rank that most others name."""
    pulled = view.of(Role.PEER, Role.TIMEOUT)
    if not pulled:
        return None
    ranks = Counter(r for m in pulled for r in view.ranks_of(m) if r != m.end.rank)
    # Of a rank that did not come, one word is enough if nobody names another one.
    missing = Counter(r for m in pulled for r in missing_ranks(keep_own_lines(m.end)))
    alone = len(ranks) == len(missing) == 1
    if ranks and (alone or ranks.most_common(1)[0][1] > len(pulled) // 2):
        most = ranks.most_common(1)[0]
        named = next((m for m in view.ranks if m.end.rank == most[0]), pulled[0])
        return CauseChoice(named, (_named_rank(most[1], most[0], pulled), named.why))
    # Libraries of communication ignore SIGPIPE: it comes from a pipe or socket of the rank's own.
    piped = [m for m in pulled if m.end.signal == SIGPIPE]
    if len(piped) == 1 and len(pulled) > 1:
        return CauseChoice(piped[0], (piped[0].why, "all others only lost a peer"))
    return None


def _lost_nodes(view: View) -> CauseChoice | None:
    """If no end was its own fault: the node that most others name, or who was told to end first."""
    pulled = view.of(Role.PEER, Role.TIMEOUT)
    if not pulled:
        return None
    nodes = Counter(n for m in pulled for n in view.peers_of(m) if n != m.end.node)
    if nodes and (best := nodes.most_common(1)[0])[1] > len(pulled) // 2:
        return _named_node(pulled, *best)
    return _told_first(view, pulled)


def _only_lost(view: View) -> CauseChoice | None:
    """The first that lost another one, where nobody stands out."""
    pulled = view.of(Role.PEER, Role.TIMEOUT)
    if not pulled:
        return None
    evidence = (pulled[0].why, "no rank failed by itself: look at the network")
    return CauseChoice(pulled[0], evidence)


def _spoke_alone(view: View) -> CauseChoice | None:
    """If no end was its own fault: the one whose last line is new, and not about a peer: neither it
    nor another rank has written one like it.
    """
    pulled = view.of(Role.PEER, Role.TIMEOUT)
    forms = Counter(form for m in view.ranks for form in _forms(m.end))
    told = [(m, _forms(m.end)) for m in pulled]
    new = [m for m, own in told if len(own) > 1 and forms[own[-1]] == 1]
    wrote = sum(bool(m.end.lines) for m in view.ranks)
    if len(new) != 1 or wrote < 3 or kinds_of(_words_of(new[0].end)[-1:]):
        return None
    last = clean_line(_words_of(new[0].end)[-1], LONGEST_QUOTE)
    return CauseChoice(new[0], (f"no other rank wrote such last words: {last}", new[0].why))


def _words_of(end: End) -> list[str]:
    """Its last lines without the frames of a stack."""
    return [line.strip() for line in keep_own_lines(end) if not is_stack_frame(line)]


def _forms(end: End) -> list[str]:
    """The same without their numbers."""
    return [replace_numbers(line) for line in _words_of(end)]


_BEFORE_LAUNCHER = 0.25
"""Seconds after the first lost peer within which hardly any
launcher has told the other ranks to end.
"""


def _told_first(view: View, pulled: Sequence[Meaning]) -> CauseChoice | None:
    """The first of the ranks that were told to end, if all others only lost a
    peer: one of them was told from outside.
    """
    told = [m for m in view.of(Role.TERMINATED) if not m.end.stopped]
    first = min(told, key=end_time, default=None)
    if first is None or end_time(first) > end_time(pulled[0]) + _BEFORE_LAUNCHER:
        return None
    tied = tuple(m for m in told if m is not first and _tied(first, m))
    return CauseChoice(first, (f"{first.why} first", *_earliest(pulled[:1], first)), tied)


def _named_node(pulled: Sequence[Meaning], node: str, count: int) -> CauseChoice:
    own = [m for m in pulled if m.end.node == node]
    why = f"{ranks_name(count, ELSEWHERE)} {node} as the peer that went away"
    if own:
        return CauseChoice(own[0], (why, own[0].why))
    gone = End(what="node", node=node, at=end_time(pulled[0]))
    return CauseChoice(Meaning(gone, Role.CAUSE, why), (why, *_earliest(pulled)))


def _terminated(view: View) -> CauseChoice | None:
    """Ranks that were told to end, by an unknown sender."""
    members = [m for m in view.of(Role.TERMINATED) if not m.end.stopped]
    if not members:
        return None
    chosen = members[0]
    tied = tuple(m for m in members[1:] if _tied(chosen, m))
    return CauseChoice(chosen, (f"{chosen.why}, not by Rankdeck",), tied)


FINDERS: Mapping[str, Callable[[View], CauseChoice | None]] = {
    "scheduler": find_end_by_scheduler, "held_up": _held_up,
    "emptied": find_emptied_node, "daemon": find_lost_node,
    "own": _own_cause, "absent": never_came, "left": _left_early, "launcher": _launcher,
    "peers": _lost_peers, "words": _spoke_alone, "nodes": _lost_nodes,
    "lost": _only_lost, "told": _terminated,
}  # fmt: skip
"""Tried in this order; the first that finds a cause decides."""


# ---- evidence and other suspects ------------------------------------------------------------


def _beside(view: View, chosen: Meaning) -> tuple[str, ...]:
    """The evidence for an end that was its own fault, and what seems to contradict it."""
    reasons = [chosen.why]
    if chosen.end.kernel and chosen.end.kernel[0] not in chosen.why:
        reasons.append(f"the kernel says: {chosen.end.kernel[0]}")
    before = [m for m in view.of(Role.PEER, Role.TERMINATED) if end_time(m) < end_time(chosen)]
    if chosen.end.what == "node":
        # Only the time when the node was last heard is known, not when it went away.
        before = view.of(Role.PEER, Role.TIMEOUT)[:1]
    return (*reasons, *_blamed_by_others(view, chosen), *_earliest(before, chosen))


def _earliest(others: Sequence[Meaning], chosen: Meaning | None = None) -> list[str]:
    if not others:
        return []
    first = others[0]
    when = _between(first, chosen) if chosen else "after it"
    return [f"{name_of(first.end)} ended {when} ({first.why})"]


def _between(one: Meaning, chosen: Meaning) -> str:
    """`3 ms earlier`, `1.2 s later`."""
    apart = end_time(one) - end_time(chosen)
    size = abs(apart)
    text = f"{size * 1000:.0f} ms" if size < 1 else f"{size:.1f} s"
    return f"{text} {'earlier' if apart < 0 else 'later'}"


def _blamed_by_others(view: View, chosen: Meaning) -> list[str]:
    """Sentences about who else blames it: ranks that lost this peer, and the launcher."""
    node = chosen.end.node
    peers = [m for m in view.of(Role.PEER) if m is not chosen]
    naming = sum(chosen.end.rank in view.ranks_of(m) for m in peers)
    if naming:
        sentences = [_named_rank(naming, chosen.end.rank, peers)]
        return sentences + _launcher_says(view, chosen.end)
    naming = sum(m.end.node != node and node in view.peers_of(m) for m in peers)
    sentences = [f"{ranks_name(naming, ELSEWHERE)} {node}"] if naming else []
    return sentences + _launcher_says(view, chosen.end)


def _named_rank(count: int, rank: int | None, others: Sequence[Meaning]) -> str:
    """The sentence that so many of these ends name this rank, with the first line that does."""
    own = [keep_own_lines(one.end) for one in others]
    lines = (line for said in own for line in (*telling_words(said), *said))
    words = next(line for line in lines if rank in named_ranks(line) or _lacks(line, rank))
    return f"{ranks_name(count, OF_PEERS)} rank {rank}: {clean_line(words.strip(), LONGEST_QUOTE)}"


def _lacks(line: str, rank: int | None) -> bool:
    """Whether this line lists who is ready, and not this rank."""
    ready = ready_ranks((line,))
    return bool(ready) and rank not in ready


def _launcher_says(view: View, end: End) -> list[str]:
    """A sentence about the rank that the launcher blames; a launcher
    sees lost connections, not causes.
    """
    if end.what != "rank":
        return []
    told = [(one.name, first_by_launcher(one.lines)) for one in view.job.launchers]
    agree = [f"{name} names it too" for name, ranks in told if end.rank in ranks]
    return (agree or [f"{name} itself names rank {ranks[0]}" for name, ranks in told if ranks])[:1]


def _verdict(view: View, choice: CauseChoice, finder: str) -> Cause:
    chosen = choice.chosen
    apart = {id(chosen), *map(id, choice.tied)}
    rest = [_followed(m, chosen) for m in (*view.ranks, *view.lost) if id(m) not in apart]
    if chosen.end.name == EMPTIED:  # who was killed there is told with it
        rest = [m for m in rest if m.end.node != chosen.end.node]
    victims = [m.end.rank for m in rest if _is_victim(m)]
    return Cause(
        end=chosen.end,
        role=chosen.role,
        evidence=tuple(dict.fromkeys(choice.evidence)),
        others=_others(chosen, [*choice.tied, *rest]),
        tied=tuple(sorted(m.end.rank for m in choice.tied if m.end.rank is not None)),
        victims=tuple(sorted(rank for rank in victims if rank is not None)),
        view=view,
        choice=choice,
        finder=finder,
    )


def _followed(meaning: Meaning, chosen: Meaning) -> Meaning:
    """A rank that was told to end after the cause had failed by itself, as one
    that followed it; others as they are.
    """
    if (
        was_told_to_end(meaning)
        and not was_told_to_end(chosen)
        and not is_surely_earlier(meaning, chosen)
    ):
        return Meaning(meaning.end, Role.TERMINATED, meaning.why)
    return meaning


def _is_victim(meaning: Meaning) -> bool:
    pulled = (Role.KILLED, Role.PEER, Role.TIMEOUT, Role.TERMINATED)
    return meaning.role in pulled and meaning.end.failed_unstopped


def _others(chosen: Meaning, rest: Sequence[Meaning]) -> tuple[Suspect, ...]:
    """Other possible causes, most likely first; without those that
    ended later because of the chosen one.
    """
    failed = (m for m in rest if (m.end.what == "node" or m.end.failed) and not m.end.stopped)
    able = (m for m in failed if m.role <= Role.KILLED or end_time(m) < end_time(chosen))
    ranked = sorted(able, key=lambda m: (m.role, end_time(m)))
    return tuple(
        Suspect(
            what=m.end.what, rank=m.end.rank, node=m.end.node, name=m.end.name, why=_why(m, chosen)
        )
        for m in ranked[:MOST_OTHERS]
    )


def _why(meaning: Meaning, chosen: Meaning) -> str:
    known = meaning.end.at is not None and chosen.end.at is not None
    return f"{meaning.why}, {_between(meaning, chosen)}" if known else meaning.why
