"""The runner through the real schedule, judge and store: rounds, hung
pairs, killed consoles, nodes taken out.
"""

import asyncio
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from rankdeck.acceptance import measure, view
from rankdeck.acceptance import runner as runner_module
from rankdeck.acceptance.hardware import LINK_ERRORS, REBOOTS, describe_differing
from rankdeck.acceptance.measure import RawOutputs
from rankdeck.acceptance.run import (
    Request,
    RunPlan,
    RunState,
    StagePlan,
    acceptance_plan_json,
    plan_hash,
)
from rankdeck.acceptance.runner import Runner
from rankdeck.acceptance.service import Acceptance
from rankdeck.acceptance.store import AcceptanceRuns, KeptRun
from rankdeck.acceptance.values import Outcome, Result, Stage
from rankdeck.acceptance.work import Setup, Work, spec_of
from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Cluster, Node
from rankdeck.values import replace
from rankdeck_agent.collectors.rdma import RdmaCollector
from rankdeck_agent.wire import Hello, Sample
from tests.support.acceptance_means import SimulatedMeans, Speed
from tests.unit.agent.machines import copy_recorded

NODES = tuple(f"n{number}" for number in range(1, 9))
PLAN = RunPlan(
    cluster="c", nodes=NODES, seed=3, seconds=1.0,
    stages=tuple(
        StagePlan(stage=stage, recipe="iperf3", rounds=1)
        for stage in (Stage.PAIRS, Stage.CONFIRM, Stage.INSIDE, Stage.CROSSING, Stage.ALONE)
    ),
)  # fmt: skip


class Site:
    """One cluster with its store; each `runner` is a console of its own."""

    def __init__(self, folder: Path, nodes: tuple[str, ...] = NODES) -> None:
        self.cluster = Cluster(name="c", nodes=tuple(Node(name=name, slots=2) for name in nodes))
        self.store = AcceptanceRuns(folder / "acceptance.db")
        self.raw = RawOutputs(folder / "raw")
        self.store.begin(KeptRun("r1", "c", 1.0, plan_hash(PLAN), body=acceptance_plan_json(PLAN)))

    def runner(self, speed: Speed, **more: object) -> tuple[Runner, SimulatedMeans]:
        means = SimulatedMeans(self.cluster, speed, **more)  # type: ignore[arg-type]
        runner = Runner(
            means, self.store, self.raw, Setup(cluster=self.cluster, seconds=1.0), lambda: None
        )
        runner.take(self.results(), self.store.identity("r1"))
        return runner, means

    def results(self) -> list[Result]:
        return list(self.store.measurements("r1"))

    def said(self, plan: RunPlan = PLAN) -> list[str]:
        return [one.sentence for one in view.judge_results(plan, self.results(), {}, {}).verdicts]


@pytest.fixture
def site(tmp_path: Path):
    one = Site(tmp_path)
    yield one
    one.store.close()


def full(_sender: str, _receiver: str) -> float:
    return 0.095


def test_every_pair_is_measured_both_ways_with_its_output_on_disk(site: Site) -> None:
    runner, means = site.runner(full)

    asyncio.run(runner.go("r1", PLAN))

    results = site.results()
    assert len(means.launched) == 28
    assert {(one.sender, one.receiver, one.repeat) for one in results} == {
        (a, b, repeat) for a in NODES for b in NODES if a != b for repeat in (0, 1)
    }
    assert {one.outcome for one in results} == {Outcome.MEASURED}
    assert all('"bits_per_second"' in site.raw.read(one, 5000) for one in results)
    assert view.judge_results(PLAN, results, {}, {}).answers == dict.fromkeys(
        NODES, view.Answer.GOOD
    )


def test_a_node_that_sends_slowly_is_named_and_no_other(site: Site) -> None:
    runner, _ = site.runner(lambda sender, _: 0.062 if sender == "n5" else 0.095)

    asyncio.run(runner.go("r1", PLAN))

    (sentence,) = site.said()
    assert sentence.startswith("n5 sends at 0.062 Gb/s (others 0.095 Gb/s) with 7 of 7 partners")


