"""Sizes and words that CONTRIBUTING.md promises."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("console", "agents", "benchmarks", "tests")
FILE_LIMIT = 700
FUNCTION_LIMIT = 50
WORD = "TO" + "DO"


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Every function of a file and its lines, docstring left out."""
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0]
        doc = ast.get_docstring(node) is not None
        docstring = (first.end_lineno or 0) - first.lineno + 1 if doc else 0
        yield node.name, (node.end_lineno or 0) - node.lineno + 1 - docstring


def test_a_file_is_one_subject() -> None:
    long = {
        name_of(path): lines
        for path in sources("console", "agents", "benchmarks")
        if (lines := len(path.read_text().splitlines())) > FILE_LIMIT
    }

    assert not long


def test_functions_are_short() -> None:
    long = {
        (name_of(path), name): lines
        for path in sources("console", "agents", "benchmarks")
        for name, lines in functions(path)
        if lines > FUNCTION_LIMIT
    }

    assert not long


def test_most_functions_are_very_short() -> None:
    lines = sorted(n for path in sources("console", "agents") for _, n in functions(path))

    assert lines[len(lines) * 9 // 10] <= 20


def test_nothing_is_left_for_later() -> None:
    assert [name_of(path) for path in sources(*FOLDERS) if WORD in path.read_text()] == []


def test_errors_are_caught_by_name() -> None:
    assert [place for path in sources("console", "agents") for place in broad_handlers(path)] == []


def broad_handlers(path: Path) -> Iterator[str]:
    """Where a file catches whatever comes."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ExceptHandler):
            caught = getattr(node.type, "id", "") if node.type else "Exception"
            if caught in ("Exception", "BaseException"):
                yield f"{name_of(path)}:{node.lineno}"


def test_only_slow_tests_get_a_second_run() -> None:
    mark = "mark." + "flaky"

    found = [name_of(path) for path in sources("tests") if mark in path.read_text()]

    assert found == ["tests/conftest.py"]
