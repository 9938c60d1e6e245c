"""Jobs that others started on Kubernetes: listed, read, cancelled; by the command line on the double."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.manifests import indexed_job
from tests.support.kubernetes.pretend import Script
from tests.support.kubernetes.scheduler import node
from tests.support.polling import wait_until

pytestmark = pytest.mark.slow


class Console:
    """The command line of one user, with folders of its own."""

    def __init__(self, folder: Path, kubectl: Path, double: Double) -> None:
        self.file = folder / "k.yaml"
        self.file.write_text("cluster: k\nbackend: kubernetes\n")
        path = f"{kubectl.parent}:{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "KUBECONFIG": str(double.kubeconfig())}

    def __call__(self, *argv: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            (sys.executable, "-m", "rankdeck", "-c", str(self.file), *argv),
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, (done.stderr + done.stdout)[-800:]
        return done

    def kubectl(self, *argv: str, stdin: str = "") -> None:
        """Somebody else does this."""
        subprocess.run(
            ("kubectl", *argv), input=stdin, env=self.env, text=True, timeout=60, check=True
        )


@pytest.fixture
def console(tmp_path: Path, kubernetes, kubectl) -> tuple[Console, Double]:
    """A job of alice with two pods that go on for ten minutes, and a console."""
    double = kubernetes(processes=False, nodes=[node("w0"), node("w1")])
    double.script("train-.*", Script(text="step {n}", every=0.5, lasting=600))
    made = Console(tmp_path, kubectl, double)
    job = indexed_job("train", ["x"], 2, gpus=1)
    job["metadata"]["labels"] = {"user": "alice"}
    made.kubectl("create", "-f", "-", stdin=yaml.safe_dump(job))
    wait_until(lambda: all("startTime" in p["status"] for p in double.all("pods")), 20)
    return made, double


def test_a_job_of_others_is_listed_read_and_cancelled_once_its_owner_was_named(console) -> None:
    ask, double = console

    (row,) = [json.loads(line) for line in ask("jobs", "--json").stdout.splitlines()]
    assert (row["job"], row["kind"], row["owner"], row["ranks"]) == ("job/train", "Job", "alice", 2)
    assert "Job of alice" in ask("jobs").stdout

    said = ask("logs", "job/train").stdout
    assert "[0] step 1\n" in said
    assert "[1] step 1\n" in said
    (row,) = [json.loads(line) for line in ask("jobs", "--json").stdout.splitlines()]
    assert (row["owner"], row["state"]) == ("Job of alice", "running")
    assert [rank["node"] for rank in row["ranks"]]

    refused = ask("cancel", row["job"], code=2).stderr
    assert "Job of alice" in refused
    assert double.all("jobs")

    assert "nothing of it is left" in ask("cancel", row["job"], "--yes").stdout
    assert (double.all("jobs"), double.all("pods")) == ([], [])