@pytest.mark.long
def test_a_pair_that_hangs_is_cancelled_and_named_and_the_run_goes_on(
    site: Site, monkeypatch
) -> None:
    monkeypatch.setattr("rankdeck.acceptance.work.SHORTEST", 2.0)
    monkeypatch.setattr("rankdeck.acceptance.work.PATIENCE", 0.0)
    monkeypatch.setattr(measure, "_LOOK", 0.02)
    runner, means = site.runner(lambda a, b: None if {a, b} == {"n2", "n6"} else 0.095)

    asyncio.run(runner.go("r1", PLAN))

    hung = [one for one in site.results() if one.outcome is Outcome.FAILED]
    assert {frozenset((one.sender, one.receiver)) for one in hung} == {frozenset(("n2", "n6"))}
    assert all("hung: it did not end within" in one.text for one in hung)
    assert len(means.cancelled) == len({one.job for one in hung}) > 1
    (sentence,) = site.said()
    assert "n2" in sentence
    assert "n6" in sentence
    assert "fails" in sentence
    others = [one for one in site.results() if not {"n2", "n6"} >= {one.sender, one.receiver}]
    assert {one.outcome for one in others} == {Outcome.MEASURED}


@pytest.mark.parametrize(
    ("hangs", "outcome"), [(NODES, Outcome.NOT_MEASURED), (("n3",), Outcome.FAILED)]
)
def test_a_program_that_ends_on_no_node_in_time_may_be_slow_and_one_that_ends_on_others_hangs(
    site: Site, monkeypatch, hangs: tuple[str, ...], outcome: Outcome
) -> None:
    monkeypatch.setattr("rankdeck.acceptance.work.SHORTEST", 0.5)
    monkeypatch.setattr("rankdeck.acceptance.work.PATIENCE", 0.0)
    monkeypatch.setattr(measure, "_LOOK", 0.02)
    runner, means = site.runner(lambda node, _: None if node in hangs else 1.0)
    stages = (StagePlan(stage=Stage.SINGLE, recipe="hpcc", rounds=1),)

    asyncio.run(runner.go("r1", replace(PLAN, stages=stages)))

    found = {one.sender: one for one in site.results() if one.sender in hangs}
    assert {one.outcome for one in found.values()} == {outcome}
    assert all(one.text.startswith("it hung: it did not end within") for one in found.values())
    assert len(means.cancelled) == len(hangs)
    assert len(site.said()) == (outcome is Outcome.FAILED)


def test_a_path_of_which_nothing_was_learned_is_named_and_not_accepted(site: Site) -> None:
    runner, _ = site.runner(full)
    asyncio.run(runner.go("r1", PLAN))
    lost = [
        replace(one, outcome=Outcome.NOT_MEASURED, value=None, text="it never began: refused")
        if (one.sender, one.receiver) == ("n2", "n6") else one
        for one in site.results()
    ]  # fmt: skip

    (verdict,) = view.judge_results(PLAN, lost, {}, {}).verdicts

    assert verdict.sentence == "n2→n6: iperf3 was not measured: it never began: refused"
    assert (verdict.answer, verdict.nodes) == (view.Answer.NOT_MEASURED, ())


@pytest.mark.parametrize("heard", [False, True])
def test_paths_of_few_nodes_of_which_nothing_was_learned_are_one_sentence(
    site: Site, heard: bool
) -> None:
    """Of two nodes that do not reach each other, or a third that nobody reaches."""
    nodes = NODES[: 3 if heard else 2]
    plan = replace(PLAN, nodes=nodes)
    runner, _ = site.runner(full)
    asyncio.run(runner.go("r1", plan))
    lost = [
        replace(one, outcome=Outcome.NOT_MEASURED, value=None, text="it never began: timed out")
        if nodes[-1] in (one.sender, one.receiver) else one
        for one in site.results()
    ]  # fmt: skip

    found = view.judge_results(plan, lost, {}, {})

    (verdict,) = found.verdicts
    assert "iperf3 was not measured: it never began: timed out: look at addresses, firewall" in verdict.sentence  # fmt: skip
    assert "reach others" not in verdict.sentence
    assert found.answers[nodes[-1]] is view.Answer.NOT_MEASURED


