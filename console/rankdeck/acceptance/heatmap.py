"""The heat map of a run: what each cell shows, the order of the nodes,
which nodes are shown in detail. Pure.

Page and screen draw the same values. A cell shows its answer by letters, never by colour alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import median

from rankdeck import plugins
from rankdeck.acceptance.recipe import Traits
from rankdeck.acceptance.run import AcceptanceRun, Cell, RunState, measured_cells
from rankdeck.acceptance.values import Answer, Kind, Outcome
from rankdeck.errors import UnknownPluginError
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.text import significant_figures
from rankdeck.values import Value

MOST_CELLWISE = 64
"""Up to this many nodes, every pair has a cell on the screen; with more, each
node has a cell, and suspects have a row.
"""
_SIGNS: Mapping[Answer | None, tuple[str, str]] = {
    Answer.GOOD: ("good", "."),
    Answer.FAIR: ("fair", "+"),
    Answer.SLOW: ("slow", "S"),
    Answer.UNSTEADY: ("slow", "U"),
    Answer.WRONG_VALUES: ("bad", "W"),
    Answer.FAILED: ("bad", "F"),
    Answer.NOT_MEASURED: ("unknown", "?"),
    Answer.REFUSED: ("unknown", "R"),
    Answer.LEFT_OUT: ("none", "x"),
    None: ("none", " "),
}
"""Answer (None: nothing is known yet) -> kind, letter."""
_OUTCOMES: Mapping[Outcome, tuple[str, str]] = {
    Outcome.PENDING: ("none", " "),
    Outcome.RUNNING: ("run", "*"),
    Outcome.EXCLUDED: ("none", "x"),
}
_ORDER = (
    Answer.WRONG_VALUES,
    Answer.FAILED,
    Answer.SLOW,
    Answer.UNSTEADY,
    Answer.REFUSED,
    Answer.NOT_MEASURED,
    Answer.LEFT_OUT,
    Answer.FAIR,
    Answer.GOOD,
)
"""Answers from the worst to the best; of several, the worst is shown."""


def answer_kind(answer: Answer | None) -> str:
    """`good`, `fair`, `slow`, `bad`, `unknown`, or `none` if nothing is known yet."""
    return _SIGNS[answer][0]


def letter_of(answer: Answer | None) -> str:
    """One ASCII character, see `LEGEND`; a blank if nothing is known yet."""
    return _SIGNS[answer][1]


LEGEND = tuple((letter_of(answer), answer.value) for answer in _SIGNS if answer is not None)
"""(letter, what it means)."""


def _sign(cell: Cell | None) -> tuple[str, str]:
    """Kind and letter of a cell."""
    if cell is not None and (cell.outcome is Outcome.RUNNING or cell.answer is None):
        return _OUTCOMES.get(cell.outcome, ("alt", "o"))
    return _SIGNS[cell.answer if cell else None]


def cell_kind(cell: Cell | None) -> str:
    """The kind of a cell, which decides its colour."""
    return _sign(cell)[0]


def cell_mark(cell: Cell | None, width: int = 2) -> str:
    """A cell in `width` (1 or 2) ASCII characters: a letter, or for a slow
    cell its share of the median in percent.
    """
    sign, share = _sign(cell), cell.share if cell else None
    if sign == _SIGNS[Answer.SLOW] and share is not None and share < 1.0:
        # Rounded as in `cell_words`, but a slow cell never has all of the median.
        return f"{min(round(share * 100), 99):02}"[:width]
    return sign[1].rjust(width)


def cell_words(cell: Cell) -> str:
    """The cell in one line: `n1 → n2: 62.1 Gb/s, 65 % of the median: slow`."""
    parts = [f"{cell.sender} → {cell.receiver}: "]
    if cell.value is not None:
        parts.append(f"{significant_figures(cell.value)} {cell.unit}".rstrip())
        parts.append("" if cell.share is None else f", {cell.share:.0%} of the median")
    word = cell.answer.value if cell.answer is not None else cell.outcome.value
    parts.append(f": {word}" if cell.value is not None else word)
    return "".join(parts)


class HeatMap(Value, kw_only=True):
    """Senders × receivers for one recipe."""

    recipe: str
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    """(sender, receiver) -> cell; without direction, both ways have the same cell."""
    breaks: frozenset[int] = frozenset()
    """Indices in `receivers` at which another leaf begins."""
    leaves: Mapping[str, str]
    """Node -> leaf; empty if none is known."""

    @property
    def decimals(self) -> int:
        """Digits after the point with which all numbers of the map are comparable: the smallest
        has three significant ones.
        """
        shown = (one.value for one in self.cells.values() if one.answer is not None)
        texts = (significant_figures(value, 3) for value in shown if value is not None)
        return max((len(one.partition(".")[2]) for one in texts if "e" not in one), default=0)

    def cell(self, row: int, column: int) -> Cell | None:
        """The cell at this row and column; None if nothing is planned there."""
        return self.cells.get((self.senders[row], self.receivers[column]))


def heat_map(run: AcceptanceRun, recipe: str) -> HeatMap:
    """All nodes that took part × all, leaf by leaf if leaves are
    known or found from the slow pairs.
    """
    judgement = run.judgements.get(recipe)
    leaves = run.plan.leaves or (judgement.leaves if judgement else {})
    place = {node: number for number, node in enumerate(run.plan.nodes)}
    names = sorted(place, key=lambda node: (leaves.get(node, ""), place[node]))
    breaks = {
        number
        for number in range(1, len(names))
        if leaves.get(names[number], "") != leaves.get(names[number - 1], "")
    }
    return HeatMap(
        recipe=recipe,
        senders=tuple(names),
        receivers=tuple(names),
        cells=_both_ways(measured_cells(run, recipe), recipe),
        breaks=frozenset(breaks),
        leaves=leaves,
    )


def _both_ways(found: Mapping[tuple[str, str], Cell], recipe: str) -> dict[tuple[str, str], Cell]:
    """The cells; for a recipe without direction, each cell is in both places."""
    traits = traits_of(recipe)
    if traits is None or traits.directed:
        return dict(found)
    mirrored = {(receiver, sender): cell for (sender, receiver), cell in found.items()}
    return {**mirrored, **found}


def traits_of(recipe: str) -> Traits | None:
    """The traits of this recipe; None if its package is no longer installed."""
    try:
        return plugins.find_plugin("recipes", recipe)().traits
    except UnknownPluginError:
        return None


def list_suspects(run: AcceptanceRun, whole: HeatMap) -> tuple[str, ...]:
    """Nodes that a verdict names or that are not good, then nodes with a bad
    cell that none of the former explains.
    """
    odd = {n for n, one in run.answers.items() if not one.accepted and one is not Answer.LEFT_OUT}
    named = odd | {node for verdict in run.verdicts for node in verdict.nodes}
    counts = Counter[str]()
    for path, cell in whole.cells.items():
        if cell.answer is not None and not cell.answer.accepted and not named.intersection(path):
            counts.update(path)
    place = {node: number for number, node in enumerate(whole.senders)}
    known = [node for node in place if node in named or node in counts]
    return tuple(sorted(known, key=lambda node: (node not in named, -counts[node], place[node])))


def close_up(run: AcceptanceRun, whole: HeatMap, most: int = 64) -> HeatMap:
    """Suspects × all their partners, at most `most` suspects; rows send to columns.

    Empty without suspects.
    """
    rows = list_suspects(run, whole)[:most]
    chosen = {*rows}
    met = {
        other
        for (sender, receiver) in whole.cells
        for one, other in ((sender, receiver), (receiver, sender))
        if one in chosen
    }
    columns = tuple(node for node in whole.receivers if node in met)
    return HeatMap(
        recipe=whole.recipe, senders=rows, receivers=columns, cells=whole.cells, leaves=whole.leaves
    )


def node_strip(run: AcceptanceRun, whole: HeatMap) -> dict[str, Answer | None]:
    """Node -> the worst of its answer and its cells (after the run, its
    answer); None if nothing is known yet.
    """
    worst: dict[str, Answer | None] = {
        node: run.answers.get(node) for node in (*whole.senders, *run.plan.left_out)
    }
    if run.progress is RunState.DONE:
        # Only the answer counts: the partner of a bad node has a slow cell although it is good.
        return worst
    for (sender, receiver), cell in whole.cells.items():
        for node in (sender, receiver):
            if node in worst:
                worst[node] = worst_answer((worst[node], cell.answer))
    return worst


def worst_answer(answers: Iterable[Answer | None]) -> Answer | None:
    """The worst of the answers; None if nothing is known."""
    known = {*answers}
    return next((answer for answer in _ORDER if answer in known), None)


class Block(Value):
    """The cells from one leaf to another."""

    share: float | None
    """The median of the cells' shares; None if nothing was measured."""
    slow: int
    """Cells that are not good or fair."""
    count: int


