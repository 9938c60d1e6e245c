"""How the tests are dealt out to several processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.parallel import APART, FIRST, TOGETHER
from tests.support.tiers import KEPT, THOROUGH, is_thorough, named

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
def test_what_is_left_to_the_thorough_tier_exists_and_other_files_keep_a_test() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests"]
    told = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    found = [line for line in told.stdout.splitlines() if "::" in line]

    for file, names in {**THOROUGH, **KEPT}.items():
        tests = [one for one in found if f"/{file}.py::" in one]
        left = [one for one in tests if is_thorough(one)]
        assert left, file
        assert len(left) < len(tests) or KEPT.get(file) == (), file
        said = [one.partition("::")[2] for one in (tests if file in KEPT else left)]
        assert [name for name in names if not any(named(one, (name,)) for one in said)] == [], file


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
