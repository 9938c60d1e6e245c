"""Has the agents of nodes, and this machine, remove what jobs and
consoles left there; checks the answers.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import rankdeck_agent
from rankdeck.config.leftovers import clean_state
from rankdeck.errors import AgentError, NodeError
from rankdeck.model.field_checks import is_number, natural_or_zero
from rankdeck.model.json_tables import Table, as_list, as_table, as_tables, is_list
from rankdeck.model.leftovers import Cleaned, CleanOrder, CleanReport, DoubtfulClock, LeftoverGroup
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import THIS_MACHINE, LocalShell, ProgramResult, on_each, run_program
from rankdeck_agent.wire.leftovers import Ground, LeftoverKind

CLEAN_LIMIT = 300.0
"""Seconds that a node may take: a file server may need minutes for millions of files."""
_TOGETHER = 32
_MOST_ROWS, _MOST_NAMES = 100, 20
_GROUNDS = {one.value: one for one in Ground}
_KINDS = frozenset(one.value for one in LeftoverKind)


async def clean_up(agents: Agents, nodes: Sequence[str], order: CleanOrder) -> CleanReport:
    """Carry out the order on these nodes and on this machine, or
    with `dry` only ask what would go.
    """

    async def ask(node: str) -> Cleaned:
        return parse_cleaned(node, await agents.call(node, _command(order), limit=CLEAN_LIMIT))

    answers, failed = await on_each(nodes, ask, _TOGETHER)
    missing = {node: clean_line(error.why, 300) for node, error in failed.items()}
    state = clean_state(order, time.time())
    try:
        agent = await _clean_here(order)
    except NodeError as error:
        agent = Cleaned()
        missing[error.node] = clean_line(error.why, 300)
    here = Cleaned((*agent.groups, *state.groups), {**agent.failed, **state.failed}, agent.doubt)
    return CleanReport(here, {node: answers[node] for node in nodes if node in answers}, missing)


def _command(order: CleanOrder) -> tuple[str, ...]:
    size = () if order.size is None else ("--keep-bytes", str(order.size))
    dry = ("--dry-run",) * order.dry
    clock = ("--clock", f"{time.time():.0f}")
    return ("job", "clean", "--keep-days", f"{order.days:g}", *size, *clock, *dry)


async def _clean_here(order: CleanOrder) -> Cleaned:
    """This machine may be a node too, or have been one: the agent
    that belongs to this console looks.
    """
    ours = str(Path(rankdeck_agent.__file__).parents[1])
    path = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH", ""))))
    words = ("env", f"PYTHONPATH={path}", sys.executable, "-m", "rankdeck_agent", *_command(order))
    return parse_cleaned(
        THIS_MACHINE, await run_program(LocalShell(), THIS_MACHINE, words, limit=CLEAN_LIMIT)
    )


def parse_cleaned(node: str, answer: ProgramResult) -> Cleaned:
    """The answer of a node; rows that are no answer are left out.

    Raises AgentError if it is none at all.
    """
    row = answer.row
    if row.get("ok") is not True or not is_list(row.get("rows")):
        raise AgentError(node, answer.complaint)
    groups = [_group(one) for one in as_tables(row["rows"], _MOST_ROWS)]
    failed = {
        clean_line(one.get("name"), 200): clean_line(one.get("why"), 200)
        for one in as_tables(row.get("failed"), _MOST_ROWS)
    }
    return Cleaned(tuple(filter(None, groups)), failed, _doubt(as_table(row.get("clock"))))


def _group(row: Table) -> LeftoverGroup | None:
    kind, ground = row.get("kind"), row.get("ground")
    if not isinstance(kind, str) or kind not in _KINDS:
        return None
    if not isinstance(ground, str) or ground not in _GROUNDS:
        return None
    names = tuple(clean_line(name, 200) for name in as_list(row.get("names"), _MOST_NAMES))
    count, size = natural_or_zero(row.get("count")), natural_or_zero(row.get("bytes"))
    place = clean_line(row.get("place"), 400)
    return LeftoverGroup(kind, _GROUNDS[ground], count, size, names, place)


def _doubt(clock: Table) -> DoubtfulClock | None:
    if clock.get("trusted") is not False:
        return None
    ahead, console = (
        float(found) if is_number(found := clock.get(key)) else 0.0 for key in ("ahead", "console")
    )
    return DoubtfulClock(clean_line(clock.get("newest"), 200), ahead, console)
