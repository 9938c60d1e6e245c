"""The keeper of Kubernetes jobs through the real `kubectl proxy`,
on the double, while things break.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable

import pytest
from tests.support.kubernetes.defaults import completed
from tests.support.kubernetes.kept import JOB, Kept
from tests.support.kubernetes.kinds import ADDED, BUILT_IN
from tests.support.kubernetes.kinds import JOB as JOBS
from tests.support.polling import wait_until

from rankdeck.values import replace
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.verdict import read_verdict
from rankdeck_agent.rules.scheduler_verdict import VerdictKind

pytestmark = [pytest.mark.slow, pytest.mark.left_out]


@pytest.fixture
def keeper(kubernetes, kubectl, tmp_path):
    """`keeper(**settings)`: a keeper that is not started yet, with a double of pretended pods."""
    made: list[Kept] = []

    def make(kinds=("mpijobs",), **settings) -> Kept:
        double = kubernetes(processes=False, kinds=kinds)
        made.append(Kept(double, kubectl, tmp_path / "keeper", **settings))
        made[-1].speak()
        return made[-1]

    (tmp_path / "keeper").mkdir()
    yield make
    for one in made:
        one.down()


def everything(kept: Kept) -> list[str]:
    kinds = ("pods", "jobs", "services", "configmaps")
    return [f"{kind}/{o['metadata']['name']}" for kind in kinds for o in kept.double.all(kind)]


def verdict_kind(kept) -> VerdictKind | None:
    """What the keeper left for the supervisor about the end of the job."""
    found = read_verdict(RunFolder(kept.folder, "t", "localhost"))
    return found.kind if found else None


@pytest.mark.kept
def test_all_is_kept_and_the_exit_status_is_the_jobs(keeper) -> None:
    kept = keeper()
    kept.double.pods_late(0.3)
    kept.speak(lasting=1.0)
    kept.speak(lasting=1.0, code=3, rank=1)

    assert kept.start().wait() == 3, kept.said()
    assert kept.lines(0) == kept.written(0) != []
    assert kept.lines(1) == kept.written(1) != []
    assert kept.exit(1) == "3"
    assert "failed: rank 1 exit 3" in kept.said() or "failed: pod j-1" in kept.said()
    assert kept.kubectls() == []
    assert list((kept.folder.path.parents[4] / "tmp").iterdir()) == []


def kill_proxy(kept: Kept) -> None:
    for pid in kept.kubectls():
        # One that only asks a question may have ended by itself.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def gone_history(kept: Kept) -> None:
    kept.double.forget_history()
    kept.double.cut_watches()


BREAKS: dict[str, Callable[[Kept], object]] = {
    "the watch is cut": lambda kept: kept.double.cut_watches(),
    "the server has forgotten": gone_history,
    "logs are cut in mid-second": lambda kept: kept.double.cut_logs(),
    "logs are rotated": lambda kept: kept.double.rotate_logs(),
    "the server is restarted": lambda kept: kept.double.restart_server(),
    "kubectl is killed": kill_proxy,
}


@pytest.mark.kept("kubectl is killed")
@pytest.mark.parametrize("what", BREAKS)
def test_no_line_is_lost_or_doubled_when(what: str, keeper) -> None:
    kept = keeper()
    kept.speak(lasting=6.0)
    kept.start()
    for lines in (3, 20, 40):
        kept.runs(lines)
        BREAKS[what](kept)

    assert kept.wait() == 0, kept.said()
    for rank in range(kept.pods):
        there = kept.written(rank)
        # Of a log that is rotated nobody has the older lines any more.
        assert kept.lines(rank)[-len(there) :] == there
        assert kept.lines(rank) == [f"line {n + 1}" for n in range(len(kept.lines(rank)))]
        assert kept.exit(rank) == "0"


def test_a_log_that_falls_silent_is_opened_again_without_a_line_lost_or_doubled(keeper) -> None:
    """Kubelets before 1.30 stop a follow when they rotate the log, and do not end it."""
    kept = keeper()
    kept.speak(lasting=24.0)
    kept.start()
    kept.runs(5)
    kept.double.stick_logs()
    before = len(kept.lines(0))
    wait_until(lambda: len(kept.lines(0)) > before + 20, 20, "lines although the stream is silent")
    kept.double.stick_logs()

    assert kept.wait() == 0, kept.said()
    for rank in range(kept.pods):
        assert kept.lines(rank) == kept.written(rank)
    assert "is lost" not in kept.said()


def test_logs_of_many_pods_that_fall_silent_are_opened_again_as_soon_as_those_of_few(
    keeper,
) -> None:
    kept = keeper(pods=60)
    kept.speak(every=1.0, lasting=60.0)
    kept.start()
    kept.runs(3, 60)
    kept.double.stick_logs()
    before = [len(kept.lines(rank)) for rank in range(kept.pods)]

    # A minute would be over only when the ranks are.
    kept.runs(max(before) + 5, 45)


@pytest.mark.parametrize("minor", [24, 26, 27])
def test_an_older_server_has_the_output_of_every_rank(minor: int, keeper) -> None:
    kept = keeper()
    kept.double.be_version(minor)
    kept.speak(lasting=1.0)

    assert kept.start().wait() == 0, kept.said()
    for rank in range(kept.pods):
        assert kept.lines(rank) == kept.written(rank) != []


def test_a_host_without_enough_files_says_before_the_job_which_output_is_not_kept(keeper) -> None:
    kept = keeper()
    kept.files = 100 + 3

    assert kept.start().wait() == 0
    said = kept.said()
    assert "the output of 2 pods cannot be kept here: this host lets a program open 103 files" in said  # fmt: skip
    assert said.index("cannot be kept") < said.index("created")


def test_the_output_of_every_rank_is_kept_of_more_than_256_pods(keeper) -> None:
    kept = keeper(pods=260)
    kept.speak(every=0.5, lasting=2.0)

    assert kept.start().wait(150) == 0, kept.said()
    for rank in (1, 130, 258):
        assert kept.lines(rank) == kept.written(rank) != []
    assert all(kept.exit(rank) == "0" for rank in range(kept.pods))


@pytest.mark.kept
def test_a_keeper_that_is_killed_and_started_again_goes_on_where_it_was(keeper) -> None:
    kept = keeper()
    kept.speak(lasting=6.0)
    for lines in (1, 15, 40):
        kept.start()
        kept.runs(lines)
        kept.kill()
    wait_until(lambda: not kept.kubectls(), what="the end of kubectl")

    assert kept.start().wait() == 0
    for rank in range(kept.pods):
        assert kept.lines(rank) == kept.written(rank)
    assert len(kept.double.all("jobs")) == 1


def test_a_keeper_on_another_host_takes_up_the_job_with_all_its_lines(
    keeper, tmp_path, kubectl
) -> None:
    first = keeper()
    first.speak(lasting=5.0)
    first.start()
    first.runs(10)
    (tmp_path / "other").mkdir()
    other = Kept(first.double, kubectl, tmp_path / "other")
    (other.folder / "kubernetes.created").touch()

    assert other.start().wait() == 0
    assert first.wait() == 0
    assert len(first.double.all("jobs")) == 1
    for rank in range(first.pods):
        assert other.lines(rank) == first.lines(rank) == first.written(rank)


@pytest.mark.kept
def test_a_cancel_leaves_nothing_and_names_nobody_else(keeper) -> None:
    kept = keeper()
    kept.speak(lasting=60.0)
    kept.start()
    kept.runs()

    assert kept.term() == 128 + signal.SIGTERM
    assert everything(kept) == []
    assert "nothing of it is left" in kept.said()
    assert verdict_kind(kept) is VerdictKind.CANCELLED
    assert "somebody" not in kept.said()
    assert kept.kubectls() == []


def test_two_hundred_open_logs_hold_up_no_cancel(keeper) -> None:
    kept = keeper(pods=200)
    kept.speak(every=1.0, lasting=600.0)
    kept.start()
    kept.runs(1, limit=90)

    assert kept.term(90) == 128 + signal.SIGTERM
    assert everything(kept) == []
    assert "nothing of it is left" in kept.said()
    assert all(kept.lines(rank) == kept.written(rank) for rank in range(0, 200, 20))


def test_a_cancel_ends_what_a_killed_keeper_left(keeper) -> None:
    kept = keeper()
    kept.speak(lasting=60.0)
    kept.start()
    kept.runs()
    kept.kill()

    answer = kept.agent("job", "cancel", JOB, "here", "--grace", "2")

    assert answer["left"] == []
    assert everything(kept) == []


@pytest.mark.kept
def test_a_cancel_names_what_it_cannot_reach(keeper) -> None:
    kept = keeper()
    kept.speak(lasting=60.0)
    kept.start()
    kept.runs()
    kept.kill()
    kept.double.stop_server()
    (left,) = kept.agent("job", "cancel", JOB, "here", "--grace", "0")["left"]
    kept.double.start_server()

    assert "the Kubernetes server does not answer" in left["command"]


def test_a_cancel_before_any_pod_exists_leaves_nothing(keeper) -> None:
    kept = keeper()
    kept.double.pods_late(20)
    kept.start()
    wait_until(lambda: "no pod exists yet" in kept.said(), 60, "the keeper's word")

    assert kept.term() == 128 + signal.SIGTERM
    assert everything(kept) == []


def time_is_over(double) -> None:
    """As where a policy of the site gives every Job a time limit."""
    double.change("jobs", JOB, lambda job: job["spec"].update(activeDeadlineSeconds=1))


@pytest.mark.parametrize(
    ("act", "words", "kind"),
    [
        (lambda d: d.delete("jobs", JOB), "somebody deleted it", VerdictKind.GONE),
        (lambda d: d.delete("namespaces", "default"), "somebody deleted it", VerdictKind.GONE),
        (lambda d: d.evict(d.all("pods")[0]["metadata"]["name"]), "low on resource: memory", VerdictKind.TAKEN_AWAY),
        (lambda d: d.oom(d.all("pods")[0]["metadata"]["name"]), "OOMKilled", VerdictKind.NO_MEMORY),
        (lambda d: d.delete("pods", d.all("pods")[0]["metadata"]["name"]), "was deleted on node", VerdictKind.TAKEN_AWAY),
        (time_is_over, "its time limit (activeDeadlineSeconds) was over", VerdictKind.TIME_LIMIT),
    ],
    ids=["job", "namespace", "evicted", "oom", "pod", "limit"],
)  # fmt: skip
def test_a_job_that_is_ended_from_outside_fails_with_the_reason(
    keeper, act, words: str, kind: VerdictKind
) -> None:
    kept = keeper()
    kept.speak(lasting=60.0)
    kept.start()
    kept.runs()
    act(kept.double)

    assert kept.wait() not in (0, None)
    assert words in kept.said()
    assert verdict_kind(kept) is kind
    assert kept.lines(1) == kept.written(1)


def test_a_token_that_expires_is_told_and_a_new_login_goes_on(keeper) -> None:
    kept = keeper()
    kept.speak(lasting=14.0, every=0.2)
    kept.start()
    kept.runs()
    kept.double.expire()
    kept.double.cut_logs()
    kept.double.cut_watches()
    wait_until(lambda: "log in again" in kept.said(), 60, "the keeper's word")
    kept.double.user("again", [ALL])
    kept.config.write_text((kept.double.folder / "config.again").read_text())

    assert kept.wait() == 0
    for rank in range(kept.pods):
        assert kept.lines(rank) == kept.written(rank)


ALL = {
    "kind": "ClusterRole",
    "metadata": {"name": "all"},
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
}


@pytest.mark.kept("image")
@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda d: d.bad_image("x"), "manifest unknown"),
        (lambda d: d.shellless("x"), "no `sh`"),
        (lambda d: d.expire(), "log in again"),
        (lambda d: d.stop_server(), "does not answer"),
    ],
    ids=["image", "shell", "login", "server"],
)
def test_what_keeps_a_job_from_starting_is_told(keeper, prepare, words: str) -> None:
    kept = keeper()
    prepare(kept.double)
    kept.start()

    wait_until(lambda: words in kept.said(), 30, words)


def test_a_refused_object_takes_back_those_before_it(keeper) -> None:
    kept = keeper()
    manifest = kept.folder / "manifest.json"
    map_ = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {}}'
    job = manifest.read_text()[1:].replace('"completions"', '"complexions"')
    manifest.write_text(f"[{map_}, {job}")

    assert kept.start().wait() == 1
    assert "complexions" in kept.said()
    assert verdict_kind(kept) is VerdictKind.REFUSED
    wait_until(lambda: everything(kept) == [], what="the deletion")


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_job_in_a_queue_waits_in_the_words_of_whatever_kueue_there_is(keeper, version) -> None:
    kept = keeper(kinds=("workloads",))
    kind = replace(ADDED["workloads"], version=version)
    kept.double.api.kinds = (*BUILT_IN, kind)
    job = kept.manifest()
    job["spec"]["suspend"] = True
    (kept.folder / "manifest.json").write_text(json.dumps([job]))
    kept.start()
    wait_until(lambda: kept.double.all("jobs"), 30, "the job")
    (made,) = kept.double.all("jobs")
    name = {
        "name": "w",
        "namespace": "default",
        "labels": {"kueue.x-k8s.io/job-uid": made["metadata"]["uid"]},
    }
    waits = {"type": "QuotaReserved", "status": "False", "message": "2 more GPUs needed"}
    workload = {"kind": "Workload", "apiVersion": kind.group_version, "metadata": name}
    kept.double.do(kept.double.store.create, kind, workload | {"status": {"conditions": [waits]}})

    wait_until(lambda: "queued by Kueue: 2 more GPUs needed" in kept.said(), 60, "its words")


def test_a_job_that_was_created_though_the_answer_was_lost_is_taken_back_or_named(keeper) -> None:
    kept = keeper()
    double, lost = kept.double, []

    def lose() -> tuple[int, object]:
        if not lost:
            made = completed(JOBS, kept.manifest(), "default")
            lost.append(double.store.create(JOBS, made))
        return 503, "error trying to reach service: EOF\n"

    double.do(double.api.faults.answers.append, (".*", "/apis/batch/.*|/api/v1/.*", lose))
    assert kept.start().wait() == 1
    assert "may have been created all the same: `kubectl -n default delete job j`" in kept.said()
    double.do(double.api.faults.answers.clear)

    assert kept.agent("job", "cancel", JOB, "here", "--grace", "1")["left"] == []
    assert everything(kept) == []


def test_the_first_lines_of_a_container_that_was_restarted_are_kept(keeper) -> None:
    kept = keeper(retries=3)
    kept.speak(lasting=4.0)
    kept.start()
    kept.runs(10)
    kept.double.restart_container(kept.double.all("pods")[0]["metadata"]["name"])

    assert kept.wait() == 0, kept.said()
    for rank in range(kept.pods):
        assert kept.lines(rank) == kept.written(rank)


def test_a_rank_on_a_node_whose_clock_is_wrong_has_the_time_of_here(keeper) -> None:
    kept = keeper()
    kept.double.clock_ahead(lambda pod: 3600.0 if pod["metadata"]["name"].startswith("j-1-") else 0)
    kept.speak(lasting=1.0)
    began = time.time()

    assert kept.start().wait(240) == 0, kept.said()
    times = [(kept.folder.place(rank) / "exit").stat().st_mtime for rank in (0, 1)]
    assert began - 1 < min(times) <= max(times) < time.time() + 1
    assert kept.said().count("s ahead of the one here: the times of its ranks are corrected") == 1


HELD = "example.com/hold"


def hold(found) -> None:
    """As a controller does that wants to clean up before the object is gone."""
    found["metadata"].setdefault("finalizers", []).append(HELD)


@pytest.mark.parametrize("plural", ["jobs", "pods"])
def test_a_cancel_names_what_holds_an_object_that_was_deleted(keeper, plural: str) -> None:
    kept = keeper()
    kept.speak(lasting=60.0)
    kept.start()
    kept.runs()
    name = kept.double.all(plural)[0]["metadata"]["name"]
    kept.double.change(plural, name, hold)

    assert kept.term(60) == 1
    left = kept.said().split("not gone:")[1]
    assert f"default/{name}" in left
    assert f"held by finalizer {HELD}" in left
    kept.double.change(plural, name, lambda one: one["metadata"]["finalizers"].remove(HELD))


def test_a_cancel_that_a_policy_of_the_site_denies_names_it_and_what_still_runs(keeper) -> None:
    kept = keeper()
    kept.speak(lasting=60.0)
    kept.start()
    kept.runs()
    why = 'admission webhook "validate.kyverno.svc-fail" denied the request: deletes need a ticket'
    kept.double.answer("DELETE", f".*/jobs/{JOB}", 403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": why})  # fmt: skip

    assert kept.term(60) == 1
    left = kept.said().split("not gone:")[1]
    assert why in left
    assert all(f"Pod default/{pod['metadata']['name']}" in left for pod in kept.double.all("pods"))
