"""A node, or a login node, that is this machine: every flow works
without sshd, ssh, keys or a port.
"""

import asyncio
import json
import logging
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.commands import COMMANDS
from tests.support.polling import seen_until, wait_until

from rankdeck.model.cluster import Access, Cluster, Node
from rankdeck.remote.shell import run_program
from rankdeck.remote.transports import reach_cluster
from rankdeck_agent.schedulers.slurm.sinfo import NODE_COLUMNS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "cluster: here\nnodes:\n  - {name: head, address: local, slots: 2}\nssh: {config: none}\n"
JOB = "job: hello\nlaunch: plain\nnodes: 1\nranks_per_node: 2\ncommand: [sh, -c, '%s']\n"
LIMIT = 300


class Home:
    """A home folder with a cluster of this machine alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "here.yaml").write_text(CLUSTER)
        self.env = {
            "PYTHONPATH": f"{ROOT}/console:{ROOT}/agents",
            "HOME": str(folder),
            "PATH": os.defpath,
            "RANKDECK_CLUSTER": str(folder / "here.yaml"),
            "SLURM_JOB_ID": "7",
        }

    def job(self, text: str) -> str:
        """A job file whose ranks run this shell command."""
        (self.folder / "job.yaml").write_text(JOB % text)
        return "job.yaml"

    def rankdeck(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return COMMANDS.run(arguments, self.env, LIMIT, self.folder)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home(tmp_path)
    yield found
    found.rankdeck("cancel", "--grace", "0", "hello")


def test_status_and_doctor_see_the_machine_and_how_it_is_reached(home: Home) -> None:
    status = json.loads(home.rankdeck("status", "--json").stdout)
    doctor = home.rankdeck("doctor")

    (node,) = status["nodes"]
    assert node["name"] == "head"
    assert node["level"] in ("ok", "warn", "bad"), node
    assert "this machine, used without SSH" in doctor.stdout


def test_a_job_runs_in_the_home_folder_and_its_output_stays(home: Home) -> None:
    done = home.rankdeck("run", home.job("echo in $HOME slurm=$SLURM_JOB_ID; exit 3"))

    assert done.returncode == 3, done.stderr
    assert f"in {home.folder} slurm=" in done.stdout
    assert "slurm=7" not in done.stdout
    assert f"in {home.folder}" in home.rankdeck("logs", "hello").stdout


def permissions(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_commands_and_copies_work(home: Home) -> None:
    said = home.rankdeck("sh", "head", "--", "pwd")
    (home.folder / "a").write_text("text")
    (home.folder / "a").chmod(0o755)
    there = home.rankdeck("cp", "a", "head:sub/b")
    back = home.rankdeck("cp", "head:sub/b", "got")

    assert str(home.folder) in said.stdout
    assert (there.returncode, back.returncode) == (0, 0), there.stderr + back.stderr
    assert (home.folder / "sub/b").read_text() == "text"
    assert (home.folder / "got/b.head").read_text() == "text"
    assert permissions(home.folder / "sub/b") == permissions(home.folder / "got/b.head") == 0o755


@pytest.mark.parametrize(("sent", "there", "back"), [(0o600, 0o600, 0o600), (0o4775, 0o775, 0o755), (0o444, 0o444, 0o644)])  # fmt: skip
def test_a_copy_has_the_permissions_of_the_file_but_others_may_write_none_that_comes(
    home: Home, sent: int, there: int, back: int
) -> None:
    (home.folder / "a").write_text("text")
    (home.folder / "a").chmod(sent)
    home.rankdeck("cp", "a", "head:b")
    first = permissions(home.folder / "b")
    home.rankdeck("cp", "head:b", "got")
    (home.folder / "a").chmod(0o700)
    home.rankdeck("cp", "a", "head:b")

    assert (first, permissions(home.folder / "got/b.head")) == (there, back)
    assert permissions(home.folder / "b") == 0o700, "the same bytes with other permissions"


def test_a_job_outlives_a_console_that_is_killed_and_is_cancelled_by_the_next(home: Home) -> None:
    mark = home.folder / "pids"
    file = home.job(f"echo $$ >>{mark}; echo up; sleep 600")
    console = subprocess.Popen(
        [sys.executable, "-m", "rankdeck", "run", "--no-preflight", file],
        cwd=home.folder,
        env=home.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until(lambda: mark.exists() and len(mark.read_text().split()) == 2, LIMIT)
    os.killpg(console.pid, signal.SIGKILL)
    console.wait(60)
    # A busy node may answer too late for the first question.
    seen_until(lambda: home.rankdeck("jobs", "--json").stdout, lambda said: '"running"' in said)
    cancelled = home.rankdeck("cancel", "--grace", "1", "hello")

    assert cancelled.returncode == 0, cancelled.stdout + cancelled.stderr
    for pid in mark.read_text().split():
        wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), 60)


# ---- a login node that is this machine


def with_login(login: str, path: Path, **access: object) -> Cluster:
    """A cluster of Slurm whose login node is `login`; `path` has its programs."""
    return Cluster(
        name="c",
        nodes=(Node(name="n1"),),
        backend="slurm",
        options={"login": login},
        environment={"PATH": f"{path}:{os.defpath}"},
        access=Access(**{"config": "none", "connect_limit": 5.0, **access}),  # type: ignore[arg-type]
    )


@pytest.fixture
def bin_with_sbatch(tmp_path: Path) -> Path:
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("login", ["localhost", "local"])
async def test_a_login_node_that_is_this_machine_is_used_without_ssh(
    bin_with_sbatch: Path, login: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rankdeck")
    async with reach_cluster(with_login(login, bin_with_sbatch), never) as shell:
        done = await run_program(shell, login, ("sh", "-c", "echo $PPID"))

        assert int(done.out) == os.getpid()
        assert shell.way(login).here
    assert login == "local" or "localhost: is this machine, and used without SSH" in caplog.text


@pytest.mark.parametrize("what", ["another user", "no sbatch", "a chosen transport"])
async def test_a_login_node_that_may_be_another_machine_is_reached_over_ssh(
    bin_with_sbatch: Path, tmp_path: Path, what: str
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    path = empty if what == "no sbatch" else bin_with_sbatch
    cluster = with_login("localhost", path, **{"user": "other"} if what == "another user" else {})
    if what == "a chosen transport":
        from rankdeck.model.cluster import Transport

        cluster = with_login("localhost", path, transport=Transport.ASYNCSSH)
    async with reach_cluster(cluster, never) as shell:
        asked = await asyncio.gather(
            run_program(shell, "localhost", ("true",)), return_exceptions=True
        )

        assert not shell.way("localhost").here, asked


async def never(_: object) -> bool:
    return False


# ---- Slurm's nodes, where the cluster file names none

ROWS = (
    ("a1", "debug", "idle", "(null)", "gpu:0", "(null)", "0/4/0/4", "0", "8000", "Unknown", "Unknown", "up", "infinite", "1-infinite", "debug*", "none"),
    ("a2", "debug", "down*", "(null)", "gpu:0", "(null)", "0/0/4/4", "0", "8000", "root", "2026-11-26T10:00:00", "up", "infinite", "1-infinite", "debug*", "bad cable"),
)  # fmt: skip
LINES = ["".join(f"{cell:{width}}" for cell, width in zip(row, NODE_COLUMNS.values(), strict=True)) for row in ROWS]  # fmt: skip
SINFO = "\n".join(f"echo '{line}'" for line in LINES)


def test_a_cluster_file_with_only_a_login_node_shows_slurms_nodes(home: Home) -> None:
    programs = home.folder / "bin"
    programs.mkdir()
    for name, text in {"sinfo": SINFO, "squeue": "", "sbatch": ""}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    (home.folder / "here.yaml").write_text(
        f"cluster: here\nbackend: slurm\nslurm: {{login: local}}\nenvironment: {{PATH: '{programs}:{os.defpath}'}}\n"
    )
    listed = json.loads(home.rankdeck("nodes", "--json", "--wait", "60").stdout)
    status = home.rankdeck("status", "--json", "--wait", "60")

    assert [node["name"] for node in listed["nodes"]] == ["a1", "a2"]
    nodes = json.loads(status.stdout)["nodes"]
    assert {node["name"]: node["slurm"]["state"] for node in nodes} == {"a1": "idle", "a2": "down"}
