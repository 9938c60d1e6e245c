"""Reading logs back with their times."""

import contextlib
import os
import time

from rankdeck_agent.job.logs import LogReader, TailReader, terminal_stream
from rankdeck_agent.text import plain_line


def test_each_piece_has_the_time_at_which_it_was_read(tmp_path):
    (tmp_path / "out").write_bytes(b"aaabbbcc")
    (tmp_path / "out.idx").write_text("0 1.0\n3 2.0\nbroken\n6 3.0\n")
    pieces = [(p.offset, p.data, p.at) for p in LogReader(tmp_path / "out", 1).read(1000)]
    assert pieces == [(1, b"aa", 1.0), (3, b"bbb", 2.0), (6, b"cc", 3.0)]


def test_the_time_is_found_far_into_a_long_index(tmp_path):
    (tmp_path / "out").write_bytes(bytes(1_000_000))
    (tmp_path / "out.idx").write_text("".join(f"{i * 10} {i}.5\n" for i in range(100_000)))
    piece = next(LogReader(tmp_path / "out", 777_775).read(10))
    assert (piece.offset, len(piece.data), piece.at) == (777_775, 5, 77_777.5)


def test_a_log_without_an_index_is_still_read(tmp_path):
    (tmp_path / "out").write_bytes(b"abc")
    assert [p.data for p in LogReader(tmp_path / "out", 0).read(10)] == [b"abc"]


def test_a_tail_counts_lines_and_gives_the_last_that_is_not_empty(tmp_path):
    (tmp_path / "out").write_bytes(b"one\ntwo\r50%\r99%\n\n\x1b]0;x\x07\n")
    tail = TailReader(tmp_path / "out")
    assert tail.look(1 << 20)
    assert (tail.lines, tail.last) == (4, "]0;x")
    assert not tail.look(1 << 20)


def test_plain_text_holds_no_control_character():
    assert plain_line("a\x1b[2J\nb\x9bc") == "a [2J b c"


def _filled(handle: int, line: bytes) -> int:
    """Bytes that were written to a terminal until it took no more."""
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += os.write(handle, line * 64)
    return sent


def test_what_waits_in_a_terminal_is_copied_in_one_piece(tmp_path):
    # Linux gives 4,095 bytes in a read: a write for each of them costs more than the copy.
    stream, line = terminal_stream(tmp_path / "tty", tmp_path / "out"), b"a line of a rank\n"
    handle = os.open(tmp_path / "tty", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    sent, most = 0, 0
    deadline = time.monotonic() + 30
    while most <= 4095 and time.monotonic() < deadline:
        sent += _filled(handle, line)
        most = max(most, stream.pump())
    assert most > 4095

    while (tmp_path / "out").stat().st_size < sent and time.monotonic() < deadline:
        stream.drain(1)
    assert (tmp_path / "out").stat().st_size == sent
    os.close(handle)
