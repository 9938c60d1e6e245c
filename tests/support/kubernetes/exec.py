"""`exec` of the double: kubectl's WebSocket (v5.channel.k8s.io), and a command in the namespaces of
a container of real processes.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import struct
from collections.abc import Awaitable, Callable, Sequence

from tests.support.kubernetes import status
from tests.support.kubernetes.http import CutError, Reply, Request
from tests.support.processes import children

Json = dict
_PROTOCOL = "v5.channel.k8s.io"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, 1.3."""
STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255
"""Channels: the first byte of each message (k8s.io/apimachinery, remotecommand)."""
_BINARY, _CLOSE_FRAME, _PING, _PONG = 2, 8, 9, 10
Start = Callable[[Json, str, Sequence[str]], Awaitable[asyncio.subprocess.Process]]
"""Starts a command in a container (pod, name of the container, command)."""


async def serve_exec(request: Request, reply: Reply, pod: Json, start: Start) -> None:
    """Run the command that a request asks for, and pass its streams on until it ends."""
    if request.headers.get("upgrade", "").lower() != "websocket":
        raise status.RefusedError(400, "BadRequest", "Upgrade request required")
    key = request.headers["sec-websocket-key"].encode()
    accept = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
    process = await start(pod, request.one("container"), request.query["command"])
    head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    head += f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {_PROTOCOL}\r\n\r\n"
    reply.writer.write(head.encode())
    assert process.stdout is not None
    assert process.stderr is not None
    hearing = asyncio.ensure_future(_hear(reply, process))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(reply, STDOUT, process.stdout))
            group.create_task(_send(reply, STDERR, process.stderr))
        code = await process.wait()
    finally:
        hearing.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    await _write(reply, ERROR, json.dumps(_end(code)).encode())
    reply.writer.write(bytes((0x80 | _CLOSE_FRAME, 2)) + struct.pack("!H", 1000))
    await reply.writer.drain()
    raise CutError


def _end(code: int) -> Json:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": causes},
    }


async def _send(reply: Reply, channel: int, stream: asyncio.StreamReader) -> None:
    while data := await stream.read(1 << 15):
        await _write(reply, channel, data)


async def _write(reply: Reply, channel: int, data: bytes) -> None:
    size = len(data) + 1
    length = bytes((size,)) if size < 126 else b"\x7e" + struct.pack("!H", size)
    reply.writer.write(bytes((0x80 | _BINARY,)) + length + bytes((channel,)) + data)
    await reply.writer.drain()


async def _hear(reply: Reply, process: asyncio.subprocess.Process) -> None:
    """Pass stdin on, until the client closes it or goes."""
    assert process.stdin is not None
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):
        while True:
            kind, data = await _frame(reply.reader)
            if kind == _PING:
                reply.writer.write(bytes((0x80 | _PONG, len(data))) + data)
            elif kind == _CLOSE_FRAME:
                break
            elif data[:1] == bytes((STDIN,)):
                process.stdin.write(data[1:])
                await process.stdin.drain()
            elif data[:1] == bytes((CLOSE,)):
                process.stdin.close()
    with contextlib.suppress(ProcessLookupError):
        process.kill()


async def _frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first, second = await reader.readexactly(2)
    size = second & 0x7F
    if size >= 126:
        size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
    mask = await reader.readexactly(4)
    data = await reader.readexactly(size)
    repeated = (mask * (size // 4 + 1))[:size]
    plain = int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")
    return first & 0x0F, plain.to_bytes(size, "big")


async def start_beside(
    process: asyncio.subprocess.Process, user: int, variables: Sequence[str], command: Sequence[str]
) -> asyncio.subprocess.Process:
    """Run a command beside the process 1 of a container, with these variables (`NAME=value`)."""
    (first,) = children(process.pid)
    enter = ("nsenter", "-t", str(first), "-U", "-m", "-u", "-i", "-n", "-p", "-r", "-w")
    words = (*enter, "-S", str(user), "-G", str(user), "env", "-i", *variables, *command)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *words, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
