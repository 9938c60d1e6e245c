"""What a user may not do on Kubernetes is said, with what to do, and
counts as trouble where no job can run.
"""

from rankdeck.cli.check import live_lines
from rankdeck.remote.command import AgentRows
from rankdeck.schedulers.kubernetes.rows import kubernetes_takes
from rankdeck.schedulers.kubernetes.state import KubernetesState
from rankdeck.schedulers.kubernetes.values import ClusterAbout, KubernetesJob, Permission
from rankdeck.values import replace

ABOUT = ClusterAbout(
    kubectl="v1.36.4",
    context="prod",
    namespace="training",
    server="v1.36.2",
    kinds=("Job",),
    rights=(
        Permission("launch", "create jobs.batch", allowed=True),
        Permission("fleet", "list nodes of all namespaces", allowed=False),
    ),
)


def test_each_finding_is_one_sentence() -> None:
    lines = live_lines(ABOUT)

    assert "launch: can be started" in lines
    assert (
        "fleet: you may not list nodes of all namespaces; docs/kubernetes.md has the Role" in lines
    )
    assert any("needs the MPI Operator" in line for line in lines)


def test_without_kubectl_it_says_what_to_do() -> None:
    (first, *_) = live_lines(ClusterAbout(trouble="no program kubectl in PATH"))

    assert "install it, or name a host" in first


def test_a_feature_is_off_with_its_reason_only_where_the_right_is_known_to_be_missing() -> None:
    state = KubernetesState()
    assert state.refused("fleet") == ""
    state.about = ABOUT

    assert state.refused("launch") == ""
    assert "you may not list nodes" in state.refused("launch", "fleet")


def test_a_right_for_one_kind_of_jobs_says_nothing_of_the_others() -> None:
    state = KubernetesState()
    missing = Permission("cancel", "delete jobsets.jobset.x-k8s.io", allowed=False, kind="JobSet")
    state.about = replace(ABOUT, rights=(missing,))

    assert state.refused("cancel") == state.refused("cancel", kind="MPIJob") == ""
    assert "you may not delete jobsets" in state.refused("cancel", kind="JobSet")


def test_jobs_come_and_go_by_the_rows_of_the_agent_and_nonsense_is_left_out() -> None:
    state = KubernetesState()
    reader = AgentRows(kubernetes_takes(None, state))

    reader.take(
        b'{"job": {"kind": "Job", "namespace": "t", "name": "a", "ranks": "x", "pods": 1e999}}\n'
    )
    reader.take(
        b'{"job": {"kind": "Job", "namespace": "t", "name": "b\\u001b[31m", "ranks": 3}}\nrubbish\n{"job": 7}\n'
    )
    reader.take(
        b'{"node": {"name": "w0", "devices": {"g/u": {"capacity": -1}}, "conditions": [3]}}\n{"trou'
    )

    assert [job.name for job in state.jobs()] == ["b<U+001B>[31m"]
    reader.take(b'ble": "gone"}\n{"job_gone": ["Job", "t/b<U+001B>[31m"]}\n')
    assert (state.jobs(), state.trouble) == ((), "gone")


def test_a_job_of_ours_that_is_known_is_not_listed_twice() -> None:
    state = KubernetesState()
    state.put(KubernetesJob(kind="Job", namespace="t", name="a", ours="a-1"))

    assert state.jobs({"a-1"}) == ()
    assert [job.place for job in state.jobs()] == ["job/a"]