@pytest.mark.parametrize("gone", [{"n5"}, {"n5", "n6"}])
def test_a_node_that_dies_meanwhile_is_not_good_and_its_paths_are_one_sentence(
    site: Site, gone: set[str]
) -> None:
    runner, _ = site.runner(full)
    asyncio.run(runner.go("r1", PLAN))
    lost = [
        replace(one, outcome=Outcome.NOT_MEASURED, value=None, text="it rests: no route")
        if gone & {one.sender, one.receiver} and one.round > 3 else one
        for one in site.results()
    ]  # fmt: skip

    found = view.judge_results(PLAN, lost, {}, {})

    assert [one.nodes for one in found.verdicts] == [(node,) for node in sorted(gone)]
    assert "partners: it rests: no route" in found.verdicts[0].sentence
    assert {node for node, answer in found.answers.items() if not answer.accepted} == gone
    assert {found.answers[node] for node in gone} == {view.Answer.NOT_MEASURED}


def test_a_measurement_that_its_scheduler_never_starts_is_no_fault_of_the_nodes(site: Site) -> None:
    _, means = site.runner(lambda a, b: None)
    means.cluster = replace(means.cluster, backend="slurm")
    spec = spec_of(Work(stage=Stage.PAIRS, recipe="iperf3", nodes=("n1", "n2"), runs=(("n1", "n2", 0, 0),)), Setup(cluster=means.cluster))  # fmt: skip

    done = asyncio.run(measure.measure_job(means, spec, lambda: 0.0, {}, queue=0.05))

    assert done.refused == "it did not start within 0 s and was cancelled"
    assert means.cancelled == [done.job]


@pytest.mark.long
def test_nodes_on_which_something_is_left_rest_until_it_is_gone(site: Site, monkeypatch) -> None:
    monkeypatch.setattr("rankdeck.acceptance.work.SHORTEST", 2.0)
    monkeypatch.setattr("rankdeck.acceptance.work.PATIENCE", 0.0)
    monkeypatch.setattr(measure, "_LOOK", 0.02)
    runner, means = site.runner(
        lambda a, b: None if {a, b} == {"n2", "n6"} else 0.095, left=frozenset({"n6"})
    )

    def gone(count: int) -> None:
        if count > 22:
            means.left = frozenset()

    means.after = gone
    asyncio.run(runner.go("r1", PLAN))

    rested = [one for one in site.results() if "rests: process 7 of accept-" in one.text]
    assert all("n6" in (one.sender, one.receiver) for one in rested)
    assert {one.outcome for one in rested} <= {Outcome.NOT_MEASURED}
    assert not runner.resting


@pytest.mark.parametrize("left", [frozenset[str](), frozenset({"n6"})])
def test_what_a_killed_console_left_running_is_ended_before_anything_is_measured(
    site: Site, left: frozenset[str]
) -> None:
    runner, means = site.runner(lambda a, b: None if "n6" in (a, b) else 0.095, left=left)
    work = Work(stage=Stage.PAIRS, recipe="iperf3", nodes=("n2", "n6"), runs=(("n2", "n6", 0, 0),))
    begun = asyncio.run(
        means.launch(spec_of(work, Setup(cluster=means.cluster, run="r1")), anywhere=True)
    )
    other = asyncio.run(
        means.launch(spec_of(work, Setup(cluster=means.cluster, run="r0")), anywhere=True)
    )
    means.speed = full

    asyncio.run(runner.go("r1", PLAN))

    assert begun in means.cancelled
    assert other not in means.cancelled
    assert set(runner.resting) == left
    measured = [one for one in site.results() if one.outcome is Outcome.MEASURED]
    assert any("n6" in (one.sender, one.receiver) for one in measured) is not bool(left)


def test_a_node_that_is_lost_in_the_last_round_is_not_accepted_for_what_it_reached_before(
    site: Site, monkeypatch
) -> None:
    monkeypatch.setattr("rankdeck.acceptance.work.SHORTEST", 0.5)
    monkeypatch.setattr("rankdeck.acceptance.work.PATIENCE", 0.0)
    monkeypatch.setattr(measure, "_LOOK", 0.02)
    runner, means = site.runner(full, left=frozenset({"n3"}))
    met: Counter[str] = Counter()

    def speed(sender: str, receiver: str) -> float | None:
        met["n3"] += "n3" in (sender, receiver)
        return None if met["n3"] == 4 * 7 and "n3" in (sender, receiver) else 0.095

    means.speed = speed
    asyncio.run(runner.go("r1", PLAN))

    said = view.judge_results(PLAN, site.results(), {}, {})
    (one,) = said.verdicts
    assert said.answers == {**dict.fromkeys(NODES, view.Answer.GOOD), "n3": one.answer}
    assert one.answer is view.Answer.NOT_MEASURED
    assert re.fullmatch(
        r"n3 takes part no longer: process 7 of accept-\d+ does not end", one.sentence
    )


