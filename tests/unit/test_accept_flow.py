"""A measurement that takes long: slow while its bytes flow, hung once they do not."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from rankdeck.acceptance import flow, measure
from rankdeck.acceptance.flow import SPAN, Flow
from rankdeck.acceptance.work import Setup, Stage, Work, spec_of
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_events import NodeEvent
from rankdeck_agent.wire import Sample
from tests.support.acceptance_means import SimulatedMeans
from tests.support.node_events import node_event


@dataclass
class Port:
    """A counter and a clock that a test moves."""

    bytes: float = 0.0
    printed: int = 0
    at: float = 100.0
    flow: Flow = field(init=False)

    def __post_init__(self) -> None:
        self.flow = Flow(
            lambda: {("n1", "net.tx", "eth0"): self.bytes}, lambda: self.printed, lambda: self.at
        )

    def run(self, seconds: int, rate: float, printed: int = 0) -> bool:
        for _ in range(seconds):
            self.at, self.bytes, self.printed = (
                self.at + 1,
                self.bytes + rate,
                self.printed + printed,
            )
            self.flow.look()
        return self.flow.flows


def test_bytes_flow_while_the_ports_count_more_than_telemetry_or_output_comes() -> None:
    assert Port().run(30, 10_000_000.0)
    assert not Port().run(30, 8_000.0)
    assert Port().run(30, 0.0, printed=1)


def test_what_flowed_before_says_nothing_of_now() -> None:
    port = Port()

    assert port.run(60, 1_000_000.0)
    assert not port.run(int(SPAN) + 1, 0.0)


def measured(
    count: Callable[[int], float],
    monkeypatch: pytest.MonkeyPatch,
    seconds: float = 0.3,
    said: NodeEvent | None = None,
) -> measure.Ended:
    """A job that does not end within `seconds`; its nodes' port has `count(look)` bytes at each
    look. A node says `said` while it runs.
    """
    monkeypatch.setattr(measure, "_LOOK", 0.01)
    monkeypatch.setattr(flow, "SPAN", 0.1)
    nodes = ("n1", "n2")
    means = SimulatedMeans(
        Cluster(name="c", nodes=tuple(Node(name=one) for one in nodes)), lambda a, b: None
    )
    looks = 0

    def limit() -> float:
        nonlocal looks
        looks += 1
        means.fleet.apply("n1", Sample(looks, float(looks), {"net.tx": {"eth0": count(looks)}}))
        if said is not None:
            means.jobs.apply(said)
        return seconds

    work = Work(stage=Stage.PAIRS, recipe="iperf3", nodes=nodes, runs=(("n1", "n2", 0, 0),))
    spec = spec_of(work, Setup(cluster=means.cluster))
    return asyncio.run(measure.measure_job(means, spec, limit, {}))


def test_a_measurement_whose_node_is_restarted_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = node_event("accept-1", "n2", "gone", 2.0, seq=0, text="it is back", restarted=True)

    ended = measured(lambda look: 1e9 * look, monkeypatch, 3600.0, gone)

    assert (ended.restarted, ended.hung) == ("n2", "")


def test_a_measurement_that_hangs_has_the_time_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = measured(lambda _: 1e6, monkeypatch)

    assert ended.hung == "it did not end within 0 s and was cancelled"


def test_a_measurement_whose_bytes_flow_has_longer_and_its_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = measured(lambda look: 1e9 * look, monkeypatch)

    assert ended.hung == "it did not end within 1 s although its bytes flowed and was cancelled"
