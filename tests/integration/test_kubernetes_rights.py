"""What a user may not do on Kubernetes is refused before anything is sent; the
documented Role is enough, and no more.
"""

from pathlib import Path

import pytest
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.manifests import indexed_job
from tests.support.kubernetes.pretend import Script
from tests.support.kubernetes.roles import smallest_role
from tests.support.kubernetes.site import Site, doubled
from tests.support.polling import wait_until

from rankdeck.values import replace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]


@pytest.fixture
def site(tmp_path: Path, kubernetes, kubectl) -> Site:
    """Rankdeck with the smallest Role, on pods that pretend."""
    where = doubled(kubernetes(processes=False), pretends=True)
    return Site(tmp_path / "site", where, kubectl)


def double_of(site: Site) -> Double:
    assert site.where.double is not None
    return site.where.double


def restrict(site: Site, without: str) -> None:
    """From now on one right of the Role is missing."""
    config = double_of(site).user("operator2", [smallest_role(without=without)])
    site.where = replace(site.where, kubeconfig=config)


def test_every_right_of_the_smallest_role_is_used_and_no_other_is_asked_for(site: Site) -> None:
    double = double_of(site)
    double.script(".*launcher.*", Script("out", lasting=60))
    double.script("unreachable-.*", Script("out", lasting=600))
    assert site.rankdeck("run", site.steps("short", run=6)).returncode == 0
    mpi = site.detached(site.job_file("mpi", "mpi", command=["x"], ranks_per_node=1))
    # Some without an owner, as a start that was killed leaves it: the
    # collector does not come before us.
    (labels,) = [one["metadata"]["labels"] for one in double.all("mpijobs")]
    double.post(
        "services", {"metadata": {"name": "left", "labels": labels}, "spec": {"clusterIP": "None"}}
    )
    double.post("configmaps", {"metadata": {"name": "left", "labels": labels}, "data": {}})
    assert site.rankdeck("cancel", mpi).returncode == 0
    assert "left" not in [one["metadata"]["name"] for one in double.all("services")]
    job = site.detached(site.steps("unreachable", run=600))
    site.until(job, lambda found: found["state"] == "running")
    double.rotate_logs()
    pods = [pod for pod in double.all("pods") if pod["metadata"]["name"].startswith("unreachable")]
    double.lose_node(pods[0]["spec"]["nodeName"])
    assert site.rankdeck("cancel", job).returncode == 1

    used = {(verb, what) for user, verb, what in double.access.used if user == "operator"}

    role = smallest_role()
    assert used == {(rule["verbs"][0], rule["resources"][0]) for rule in role["rules"]}


@pytest.mark.parametrize(
    "right", ["create jobs", "create configmaps", "watch pods", "get pods/log"]
)
def test_a_job_that_may_not_be_started_is_refused_before_anything_is_sent(
    site: Site, right: str
) -> None:
    restrict(site, right)

    done = site.rankdeck("run", "--no-preflight", site.steps("never"))

    verb, _, resource = right.partition(" ")
    assert done.returncode in (1, 2)
    assert f"you may not {verb} {resource}" in done.stderr
    assert "docs/kubernetes.md has the Role" in done.stderr
    assert site.left() == []
    written = [path for method, path in double_of(site).api.requests if method == "POST"]
    assert all("selfsubject" in path for path in written)


@pytest.mark.kept
def test_a_cancel_that_may_not_be_done_is_refused_before_anything_is_sent(site: Site) -> None:
    job = site.detached(site.steps("stays", run=600))
    site.until(job, lambda found: found["state"] == "running")
    allowed = site.where
    restrict(site, "delete jobs")

    done = site.rankdeck("cancel", job)

    assert done.returncode in (1, 2)
    assert "you may not delete jobs.batch" in done.stderr
    assert "DELETE" not in {method for method, _ in double_of(site).api.requests}
    assert site.job(job)["state"] == "running"
    site.where = allowed
    assert site.rankdeck("cancel", job).returncode == 0


def test_a_job_of_others_that_may_not_be_read_is_not_followed(site: Site) -> None:
    double = double_of(site)
    double.post("jobs", indexed_job("train", ["x"]))
    wait_until(lambda: double.all("pods"), 60, "its pods")
    restrict(site, "get pods/log")

    done = site.rankdeck("logs", "job/train")

    assert done.returncode in (1, 2)
    assert "you may not get pods/log" in done.stderr


def test_without_the_right_to_read_events_a_job_runs_all_the_same(site: Site) -> None:
    restrict(site, "list events")

    done = site.rankdeck("run", "--no-preflight", site.steps("mute", run=1))

    assert done.returncode == 0, done.stderr[-800:]
