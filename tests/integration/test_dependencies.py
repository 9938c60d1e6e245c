"""The wheel works with the lowest and with the newest releases that its ranges
allow: others install it without our lock.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.support.install import ROOT, explain
from tests.support.lock import project
from tests.support.spine import NODES, Person, demo_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), pytest.mark.left_out]
LIMIT = 600
JOB = "job: greet\nlaunch: plain\nnodes: 3\nranks_per_node: 1\ncommand: [echo, hello]\n"


def lowest() -> Sequence[str]:
    """The default dependencies in the lowest release that each range has."""
    found = []
    for one in map(Requirement, project()["default"]):
        (bound,) = [row.version for row in one.specifier if row.operator in (">=", "==")]
        found.append(f"{one.name}=={bound}")
    return found


def pip(python: Path, *words: object) -> None:
    """Run pip; skips the test where no index can be reached, and fails it for any other reason."""
    command = [python, "-m", "pip", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    printed = done.stdout + done.stderr
    if done.returncode and re.search("NewConnectionError|NameResolutionError|ProxyError", printed):
        pytest.skip(explain(printed, {}))
    assert done.returncode == 0, printed[-3000:]


@pytest.fixture(scope="module", params=[lowest, list], ids=["lowest", "newest"])
def person(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Person]:
    folder = tmp_path_factory.mktemp("ranges")
    python = folder / "venv/bin/python"
    pip(
        Path(sys.executable), "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", folder, ROOT
    )
    (wheel,) = folder.glob("rankdeck-*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=LIMIT)
    pip(python, "install", "-q", "--only-binary=:all:", wheel, *request.param())
    with demo_of([str(python.with_name("rankdeck"))], {"PYTHONPATH": ""}, folder) as person:
        yield person


def test_the_demo_is_heard_and_runs_a_job(person: Person) -> None:
    file = person.folder / "greet.yaml"
    file.write_text(JOB)

    assert person.heard() == list(NODES)
    job = person.job(str(file))
    assert (job["state"], job["exit_code"]) == ("done", 0), job
    assert person.lines(job["job"]) == {rank: ["hello"] for rank in range(3)}


def test_the_console_shows_the_nodes(person: Person) -> None:
    with person.console() as shown:
        for node in NODES:
            shown.wait_for(node)
        shown.press("q")
        assert shown.process.wait(60) == 0
