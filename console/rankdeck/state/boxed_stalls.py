"""Which ranks were stalled while no console was open, judged by the black boxes of the nodes as a
console would have done it then.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from rankdeck.model.job import Job, RankState
from rankdeck.model.json_tables import Table
from rankdeck.model.rank import State
from rankdeck.model.stall import Stall, holds_up
from rankdeck.rules.certainty_table import WEIGHTS
from rankdeck.rules.price import price_stalls
from rankdeck.rules.rank_signs import KnownOfJob
from rankdeck.rules.silent_job import NodeAnswers, StandingRanks, add_absence
from rankdeck.rules.stall import find_stalls
from rankdeck.rules.stall_evidence import weigh_stalls
from rankdeck.state.black_box import NodeBox
from rankdeck.values import replace
from rankdeck_agent.wire.black_box import CANCELLED, SILENT

_MOST_MOMENTS = 8
_SAME = 1.0
"""Seconds by which the console's and the node's time of the same output may differ."""
_TOGETHER = 40.0
"""Seconds within which the boxes of all nodes are frozen for the same silence."""
_GIVES_UP = 60.0
"""Seconds that ranks which give up waiting may write before the first of them has failed; not
longer than they were silent.
"""
_LAST_LOOKS = 75.0
"""Seconds of looks by which a stall is judged, as a console that follows a job keeps them."""


def stalls_in_boxes(job: Job, boxes: Iterable[NodeBox]) -> tuple[Stall, ...]:
    """Which ranks were stalled when a box was frozen for another reason than a failure: what a
    console would have said then.
    """
    boxes = tuple(boxes)
    moments = sorted({at for box in boxes for at, why in box.frozen if why in (SILENT, CANCELLED)})
    found: dict[tuple[str, tuple[int, ...]], Stall] = {}
    for at in moments[-_MOST_MOMENTS:]:
        for stall in _stalls_then(job, boxes, at):
            found[stall.kind, stall.ranks] = stall
    return tuple(found.values())


def find_held_up(job: Job, boxes: Iterable[NodeBox]) -> Stall | None:
    """Who held up the others in the silence after which the job failed, by what no console saw;
    None if nobody is accused, or if there was none.
    """
    boxes = tuple(boxes)
    ends = [one.ended for one in job.ranks if one.state is State.FAILED and one.ended is not None]
    failed = min(ends, default=0.0)
    silences = [one for box in boxes for one in box.silences if one.at <= failed]
    if not silences:
        return None
    last = max(silences, key=lambda one: one.at)
    resumed = min((at for box in boxes for at in box.resumed if at > last.at), default=failed)
    lasted = resumed - _last_of(last.heard, last.at)
    if failed - resumed > min(lasted, _GIVES_UP):
        return None  # the job went on
    return next(filter(holds_up, _stalls_then(job, boxes, last.at)), None)


def _stalls_then(job: Job, boxes: Sequence[NodeBox], at: float) -> tuple[Stall, ...]:
    looks = {
        rank: tuple(one for one in some if at - _LAST_LOOKS <= one.at <= at)
        for box in boxes
        for rank, some in box.looks.items()
    }
    heard = {rank: last for box in boxes for rank, last in _newest_outputs(box, at).items()}
    then = _as_it_was(job, at, heard)
    standing, answers = _standing_then(then, boxes, at)
    known = KnownOfJob(
        looks={rank: some for rank, some in looks.items() if some},
        words=lambda rank: answers.words.get(rank, ()),
    )
    found = find_stalls(then, at, known)
    if absence := standing.find_absence(then, answers):
        began = max((one.started or 0.0 for one in then.ranks), default=0.0)
        found = add_absence(absence, _last_of(heard, began), found)
    return weigh_stalls(price_stalls(then, found, known.looks, at, {}), WEIGHTS)


def _last_of(heard: Mapping[int, float | None], otherwise: float) -> float:
    """When the last of these ranks wrote; `otherwise` if none has."""
    return max((at for at in heard.values() if at is not None), default=otherwise)


def _newest_outputs(box: NodeBox, at: float) -> Mapping[int, float | None]:
    """When each rank of the node wrote last (None: never), if they are silent at that time."""
    since = max((one for one in box.resumed if one <= at), default=0.0)
    silent = [one.heard for one in box.silences if since <= one.at <= at + _TOGETHER]
    return silent[-1] if silent else {}


def _standing_then(
    job: Job, boxes: Sequence[NodeBox], at: float
) -> tuple[StandingRanks, NodeAnswers]:
    """Where the ranks stood at that time, and the last of their answers."""
    ranks = {plan.node: frozenset(plan.ranks) for plan in job.plan.nodes}
    standing, heard = StandingRanks(), NodeAnswers()
    for turn in zip_longest(*(_answers_near(box, at) for box in boxes)):
        heard = NodeAnswers()
        for box, answers in zip(boxes, turn, strict=True):
            for answer in answers or ():
                heard.take(answer, ranks.get(box.node, frozenset()))
        standing.keep(heard)
    return standing, heard


def _answers_near(box: NodeBox, at: float) -> list[list[Table]]:
    """For each question of that silence the rows of its answer: a login node has one for each node
    of the job.
    """
    found: dict[float, list[Table]] = {}
    for asked, answer in box.standing:
        if abs(asked - at) <= _TOGETHER:
            found.setdefault(asked, []).append(answer)
    return [*found.values()]


def _as_it_was(job: Job, at: float, heard: Mapping[int, float | None]) -> Job:
    """The job as it was at that time, as far as its ends and `heard` (rank -> its last output, None
    if it had written nothing) tell.
    """
    ranks = tuple(_rank_then(rank, at, heard) for rank in job.ranks)
    return replace(
        job, state=State.RUNNING, ended=None, first_failure=None, ranks=ranks, stalled=(), clock=None
    )  # fmt: skip


def _rank_then(rank: RankState, at: float, heard: Mapping[int, float | None]) -> RankState:
    # A rank that was cancelled ends shortly after the box was frozen.
    ran = rank.started is not None and rank.started <= at and (rank.ended or at) >= at
    if not ran:
        return rank
    then = replace(rank, state=State.RUNNING, ended=None)
    last = heard.get(rank.rank)
    if rank.rank not in heard or rank.heard is None or rank.heard <= (last or 0.0) + _SAME:
        return then
    # What it wrote later was of how it gave up.
    return replace(then, heard=last, resumed=None, last_line="")
