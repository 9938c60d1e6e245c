"""Parts of a log read and searched by offset: the same answers as reading all of it."""

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankdeck_agent.job import browse
from rankdeck_agent.job.folder import FolderError, RunFolder

LOGS = st.lists(
    st.sampled_from([b"", b"alpha", b"ERROR one", b"error two", b"x" * 30]), max_size=30
)
PATTERNS = ["(?i)error (one|two)", "^x+$", "^$", "R o|a$", "a\\sE", "[^q]E", "x*"]
NEEDLES: dict[str, tuple[browse.TextQuery | browse.RegexQuery, Callable[[bytes], object]]] = {
    "error": (browse.TextQuery("error"), lambda line: b"error" in line.lower()),
    "ERROR": (browse.TextQuery("ERROR"), lambda line: b"ERROR" in line),
    "xx": (browse.TextQuery("xx"), lambda line: b"xx" in line),
    **{one: (browse.RegexQuery(one), re.compile(one.encode()).search) for one in PATTERNS},
}
"""What is looked for, and how to know the lines that have it."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "rank.0").mkdir()
    return tmp_path / "rank.0" / "out"


def starts(data: bytes, fits: Callable[[bytes], object]) -> list[int]:
    """Where the lines that fit begin."""
    found: list[int] = []
    at = 0
    for line in data.split(b"\n"):
        if at < len(data) and fits(line):
            found.append(at)
        at += len(line) + 1
    return found


def ask(found: browse.LogSearch, offset: int, *, back: bool) -> browse.SearchReport:
    """The last report, which has everything."""
    return [one for one in found.steps(offset, back) if one is not None][-1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    LOGS,
    LOGS,
    st.integers(0, 400),
    st.sampled_from(list(NEEDLES)),
    st.integers(5, 64),
)
def test_a_text_is_found_where_it_is_also_after_the_log_has_grown(
    log: Path, lines: list[bytes], more: list[bytes], offset: int, text: str, block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(browse, "BLOCK", block)
        needle, fits = NEEDLES[text]
        one = browse.LogSearch(log, needle)
        for data in (b"\n".join(lines), b"\n".join([*lines, *more])):
            log.write_bytes(data)
            hits = starts(data, fits)
            inside = offset <= len(data)
            here = data.rfind(b"\n", 0, offset) + 1 if inside else len(data)
            after, before = ask(one, here, back=False), ask(one, here, back=True)

            assert after.at == next((at for at in hits if at >= here), None)
            assert before.at == next((at for at in reversed(hits) if at < here), None)
            for found in (after, before):
                assert (found.lines, found.looking) == (len(hits), False)
                assert found.counted == found.end == len(data)
                if found.at is not None:
                    assert found.before == hits.index(found.at)


@pytest.mark.parametrize("taken", [8192, browse.BLOCK, 3 * browse.BLOCK + 4096])
def test_a_pattern_finds_the_first_line_behind_what_was_taken_out_of_a_log(
    log: Path, taken: int
) -> None:
    with log.open("wb") as file:
        file.truncate(taken)
        file.seek(taken)
        file.write(b"line 1\nline 2\nline 1\n")
    found = ask(browse.LogSearch(log, browse.RegexQuery("^line 1$")), 0, back=False)

    assert found.lines == 2
    assert found.at in range(taken + 1)


def test_a_line_near_by_is_told_before_the_rest_is_read(log: Path) -> None:
    log.write_bytes(b"here\n" + b"x" * 40 * browse.BLOCK + b"\nhere\n")
    steps = browse.LogSearch(log, browse.TextQuery("here")).steps(0, back=False)
    first = next(one for one in steps if one is not None)

    assert (first.at, first.before, first.counted) == (0, 0, browse.BLOCK)


def test_nothing_is_read_twice_for_the_next_match(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_bytes(b"here\n" + b"x" * 9 * browse.BLOCK + b"\nhere\n")
    one = browse.LogSearch(log, browse.TextQuery("here"))
    assert ask(one, 1, back=False).lines == 2
    read: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: read.append(size) or pread(fd, size, at))

    assert ask(one, 1, back=False).at == 5 + 9 * browse.BLOCK + 1
    assert sum(read) <= 2 * browse.BLOCK


def test_a_read_is_answered_while_a_search_goes_on(log: Path) -> None:
    log.write_bytes(b"here\n" + b"x" * 9 * browse.BLOCK + b"\nhere\n")
    one = browse.Browser(RunFolder(log.parent.parent, "j", "n1"))
    assert one.take(b'{"id": 1, "find": [0, "out", 0, false, "here"]}') == []
    first = json.loads(one.turn()[0])
    head, text, end = one.take(b'{"id": 2, "read": [0, "out", 0, 3]}')

    assert (first["id"], first["at"], one.busy) == (1, 0, True)
    assert (json.loads(head)["id"], text) == (2, b"here\n")
    assert json.loads(end) == {"kind": "end", "id": 2, "o": log.stat().st_size}
    while one.busy:
        first = json.loads(b"".join(one.turn()) or json.dumps(first))
    assert (first["lines"], first["counted"]) == (2, first["end"])


@pytest.mark.parametrize(
    "line",
    [
        '{"id": 3, "find": [0, "out", 0, false, ""]}',
        '{"id": 3, "find": [0, "../out", 0, false, "x"]}',
        '{"id": 3, "find": [0, "out", 0, false, "(x"], "pattern": true}',
        '{"id": 3, "read": [0]}',
        '{"id": 3, "read": 7}',
        '{"id": 3, "read": [9, "out", 0, 1]}',
    ],
)
def test_a_question_without_sense_is_answered_by_a_sentence(log: Path, line: str) -> None:
    log.write_bytes(b"x\n")
    (said,) = browse.Browser(RunFolder(log.parent.parent, "j", "n1")).take(line.encode())

    assert (json.loads(said)["kind"], json.loads(said)["id"]) == ("no", 3)


def test_a_pattern_whose_time_grows_without_end_is_given_up(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_bytes(b"a" * 60 + b"!\n")
    monkeypatch.setattr(browse, "SLOWEST", 0.2)
    before = signal.signal(signal.SIGALRM, browse.too_slow)
    try:
        one = browse.Browser(RunFolder(log.parent.parent, "j", "n1"))
        asked = {"id": 4, "find": [0, "out", 0, False, "(a|aa)+$"], "pattern": True}
        assert one.take(json.dumps(asked).encode()) == []
        (said,) = one.turn()
    finally:
        signal.signal(signal.SIGALRM, before)

    assert (json.loads(said)["kind"], one.busy) == ("no", False)
    assert "takes too long" in json.loads(said)["text"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LOGS, st.integers(1, 100))
def test_parts_laid_end_to_end_are_the_whole_log(log: Path, lines: list[bytes], size: int) -> None:
    data = b"\n".join(lines)
    log.write_bytes(data)
    offset, whole = 0, b""
    while offset < len(data):
        pieces, end = browse.read_log_lines(log, offset, size)
        assert pieces[0].offset == offset
        whole += b"".join(piece.data for piece in pieces)
        offset = pieces[-1].offset + len(pieces[-1].data)
        assert end == len(data)

    assert whole == data


def test_a_part_begins_with_a_whole_line_and_knows_when_it_was_read(log: Path) -> None:
    log.write_bytes(b"first line\nsecond line\nthird line\n")
    log.with_name("out.idx").write_text("0 100.5\n23 200.5\n")
    pieces, end = browse.read_log_lines(log, -22, 100)

    assert end == 34
    assert [(p.offset, p.data, p.at) for p in pieces] == [(23, b"third line\n", 200.5)]


def test_a_log_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "j", "n1")

    with pytest.raises(FolderError, match="rank 7 has no 'out' on node n1"):
        browse.log_path(folder, 7, "out")
    with pytest.raises(FolderError, match="has no"):
        browse.log_path(folder, 0, "../../plan.json")


def test_a_line_that_is_read_in_part_matches_nothing_yet(log: Path) -> None:
    head = b"aaa\n" + b"." * (browse.BLOCK - 5) + b"\n"
    log.write_bytes(head + b"a" * 5000 + b"b\n" + b"aaa\n")
    one = browse.LogSearch(log, browse.RegexQuery("^a+$"))

    assert ask(one, 4, back=False).at == len(head) + 5002
    assert ask(one, len(head) + 5002, back=True).at == 0


def test_holes_are_looked_for_once_for_many_blocks(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_bytes(b"a line\n" * browse.BLOCK)
    looked: list[int] = []
    lseek = os.lseek
    monkeypatch.setattr(os, "lseek", lambda *asked: looked.append(asked[2]) or lseek(*asked))

    assert ask(browse.LogSearch(log, browse.TextQuery("zzz")), 0, back=False).lines == 0
    assert looked.count(os.SEEK_HOLE) == 1
