"""Jobs within an allocation that the user holds (salloc), by steps of a real
srun: no node can be logged in to, and the console runs on the login node.
"""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.lab.root import console_on_nodes
from tests.support.lab.root.people import Operator
from tests.support.lab.rootless import REPOSITORY
from tests.support.polling import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.left_out]
CODE = f"PYTHONPATH={REPOSITORY / 'console'}:{REPOSITORY / 'agents'}"
PROGRAM = f"{CODE} {sys.executable} -m rankdeck"
UNTIL_TOLD = "echo begun; until [ -e /run/lab/shared/go ]; do sleep 0.1; done; echo over"

MPI = "from mpi4py import MPI; w = MPI.COMM_WORLD; print(w.rank, 'of', w.size, flush=True)"


class Holder:
    """Who works on the login node, and holds an allocation."""

    def __init__(self, user: Operator, number: str) -> None:
        self.user, self.number = user, number
        self._file = f"{user.lab.folder}/held.yaml"

    def says(self, *words: str, limit: float = 120) -> str:
        """What `rankdeck` prints on the login node, outside of the allocation."""
        line = f"{PROGRAM} -c {self._file} --allocation {self.number} {shlex.join(words)}"
        return self.user.on("n4", line, limit)

    def objects(self, *words: str) -> list[dict[str, Any]]:
        said = self.says(*words, "--json")
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    def run(self, *flags: str, **spec: object) -> dict[str, Any]:
        found = self.objects("run", self.job_file(**spec), "--no-preflight", *flags)
        assert found, self.says("run", self.job_file(**spec), "--no-preflight", *flags)
        return found[-1]

    def job_file(self, **spec: object) -> str:
        job = {
            "job": "held",
            "launch": "plain",
            "nodes": 2,
            "ranks_per_node": 1,
            "grace": 2,
            **spec,
        }
        file = Path(self.user.lab.folder) / "held-job.yaml"
        file.write_text(yaml.safe_dump(job))
        return str(file)

    def job(self, name: str) -> dict[str, Any]:
        return next(one for one in self.objects("jobs") if one.get("job") == name)

    def steps(self) -> list[str]:
        return self.user.on("n4", f"squeue --steps -h -j {self.number} -o %j").split()


@pytest.fixture
def holder(user: Operator) -> Iterator[Holder]:
    """An allocation of both workers, and a cluster file whose nodes nobody can log in to."""
    if not console_on_nodes():
        pytest.skip("the console's Python is /usr's: the nodes have another one")
    cluster = yaml.safe_load(Path(user.file).read_text())
    for node in cluster["nodes"]:
        if node["name"] != "login":
            node |= {"address": user.lab.address("n3"), "port": 1}
    (user.lab.folder / "held.yaml").write_text(yaml.safe_dump(cluster))
    (user.lab.shared / "go").unlink(missing_ok=True)
    Operator(user.lab, "root").on("n4", "chmod o+x /root")
    said = user.on("n4", "salloc --no-shell -N2 --exclusive --mem=900")
    number = next(word for word in said.split() if word.isdigit())
    yield Holder(user, number)
    (user.lab.shared / "go").touch()
    user.on("n4", f"scancel {number}")


def test_a_job_runs_within_the_allocation_and_leaves_no_step(holder: Holder) -> None:
    command = ["sh", "-c", "echo rank $RANK of $WORLD_SIZE, ${SLURM_JOB_ID:-no} step"]

    done = holder.run(launch="plain", ranks_per_node=2, command=command)

    assert (done["state"], done["exit_code"]) == ("done", 0), done
    assert {rank["node"] for rank in done["ranks"]} == {"n1", "n2"}
    texts = sorted(line["text"] for line in holder.objects("logs", done["job"]))
    assert texts == [f"rank {rank} of 4, no step" for rank in range(4)]
    assert eventually(lambda: holder.steps() == ["extern"] or not holder.steps()), holder.steps()


def test_inside_salloc_the_word_here_is_enough_and_no_cluster_file_is_needed(
    holder: Holder,
) -> None:
    file = holder.job_file(command=["sh", "-c", "echo rank $RANK on $(hostname)"])
    inside = f"{PROGRAM} --allocation here run {file} --no-preflight --json"
    holder.user.on("n4", f"scancel {holder.number}")

    said = holder.user.on("n4", f"salloc -N2 --mem=900 sh -c {shlex.quote(inside)}", 120)

    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert rows, said
    assert rows[-1]["state"] == "done", said
    assert {rank["node"] for rank in rows[-1]["ranks"]} == {"n1", "n2"}