@pytest.mark.long
def test_a_login_node_that_cannot_be_asked_is_none_of_those_that_are_measured(
    site: Site, monkeypatch
) -> None:
    monkeypatch.setattr("rankdeck.acceptance.work.SHORTEST", 0.5)
    monkeypatch.setattr("rankdeck.acceptance.work.PATIENCE", 0.0)
    monkeypatch.setattr(measure, "_LOOK", 0.02)
    runner, _ = site.runner(
        lambda a, b: None if {a, b} == {"n2", "n6"} else 0.095, unasked={"login": "no route"}
    )

    asyncio.run(runner.go("r1", PLAN))

    assert set(runner.resting) == {"login"}
    assert {node for one in site.results() for node in one.nodes} == set(NODES)
    assert view.judge_results(PLAN, site.results(), {}, {}).verdicts


@pytest.mark.parametrize("died_after", [1, 9, 17, 27])
def test_a_killed_console_goes_on_and_measures_nothing_twice(site: Site, died_after: int) -> None:
    def die(count: int) -> None:
        if count > died_after:
            raise KilledError

    first, before = site.runner(full, after=die)
    with pytest.raises(BaseExceptionGroup):
        asyncio.run(first.go("r1", PLAN))
    had = {one.key: one for one in site.results()}
    second, after = site.runner(full)
    asyncio.run(second.go("r1", PLAN))

    assert had
    assert had.items() <= {one.key: one for one in site.results()}.items()
    assert len(site.results()) == 112
    pairs = [tuple(sorted(spec.on)) for spec in (*before.launched[:died_after], *after.launched)]
    assert len(pairs) >= 28
    assert len(after.launched) == 28 - len(had) // 4


class KilledError(Exception):
    """The console ends here."""


@pytest.mark.parametrize("died_after", [1, 2])
def test_a_console_that_is_killed_between_groups_goes_on_with_the_same_rounds(
    site: Site, died_after: int
) -> None:
    def die(count: int) -> None:
        if count > died_after:
            raise KilledError

    plan = replace(PLAN, stages=(StagePlan(stage=Stage.GROUPS, recipe="torch-gloo", rounds=2),))
    first, _ = site.runner(full, after=die)
    with pytest.raises(BaseExceptionGroup):
        asyncio.run(first.go("r1", plan))
    second, after = site.runner(full)

    asyncio.run(second.go("r1", plan))

    rounds = [(one.round, one.group) for one in site.results()]
    assert sorted(rounds) == [(0, NODES[:4]), (0, NODES[4:]), (1, NODES)]
    assert len(after.launched) == 3 - died_after


def test_a_soak_that_was_cut_goes_on_for_what_is_left_of_its_time(site: Site) -> None:
    plan = replace(PLAN, stages=(StagePlan(stage=Stage.SOAK, recipe="torch-gloo"),), soak=30.0)
    soaked = [
        Result(
            stage=Stage.SOAK, recipe="torch-gloo", sender="n1", group=NODES, round=repeat, repeat=repeat,
            outcome=Outcome.MEASURED, value=9.0, seconds=15.0,
        )
        for repeat in range(2)
    ]  # fmt: skip
    site.store.add("r1", [(one, "") for one in soaked])
    runner, means = site.runner(full)

    asyncio.run(runner.go("r1", plan))

    assert means.launched == []


def test_a_node_that_is_taken_out_is_no_strike(site: Site) -> None:
    runner, means = site.runner(full)

    def out(count: int) -> None:
        if count == 9:
            runner.excluded["n3"] = "its cable is being swapped"

    means.after = out
    asyncio.run(runner.go("r1", PLAN))

    taken = [one for one in site.results() if one.outcome is Outcome.EXCLUDED]
    assert taken
    assert all("n3" in (one.sender, one.receiver) for one in taken)
    assert all(one.text == "n3 was taken out: its cable is being swapped" for one in taken)
    assert site.said() == []


def test_a_soak_of_which_nothing_is_learned_ends_and_does_not_go_round_until_its_time_is_over(
    site: Site,
) -> None:
    soak = StagePlan(stage=Stage.SOAK, recipe="torch-gloo")
    runner, means = site.runner(full)

    asyncio.run(runner.go("r1", replace(PLAN, stages=(soak,), soak=20.0)))

    assert [one.outcome for one in site.results()] == [Outcome.NOT_MEASURED]
    assert len(means.launched) == 1
    assert [one.answer for one in view.judge_results(PLAN, site.results(), {}, {}).verdicts] == [
        view.Answer.NOT_MEASURED
    ]


