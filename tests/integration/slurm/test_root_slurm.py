"""Jobs on a real Slurm in the root lab: by hand from the script, and
from launch to cancel by Rankdeck.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.lab.root import OLD_SANDBOX, SIF
from tests.support.lab.root.people import Operator
from tests.support.polling import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000), pytest.mark.left_out]
SITE = next(Path(sys.prefix).resolve().glob("lib/python3.*/site-packages/torch"), None)
SAMPLES = Path(__file__).resolve().parents[3] / "sample-clusters/jobs/programs"
CLUSTER = """\
cluster: site
backend: slurm
slurm: {partition: debug, time: "00:05:00"}
nodes:
  - {name: "n[1-2]", slots: 2}
"""
HELLO = """\
from mpi4py import MPI
w = MPI.COMM_WORLD
print(f"rank {w.rank} of {w.size} on {MPI.Get_processor_name()} sum {w.allreduce(w.rank)}")
"""


class Ran:
    """A script after `sbatch --wait`: its exit status, what Slurm says, and each rank's lines."""

    def __init__(self, user: Operator, network: str = "", **spec: object) -> None:
        folder = user.lab.shared
        (user.lab.folder / "site.yaml").write_text(f"{CLUSTER}network: '{network}'\n")
        file = user.lab.folder / "job.yaml"
        file.write_text(yaml.safe_dump({"job": "submitted", "nodes": 2, **spec}))
        planned = user.lab.rankdeck(
            "-c", str(user.lab.folder / "site.yaml"), "export-script", str(file)
        )
        assert planned.returncode == 0, planned.stderr
        script = folder / "job.sbatch"
        script.write_text(planned.stdout)
        said = user.on("n1", f"cd {folder} && sbatch --wait {script.name}; echo status $?", 120)
        self.said = said
        self.status = int(said.rpartition("status ")[2])
        self.folder = max(folder.glob("rankdeck-submitted-*/"), key=lambda p: p.name)

    def lines(self, stream: str = "out") -> dict[int, list[str]]:
        return {
            int(path.stem): path.read_text().splitlines()
            for path in sorted(self.folder.glob(f"*.{stream}"))
        }


@pytest.mark.kept
def test_mpi_ranks_are_started_by_srun_through_pmix(user: Operator) -> None:
    ran = Ran(
        user,
        launch="mpi",
        command=["python3", "${RANKDECK_RUN}/hello.py"],
        files={"hello.py": HELLO},
        container={"runtime": "apptainer", "image": SIF},
    )

    assert ran.status == 0, ran.said
    wanted = {r: [f"rank {r} of 4 on n{1 + r // 2} sum 6"] for r in range(4)}
    assert ran.lines() == wanted, ran.lines("err")


@pytest.mark.kept
def test_a_plain_rank_has_its_variables_and_its_exit_code(user: Operator) -> None:
    ran = Ran(
        user,
        launch="plain",
        command=["sh", "-c", 'echo "$SLURM_PROCID $A"; echo bad >&2; exit $SLURM_PROCID'],
        env={"A": "it's, a \"b\" $c"},
    )  # fmt: skip

    assert ran.status == 3, ran.said
    assert ran.lines()[0] == ['0 it\'s, a "b" $c']
    assert ran.lines("err")[0][0] == "bad"


def test_tensorflow_workers_know_each_other(user: Operator) -> None:
    ran = Ran(user, launch="tensorflow", command=["sh", "-c", 'echo "$TF_CONFIG"'])

    assert ran.status == 0, ran.said
    told: list[dict[str, Any]] = [json.loads(row[0]) for row in ran.lines().values()]
    assert [row["task"]["index"] for row in told] == [0, 1]
    workers = told[0]["cluster"]["worker"]
    assert [worker.partition(":")[0] for worker in workers] == ["n1", "n2"]
    assert told[1]["cluster"]["worker"] == workers