def test_an_mpi_job_has_all_its_ranks_and_starts_no_daemon_by_srun(holder: Holder) -> None:
    done = holder.run(launch="mpi", ranks_per_node=2, command=["python3", "-c", MPI])

    assert done["state"] == "done", holder.says("logs", done["job"])
    texts = [line["text"] for line in holder.objects("logs", done["job"])]
    assert sorted(text for text in texts if "of 4" in text) == [f"{rank} of 4" for rank in range(4)]


def begin(holder: Holder) -> str:
    """A job that runs until it is told, started by a console that has ended."""
    job = holder.run("--detach", command=["sh", "-c", UNTIL_TOLD])["job"]
    begun = lambda: {rank["state"] for rank in holder.job(job)["ranks"]} == {"running"}  # noqa: E731
    assert eventually(begun, 60), holder.job(job)
    return job


def test_another_console_finds_the_job_reads_it_and_sees_its_end(holder: Holder) -> None:
    job = begin(holder)
    texts = lambda: [line["text"] for line in holder.objects("logs", job)]  # noqa: E731
    assert eventually(lambda: texts() == ["begun"] * 2), texts()

    (holder.user.lab.shared / "go").touch()

    assert eventually(lambda: holder.job(job)["state"] == "done", 60), holder.job(job)
    assert sorted(texts()) == ["begun"] * 2 + ["over"] * 2


def test_a_cancel_by_another_console_is_proven_and_ends_the_steps(holder: Holder) -> None:
    job = begin(holder)

    said = holder.says("cancel", job, "--yes")

    assert "nothing of it is left" in said, said
    assert holder.job(job)["state"] == "cancelled"
    assert holder.user.left(job) == 0
    assert eventually(lambda: "rankdeck" not in holder.steps()), holder.steps()


def test_a_job_whose_srun_is_killed_ends_whole_and_that_is_said(holder: Holder) -> None:
    job = begin(holder)

    # Its child, which ends the step when srun is gone, is left alone.
    assert holder.user.on("n4", "pkill -KILL -x -P 1 --echo srun").count("killed") == 2

    assert eventually(lambda: holder.job(job)["state"] == "failed", 60), holder.job(job)
    found = holder.job(job)
    assert {
        "n1: the supervisor of this node is gone",
        "n2: the supervisor of this node is gone",
    } >= set(found["troubles"])
    assert holder.user.left(job) == 0
    assert "rankdeck" not in holder.steps()
    assert [line["text"] for line in holder.objects("logs", job)] == ["begun"] * 2


def test_a_job_ends_with_its_allocation_and_that_is_said(holder: Holder) -> None:
    job = begin(holder)

    holder.user.on("n4", f"scancel {holder.number}")

    assert eventually(lambda: holder.user.left(job) == 0, 60)
    said = holder.says("jobs")
    assert f"job {holder.number} does not run" in said, said


def test_the_nodes_are_heard_without_ssh(holder: Holder) -> None:
    found = {node["name"]: node for node in holder.objects("status")[-1]["nodes"]}

    assert set(found) == {"n1", "n2"}
    for node in found.values():
        assert node["values"]["cpu.cores"], node
    assert eventually(lambda: "rankdeck" not in holder.steps()), holder.steps()


def test_on_the_login_node_no_ssh_is_needed_and_an_allocation_around_it_is_offered(
    holder: Holder,
) -> None:
    file = holder.user.lab.folder / "held.yaml"
    cluster = yaml.safe_load(file.read_text())
    for key in ("identity", "known_hosts"):  # no login could succeed
        del cluster["ssh"][key]
    file.write_text(yaml.safe_dump(cluster))
    job = holder.job_file(command=["echo", "by sbatch"], slurm={"time": "5"}, nodes=1)
    inside = f"{PROGRAM} -c {file} run {job} --no-preflight --json"
    holder.user.on("n4", f"scancel {holder.number}")

    said = holder.user.on("n4", f"salloc -N1 --mem=300 sh -c {shlex.quote(inside)}", 120)

    assert "you are inside allocation" in said, said
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert rows, said
    done = rows[-1]
    assert done["state"] == "done", said
    assert done["slurm"]["id"] != holder.number
