"""Every fault that can be made up comes out as the right check, at the right level, and in time."""

import pytest

from rankdeck.demo.cluster import EXPECTED
from rankdeck.model.cluster import Cluster, Node
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import Hello, Sample, decode_message, encode_message
from rankdeck_simulator.devices import FAULTS, SimulatedGpus, SimulatedRdma
from tests.support.judged_fleet import JudgedFleet

EPOCH = 1.7e9
OK, WARN, BAD = Level.OK, Level.WARN, Level.BAD
SEEN = {
    ("gpu", "hot"): {"gpu.slowdown": (WARN, 7), "gpu.temp": (BAD, 61), "gpu.margin": (BAD, 61)},
    ("gpu", "ecc"): {"gpu.ecc": (BAD, 1), "gpu.recovery": (BAD, 1), "gpu.remap_pending": (WARN, 1)},
    ("gpu", "lost"): {"gpu.lost": (BAD, 1)},
    ("gpu", "xid79"): {"kernel.xid": (BAD, 1), "gpu.lost": (BAD, 1)},
    ("gpu", "nvlink"): {"gpu.nvlink": (BAD, 61)},
    ("gpu", "pcie"): {"gpu.pcie": (BAD, 61)},
    ("gpu", "hang"): {"gpu.driver": (BAD, 31)},
    ("rdma", "down"): {"rdma.link": (BAD, 16)},
    ("rdma", "flap"): {"link.flap": (BAD, 180)},
    ("rdma", "retx"): {"rdma.retx": (WARN, 4), "rdma.timeouts": (WARN, 25)},
    ("rdma", "errors"): {"rdma.phys_errors": (BAD, 10), "rdma.errors": (WARN, 3)},
}  # fmt: skip
"""Fault -> checks, with their levels and the seconds until they are there."""


class Watch:
    """A console that hears one node with made-up devices, second by second."""

    def __init__(
        self, *, gpu: tuple[str, ...] = (), rdma: tuple[str, ...] = (), brief: bool = False
    ):
        self.now = 1000.0
        self._made = (SimulatedGpus("n", gpu), SimulatedRdma("n", rdma))
        self.fleet = JudgedFleet(
            Cluster(name="c", nodes=(Node(name="n"),), expect=EXPECTED),
            clock=lambda: self.now,
            wall=lambda: EPOCH + self.now,
            brief=brief,
        )
        self.node = self.fleet.node("n")
        self.fleet.apply("n", Hello("n", True, EPOCH, "b", "1", 1.0, {}, ("gpu",)))

    def beat(self):
        readings = [made.collect(self.now) for made in self._made]
        values = {m: d for r in readings for m, d in r.values.items()}
        failed = {key: why for r in readings for key, why in r.failed.items()}
        for event in (e for reading in readings for e in reading.events):
            self.fleet.apply("n", decode_message("event", encode_message(event)))
        sample = Sample(1, EPOCH + self.now, values, (), failed)
        self.fleet.apply("n", decode_message("sample", encode_message(sample)))
        self.fleet.take_changes()
        self.now += 1

    def levels(self):
        return {reason.check: reason.level for reason in self.node.health.reasons}


def test_the_table_has_every_fault():
    assert {(what, fault) for what in FAULTS for fault in FAULTS[what]} == set(SEEN)


@pytest.mark.long
@pytest.mark.parametrize(("what", "fault"), SEEN, ids=lambda word: word)
def test_a_fault_is_seen_in_time_and_stays_seen(what, fault):
    watch, wanted = Watch(**{what: (fault,)}), SEEN[what, fault]
    first: dict[tuple[str, Level], int] = {}

    for second in range(400):
        watch.beat()
        for found in watch.levels().items():
            first.setdefault(found, second)

    in_time = {c: first.get((c, lv), 999) <= limit for c, (lv, limit) in wanted.items()}
    assert all(in_time.values()), first
    assert {check: watch.levels()[check] for check in wanted} == {
        check: level for check, (level, _) in wanted.items()
    }
    assert watch.node.health.level is max(level for level, _ in wanted.values())
    told = {one.check for one in watch.fleet.event_log.newest if one.kind == "began"}
    assert set(wanted) <= told


@pytest.mark.long
def test_a_healthy_node_is_ok_for_an_hour_and_tells_nothing():
    watch = Watch()

    for _ in range(3600):
        watch.beat()
        assert watch.node.health.level is OK, watch.node.health.reasons

    assert not watch.fleet.event_log.newest


AT_TWO_LOOKS = [key for key in SEEN if key[1] not in ("flap", "retx", "hang")]
"""The others show by growth or by time that passes."""


@pytest.mark.parametrize(("what", "fault"), AT_TWO_LOOKS)
def test_whoever_looks_only_twice_sees_the_fault_too(what, fault):
    watch = Watch(**{what: (fault,)}, brief=True)
    watch.beat()
    watch.beat()

    assert watch.node.health.level >= WARN, watch.node.health.reasons


def test_what_was_wrong_at_one_look_only_is_not_called_lasting():
    watch = Watch(gpu=("nvlink",), brief=True)
    watch.beat()

    assert watch.node.health.level is OK