def test_each_node_looks_up_its_part_of_the_job_network(user: Operator) -> None:
    words = 'echo "$JAX_COORDINATOR_ADDRESS $JAX_NUM_PROCESSES $JAX_PROCESS_ID $GLOO_SOCKET_IFNAME"'
    ran = Ran(user, "10.78.0.0/24", launch="jax", command=["sh", "-c", words])

    assert ran.status == 0, ran.said
    first = ran.lines()[0][0].split()[0]
    assert first.startswith(f"{user.lab.address('n1')}:")
    assert ran.lines() == {rank: [f"{first} 4 {rank} eth0"] for rank in range(4)}


def test_tensorflows_workers_are_named_by_their_addresses_in_the_job_network(
    user: Operator,
) -> None:
    words = ["sh", "-c", 'echo "$TF_CONFIG"']
    ran = Ran(user, "10.78.0.0/24", launch="tensorflow", command=words)

    assert ran.status == 0, ran.said
    told = json.loads(ran.lines()[1][0])["cluster"]["worker"]
    assert [worker.partition(":")[0] for worker in told] == [
        user.lab.address(node) for node in ("n1", "n2")
    ]


def test_a_node_without_an_address_in_the_job_network_says_so(user: Operator) -> None:
    ran = Ran(user, "203.0.113.0/24", launch="plain", command=["true"])

    assert ran.status != 0
    said = "".join(path.read_text() for path in user.lab.shared.glob("rankdeck-submitted-*.out"))
    assert "no address in the job network, 203.0.113.0/24" in said


def training() -> dict[str, object]:
    """A torchrun job of four ranks; skips where there is no torch for the image's Python."""
    if SITE is None:
        pytest.skip("needs torch in this environment")
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the image has Python 3.11, and torch is built for this one")
    return {
        "launch": "torchrun",
        "command": ["${RANKDECK_RUN}/ddp.py", "--steps", "5"],
        "files": {"ddp.py": (SAMPLES / "ddp.py").read_text()},
        "env": {"OMP_NUM_THREADS": "1", "PYTHONPATH": "/opt/site"},
        "container": {
            "runtime": "apptainer",
            "image": OLD_SANDBOX,
            "mounts": [f"{SITE.parent}:/opt/site:ro"],
        },
    }


def test_torchrun_trains_on_both_nodes(user: Operator) -> None:
    ran = Ran(user, **training())

    assert ran.status == 0, (
        ran.said,
        [rows[-4:] for rows in ran.lines("err").values()],
    )
    written = "\n".join(
        path.read_text() for path in [*ran.folder.rglob("stdout.log"), *ran.folder.glob("*.out")]
    )
    for rank in range(4):
        assert f"rank {rank} of 4 on n{1 + rank // 2}, cpu, gloo" in written


# ---- by Rankdeck ----------------------------------------------------------------------


def states(job: dict[str, Any]) -> list[tuple[str, int | None]]:
    return [(rank["node"], rank["exit_code"]) for rank in job["ranks"]]


def test_a_launch_shows_where_slurm_put_the_ranks_and_who_failed_first(
    user: Operator,
) -> None:
    command = 'echo "rank $SLURM_PROCID"; sleep 1; [ $SLURM_PROCID != 2 ] || exit 7; sleep 60'

    job = user.run("--no-preflight", launch="plain", command=["sh", "-c", command])

    assert (job["state"], job["exit_code"]) == ("failed", 7)
    assert job["nodes"] == ["n1", "n2"]
    first = job["first_failure"]
    assert (first["rank"], first["node"], first["exit_code"]) == (2, "n2", 7)
    assert first["victims"] == [0, 1, 3]
    assert user.lines(job["job"]) == [f"rank {rank}" for rank in range(4)]
    assert job["slurm"]["state"] == "FAILED"


