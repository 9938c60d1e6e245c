"""Rankdeck on Kubernetes, by its command line: on the double, or unchanged on the
cluster that RANKDECK_TEST_KUBECONFIG names.

See tests/support/kubernetes/site.py for the variables. Tests marked
`needs_kubelet` want containers that really run.
"""

import json
import os
import signal
from pathlib import Path

import pytest
import yaml

from rankdeck.values import replace
from tests.support.kubernetes.site import Site, doubled, pretended, real

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
_SAID = set()


@pytest.fixture
def site(tmp_path, kubernetes, kubectl, request):
    """The cluster; all our objects in its namespace are deleted before and after."""
    where = real()
    if where is None:
        where = doubled(kubernetes(processes=not pretended()), pretends=pretended())
    if where.pretends and request.node.get_closest_marker("needs_kubelet"):
        pytest.skip("needs nodes that run containers")
    site = Site(tmp_path / "site", where, kubectl)
    if (said := site.said()) not in _SAID:
        _SAID.add(said)
        request.config.get_terminal_writer().line(f"\n[{said}]")
    yield site
    for kind in ("mpijobs", "jobs", "pods", "services", "configmaps"):
        site.kubectl(
            "delete", kind, "-l", "app.kubernetes.io/managed-by=rankdeck", "--wait=false", code=None
        )


@pytest.mark.kept
def test_a_job_runs_and_every_line_of_every_rank_is_shown(site):
    done = site.rankdeck("run", site.steps("steps", run=2, hz=5))
    assert done.returncode == 0, done.stderr[-1500:]
    for rank in (0, 1):
        said = [line for line in done.stdout.splitlines() if f"[rank {rank}] step" in line]
        assert [line.split("step ")[1].split()[0] for line in said] == [
            str(n) for n in range(1, 11)
        ]


@pytest.mark.kept
def test_a_job_that_the_server_does_not_take_is_refused_before_it_starts(site):
    done = site.rankdeck("run", site.steps("refused", kubernetes={"namespace": "no-such-one"}))
    assert done.returncode == 2, done.stdout + done.stderr[-1500:]
    assert "kubernetes would not take it" in done.stdout + done.stderr
    assert site.left() == []


def test_without_a_login_a_job_is_refused_with_what_to_do(site):
    unknown = replace(site.where, kubeconfig=site.folder / "none", context="")
    other = Site(site.folder / "other", unknown, site.kubectl_program)
    done = other.rankdeck("run", other.steps("nobody"))
    assert (
        "kubectl has no configuration here: put one in ~/.kube/config" in done.stdout + done.stderr
    )
    assert done.returncode == 2


@pytest.mark.kept
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
    # Two at least: how far rank 0 comes until rank 1 has failed is up to the machine.
    assert len([line for line in kept[0] if "step" in line]) >= 2


@pytest.mark.kept
def test_a_detached_job_is_followed_and_cancelled_and_nothing_with_our_label_is_left(site):
    job = site.detached(site.steps("endless", run=1000, hz=5))
    site.until(job, lambda found: found["state"] == "running")
    done = site.rankdeck("--json", "cancel", job)
    assert done.returncode == 0, done.stdout[-800:] + done.stderr[-800:]
    assert json.loads(done.stdout)["left"] == []
    assert site.left() == []
    assert site.job(job)["state"] == "cancelled"


def test_a_job_that_fits_no_node_says_why_in_the_schedulers_words(site):
    job = site.detached(site.steps("big", kubernetes={"gpus": 1000}))
    found = site.until(
        job, lambda found: "Insufficient nvidia.com/gpu" in json.dumps(found["troubles"])
    )
    assert found["state"] in ("pending", "running")
    assert site.rankdeck("cancel", job).returncode == 0
    assert site.left() == []


def test_a_job_runs_on_the_nodes_that_it_names_one_pod_on_each(site):
    names = site.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()
    if len(names) < 2:
        pytest.skip("the cluster has one node")
    job = site.detached(site.steps("placed", run=1000, on=names[-2:]))
    site.until(job, lambda found: found["state"] == "running")
    assert sorted(nodes_of_pods(site)) == sorted(names[-2:])
    assert site.rankdeck("cancel", job).returncode == 0