def test_low_clocks_of_a_cpu_are_compared_with_those_of_nodes_alike(site: Site) -> None:
    runner, means = site.runner(lambda sender, _: 0.062 if sender == "n5" else 0.095)
    runner.alike.update({node: "Pi 4" if node in ("n7", "n8") else "EPYC" for node in NODES})
    clocks = {"n5": 0.9e9, "n7": 1.5e9, "n8": 1.5e9}

    def load(count: int) -> None:
        for node in NODES:
            clock = clocks.get(node, 2.4e9)
            values = {"cpu.used": {"": 97 if node != "n2" else 3}, "cpu.freq": {"": clock}}
            means.fleet.apply(node, Sample(count, float(count), values))

    means.after = load
    asyncio.run(runner.go("r1", PLAN))

    seen = "its cpu clock under load is 900 of 2400 MHz, 4 of 5 have full"
    assert runner.odd == {"n5": seen}
    (verdict,) = view.judge_results(PLAN, site.results(), runner.odd, {}).verdicts
    assert verdict.sentence.endswith(seen)


def test_cores_that_another_program_keeps_busy_stand_in_the_sentence_and_are_kept(
    site: Site,
) -> None:
    runner, means = site.runner(slow_n5)

    def load(count: int) -> None:
        for node in NODES:
            used = {"n5": 97, "n2": 30}.get(node, 4)
            means.fleet.apply(node, Sample(count, float(count), {"cpu.used": {"": used}}))

    means.after = load
    asyncio.run(runner.go("r1", PLAN))

    seen = "its busy cores are 97 % (4 % on most), 7 of 8 have no more"
    (verdict,) = view.judge_results(PLAN, site.results(), runner.odd, {}).verdicts
    assert verdict.sentence.endswith(seen)
    assert describe_differing(site.store.identity("r1")) == {"n5": seen}


def test_a_node_that_was_rebooted_between_two_measurements_is_named(site: Site) -> None:
    runner, means = site.runner(full)

    def boot(count: int) -> None:
        for node in NODES:
            second = node == "n3" and count > 3
            hello = Hello(node, True, float(count), f"boot-{second}", "1", 1.0, {})
            means.fleet.apply(node, hello)

    boot(0)
    means.after = boot
    asyncio.run(runner.go("r1", PLAN))

    seen = "it rebooted during this run, 7 of 8 did not"
    assert (
        describe_differing(site.store.identity("r1"))
        == describe_differing(runner.identity)
        == {"n3": seen}
    )


def test_what_an_earlier_console_heard_of_a_node_stays(site: Site) -> None:
    seen = {"n3": {REBOOTS: "1 or more in this run"}, "n4": {LINK_ERRORS: "mlx5_0/1: 40 symbol or CRC errors"}}  # fmt: skip
    well = {node: {REBOOTS: "none", LINK_ERRORS: "none"} for node in NODES}
    site.store.identify("r1", {node: {**well[node], **seen.get(node, {})} for node in NODES})
    before = describe_differing(site.store.identity("r1"))
    runner, means = site.runner(full)

    def boot(count: int) -> None:
        for node in NODES:
            means.fleet.apply(node, Hello(node, True, float(count), "boot", "1", 1.0, {}))

    boot(0)
    means.after = boot
    asyncio.run(runner.go("r1", PLAN))

    assert set(before) == {"n3", "n4"}
    assert (
        describe_differing(site.store.identity("r1"))
        == describe_differing(runner.identity)
        == before
    )
    assert runner.odd == before


def test_low_clocks_under_load_stand_in_the_sentence_and_are_kept(site: Site) -> None:
    runner, means = site.runner(lambda sender, _: 0.062 if sender == "n5" else 0.095)

    def load(count: int) -> None:
        for node in NODES:
            clock = 900e6 if node == "n5" else 1410e6
            values = {"gpu.used": {"0": 98, "1": 0}, "gpu.clock": {"0": clock, "1": 210e6}}
            means.fleet.apply(node, Sample(count, float(count), values))

    means.after = load
    asyncio.run(runner.go("r1", PLAN))

    seen = "its gpu clocks under load are GPU 0 at 900 of 1410 MHz, 7 of 8 have full"
    assert runner.odd == {"n5": seen}
    (verdict,) = view.judge_results(PLAN, site.results(), runner.odd, {}).verdicts
    assert verdict.sentence.endswith(seen)
    assert describe_differing(site.store.identity("r1")) == {"n5": seen}


