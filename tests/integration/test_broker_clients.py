"""The private broker against real clients: paho, aiomqtt, and raw sockets."""

import asyncio
import json
import socket
import sys
from contextlib import asynccontextmanager, suppress

import aiomqtt
import paho.mqtt.client as paho
import pytest
from tests.support import mqtt
from tests.support.polling import until

from rankdeck.errors import BrokerError
from rankdeck.telemetry.mqtt_packets import PacketKind, Publish, Refusal, make_packet
from rankdeck.telemetry.private_broker import CONNECTIONS, PrivateBroker, most_connections


@asynccontextmanager
async def running(deliver=lambda topic, payload: None, patience=1.0):
    broker = PrivateBroker(deliver, "lab", patience)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


def client(broker, login, **more):
    name, password = login
    return aiomqtt.Client(
        "127.0.0.1", broker.port, username=name, password=password, timeout=60, **more
    )


async def raw_login(broker, login, keepalive=0, client_id="raw", will=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    flags = 0xC2 | (0x24 if will else 0)
    body = (
        mqtt.string("MQTT")
        + bytes((4, flags))
        + keepalive.to_bytes(2, "big")
        + mqtt.string(client_id)
    )
    if will:
        body += mqtt.string("rankdeck/1/lab/n1/hello") + mqtt.string(will)
    body += mqtt.string(login[0]) + mqtt.string(login[1])
    writer.write(make_packet(PacketKind.CONNECT, body))
    answer = await asyncio.wait_for(reader.readexactly(4), 5)
    return reader, writer, answer[3]


async def closed(reader):
    """What still came before the connection ended."""
    with suppress(ConnectionResetError):
        return await asyncio.wait_for(reader.read(), 5)
    return b""


async def test_a_message_of_an_agent_reaches_the_model() -> None:
    got = []
    async with (
        running(lambda *m: got.append(m)) as broker,
        client(broker, broker.credential("n1")) as agent,
    ):
        await agent.publish("rankdeck/1/lab/n1/sample", b"0")
        await agent.publish("rankdeck/1/lab/n1/event", b"1", qos=1)

    assert got == [
        ("rankdeck/1/lab/n1/sample", b"0"),
        ("rankdeck/1/lab/n1/event", b"1"),
    ]


async def test_paho_publishes_with_qos_1_and_gets_its_acknowledgement() -> None:
    got = []
    async with running(lambda *m: got.append(m)) as broker:
        agent = paho.Client(paho.CallbackAPIVersion.VERSION2, "agent")
        agent.username_pw_set(*broker.credential("n1"))
        await asyncio.to_thread(agent.connect, "127.0.0.1", broker.port)
        agent.loop_start()
        info = agent.publish("rankdeck/1/lab/n1/event", b"x" * 5000, qos=1)
        await until(info.is_published)
        agent.disconnect()
        await asyncio.to_thread(agent.loop_stop)

    assert got == [("rankdeck/1/lab/n1/event", b"x" * 5000)]


async def test_the_will_of_a_connection_that_breaks_is_published() -> None:
    got = []
    async with running(lambda *m: got.append(m)) as broker:
        _, writer, code = await raw_login(broker, broker.credential("n1"), will=b"gone")
        writer.transport.abort()
        await until(lambda: got)

    assert code == 0
    assert got == [("rankdeck/1/lab/n1/hello", b"gone")]


async def test_the_will_of_a_client_that_says_goodbye_is_not_published() -> None:
    got = []
    async with running(lambda *m: got.append(m)) as broker:
        will = aiomqtt.Will("rankdeck/1/lab/n1/hello", b"gone", retain=True)
        async with client(broker, broker.credential("n1"), will=will) as agent:
            await agent.publish("rankdeck/1/lab/n1/sample", b"{}")
        await until(lambda: not broker._sessions)

    assert [payload for _, payload in got] == [b"{}"]


async def test_a_client_silent_for_one_and_a_half_keepalives_is_closed_and_its_will_published() -> (
    None
):
    got = []
    async with running(lambda *m: got.append(m)) as broker:
        reader, _writer, _ = await raw_login(
            broker, broker.credential("n1"), keepalive=1, will=b"gone"
        )
        begun = asyncio.get_running_loop().time()
        await closed(reader)
        took = asyncio.get_running_loop().time() - begun

    assert got == [("rankdeck/1/lab/n1/hello", b"gone")]
    assert took > 1.4


async def test_the_same_client_id_takes_over_and_the_will_comes_before_the_new_hello() -> None:
    got = []
    async with running(lambda *m: got.append(m)) as broker:
        login = broker.credential("n1")
        old, _old_writer, _ = await raw_login(broker, login, will=b"gone")
        _, writer, code = await raw_login(broker, login)
        writer.write(mqtt.publish(Publish("rankdeck/1/lab/n1/hello", b"back", retain=True)))
        await closed(old)
        await until(lambda: len(got) == 2)

    assert code == 0
    assert [payload for _, payload in got] == [b"gone", b"back"]


async def test_a_client_id_of_another_account_is_not_taken_over() -> None:
    got = []
    async with running(lambda *m: got.append(m)) as broker:
        _, mine, _ = await raw_login(broker, broker.credential("n1"))
        _theirs = await raw_login(broker, broker.credential("n2"))
        mine.write(mqtt.publish(Publish("rankdeck/1/lab/n1/sample", b"still")))
        await until(lambda: got)

    assert got == [("rankdeck/1/lab/n1/sample", b"still")]


async def test_a_wrong_password_and_an_unknown_user_are_refused() -> None:
    async with running() as broker:
        for login in (
            ("node-n1", "wrong"),
            ("nobody", ""),
            (broker.credential("n1")[0], "wrong"),
        ):
            with pytest.raises(aiomqtt.MqttError, match=r"(?i)bad user ?name or password"):
                async with client(broker, login):
                    pass


async def test_an_agent_publishes_only_as_its_own_node_and_subscribes_to_nothing() -> None:
    got = []
    async with running(lambda *m: got.append(m)) as broker:
        login = broker.credential("n1")
        async with client(broker, login) as agent:
            for name in (
                "rankdeck/1/lab/n2/sample",
                "rankdeck/1/lab/n1",
                "rankdeck/1/lab/n10/hello",
                "x",
            ):
                await agent.publish(name, b"forged", qos=1)
            await agent.publish("rankdeck/1/lab/n1/sample", b"own", qos=1)
        reader, writer, code = await raw_login(broker, login)
        writer.write(mqtt.subscribe(1, "rankdeck/1/lab/n1/#"))

        assert await closed(reader) == b""

    assert code == 0
    assert got == [("rankdeck/1/lab/n1/sample", b"own")]


async def test_a_will_for_another_node_is_refused_at_login() -> None:
    async with running() as broker:
        _, _, code = await raw_login(broker, broker.credential("n2"), will=b"gone")

    assert code == Refusal.NOT_ALLOWED


async def test_mqtt_5_is_refused_with_the_return_code_for_it() -> None:
    async with running() as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        body = mqtt.string("MQTT") + bytes((5, 2, 0, 60, 0)) + mqtt.string("five")
        writer.write(make_packet(PacketKind.CONNECT, body))
        answer = await closed(reader)

    assert answer == bytes((0x20, 2, 0, 1))


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 40,
        b"\xff" * 64,
        b"\x30\x05\x00\x01xyz",
        b"\x10\xff\xff\xff\x7f",
    ],
)
async def test_garbage_closes_the_connection(junk) -> None:
    async with running() as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(junk)

        assert await closed(reader) == b""


