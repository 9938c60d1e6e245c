"""What API servers, kubelets and operators answer at sites, and what is made of it. Written by
hand, from their sources and from reports.
"""

import json
from typing import Any

import pytest

from rankdeck.schedulers.kubernetes.node import kubernetes_reasons
from rankdeck.schedulers.kubernetes.rows import kubernetes_node_of
from rankdeck_agent.rules.scheduler_verdict import VerdictKind
from rankdeck_agent.schedulers.kubernetes.api import Api
from rankdeck_agent.schedulers.kubernetes.cluster import EVENTS, PODS, KubernetesView
from rankdeck_agent.schedulers.kubernetes.job_snapshot import describe_progress, judge_ended_job
from rankdeck_agent.schedulers.kubernetes.job_state import JobState
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import (
    ApiError,
    describe_api_refusal,
    in_words,
    no_json,
    parse_refusal,
)
from rankdeck_agent.schedulers.kubernetes.objects import (
    JOB,
    KINDS,
    ask_version,
    list_job_kinds,
    too_old,
)
from rankdeck_agent.schedulers.kubernetes.rows import (
    kubernetes_job_state,
    node_row,
    requested_devices,
)
from rankdeck_agent.schedulers.kubernetes.target import Target

Json = dict[str, Any]
CREATING = {"waiting": {"reason": "ContainerCreating"}}
BACKS_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting"}}
GIVEN_UP = ("Failed", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


def pod(index: int, state: Json, phase: str = "Running", **status: Any) -> Json:
    """A pod of somebody else's Indexed Job `j`; `last`: its lastState."""
    last = status.pop("last", {})
    box = {"name": "main", "containerID": f"c{index}", "state": state, "lastState": last, "restartCount": len(last)}  # fmt: skip
    return {
        "metadata": {
            "name": f"j-{index}-x", "uid": f"u{index}", "namespace": "ns",
            "labels": {"batch.kubernetes.io/job-completion-index": str(index), "job-name": "j"},
        },
        "spec": {"nodeName": f"n{index}", "containers": [{"name": "main", "image": "reg.site/t:7"}]},
        "status": {"phase": phase, "containerStatuses": [box], **status},
    }  # fmt: skip


def over(code: int, reason: str = "Error", **more: Any) -> Json:
    return {"terminated": {"exitCode": code, "reason": reason, **more}}


def job(*conditions: tuple[str, str, str, str], **spec: Any) -> Json:
    rows = [dict(zip(("type", "status", "reason", "message"), one, strict=True)) for one in conditions]  # fmt: skip
    return {
        "metadata": {"name": "j", "namespace": "ns", "uid": "J"},
        "spec": {"parallelism": 2, "completions": 2, **spec},
        "status": {"conditions": rows},
    }


def warning(uid: str, reason: str, message: str) -> Json:
    about = {"kind": "Pod", "namespace": "ns", "name": f"j-{uid[1:]}-x", "uid": uid}
    return {"type": "Warning", "reason": reason, "message": message, "involvedObject": about}


def state_of(*pods: Json, last: Json | None = None, kind: str = "Job") -> JobState:
    state = JobState(Target("j", kind=kind, namespace="ns", wanted=2, ranks=2, ours=False))
    state.take_job("LISTED", {"items": [job()]})
    for one in pods:
        state.take_pod("MODIFIED", one)
    if last is not None:
        state.take_job("MODIFIED", last)
    return state


# ---- pods that are started again, and containers that a node lost


def test_a_pod_that_is_started_again_says_how_its_last_run_ended() -> None:
    crashed = pod(1, BACKS_OFF, last=over(137, "OOMKilled"))
    failed = pod(1, BACKS_OFF, last=over(3))

    assert "(its last run: out of memory (OOMKilled))" in describe_progress(
        state_of(pod(0, {"running": {}}), crashed).view()
    )
    assert describe_progress(state_of(failed).view()).endswith("(its last run: exit 3)")


@pytest.mark.parametrize(("last", "kind", "code", "words"), [
    (over(3), VerdictKind.PART, 3, "pod j-1-x exit 3 on node n1"),
    (over(137, "OOMKilled"), VerdictKind.NO_MEMORY, 1, "pod j-1-x was killed on node n1: out of memory"),
])  # fmt: skip
def test_a_job_that_gave_up_a_restarting_pod_failed_as_its_last_run_did(
    last: Json, kind: VerdictKind, code: int, words: str
) -> None:
    crashed = pod(1, BACKS_OFF, last=last)
    crashed["metadata"]["deletionTimestamp"] = "2026-11-30T08:05:00Z"

    made = judge_ended_job(state_of(pod(0, {"running": {}}), crashed, last=job(GIVEN_UP)).view())

    assert (made.found.kind, made.code, made.found.node) == (kind, code, "n1")
    assert words in made.text


@pytest.mark.parametrize("made_up", [
    over(137, "ContainerStatusUnknown", message="The container could not be located when the pod was terminated"),
    over(255, "Unknown"),
])  # fmt: skip
def test_an_exit_code_that_a_node_made_up_is_nobodys(made_up: Json) -> None:
    state = state_of(pod(0, {"running": {}}), pod(1, made_up, "Failed"), last=job(GIVEN_UP))
    codes = [(one.rank, one.status) for one in state.close_records()]
    made = judge_ended_job(state.view())

    assert (1, None) in codes
    assert (made.found.kind, made.found.node) == (VerdictKind.TAKEN_AWAY, "n1")
    assert "was lost by node n1, and how it ended is not known" in made.text


def test_a_rank_that_failed_counts_more_than_a_container_that_was_lost_in_the_clean_up() -> None:
    lost = pod(0, over(137, "ContainerStatusUnknown"), "Failed")
    state = state_of(lost, pod(1, over(9), "Failed"), last=job(GIVEN_UP))
    state.close_records()

    assert "rank 1 exit 9" in judge_ended_job(state.view()).text


# ---- what a job waits for


@pytest.mark.parametrize(("reason", "message"), [
    ("FailedMount", 'MountVolume.SetUp failed for volume "data" : mount failed: Connection timed out'),
    ("FailedCreatePodSandBox", 'failed to get sandbox runtime: no runtime for "nvidia" is configured'),
    ("FailedAttachVolume", "Multi-Attach error for volume pvc-7"),
])  # fmt: skip
def test_a_pod_whose_status_tells_nothing_waits_for_what_its_newest_warning_says(
    reason: str, message: str
) -> None:
    state = state_of(pod(0, {"running": {}}), pod(1, CREATING, "Pending"))
    state.take_event("ADDED", warning("u1", "FailedScheduling", "0/3 nodes are available"))
    assert describe_progress(state.view()) == "pending: 1 of 2 pods: starting"

    state.take_event("ADDED", warning("u1", reason, message))

    assert describe_progress(state.view()) == f"pending: 1 of 2 pods: {reason}: {message}"
    state.take_pod("MODIFIED", pod(1, {"running": {}}))
    assert describe_progress(state.view()) == "running: 2 of 2 pods"


def test_the_list_says_too_why_a_pod_does_not_start() -> None:
    view = KubernetesView(all_pods=False)
    counted = job()
    counted["status"]["active"] = 2
    view.take(JOB, "LISTED", {"items": [counted]})
    view.take(PODS, "LISTED", {"items": [pod(0, CREATING, "Pending"), pod(1, {"running": {}})]})
    view.take(EVENTS, "ADDED", warning("u1", "Unhealthy", "probe failed"))
    view.take(EVENTS, "ADDED", warning("u0", "FailedMount", "no such claim"))

    assert [row["job"]["why"] for row in view.take_changes()] == ["FailedMount: no such claim"]
    view.take(PODS, "MODIFIED", pod(0, {"running": {}}))
    assert [row["job"]["why"] for row in view.take_changes()] == [""]


def test_an_init_container_that_works_is_named_and_a_sidecar_is_not() -> None:
    boxes = [{"name": "proxy", "state": {"running": {}}}, {"name": "stage", "state": {"running": {}}}]  # fmt: skip
    waits = pod(1, {"waiting": {"reason": "PodInitializing"}}, "Pending", initContainerStatuses=boxes)  # fmt: skip
    waits["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}, {"name": "stage"}]  # fmt: skip

    assert describe_progress(state_of(waits).view()).endswith("init container `stage` runs")


def test_a_scheduling_gate_is_named() -> None:
    told = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "Scheduling is blocked"}  # fmt: skip
    gated = pod(0, {}, "Pending", conditions=[told])
    gated["spec"] = {**gated["spec"], "nodeName": "", "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}  # fmt: skip

    assert describe_progress(state_of(gated).view()).endswith("blocked: kueue.x-k8s.io/topology")


def test_why_an_image_was_not_pulled_stays_while_the_kubelet_waits_to_try_again() -> None:
    failed = pod(0, {"waiting": {"reason": "ErrImagePull", "message": "401 Unauthorized"}}, "Pending")  # fmt: skip
    waits = pod(0, {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "t"'}}, "Pending")  # fmt: skip

    told = describe_progress(state_of(failed, waits, waits).view())

    assert told == "pending: 2 of 2 pods: ImagePullBackOff: 401 Unauthorized"


QUOTA = {"type": "QuotaReserved", "status": "True", "message": "Quota reserved"}
CHECK = {"name": "prov-h100", "state": "Pending", "message": "not enough resources"}


@pytest.mark.parametrize(("status", "words"), [
    ({"conditions": [QUOTA], "admissionChecks": [CHECK]}, "waits for admission check prov-h100: not enough resources"),
    ({"conditions": [QUOTA], "admissionChecks": [{"name": "a", "state": "Retry"}, CHECK]}, "waits for admission check a: Retry"),
    ({"conditions": [{**QUOTA, "status": "False", "message": "no quota"}], "admissionChecks": [CHECK]}, "no quota"),
    ({"conditions": [{"type": "Admitted", "status": "False", "message": "no reservation"}, QUOTA]}, "no reservation"),
])  # fmt: skip
def test_what_kueue_waits_for_is_its_quota_then_its_checks(status: Json, words: str) -> None:
    state = state_of(last=job(("Suspended", "True", "JobSuspended", "Job suspended")))

    state.take_workload("LISTED", {"items": [{"status": status}]})

    assert describe_progress(state.view()) == f"queued by Kueue: {words}"
    state.take_workload("DELETED", {"status": status})
    assert describe_progress(state.view()) == "suspended: nothing of it runs"


# ---- how jobs go


@pytest.mark.parametrize(("condition", "told"), [
    (("FailureTarget", "True", "BackoffLimitExceeded", ""), ("running", "it fails, and its last pods end: BackoffLimitExceeded")),
    (("SuccessCriteriaMet", "True", "CompletionsReached", ""), ("running", "it succeeds, and its last pods end: CompletionsReached")),
    (("Restarting", "True", "PyTorchJobRestarting", "1 Worker failed"), ("pending", "it starts again: 1 Worker failed")),
    (("RestartingJobSet", "False", "JobsReady", "all jobs are ready"), ("pending", "")),
])  # fmt: skip
def test_a_job_that_is_not_over_says_what_it_is_about(
    condition: tuple[str, str, str, str], told: tuple[str, str]
) -> None:
    assert kubernetes_job_state(job(condition)) == told


def test_a_job_of_others_that_is_being_deleted_says_so_and_what_holds_it() -> None:
    doomed = job(("Suspended", "True", "JobSuspended", "Job suspended"))
    doomed["metadata"] = {"deletionTimestamp": "2026-11-30T08:05:00Z", "finalizers": ["foregroundDeletion", "kueue.x-k8s.io/hold"]}  # fmt: skip

    assert kubernetes_job_state(doomed) == ("pending", "it is being deleted (held by finalizer kueue.x-k8s.io/hold)")  # fmt: skip
    doomed["status"] = {"active": 2}
    assert kubernetes_job_state(doomed)[1].startswith("it is being deleted")


@pytest.mark.parametrize(("kind", "policy", "doubts"), [
    ("Job", {"rules": [{"succeededIndexes": "0"}]}, 0), ("JobSet", {"operator": "Any"}, 0), ("JobSet", {"operator": "All"}, 1), ("Job", None, 1),
])  # fmt: skip
def test_a_job_that_needs_only_some_pods_is_not_doubted_for_the_others(
    kind: str, policy: Json | None, doubts: int
) -> None:
    done = job(("Complete", "True", "", ""), **({"successPolicy": policy} if policy else {}))
    pods = (pod(0, over(0, "Completed"), "Succeeded"), pod(1, over(143), "Failed"))
    state = state_of(*pods, last=done, kind=kind)
    if kind == "JobSet":
        assert state.outcome.state == "succeeded"
    state.close_records()

    assert len(judge_ended_job(state.view()).doubts) == doubts


# ---- nodes and devices


@pytest.mark.parametrize(("kind", "status", "faulty"), [
    ("EtcdIsVoter", "True", False), ("EtcdIsVoter", "False", False), ("NodeRegistered", "True", False), ("LinkUp", "False", True),
    ("ReadonlyFilesystem", "True", True), ("KernelDeadlock", "False", False), ("AcceleratedHardwareReady", "False", True),
])  # fmt: skip
def test_conditions_of_other_programs_are_faults_only_if_they_mean_one(
    kind: str, status: str, *, faulty: bool
) -> None:
    rows = [{"type": "Ready", "status": "True"}, {"type": kind, "status": status, "reason": "R"}]
    row = node_row({"metadata": {"name": "w0"}, "status": {"conditions": rows}}, (), all_pods=True)

    assert bool(kubernetes_reasons(kubernetes_node_of(row)[1], heard=False)) is faulty


def test_a_sidecar_counts_beside_the_others_and_before_later_init_containers() -> None:
    def box(count: int, **more: str) -> Json:
        return {"resources": {"limits": {"nvidia.com/gpu": str(count)}}, **more}

    sidecar = box(1, restartPolicy="Always")

    assert requested_devices({"containers": [box(8)], "initContainers": [sidecar, box(2)]}) == {"nvidia.com/gpu": 9}  # fmt: skip
    assert requested_devices({"containers": [box(1)], "initContainers": [sidecar, box(4)]}) == {"nvidia.com/gpu": 5}  # fmt: skip


# ---- answers that are none of Kubernetes


class Forgetful(Api):
    """A server that forgets a list while its pages are read, `times` times."""

    def __init__(self, times: int) -> None:
        super().__init__("/nowhere")
        self.times = times

    def request(self, method: str, path: str, params: Any = None, body: Any = None) -> Json:
        if not params["continue"]:
            return {"items": [{"n": 1}], "metadata": {"continue": "t"}}
        self.times -= 1
        if self.times >= 0:
            raise ApiError(410, "Expired", "The provided continue parameter is too old")
        return {"items": [{"n": 2}], "metadata": {"resourceVersion": "9"}}


def test_a_list_that_the_server_forgets_is_read_from_its_beginning_again() -> None:
    assert Forgetful(2).items("/api/v1/pods", {}) == ([{"n": 1}, {"n": 2}], "9")
    with pytest.raises(ApiError, match="too old"):
        Forgetful(3).items("/api/v1/pods", {})


NGINX = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><hr>nginx</body></html>"
LOGIN = b"<!DOCTYPE html><html><head><title>Sign in</title></head></html>"


@pytest.mark.parametrize(("status", "page", "words"), [
    (502, NGINX, "the Kubernetes server does not answer"),
    (302, b'<a href="https://sso.site/login">Found</a>.\n', "what answers is no Kubernetes server"),
    (403, LOGIN, "what answers is no Kubernetes server"),
    (401, LOGIN, "your login to Kubernetes has expired"),
    (401, b'{"kind": "Status", "reason": "Unauthorized", "message": "the server has asked for the client to provide credentials"}', "your login to Kubernetes has expired"),
    (200, LOGIN, "what answers is no Kubernetes server"),
    (200, b'{"kind": "PodLi', "the answer is no JSON object"),
])  # fmt: skip
def test_a_page_for_people_is_told_in_a_sentence(
    status: int, page: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/etc/passwd")  # there is a configuration
    error = no_json(status, page) if status < 300 else parse_refusal(status, page)

    told = describe_api_refusal(error)

    assert words in told
    assert "<" not in told


@pytest.mark.parametrize(("message", "words"), [
    ("proxyconnect tcp: dial tcp 127.0.0.1:3128: connect: connection refused", "the proxy of kubectl's configuration"),
    ('error: exec plugin: invalid apiVersion "client.authentication.k8s.io/v1alpha1"', "speak no common version"),
    ("error: tls: private key does not match public key", "a certificate or key in kubectl's configuration cannot be used"),
    ("error: unable to load root certificates: unable to parse bytes as PEM block", "a certificate or key in kubectl's configuration cannot be used"),
    ('Get "https://k8s.site:6443/api": remote error: tls: expired certificate', "does not accept the certificate with which kubectl logs in"),
    ("x509: certificate signed by unknown authority", "the certificate of the Kubernetes server is not accepted"),
])  # fmt: skip
def test_who_is_to_blame_for_a_failed_connection_is_told_apart(message: str, words: str) -> None:
    assert words in in_words(message, "prod")


class Partly(Api):
    """A server of which some paths are refused with these HTTP statuses."""

    def __init__(self, **refused: int) -> None:
        super().__init__("/nowhere")
        self._refused = {path.replace("_", "/"): status for path, status in refused.items()}

    def request(self, method: str, path: str, params: Any = None, body: Any = None) -> Json:
        for part, status in self._refused.items():
            if part in path:
                raise ApiError(status, "", "no")
        return {"resources": [{"name": kind.plural} for kind in KINDS], "gitVersion": "v1.30.1"}


def test_a_version_that_is_nobodys_business_and_a_broken_group_hide_no_other_jobs() -> None:
    assert ask_version(Partly(version=403)) == {}
    assert too_old({}) == ""
    names = [kind.name for kind in list_job_kinds(Partly(kubeflow=503))]
    assert names == ["Job", "JobSet", "TrainJob"][: len(names)]
    assert "JobSet" in names


@pytest.mark.parametrize(("refused", "ask"), [({"version": 401}, ask_version), ({"batch": 503}, list_job_kinds)])  # fmt: skip
def test_a_server_that_does_not_answer_at_all_is_told(refused: dict[str, int], ask: Any) -> None:
    with pytest.raises(ApiError):
        ask(Partly(**refused))


def test_a_container_beside_the_rank_that_does_not_start_is_named() -> None:
    half = pod(0, {"running": {}}, "Pending")
    half["status"]["containerStatuses"].append(
        {"name": "metrics", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no x:1"}}}
    )  # fmt: skip

    told = describe_progress(state_of(half, pod(1, {"running": {}})).view())

    assert told == "running: 2 of 2 pods; container `metrics`: ImagePullBackOff: no x:1"


def of_mpijob(role: str, index: int) -> Json:
    found = pod(index, {"running": {}})
    found["metadata"]["labels"] = {"training.kubeflow.org/job-role": role, "training.kubeflow.org/replica-index": str(index)}  # fmt: skip
    return found


def test_an_mpijob_does_not_run_without_its_launcher() -> None:
    workers = [of_mpijob("worker", 0), of_mpijob("worker", 1)]
    state = state_of(*workers, kind="MPIJob")
    assert describe_progress(state.view()) == "pending: 1 of 3 pods: starting"

    about = {"kind": "Job", "name": "j-launcher", "uid": "L"}
    state.take_event("ADDED", {"type": "Warning", "reason": "FailedCreate", "message": "exceeded quota", "involvedObject": about})  # fmt: skip

    assert describe_progress(state.view()) == "pending: 1 of 3 pods: exceeded quota"
    state.take_pod("ADDED", of_mpijob("launcher", 7))
    assert describe_progress(state.view()) == "running: 3 of 3 pods"


def test_a_launcher_that_is_a_worker_too_is_counted_once() -> None:
    state = state_of(of_mpijob("launcher", 0), of_mpijob("worker", 1), kind="MPIJob")
    state.take_job("MODIFIED", job(runLauncherAsWorker=True))

    assert describe_progress(state.view()) == "running: 2 of 2 pods"


def test_a_pod_that_was_taken_away_is_not_one_of_the_others() -> None:
    told = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    pods = [pod(0, over(143)), pod(1, {"running": {}}, conditions=[told])]
    for one in pods:
        one["metadata"]["deletionTimestamp"] = "2026-11-30T08:05:00Z"

    made = judge_ended_job(state_of(*pods, last=job(GIVEN_UP)).view())

    assert made.text.endswith("DeletionByTaintManager, 1 others deleted by Kubernetes")


def test_events_without_a_uid_are_about_no_pod() -> None:
    state = state_of(pod(1, CREATING, "Pending"))

    state.take_event("ADDED", json.loads('{"type": "Warning", "involvedObject": {"name": "j-1-x", "uid": 7}}'))  # fmt: skip

    assert describe_progress(state.view()).endswith("starting")


# ---- what hides a cause, and who is named


USELESS = ", ".join(f'provider "scc-{n}": Forbidden: not usable by user or serviceaccount' for n in range(30))  # fmt: skip
BROKEN_RULE = "provider restricted-v2: .containers[0].runAsUser: Invalid value: 0: must be in the ranges: [1, 2]"  # fmt: skip


def test_rules_of_openshift_that_are_not_the_users_do_not_hide_the_one_that_a_pod_breaks() -> None:
    state = state_of()
    about = {"kind": "Job", "namespace": "ns", "name": "j", "uid": "J"}
    said = f"unable to validate against any security context constraint: [{USELESS}, {BROKEN_RULE}]"

    state.take_event("ADDED", {"type": "Warning", "reason": "FailedCreate", "message": said, "involvedObject": about})  # fmt: skip

    assert BROKEN_RULE in describe_progress(state.view())
    assert "scc-" not in describe_progress(state.view())


def test_why_an_image_was_not_pulled_comes_from_the_warning_where_the_pod_tells_it_no_longer() -> (
    None
):
    waits = pod(0, {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "t"'}}, "Pending")  # fmt: skip
    state = state_of(waits, pod(1, {"running": {}}))

    for message in ("Failed to pull image: pull rate limit", "Error: ErrImagePull", "Error: ImagePullBackOff"):  # fmt: skip
        state.take_event("ADDED", warning("u0", "Failed", message))

    assert describe_progress(state.view()).endswith("ImagePullBackOff: Failed: Failed to pull image: pull rate limit")  # fmt: skip


@pytest.mark.parametrize(("last", "words"), [
    (over(1), "(its last run: exit 1)"),
    (over(137, "OOMKilled"), "(its last run: out of memory (OOMKilled))"),
    ({}, "back-off"),
])  # fmt: skip
def test_an_init_container_that_is_started_again_says_how_its_last_run_ended(
    last: Json, words: str
) -> None:
    stage = {"name": "stage", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, "lastState": last}  # fmt: skip
    waits = pod(1, {"waiting": {"reason": "PodInitializing"}}, "Pending", initContainerStatuses=[stage])  # fmt: skip

    assert describe_progress(state_of(pod(0, {"running": {}}), waits).view()).endswith(words)


@pytest.mark.parametrize(("scheduler", "words"), [
    ("volcano", "2 × scheduler `volcano` has not looked at it yet; does it run?"), ("default-scheduler", "starting"),
])  # fmt: skip
def test_a_scheduler_that_the_site_has_added_and_that_does_nothing_is_named(
    scheduler: str, words: str
) -> None:
    pods = [pod(index, {}, "Pending") for index in (0, 1)]
    for one in pods:
        one["spec"].update(nodeName="", schedulerName=scheduler)

    assert describe_progress(state_of(*pods).view()) == f"pending: 2 of 2 pods: {words}"


@pytest.mark.parametrize(("spec", "words"), [
    ({"managedBy": "kueue.x-k8s.io/multikueue"}, "`kueue.x-k8s.io/multikueue` manages it"),
    ({"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}, "`kueue.x-k8s.io/multikueue` manages it"),
    ({"managedBy": "kubernetes.io/job-controller"}, "no pod exists yet"),
])  # fmt: skip
def test_a_job_whose_pods_are_made_elsewhere_says_so(spec: Json, words: str) -> None:
    assert words in describe_progress(state_of(last=job(**spec)).view())


def test_an_admission_check_that_says_no_is_not_waited_for() -> None:
    state = state_of(last=job(("Suspended", "True", "JobSuspended", "")))
    rejected = {"name": "prov", "state": "Rejected", "message": "max retries"}

    state.take_workload("LISTED", {"items": [{"status": {"conditions": [QUOTA], "admissionChecks": [rejected]}}]})  # fmt: skip

    assert describe_progress(state.view()) == "queued by Kueue: admission check prov has rejected it: max retries"  # fmt: skip


def test_a_pod_that_is_being_taken_away_is_named_while_its_job_runs() -> None:
    told = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    taken = pod(1, {"running": {}}, conditions=[told])

    said = describe_progress(state_of(pod(0, {"running": {}}), taken).view())
    assert said.startswith("running: 2 of 2 pods; pod j-1-x made way for a pod of higher priority on node n1")  # fmt: skip
    taken["metadata"]["deletionTimestamp"] = "2026-11-30T08:05:00Z"
    said = describe_progress(state_of(pod(0, {"running": {}}), taken).view())
    assert said.startswith("ending: 2 of 2 pods are still there; pod j-1-x made way")


# ---- how jobs end that were seen late, or never began


def test_a_pod_that_kueue_ends_was_taken_away() -> None:
    told = {"type": "TerminationTarget", "status": "True", "reason": "WorkloadEvictedDueToPreempted", "message": "Preempted to accommodate a workload"}  # fmt: skip
    ended = pod(1, over(143), "Failed", conditions=[told])

    made = judge_ended_job(state_of(pod(0, {"running": {}}), ended, last=job(GIVEN_UP)).view())

    assert (made.found.kind, made.found.node) == (VerdictKind.TAKEN_AWAY, "n1")
    assert "Preempted to accommodate" in made.text


def test_the_time_limit_of_a_pod_is_a_time_limit() -> None:
    late = pod(1, over(137), "Failed", reason="DeadlineExceeded", message="Pod was active too long")

    made = judge_ended_job(state_of(pod(0, {"running": {}}), late, last=job(GIVEN_UP)).view())

    assert (made.found.kind, made.found.node) == (VerdictKind.TIME_LIMIT, "n1")


def test_a_job_that_failed_did_not_end_well_because_its_ranks_did() -> None:
    proxy = {"name": "istio-proxy", "state": over(255)}
    failed = pod(1, over(0, "Completed"), "Failed")
    failed["status"]["containerStatuses"].append(proxy)
    state = state_of(pod(0, over(0, "Completed"), "Succeeded"), failed, last=job(GIVEN_UP))
    state.close_records()

    made = judge_ended_job(state.view())

    assert (made.found.kind, made.found.node, made.code) == (VerdictKind.PART, "n1", 1)
    assert "not by its ranks: its container `istio-proxy` ended with exit 255" in made.text


BY_RULE = ("Failed", "True", "PodFailurePolicy", "Container main for pod ns/j-1-x failed with exit code 42 matching FailJob rule at index 0")  # fmt: skip


def leaving(one: Json) -> Json:
    one["metadata"]["deletionTimestamp"] = "2026-11-30T08:05:00Z"
    return one


def test_survivors_of_a_failed_pod_that_are_listed_first_are_not_the_cause() -> None:
    state = state_of()
    state.take_pod("LISTED", {"items": [leaving(pod(0, {"running": {}})), pod(1, over(42), "Failed")]})  # fmt: skip
    state.take_job("MODIFIED", job(GIVEN_UP))
    state.close_records()

    assert "rank 1 exit 42 on node n1" in judge_ended_job(state.view()).text


def test_survivors_are_not_the_cause_once_kubernetes_has_decided_how_the_job_ends() -> None:
    state = state_of(last=job(("FailureTarget", "True", "BackoffLimitExceeded", "")))
    state.take_pod("MODIFIED", leaving(pod(0, {"running": {}})))
    state.take_job("MODIFIED", job(GIVEN_UP))

    assert judge_ended_job(state.view()).found.kind is VerdictKind.UNKNOWN


@pytest.mark.parametrize("known", [True, False])
def test_the_pod_that_a_failure_policy_names_is_the_cause(*, known: bool) -> None:
    state = state_of(leaving(pod(0, {"running": {}})))
    if known:
        state.take_pod("MODIFIED", pod(1, over(42), "Failed"))
    state.take_job("MODIFIED", job(BY_RULE))
    state.close_records()
    made = judge_ended_job(state.view())

    assert "42" in made.text
    assert (made.found.rank, made.found.pod) == ((1, "") if known else (None, "j-1-x"))


def test_a_job_that_ends_before_its_pods_started_says_what_they_waited_for() -> None:
    stuck = pod(1, {"waiting": {"reason": "ImagePullBackOff", "message": "ErrImagePull: no such tag"}}, "Pending")  # fmt: skip
    stuck["status"]["containerStatuses"][0]["containerID"] = ""
    over_time = ("Failed", "True", "DeadlineExceeded", "Job was active longer than specified deadline")  # fmt: skip

    made = judge_ended_job(state_of(pod(0, {"running": {}}), stuck, last=job(over_time)).view())
    assert made.found.kind is VerdictKind.TIME_LIMIT
    assert made.text.endswith("pod j-1-x had not started: ImagePullBackOff: ErrImagePull: no such tag")  # fmt: skip
    made = judge_ended_job(state_of(pod(0, {"running": {}}), stuck, last=job(GIVEN_UP)).view())
    assert (made.found.kind, made.found.node) == (VerdictKind.CANNOT_START, "n1")
