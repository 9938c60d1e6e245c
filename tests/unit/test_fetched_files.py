"""Files that nodes send here: whole, checked, and nothing of what a node may send instead."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from rankdeck.errors import NodeError
from rankdeck.images.bring import file_name
from rankdeck.images.copy import FetchedFile

BODY = b'one\n{"size": 3}\n\x00\xff' * 50_000


def head(body: bytes) -> bytes:
    return json.dumps({"size": len(body)}).encode() + b"\n"


def tail(body: bytes) -> bytes:
    return json.dumps({"sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n"


HEAD, TAIL = head(BODY), tail(BODY)


class Node:
    """Sends these pieces; stands for `NodeOutput`, whose pump this is."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = pieces

    async def pump(self, offset: int, hand) -> None:
        assert offset == 0
        for piece in self.pieces:
            await hand(piece)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def in_pieces(data: bytes, length: int) -> list[bytes]:
    return [data[at : at + length] for at in range(0, len(data), length)]


@pytest.mark.parametrize("length", [7, 4096, 1 << 30])
@pytest.mark.parametrize("motd", [b"", b"Welcome to n1\n{ not JSON\n"])
async def test_a_file_is_what_was_sent_whatever_a_login_prints(
    tmp_path: Path, length: int, motd: bytes
) -> None:
    file = FetchedFile("n1", tmp_path / "log.n1")
    body = BODY if length > 7 else BODY[:9999]

    await file.fetch(Node(in_pieces(motd + head(body) + body + tail(body) + b"logout\n", length)))

    assert file.path.read_bytes() == body
    assert names(tmp_path) == ["log.n1"]
    assert file.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "broke off"),
        (HEAD + BODY[:-1], "broke off"),
        (HEAD + BODY, "broke off"),
        (HEAD + BODY[:-1] + b"x" + TAIL, "not what was sent"),
        (HEAD + BODY + b"x" * 100_000 + TAIL, "something else"),
        (b"x" * 100_000, "something else"),
        (b'{"size": -1}\n' + BODY[:9], "broke off"),
        (b'{"size": true}\n' + BODY[:9], "broke off"),
        (b'{"size": 1000000000000000000}\n', "free"),
        (HEAD + BODY + b'{"sha256": 5}\n', "not what was sent"),
    ],
)
async def test_what_is_not_this_file_is_refused_and_nothing_of_it_stays(
    tmp_path: Path, sent: bytes, why: str
) -> None:
    file = FetchedFile("n1", tmp_path / "log.n1")

    with pytest.raises(NodeError, match=why):
        await file.fetch(Node(in_pieces(sent, 5000)))

    assert file.over
    assert not names(tmp_path)


async def test_a_link_that_somebody_laid_in_its_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "log.n1").symlink_to(tmp_path / "other")

    await FetchedFile("n1", tmp_path / "log.n1").fetch(Node([HEAD + BODY + TAIL]))

    assert (tmp_path / "log.n1").read_bytes() == BODY
    assert names(tmp_path) == ["log.n1"]


@pytest.mark.parametrize(
    ("path", "name"),
    [("/var/log/a.log", "a.log"), ("..data", "..data"), ("/a/..", ""), ("/a/", ""), ("", "")],
)
def test_a_file_here_has_the_name_that_it_has_there(path: str, name: str) -> None:
    assert file_name(path) == name
