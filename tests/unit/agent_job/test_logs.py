"""Reading logs back with their times."""

from rankdeck_agent.job.logs import LogReader, TailReader
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
