"""Switch counters from a real gRPC server, and what is said where they cannot be had."""

import asyncio
import json
import sys
import time
from functools import partial

import pytest
from tests.support.certificates import Authority
from tests.support.polling import until
from tests.support.ports import free_port
from tests.support.scrapes import whole
from tests.ui.support.stage import Stage
from tests.ui.test_screens import console, shows, text_of

from rankdeck.cli.status import switch_shapes
from rankdeck.config.clusters import read_cluster
from rankdeck.model.cluster import Cluster, Node, Switch
from rankdeck.prometheus.exporter import Exporter
from rankdeck.state.fleet import PATIENCE, Fleet, Switches
from rankdeck.telemetry import gnmi
from rankdeck.telemetry.gnmi import NO_EXTRA, collect_switches
from rankdeck_agent.wire import Hello, Sample

pytestmark = pytest.mark.slow
PORTS = {"Ethernet1": "n1:mlx5_0/1", "Ethernet2": "n2:mlx5_0/1"}


class Clock:
    now = 50.0

    def __call__(self):
        return self.now


class Lab:
    """A cluster with one switch."""

    def __init__(self, port, **switch):
        values = {"address": "127.0.0.1", "port": port, "tls": False, **switch}
        one = Switch(name="leaf1", ports=PORTS, **values)
        nodes = (Node(name="n1"), Node(name="n2"))
        self.cluster = Cluster(name="lab", nodes=nodes, switches=(one,))
        self.clock = Clock()
        self.switches = Switches(self.cluster, self.clock)

    async def __aenter__(self):
        self.group = asyncio.TaskGroup()
        await self.group.__aenter__()
        self.task = self.group.create_task(collect_switches(self.cluster, self.switches))
        return self.switches

    async def __aexit__(self, *error):
        self.task.cancel()
        await self.group.__aexit__(None, None, None)


def server(**login):
    """A gRPC server; its library is loaded where it is used: it takes a
    fifth of a second in each worker.
    """
    from tests.support.gnmi_target import Target

    return Target(**login)


@pytest.fixture
def target():
    made = server()
    yield made
    if made.server:
        made.stop()


def first(switches):
    return switches.of_node("n1")[0]


async def test_counters_state_and_rates_come_from_the_stream(target) -> None:
    target.start()
    lab = Lab(target.port)
    async with lab as switches:
        target.tell_json("Ethernet1", "oper-status", "UP")
        target.tell_json(
            "Ethernet1",
            "counters",
            {
                "openconfig-interfaces:in-octets": "1000",
                "in-errors": 2,
                "junk": {"x": []},
            },
        )
        await until(lambda: first(switches).values.get("in-errors") == 2)
        lab.clock.now += 10
        target.tell("Ethernet1", "counters/in-octets", uint_val=6000)
        await until(lambda: first(switches).values["in-octets"] == 6000)

    port = first(switches)
    assert (port.up, port.device, port.rates["in-octets"]) == (True, "mlx5_0/1", 500)
    assert switches.of_node("n2")[0].up is None
    asked = target.asked[0].subscribe
    names = {e.key["name"] for s in asked.subscription for e in s.path.elem if "name" in e.key}
    assert names == set(PORTS)
    assert {s.sample_interval for s in asked.subscription} == {10_000_000_000}


