"""HTTP's chunked encoding, in whatever pieces it comes; what kubectl complains of."""

import json
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck_agent.schedulers.kubernetes.api import Api
from rankdeck_agent.schedulers.kubernetes.chunked_encoding import Chunks
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import kubectl_complaint
from rankdeck_agent.schedulers.kubernetes.watch import Watch


def encoded(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.lists(st.integers(1, 9)))
def test_the_text_is_the_same_however_it_is_cut(parts: list[bytes], sizes: list[int]) -> None:
    raw, chunks, found = encoded(parts), Chunks(), b""
    for size in [*sizes, len(raw)]:
        piece, raw = raw[:size], raw[size:]
        found += chunks.feed(piece)

    assert found == b"".join(parts)
    assert chunks.over


def test_what_is_no_chunk_is_refused() -> None:
    chunks = Chunks()

    with pytest.raises(ValueError, match="no chunks"):
        chunks.feed(b"x" * 2000)


def event(name: str, version: str) -> bytes:
    found = {"metadata": {"name": name, "resourceVersion": version}}
    return json.dumps({"type": "ADDED", "object": found}).encode() + b"\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def answers(path: Path, given: list[bytes], asked: list[str]) -> threading.Thread:
    """A server on this socket that gives these answers, a connection
    each, and notes what it was asked.
    """
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        with server:
            for text in given:
                client, _ = server.accept()
                with client:
                    asked.append(client.recv(1 << 16).decode().split()[1])
                    client.sendall(text)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("whole", [True, False])
def test_a_watch_that_is_cut_in_the_middle_of_an_event_goes_on_after_the_last_whole_one(
    tmp_path: Path, *, whole: bool
) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    listed = json.dumps({"items": [], "metadata": {"resourceVersion": "7"}}).encode()
    half = event("b", "9")[:30]
    cut = chunk(half) if whole else b"%x\r\n%s" % (len(event("b", "9")), half)
    asked: list[str] = []
    first = head + chunk(listed) + b"0\r\n\r\n"
    second = head + chunk(event("a", "8")) + cut
    thread = answers(tmp_path / "s", [first, second, head + chunk(event("b", "9"))], asked)
    watch = Watch(Api(str(tmp_path / "s")), "/api/v1/pods", {})
    seen: list[tuple[str, str]] = []

    for kind, found in watch:
        seen.append((kind, found.get("metadata", {}).get("name", "")))
        if len(seen) == 3:
            watch.close()

    thread.join(60)
    assert seen == [("LISTED", ""), ("ADDED", "a"), ("ADDED", "b")]
    assert "resourceVersion=8" in asked[2]


@pytest.mark.parametrize(("said", "told"), [
    ("error: the server is down\n", "error: the server is down"),
    ("error: no context\nWarning: v1 Endpoints is deprecated in v1.33+\n", "error: no context"),
    ('W1124 02:00:00.1 1 x.go:1] a warning\nUnable to connect to the server: EOF\nmore\n', "Unable to connect to the server: EOF"),
    ("something\nWarning: would violate PodSecurity\n", "something"),
    ("Warning: only this\n", "Warning: only this"),
    ("Error in configuration: \n* no a.crt\n* no a.key\n", "Error in configuration: * no a.crt * no a.key"),
    ("", ""),
])  # fmt: skip
def test_warnings_of_kubectl_do_not_hide_its_error(said: str, told: str) -> None:
    assert kubectl_complaint(said) == told
