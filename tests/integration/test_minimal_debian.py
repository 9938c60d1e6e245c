"""All that needs no other program, in minimal Debians: an ordinary user, a
folder with a space, no `ps` and no `kill`.
"""

import os
from pathlib import Path

import pytest
from tests.support import debian

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.left_out]
PYTEST = (".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider")


def run(suite: str, folder: Path, *words: str) -> str:
    """What pytest prints in that Debian; fails if a test fails there."""
    if why := debian.missing(suite):
        pytest.skip(why)
    return debian.run_inside(suite, folder, *PYTEST, *words, limit=1500)


def test_what_needs_no_other_program_passes_in_trixie(tmp_path: Path) -> None:
    # Our sources, and most screens, are the same there.
    tests = ["tests/unit", "tests/contracts", "tests/ui/test_opening.py"]
    # Other tests run beside it: no more processes than cores.
    together = ("-n", str(os.cpu_count() or 1))

    printed = run("trixie", tmp_path, *together, "-m", "not slow and not long", *tests)

    assert " passed" in printed


@pytest.mark.parametrize("suite", ["trixie", "sid"])
def test_the_spine_works_with_its_python(suite: str, tmp_path: Path) -> None:
    if suite == "sid" and not os.environ.get("RANKDECK_TEST_SID"):
        pytest.skip("sid (Python 3.14) changes every day: RANKDECK_TEST_SID=1 runs it")
    printed = run(suite, tmp_path, "tests/integration/test_spine.py", "-k", "this and one")

    assert "5 passed" in printed