def test_mpi_is_launched_in_images(user: Operator) -> None:
    mpi = user.run(
        "--no-preflight",
        launch="mpi",
        command=["python3", "${RANKDECK_RUN}/hello.py"],
        files={"hello.py": HELLO},
        container={"runtime": "apptainer", "image": SIF},
    )

    assert states(mpi) == [("n1", 0), ("n1", 0), ("n2", 0), ("n2", 0)], mpi
    assert user.lines(mpi["job"]) == [f"rank {r} of 4 on n{1 + r // 2} sum 6" for r in range(4)]


LARGE = """\
from mpi4py import MPI
w = MPI.COMM_WORLD
mine, theirs = bytearray([w.rank]) * (8 << 20), bytearray(8 << 20)
w.Sendrecv(mine, w.rank ^ 1, recvbuf=theirs, source=w.rank ^ 1)
print(f"rank {w.rank} got {theirs.count(w.rank ^ 1)} bytes")
"""
"""Ranks of one node exchange more than what is copied through shared memory."""


@pytest.mark.parametrize("image", [SIF, OLD_SANDBOX], ids=["openmpi5", "openmpi4"])
def test_ranks_of_one_node_exchange_large_messages_between_their_images(
    user: Operator, image: str
) -> None:
    mpi = user.run(
        "--no-preflight",
        launch="mpi",
        command=["python3", "${RANKDECK_RUN}/large.py"],
        files={"large.py": LARGE},
        container={"runtime": "apptainer", "image": image},
    )

    assert [state for _, state in states(mpi)] == [0, 0, 0, 0], mpi
    assert user.lines(mpi["job"]) == [f"rank {r} got {8 << 20} bytes" for r in range(4)]
    assert user.lines(mpi["job"], "err") == []


def test_torchrun_is_launched_in_images(user: Operator) -> None:
    job = user.run("--no-preflight", **training())

    assert states(job) == [("n1", 0), ("n1", 0), ("n2", 0), ("n2", 0)], job
    said = user.lines(job["job"])
    for rank in range(4):
        assert f"rank {rank} of 4 on n{1 + rank // 2}, cpu, gloo" in said


@pytest.mark.kept
def test_cancel_takes_the_job_out_of_slurm(user: Operator) -> None:
    deaf = ["sh", "-c", "trap '' TERM; echo held; while :; do sleep 1; done"]
    job = user.run("--detach", "--no-preflight", launch="plain", command=deaf)["job"]
    assert len(user.first_lines(job, 4)) == 4, user.lines(job)

    (report,) = user.objects("cancel", job)

    assert (report["state"], report["left"], user.left(job)) == ("cancelled", [], 0)
    assert user.on("n1", "squeue -h") == ""


def test_cancel_works_when_nobody_waits_for_slurm_any_more(user: Operator) -> None:
    job = user.run("--detach", "--no-preflight", launch="plain", command=["sleep", "600"])["job"]
    assert eventually(lambda: user.on("n1", "squeue -h -o %t") == "R\n")
    user.on("n4", "pkill -KILL -f 'slurm [k]eep'")

    (report,) = user.objects("cancel", job)

    assert (report["left"], user.left(job)) == ([], 0)
    assert user.on("n1", "squeue -h") == ""


def test_a_job_that_waits_says_why_and_can_be_cancelled(user: Operator) -> None:
    job = user.run(
        "--detach", "--no-preflight", launch="plain", ranks_per_node=1,
        command=["true"], slurm={"args": ["--hold"]},
    )["job"]  # fmt: skip
    waiting = user.job(job)["slurm"]
    (report,) = user.objects("cancel", job)

    assert waiting["waits"], waiting
    assert waiting["text"], waiting
    assert report["left"] == []


def test_a_folder_that_nodes_do_not_share_is_explained(root: Operator) -> None:
    job = root.run("--no-preflight", launch="plain", command=["true"])

    assert job["state"] == "failed"
    assert "RANKDECK_STATE" in " ".join(job["troubles"]), job
