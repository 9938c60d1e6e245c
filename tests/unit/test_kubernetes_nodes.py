"""Nodes by what Kubernetes says: found, judged beside our agent, remembered."""

import pytest

from rankdeck.model.cluster import Cluster, Node
from rankdeck.schedulers.kubernetes.node import Condition, DeviceCount, KubernetesNode
from rankdeck.state.fleet import Fleet
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import Hello, Sample
from tests.support.judged_fleet import JudgedFleet

READY = Condition("Ready", "True", "KubeletReady", "ok")
WELL = KubernetesNode(conditions=(READY, Condition("MemoryPressure", "False")))
LOST = KubernetesNode(
    conditions=(
        Condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."),
    )
)
CLUSTER = Cluster(name="k", nodes=(), backend="kubernetes")


class Time:
    """A clock that is set by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def fleet_of(*views: KubernetesNode, cluster: Cluster = CLUSTER) -> Fleet:
    fleet = JudgedFleet(cluster, Time())
    for number, view in enumerate(views):
        fleet.scheduler_says(f"w{number}", view)
    return fleet


def hear(fleet: Fleet, name: str) -> None:
    """Our agent on the node says that all is well."""
    fleet.apply(name, Hello(name, True, 0.0, "boot", "1", 1.0, {}, (), True))
    values = {"mem.used": {"": 10.0}, "mem.available": {"": 9.0}, "mem.total": {"": 10.0}}
    fleet.apply(name, Sample(1, 2e9, values))


def told(fleet: Fleet, name: str = "w0") -> list[tuple[Level, str, str]]:
    fleet.take_changes()
    health = fleet.node(name).health
    return [
        (one.level, one.check, one.text)
        for one in health.reasons
        if one.check.startswith("kubernetes")
    ]


def test_nodes_that_no_file_names_come_from_the_server() -> None:
    fleet = fleet_of(WELL, WELL)

    assert fleet.take_changes() == {"w0", "w1"}
    assert [node.name for node in fleet.nodes()] == ["w0", "w1"]
    assert [node.health.level for node in fleet.nodes()] == [Level.OK, Level.OK]


def test_a_file_that_names_its_nodes_gets_no_others() -> None:
    fleet = fleet_of(WELL, WELL, cluster=replace(CLUSTER, nodes=(Node(name="w1"),)))

    assert [node.name for node in fleet.nodes()] == ["w1"]
    assert fleet.node("w1").in_scheduler == WELL


@pytest.mark.parametrize(
    ("view", "level", "part"),
    [
        (LOST, Level.UNKNOWN, "Kubernetes lost touch with it (Ready: NodeStatusUnknown: Kubelet stopped posting node status.)"),
        (replace(WELL, conditions=(replace(READY, status="False", reason="KubeletNotReady", message="no CNI"),)), Level.BAD, "calls it not ready (Ready: KubeletNotReady: no CNI)"),
        (replace(WELL, conditions=(READY, Condition("GpuDcgmConnectivityFailure", "True", "DCGM_HANG", "dcgm says no"))), Level.WARN, "GpuDcgmConnectivityFailure: DCGM_HANG: dcgm says no"),
        (replace(WELL, conditions=(READY, Condition("GPUHealthy", "False", "Xid79", "fell off the bus"))), Level.WARN, "GPUHealthy is False: Xid79: fell off the bus"),
        (replace(WELL, conditions=(READY, Condition("DiskPressure", "True"))), Level.WARN, "DiskPressure · disk is short there"),
        (replace(WELL, unschedulable=True), Level.WARN, "cordoned"),
        (replace(WELL, devices={"nvidia.com/gpu": DeviceCount(8, 7, None)}), Level.WARN, "1 of 8 nvidia.com/gpu are not given out"),
        (KubernetesNode(), Level.UNKNOWN, "says nothing of its state"),
        (KubernetesNode(gone=True), Level.UNKNOWN, "no such node any more"),
    ],
)  # fmt: skip
def test_what_kubernetes_says_is_told_in_its_words(
    view: KubernetesNode, level: Level, part: str
) -> None:
    fleet = fleet_of(view)
    ((worst, _, text),) = told(fleet)

    assert (fleet.node("w0").health.level, worst) == (level, level)
    assert part in text


def test_a_condition_that_is_well_says_nothing() -> None:
    view = replace(
        WELL,
        conditions=(READY, Condition("NetworkUnavailable", "False"), Condition("GPUReady", "True")),
    )

    assert told(fleet_of(view)) == []


def test_both_are_shown_where_our_agent_is_heard_and_kubernetes_lost_the_node() -> None:
    fleet = fleet_of(LOST)
    hear(fleet, "w0")

    ((level, _, text),) = told(fleet)
    assert level is Level.WARN
    assert "Kubernetes lost touch with it" in text
    assert "but our agent is heard" in text


def test_both_are_shown_where_our_agent_is_silent_and_kubernetes_calls_it_ready() -> None:
    clock = Time()
    fleet = Fleet(CLUSTER, clock)
    fleet.scheduler_says("w0", WELL)
    hear(fleet, "w0")
    clock.now += 60
    fleet.take_changes()

    health = fleet.node("w0").health
    assert health.level is Level.UNKNOWN
    assert [one.check for one in health.reasons] == ["node.silent", "kubernetes.ready"]
    assert "still calls it Ready" in health.reasons[1].text


def test_a_fleet_without_names_waits_for_the_server() -> None:
    fleet = Fleet(CLUSTER)
    fleet.await_nodes(awaited=True)
    before = fleet.settled()
    fleet.scheduler_says("w0", WELL)
    fleet.await_nodes(awaited=False)

    assert (before, fleet.settled()) == (False, True)


def test_a_node_that_failed_is_waited_for_unless_the_server_tells_of_it() -> None:
    cluster = replace(CLUSTER, nodes=(Node(name="w0"), Node(name="w1")))
    fleet = Fleet(cluster)
    for name in ("w0", "w1"):
        fleet.troubled(name, "refused")

    assert fleet.settled()
    assert not fleet.all_heard()
    for name in ("w0", "w1"):
        fleet.scheduler_says(name, WELL)
    assert fleet.all_heard()


def test_what_begins_and_ends_without_an_agent_is_written_down() -> None:
    fleet = fleet_of(WELL)
    fleet.take_changes()
    fleet.scheduler_says("w0", replace(WELL, unschedulable=True))
    fleet.take_changes()
    fleet.scheduler_says("w0", WELL)
    fleet.take_changes()

    assert [(one.kind, one.check) for one in fleet.event_log.newest] == [
        ("began", "kubernetes.cordoned"), ("ended", "kubernetes.cordoned"),
    ]  # fmt: skip


def test_a_picture_from_before_a_node_was_found_does_not_know_it() -> None:
    fleet = fleet_of(WELL)
    fleet.take_changes()
    fleet.scheduler_says("late", WELL)
    fleet.take_changes()

    (first, _) = fleet.past.span() or (0.0, 0.0)
    frame = fleet.past.frame(first)
    assert frame is not None
    assert frame.level(fleet.place("late")) is Level.UNKNOWN
    assert frame.number(fleet.place("late"), "cpu.used") is None
