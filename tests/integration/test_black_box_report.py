"""A job that fails while no console is open: the report and the next console know what was."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_main_path import Console, demo_console

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
JOB = """
job: boxed
launch: plain
nodes: 2
ranks_per_node: 1
command: [sh, -c, 'for i in 1 2 3 4 5 6 7 8 9; do echo step $i; sleep 1; done; exit 3']
"""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with demo_console(tmp_path_factory.mktemp("boxes")) as console:
        yield console


def test_a_report_has_the_numbers_and_the_freeze_of_a_job_that_no_console_saw(
    console: Console, tmp_path: Path
) -> None:
    (started,) = console.objects(
        "run", console.file("boxed.yaml", JOB), "--detach", "--no-preflight"
    )
    job = started["job"]
    boxes = list((console.folder / "state").rglob(f"jobs/{job}/*"))
    assert len(boxes) == 2
    limit = time.monotonic() + 100
    while not all((place / "box" / "end" / "tails").exists() for place in boxes):
        assert time.monotonic() < limit
        time.sleep(0.2)
    for place in boxes:
        for log in place.glob("rank.*/out"):
            log.unlink()

    page = tmp_path / "page.html"
    console.run("report", job, "--html", str(page))

    text = re.sub(r"<[^>]+>", " ", page.read_text())
    assert text.count("a rank or launcher failed (") == 2
    assert "and the black boxes of its nodes" in text
    assert "step 9" in text