def test_a_job_keeps_off_excluded_nodes(site):
    names = site.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()
    if len(names) < 2:
        pytest.skip("the cluster has one node")
    content = {"exclude": names[1:]}
    job = site.detached(site.steps("kept-off", run=1000, kubernetes=content))
    site.until(job, lambda found: found["state"] == "running")
    assert set(nodes_of_pods(site)) == {names[0]}
    assert site.rankdeck("cancel", job).returncode == 0
    assert site.left() == []


def nodes_of_pods(site) -> list[str]:
    ours = ("-l", "app.kubernetes.io/managed-by=rankdeck")
    return site.kubectl("get", "pods", *ours, "-o", "jsonpath={.items[*].spec.nodeName}").split()


def test_a_job_that_somebody_else_deletes_ends_and_says_so(site):
    job = site.detached(site.steps("taken", run=1000))
    site.until(job, lambda found: site.lines(job))
    site.kubectl("delete", "jobs", "-l", "app.kubernetes.io/managed-by=rankdeck", "--wait=false")
    found = site.until(job, lambda found: found["state"] not in ("pending", "running"))
    assert found["state"] in ("failed", "cancelled", "lost")
    assert "delete" in json.dumps(found)


def test_a_killed_console_loses_no_line(site):
    process = site.start("run", "--no-preflight", site.steps("outlives", run=6, hz=5))
    seen = [process.stdout.readline() for _ in range(6)]
    process.kill()
    process.communicate()
    assert any("step" in line for line in seen)
    job = site.newest()
    site.until(job, lambda found: found["state"] == "done")
    for rank, said in site.lines(job).items():
        assert steps_of(said) == list(range(1, 31)), rank


def test_two_consoles_see_one_job_and_either_may_cancel_it(site):
    job = site.detached(site.steps("shared", run=1000))
    first, second = (site.start("logs", "--follow", job) for _ in range(2))
    assert first.stdout.readline()
    assert second.stdout.readline()
    assert site.rankdeck("cancel", job).returncode == 0
    for process in (first, second):
        process.communicate(timeout=300)
    assert site.left() == []


def test_a_killed_proxy_is_started_again_and_no_line_is_lost(site):
    job = site.detached(site.steps("proxied", run=40, hz=5))
    follow = site.start("logs", "--follow", job)
    assert follow.stdout.readline()
    assert kill_proxies(site)
    follow.communicate(timeout=300)
    assert {rank: steps_of(said) for rank, said in site.lines(job).items()} == {
        rank: list(range(1, 201)) for rank in (0, 1)
    }
    assert site.job(job)["state"] == "done"


def kill_proxies(site):
    """SIGKILL every `kubectl proxy` that uses this test's configuration; returns how many."""
    killed = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
            mine = str(site.where.kubeconfig).encode() in (folder / "environ").read_bytes()
        except OSError:
            continue
        if mine and b"proxy" in command and any(b"unix-socket" in word for word in command):
            os.kill(int(folder.name), signal.SIGKILL)
            killed += 1
    return killed


def test_what_is_wrong_with_the_connection_is_one_sentence(site):
    site.cluster({"kubernetes": {"context": "no-such-context"}})
    done = site.rankdeck("run", "--no-preflight", site.steps("nowhere"), limit=40)
    assert done.returncode in (1, 2)
    assert "no-such-context" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.kept
def test_a_dry_run_creates_nothing(site):
    done = site.rankdeck("run", "--dry-run", site.steps("dry"))
    assert done.returncode == 0, done.stderr[-800:]
    assert "completionMode: Indexed" in done.stdout
    assert site.left() == []


def test_a_long_name_runs_or_is_refused_before_anything_is_made(site):
    done = site.rankdeck("run", "--no-preflight", site.steps("n" * 90, run=0.4))
    assert done.returncode in (0, 2), done.stderr[-800:]
    if done.returncode:
        assert site.left() == []


def steps_of(said):
    """The step numbers in a rank's lines."""
    return [int(line.split("step ")[1].split()[0]) for line in said if "] step " in line]