def leaf_blocks(whole: HeatMap) -> dict[tuple[str, str], Block]:
    """(leaf of the sender, of the receiver) -> block; empty if no leaves are known."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for (sender, receiver), cell in whole.cells.items():
        if sender in whole.leaves and receiver in whole.leaves and cell.answer is not None:
            found.setdefault((whole.leaves[sender], whole.leaves[receiver]), []).append(cell)
    return {
        path: Block(
            median(shares) if (shares := [c.share for c in some if c.share is not None]) else None,
            sum(1 for c in some if c.answer is not None and not c.answer.accepted),
            len(some),
        )
        for path, some in found.items()
    }


# ---- words


def outcome_headline(run: AcceptanceRun) -> str:
    """The outcome in one line: `accepted: 8 nodes`, `accepted except leaf A
    (slow), n3 (not good)`, `not accepted: …`.
    """
    if run.progress is RunState.STOPPED and not run.results:
        # Saved runs in a list have no results.
        return f"stopped: {len(run.plan.nodes)} nodes, it can go on"
    if run.progress is not RunState.DONE:
        done = sum(1 for one in run.results if one.outcome.final)
        return f"{run.progress.value}: {done} measurements done"
    if not run.answers:
        return f"done: {len(run.plan.nodes)} nodes"
    if run.accepted:
        return f"accepted: {fold_nodes(run.good)}"
    if not run.good:
        return "not accepted: no node is good"
    out = tuple(node for node in run.unknown if node in run.left_out)
    unknown = tuple(node for node in run.unknown if node not in out)
    blamed = [one for one in run.verdicts if not one.answer.accepted and not one.nodes]
    if any(one.kind is Kind.CONFIGURATION for one in blamed):
        return "not accepted: no node or path alone is to blame"
    paths = [f"{one.subject} ({one.answer})" for one in blamed[:4]]
    groups = ((run.bad, "not good"), (unknown, "not measured"), (out, "left out"))
    nodes = [f"{fold_nodes(names)} ({word})" for names, word in groups if names]
    return f"accepted except {', '.join((*paths, *nodes))}" if paths or nodes else "not accepted"
