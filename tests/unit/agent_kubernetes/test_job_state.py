"""What a Kubernetes job waits for and how it ended, in words; on
recorded and on made-up objects.
"""

import json
from pathlib import Path

import pytest

from rankdeck_agent.rules.scheduler_verdict import VerdictKind
from rankdeck_agent.schedulers.kubernetes.job_snapshot import (
    describe_progress,
    describe_running_pods,
    is_waiting,
    judge_ended_job,
)
from rankdeck_agent.schedulers.kubernetes.job_state import Clocks, JobState
from rankdeck_agent.schedulers.kubernetes.objects import LogPiece, pod_of, too_old
from rankdeck_agent.schedulers.kubernetes.target import Target, most_followed
from rankdeck_agent.values import replace

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "kubernetes"
TAKES = {"job": "take_job", "mpijob": "take_job", "pod": "take_pod", "event": "take_event"}


def recorded(name: str, target: Target, until: float = 1e9) -> tuple[JobState, list[str]]:
    """The state after what a real control plane sent, and what was said meanwhile."""
    file = DATA / f"{name}.jsonl"
    if not file.exists():
        pytest.skip(f"the recorded transcript {name} is not on this machine")
    state, said = JobState(target), []
    job_kind = "mpijob" if target.kind == "MPIJob" else "job"
    for row in map(json.loads, file.read_text().splitlines()):
        if row["t"] > until or row.get("watch") not in (job_kind, "pod", "event"):
            continue
        take = getattr(state, TAKES[row["watch"]])
        said += [saying.text for saying in take(row["type"], row["object"])]
    return state, said


def test_recorded_survivors_are_named_as_deleted_by_kubernetes() -> None:
    target = Target("bad", namespace="rec", wanted=3, ranks=3, ours=False)
    state, _ = recorded("indexed-job-one-rank-fails-survivors-deleted", target, until=5.0)

    made = judge_ended_job(state.view())

    assert state.over
    assert made.code == 3
    assert "exit 3" in made.text
    assert made.text.endswith(", 2 others deleted by Kubernetes")
    assert [(r.rank, r.status) for r in state.unrecorded()] == [(1, 3), (0, None), (2, None)]


def test_a_recorded_success_has_no_doubts() -> None:
    target = Target("ok", namespace="rec", wanted=2, ranks=2, ours=False)
    state, _ = recorded("indexed-job-success", target, until=7.0)

    assert judge_ended_job(state.view()).code == 0
    assert judge_ended_job(state.view()).doubts == ()
    assert not describe_running_pods(state.pods.values())


def test_recorded_unschedulable_pods_wait_in_the_schedulers_words() -> None:
    target = Target("big", namespace="rec", wanted=1, ranks=1, ours=False)
    state, said = recorded("unschedulable-gpu", target, until=1.5)

    assert "Insufficient nvidia.com/gpu" in describe_progress(state.view())
    assert any("Insufficient nvidia.com/gpu" in text for text in said)
    assert not state.over


def test_the_code_of_a_recorded_failed_mpijob_is_its_launchers() -> None:
    target = Target("pf", kind="MPIJob", namespace="rec", wanted=2, ranks=4, ours=False)
    state, _ = recorded("mpijob-launcher-fails", target, until=5.0)
    codes = [p.container.code for p in state.pods.values() if p.role == "launcher"]

    assert [judge_ended_job(state.view()).code] == codes
    assert "the launcher exit" in judge_ended_job(state.view()).text


def test_recorded_workers_that_stay_are_told() -> None:
    name = "mpijob-success-default-cleanpodpolicy-workers-stay"
    target = Target("pi", kind="MPIJob", namespace="rec", wanted=2, ranks=4, ours=False)
    state, _ = recorded(name, target, until=7.0)

    assert state.outcome.state == "succeeded"
    assert describe_running_pods(state.pods.values()).startswith("2 workers still ")


# ---- made up ----------------------------------------------------------------------------

JOB = Target("j", namespace="ns", wanted=3, ranks=3)


