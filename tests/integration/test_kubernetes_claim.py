"""What nobody here followed: jobs whose keeper was killed, and lines
that only their volume claim has.
"""

import contextlib
import os
import signal
from pathlib import Path

import pytest
from tests.support.kubernetes.roles import smallest_role
from tests.support.kubernetes.site import OUR_LABEL, Site, doubled
from tests.support.polling import wait_until

from rankdeck.values import replace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]


@pytest.fixture
def site(tmp_path: Path, kubernetes, kubectl) -> Site:
    """A console on a double whose pods are real processes, with the volume claim `kept`."""
    double = kubernetes()
    double.claim("kept")
    where = doubled(double)
    config = double.user("operator", [smallest_role(more="create pods")])
    return Site(tmp_path / "site", replace(where, kubeconfig=config), kubectl)


GATE = f"3600.{os.getpid()}"
GATED = (
    'n=0; while [ "$n" -lt 30 ]; do n=$((n+1)); echo "[rank $JOB_COMPLETION_INDEX] step $n loss 0.5"; '
    f'if [ "$n" -eq 10 ]; then sleep {GATE}; fi; done'
)
"""Waits after ten of its thirty steps, until `open_gate`."""


def gated(site: Site, name: str, **options: object) -> str:
    """The id of a started job whose two ranks wait."""
    file = site.job_file(name, command=["sh", "-c", GATED], ranks_per_node=1, **options)
    return site.detached(file)


def open_gate() -> None:
    """Let the job go on: end the `sleep` of each of its ranks,
    which are processes of this machine.
    """

    def waiting() -> list[int]:
        found: list[int] = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if path.read_bytes() == f"sleep\0{GATE}\0".encode():
                    found.append(int(path.parent.name))
        return found

    wait_until(lambda: len(waiting()) == 2, what="that both ranks wait")
    for pid in waiting():
        os.kill(pid, signal.SIGKILL)


def kill_all_that_keeps(site: Site, job: str) -> int:
    """kill -9 of the supervisor, the keeper and kubectl, as when
    their machine loses power; how many.
    """
    folder = next((site.folder / "home").glob(f".local/state/rankdeck/jobs/{job}/*"))
    pids = [int((folder / "supervisor.pid").read_text().split()[0])]
    marks = (f"RANKDECK_JOB={job}\0".encode(), f"HOME={site.folder}/home\0".encode())
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            told = path.read_bytes()
        except OSError:
            continue
        if all(mark in told for mark in marks):
            pids.append(int(path.parent.name))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def steps(lines: list[str]) -> list[int]:
    return [int(line.split("step ")[1].split()[0]) for line in lines if "] step " in line]


def over(site: Site) -> bool:
    return all("completionTime" in job["status"] for job in site.where.double.all("jobs"))


def lose_pods(site: Site) -> None:
    """The pods go, and their logs with them."""
    double = site.where.double
    for pod in double.all("pods"):
        double.delete("pods", pod["metadata"]["name"])
    wait_until(lambda: not double.all("pods"), 60, "the end of the pods")


@pytest.mark.kept
def test_lines_that_the_api_has_lost_come_from_the_claim_and_none_twice(site: Site) -> None:
    job = gated(site, "gone", kubernetes={"logs": "kept"})
    site.until(job, lambda found: len(site.lines(job).get(1, [])) > 3)
    assert kill_all_that_keeps(site, job) >= 3
    open_gate()
    wait_until(lambda: over(site), 40, "the end of the job")
    lose_pods(site)

    found = site.until(job, lambda found: found["state"] not in ("pending", "running", "lost"))

    assert found["state"] == "done", found
    assert {rank: steps(said) for rank, said in site.lines(job).items()} == {
        rank: list(range(1, 31)) for rank in (0, 1)
    }
    assert [rank["exit_code"] for rank in found["ranks"]] == [0, 0]
    assert site.where.double.all("pods") == []


def test_a_job_whose_keeper_died_with_its_machine_goes_on_when_somebody_looks(site: Site) -> None:
    job = gated(site, "reboot")
    site.until(job, lambda found: len(site.lines(job).get(1, [])) > 3)
    assert kill_all_that_keeps(site, job) >= 3

    found = site.until(job, lambda found: found["state"] == "running" and found["troubles"])
    assert any("it goes on" in text for text in found["troubles"])
    open_gate()
    found = site.until(job, lambda found: found["state"] not in ("pending", "running", "lost"))

    assert found["state"] == "done", found
    for rank, said in site.lines(job).items():
        assert steps(said) == list(range(1, 31)), rank


def test_a_cancel_after_that_leaves_nothing(site: Site) -> None:
    job = site.detached(site.steps("reboot", run=600, kubernetes={"logs": "kept"}))
    site.until(job, lambda found: site.lines(job))
    kill_all_that_keeps(site, job)

    done = site.rankdeck("--json", "cancel", job)

    assert done.returncode == 0, done.stdout + done.stderr[-800:]
    assert site.kubectl("get", "pods,jobs,services,configmaps", "-l", OUR_LABEL) == ""
