"""Nodes by what Slurm says, beside our agent; jobs of its queue; rows from the login node."""

import pytest

from rankdeck.errors import UnknownJobError
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.health import Ack
from rankdeck.model.queue import QueueStatus
from rankdeck.remote.command import AgentRows
from rankdeck.schedulers.queue import find_listed
from rankdeck.schedulers.slurm.node import SlurmNode
from rankdeck.schedulers.slurm.rows import ended_of, slurm_takes
from rankdeck.schedulers.slurm.state import SlurmCluster
from rankdeck.schedulers.slurm.values import SlurmJob
from rankdeck.state.fleet import Fleet
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Health, Level, Reason
from rankdeck_agent.wire import Hello, Sample
from tests.support.judged_fleet import JudgedFleet

CLUSTER = Cluster(name="c", nodes=(Node(name="n1"),), backend="slurm", options={"login": "login"})
IDLE = SlurmNode(state="idle", partitions=("debug",))
DRAINED = SlurmNode(state="drained", reason="bad cable", by="root", since=1795371818.0)


class Time:
    """A clock that is set by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def fleet_of(view: SlurmNode, *, heard: bool = True) -> Fleet:
    fleet = JudgedFleet(CLUSTER, Time())
    if heard:
        fleet.apply("n1", Hello("n1", True, 0.0, "boot", "1", 1.0, {}, (), True))
        values = {"mem.used": {"": 10.0}, "mem.available": {"": 90.0}, "mem.total": {"": 100.0}}
        fleet.apply("n1", Sample(1, 2e9, values))
    fleet.scheduler_says("n1", view)
    return fleet


def told(fleet: Fleet) -> list[tuple[Level, str]]:
    fleet.take_changes()
    reasons = fleet.node("n1").health.reasons
    return [(one.level, one.text) for one in reasons if one.check.startswith("slurm")]


def test_a_fleet_without_names_has_the_nodes_that_slurm_lists_once_all_are_told() -> None:
    fleet = Fleet(replace(CLUSTER, nodes=()))
    fleet.await_nodes(awaited=True)
    rows = AgentRows(slurm_takes(fleet, SlurmCluster()))
    rows.take(b'{"about": {"user": "ann"}}\n{"node": {"name": "n1", "state": "idle"}}\n')
    before = fleet.settled()
    rows.take(b'{"node": {"name": "n2", "state": "idle"}}\n{"ready": true}\n')

    assert (before, fleet.settled()) == (False, True)
    assert [node.name for node in fleet.nodes()] == ["n1", "n2"]


def test_a_file_that_names_its_nodes_gets_no_others_from_slurm() -> None:
    fleet = Fleet(CLUSTER)
    fleet.scheduler_says("n2", IDLE)

    assert [node.name for node in fleet.nodes()] == ["n1"]


def test_a_node_that_slurm_uses_and_our_agent_finds_well_is_ok() -> None:
    fleet = fleet_of(IDLE)

    assert told(fleet) == []
    assert fleet.node("n1").health.level is Level.OK


def test_drained_but_healthy_says_both_and_whose_reason_it_is() -> None:
    ((level, text),) = told(fleet_of(DRAINED))

    assert level is Level.WARN
    assert "bad cable, by root, since" in text
    assert "our agent finds nothing wrong" in text


def test_drained_and_not_heard_does_not_call_it_well() -> None:
    ((_, text),) = told(fleet_of(DRAINED, heard=False))

    assert "bad cable" in text
    assert "nothing wrong" not in text


@pytest.mark.parametrize(("heard", "level"), [(True, Level.WARN), (False, Level.BAD)])
def test_down_in_slurm_is_worse_where_we_do_not_hear_it_either(heard: bool, level: Level) -> None:
    ((found, text),) = told(
        fleet_of(SlurmNode(state="down", also=("not responding",)), heard=heard)
    )

    assert found is level
    assert ("our agent is heard" in text) is heard


def test_a_slurmd_that_is_silent_is_told_beside_the_state() -> None:
    ((level, text),) = told(fleet_of(replace(IDLE, also=("not responding",))))

    assert level is Level.WARN
    assert "slurmd does not answer" in text


def test_powered_down_is_no_fault() -> None:
    ((level, text),) = told(fleet_of(replace(IDLE, also=("powered down",)), heard=False))

    assert level is Level.UNKNOWN
    assert "when a job needs it" in text


BAD = Health(Level.BAD, (Reason("gpu.lost", Level.BAD, "GPU 3 is lost"),), 25, 25)


def test_idle_but_bad_says_that_jobs_still_go_there() -> None:
    health = IDLE.merge_health(BAD, heard=True, tried=True)

    assert [one.check for one in health.reasons] == ["gpu.lost", "slurm.usable"]
    assert "Slurm still gives it jobs (idle)" in health.reasons[1].text
    assert health.level is Level.BAD


@pytest.mark.parametrize("view", [DRAINED, replace(IDLE, also=("not responding",))])
def test_a_bad_node_that_gets_no_jobs_is_not_said_to_get_some(view: SlurmNode) -> None:
    assert "slurm.usable" not in {
        one.check for one in view.merge_health(BAD, heard=True, tried=True).reasons
    }


def test_a_node_that_is_gone_from_slurm_conf_says_so_and_is_not_invented() -> None:
    fleet = fleet_of(SlurmNode(state=""))
    fleet.scheduler_says("n9", IDLE)

    ((level, text),) = told(fleet)
    assert level is Level.UNKNOWN
    assert "no such node" in text
    assert not fleet.knows("n9")


# ---- jobs


def test_our_own_jobs_come_first_and_those_we_follow_are_left_out() -> None:
    state = SlurmCluster()
    state.user = "ann"
    for number, user in enumerate(("bob", "ann", "ann")):
        status = QueueStatus(id=str(number), state="PENDING")
        state.put(SlurmJob(id=str(number), place=str(number), user=user, created=number, status=status))  # fmt: skip

    assert [one.id for one in state.jobs()] == ["2", "1", "0"]
    assert [one.id for one in state.jobs({"2"})] == ["1", "0"]


@pytest.mark.parametrize("text", ["4711_3", "4715", "train"])
def test_a_job_that_we_did_not_submit_is_found_by_each_of_its_names(text: str) -> None:
    listed = [SlurmJob(id="4715", place="4711_3", name="train", user="ann")]

    assert find_listed(listed, text) is listed[0]
    with pytest.raises(UnknownJobError):
        find_listed(listed, "4711")


def test_a_job_that_ended_says_how_and_comes_after_those_of_the_queue() -> None:
    state = SlurmCluster()
    state.user = "ann"
    row = {"id": "7", "shown": "7", "user": "bob", "state": "FAILED", "code": 7, "end": 90.0, "submitted": 50.0}  # fmt: skip
    mine = {**row, "id": "8", "user": "ann", "state": "TIMEOUT", "text": "its time limit was over", "code": "x"}  # fmt: skip
    for one in (row, mine, {"id": 3}, {}):
        state.put_ended(ended_of(one))
    state.put(SlurmJob(id="9", place="9", user="bob", created=1.0))

    queued, ours, theirs = state.jobs()
    assert (queued.id, queued.remark, queued.ended) == ("9", "", None)
    assert (ours.id, ours.state, ours.remark) == ("8", "failed", "its time limit was over")
    assert (theirs.state, theirs.remark, theirs.ended) == ("failed", "exit code 7", 90.0)


def test_rows_of_the_login_node_are_taken_and_nonsense_is_left_out() -> None:
    state, fleet = SlurmCluster(), fleet_of(IDLE)
    rows = AgentRows(slurm_takes(fleet, state))

    rows.take(b'{"about": {"user": "ann"}}\n{"node": {"name": "n1", "state": "drained", "jobs": ["7 x"], "gres": {"gpu": 4, "b": -1}}}\n')  # fmt: skip
    rows.take(b'{"job": {"id": "7", "shown": "5_2", "user": "ann", "state": "RUNNING", "end": 2e9, "count": "x"}}\n')  # fmt: skip
    rows.take(b'{"job": {"id": 8}}\n{"job": []}\n{"node": 3}\n{"partition": {"idle": 1}}\n{"partition": {"name": "debug\\u001b", "idle": 1e9}}\nrubbish\n')  # fmt: skip

    view = fleet.node("n1").in_scheduler
    assert view is not None
    assert (view.state, view.jobs, view.gres) == ("drained", ("7 x",), {"gpu": 4})
    (job,) = state.jobs()
    assert (job.place, job.mine, job.count, job.status.ends) == ("5_2", True, 0, 2e9)
    assert [one.name for one in state.partitions()] == ["debug<U+001B>"]
    rows.take(b'{"job_gone": "7"}\n{"node_gone": "n1"}\n{"trouble": "gone"}\n')
    assert (state.jobs(), state.trouble) == ((), "gone")
    gone = fleet.node("n1").in_scheduler
    assert gone is not None
    assert gone.gone


def test_an_acknowledged_drain_counts_no_more() -> None:
    fleet = fleet_of(DRAINED)
    fleet.set_acks([Ack("n1", "slurm.state", 2e9, "ann", "planned")])
    fleet.take_changes()

    assert fleet.node("n1").health.level is Level.OK
