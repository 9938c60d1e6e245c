"""Sizes and words that CONTRIBUTING.md promises."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("console", "agents", "benchmarks", "tests")
FILE_LIMIT = 400
FUNCTION_LIMIT = 50
WORD = "TO" + "DO"


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Every function of a file and its lines, docstring left out."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0]
        doc = ast.get_docstring(node) is not None
        docstring = (first.end_lineno or 0) - first.lineno + 1 if doc else 0
        yield node.name, (node.end_lineno or 0) - node.lineno + 1 - docstring


@pytest.mark.parametrize(
    "path", sources("console", "agents", "benchmarks"), ids=name_of
)
def test_a_file_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < FILE_LIMIT


@pytest.mark.parametrize(
    "path", sources("console", "agents", "benchmarks"), ids=name_of
)
def test_functions_are_short(path: Path) -> None:
    long = {name: lines for name, lines in functions(path) if lines > FUNCTION_LIMIT}

    assert not long


def test_most_functions_are_very_short() -> None:
    lines = sorted(
        n for path in sources("console", "agents") for _, n in functions(path)
    )

    assert lines[len(lines) * 9 // 10] <= 20


@pytest.mark.parametrize("path", sources(*FOLDERS), ids=name_of)
def test_nothing_is_left_for_later(path: Path) -> None:
    assert WORD not in path.read_text()


@pytest.mark.parametrize("path", sources("console", "agents"), ids=name_of)
def test_errors_are_caught_by_name(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            caught = node.type
            assert caught is not None, f"line {node.lineno}: bare except"
            assert getattr(caught, "id", "") not in ("Exception", "BaseException"), (
                node.lineno
            )
