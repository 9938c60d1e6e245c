"""kubectl on another machine, over a real SSH connection: launch, follow,
cancel, reattach, and the connection cut.
"""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.kubernetes.site import OUR_LABEL, Site, doubled
from tests.support.polling import wait_until
from tests.support.rest import rest_of
from tests.support.sshd import Nodes, Sshd, nodes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]


class Login:
    """One SSH server in a thread of its own."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        root.mkdir()
        self.root, self._environment = root, environment
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._context = nodes(root, ("head",))
        made: Nodes = self._wait(self._context.__aenter__())
        self.sshd: Sshd = made.sshd["head"]
        self.sshd.environment.update(environment)

    def _wait(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def cut(self) -> None:
        """Break every connection."""
        self._loop.call_soon_threadsafe(self.sshd.cut)

    def close(self) -> None:
        self._wait(self._context.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


@pytest.fixture
def login(tmp_path: Path, kubernetes, kubectl) -> Iterator[tuple[Site, Login]]:
    """A console whose cluster file names a login node; kubectl and
    its configuration are there alone.
    """
    where = doubled(kubernetes(processes=False), pretends=True)
    path = f"{kubectl.parent}:{os.environ['PATH']}"
    server = Login(tmp_path / "head", {"PATH": path, "KUBECONFIG": str(where.kubeconfig)})
    site = Site(tmp_path / "site", where, kubectl)
    point_to(site, server)
    yield site, server
    server.close()


def point_to(site: Site, server: Login) -> None:
    """Write the cluster file; the SSH configuration says where `head` is."""
    config = server.root / "ssh_config"
    config.write_text(
        f"Host head\n  HostName 127.0.0.1\n  Port {server.sshd.port}\n  User tester\n"
        f"  IdentityFile {server.root}/id\n  UserKnownHostsFile {server.root}/known_hosts\n"
    )
    options = {"login": "head", "namespace": "default"}
    site.cluster({"kubernetes": options, "ssh": {"config": str(config)}})
    assert site.rankdeck("trust", "k8s.yaml").returncode == 0


def steps(lines: list[str]) -> list[int]:
    return [int(line.split("step ")[1].split()[0]) for line in lines if "] step " in line]


@pytest.mark.kept
def test_a_job_runs_through_the_login_node_and_every_line_is_kept_there(login) -> None:
    site, server = login
    done = site.rankdeck("run", site.steps("far", run=2, hz=5))

    assert done.returncode == 0, done.stderr[-1500:]
    assert steps(done.stdout.splitlines()) != []
    job = site.newest()
    assert {rank: steps(said) for rank, said in site.lines(job).items()} == {
        rank: list(range(1, 11)) for rank in (0, 1)
    }
    assert list((server.sshd.home / "state").rglob("rank.1/out"))


def test_a_cut_connection_loses_no_line(login) -> None:
    site, server = login
    process = site.start("run", "--no-preflight", site.steps("cut", run=10, hz=5))
    seen = [process.stdout.readline() for _ in range(8)]
    server.cut()
    rest, said = rest_of(process, 90)

    assert process.returncode == 0, said[-800:]
    told = "".join(seen) + rest
    for rank in (0, 1):
        mine = [line for line in told.splitlines() if f"[rank {rank}] step" in line]
        assert steps(mine) == list(range(1, 51)), rank


def test_another_console_takes_up_and_cancels_what_the_first_one_started(login, tmp_path) -> None:
    site, server = login
    job = site.detached(site.steps("shared", run=600))
    site.until(job, lambda found: found["state"] == "running")
    other = Site(tmp_path / "other", site.where, site.kubectl_program)
    point_to(other, server)

    said = other.rankdeck("logs", job)
    assert said.returncode == 0, said.stderr[-800:]
    assert "step 1" in said.stdout
    done = other.rankdeck("cancel", job)

    assert done.returncode == 0, done.stdout + done.stderr[-800:]
    assert site.kubectl("get", "pods,jobs,services,configmaps", "-l", OUR_LABEL) == ""
    wait_until(lambda: site.job(job)["state"] == "cancelled", 30, "the first console's word")
