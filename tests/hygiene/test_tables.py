"""What one table says and another place repeats: whoever adds a row learns here what else to do.

A row should own everything about itself. These are the few that cannot: they lie in another
program, in a layer below, or in a page.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from tests.support.targets import TARGETS

from rankdeck.acceptance.recipe import Recipe
from rankdeck.cli.verbs import AGENT_VERBS, VERBS
from rankdeck.config import jobs
from rankdeck.config.node_sources import SOURCES
from rankdeck.model.health import UNHEARD
from rankdeck.model.queue import QueueStatus
from rankdeck.plugins import RECIPES, SECTIONS, find_plugin
from rankdeck.prometheus.site_past import PAST_ROWS
from rankdeck.rules import query
from rankdeck.state.node import CHARTED
from rankdeck.ui.commands import FILTERS
from rankdeck.ui.fleet_views import NUMBERS, NodeColumn, find_column
from rankdeck_agent import RANK_VARIABLES
from rankdeck_agent.rules.levels import SUMMARY
from rankdeck_agent.rules.table import CHECKS
from rankdeck_agent.schedulers.slurm.verdict import FINAL
from rankdeck_agent.wire import METRICS
from rankdeck_agent.wire.job_events import CLASSES

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


@cache
def nodes_of(folder: str) -> list[tuple[Path, ast.AST]]:
    """Every node of the code in this folder that these tests look for, with its file."""
    return [
        (path, node)
        for path in Path(folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Constant, ast.Name, ast.Attribute, ast.AnnAssign))
    ]


def texts_in(folder: str, *, without: tuple[str, ...]) -> set[str]:
    """All string constants of the code in this folder, but for these folders and files."""
    return {
        node.value
        for path, node in nodes_of(folder)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and not {*path.parts} & {*without}
    }


def test_some_part_of_the_agent_reads_every_metric() -> None:
    read = texts_in("agents/rankdeck_agent", without=("wire", "rules"))
    modes = {metric for metric in METRICS if metric.startswith("cpu.time_")}

    assert sorted(set(METRICS) - read - modes) == [], "no collector gives it"


def test_every_event_of_the_agent_is_known_to_the_console() -> None:
    used = {node.id for _, node in nodes_of("console/rankdeck") if isinstance(node, ast.Name)}

    assert [one.__name__ for one in CLASSES if one.__name__ not in used] == ["LauncherStarted"]


def test_every_option_of_a_command_is_read() -> None:
    read = {
        node.attr
        for _, node in nodes_of("console/rankdeck")
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("options", "o")
    }
    read |= texts_in("console/rankdeck/cli", without=("verbs.py",))
    options = {
        (verb.name, option): more.get("dest", option.lstrip("-").replace("-", "_"))
        for verb in (*VERBS, *AGENT_VERBS)
        for option, more in verb.arguments.items()
        if not more.get("required")
    }

    assert [option for option, name in options.items() if name not in read] == []


def test_the_page_of_commands_has_every_key_of_their_json() -> None:
    page = Path("docs/cli.md").read_text()
    shapes = ast.parse(Path("console/rankdeck/cli/shapes.py").read_text())
    keys = {
        key.value
        for table in ast.walk(shapes)
        if isinstance(table, ast.Dict)
        for key in table.keys
        if isinstance(key, ast.Constant)
    }

    assert [key for key in sorted(keys) if not re.search(rf"\b{key}\b", page)] == []


def test_the_page_of_launchers_has_every_key_of_a_job_file() -> None:
    page = Path("docs/launchers.md").read_text()
    table = page.partition("## All keys of a job file")[2].partition("\n## ")[0]
    keys = (
        *jobs.KEYS,
        *jobs.CONTAINER_KEYS,
        *jobs.MPI_KEYS,
        *jobs.TORCH_KEYS,
        *jobs.ABORT_KEYS,
    )

    assert [key for key in keys if f"`{key}`" not in table] == []


@pytest.mark.parametrize("scheduler", SECTIONS)
def test_every_option_of_a_scheduler_is_on_its_page_and_used(scheduler: str) -> None:
    page = Path(f"docs/{scheduler}.md").read_text()
    folder = f"console/rankdeck/schedulers/{scheduler}"
    table = next(
        node.value
        for path, node in nodes_of(folder)
        if path.name == "options.py"
        and isinstance(node, ast.AnnAssign)
        and isinstance(node.value, ast.Dict)
        and len(node.value.keys) > 20
    )
    options = [key.value for key in table.keys if isinstance(key, ast.Constant)]  # type: ignore[attr-defined]
    used = texts_in("console/rankdeck", without=("options.py",))

    assert options
    assert [key for key in options if not re.search(rf"(?<![\w-]){key}(?![\w-])", page)] == []
    assert [key for key in options if not {key, f"{scheduler}.{key}"} & used] == []


@pytest.mark.parametrize("word", query.JOB_WORDS)
def test_a_word_of_the_queue_finds_a_job_and_is_in_the_help(word: str) -> None:
    status = QueueStatus(partition="a", account="a", qos="a", reason="a")

    assert "a" in query.job_values(status, "a")(word)
    assert any(re.search(rf"\b{word}\b", " ".join(row)) for row in FILTERS)


def test_the_pages_have_every_source_of_nodes() -> None:
    text = "\n".join(page.read_text() for page in PAGES)

    assert [name for name in SOURCES if not re.search(rf"`{name}\b|\b{name} FILE", text)] == []


def reader_of(recipe: type[Recipe]) -> type:
    """The class that reads the output of this recipe: recipes of one program share it."""
    return next(one for one in recipe.__mro__ if "read" in vars(one))


def test_every_recipe_is_on_its_page_and_a_test_reads_an_output_of_its_program() -> None:
    page = Path("docs/acceptance.md").read_text()
    tried = {raw.partition(b"\n")[0].decode() for raw in TARGETS["accept"].seeds().values()}
    for path in Path("tests/unit").glob("test_accept_*.py"):
        tried |= set(re.findall(r'\("([\w.-]+)",', path.read_text()))
    readers = {reader_of(find_plugin("recipes", name)) for name in tried & set(RECIPES)}

    assert [name for name in RECIPES if f"`{name}`" not in page] == []
    assert [n for n in RECIPES if reader_of(find_plugin("recipes", n)) not in readers] == []


def test_the_variables_of_launchers_for_a_rank_are_listed_once() -> None:
    told = [name for name in RANK_VARIABLES if name.startswith(("OMPI", "PMIX"))]
    files = {
        path.name
        for folder in ("console/rankdeck", "agents/rankdeck_agent")
        for path in Path(folder).rglob("*.py")
        if any(f"{{{name}:-" in path.read_text() for name in told)
    }

    assert told
    assert files == set(), "use RANK_IN_SHELL"
