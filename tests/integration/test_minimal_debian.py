"""All that needs no other program, in minimal Debians: an ordinary user, a folder with a space, no `ps` and no `kill`."""

import os
from pathlib import Path

import pytest
from tests.support import debian

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
PYTEST = (".venv/bin/python", "-m", "pytest", "-q", "-n", str(2 * (os.cpu_count() or 1)))


@pytest.fixture(params=["trixie", "sid"], ids=["trixie (3.13)", "sid (3.14)"])
def suite(request: pytest.FixtureRequest) -> str:
    if why := debian.missing(request.param):
        pytest.skip(why)
    return request.param


def test_the_fast_tier_passes(suite: str, tmp_path: Path) -> None:
    tests = [f"tests/{tier}" for tier in ("unit", "contracts", "ui", "hygiene")]

    debian.run_inside(suite, tmp_path, *PYTEST, "-m", "not slow and not long", *tests, limit=1500)


def test_the_spine_works(suite: str, tmp_path: Path) -> None:
    spine = ("tests/integration/test_spine.py", "-k", "this one", "-p", "no:xdist")

    debian.run_inside(suite, tmp_path, *PYTEST[:4], *spine, limit=900)
