"""How the tests are dealt out to several processes."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.parallel import APART, FIRST, TOGETHER
from tests.support.tiers import names_case

ROOT = Path(__file__).resolve().parents[2]
CRASHES = """
import os
from pathlib import Path

def test_before(): ...

def test_crash():
    try:
        Path("crashed").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), 9)

def test_after(): ...
"""


def test_files_of_tests_are_dealt_out_by_names_that_exist() -> None:
    there = {path.stem for path in (ROOT / "tests").rglob("*.py")}
    groups = {*TOGETHER.values()}

    assert sorted({*TOGETHER, *APART, *FIRST} - there - groups) == []


@pytest.mark.long
def test_marks_that_leave_out_or_keep_cases_name_cases_that_exist() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests"]
    told = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    cases: dict[str, list[str]] = {}
    for line in told.stdout.splitlines():
        file, found, name = line.partition("::")
        if found:
            test, _, case = name.partition("[")
            cases.setdefault(f"{file}::{test}", []).append(case.removesuffix("]"))

    unknown = [
        (test, name)
        for test, names in _marked_cases()
        for name in names
        if not any(names_case((name,), case) for case in cases.get(test, ()))
    ]
    assert cases
    assert unknown == []


def _marked_cases() -> Iterator[tuple[str, list[str]]]:
    """Each test with a mark that names cases, with these names."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                test = f"{path.relative_to(ROOT)}::{node.name}"
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) in _MARKS:
                        yield test, [ast.literal_eval(name) for name in mark.args]


_MARKS = ("pytest.mark.left_out", "pytest.mark.kept")


@pytest.mark.left_out
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_worker_that_crashes_fails_one_test_and_all_others_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.support.parallel import pytest_xdist_make_scheduler\n"
    )
    for number in range(60):
        text = CRASHES if number == 20 else "def test_one(): ...\ndef test_other(): ...\n"
        (tmp_path / f"test_{number:02}.py").write_text(text)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n2", "--import-mode=importlib", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    # The test that crashed runs once more: it is the first of what is left of its file.
    assert "1 failed, 121 passed" in done.stdout, done.stdout