# ---- containers that really run ---------------------------------------------------------


@pytest.mark.needs_kubelet
def test_a_job_is_measured_with_more_pods_and_a_failed_run_is_told(site):
    script = (
        'if [ "$WORLD_SIZE" = 2 ] && [ "$WAY" = bad ]; then exit 3; fi; echo "rate=$WORLD_SIZE"'
    )
    file = site.job_file(
        "scaled", nodes=1, ranks_per_node=1, env={"WAY": "well"},
        progress={"rate": "rate=([0-9]+)"}, command=["sh", "-c", script],
    )  # fmt: skip
    options = ("--ranks", "1,2", "--set", "env.WAY=well,bad", "--repeat", "1", "--yes")
    done = site.rankdeck("--json", "scale", file, *options, "--no-preflight")
    assert done.returncode == 1, done.stderr[-1500:]
    study = json.loads(done.stdout)
    well, bad = study["curves"]
    assert [point["median"] for point in well["points"]] == [1.0, 2.0]
    assert [point["median"] for point in bad["points"]] == [1.0, None]
    assert any("exit 3" in one["text"] for one in study["verdicts"])


@pytest.mark.needs_kubelet
def test_files_variables_streams_and_the_end_of_each_rank_are_told(site):
    script = (
        'cat "$RANKDECK_RUN/a.txt"; echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK, $COLOUR"; '
        'echo "to stderr" >&2; if [ "$RANK" = 3 ]; then kill -9 $$; fi'
    )
    file = site.job_file(
        "told",
        ranks_per_node=2,
        env={"COLOUR": "green and blue"},
        files={"a.txt": "from a file\n"},
        command=["sh", "-c", script],
    )
    done = site.rankdeck("--json", "run", "--no-preflight", file)
    job = json.loads(done.stdout.splitlines()[-1])
    said = site.lines(job["job"], "--stream", "out")
    for rank in range(4):
        assert said[rank] == ["from a file", f"rank {rank} of 4, local {rank % 2}, green and blue"]
    assert site.lines(job["job"], "--stream", "err")[1] == ["to stderr"]
    ends = {rank["rank"]: (rank["exit_code"], rank["signal"]) for rank in job["ranks"]}
    assert ends[3][1] == 9 or ends[3][0] == 137
    assert job["first_failure"]["rank"] == 3


@pytest.mark.needs_kubelet
def test_torchrun_joins_its_ranks_over_the_headless_service(site):
    if site.where.double:
        pytest.skip("on the double the page docs/examples/torchrun-on-kubernetes.md shows it")
    if not site.where.images.get("torchrun"):
        pytest.skip("needs RANKDECK_TEST_TORCH_IMAGE")
    program = (
        "import torch, torch.distributed as d\nd.init_process_group('gloo')\n"
        "x = torch.ones(1) * d.get_rank()\nd.all_reduce(x)\n"
        "print('sum', int(x), 'rank', d.get_rank(), flush=True)\nd.destroy_process_group()\n"
    )
    file = site.job_file(
        "joined",
        "torchrun",
        ranks_per_node=2,
        env={"OMP_NUM_THREADS": "1"},
        files={"p.py": program},
        command=["${RANKDECK_RUN}/p.py"],
    )
    job = json.loads(
        site.rankdeck("--json", "run", "--no-preflight", file, limit=120).stdout.splitlines()[-1]
    )
    assert job["state"] == "done", (
        job,
        site.rankdeck("logs", job["job"], "--launcher").stdout[-3000:],
    )
    said = site.lines(job["job"])
    assert {rank: [line for line in said[rank] if "sum" in line] for rank in range(4)} == {
        rank: [f"sum 6 rank {rank}"] for rank in range(4)
    }