async def test_a_packet_of_more_than_a_mebibyte_closes_the_connection() -> None:
    got = []
    async with running(lambda *m: got.append(m)) as broker:
        reader, writer, _ = await raw_login(broker, broker.credential("n1"))
        writer.write(mqtt.publish(Publish("rankdeck/1/lab/n1/sample", b"x" * (1 << 20))))

        assert await closed(reader) == b""
    assert got == []


async def test_who_does_not_log_in_is_closed(monkeypatch) -> None:
    monkeypatch.setattr("rankdeck.telemetry.private_broker.LOGIN_LIMIT", 0.2)
    async with running() as broker:
        reader, _writer = await asyncio.open_connection("127.0.0.1", broker.port)

        assert await closed(reader) == b""


async def test_slow_clients_have_longer_to_log_in(monkeypatch) -> None:
    monkeypatch.setattr("rankdeck.telemetry.private_broker.LOGIN_LIMIT", 0.2)
    async with running(patience=60.0) as broker:
        reader, _writer = await asyncio.open_connection("127.0.0.1", broker.port)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 1.5)


async def test_a_sweep_while_a_connection_begins_is_not_the_last(monkeypatch) -> None:
    monkeypatch.setattr("rankdeck.telemetry.private_broker.LOGIN_LIMIT", 0.2)
    monkeypatch.setattr("rankdeck.telemetry.private_broker.SWEEP", 0)
    async with running() as broker:
        reader, _writer = await asyncio.open_connection("127.0.0.1", broker.port)

        assert await closed(reader) == b""


