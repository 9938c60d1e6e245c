"""The private broker against mosquitto's own command-line clients."""

import asyncio
import shutil

import pytest
from tests.support.polling import until

from rankdeck.telemetry.private_broker import PrivateBroker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("mosquitto_pub"), reason="mosquitto_pub is not installed"),
    pytest.mark.skipif(not shutil.which("mosquitto_sub"), reason="mosquitto_sub is not installed"),
]


@pytest.fixture
def got() -> list[tuple[str, bytes]]:
    """What the broker delivered."""
    return []


@pytest.fixture
async def broker(got):
    broker = PrivateBroker(lambda *message: got.append(message), "lab")
    await broker.start()
    yield broker
    await broker.close()


async def run(program, broker, login, *args):
    where = ("-h", "127.0.0.1", "-p", str(broker.port), "-u", login[0], "-P", login[1])
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        program, *where, *args, stdin=pipe, stdout=pipe, stderr=pipe
    )


@pytest.mark.parametrize("qos", ["0", "1"])
async def test_what_mosquitto_pub_sends_is_delivered(broker, got, qos) -> None:
    topic = "rankdeck/1/lab/n1/sample"
    for text in ("one", "two"):
        login = broker.credential("n1")
        pub = await run("mosquitto_pub", broker, login, "-t", topic, "-q", qos, "-m", text)
        assert await asyncio.wait_for(pub.wait(), 10) == 0
    await until(lambda: len(got) == 2)

    assert got == [(topic, b"one"), (topic, b"two")]


async def test_mosquitto_sub_is_cut_off(broker) -> None:
    sub = await run("mosquitto_sub", broker, broker.credential("n1"), "-t", "#", "-W", "5")
    out, _ = await asyncio.wait_for(sub.communicate(), 15)

    assert sub.returncode != 0
    assert out == b""


async def test_mosquitto_pub_with_a_wrong_password_is_told_so(broker) -> None:
    pub = await run("mosquitto_pub", broker, ("node-n1", "no"), "-t", "x", "-m", "x")
    _, err = await asyncio.wait_for(pub.communicate(), 10)

    assert pub.returncode != 0
    assert b"bad user name or password" in err.lower()


async def test_mosquitto_sub_with_mqtt_5_is_told_that_the_version_is_wrong(
    broker,
) -> None:
    sub = await run(
        "mosquitto_sub", broker, broker.credential("n1"), "-V", "mqttv5", "-t", "#", "-W", "5"
    )
    _, err = await asyncio.wait_for(sub.communicate(), 10)

    assert sub.returncode != 0
    assert err


async def test_the_will_of_a_killed_mosquitto_pub_is_delivered(broker, got) -> None:
    will = (
        "--will-topic",
        "rankdeck/1/lab/n1/hello",
        "--will-payload",
        "gone",
        "--will-retain",
    )
    topic = ("-t", "rankdeck/1/lab/n1/sample")
    agent = await run("mosquitto_pub", broker, broker.credential("n1"), "-l", *topic, *will)
    await until(lambda: any(s.account for s in broker._sessions))
    agent.kill()
    await agent.wait()
    await until(lambda: got)

    assert got == [("rankdeck/1/lab/n1/hello", b"gone")]
