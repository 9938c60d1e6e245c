"""Puts into words what is new about a running job, and what happened on its nodes. No I/O."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf

from msgspec import field

from rankdeck.model.health import Ack, Occurrence
from rankdeck.model.job import Job, NodeNote
from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.model.rank import State
from rankdeck.model.safe_text import clean_line
from rankdeck.model.stall import Stall
from rankdeck.values import Value, replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.rules.units import write_duration

Tell = Callable[[Job, Job, float], Iterator[str]]
_EARLY = 1.0
"""A countdown that disappears less than this many seconds before its
deadline, or later, was carried out.
"""


def news_between(before: Job, after: Job, now: float) -> tuple[str, ...]:
    """What happened between two snapshots of a job, one line per event; `now` is epoch seconds."""
    return tuple(line for tell in _TELLERS for line in tell(before, after, now))


def _failure(before: Job, after: Job, _now: float) -> Iterator[str]:
    old, new = _blamed(before), _blamed(after)
    if new and new != old:
        yield f"{'corrected: ' if old else ''}first failure so far: {new}"
    elif old and after.first_failure is None and not after.state.final:
        yield f"corrected: {old}: not a failure after all"


def _blamed(job: Job) -> str:
    """Who failed first and how; without the victims, whose number keeps changing.

    "" for a node that does not answer, because it may come back, and where it is undecided.
    """
    first = job.first_failure
    told = first is not None and first.what != "node" and not first.between
    return f"{first.who}, {first.how}" if first and told else ""


def abort_countdown(before: Job, after: Job, now: float) -> Iterator[str]:
    """A line if a gang abort begins, is carried out, or was called off."""
    old, new = before.countdown, after.countdown
    if new and not old:
        yield f"stopping the other ranks in {max(new.deadline - now, 0):.0f} s"
    elif old and not new and now >= old.deadline - _EARLY:
        yield "stopping the other ranks now"
    elif old and not new and not after.state.final:
        yield "the other ranks are kept running"


def _stalls(before: Job, after: Job, _now: float) -> Iterator[str]:
    for stall in after.stalled:
        if not _among(stall, before.stalled):
            yield f"{'slow' if stall.kind == 'slow' else 'stalled'}: {stall.sentence}"
    if after.state.final:
        return
    for stall in before.stalled:
        if not _among(stall, after.stalled):
            names = fold_ranks(stall.ranks)
            yield f"no longer {'slow' if stall.kind == 'slow' else 'stalled'}: {names}"


def _among(stall: Stall, others: tuple[Stall, ...]) -> bool:
    """Whether the stall is among the others; a stall that has spread
    to more ranks counts as the same.
    """
    ranks = set(stall.ranks)
    return any(o.kind == stall.kind and ranks & set(o.ranks) for o in others)


def _troubles(before: Job, after: Job, _now: float) -> Iterator[str]:
    known = set(before.troubles)
    yield from (text for text in after.troubles if text not in known)


def _found_again(before: Job, after: Job, _now: float) -> Iterator[str]:
    back = _lost(before) - _lost(after)
    if back and not after.state.final:
        yield f"{fold_nodes(sorted(back))}: answers again"


def _lost(job: Job) -> set[str]:
    return {rank.node for rank in job.ranks if rank.state is State.LOST}


_TELLERS: tuple[Tell, ...] = (_troubles, _found_again, _failure, abort_countdown, _stalls)


MARGIN = 60.0
"""Seconds before and after a job that are included."""
MOST = 8
SETTLING = 10.0
"""A problem that begins within this many seconds after a node was first heard may be old."""
SENTENCE = 200
_QUIET = ("agent.", "kernel.log", "node.coverage")
"""Checks about the agent, not the node."""
_TELLS = frozenset({"event", "began"})
_SILENT = frozenset({"node.silent", "node.ssh"})
BLINK = 15.0
"""Silences of at most this many seconds are not noted: after a hang, a broker reports agents as
gone until they reconnect, which takes at most 10 s.
"""
_FULL = frozenset({"disk.full", "disk.inodes"})
_MADE_UP: Mapping[str, tuple[str, ...]] = {
    "gpu": ("gpu.", "kernel.xid", "kernel.sxid", "kernel.gpu"),
    "rdma": ("rdma.", "link."),
}
"""Simulated part -> prefixes of the checks that are simulated then."""
# An Xid's number tells what happened and is kept; all other numbers differ from device to device.
_NUMBER = re.compile(r"(?<!Xid )\b(?:0x[0-9a-f]+|\d[\w:.]*)")


class NodeHistory(Value, kw_only=True):
    """What is known about nodes, for the notes of one job."""

    now: float = inf
    """Epoch seconds."""
    events: Sequence[Occurrence] = ()
    present: Sequence[NodeNote] = ()
    """The present problems of the job's nodes."""
    acks: Sequence[Ack] = ()
    first_heard: Mapping[str, float] = field(default_factory=dict[str, float])
    """Node -> when this console first heard it, epoch seconds."""
    simulated: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Node -> prefixes of metrics that are simulated there."""


def event_concerns_job(job: Job, one: Occurrence) -> bool:
    """Whether an event belongs to the job's nodes and time and is
    worth a note, or ends a silence.
    """
    until = inf if job.ended is None else job.ended + MARGIN
    return (
        (one.kind in _TELLS or one.check in _SILENT)
        and job.created - MARGIN <= one.at <= until
        and one.node in job.nodes
        and is_telling(one.check, one.level)
    )


def is_telling(check: str, level: Level) -> bool:
    """Whether a check of this level is worth a note on a job."""
    bad = level >= Level.WARN or check in _SILENT
    return bad and not check.startswith(_QUIET)


def node_notes(job: Job, history: NodeHistory) -> tuple[NodeNote, ...]:
    """The notes for a job, most important first; notes that it already has are kept."""
    about = [one for one in history.events if event_concerns_job(job, one)]
    blinks = _blinks(about, inf if job.first_failure else history.now)
    events = [one for one in about if one.kind in _TELLS and (one.node, one.at) not in blinks]
    fresh = [_note(one, history) for one in _each_once(events)]
    # Of old problems only BAD ones count: an old warning tells nothing about this job.
    fresh = [n for n in fresh if not n.before or n.level is Level.BAD]
    # For a node that this console has not heard, it does not know
    # what is simulated and what is old.
    noted = {(n.node, n.check) for n in job.node_notes}
    fresh = [n for n in fresh if n.node in history.first_heard or (n.node, n.check) not in noted]
    known = {(n.node, n.check) for n in fresh}
    old = [n for n in job.node_notes if (n.node, n.check) not in known]
    old = [n for n in old if n.check not in _SILENT or (n.node, n.at) not in blinks]
    known |= {(n.node, n.check) for n in old}
    present = [n for n in history.present if (n.node, n.check) not in known]
    kept = (n for n in (*fresh, *old, *present) if _counts(job, n))
    at = reference_time(job)
    shown = (n for n in kept if not _is_known(n, history.acks))
    return tuple(sorted(_fold(shown, at), key=lambda n: _rank(n, at))[:MOST])


def _blinks(about: Sequence[Occurrence], now: float) -> set[tuple[str, float]]:
    """(node, time) of each silence that was short, or has just begun and may
    be short: a note cannot be taken back.

    Two consoles record the same silence twice; it is over when one of them hears the node.
    """
    silences = [one for one in about if one.check in _SILENT]
    ends: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for one in silences:
        if one.kind == "ended":
            ends[one.node, one.check].append(one.at)

    def is_short(one: Occurrence) -> bool:
        over = ends[one.node, one.check]
        return now - one.at <= BLINK or any(0 <= end - one.at <= BLINK for end in over)

    return {(one.node, one.at) for one in silences if one.kind == "began" and is_short(one)}


def _note(one: Occurrence, history: NodeHistory) -> NodeNote:
    looked = history.first_heard.get(one.node)
    new = looked is not None and 0 <= one.at - looked < SETTLING
    return NodeNote(
        at=one.at,
        node=one.node,
        level=one.level,
        check=one.check,
        device=one.device,
        text=clean_line(one.seen, SENTENCE),
        before=new and one.kind == "began",
        simulated=is_made_up(one.check, history.simulated.get(one.node, ())),
    )


def is_made_up(check: str, simulated: Iterable[str]) -> bool:
    """Whether a check judges simulated numbers."""
    return any(check.startswith(_MADE_UP.get(what, ())) for what in simulated)


def _each_once(occurrences: Sequence[Occurrence]) -> list[Occurrence]:
    """Drops reasons that an event caused: the event has the more exact time."""
    events = {(o.node, o.check, o.device) for o in occurrences if o.kind == "event"}
    return [
        one
        for one in occurrences
        if one.kind == "event" or (one.node, one.check, one.device) not in events
    ]


def _counts(job: Job, note: NodeNote) -> bool:
    """False if the job already reports it: its supervisor notices a full disk first."""
    return note.check not in _FULL or note.node not in job.full_disks


def _is_known(note: NodeNote, acks: Iterable[Ack]) -> bool:
    return any(
        ack.node == note.node and ack.covers(note.check, note.device, note.level, note.at)
        for ack in acks
    )


def _fold(notes: Iterable[NodeNote], at: float) -> list[NodeNote]:
    """One note for equal ones of a node: the worst, and of these the
    nearest to `at`; with their total count.
    """
    alike: dict[tuple[str, str, str], list[NodeNote]] = {}
    for note in notes:
        alike.setdefault(_alike(note), []).append(note)
    return [
        replace(min(group, key=lambda n: _rank(n, at)), count=sum(n.count for n in group))
        for group in alike.values()
    ]


def best_notes(mine: Sequence[NodeNote], kept: Sequence[NodeNote]) -> tuple[NodeNote, ...]:
    """Merge the notes of two consoles: the longer list, and of two
    equal notes the one with more evidence.

    The result does not depend on which console saves last. A console that was opened late saw less:
    it counts fewer events, takes some for old, and may not know which numbers are simulated.
    """
    longer, other = sorted((mine, kept), key=_seen, reverse=True)
    others = {_alike(note): note for note in other}
    return tuple(
        max(
            note,
            others.get(_alike(note), note),
            key=lambda n: (n.simulated, not n.before, n.count, -n.at),
        )
        for note in longer
    )


def _seen(notes: Sequence[NodeNote]) -> tuple[int, int, int]:
    return len(notes), sum(not n.before for n in notes), sum(n.count for n in notes)


def _alike(note: NodeNote) -> tuple[str, str, str]:
    """A key: notes with the same key say the same to a reader."""
    return note.node, note.check, _NUMBER.sub("#", note.text)


def _rank(note: NodeNote, at: float) -> tuple[int, bool, float, str]:
    return -note.level, note.before, abs(note.at - at), note.node


def reference_time(job: Job) -> float:
    """The time that notes refer to, epoch seconds: the first
    failure, else the end, else the start.
    """
    if job.first_failure is not None:
        return job.first_failure.at
    return job.created if job.ended is None else job.ended


def note_words(note: NodeNote) -> str:
    """`n2: GPU 3: Xid 79, … (8 times)`: what was seen, and where."""
    named = note.device and note.device.lower() not in note.text.lower()
    device = f"{note.device}: " if named else ""
    often = f" ({note.count} times)" if note.count > 1 else ""
    made_up = "SIMULATED " if note.simulated else ""
    return f"{note.node}: {made_up}{device}{note.text}{often}"


def time_of_note(note: NodeNote, job: Job) -> str:
    """`3 s before the failure`."""
    if note.before:
        return (
            "since before the job"
            if note.at < job.created
            else "there when the node was first looked at"
        )
    what = "start" if job.ended is None else "end"
    what = what if job.first_failure is None else "failure"
    apart = note.at - reference_time(job)
    side = "before" if apart < 0 else "after"
    if abs(apart) < 0.5:
        return f"at the {what}"
    return f"{write_duration(abs(apart))} {side} the {what}"


def with_reasons(job: Job) -> Job:
    """The job, with the notes about the failed node near the time of
    the failure added to the evidence.
    """
    first = job.first_failure
    if first is None:
        return job
    near = [n for n in job.node_notes if n.node == first.node and _is_near(n, first.at)]
    reasons = tuple(f"{note_words(n)}, {time_of_note(n, job)}" for n in near)
    evidence = tuple(dict.fromkeys((*first.evidence, *reasons)))
    return replace(job, first_failure=replace(first, evidence=evidence))


def _is_near(note: NodeNote, at: float) -> bool:
    bad = note.level is Level.BAD and not note.before
    return bad and abs(note.at - at) <= MARGIN
