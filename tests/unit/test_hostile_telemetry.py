"""Whatever a node publishes: nothing raises, nothing grows
without end, nothing steers a terminal.
"""

import json
import math
import re
from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankdeck.model.cluster import Cluster, Node
from rankdeck.state import fleet_history, sanitize
from rankdeck.state.fleet import Fleet
from rankdeck.state.node import NodeState
from rankdeck.telemetry import gnmi
from rankdeck.telemetry.fleet_updater import FleetUpdater
from rankdeck_agent.rules.table import CHECKS
from rankdeck_agent.wire import METRICS, decode_message
from tests.support import hostile
from tests.support.targets import pages_of
from tests.ui.support.stage import Stage
from tests.ui.test_screens import console, shows, text_of

STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
TOPIC = "rankdeck/1/c/n/"
odd_text = st.text(st.characters(), max_size=300) | st.sampled_from(
    ["\x1b[2J", "\x9b31m", "\u202e", "", "a" * 5000, "\ud800", "[bold]", "0"]
)
numbers = (
    st.integers() | st.floats() | st.sampled_from([0, 1, -1, 1 << 70, 1e308, -(1 << 64), 10**400])
)
anything = st.recursive(
    st.none() | st.booleans() | numbers | odd_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(odd_text, inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
metrics = st.sampled_from(sorted(METRICS)) | odd_text
readings = st.dictionaries(
    metrics, st.dictionaries(st.sampled_from(["", "0", "a/1"]) | odd_text, numbers, max_size=4), max_size=8
)  # fmt: skip
samples = st.fixed_dictionaries(
    {"seq": anything, "at": numbers | anything, "values": readings | anything},
    optional={"absent": st.lists(metrics, max_size=5) | anything,
              "failed": st.dictionaries(metrics, odd_text, max_size=5) | anything, "more": anything},
)  # fmt: skip
hellos = st.fixed_dictionaries(
    {"node": anything, "up": st.booleans() | anything, "at": numbers | anything},
    optional={"boot": odd_text | anything, "agent": anything, "period": numbers | anything,
              "inventory": st.dictionaries(odd_text, odd_text, max_size=5) | anything,
              "simulated": st.lists(odd_text, max_size=4) | anything, "installed": anything},
)  # fmt: skip
events = st.fixed_dictionaries(
    {"at": numbers | anything, "level": st.sampled_from(["ok", "warn", "bad"]) | anything,
     "check": st.sampled_from(["kernel.xid", "agent.gpu"]) | anything, "text": odd_text | anything},
    optional={"device": odd_text | anything},
)  # fmt: skip
messages = (
    st.tuples(st.just("sample"), samples)
    | st.tuples(st.just("sample"), hostile.samples)
    | st.tuples(st.just("health"), hostile.healths)
    | st.tuples(st.just("hello"), hellos)
    | st.tuples(st.just("event"), events)
    | st.tuples(st.sampled_from(["sample", "hello", "event", "x"]), anything)
)


REPORT = {"at": 1.7e9, "level": 3, "heartbeat": 10.0, "applies": 6, "judged": 6}


class Console:
    """A fleet of one node behind the intake, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.fleet = Fleet(
            Cluster(name="c", nodes=(Node(name="n"),), expect={"gpu_model": "H100", "gpu_count": 8}),
            clock=lambda: self.now, wall=lambda: 1.7e9 + self.now,
        )  # fmt: skip
        self.intake = FleetUpdater("c", self.fleet)

    def hear(self, kind: str, raw: object) -> None:
        self.intake.take(TOPIC + kind, raw if isinstance(raw, bytes) else sent(raw))
        self.now += 1.3
        self.fleet.take_changes()


def sent(raw: object) -> bytes:
    return json.dumps(raw).encode("utf-8", "surrogatepass")


def words(fleet: Fleet, node: NodeState) -> Iterable[str]:
    """Every word that a screen may show."""
    for reason in node.health.reasons:
        yield from (reason.check, reason.text, reason.device)
    for one in fleet.event_log.newest:
        yield from (one.check, one.text, one.device)
    for finding in node.findings():
        yield finding.evidence
    for table in (
        node.values,
        node.rates,
        {"": node.failed},
        {"": dict.fromkeys(node.absent)},
    ):
        for metric, by_device in table.items():
            yield metric
            yield from by_device
    yield from (*node.failed.values(), *node.simulated, node.attach, fleet.trouble)
    if node.hello:
        yield from (
            node.hello.boot,
            node.hello.agent,
            *node.hello.inventory,
            *node.hello.inventory.values(),
        )


def assert_sane(fleet: Fleet) -> None:
    node = fleet.node("n")
    shown = list(words(fleet, node))
    assert not [word for word in shown if STEERING.search(word)]
    assert max(map(len, shown), default=0) < 3000
    assert len(node.values) <= sanitize.METRICS
    assert sum(map(len, node.values.values())) <= sanitize.NUMBERS
    assert all(math.isfinite(n) for d in node.values.values() for n in d.values())
    assert node.health.evaluated <= node.health.checks <= len(CHECKS)


@pytest.mark.long
@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(messages, max_size=12))
def test_no_message_raises_or_reaches_the_screen_as_it_is(many) -> None:
    console = Console()

    for kind, raw in many:
        console.hear(kind, raw)
        assert_sane(console.fleet)


@settings(suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["sample", "hello", "event", "health"]), st.binary(max_size=200))
def test_no_bytes_raise(kind, raw) -> None:
    console = Console()

    console.hear(kind, raw)

    assert_sane(console.fleet)


@pytest.mark.long
def test_a_node_that_never_repeats_itself_does_not_fill_the_memory() -> None:
    console = Console()

    for turn in range(60):
        values = {f"m{turn}.{i}": {f"d{turn}.{j}": j for j in range(20)} for i in range(50)}
        values["gpu.temp"] = {f"{turn}.{i}": 99 for i in range(300)}
        console.hear("sample", {"seq": turn, "at": 1.7e9 + turn, "values": values,
                                "failed": {f"f{turn}.{i}": "x" * 900 for i in range(300)}})  # fmt: skip
        for i in range(100):
            console.hear(
                "event",
                {
                    "at": turn,
                    "level": "bad",
                    "check": f"kernel.{turn}.{i}",
                    "text": "y" * 900,
                    "device": str(i),
                },
            )
    node, fleet = console.fleet.node("n"), console.fleet

    assert_sane(fleet)
    assert len(node.failed) <= 2 * sanitize.ENTRIES
    assert len(node.health.reasons) <= 64
    assert len(fleet.event_log.newest) <= fleet_history.MOST
    assert len(fleet.event_log._open) <= 4096
    assert len(fleet.event_log._seen) <= fleet_history.MOST


@pytest.mark.parametrize("at", [0, 9e15, -5, 1.7e9 + 1e9])
def test_an_event_of_a_clock_that_is_wrong_is_of_now(at) -> None:
    console = Console()

    console.hear("event", {"at": at, "level": "bad", "check": "kernel.mce", "text": "x"})

    (kept,) = [one for one in console.fleet.event_log.newest if one.kind == "event"]
    assert abs(kept.at - (1.7e9 + console.now)) < 5


def test_an_event_of_a_node_whose_clock_is_beyond_all_calendars_is_of_now() -> None:
    console = Console()

    console.hear("health", {**REPORT, "at": 9e17})
    console.hear("event", {"at": 1.7e9, "level": "bad", "check": "kernel.mce", "text": "x"})

    (kept,) = [one for one in console.fleet.event_log.newest if one.kind == "event"]
    assert abs(kept.at - (1.7e9 + console.now)) < 5


def test_numbers_beyond_all_range_are_left_out_and_every_page_is_painted() -> None:
    console = Console()

    console.hear("health", {**REPORT, "numbers": {"cpu.used": 1e308, "mem.used": 40}})
    node = console.fleet.node("n")

    assert (node.summary("cpu.used"), node.summary("mem.used")) == (None, 40)
    assert all(pages_of(console.fleet, node))


def test_a_reason_that_began_before_there_were_computers_is_said_to_be_old() -> None:
    console = Console()

    console.hear("health", {**REPORT, "reasons": [["disk.full", 3, "/", 9e17, "/ is full"]]})
    node = console.fleet.node("n")

    assert node.held_s(node.health.reasons[0]) < 1e9


def test_what_counters_grew_by_fills_no_memory() -> None:
    console = Console()

    grown = {f"net.errors/{i}": {f"e{j}": j for j in range(1000)} for i in range(60)}
    sample = {"seq": 1, "at": 1.7e9, "values": {}, "report": {**REPORT, "grown": grown}}
    console.hear("sample", sample)

    told = sanitize.checked_report(decode_message("sample", sent(sample)).report)
    assert 0 < sum(map(len, told.grown.values())) <= sanitize.NUMBERS


def test_a_node_that_lies_about_its_health_changes_no_other_node() -> None:
    nodes = (Node(name="n"), Node(name="m"))
    fleet = Fleet(Cluster(name="c", nodes=nodes), clock=lambda: 1000.0, wall=lambda: 1.7e9)
    hear = FleetUpdater("c", fleet).take
    full = [["disk.full", 3, "/", 5.0, "/ is full"]]
    hear("rankdeck/1/c/m/health", sent({**REPORT, "reasons": full}))
    fleet.take_changes()
    before = fleet.node("m").health

    hear(TOPIC + "health", sent({**REPORT, "level": 0, "node": "m"}))
    hear(TOPIC + "hello", sent({"node": "m", "up": False, "at": 1.7e9}))
    hear(TOPIC + "health", sent({**REPORT, "reasons": [["gpu.held", 3, "m", 1.0, "m"]]}))
    fleet.take_changes()

    assert fleet.node("m").health == before
    assert fleet.node("n").health != before


async def test_nothing_of_it_steers_the_screens() -> None:
    stage = Stage(Cluster(name="c", nodes=(Node(name="n"),)))
    evil = "\x1b[2J\x9b31m\u202e\x07[bold]x\r\n"
    hear = FleetUpdater("c", stage.fleet).take
    hear(
        TOPIC + "hello",
        sent(
            {
                "node": "n",
                "up": True,
                "at": 1.0,
                "boot": evil,
                "agent": evil,
                "inventory": {evil: evil, "gpu.0.model": evil},
                "simulated": [evil],
            }
        ),
    )
    for at in (1.0, 2.0):
        hear(
            TOPIC + "sample",
            sent(
                {
                    "seq": 1,
                    "at": at,
                    "values": {"gpu.temp": {evil: 99}, "disk.used": {evil: 99}, evil: {evil: 1}},
                    "failed": {evil: evil},
                }
            ),
        )
    hear(
        TOPIC + "event",
        sent({"at": 1.0, "level": "bad", "check": evil, "text": evil, "device": evil}),
    )

    async with console(stage) as (app, pilot):
        for keys in (("1",), ("1", "enter"), ("5",)):
            await pilot.press("escape", *keys)
            await shows(app, pilot, "n")
            for line in text_of(app).splitlines():
                assert not STEERING.search(line), line


def test_what_a_switch_nests_deeply_is_left_out() -> None:
    # Newer versions of Python read what is nested thousands of levels
    # deep, and cannot walk through it.
    deep, brackets = (b'{"a": ' * 3000 + b"1" + b"}" * 3000, b"[" * 40 + b"]" * 40)

    def told(text: bytes) -> list[tuple[str, object]]:
        value = SimpleNamespace(WhichOneof=lambda _: "json_ietf_val", json_ietf_val=text)
        found = gnmi._leaves("Ethernet1", ("counters",), gnmi._value(value))
        return [("/".join(names), leaf) for _, names, leaf in found]

    assert told(b'{"in-octets": "7", "a": {"b": 1}}') == [
        ("counters/in-octets", "7"),
        ("counters/a/b", 1),
    ]
    assert told(b'"UP"') == [("counters", "UP")]
    for text in (deep, brackets):
        assert told(b'{"in-octets": "7", "a": %b}' % text) == [("counters", None)]
