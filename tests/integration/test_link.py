"""The telemetry link with real clients, over the private broker and over mosquitto."""

import asyncio
import json
import platform
import shutil
import socket
import subprocess
import sys
from contextlib import asynccontextmanager

import aiomqtt
import pytest
from tests.support.polling import until
from tests.support.ports import free_port
from textual.geometry import Size

from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Broker, Cluster, Node
from rankdeck.state.fleet import Fleet
from rankdeck.telemetry.agent_configs import installed_config
from rankdeck.telemetry.link import open_link
from rankdeck.telemetry.private_broker import PrivateBroker
from rankdeck.ui.screens.node import live_node_page
from rankdeck.ui.themes import UNICODE
from rankdeck.values import replace
from rankdeck_agent.config import from_mapping
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import HealthReport, Hello, Sample, encode_message, message_topic

SAMPLE = Sample(1, 1.0, {"cpu.used": {"": 12.5}}, report=HealthReport(1.0, 0, 10.0))


def cluster(broker=None):
    return Cluster(name="lab", nodes=(Node(name="n1"), Node(name="n2")), broker=broker)


def agent(config):
    login = {
        "username": config["username"] or None,
        "password": config["password"] or None,
    }
    return aiomqtt.Client(config["host"], config["port"], timeout=60, **login)


async def test_an_agent_with_its_configuration_is_heard_through_the_private_broker() -> None:
    site = cluster()
    fleet = Fleet(site)
    async with open_link(site, fleet) as link:
        config = link.agent_config("n1")
        async with agent(config) as client:
            await client.publish(
                message_topic("lab", "n1", "hello"), encode_message(Hello("n1", True)), retain=True
            )
            await client.publish(message_topic("lab", "n1", "sample"), encode_message(SAMPLE))
            await until(lambda: fleet.node("n1").heard_s() is not None)

    assert link.private
    assert link.trouble == ""
    assert (config["host"], config["port"]) == link.address
    assert from_mapping(config).node == "n1"
    assert fleet.node("n1").value("cpu.used") == 12.5


async def test_unusable_messages_are_counted_and_said_once(caplog) -> None:
    site = cluster()
    fleet = Fleet(site)
    async with open_link(site, fleet) as link, agent(link.agent_config("n1")) as client:
        for junk in (
            b"\xff\xfe",
            b"[]",
            b'{"seq": 1}',
            b'{"seq":1,"at":2,"values":{"a":{"b":"c"}}}',
            b"[" * 5000,
        ):
            await client.publish(message_topic("lab", "n1", "sample"), junk, qos=1)
        await client.publish("rankdeck/1/lab/n1/nonsense", b"{}", qos=1)
        await client.publish(message_topic("lab", "n1", "sample"), encode_message(SAMPLE), qos=1)

    assert link.intake.refused == {"n1": 6}
    assert len([r for r in caplog.records if "unusable" in r.message]) == 1
    assert fleet.node("n1").value("cpu.used") == 12.5


async def test_other_clusters_and_unknown_nodes_are_ignored() -> None:
    site = cluster()
    fleet = Fleet(site)
    async with open_link(site, fleet) as link:
        link.intake.take("rankdeck/1/other/n1/sample", encode_message(SAMPLE))
        link.intake.take("rankdeck/1/lab/n9/sample", encode_message(SAMPLE))
        link.intake.take("rankdeck/1/lab/n1/sample", encode_message(SAMPLE), retained=True)

    assert link.intake.refused == {"another cluster": 1, "unknown nodes": 1}
    assert fleet.node("n1").heard_s() is None


@asynccontextmanager
async def site_broker():
    """The project's own broker in the place of a site's; n1 may publish, `reader` may read."""
    broker = PrivateBroker(lambda name, payload: None, "lab")
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


async def test_a_wrong_password_is_a_sentence_and_not_a_crash(monkeypatch) -> None:
    async with site_broker() as broker:
        monkeypatch.setenv("LAB_MQTT", "wrong")
        site = cluster(
            Broker(
                host="127.0.0.1",
                port=broker.port,
                username="reader",
                password_env="LAB_MQTT",
            )
        )
        fleet = Fleet(site)
        async with open_link(site, fleet) as link:
            await until(lambda: link.trouble)

    assert (
        link.trouble == f"the broker at 127.0.0.1:{broker.port} refuses the user name or password"
    )


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("mosquitto"), reason="mosquitto is not installed")
async def test_an_unreachable_broker_is_a_sentence_and_is_tried_again() -> None:
    port = free_port()
    site = cluster(Broker(host="127.0.0.1", port=port))
    fleet = Fleet(site)
    fleet.want(None)
    async with open_link(site, fleet) as link:
        await until(lambda: link.trouble)
        trouble = link.trouble
        broker = await asyncio.create_subprocess_exec("mosquitto", "-p", str(port))
        await until(lambda: not link.trouble)
        login = {"host": "127.0.0.1", "port": port, "username": "", "password": ""}
        async with agent(login) as client:
            await client.publish(message_topic("lab", "n1", "sample"), encode_message(SAMPLE))
            await until(lambda: fleet.node("n1").heard_s() is not None)
        broker.terminate()
        await broker.wait()
        await until(lambda: link.trouble)

    assert trouble.startswith(f"the broker at 127.0.0.1:{port} cannot be reached:")
    assert "ended the connection" in link.trouble or "cannot be reached" in link.trouble


