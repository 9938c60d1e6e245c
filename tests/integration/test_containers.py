"""Jobs in real containers on the nodes of the root lab: Apptainer and Podman, MPI and torchrun."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.lab import RootLab
from tests.support.lab.root import OLD_MPI, OLD_SANDBOX, SANDBOX, SIF, people
from tests.support.lab.root.people import OCI, Operator, load, start_docker
from tests.support.terminal import terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000), pytest.mark.left_out]
SAMPLES = Path(__file__).resolve().parents[2] / "sample-clusters/jobs/programs"
SITE = next(Path(sys.prefix).resolve().glob("lib/python3.*/site-packages/torch"), None)
HELLO = """\
from mpi4py import MPI
w = MPI.COMM_WORLD
print(f"rank {w.rank} of {w.size} on {MPI.Get_processor_name()} sum {w.allreduce(w.rank)}")
"""
HELD = """\
import signal
from mpi4py import MPI
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("held", MPI.COMM_WORLD.allreduce(1), flush=True)
while True:
    signal.pause()
"""
WANTED = [f"rank {r} of 4 on n{1 + r // 2} sum 6" for r in range(4)]
OLD = {"flavour": "openmpi4", "path": f"{OLD_MPI}/bin/mpirun"}


def apptainer(image: str, **more: object) -> dict[str, Any]:
    return {"runtime": "apptainer", "image": image, **more}


PODMAN = {"runtime": "podman", "image": OCI}
DOCKER = {"runtime": "docker", "image": OCI}


def mpi(program: str, **more: object) -> dict[str, Any]:
    return {
        "launch": "mpi",
        "command": ["python3", "-u", "${RANKDECK_RUN}/program.py"],
        "files": {"program.py": program},
        **more,
    }


@pytest.fixture(scope="module")
def user(root_lab: RootLab) -> Operator:
    return Operator(root_lab, "lab")


@pytest.fixture(scope="module")
def root(root_lab: RootLab) -> Operator:
    return Operator(root_lab, "root")


@pytest.fixture(scope="module")
def archive(root: Operator) -> str:
    return people.archive(root)


@pytest.fixture(scope="module")
def podman_user(user: Operator, archive: str) -> Operator:
    return load(user, "podman", archive)


@pytest.fixture(scope="module")
def podman_root(root: Operator, archive: str) -> Operator:
    return load(root, "podman", archive)


@pytest.fixture(scope="module")
def docker_user(user: Operator, root: Operator, archive: str) -> Operator:
    start_docker(root, user)
    return load(user, "docker", archive)


# ---- MPI ------------------------------------------------------------------------------


@pytest.mark.kept("/srv/images/mpi5.sif")
@pytest.mark.parametrize("image", [SIF, SANDBOX])
def test_mpi_crosses_the_nodes_in_apptainer(user: Operator, image: str) -> None:
    job = user.run(**mpi(HELLO, container=apptainer(image)))

    assert job["state"] == "done", job
    assert user.lines(job["job"]) == WANTED
    assert not user.left(job["job"])


def test_mpi_crosses_the_nodes_in_apptainer_as_root(root: Operator) -> None:
    container = apptainer(SANDBOX, args=["--no-privs"])

    job = root.run(**mpi(HELLO, container=container))

    assert (job["state"], root.lines(job["job"])) == ("done", WANTED), job


def test_open_mpi_of_another_patch_level_is_in_the_image(user: Operator) -> None:
    job = user.run(**mpi(HELLO, mpi=OLD, container=apptainer(OLD_SANDBOX)))

    assert (job["state"], user.lines(job["job"])) == ("done", WANTED), job


def test_open_mpi_5_in_the_image_is_started_by_4(user: Operator) -> None:
    job = user.run(**mpi(HELLO, mpi=OLD, container=apptainer(SANDBOX)))

    assert (job["state"], user.lines(job["job"])) == ("done", WANTED), job


def test_mpi_crosses_the_nodes_in_rootless_podman(podman_user: Operator) -> None:
    job = podman_user.run(**mpi(HELLO, container=PODMAN))

    assert (job["state"], podman_user.lines(job["job"])) == ("done", WANTED), job
    assert podman_user.on("n1", "podman ps -aq") == ""


def test_mpi_crosses_the_nodes_in_podman_as_root(podman_root: Operator) -> None:
    job = podman_root.run(**mpi(HELLO, container=PODMAN))

    assert (job["state"], podman_root.lines(job["job"])) == ("done", WANTED), job
    assert podman_root.on("n1", "podman ps -aq") == ""


def test_mpi_crosses_the_nodes_in_docker(docker_user: Operator) -> None:
    job = docker_user.run(**mpi(HELLO, container=DOCKER))

    assert (job["state"], docker_user.lines(job["job"])) == ("done", WANTED), job
    assert docker_user.on("n1", "docker ps -aq") == ""


def test_cancel_leaves_nothing_of_docker(docker_user: Operator) -> None:
    who = docker_user
    job = who.run("--detach", container=DOCKER, **mpi(HELD))["job"]
    assert len(who.first_lines(job, 4)) == 4, who.lines(job, "err")

    (report,) = who.objects("cancel", job)

    assert (report["state"], report["left"], who.left(job)) == ("cancelled", [], 0)
    for node in ("n1", "n2"):
        assert who.on(node, "docker ps -aq; pgrep -f containerd-shim") == ""


@pytest.mark.parametrize(
    ("cell", "inside", "leave"),
    [("sif", "echo in=$APPTAINER_COMMAND", "exit\r"), ("podman", "ls /run/.containerenv && echo in=$(echo shell)", "")],
)  # fmt: skip
def test_a_shell_in_the_container_of_a_rank_opens_from_its_screen_and_holds_up_no_cancel(
    user: Operator, podman_user: Operator, cell: str, inside: str, leave: str
) -> None:
    who = user if cell == "sif" else podman_user
    job = who.run("--detach", container=CELLS[cell], **mpi(HELD))["job"]
    assert len(who.first_lines(job, 4)) == 4, who.lines(job, "err")
    console = [sys.executable, "-m", "rankdeck", "-c", who.file, "attach", job]
    with terminal(who.lab.command(console), who.lab.environment()) as shown:
        shown.wait_for("held 4")
        shown.press("S")
        shown.wait_for("a shell on n1")
        shown.press(f"{inside}\r")
        shown.wait_for("in=shell")
        shown.press("exit 3\r")
        shown.wait_for("the shell ended with exit 3")
        shown.press("S")
        shown.wait_for("a shell on n1")
        shown.press("echo in=$(echo again)\r")
        shown.wait_for("in=again")

        done = who.lab.rankdeck("-c", who.file, "cancel", job, "--grace", "1")

        # A shell of Apptainer is a container of its own; that of Podman has ended with the rank's.
        if leave:
            shown.press(leave)
        shown.wait_for("the shell ended")

    assert done.stdout == f"{job}: cancelled; nothing of it is left\n", done
    assert (done.returncode, who.left(job)) == (0, 0)


def test_no_session_file_of_mpi_is_left_on_a_node(user: Operator) -> None:
    name = "a-name-as-long-as-job-names-may-be-for-the-sake-of-socket-paths"
    job = user.run(**mpi(HELLO, container=apptainer(SIF), job=name[:63]))

    assert (job["state"], user.lines(job["job"])) == ("done", WANTED), job
    assert user.on("n1", "ls -d /tmp/ompi* /tmp/prte* /tmp/pmix* /tmp/rankdeck* 2>/dev/null") == ""


# ---- torchrun and plain ---------------------------------------------------------------


@pytest.mark.skipif(SITE is None, reason="needs torch in this environment")
def test_torchrun_of_the_image_trains_across_the_nodes(user: Operator) -> None:
    assert SITE is not None
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the image has Python 3.11, and torch is built for this one")
    job = user.run(
        launch="torchrun",
        command=["${RANKDECK_RUN}/ddp.py", "--steps", "10"],
        files={"ddp.py": (SAMPLES / "ddp.py").read_text()},
        env={"OMP_NUM_THREADS": "1", "PYTHONPATH": "/opt/site"},
        container=apptainer(OLD_SANDBOX, mounts=[f"{SITE.parent}:/opt/site:ro"]),
    )

    assert job["state"] == "done", job
    said = user.lines(job["job"])
    for rank in range(4):
        assert f"rank {rank} of 4 on n{1 + rank // 2}, cpu, gloo" in said
        assert f"rank {rank} is done" in said
    assert not user.left(job["job"])


@pytest.mark.parametrize("container", [apptainer(SIF), PODMAN], ids=["sif", "podman"])
def test_a_plain_rank_says_how_it_ended(podman_user: Operator, container: dict[str, Any]) -> None:
    job = podman_user.run(
        launch="plain",
        command=["sh", "-c", 'echo "$A|$(pwd)|$(id -u)"; exit $((RANK + 4))'],
        env={"A": "b, c"},
        ranks_per_node=1,
        container={**container, "workdir": "/opt"},
    )

    assert job["state"] == "failed", job
    assert sorted(rank["exit_code"] for rank in job["ranks"]) == [4, 5]
    assert podman_user.lines(job["job"]) == ["b, c|/opt|3000"] * 2


# ---- cancel ---------------------------------------------------------------------------

CELLS = {
    "sif": apptainer(SIF),
    "own-pids": apptainer(SANDBOX, args=["--pid"]),
    "podman": PODMAN,
}


@pytest.mark.kept("sif")
@pytest.mark.parametrize("cell", CELLS)
def test_cancel_leaves_nothing_of_containers_that_ignore_it(
    podman_user: Operator, cell: str
) -> None:
    who = podman_user
    launch = (
        mpi(HELD)
        if cell != "own-pids"
        else {
            "launch": "plain",
            "command": ["sh", "-c", "trap '' TERM; echo held; while :; do sleep 1; done"],
        }
    )  # fmt: skip
    job = who.run("--detach", container=CELLS[cell], **launch)["job"]
    assert len(who.first_lines(job, 4)) == 4, who.lines(job, "err")

    (report,) = who.objects("cancel", job)

    assert report["left"] == []
    assert report["state"] == "cancelled"
    assert not who.left(job)
    for node in ("n1", "n2"):
        running = who.on(
            node,
            "ps -eo args | grep -E 'conmon|squashfuse|[h]eld|apptainer|fuse-overlay' | grep -v grep",
        )
        assert running == ""
        assert who.on(node, "grep -c fuse /proc/self/mounts; podman ps -aq") == "0\n"


def test_cancel_finds_containers_whose_launcher_was_killed(
    podman_user: Operator,
) -> None:
    who = podman_user
    job = who.run("--detach", container=PODMAN, **mpi(HELD))["job"]
    assert len(who.first_lines(job, 4)) == 4
    # Not Podman's own pause process: without it no command of Podman works for this user.
    launchers = ("-x mpirun", "-x prterun", "-f 'podman run'")
    who.on("n1", "; ".join(f"pkill -KILL {which}" for which in launchers))

    (report,) = who.objects("cancel", job)

    assert report["left"] == []
    assert not who.left(job)
    assert who.on("n1", "pgrep -a conmon; podman ps -aq") == ""
