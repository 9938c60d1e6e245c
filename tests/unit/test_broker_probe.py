"""What answers where no broker is: by its first bytes, and over real connections on loopback."""

import asyncio
import ssl
from contextlib import asynccontextmanager

import pytest

from rankdeck.telemetry.broker_probe import Found, find_protocol, judge_answer
from tests.support.certificates import Authority


@pytest.mark.parametrize(
    ("first", "found"),
    [
        (b"", Found.CLOSED),
        (b"HTTP/1.1 400 Bad Request\r\n", Found.HTTP),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Found.SSH),
        (b"\x15\x03\x01\x00\x02\x02\x46", Found.TLS),
        (b"\x20\x02\x00\x00", Found.MQTT),
        (b"\x20\x02\x00\x05", Found.MQTT),
        (b"\x20", Found.OTHER),
        (b"220 mail.site.org ESMTP\r\n", Found.OTHER),
    ],
)
def test_a_server_is_known_by_its_first_bytes(first, found):
    assert judge_answer(first) is found


@asynccontextmanager
async def serving(answer, tls=None):
    """The port of a server that reads a little, answers and closes."""

    async def talk(reader, writer):
        if answer:
            await reader.read(8)
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "found"), [(b"", Found.CLOSED), (b"HTTP/1.1 400 Bad\r\n", Found.HTTP)]
)
async def test_what_answers_is_found_over_a_connection(answer, found):
    async with serving(answer) as port:
        assert await find_protocol("127.0.0.1", port, None) is found


async def test_a_broker_with_tls_is_found_without_trusting_it(tmp_path):
    made = Authority(tmp_path).server()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.cert, made.key)
    async with serving(b"", context) as port:
        assert await find_protocol("127.0.0.1", port, None) is Found.TLS
