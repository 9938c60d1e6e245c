"""Sizes and words that CONTRIBUTING.md promises."""

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("console", "agents", "benchmarks", "tests")
FILE_LIMIT = 800
FUNCTION_LIMIT = 50
WORD = "TO" + "DO"
SCHEDULERS = ("slurm", "kubernetes")


def sources(*folders: str) -> list[Path]:
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if path.parent.name != "for_older_python")  # of others


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@dataclass(frozen=True)
class Source:
    """What is asked of the syntax of one file; the tree itself is large."""

    functions: tuple[tuple[str, int], ...]
    """Every function and its lines, docstring left out."""
    broad_handlers: tuple[str, ...]
    """Where it catches whatever comes."""
    schedulers: tuple[str, ...]
    """Where it compares something with the name of a scheduler."""


@functools.cache
def source(path: Path) -> Source:
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    functions = [one for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    handlers = [one for one in nodes if isinstance(one, ast.ExceptHandler)]
    return Source(
        tuple((one.name, lines_of(one)) for one in functions),
        tuple(f"{name_of(path)}:{one.lineno}" for one in handlers if is_broad(one)),
        tuple(f"{name_of(path)}:{one.lineno}" for one in nodes if compares_scheduler(one)),
    )


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    doc = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if doc else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def is_broad(handler: ast.ExceptHandler) -> bool:
    caught = getattr(handler.type, "id", "") if handler.type else "Exception"
    return caught in ("Exception", "BaseException")


def compares_scheduler(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare):
        return False
    words = (one for side in (node.left, *node.comparators) for one in ast.walk(side))
    return any(isinstance(one, ast.Constant) and one.value in SCHEDULERS for one in words)


def test_a_file_is_one_subject() -> None:
    long = {
        name_of(path): lines
        for path in sources("console", "agents", "benchmarks")
        if (lines := len(path.read_text().splitlines())) > FILE_LIMIT
    }

    assert not long


@pytest.mark.long
def test_functions_are_short() -> None:
    long = {
        (name_of(path), name): lines
        for path in sources("console", "agents", "benchmarks")
        for name, lines in source(path).functions
        if lines > FUNCTION_LIMIT
    }

    assert not long


@pytest.mark.long
def test_most_functions_are_very_short() -> None:
    lines = sorted(n for path in sources("console", "agents") for _, n in source(path).functions)

    assert lines[len(lines) * 9 // 10] <= 20


def test_nothing_is_left_for_later() -> None:
    assert [name_of(path) for path in sources(*FOLDERS) if WORD in path.read_text()] == []


@pytest.mark.long
def test_errors_are_caught_by_name() -> None:
    found = [
        place for path in sources("console", "agents") for place in source(path).broad_handlers
    ]

    assert found == []


@pytest.mark.long
def test_what_a_backend_can_do_is_asked_of_it_and_not_of_its_name() -> None:
    assert [place for path in sources("console") for place in source(path).schedulers] == []


def test_only_slow_tests_get_a_second_run() -> None:
    mark = "mark." + "flaky"

    found = [name_of(path) for path in sources("tests") if mark in path.read_text()]

    assert found == ["tests/conftest.py"]
