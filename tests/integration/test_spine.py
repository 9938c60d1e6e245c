"""What everybody does first, with each Python that users have: demo, nodes, an
MPI job, a failed one, cancel, console.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import pythons
from tests.support.spine import NODES, Person, demo_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), pytest.mark.left_out]
WATCHED = 10
"""Seconds for which the console has to stay."""


def interpreter(name: str) -> Path:
    """The Python of an environment, by the name of a row."""
    if name == "this one":
        return Path(sys.executable)
    if name == "Debian's":
        return pythons.environment(Path("/usr/bin/python3"))
    return pythons.environment(pythons.python_of(name))


@pytest.fixture(scope="module", params=["this one", "Debian's", "3.12", "3.13", "3.14"])
def person(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Person]:
    try:
        start = [str(interpreter(request.param)), "-m", "rankdeck"]
    except pythons.AbsentError as absent:
        pytest.skip(str(absent))
    with demo_of(start, pythons.CODE, tmp_path_factory.mktemp("spine")) as person:
        yield person


@pytest.mark.kept("this one", "Debian's")
def test_every_node_of_the_demo_is_heard(person: Person) -> None:
    assert person.heard() == list(NODES)


@pytest.mark.kept("this one", "Debian's")
def test_an_mpi_job_greets_from_every_rank(person: Person) -> None:
    job = person.job("mpi-hello")

    assert (job["state"], job["exit_code"]) == ("done", 0), job
    assert sorted(person.lines(job["job"])) == [0, 1, 2, 3]


@pytest.mark.kept("this one", "Debian's")
def test_a_job_that_fails_names_the_rank_and_its_exit_code(person: Person) -> None:
    job = person.job("fail-rank2", "--set", "env.FAIL_AFTER=1")

    assert job["state"] == "failed"
    first = job["first_failure"]
    assert (first["rank"], first["node"], first["exit_code"]) == (2, "sakura", 3)


@pytest.mark.kept("this one", "Debian's")
def test_a_cancel_leaves_nothing(person: Person) -> None:
    job = person.job("hang-rank2", "--detach", "--set", "grace=1")

    (report,) = person.objects("cancel", job["job"])

    assert (report["left"], report["state"]) == ([], "cancelled")


@pytest.mark.kept("this one", "Debian's")
def test_the_console_stays_and_ends_by_its_key(person: Person) -> None:
    with person.console() as shown:
        for node in NODES:
            shown.wait_for(node)
        with pytest.raises(subprocess.TimeoutExpired):
            shown.process.wait(WATCHED)
        text = shown.text()
        shown.press("q")
        code = shown.process.wait(60)

    assert all(node in text for node in NODES)
    assert "Traceback" not in shown.text()
    assert code == 0
