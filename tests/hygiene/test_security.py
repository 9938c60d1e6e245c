"""What SECURITY.md says is held by tests that are there."""

import re
from pathlib import Path

from benchmarks.matrix.rows import ROWS

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_that_the_security_page_names_is_there() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    named = set(re.findall(r"`(test_\w+)`", page))

    assert named
    missing = {name for name in named if not any(f"def {name}(" in one for one in sources)}
    assert missing == set()


def test_every_promise_of_the_security_page_names_a_test_or_a_row_of_the_matrix() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    promises = page.partition("## Other users")[2].partition("## Not yet")[0]
    points = [one for one in re.split(r"\n(?=- |#)", promises) if one.startswith("- ")]

    assert len(points) > 30
    assert [one for one in points if not re.search(r"`test_\w+`|\(rows? `", one)] == []
    named = set(re.findall(r"rows? `([\w.-]+)`", promises))
    assert named <= {row.name for row in ROWS}


def test_the_security_page_is_short() -> None:
    assert len((ROOT / "SECURITY.md").read_text().splitlines()) <= 120