def pod(index: int, phase: str = "Running", **status) -> dict:
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    box = status.pop("box", {"running": {}})
    limits = {"limits": {"nvidia.com/gpu": "2"}}
    container = {"name": "rank", "image": "app:1", "resources": limits}
    return {
        "metadata": {"name": f"j-{index}-x", "uid": f"u{index}", "labels": labels},
        "spec": {"nodeName": f"n{index}", "hostname": f"j-{index}", "containers": [container]},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "rank", "containerID": f"c{index}", "state": box}],
            **status,
        },
    }


def ended(index: int, code: int, **more) -> dict:
    state = {"exitCode": code, "finishedAt": f"2026-11-21T11:00:0{index}Z", **more}
    return pod(index, "Failed" if code else "Succeeded", box={"terminated": state})


def disrupted(reason: str, message: str) -> dict:
    """A pod that a modern control plane takes away: `status.reason` stays empty."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    found = ended(1, 143)
    found["status"]["conditions"] = [target]
    found["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z"
    return found


def initial(state: dict, phase: str = "Pending") -> dict:
    """A pod whose init container is in this state, so that its own container waits."""
    found = pod(1, phase, box={"waiting": {"reason": "PodInitializing"}})
    found["status"]["initContainerStatuses"] = [{"name": "setup", "state": state}]
    return found


def with_sidecar(found: dict, phase: str) -> dict:
    """The pod after a webhook has put a container before that of the rank."""
    found["spec"]["containers"].insert(0, {"name": "istio-proxy", "image": "proxy:1"})
    box = {"name": "istio-proxy", "containerID": "side", "state": {"running": {}}}
    found["status"]["containerStatuses"].insert(0, box)
    found["status"]["phase"] = phase
    return found


UNHEARD = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False"}]
"""Of a pod on a node whose kubelet is silent, as the node controller writes them."""


def state_of(*pods: dict, condition: str = "", target: Target = JOB) -> JobState:
    state = JobState(target)
    state.take_pod("LISTED", {"items": list(pods)})
    conditions = [{"type": condition, "status": "True"}] if condition else []
    state.take_job("ADDED", {"status": {"conditions": conditions}})
    return state


def tell(state: JobState, rank: int, status: int | None, at: float = 1.0) -> None:
    node = state.nodes[f"j-{rank}"]
    state.take_piece(LogPiece(rank, "start", f"j-{rank}".encode()), at, node)
    if status is not None:
        state.take_piece(LogPiece(rank, "exit", str(status).encode()), at, node)


@pytest.mark.parametrize("odd", ["\u00b2", "9" * 5000, "-1"])
def test_a_number_that_is_none_breaks_no_pod(odd: str) -> None:
    found = pod(0)
    found["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = odd
    found["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = odd

    (seen,) = state_of(found).pods.values()

    assert (seen.index, dict(seen.devices)) == (None, {})


def test_the_rank_that_failed_first_is_named_with_its_node() -> None:
    state = state_of(ended(1, 3), condition="Failed")
    for index in (0, 2):
        state.take_pod("ADDED", pod(index))
        tell(state, index, 143, at=9.0)
        state.take_pod("DELETED", pod(index))
    tell(state, 1, 3)

    assert judge_ended_job(state.view()).text == (
        "Kubernetes job ns/j failed: rank 1 exit 3 on node n1, 2 others deleted by Kubernetes"
    )


def test_a_success_on_too_few_hosts_is_suspicious() -> None:
    state = state_of(*(ended(i, 0) for i in range(3)), condition="Complete")
    tell(state, 0, 0)

    assert judge_ended_job(state.view()).doubts == ("succeeded on 1 of 3 hosts: suspicious",)


def test_pods_that_only_kubernetes_speaks_of_are_believed() -> None:
    state = state_of(*(ended(i, 0) for i in range(3)), condition="Complete")
    records = state.close_records()

    assert judge_ended_job(state.view()).doubts == ()
    assert [(one.rank, one.status) for one in records] == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (ended(1, 137, reason="OOMKilled"), "out of memory (OOMKilled)"),
        (
            pod(1, "Failed", reason="Evicted", message="low on memory"),
            "was evicted on node n1: low",
        ),
        (pod(1, "Failed", reason="NodeLost"), "lost its node on node n1"),
        (
            ended(
                1,
                128,
                reason="StartError",
                message='exec: "sh": executable file not found in $PATH',
            ),
            "image app:1 has no `sh`",
        ),
        (ended(1, 139), "ended by signal 11 on node n1"),
        (
            disrupted("PreemptionByScheduler", "preempting to accommodate a higher priority pod"),
            "pod j-1-x made way for a pod of higher priority on node n1: preempting",
        ),
        (
            disrupted("EvictionByEvictionAPI", "Eviction API: evicting"),
            "pod j-1-x was evicted on request, as `kubectl drain` does, on node n1: Eviction",
        ),
        (
            disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
            "pod j-1-x was deleted because its node was tainted on node n1: Taint manager",
        ),
        (
            disrupted("DeletionByPodGC", "PodGC: node no longer exists"),
            "pod j-1-x lost its node on node n1: PodGC: node no longer exists",
        ),
        (disrupted("NewWord", "why"), "pod j-1-x was ended from outside (NewWord) on node n1: why"),
        (
            initial({"terminated": {"exitCode": 4, "reason": "Error"}}, phase="Failed"),
            "pod j-1-x cannot start: its init container `setup` ended with exit 4",
        ),
    ],
)
def test_what_ended_a_pod_is_told(one: dict, words: str) -> None:
    assert words in judge_ended_job(state_of(one, condition="Failed").view()).text


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (ended(1, 137, reason="OOMKilled"), (VerdictKind.NO_MEMORY, "n1", "j-1-x")),
        (pod(1, "Failed", reason="Evicted", message="low"), (VerdictKind.TAKEN_AWAY, "n1", "j-1-x")),
        (disrupted("NewWord", "why"), (VerdictKind.TAKEN_AWAY, "n1", "j-1-x")),
        (ended(1, 128, reason="StartError", message="no"), (VerdictKind.CANNOT_START, "n1", "j-1-x")),
        (ended(1, 139), (VerdictKind.PART, "n1", "j-1-x")),
    ],
)  # fmt: skip
def test_the_verdict_is_a_value_with_its_kind_node_and_pod(one: dict, found: tuple) -> None:
    made = judge_ended_job(state_of(one, condition="Failed").view())

    assert (made.found.kind, made.found.node, made.found.pod) == found
    assert made.text == f"Kubernetes job ns/j failed: {made.found.text}"


def test_the_verdict_on_a_rank_a_time_limit_or_nothing_known_says_so() -> None:
    failed = state_of(ended(1, 3), condition="Failed")
    tell(failed, 1, 3)
    late = state_of()
    late.take_job("MODIFIED", over("DeadlineExceeded", "too long"))
    mute = state_of(condition="Failed")
    gone = state_of(pod(0))
    gone.take_job("DELETED", {})

    kinds = [judge_ended_job(one.view()).found.kind for one in (failed, late, mute, gone)]
    assert judge_ended_job(failed.view()).found.rank == 1
    assert kinds == [VerdictKind.RANK, VerdictKind.TIME_LIMIT, VerdictKind.UNKNOWN, VerdictKind.GONE]  # fmt: skip


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([], "pending: no pod exists yet"),
        (
            [pod(0), pod(1, "Pending", box={"waiting": {"reason": "ImagePullBackOff", "message": "no app:1"}})],
            "pending: 2 of 3 pods: ImagePullBackOff: no app:1",
        ),
        ([pod(i) for i in range(3)], "running: 3 of 3 pods"),
        (
            [pod(0), initial({"waiting": {"reason": "ErrImagePull", "message": "no setup:1"}}), pod(2)],
            "pending: 1 of 3 pods: init container `setup`: ErrImagePull: no setup:1",
        ),
        ([pod(0), initial({"running": {}}), pod(2)], "pending: 1 of 3 pods: init container `setup` runs"),
        (
            [pod(0), pod(1, conditions=UNHEARD), pod(2)],
            "running: 3 of 3 pods; Kubernetes hears nothing of node n1",
        ),
        (
            [with_sidecar(ended(i, 0), "Running") for i in range(3)],
            "running: 3 of 3 pods; the ranks of 3 pods have ended, and container `istio-proxy` runs on: the job ends with it",
        ),
    ],
)  # fmt: skip
def test_what_it_waits_for_is_one_line(pods: list, words: str) -> None:
    assert describe_progress(state_of(*pods).view()) == words


@pytest.mark.parametrize(
    ("pods", "waits"),
    [
        ([], True),
        ([pod(0), pod(1), pod(2, "Pending", box={"waiting": {"reason": "ContainerCreating"}})], True),
        ([pod(0), pod(1), pod(2)], False),
        ([pod(0), ended(1, 3)], False),
        ([pod(0), ended(1, 0), pod(2, "Pending", box={})], False),
    ],
)  # fmt: skip
def test_only_a_job_whose_pods_have_yet_to_begin_waits(pods: list, waits: bool) -> None:
    assert is_waiting(state_of(*pods).view()) is waits


def test_a_suspended_job_waits() -> None:
    assert is_waiting(state_of(condition="Suspended").view())


def test_the_number_of_a_pod_is_read_from_its_annotation_too() -> None:
    """Servers before 1.28 set no such label."""
    found = pod(2)
    found["metadata"] |= {"annotations": found["metadata"].pop("labels"), "labels": {}}

    assert pod_of(found).index == 2


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ({"major": "1", "minor": "23+", "gitVersion": "v1.23.17-eks"}, "this server is Kubernetes v1.23.17-eks, and Rankdeck needs 1.24 or newer"),
        ({"major": "1", "minor": "24"}, ""),
        ({"major": "2", "minor": "0"}, ""),
        ({"major": "", "minor": "x"}, ""),
        ({"major": 1, "minor": None}, ""),
    ],
)  # fmt: skip
def test_a_server_that_is_too_old_is_named(version: dict, words: str) -> None:
    said = too_old(version)
    assert said.startswith(words)
    assert bool(said) is bool(words)


@pytest.mark.parametrize(
    ("target", "files", "most"),
    [
        (replace(JOB, each=1), 1024, 308),
        (replace(JOB, each=8), 1024, 54),
        (replace(JOB, kind="MPIJob", ranks=400), 1024, 124),
        (JOB, 1 << 20, 4096),
        (JOB, 64, 0),
    ],
)
def test_how_many_pods_are_followed_goes_by_the_files_of_the_host(
    target: Target, files: int, most: int
) -> None:
    assert most_followed(target, files) == most


def test_a_job_whose_operator_is_down_says_for_whom_it_waits() -> None:
    mpi = replace(JOB, kind="MPIJob")
    waits = describe_progress(state_of(target=mpi).view())

    assert waits == "pending: mpi-operator has not looked at it yet; does it run?"
    assert (
        describe_progress(state_of(target=mpi, condition="Created").view())
        == "pending: no pod exists yet"
    )


def test_warnings_of_the_job_are_alarms_and_those_of_others_are_none() -> None:
    state = state_of()

    def event(name: str) -> dict:
        return {
            "involvedObject": {"name": name},
            "reason": "FailedCreate",
            "message": "exceeded quota: q",
        }

    assert [s.alarm for s in state.take_event("ADDED", event("j"))] == [True]
    assert [s.alarm for s in state.take_event("ADDED", event("j-0-x"))] == [False]
    assert state.take_event("ADDED", event("other")) == []
    assert describe_progress(state.view()) == "pending: exceeded quota: q"


def test_words_that_the_mpi_operator_leaves_unfinished_are_not_told() -> None:
    failed = {
        "involvedObject": {"name": "j"},
        "reason": "BackoffLimitExceeded/",
        "message": "Job has reached the specified backoff limit: ",
    }
    (notice,) = state_of().take_event("ADDED", failed)

    assert notice.text == "BackoffLimitExceeded: Job has reached the specified backoff limit"


def test_a_node_that_falls_silent_is_an_alarm_once_and_a_pod_that_was_over_is_none() -> None:
    state = state_of(pod(0), pod(1))

    (told,) = state.take_pod("MODIFIED", pod(1, conditions=UNHEARD))

    assert told.alarm
    assert told.text == "Kubernetes hears nothing of node n1: its ranks may run on, unseen"
    assert state.take_pod("MODIFIED", pod(1, conditions=UNHEARD)) == []
    assert state.take_pod("MODIFIED", pod(0, "Succeeded", conditions=UNHEARD)) == []


def test_a_process_that_ran_out_of_memory_in_a_pod_that_ended_well_is_not_the_pod() -> None:
    (told,) = state_of().take_pod("ADDED", ended(1, 0, reason="OOMKilled"))

    assert told.text.startswith("a process of pod j-1-x was killed on node n1: out of memory")


def test_a_job_that_somebody_deletes_is_told_and_our_own_deletion_is_not() -> None:
    theirs, ours = state_of(pod(0)), state_of(pod(0))
    ours.ending = True

    assert "somebody deleted it" in theirs.take_job("DELETED", {})[0].text
    assert ours.take_job("DELETED", {}) == []
    assert theirs.over

    # Their pods go first, and end by it.
    first = state_of(pod(1))
    first.take_pod("DELETED", disrupted("", ""))
    assert "somebody deleted it" in first.take_job("DELETED", {})[0].text


def test_gpus_that_a_finished_job_still_holds_are_counted() -> None:
    assert (
        describe_running_pods(state_of(pod(0), pod(1), ended(2, 0)).pods.values())
        == "2 pods still hold 4 GPUs"
    )


def test_a_job_in_a_queue_waits_in_kueues_words() -> None:
    state = state_of(condition="Suspended")
    assert describe_progress(state.view()) == "suspended: nothing of it runs"
    words = "couldn't assign flavors: insufficient quota for nvidia.com/gpu, 4 more needed"
    reserved = {"type": "QuotaReserved", "status": "False", "message": words}

    state.take_workload("LISTED", {"items": [{"status": {"conditions": [reserved]}}]})

    assert describe_progress(state.view()) == f"queued by Kueue: {words}"
    assert not state.over


def test_a_container_that_a_webhook_put_before_the_rank_is_not_the_rank() -> None:
    (seen,) = state_of(with_sidecar(pod(1), "Running")).pods.values()
    theirs = with_sidecar(pod(1), "Running")
    theirs["spec"]["containers"][1]["name"] = theirs["status"]["containerStatuses"][1]["name"] = (
        "app"
    )
    theirs["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "app"}
    (named,) = state_of(theirs).pods.values()

    assert (seen.container.name, seen.container.id, dict(seen.devices)) == (
        "rank",
        "c1",
        {"nvidia.com/gpu": 2},
    )
    assert (named.container.name, named.container.id) == ("app", "c1")


def test_a_job_that_its_time_to_live_takes_away_ended_as_its_last_state_says() -> None:
    state = state_of(*(ended(i, 0) for i in range(3)))
    over = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}

    assert state.take_job("DELETED", over) == []
    assert judge_ended_job(state.view()).code == 0


def test_a_job_that_was_gone_at_the_next_list_is_told_by_its_ranks() -> None:
    well, bad = (state_of(*(ended(i, 0) for i in range(3))) for _ in range(2))
    for state in (well, bad):
        (said,) = state.take_job("LISTED", {"items": []})
        assert "somebody deleted it" not in said.text
        for rank in range(3):
            tell(state, rank, 3 if state is bad and rank == 2 else 0)

    assert judge_ended_job(well.view()).code == 0
    assert "all its ranks had ended with 0" in judge_ended_job(well.view()).text
    assert judge_ended_job(bad.view()).code == 3


def test_a_rank_that_begins_again_after_the_queue_took_the_job_back_has_not_ended() -> None:
    state = state_of(pod(0), pod(1), pod(2))
    for again in (143, None):
        for rank in range(3):
            tell(state, rank, again)
    assert state.ends == {}
    for rank in range(3):
        state.take_piece(LogPiece(rank, "exit", b"0"), 2.0, "n0")
    state.take_job("MODIFIED", {"status": {"conditions": [{"type": "Complete", "status": "True"}]}})

    assert judge_ended_job(state.view()).doubts == ()


def over(reason: str, message: str = "why") -> dict:
    """The object of a job that failed, with the reason that its controller gives."""
    failed = {"type": "Failed", "status": "True", "reason": reason, "message": message}
    return {"status": {"conditions": [failed]}}


def test_a_sidecar_that_is_killed_after_its_rank_is_not_why_the_pod_failed() -> None:
    # A native sidecar is an init container that runs beside the rank, and is told to end after it.
    failed = ended(1, 3)
    side = {"name": "istio-proxy", "state": {"terminated": {"exitCode": 137}}}
    failed["status"]["initContainerStatuses"] = [side]
    state = state_of(failed, condition="Failed")
    tell(state, 1, 3)

    assert (
        judge_ended_job(state.view()).text == "Kubernetes job ns/j failed: rank 1 exit 3 on node n1"
    )


def test_ranks_that_a_time_limit_ended_are_not_blamed() -> None:
    state = state_of(*(ended(i, 137) for i in range(3)))
    for rank in range(3):
        tell(state, rank, 137)
    state.take_job("MODIFIED", over("DeadlineExceeded", "Job was active longer than specified"))

    made = judge_ended_job(state.view())
    assert "failed: its time limit (activeDeadlineSeconds) was over: Job was" in made.text
    assert made.code == 143


def test_a_pod_that_its_node_refused_is_the_reason() -> None:
    words = "Pod was rejected: Allocate failed due to no healthy devices present"
    refused = pod(1, "Failed", reason="UnexpectedAdmissionError", message=words)
    del refused["status"]["containerStatuses"]
    state = state_of(pod(0), pod(2))
    (told,) = state.take_pod("ADDED", refused)
    tell(state, 0, 143)
    state.take_job("MODIFIED", over("BackoffLimitExceeded"))

    assert told.alarm
    assert told.text == f"pod j-1-x was refused on node n1: UnexpectedAdmissionError: {words}"
    assert told.text in judge_ended_job(state.view()).text


def retried(index: int, code: int) -> list[dict]:
    """A pod that failed, and the one that its job made in its place."""
    first, second = ended(index, 3), ended(index, code)
    for number, one in enumerate((first, second)):
        one["metadata"]["uid"] += f"-{number}"
        one["metadata"]["creationTimestamp"] = f"2026-11-21T11:00:{number}0Z"
    return [second, first]


def test_of_a_rank_that_was_tried_again_the_last_pod_counts() -> None:
    theirs = replace(JOB, ours=False)
    state = state_of(ended(0, 0), *retried(1, 0), ended(2, 0), condition="Complete", target=theirs)

    assert sorted((one.rank, one.status) for one in state.close_records()) == [(0, 0), (1, 0), (2, 0)]  # fmt: skip
    assert judge_ended_job(state.view()).doubts == ()


def test_a_pod_that_was_made_anew_is_not_the_end_of_its_job() -> None:
    state = state_of(pod(0), pod(1), pod(2), target=replace(JOB, ours=False))
    state.take_pod("DELETED", pod(1))
    assert describe_progress(state.view()) == (
        "ending: 2 of 3 pods are still there; pod j-1-x on node n1 was deleted first"
    )
    anew = pod(1)
    anew["metadata"]["uid"] = "u1-again"
    state.take_pod("ADDED", anew)

    assert describe_progress(state.view()) == "running: 3 of 3 pods"


@pytest.mark.parametrize("kind", ["MODIFIED", "DELETED"])
def test_a_pod_that_somebody_deletes_is_the_reason_and_no_rank_that_ended_by_it(kind: str) -> None:
    state = state_of(pod(0), pod(1), pod(2))
    leaving = pod(1)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z"
    state.take_pod(kind, leaving)
    tell(state, 1, 1)
    state.take_pod("DELETED", pod(0))
    state.take_job("MODIFIED", over("BackoffLimitExceeded"))

    assert "failed: pod j-1-x was deleted on node n1: neither its job nor Rankdeck did" in (
        judge_ended_job(state.view()).text
    )


def test_a_pod_that_goes_after_a_rank_has_failed_is_not_the_reason() -> None:
    state = state_of(pod(0), pod(1), pod(2))
    tell(state, 1, 3)
    state.take_pod("DELETED", pod(0))
    state.take_job("MODIFIED", over("BackoffLimitExceeded"))

    assert "failed: rank 1 exit 3 on node n1" in judge_ended_job(state.view()).text


def test_a_pod_that_its_job_deletes_after_too_many_restarts_was_not_deleted_by_somebody() -> None:
    # With restartPolicy OnFailure the exit is in the container's last
    # state, and the pod never failed.
    state = state_of(pod(0), pod(1), target=replace(JOB, ours=False))
    crashing = pod(1, box={"waiting": {"reason": "CrashLoopBackOff"}})
    crashing["status"]["containerStatuses"][0]["restartCount"] = 2
    state.take_pod("MODIFIED", crashing)
    state.take_pod("DELETED", pod(0))
    state.take_pod("DELETED", crashing)
    state.take_job("MODIFIED", over("BackoffLimitExceeded"))

    assert "failed: BackoffLimitExceeded: why" in judge_ended_job(state.view()).text


def test_a_job_that_was_gone_before_it_was_seen_is_not_said_to_be_deleted_by_somebody() -> None:
    state = JobState(JOB)
    (told,) = state.take_job("LISTED", {"items": []})

    assert "or its time to live (ttl) after its end was over" in told.text
    assert "failed" not in judge_ended_job(state.view()).text


HOSTILE = [
    {},
    {"metadata": [], "spec": 3, "status": None},
    {"metadata": {"name": "\x1b[2J", "uid": 7, "labels": {"job-role": ["x"]}}, "spec": {"containers": {}}},
    {"status": {"containerStatuses": [{"name": 1, "state": {"terminated": {"exitCode": 10**30}}}]}},
    {"status": {"conditions": [{"type": ["Failed"], "status": "True"}, "x"]}, "items": 5},
    {"metadata": {"annotations": 3}, "status": {"initContainerStatuses": [{"name": 1, "state": 2}, 3]}},
]  # fmt: skip


@pytest.mark.parametrize("found", HOSTILE)
def test_nonsense_from_a_server_is_left_empty(found: dict) -> None:
    state = JobState(JOB)
    for kind in ("ADDED", "LISTED", "DELETED"):
        state.take_pod(kind, found)
        state.take_event(kind, found)
        state.take_job(kind, found)
        state.take_workload(kind, found)

    assert describe_progress(state.view()).isprintable()
    assert judge_ended_job(state.view()).text.isprintable()


@pytest.mark.parametrize(("off", "late", "corrected"), [
    (0.0, False, False), (4.0, False, False), (-4.0, False, False),
    (600.0, False, True), (-600.0, False, True), (600.0, True, False), (-600.0, True, True),
])  # fmt: skip
def test_times_of_a_clock_that_is_off_are_corrected_as_far_as_that_is_sure(
    off: float, *, late: bool, corrected: bool
) -> None:
    clocks = Clocks()
    clocks.late = late
    # What is heard late tells less than what is heard at once.
    clocks.ours("n1", 1000.0 - off, 1002.0)
    at, _ = clocks.ours("n1", 2000.0 - off, 2000.5)

    assert at == pytest.approx(2000.5 if corrected else 2000.0 - off)


def test_a_clock_that_is_off_is_told_once() -> None:
    clocks = Clocks()

    told = [clocks.ours("n1", at - 600, at)[1] for at in (1000.0, 1001.0)]

    assert told == [
        "the clock of node n1 is 600 s behind the one here: the times of its ranks are corrected", "",
    ]  # fmt: skip
