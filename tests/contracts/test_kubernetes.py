"""Rankdeck on Kubernetes, by its command line: on the double, or unchanged on the cluster that RANKDECK_TEST_KUBECONFIG names.

See tests/support/kubernetes/site.py for the variables. Tests marked `needs_kubelet` want containers that really run.
"""

import json

import pytest

from tests.support.kubernetes.site import Site, Where, pretended, real

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
_SAID = set()


@pytest.fixture
def site(tmp_path, kubernetes, kubectl, request):
    """The cluster; everything of ours in its namespace is gone before and after."""
    where = real()
    if where is None:
        double = kubernetes(processes=not pretended())
        images = dict.fromkeys(("plain", "mpi", "torchrun"), "double/image")
        where = Where(
            double.kubeconfig(), "double", images=images, double=double, pretends=pretended()
        )
    if where.pretends and request.node.get_closest_marker("needs_kubelet"):
        pytest.skip("needs nodes that run containers")
    site = Site(tmp_path / "site", where, kubectl)
    if (said := site.said()) not in _SAID:
        _SAID.add(said)
        request.config.get_terminal_writer().line(f"\n[{said}]")
    yield site
    for kind in ("jobs", "pods", "services", "configmaps"):
        site.kubectl(
            "delete", kind, "-l", "app.kubernetes.io/managed-by=rankdeck", "--wait=false", code=None
        )


def test_a_job_runs_and_every_line_of_every_rank_is_shown(site):
    done = site.rankdeck("run", "--no-preflight", site.steps("steps", run=2, hz=5))
    assert done.returncode == 0, done.stderr[-1500:]
    for rank in (0, 1):
        said = [line for line in done.stdout.splitlines() if f"[rank {rank}] step" in line]
        assert [line.split("step ")[1].split()[0] for line in said] == [
            str(n) for n in range(1, 11)
        ]


def test_a_failed_rank_is_named_with_its_status_and_the_others_output_is_kept(site):
    done = site.rankdeck(
        "--json", "run", "--no-preflight", site.steps("fails", run=60, hz=5, fail=(1, 1))
    )
    assert done.returncode == 3, done.stderr[-1500:]
    job = json.loads(done.stdout.splitlines()[-1])
    assert job["state"] == "failed"
    assert job["first_failure"]["rank"] == 1
    assert job["first_failure"]["exit_code"] == 3
    kept = site.lines(job["job"])
    assert len([line for line in kept[0] if "step" in line]) >= 4


def test_a_detached_job_is_followed_and_cancelled_and_nothing_with_our_label_is_left(site):
    job = site.detached(site.steps("endless", run=1000, hz=5))
    site.until(job, lambda found: found["state"] == "running")
    done = site.rankdeck("--json", "cancel", job)
    assert done.returncode == 0, done.stdout[-800:] + done.stderr[-800:]
    assert json.loads(done.stdout)["left"] == []
    assert site.left() == []
    assert site.job(job)["state"] == "cancelled"
