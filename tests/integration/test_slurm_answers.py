"""What the agent makes of a Slurm that answers nonsense: the job ends or is refused with a sentence, in a few lines."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from benchmarks.matrix.steering import planted
from tests.support.slurm import KINDS, lying_slurm

from rankdeck import plugins
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job import JobSpec
from rankdeck.remote.agent import bundle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SAYS = {
    "refused": "Slurm refused the job: ",
    "id": "sbatch told no number of a job: ",
    "queue": "Slurm no longer knows the job",
}


def plan() -> bytes:
    """What the console sends for a job."""
    options = {"login": "login", "rpcs_per_minute": "600"}
    cluster = Cluster(name="c", backend="slurm", nodes=(Node(name="login"),), options=options)
    spec = JobSpec(name="t", launch="mpi", command=("true",), nodes=1, ranks_per_node=1)
    planned = plugins.find("backends", "slurm")(None).plan(cluster, spec, "t-1")
    return json.dumps(asdict(planned.nodes[0])).encode()


class Login:
    """A login node with this Slurm: its agent, and its state folder."""

    def __init__(self, folder: Path, path: str) -> None:
        self.state = folder / "state"
        self._agent = folder / "agent.pyz"
        self._agent.write_bytes(bundle().data)
        self._env = {**os.environ, "PATH": path, "RANKDECK_STATE": str(self.state)}

    def submit(self) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, str(self._agent), "slurm", "submit"], env=self._env, input=plan(),
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        assert b"Traceback" not in done.stderr, done.stderr[-2000:]
        return json.loads(done.stdout)

    def events(self) -> list[dict[str, Any]]:
        (file,) = self.state.glob("jobs/t-1/*/events")
        return [json.loads(line) for line in file.read_text().splitlines()]

    def keeper(self) -> int:
        """The pid of the keeper that the submit started."""
        file = self.state / "slurm" / "keeper"
        return int(json.loads(file.read_text())["pid"]) if file.exists() else 0


@pytest.fixture
def login(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Login]:
    login = Login(tmp_path, lying_slurm(tmp_path / "bin", request.param, planted()))
    yield login
    if pid := login.keeper():
        os.kill(pid, signal.SIGKILL)


def closed(login: Login) -> list[dict[str, Any]]:
    """All events, once the job is over."""
    deadline = time.monotonic() + 90
    while login.events()[-1]["kind"] != "closed" and time.monotonic() < deadline:
        time.sleep(0.1)
    return login.events()


@pytest.mark.parametrize(("login", "kind"), [(kind, kind) for kind in KINDS], indirect=["login"])
def test_a_slurm_that_answers_nonsense_ends_the_job_with_a_sentence(
    login: Login, kind: str
) -> None:
    answer = login.submit()

    says = SAYS[kind.partition("-")[0]]
    events = closed(login)
    told = [event["text"] for event in events if event["kind"] == "trouble"]
    assert answer["ok"] is kind.startswith("queue"), answer
    assert any(says in text for text in told), told
    assert all(text.isprintable() and len(text) < 1000 for text in told)
    assert sum(len(json.dumps(event)) for event in events) < 20_000
