"""What two consoles know about one job, as one: neither loses what only it has seen."""

from collections.abc import Mapping, Sequence

from rankdeck.model.cancel_report import NodeProof
from rankdeck.model.job import Job, RankState
from rankdeck.model.rank import State
from rankdeck.model.stall import Explained
from rankdeck.rules.job_news import best_notes
from rankdeck.values import replace


def merge_versions(mine: Job, kept: Job) -> Job:
    """Merge what two consoles know about one job; `kept` (the
    stored one) wins if neither knows more.

    A job that has ended never runs again, and an explained failure stays explained.
    """
    if mine is kept or mine == kept:
        return mine
    first, other = (kept, mine) if _weight(kept) >= _weight(mine) else (mine, kept)
    if not first.state.final:
        # Both see it run, but only what this console sees is up to date.
        first, other = mine, kept
    ranks = _ranks(first, other)
    word = replace(
        first,
        notes=tuple(dict.fromkeys((*kept.notes, *mine.notes))),
        mute=_mute({**mine.mute, **kept.mute}, ranks),
        proofs=_newest_proofs(kept.proofs, mine.proofs),
        refused=_most_refused(kept.refused, mine.refused),
        full_disks=tuple(dict.fromkeys((*kept.full_disks, *mine.full_disks))),
        explained=first.explained or _explained(first, other),
        marks={**other.marks, **first.marks},
        progress=first.progress or other.progress,
        kept=mine.kept or kept.kept,
        ranks=ranks,
        node_notes=best_notes(mine.node_notes, kept.node_notes),
    )
    return next((one for one in (mine, kept) if one == word), word)


def _mute(mute: Mapping[str, str], ranks: Sequence[RankState]) -> dict[str, str]:
    """The nodes that do not answer, without those that have come back."""
    lost = {rank.node for rank in ranks if rank.state is State.LOST}
    return {node: why for node, why in mute.items() if node in lost}


def _newest_proofs(
    one: Mapping[str, NodeProof], other: Mapping[str, NodeProof]
) -> dict[str, NodeProof]:
    """What the last cancel of each node found."""
    newest = {**one}
    for node, proof in other.items():
        if node not in newest or proof.at >= newest[node].at:
            newest[node] = proof
    return newest


def _most_refused(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Node -> messages that were left out, as the console counted that saw most."""
    return {node: max(one.get(node, 0), other.get(node, 0)) for node in {**one, **other}}


def _weight(job: Job) -> tuple[bool, bool, bool, int, int]:
    """How much is known about the end of a job, to compare two snapshots."""
    failure = job.first_failure
    known = -sum(rank.state is State.LOST for rank in job.ranks)
    if failure is None:
        return job.state.final, False, False, len(job.explained), known
    details = len(failure.evidence) + len(failure.lines) + len(failure.explained)
    return job.state.final, True, failure.settled, details, known


def _explained(first: Job, other: Job) -> tuple[Explained, ...]:
    """The other's explanation, if it is of the same end; else ()."""
    same = first.state is other.state
    blank = first.first_failure is None and other.first_failure is None
    return other.explained if same and blank else ()


def _ranks(first: Job, other: Job) -> tuple[RankState, ...]:
    """The ranks of the first; where the other knows more lines of a
    rank, its line count and last line.
    """
    others = {rank.rank: rank for rank in other.ranks}
    return tuple(_rank(rank, others.get(rank.rank)) for rank in first.ranks)


def _rank(one: RankState, other: RankState | None) -> RankState:
    if other is None or other.lines <= one.lines:
        return one
    return replace(one, lines=other.lines, last_line=other.last_line, heard=other.heard)
