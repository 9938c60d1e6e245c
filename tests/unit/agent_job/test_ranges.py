"""Parts of a log read and searched by offset: the same answers as reading all of it."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankdeck_agent.job import ranges
from rankdeck_agent.job.folder import FolderError, RunFolder

LOGS = st.lists(
    st.sampled_from([b"", b"alpha", b"ERROR one", b"error two", b"x" * 30]), max_size=30
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "rank.0").mkdir()
    return tmp_path / "rank.0" / "out"


def starts(data: bytes, needle: bytes, *, lower: bool) -> list[int]:
    """Where the lines with the text begin."""
    found: list[int] = []
    at = 0
    for line in data.split(b"\n"):
        if needle in (line.lower() if lower else line):
            found.append(at)
        at += len(line) + 1
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    LOGS, st.integers(0, 400), st.sampled_from(["error", "ERROR"]), st.integers(40, 64)
)
def test_a_text_is_found_where_it_is(
    log: Path, lines: list[bytes], offset: int, text: str, block: int
) -> None:
    data = b"\n".join(lines)
    log.write_bytes(data)
    hits = starts(data, text.encode(), lower=text == "error")
    here = data.rfind(b"\n", 0, offset) + 1 if offset <= len(data) else len(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_BLOCK", block)
        after = ranges.find(log, text, here, back=False)
        before = ranges.find(log, text, here, back=True)

    assert after["at"] == next((at for at in hits if at >= here), None)
    assert before["at"] == next((at for at in reversed(hits) if at < here), None)
    for found in (after, before):
        assert (found["count"], found["whole"]) == (len(hits), True)
        if found["at"] is not None:
            assert found["before"] == hits.index(found["at"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(LOGS, st.integers(1, 100))
def test_parts_laid_end_to_end_are_the_whole_log(
    log: Path, lines: list[bytes], size: int
) -> None:
    data = b"\n".join(lines)
    log.write_bytes(data)
    offset, whole = 0, b""
    while offset < len(data):
        pieces, end = ranges.read(log, offset, size)
        assert pieces[0].offset == offset
        whole += b"".join(piece.data for piece in pieces)
        offset = pieces[-1].offset + len(pieces[-1].data)
        assert end == len(data)

    assert whole == data


def test_a_part_begins_with_a_whole_line_and_knows_when_it_was_read(log: Path) -> None:
    log.write_bytes(b"first line\nsecond line\nthird line\n")
    log.with_name("out.idx").write_text("0 100.5\n23 200.5\n")
    pieces, end = ranges.read(log, -22, 100)

    assert end == 34
    assert [(p.offset, p.data, p.at) for p in pieces] == [(23, b"third line\n", 200.5)]


def test_a_log_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "j", "n1")

    with pytest.raises(FolderError, match="rank 7 has no 'out' on node n1"):
        ranges.log_path(folder, 7, "out")
    with pytest.raises(FolderError, match="has no"):
        ranges.log_path(folder, 0, "../../plan.json")
