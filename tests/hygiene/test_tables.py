"""What one table says and another place repeats: whoever adds a row learns here what else to do.

A row should own everything about itself. These are the few that cannot: they lie in another
program, in a layer below, or in a page.
"""

import ast
import re
from pathlib import Path

import pytest

from rankdeck.cli.verbs import VERBS
from rankdeck.model.health import UNHEARD
from rankdeck.prometheus.site_past import PAST_ROWS
from rankdeck.rules import query
from rankdeck.state.node import CHARTED
from rankdeck.ui.fleet_views import NUMBERS, NodeColumn, find_column
from rankdeck_agent.rules.levels import SUMMARY
from rankdeck_agent.rules.table import CHECKS
from rankdeck_agent.schedulers.slurm.verdict import FINAL

PAGES = [Path("README.md"), *sorted(Path("docs").glob("*.md"))]


@pytest.mark.parametrize("column", NUMBERS, ids=lambda column: column.title)
def test_a_column_of_fleet_has_a_number_that_every_node_sends(column: NodeColumn) -> None:
    assert column.metric in SUMMARY, "a row in SUMMARY (rules/levels.py) makes nodes send it"


@pytest.mark.parametrize("column", NUMBERS, ids=lambda column: column.title)
def test_a_column_of_fleet_has_a_past_in_the_sites_prometheus(column: NodeColumn) -> None:
    asked = {row.metric for row in PAST_ROWS}

    assert column.metric in asked, "a row in PAST_ROWS (prometheus/site_past.py) reads it"


@pytest.mark.parametrize("column", NUMBERS, ids=lambda column: column.title)
def test_a_filter_knows_a_column_by_its_title_or_its_metric(column: NodeColumn) -> None:
    short = query.SHORT.get(column.title.lower(), column.metric)

    assert short == column.metric
    assert find_column(column.title) is column


def test_the_pages_say_how_many_checks_there_are() -> None:
    said = {
        (page.name, int(number))
        for page in PAGES
        for number in re.findall(r"\b(\d+) checks\b", page.read_text())
    }

    assert {number for _, number in said} == {len(CHECKS)}, sorted(said)
    assert UNHEARD.checks == len(CHECKS)


def test_a_job_is_found_by_every_state_in_which_slurm_ends_it() -> None:
    assert {state.lower() for state in FINAL} <= set(query.STATES), "see SCHEDULER_STATES"


def test_the_past_is_kept_of_every_metric_that_a_screen_draws() -> None:
    drawn = {
        (path.name, call.args[0].value)
        for path in Path("console/rankdeck/ui").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "series"
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }

    assert drawn, "no screen draws the past of a metric that it names: then this test is blind"
    assert {metric for _, metric in drawn} <= CHARTED, sorted(drawn)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_a_command_is_in_the_module_that_its_docstring_says(verb: object) -> None:
    name, target = verb.name, verb.target  # type: ignore[attr-defined]
    path = Path("console", *target.partition(":")[0].split(".")).with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(path.read_text()))

    words = {name, name.partition(" ")[0]}
    assert words & {path.stem, *re.findall(r"`(?:rankdeck )?([\w-]+)", docstring or "")}, docstring