@pytest.mark.kept("openmpi4")
@pytest.mark.needs_kubelet
@pytest.mark.parametrize("flavour", ["openmpi4", "openmpi5"])
def test_mpi_runs_on_every_host_and_its_lines_are_told_apart(site, flavour, need):
    path = "mpirun"
    if site.where.double and flavour == "openmpi5":
        pytest.skip("on the double the page docs/examples/mpi-on-kubernetes.md shows it")
    if site.where.double:
        need("mpirun.openmpi")
        path = "/usr/bin/mpirun.openmpi"
    elif not site.where.images.get("mpi"):
        pytest.skip("needs RANKDECK_TEST_MPI_IMAGE")
    file = site.job_file(
        "mpi",
        "mpi",
        ranks_per_node=2,
        mpi={"flavour": flavour, "path": path},
        command=["sh", "-c", 'echo "rank $OMPI_COMM_WORLD_RANK on $(hostname)"; echo done'],
    )
    job = json.loads(
        site.rankdeck("--json", "run", "--no-preflight", file, limit=120).stdout.splitlines()[-1]
    )
    assert job["state"] == "done", (
        job,
        site.rankdeck("logs", job["job"], "--launcher").stdout[-3000:],
    )
    said = site.lines(job["job"])
    for rank in range(4):
        assert said[rank][0].startswith(f"rank {rank} on "), said
        assert said[rank][0].endswith(f"worker-{rank // 2}"), said
        assert said[rank][1:] == ["done"]


@pytest.mark.needs_kubelet
def test_an_image_that_cannot_be_pulled_is_said(site):
    if site.where.double:
        site.where.double.bad_image("registry.invalid/.*", "no such host")
    file = site.steps("nopull", container={"image": "registry.invalid/none:1"})
    job = site.detached(file)
    site.until(
        job,
        lambda found: (
            "registry.invalid/none" in json.dumps(found["troubles"])
            or "Pull" in json.dumps(found["troubles"])
        ),
    )
    assert site.rankdeck("cancel", job).returncode == 0
    assert site.left() == []


def test_status_waits_for_what_the_server_says_of_nodes_that_no_ssh_reaches(site):
    names = site.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()[:2]
    admin = replace(site.where, kubeconfig=site.where.admin or site.where.kubeconfig)
    site = Site(site.folder, admin, site.kubectl_program)
    content = yaml.safe_load((site.folder / "k8s.yaml").read_text())
    # Nothing listens on that port: SSH fails long before kubectl has begun.
    nodes = [{"name": name, "address": "127.0.0.1", "port": 9} for name in names]
    site.cluster({**content, "nodes": nodes})

    done = site.rankdeck("status", "--json", "--wait", "120")

    (found,) = map(json.loads, done.stdout.splitlines())
    ready = {
        node["name"]: [one["status"] for one in node["kubernetes"]["conditions"] if one["type"] == "Ready"]
        for node in found["nodes"]
    }  # fmt: skip
    assert ready == {name: ["True"] for name in names}


@pytest.mark.kept
def test_acceptance_says_what_it_needs_before_it_starts_anything(site):
    done = site.rankdeck("accept", "--recipe", "iperf3", "--json")

    assert (done.returncode, done.stdout) == (3, "")
    assert "`--like JOB`" in done.stderr
    assert "Traceback" not in done.stderr
    assert site.left() == []


@pytest.mark.needs_kubelet
def test_acceptance_measures_pairs_of_pods_each_on_its_node(site, need):
    need("iperf3")
    names = site.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()[:3]
    if len(names) < 3:
        pytest.skip("the cluster has less than three nodes")
    content = yaml.safe_load((site.folder / "k8s.yaml").read_text())
    site.cluster({**content, "nodes": [{"name": name, "slots": 2} for name in names]})
    like = site.job_file("like", command=["true"])
    options = ("--recipe", "iperf3", "--only", "pairs", "--repeats", "1", "--seconds", "1")

    done = site.rankdeck("--json", "accept", ",".join(names), *options, "--like", like, "--yes")

    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    results = [one for one in found["results"] if one["stage"] == "pairs"]
    assert {one["outcome"] for one in results} == {"measured"}, done.stdout[-2000:] + done.stderr
    assert sorted((one["sender"], one["receiver"]) for one in results) == sorted(
        (one, other) for one in names for other in names if one != other
    )
    assert {pod["status"]["phase"] for pod in site.pods()} <= {"Succeeded"}