@pytest.mark.parametrize(
    ("broker", "words"),
    [
        (
            Broker(host="127.0.0.1", password_env="LAB_MISSING"),
            "the environment has no LAB_MISSING",
        ),
        (
            Broker(host="127.0.0.1", password_file="/nonexistent/secret"),
            "cannot read the broker's password from /nonexistent/secret",
        ),
        (
            Broker(host="127.0.0.1", tls=True, ca_file="/nonexistent/ca"),
            "cannot read the broker's certificates in /nonexistent/ca",
        ),
    ],
)
async def test_what_is_missing_on_our_side_is_a_sentence(broker, words) -> None:
    site = cluster(broker)
    async with open_link(site, Fleet(site)) as link:
        await until(lambda: link.trouble)

    assert words in link.trouble


async def test_an_error_of_the_front_end_is_not_wrapped() -> None:
    site = cluster(Broker(host="127.0.0.1", port=1))
    with pytest.raises(LaunchError):
        async with open_link(site, Fleet(site)):
            raise LaunchError("plan", "no")


def call(*command):
    return subprocess.run(command, capture_output=True, timeout=300).returncode == 0


@pytest.fixture
async def mosquitto(tmp_path):
    """Start mosquitto with TLS and a password; gives port, certificate and password."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]  # fmt: skip
    assert call(*make)
    passwords = tmp_path / "passwords"
    assert call("mosquitto_passwd", "-c", "-b", passwords, "console", "secret")
    port = free_port()
    (tmp_path / "m.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {passwords}\ncertfile {cert}\nkeyfile {key}\nuser root\n"
    )
    process = await asyncio.create_subprocess_exec("mosquitto", "-c", str(tmp_path / "m.conf"))
    yield port, str(cert)
    process.terminate()
    await process.wait()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("mosquitto"), reason="mosquitto is not installed")
async def test_a_site_broker_with_tls_and_a_password_feeds_the_fleet(mosquitto, tmp_path) -> None:
    port, ca_file = mosquitto
    (tmp_path / "pw").write_text("secret\n")
    broker = Broker(
        host="localhost",
        port=port,
        tls=True,
        ca_file=ca_file,
        username="console",
        password_file=str(tmp_path / "pw"),
    )
    site = cluster(broker)
    fleet = Fleet(site)
    fleet.want(None)
    sends = [
        "mosquitto_pub",
        "-h",
        "localhost",
        "-p",
        str(port),
        "--cafile",
        ca_file,
        "-u",
        "console",
        "-P",
        "secret",
        "-q",
        "1",
    ]
    async with open_link(site, fleet) as link:
        config = link.agent_config("n1")
        hello = [
            *sends,
            "-r",
            "-t",
            message_topic("lab", "n1", "hello"),
            "-m",
            encode_message(Hello("n1", True, boot="b1")).decode(),
        ]
        await until(lambda: call(*hello))
        await until(lambda: fleet.node("n1").hello)
        assert fleet.node("n1").health.level is Level.UNKNOWN
        number = encode_message(SAMPLE).decode()
        assert call(*sends, "-t", message_topic("lab", "n1", "sample"), "-m", number)
        await until(lambda: fleet.node("n1").heard_s() is not None)

    assert not link.private
    assert from_mapping(config).tls
    assert fleet.node("n1").value("cpu.used") == 12.5
    assert link.trouble == ""


@asynccontextmanager
async def open_mosquitto(tmp_path, port=0):
    """A mosquitto without passwords and without a memory, ready; gives its port."""
    port = port or free_port()
    conf = tmp_path / "open.conf"
    conf.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n")
    process = await asyncio.create_subprocess_exec("mosquitto", "-c", str(conf))
    await until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
    try:
        yield port
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("mosquitto"), reason="mosquitto is not installed")
async def test_a_huge_retained_message_is_said_of_its_node_and_the_others_are_heard(
    tmp_path, caplog
) -> None:
    async with open_mosquitto(tmp_path) as port:
        site = cluster(Broker(host="127.0.0.1", port=port))
        fleet = Fleet(site)
        fleet.want(None)
        client = aiomqtt.Client("127.0.0.1", port, timeout=60)
        async with client:
            await client.publish(
                message_topic("lab", "n2", "hello"), bytes(5 << 20), retain=True, qos=1
            )
            async with open_link(site, fleet) as link:
                await until(lambda: link.intake.refused)
                await client.publish(
                    message_topic("lab", "n1", "sample"), encode_message(SAMPLE), qos=1
                )
                await until(lambda: fleet.node("n1").heard_s() is not None)

    assert (link.trouble, link.intake.refused) == ("", {"n2": 1})
    said = [r.message for r in caplog.records if "left out" in r.message]
    assert said == ["hello of 5 MB on 'rankdeck/1/lab/n2/hello': left out"]


@asynccontextmanager
async def speaking_3_1_1_only(behind, refusal):
    """In front of that broker: refuses MQTT 5 as brokers do that do not speak it, with these
    bytes; gives the port and the versions asked for.
    """
    asked: list[int] = []

    async def serve(reader, writer):
        greeting = await reader.read(1 << 12)
        asked.append(greeting[greeting.index(b"MQTT") + 4])
        if asked[-1] == 5:
            writer.write(refusal)
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", behind)
        back.write(greeting)
        await asyncio.gather(_pipe(reader, back), _pipe(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()


async def _pipe(reader, writer):
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("mosquitto"), reason="mosquitto is not installed")
@pytest.mark.parametrize("refusal", [b"\x20\x02\x00\x01", b""], ids=["CONNACK", "closes"])
async def test_a_broker_without_mqtt_5_is_asked_again_in_3_1_1(tmp_path, refusal) -> None:
    async with open_mosquitto(tmp_path) as port, speaking_3_1_1_only(port, refusal) as (old, asked):
        site = cluster(Broker(host="127.0.0.1", port=old))
        async with watching(site) as fleet, installed_agent(tmp_path, site):
            await until(lambda: is_heard(fleet), 30)
            assert fleet.trouble == ""
    # 5 once by the console, then 3.1.1 (level 4) by console and agent; without an answer, also to
    # see what answers.
    assert sorted(asked) == ([4, 4, 5] if refusal else [4, 4, 4, 5])


@pytest.mark.slow
async def test_a_broker_that_takes_no_subscription_is_told() -> None:
    async def serve(reader, writer):
        await reader.read(1 << 12)
        writer.write(b"\x20\x03\x00\x00\x00")  # CONNACK of MQTT 5: accepted
        await reader.read()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        site = cluster(Broker(host="127.0.0.1", port=server.sockets[0].getsockname()[1]))
        async with watching(site) as fleet:
            await until(lambda: fleet.trouble, 30)
            assert "takes the login but no subscription" in fleet.trouble


@asynccontextmanager
async def installed_agent(tmp_path, site, name="n1"):
    """A real agent, with the configuration that `agent install` writes for this cluster file."""
    file = tmp_path / f"{name}.json"
    file.write_text(json.dumps(installed_config(site, site.broker, name)))
    argv = (sys.executable, "-m", "rankdeck_agent", "--config", str(file))
    process = await asyncio.create_subprocess_exec(*argv)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def watching(site):
    """A console on that cluster file: its fleet, judged as time goes on."""
    fleet = Fleet(site)
    async with open_link(site, fleet):
        yield fleet


def checks(fleet, name="n1"):
    fleet.take_changes()
    return {reason.check for reason in fleet.node(name).health.reasons}


def is_heard(fleet, name="n1"):
    """Whether the node itself was heard, not only what the broker had kept of it."""
    found = checks(fleet, name)
    return fleet.node(name).was_heard and not found & {"node.silent", "node.remembered"}


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("mosquitto"), reason="mosquitto is not installed")
async def test_of_two_consoles_the_one_that_installed_the_agent_last_is_judged_by(tmp_path) -> None:
    async with open_mosquitto(tmp_path) as port:
        ours = cluster(Broker(host="127.0.0.1", port=port))
        ours = replace(ours, expect={"kernel": platform.release()})
        theirs = replace(ours, expect={"kernel": "another"})
        silent = replace(ours, expect={})
        async with watching(ours) as a, watching(theirs) as b, watching(silent) as c:
            async with installed_agent(tmp_path, ours):
                await until(lambda: all(map(is_heard, (a, b, c))), 30)
                seen = [
                    ("agent.expect" in checks(each), each.node("n1").older_expectations)
                    for each in (a, b, c)
                ]
                assert seen == [(False, False), (True, True), (False, True)]
                assert b.node("n1").health.level >= Level.UNKNOWN
            async with installed_agent(tmp_path, theirs):
                await until(
                    lambda: "agent.expect" in checks(a) and "agent.expect" not in checks(b), 30
                )
                shown = str(live_node_page(a.node("n1"), Size(100, 50), UNICODE))
                assert "its agent judges by another `expect:` than this cluster file" in shown


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("mosquitto"), reason="mosquitto is not installed")
async def test_a_broker_that_forgot_what_it_had_kept_is_told_all_again(tmp_path) -> None:
    port = free_port()
    site = cluster(Broker(host="127.0.0.1", port=port))
    async with watching(site) as before:
        async with open_mosquitto(tmp_path, port), installed_agent(tmp_path, site, "n2"):
            await until(lambda: is_heard(before, "n2"), 30)
        # Restarted without a memory, and no agent says anything: nobody is ok by silence.
        async with open_mosquitto(tmp_path, port), watching(site) as after:
            await until(lambda: after.trouble == "")
            assert checks(after, "n2") == {"node.silent"}
            async with installed_agent(tmp_path, site, "n2"):
                await until(lambda: is_heard(after, "n2") and after.node("n2").hello, 30)
                await until(lambda: is_heard(before, "n2"), 30)
        assert before.node("n2").installed