# ---- what links count meanwhile

PORT = "sys/class/infiniband/mlx5_0/ports/1"


class Ports:
    """Each node has the ports that were recorded; `counts` says what a file of
    a node shows after the first reading.
    """

    def __init__(self, folder: Path, counts: dict[str, dict[str, int]], nodes=NODES) -> None:
        self._folder, self._counts, self._nodes = folder, counts, nodes
        self._collectors = {
            node: RdmaCollector(str(copy_recorded(folder / node, "sys/class/infiniband")))
            for node in nodes
        }

    def tell(self, means: SimulatedMeans):
        """Tell the first reading; what comes back is called whenever a job starts."""

        def now(count: int) -> None:
            for node in self._nodes:
                for name, value in self._counts.get(node, {}).items() if count else ():
                    (self._folder / node / PORT / name).write_text(f"{value}\n")
                values = self._collectors[node].collect(20.0 * count).values
                means.fleet.apply(node, Sample(count, float(count), values))

        now(0)
        return now


@pytest.mark.long
def test_what_links_count_while_they_are_measured_stands_in_the_sentence(
    site: Site, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(runner_module, "COUNTERS_COME", 0.0)
    busy = {"hw_counters/packet_seq_err": 150, "hw_counters/roce_slow_restart_cnps": 90_000}
    bad = {**busy, "counters/symbol_error": 40, "hw_counters/out_of_sequence": 512_000}
    runner, means = site.runner(slow_n5)
    means.after = Ports(tmp_path, {**dict.fromkeys(NODES, busy), "n5": bad}).tell(means)
    asyncio.run(runner.go("r1", PLAN))

    # Congestion and a few packets sent again are everywhere: that is no fault of one node.
    (verdict,) = view.judge_results(PLAN, site.results(), runner.odd, {}).verdicts
    assert verdict.sentence.endswith(
        "; its link errors under load are mlx5_0/1: 40 symbol or CRC errors, "
        "mlx5_0/1: 512,148 packets sent again or out of sequence, 7 of 8 have none"
    )
    assert set(describe_differing(site.store.identity("r1"))) == {"n5"}


def test_of_two_nodes_a_slow_pair_says_what_both_of_their_ports_counted(
    site: Site, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(runner_module, "COUNTERS_COME", 0.0)
    plan = replace(PLAN, nodes=NODES[:2])
    runner, means = site.runner(lambda sender, _: 0.062 if sender == "n1" else 0.095)
    counts = {
        "n1": {"hw_counters/local_ack_timeout_err": 700},  # 131 before
        "n2": {"counters/symbol_error": 40, "counters/link_error_recovery": 2},
    }
    means.after = Ports(tmp_path, counts, NODES[:2]).tell(means)
    asyncio.run(runner.go("r1", plan))

    (verdict,) = view.judge_results(plan, site.results(), runner.odd, {}).verdicts
    assert verdict.subject == "n1→n2"
    assert verdict.sentence.endswith(
        "; n1: its link errors under load are mlx5_0/1: 569 packets sent again or out of sequence"
        "; n2: its link errors under load are mlx5_0/1: 40 symbol or CRC errors, mlx5_0/1: 2 recoveries of the link"
    )


@pytest.mark.left_out
@pytest.mark.long
def test_a_pair_that_fails_says_what_the_ports_of_both_counted(site: Site, tmp_path, monkeypatch) -> None:  # fmt: skip
    monkeypatch.setattr(runner_module, "COUNTERS_COME", 0.0)
    monkeypatch.setattr("rankdeck.acceptance.work.SHORTEST", 2.0)
    monkeypatch.setattr("rankdeck.acceptance.work.PATIENCE", 0.0)
    monkeypatch.setattr(measure, "_LOOK", 0.02)
    runner, means = site.runner(lambda a, b: None if {a, b} == {"n2", "n6"} else 0.095)
    counts = {"n6": {"counters/link_downed": 1}}
    means.after = Ports(tmp_path, counts).tell(means)
    asyncio.run(runner.go("r1", PLAN))

    (verdict,) = view.judge_results(PLAN, site.results(), runner.odd, {}).verdicts
    assert verdict.ends == ("n2", "n6")
    assert verdict.sentence.endswith(
        "; n6: its link errors under load are mlx5_0/1: 1 failures of the link, 7 of 8 have none"
    )


# ---- what the operator asks for besides: measure again, keep jobs away


def slow_n5(sender: str, _receiver: str) -> float:
    return 0.062 if sender == "n5" else 0.095


def opened(site: Site, speed: Speed, folder: Path) -> tuple[Acceptance, SimulatedMeans]:
    """A console on the cluster that has planned a run of iperf3."""
    means = SimulatedMeans(site.cluster, speed)
    acceptance = Acceptance(means, site.store, folder)  # type: ignore[arg-type]
    return acceptance, means


ASKED = Request(recipes=("iperf3",), seconds=1.0)


def test_a_node_on_which_no_job_starts_is_left_out_by_name_and_the_others_are_measured(
    site: Site, tmp_path
) -> None:
    acceptance, means = opened(site, full, tmp_path)
    means.refusing = {"n3": "No space left on device"}

    assert asyncio.run(acceptance.plan(ASKED)).plan.left_out == means.refusing
    means.refusing = dict.fromkeys(NODES, "No space left on device")
    with pytest.raises(RankdeckError, match="no node can be measured: n1: No space left"):
        asyncio.run(acceptance.plan(ASKED))


def test_a_pair_and_a_node_measured_again_enter_a_run_that_was_kept(site: Site, tmp_path) -> None:
    async def all_of_it() -> None:
        first, _ = opened(site, slow_n5, tmp_path)
        await first.plan(ASKED)
        before = await first.start()
        second, means = opened(site, full, tmp_path)
        second.resume(before.id)
        await second.again(("n5", "n1"), "iperf3")
        pair = second.current
        await second.again(("n5",), "iperf3")
        after = second.current

        assert before.bad == ("n5",)
        assert pair is not None
        assert after is not None
        added = [one for one in pair.results if one not in before.results]
        assert sorted((one.stage, one.sender, one.receiver) for one in added) == [
            (Stage.CONFIRM, a, b) for a, b in (("n1", "n5"), ("n5", "n1")) for _ in range(2)
        ]
        # One full measurement clears a node; that it was slow is said all the same.
        assert pair.verdicts == ()
        assert pair.notes[0].startswith(
            "n5 was slow in 14 runs, with 7 of 7 partners, and not when measured again"
        )
        assert len(after.results) == len(pair.results) + 8
        measuring = {one.on for one in means.launched if not one.files.get("facts.py")}
        assert measuring == {("n1", "n5"), ("n2", "n5")}
        assert (after.progress, after.ended) == (RunState.DONE, before.ended)
        assert second.open(before.id).results == after.results

    asyncio.run(all_of_it())


def test_a_test_without_direction_is_measured_again_as_it_was(site: Site) -> None:
    runner, _ = site.runner(full)
    before = Result(stage=Stage.PAIRS, recipe="mpi4py.bench", sender="n1", receiver="n2")
    runner.take([before], {})

    runner.again(("n2", "n1"), "mpi4py.bench", 1)
    runner.again(("n4", "n3"), "mpi4py.bench", 1)

    works = [work for place in runner._wanted for work in place]
    assert [work.runs[0][:2] for work in works] == [("n1", "n2"), ("n4", "n3")]


@pytest.mark.long
def test_busy_nodes_are_not_measured_again_unless_the_run_was_to_measure_them(
    site: Site, tmp_path
) -> None:
    async def all_of_it() -> None:
        acceptance, means = opened(site, full, tmp_path)
        await acceptance.plan(ASKED)
        run = await acceptance.start()
        means.busy = {"n1": 0.9, "n7": 0.9}
        with pytest.raises(RankdeckError, match="nothing was measured: n1: busy: 90 % of its"):
            await acceptance.again(("n2", "n1"), "iperf3")
        await acceptance.again(("n2", "n3"), "iperf3")
        await acceptance.plan(replace(ASKED, include_busy=("n1", "n7")))
        await acceptance.start()
        await acceptance.again(("n2", "n1"), "iperf3")

        assert len(acceptance.open(run.id).results) == 116
        assert acceptance.current is not None
        assert len(acceptance.current.results) == 116

    asyncio.run(all_of_it())


def test_what_is_asked_for_in_a_stopped_run_does_not_end_it(site: Site, tmp_path) -> None:
    async def all_of_it() -> None:
        acceptance, means = opened(site, full, tmp_path)
        await acceptance.plan(ASKED)
        asked: list[asyncio.Task[tuple[str, ...]]] = []

        def stop(count: int) -> None:
            if count == 9:
                asked.append(asyncio.ensure_future(acceptance.stop()))

        means.after = stop
        stopped = await acceptance.start()
        await asked[0]
        await acceptance.again(("n2", "n3"), "iperf3")
        assert acceptance.current is not None
        assert stopped.progress is RunState.STOPPED
        assert acceptance.current.progress is RunState.STOPPED
        assert not acceptance.current.accepted
        assert acceptance.resume(stopped.id).progress is RunState.STOPPED
        whole = await acceptance.start()
        assert whole.accepted

    asyncio.run(all_of_it())


@pytest.mark.parametrize("stage", [Stage.PAIRS, Stage.GROUPS])
def test_what_is_asked_for_while_a_run_goes_on_is_measured_after_its_round(
    site: Site, tmp_path, stage: Stage
) -> None:
    """Of any stage: what was asked for in the last rounds was once forgotten."""

    async def all_of_it() -> None:
        acceptance, means = opened(site, full, tmp_path)
        await acceptance.plan(ASKED)
        asked: list[asyncio.Task[None]] = []
        at = 20 if stage is Stage.PAIRS else 29

        def ask(count: int) -> None:
            if count == at:
                asked.append(asyncio.ensure_future(acceptance.again(("n2", "n3"), "iperf3")))

        means.after = ask
        run = await acceptance.start()
        await asked[0]
        assert len(run.results) == 116
        assert run.accepted

    asyncio.run(all_of_it())


def test_a_node_that_is_excluded_meanwhile_stays_so_also_where_it_was_good_before(
    site: Site, tmp_path
) -> None:
    async def all_of_it() -> None:
        acceptance, means = opened(site, full, tmp_path)
        run = await acceptance.plan(ASKED)
        until = time.time() + 3600

        def out(count: int) -> None:
            if count == 20:
                acceptance.exclude("n3", "its cable is being swapped", until, run.id)

        means.after = out
        ended = await acceptance.start()
        (kept,) = site.store.exclusions("c", time.time())
        assert (kept.node, kept.run) == ("n3", run.id)
        assert ended.left_out == {"n3": "its cable is being swapped"}
        await acceptance.again(("n3", "n1"), "iperf3")
        newest = [one for one in acceptance.open(run.id).results if one.stage is Stage.CONFIRM]
        assert {one.outcome for one in newest} == {Outcome.MEASURED}
        assert site.store.exclusions("c", time.time()) == (kept,)
        acceptance.readmit("n3")
        assert site.store.exclusions("c", time.time()) == ()

    asyncio.run(all_of_it())


def test_a_node_measured_alone_again_counts_by_its_best_value_and_a_wrong_one_stays() -> None:
    def alone(node: str, value: float | None, **more: object) -> Result:
        outcome = Outcome.FAILED if value is None else Outcome.MEASURED
        fields = {
            "stage": Stage.SINGLE,
            "recipe": "sysbench",
            "outcome": outcome,
            "unit": "events/s",
        }
        return Result(sender=node, value=value, **{**fields, **more})  # type: ignore[arg-type]

    def answer(*of_n1: Result) -> tuple[view.Answer, int]:
        others = [alone(node, 4000.0) for node in NODES[1:]]
        plan = replace(PLAN, stages=(StagePlan(stage=Stage.SINGLE, recipe="sysbench"),))
        found = view.judge_results(plan, [*of_n1, *others], {}, {})
        return found.answers["n1"], len(found.verdicts)

    slow, failed = alone("n1", 2000.0), alone("n1", None, text="it crashed")
    wrong = alone("n1", None, text="wrong values: 3")
    well = alone("n1", 4000.0, repeat=1)
    lost = alone("n1", None, repeat=1, outcome=Outcome.NOT_MEASURED, text="busy")
    assert answer(slow) == (view.Answer.SLOW, 1)
    assert answer(slow, well) == answer(failed, well) == (view.Answer.GOOD, 0)
    assert answer(slow, lost) == (view.Answer.SLOW, 1)
    assert answer(wrong, well) == (view.Answer.WRONG_VALUES, 1)
