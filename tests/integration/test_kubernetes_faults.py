"""What goes wrong around a Kubernetes job, by the command line: exit
codes, sentences, every line once.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.roles import smallest_role
from tests.support.kubernetes.site import Site, doubled
from tests.support.polling import seen_until
from tests.support.rest import rest_of

from rankdeck_agent.schedulers.kubernetes import kubectl_proxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
Act = Callable[[Double], object]


@pytest.fixture
def site(tmp_path: Path, kubernetes, kubectl) -> Site:
    """Rankdeck with the smallest Role, on pods that pretend."""
    where = doubled(kubernetes(processes=False), pretends=True)
    return Site(tmp_path / "site", where, kubectl)


def double_of(site: Site) -> Double:
    assert site.where.double is not None
    return site.where.double


def first_pod(double: Double) -> str:
    return double.all("pods")[0]["metadata"]["name"]


def numbers(lines: list[str]) -> list[int]:
    return [int(line.split("step ")[1].split()[0]) for line in lines if "] step " in line]


def forget(double: Double) -> None:
    double.forget_history()
    double.cut_watches()


SURVIVED: dict[str, Act] = {
    "the watch is cut": Double.cut_watches,
    "the server has forgotten (410)": forget,
    "the server is restarted": Double.restart_server,
    "logs are cut in mid-second": Double.cut_logs,
}


def supervisor(site: Site) -> list[int]:
    (file,) = (site.folder / "home").glob(".local/state/rankdeck/jobs/*/*/supervisor.pid")
    return [int(file.read_text().split()[0])]


KILLED: dict[str, Callable[[Site], list[int]]] = {
    "the keeper": lambda site: site.processes("kubernetes", "keep"),
    "kubectl": lambda site: site.processes("proxy"),
    "the supervisor": supervisor,
}


@pytest.mark.kept("the keeper")
@pytest.mark.parametrize("what", KILLED)
def test_a_job_goes_on_without_a_line_lost_when_this_is_killed(site: Site, what: str) -> None:
    find = KILLED[what]
    process = site.start("run", "--no-preflight", site.steps("killed", run=20, hz=5))
    told = [process.stdout.readline() for _ in range(6)]
    os.kill(*find(site), signal.SIGKILL)
    told += [process.stdout.readline() for _ in range(40)]
    os.kill(*find(site), signal.SIGKILL)
    rest, said = rest_of(process, 90)

    assert process.returncode == 0, said[-800:]
    lines = ("".join(told) + rest).splitlines()
    for rank in (0, 1):
        mine = [line for line in lines if f"[rank {rank}] step" in line]
        assert numbers(mine) == list(range(1, 101)), rank


ENDED: dict[str, tuple[Act, str]] = {
    "evicted": (lambda d: d.evict(first_pod(d)), "low on resource: memory"),
    "out of memory": (lambda d: d.oom(first_pod(d)), "OOMKilled"),
    "namespace": (lambda d: d.delete("namespaces", "default"), "somebody deleted it"),
}


@pytest.mark.parametrize("what", ENDED)
def test_a_job_that_is_ended_from_outside_fails_with_the_reason(site: Site, what: str) -> None:
    act, words = ENDED[what]
    process = site.start("run", "--no-preflight", site.steps("ended", run=600, hz=5))
    told = [process.stdout.readline() for _ in range(6)]
    act(double_of(site))
    rest, said = rest_of(process, 90)

    assert process.returncode not in (0, 2), said[-800:]
    assert words in said
    assert "Traceback" not in said
    first = site.job(site.newest())["first_failure"]
    assert any(words in sentence for sentence in first["evidence"]), json.dumps(first) + said
    assert numbers([*told, *rest.splitlines()]) != []


def test_a_token_that_expires_is_told_and_after_a_new_login_the_job_is_done(site: Site) -> None:
    double = double_of(site)
    job = site.detached(site.steps("expires", run=20, hz=5))
    site.until(job, lambda found: found["state"] == "running")
    double.expire("operator-token")
    double.cut_logs()
    double.cut_watches()
    site.until(job, lambda found: "log in again" in json.dumps(found["troubles"]))
    fresh = double.user("again", [smallest_role()])
    site.where.kubeconfig.write_text(fresh.read_text())
    found = site.until(job, lambda found: found["state"] not in ("pending", "running"))

    assert found["state"] == "done", found
    for rank, said in site.lines(job).items():
        assert numbers(said) == list(range(1, 101)), rank


def test_the_folder_of_a_proxy_that_was_killed_goes_with_the_next_one(
    tmp_path: Path, kubernetes, kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubernetes(processes=False).kubeconfig()))
    monkeypatch.setattr(kubectl_proxy.tempfile, "tempdir", "/tmp")  # a socket's path is short
    left = Path(f"/tmp/rankdeck-kubectl-{os.getpid()}left")
    young = Path(f"/tmp/rankdeck-kubectl-{os.getpid()}young")
    for folder in (left, young):
        folder.mkdir(mode=0o700)
        (folder / "s").touch()
    os.utime(left, (time.time() - 60, time.time() - 60))

    with (
        kubectl_proxy.Proxy("", str(kubectl)) as first,
        kubectl_proxy.Proxy("", str(kubectl)) as second,
    ):
        assert first.alive
        assert second.api.request("GET", "/version")["major"]
        assert (left.exists(), young.exists()) == (False, True)
    (young / "s").unlink()
    young.rmdir()


@pytest.mark.timeout(600)
def test_a_job_that_its_queue_puts_aside_begins_again_and_shows_the_present_run(site: Site) -> None:
    job = site.detached(site.steps("aside", run=20, hz=5))
    first = site.until(job, lambda found: all(r["state"] == "running" for r in found["ranks"]))
    (name,) = site.kubectl("get", "jobs", "-o", "name").split()
    suspend(site, name, aside=True)
    aside = site.until(job, lambda found: all(r["state"] == "pending" for r in found["ranks"]))
    seen_until(site.pods, lambda pods: not pods)
    suspend(site, name, aside=False)
    again = site.until(job, lambda found: all(r["state"] == "running" for r in found["ranks"]))
    found = site.until(job, lambda found: found["state"] not in ("pending", "running"))

    text = "run 1 was put aside by its queue: the ranks begin anew"
    assert aside["troubles"] == [text]
    assert aside["first_failure"] is None
    assert again["ranks"][0]["started"] > first["ranks"][0]["started"]
    assert (found["state"], found["troubles"]) == ("done", [text])
    assert [rank["exit_code"] for rank in found["ranks"]] == [0, 0]
    for rank, said in site.lines(job).items():
        steps = numbers(said)
        assert steps[-100:] == list(range(1, 101)), rank
        assert len(steps) > 100, rank


def suspend(site: Site, name: str, *, aside: bool) -> None:
    """What Kueue does with a job."""
    site.kubectl("patch", name, "--type=merge", "-p", json.dumps({"spec": {"suspend": aside}}))