async def test_a_port_in_use_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            BrokerError, match=rf"cannot listen on 127.0.0.1:{port}: the port is in use"
        ):
            await PrivateBroker(lambda topic, payload: None, "lab").start(port=port)


async def test_who_does_not_read_its_acknowledgements_is_cut_off(monkeypatch) -> None:
    monkeypatch.setattr("rankdeck.telemetry.private_broker.MOST_UNSENT", 0)
    monkeypatch.setattr("rankdeck.telemetry.private_broker.NO_HURRY", 0.2)
    monkeypatch.setattr("rankdeck.telemetry.private_broker.BURST", 1 << 30)
    messages = 1000 * mqtt.publish(Publish("rankdeck/1/lab/n1/event", b"", 1, packet_id=7))
    async with running() as broker:
        # So that the kernel takes little of what nobody reads.
        broker._listener._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        _, slow, _ = await raw_login(broker, broker.credential("n1"), client_id="slow")
        slow.transport.pause_reading()

        async def flood() -> None:
            while broker._sessions:
                slow.write(messages)
                await asyncio.sleep(0.01)

        await asyncio.wait_for(flood(), 30)


@pytest.mark.long
async def test_a_client_that_floods_is_slowed_down_and_loses_nothing() -> None:
    got = []
    async with running(lambda *m: got.append(m)) as broker:
        _, writer, _ = await raw_login(broker, broker.credential("n1"), keepalive=1)
        for number in range(1200):
            writer.write(mqtt.publish(Publish("rankdeck/1/lab/n1/sample", b"%1000d" % number)))
        await until(lambda: got)
        early = len(got)
        await until(lambda: len(got) == 1200)

    assert early < 1200
    assert [int(payload) for _, payload in got] == list(range(1200))


@pytest.mark.long
async def test_two_hundred_agents_at_once_are_all_heard() -> None:
    got, writers = [], []

    async def agent(broker, number):
        _, writer, code = await raw_login(broker, broker.credential(f"n{number}"))
        writers.append(writer)
        for seq in range(5):
            body = json.dumps({"seq": seq}).encode()
            writer.write(mqtt.publish(Publish(f"rankdeck/1/lab/n{number}/sample", body)))
        await writer.drain()
        return code

    async with running(lambda *m: got.append(m)) as broker:
        codes = await asyncio.gather(*(agent(broker, number) for number in range(200)))
        await until(lambda: len(got) == 1000)

    assert set(codes) == {0}
    assert len({topic for topic, _ in got}) == 200


HELD = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from rankdeck.telemetry.private_broker import (PrivateBroker)
async def main():
    got, wrong = [], []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: wrong.append(what["message"]))
    broker = PrivateBroker(lambda *message: got.append(message), "lab")
    await broker.start()
    print(broker.port, *broker.credential("n1"), flush=True)
    while not got:
        await asyncio.sleep(0.01)
        open("/dev/null").close()  # raises where no descriptor is left
    print(len(wrong), wrong[:1], flush=True)
    await broker.close()
asyncio.run(main())
"""


@pytest.mark.long
async def test_connections_that_never_log_in_leave_room_for_agents_and_files() -> None:
    pipe = asyncio.subprocess.PIPE
    broker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HELD, stdout=pipe, stderr=pipe
    )
    assert broker.stdout
    assert broker.stderr
    port, name, password = (await broker.stdout.readline()).decode().split()
    held = [await asyncio.open_connection("127.0.0.1", int(port)) for _ in range(400)]
    agent = aiomqtt.Client("127.0.0.1", int(port), username=name, password=password, timeout=60)
    async with agent:
        await agent.publish("rankdeck/1/lab/n1/event", b"here", qos=1)
    said = await asyncio.wait_for(broker.stdout.read(), 20)
    for _, writer in held:
        writer.transport.abort()

    assert (said.decode().strip(), await broker.stderr.read()) == ("0 []", b"")
    assert await broker.wait() == 0


@pytest.mark.parametrize(
    ("descriptors", "most"),
    [(256, 64), (1024, 309), (1 << 20, CONNECTIONS), (-1, CONNECTIONS)],
)
def test_the_limit_of_connections_follows_that_of_descriptors(descriptors, most):
    assert most_connections(descriptors) == most