async def test_tls_with_the_right_authority_and_the_wrong_one(target, tmp_path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    target.start(server=authority.server())
    async with Lab(target.port, tls=True, ca_file=str(authority.file)) as switches:
        target.tell("Ethernet1", "oper-status", string_val="DOWN")
        await until(lambda: first(switches).up is False)
    async with Lab(target.port, tls=True, ca_file=str(other.file)) as switches:
        await until(lambda: switches.troubles, limit=30)

    assert switches.troubles["leaf1"].startswith("switch leaf1: ")
    assert first(switches).up is None


async def test_a_refused_login_is_one_sentence(monkeypatch) -> None:
    target = server(login=("me", "right")).start()
    monkeypatch.setenv("SWITCH_PASSWORD", "wrong")
    async with Lab(target.port, user="me", password_env="SWITCH_PASSWORD") as switches:
        await until(lambda: switches.troubles)
    target.stop()

    why = "switch leaf1: refuses the user name or password"
    assert switches.troubles == {"leaf1": why}


PREFIXES = {
    "it wants an origin": lambda prefix: prefix.origin == "openconfig",
    "it wants a target": lambda prefix: prefix.target,
    "it wants a target and refuses an origin": lambda prefix: prefix.target and not prefix.origin,
    "it refuses both": lambda prefix: not prefix.target and not prefix.origin,
}


@pytest.mark.parametrize("takes", PREFIXES.values(), ids=PREFIXES)
async def test_a_request_has_the_form_that_the_switch_takes(takes) -> None:
    from tests.support.gnmi_target import grpc

    refusal = (grpc.StatusCode.INVALID_ARGUMENT, "another prefix, please")
    target = server(refuses=lambda asked: None if takes(asked.prefix) else refusal).start()
    target.tell("Ethernet1", "oper-status", string_val="UP")
    async with Lab(target.port) as switches:
        await until(lambda: first(switches).up)
        troubles = dict(switches.troubles)
    target.stop()

    assert troubles == {}


async def test_a_switch_that_refuses_every_form_is_quoted() -> None:
    from tests.support.gnmi_target import grpc

    refusal = (grpc.StatusCode.NOT_FOUND, "unknown element `interfaces`")
    target = server(refuses=lambda asked: refusal).start()
    async with Lab(target.port) as switches:
        await until(lambda: switches.troubles)
    target.stop()

    why = "switch leaf1: refuses to send openconfig-interfaces: unknown element `interfaces`"
    assert switches.troubles == {"leaf1": why}
    assert len(target.asked) == 3


async def test_a_switch_that_is_silent_in_one_encoding_is_asked_in_another(monkeypatch) -> None:
    monkeypatch.setattr(gnmi, "SILENCE", 0.3)
    target = server(encodings=(4, 2)).start()
    async with Lab(target.port) as switches:
        await until(lambda: len(target.asked) > 1)
        troubles = switches.troubles["leaf1"]
    target.stop()

    assert [asked.subscribe.encoding for asked in target.asked[:2]] == [4, 2]
    assert troubles == "switch leaf1: sends nothing"


async def test_ports_that_the_switch_does_not_have_are_named(target, monkeypatch) -> None:
    from tests.support.gnmi_target import gnmi as messages

    monkeypatch.setattr(gnmi, "SILENCE", 0.3)
    target.start()
    async with Lab(target.port) as switches:
        target.sent.put(messages.SubscribeResponse(sync_response=True))
        await until(lambda: switches.troubles)

    assert "has no port named Ethernet1, Ethernet2; " in switches.troubles["leaf1"]


async def test_a_port_that_stays_silent_beside_others_is_named_once(
    target, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(gnmi, "SILENCE", 0.3)
    target.start()
    async with Lab(target.port) as switches:
        for count in range(8):
            target.tell("Ethernet1", "counters/in-octets", uint_val=count)
            await until(lambda count=count: first(switches).values.get("in-octets") == count)
            await asyncio.sleep(0.1)

    assert caplog.text.count("sends nothing of port Ethernet2; ") == 1
    assert "Ethernet1" not in caplog.text


async def test_a_list_of_ports_in_one_json_value_is_read(target) -> None:
    target.start()
    state = {"oper-status": "UP", "counters": {"in-octets": "7"}}
    part = {"index": 0, "state": {"counters": {"out-octets": "999"}}}
    port = {"name": "Ethernet1", "state": state, "subinterfaces": {"subinterface": [part]}}
    whole_list = json.dumps({"openconfig-interfaces:interface": [port]}).encode()
    async with Lab(target.port) as switches:
        target.tell_at([], ["openconfig-interfaces:interfaces"], json_ietf_val=whole_list)
        await until(lambda: first(switches).values)

    assert (first(switches).up, first(switches).values) == (True, {"in-octets": 7})


async def test_why_there_is_no_connection_is_said(target, tmp_path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    target.start(server=authority.server())
    port = free_port()
    said = {
        "nothing": await trouble(port),
        "TLS": await trouble(target.port),
        "authority": await trouble(target.port, tls=True, ca_file=str(other.file)),
        "name": await trouble(target.port, address="no-such-switch.invalid"),
    }
    strict = server().start(server=authority.server(), clients=authority.file.read_bytes())
    said["client"] = await trouble(strict.port, tls=True, ca_file=str(authority.file))
    strict.stop()
    plain = server().start()
    said["plain"] = await trouble(plain.port, tls=True)
    plain.stop()
    async with await asyncio.start_server(greet, "127.0.0.1", 0) as other_service:
        said["service"] = await trouble(other_service.sockets[0].getsockname()[1])

    assert f"has nothing that listens on port {port}: " in said["nothing"]
    assert f"speaks TLS on port {target.port}: remove `tls: false`" in said["TLS"]
    assert "want a client certificate, which Rankdeck does not have" in said["client"]
    assert "shows a certificate that cannot be trusted: " in said["authority"]
    assert "has no address: no-such-switch.invalid: " in said["name"]
    assert f"speaks no TLS on port {plain.port}: " in said["plain"]
    assert "takes connections on this port, but speaks no gNMI with us" in said["service"]


async def test_a_switch_without_a_known_encoding_says_so() -> None:
    target = server(encodings=(1, 3)).start()
    said = await trouble(target.port)
    target.stop()

    assert said == "switch leaf1: offers none of the encodings JSON_IETF, JSON and PROTO"


async def trouble(port, **switch) -> str:
    """What is said of a switch that cannot be read."""
    async with Lab(port, **switch) as switches:
        await until(lambda: switches.troubles, limit=30)
    return switches.troubles["leaf1"]


async def greet(reader, writer) -> None:
    """A service that is no gNMI."""
    writer.write(b"SSH-2.0-x\r\n")
    await reader.read(100)
    writer.close()


async def test_it_comes_back_when_the_switch_does(target, monkeypatch) -> None:
    monkeypatch.setattr(gnmi, "LONGEST_WAIT", 1.0)
    target.start()
    async with Lab(target.port) as switches:
        target.tell("Ethernet1", "oper-status", string_val="UP")
        await until(lambda: first(switches).up)
        target.stop()
        await until(lambda: switches.troubles)
        again = server().start(target.port)
        again.tell("Ethernet1", "oper-status", string_val="DOWN")
        await until(lambda: first(switches).up is False, limit=30)
        again.stop()

    assert again.asked


async def test_without_the_extra_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pygnmi.spec.v080.gnmi_pb2", None)
    async with Lab(1) as switches:
        await until(lambda: switches.troubles)

    assert switches.troubles["leaf1"] == f"switch leaf1: {NO_EXTRA}"


@pytest.mark.parametrize(
    ("leaf", "value"),
    [("in-octets", -1), ("in-octets", True), ("in-octets", "9" * 30), ("in-octets", 1.5),
     ("in-octets", None), ("x" * 99, 1), ("in-octets", 1 << 70), ("in-octets", "٣")],
)  # fmt: skip
def test_what_is_no_counter_is_left_out(leaf, value) -> None:
    lab = Lab(1)
    gnmi.take_leaf(lab.switches, "leaf1", "Ethernet1", leaf, value)
    gnmi.take_leaf(lab.switches, "leaf1", "Ethernet77", "in-octets", 1)

    assert first(lab.switches).values == {}


def test_an_old_report_is_no_report() -> None:
    lab = Lab(1)
    gnmi.take_leaf(lab.switches, "leaf1", "Ethernet1", "oper-status", "UP")
    gnmi.take_leaf(lab.switches, "leaf1", "Ethernet1", "in-octets", 5)
    lab.clock.now += PATIENCE + 1

    assert (first(lab.switches).up, first(lab.switches).values) == (None, {})


def test_status_and_prometheus_have_the_ports() -> None:
    lab = Lab(1)
    for leaf, value in (("oper-status", "UP"), ("in-octets", 7), ("out-discards", 3)):
        gnmi.take_leaf(lab.switches, "leaf1", "Ethernet1", leaf, value)
    fleet = Fleet(lab.cluster)

    shape = switch_shapes(lab.switches)[0]
    text = asyncio.run(whole(Exporter(lab.cluster, fleet, switches=lab.switches)))

    assert json.loads(json.dumps(shape))["values"] == {
        "in-octets": 7,
        "out-discards": 3,
    }
    labels = 'cluster="lab",switch="leaf1",port="Ethernet1",instance="n1",device="mlx5_0"'
    assert f'rankdeck_switch_port_up{{{labels},node_port="1"}} 1\n' in text
    assert f'rankdeck_switch_port_bytes_total{{{labels},node_port="1",direction="in"}} 7\n' in text
    assert (
        f'rankdeck_switch_port_discards_total{{{labels},node_port="1",direction="out"}} 3\n' in text
    )


async def test_a_port_named_in_the_cluster_file_stands_on_the_screen_of_its_node(
    target, tmp_path
) -> None:
    target.start()
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "cluster: lab\nnodes: [{name: n1}]\n"
        f"switches: [{{name: leaf1, address: 127.0.0.1, port: {target.port}, tls: false, ports: {{Ethernet1: 'n1:mlx5_0/1'}}}}]\n"
    )
    stage = Stage(read_cluster(file))
    now = time.time()
    stage.fleet.apply("n1", Hello("n1", True, now))
    stage.fleet.apply("n1", Sample(1, now, {"rdma.up": {"mlx5_0/1": 1}}))

    async with asyncio.TaskGroup() as tasks, console(stage) as (app, pilot):
        following = tasks.create_task(collect_switches(stage.cluster, stage.switches))
        target.tell("Ethernet1", "oper-status", string_val="UP")
        target.tell("Ethernet1", "counters/in-discards", uint_val=7)
        await pilot.press("enter")
        await shows(app, pilot, "leaf1")
        await shows(app, pilot, "Ethernet1")
        target.tell("Ethernet1", "oper-status", string_val="DOWN")
        line = partial(line_with, app, "Ethernet1")
        await until(lambda: "down" in line().lower(), what=f"down in {line()!r}")
        following.cancel()


def line_with(app, word):
    """The line of the screen that has the word."""
    return next((line for line in text_of(app).splitlines() if word in line), "")
