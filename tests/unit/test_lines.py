"""Line assembly from chunks: once each, whatever the cuts, gaps and control codes."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.model.rank_output import Chunk, Tail
from rankdeck.model.safe_text import strip_controls
from rankdeck.state.kept_lines import Block
from rankdeck.state.lines import SHOWN, RankLog, line_memory_share, line_of


def chunk(offset: int, data: bytes, stream: str = "out", at: float = 1.0) -> Chunk:
    return Chunk("j", "n1", 0, stream, offset, at, data)


def texts(log: RankLog) -> list[str]:
    return [line.text for line in log.lines]


def test_lines_are_put_together_from_pieces() -> None:
    log = RankLog(0)
    log.add(chunk(0, b"he"))
    log.add(chunk(2, b"llo\nwor"))

    assert texts(log) == ["hello"]
    assert log.partial is not None
    assert (log.partial.text, log.partial.offset) == ("wor", 6)


def test_an_overlap_is_dropped() -> None:
    log = RankLog(0)
    log.add(chunk(0, b"one\ntwo\n"))
    log.add(chunk(4, b"two\nthree\n"))
    log.add(chunk(0, b"one\n"))

    assert texts(log) == ["one", "two", "three"]
    assert log.gaps == ()


def test_a_gap_is_recorded_and_the_cut_line_ends() -> None:
    log = RankLog(0)
    log.add(chunk(0, b"one\ntw"))
    log.add(chunk(100, b"end\n"))

    assert texts(log) == ["one", "tw", "end"]
    assert [(gap.start, gap.end, gap.before) for gap in log.gaps] == [(6, 100, 2)]


@given(
    st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\r", b"", b"\xff"]), max_size=30),
    st.lists(st.integers(1, 7), min_size=1, max_size=40),
)
def test_the_cuts_do_not_matter(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    whole, pieces = RankLog(0), RankLog(0)
    whole.add(chunk(0, data))
    offset, i = 0, 0
    while offset < len(data):
        size = cuts[i % len(cuts)]
        pieces.add(chunk(offset, data[offset : offset + size]))
        offset, i = offset + size, i + 1

    assert [(x.offset, x.text) for x in whole.lines] == [(x.offset, x.text) for x in pieces.lines]
    assert (whole.partial and whole.partial.text) == (pieces.partial and pieces.partial.text)
    for line in whole.lines:
        raw = data[line.offset :].partition(b"\n")[0]
        # Of a line that was rewritten, a terminal shows what was written last.
        newest = raw.rstrip(b"\r").rpartition(b"\r")[2]
        assert line.text == newest.decode("utf-8", "replace")


def test_a_progress_bar_is_one_live_line_until_it_ends() -> None:
    log = RankLog(0)
    log.add(chunk(0, b"start\n  5%|#"))
    assert (texts(log), log.bar) == (["start"], None)
    seen: list[str] = []
    for step in (b"\r 10%|##", b"\r 20%|####\r", b" 30%|######"):
        log.add(chunk(log.read.at()["out"], step))
        assert log.bar is not None
        assert log.bar == log.partial
        seen.append(log.bar.text)
    assert seen == [" 10%|##", " 20%|####", " 30%|######"]
    assert texts(log) == ["start"]

    log.add(chunk(log.read.at()["out"], b"\r100%|########\r\ndone\n"))

    assert texts(log) == ["start", "100%|########", "done"]
    assert (log.partial, log.bar) == (None, None)
    assert [line.offset for line in log.lines][1] == 6, "where the line begins on the node"


def test_a_bar_that_its_program_wipes_leaves_no_line() -> None:
    log = RankLog(0)
    log.add(chunk(0, b" 50%\r    \rresult 7\n"))

    assert texts(log) == ["result 7"]


def test_a_bar_of_hours_needs_no_memory() -> None:
    log = RankLog(0)
    for step in range(20_000):
        log.add(chunk(log.read.at()["out"], b"\r%6d of 20000" % step))

    assert log.total == 0
    assert log.partial is not None
    assert log.partial.text == " 19999 of 20000"


def test_out_and_err_do_not_mix_in_one_line() -> None:
    log = RankLog(0)
    log.add(chunk(0, b"half"))
    log.add(chunk(0, b"oops\n", "err"))
    log.add(chunk(4, b" line\n"))

    assert [(x.stream, x.text) for x in log.lines] == [
        ("err", "oops"),
        ("out", "half line"),
    ]


@given(
    st.lists(st.sampled_from([b"", b"a", b"bc", b"\xff", b"\tx"]), min_size=17, max_size=40),
    st.sampled_from([b"", b"open"]),
    st.lists(st.integers(1, 7), min_size=1, max_size=9),
    st.integers(1, 17),
)
def test_many_lines_at_once_are_the_same_as_a_few_at_a_time(
    lines: list[bytes], rest: bytes, cuts: list[int], keep: int
) -> None:
    data = b"begun" + b"\n".join(lines) + b"\n" + rest
    whole, pieces = RankLog(0), RankLog(0)
    for log in (whole, pieces):
        log.add(chunk(0, data[:3]))
    whole.add(chunk(3, data[3:]))
    offset = 3
    for cut in cuts * len(data):
        pieces.add(chunk(offset, data[offset : offset + cut]))
        offset += cut

    missed, unread = whole.unread(whole.total - keep)
    newest = whole.newest(keep)
    assert missed == 0
    assert (whole.held, whole.total, whole.counts) == (pieces.held, pieces.total, pieces.counts)
    assert whole.partial == pieces.partial
    read = [
        entry for one in unread for entry in (one.entries() if isinstance(one, Block) else [one])
    ]
    assert [line_of(0, entry) for entry in read] == [*pieces.lines[-keep:]]
    assert [*newest] == [*pieces.lines[-keep:]]
    assert [*whole.lines] == [*pieces.lines]


@given(
    st.lists(st.sampled_from([b"", b"a", b"bc", b"\xff" * 50_000]), min_size=1, max_size=9),
    st.data(),
)
def test_a_part_of_a_block_is_a_block(lines: list[bytes], data: st.DataObject) -> None:
    block = Block(1.0, "out", 7, b"".join(line + b"\n" for line in lines), len(lines))
    begin = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(begin + 1, len(lines)))

    part = block.part(begin, end)

    assert [*part.entries()] == [*block.entries()][begin:end]
    assert part.lines == end - begin
    assert part.raws() == [raw for _, _, _, raw in part.entries()]


def test_a_flood_that_nobody_reads_is_not_split_and_stays_within_its_limits() -> None:
    log = RankLog(0, keep=1000)
    for turn in range(50):
        text = b"".join(b"%d\n" % (turn * 300 + n) for n in range(300))
        log.add(chunk(log.read.at()["out"], text))
        log.add(chunk(log.read.at()["err"], b"%d\n" % turn, "err"))

    missed, unread = log.unread(log.total - 602)
    assert (missed, sum(isinstance(one, Block) for one in unread)) == (0, 4)
    assert 1000 <= log.held <= 1301
    assert log.unread(0)[0] == log.total - log.held
    assert log.last == "49"
    assert log.unread(log.total - 602)[1] == unread
    assert (len(log.lines), log.first) == (1000, log.total - 1000)
    assert texts(log)[-3:] == ["14998", "14999", "49"]


def test_the_ring_is_bounded_and_counts_go_on() -> None:
    log = RankLog(0, keep=10)
    for i in range(100):
        log.add(chunk(log.read.at()["out"], b"%d\n" % i))

    assert (len(log.lines), log.total, log.first) == (10, 100, 90)
    assert log.lines[0].text == "90"
    assert [line.text for line in log.lines[-2:]] == ["98", "99"]


def test_memory_is_bounded_by_bytes_too() -> None:
    log = RankLog(0, keep_bytes=5000)
    for at in range(0, 5000, 100):
        log.add(chunk(at, b"x" * 99 + b"\n"))

    assert 10 < len(log.lines) < 25


@pytest.mark.long
def test_a_large_chunk_is_kept_until_the_next_and_512_ranks_stay_in_their_share() -> None:
    tracemalloc.start()
    logs = [RankLog(rank, keep_bytes=line_memory_share(512)) for rank in range(512)]
    for turn in range(12):
        text = "".join(f"step {turn * 60 + n} loss 2.5 tok/s\n" for n in range(60))
        for log in logs:
            log.add(chunk(log.read.at()["out"], text.encode()))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    big = RankLog(0, keep_bytes=1000)
    big.add(chunk(0, b"x\n" * 5000))

    assert used < 64 << 20
    assert 300 < len(logs[0].lines) < 12 * 60
    assert len(big.lines) == 5000


def test_an_endless_line_is_cut_for_display_and_its_offset_stays_true() -> None:
    log = RankLog(0)
    for i in range(20):
        log.add(chunk(i * 10_000, b"x" * 10_000))
    log.add(chunk(200_000, b"\nnext\n"))

    assert (len(log.lines[0].text), log.lines[0].cut) == (SHOWN + 1, True)
    assert (log.lines[1].text, log.lines[1].offset, log.lines[1].cut) == ("next", 200_001, False)


def test_a_line_that_has_no_end_yet_and_one_full_of_colours_say_that_they_were_cut() -> None:
    log = RankLog(0)
    log.add(chunk(0, b"x" * (SHOWN + 1)))
    coloured = b"\x1b[31mr\x1b[0m" * SHOWN
    other = RankLog(1)
    other.add(chunk(0, coloured + b"\n"))
    whole = RankLog(2)
    whole.add(chunk(0, b"x" * SHOWN + b"\n"))

    assert log.partial is not None
    assert (log.partial.cut, other.lines[0].cut, whole.lines[0].cut) == (True, True, False)


def test_control_codes_go_and_colours_stay() -> None:
    log = RankLog(0)
    log.add(
        chunk(
            0,
            b"\x1b[31mred\x1b[0m\x1b[2J\x1b]0;title\x07\x1b]52;c;aGk=\x1b\\ \x9b31m\x07\x00ok\tx\x1b[6n\n",
        )
    )

    assert log.lines[0].text == "\x1b[31mred\x1b[0m \ufffd31mok\tx"
    assert strip_controls("\x1b[31mred\x1b[0m\x9b2J\u202eabc") == "red2Jabc"


@given(st.text())
def test_cleaned_text_has_no_control_codes(text: str) -> None:
    assert not any(
        (ord(c) < 32 and c != "\t") or 0x7F <= ord(c) < 0xA0 for c in strip_controls(text)
    )


@given(st.text(alphabet="\x1b[]P^_;01m\x07\\Jaz\x9b"))
def test_only_whole_colour_codes_survive(text: str) -> None:
    import re

    left = re.sub(r"\x1b\[[0-9;:]*m", "", strip_controls(text, colour=True))

    assert "\x1b" not in left


def test_a_tail_tells_what_is_not_fetched() -> None:
    log = RankLog(0)
    log.tell(Tail("j", "n1", 0, "out", 5000, 70, "\x1b[2Jlatest", 9.0))

    assert (log.last, log.counts["out"], log.heard) == ("latest", 70, 9.0)
    assert log.read.at() == {"out": 0, "err": 0}


def test_resuming_skips_what_is_beyond_the_backlog() -> None:
    log = RankLog(0)
    log.tell(Tail("j", "n1", 0, "out", 5000, 70, "x", 9.0))

    assert log.read.resume(1000)
    assert log.read.wanted() == {"out": -1000, "err": -1000}
    log.add(chunk(4500, b"end\n"))
    assert [(gap.start, gap.end) for gap in log.gaps] == [(0, 4500)]


def test_asking_for_everything_reads_again_from_the_start() -> None:
    log = RankLog(0)
    log.tell(Tail("j", "n1", 0, "out", 5000, 70, "x", 9.0))
    log.read.resume(1000)
    log.add(chunk(4000, b"end\n"))

    assert log.read.resume(None)
    assert log.read.wanted() == {"out": 0, "err": 0}
    assert log.add(chunk(4004, b"still under way\n")) is None
    assert texts(log) == ["end"]
    log.add(chunk(0, b"one\n"))
    log.add(chunk(4, b"two\n"))

    assert texts(log) == ["one", "two"]
    assert log.gaps == ()


def test_resuming_twice_changes_nothing() -> None:
    log = RankLog(0)
    log.add(chunk(0, b"one\ntwo"))

    assert [log.read.resume(1000), log.read.resume(1000)] == [True, False]
    assert log.read.wanted() == {"out": 7, "err": -1000}
    log.read.resume(None)
    assert log.read.wanted() == {"out": 7, "err": 0}


def test_bad_chunks_are_ignored() -> None:
    log = RankLog(0)
    log.add(chunk(0, b"x", stream="etc"))
    log.add(chunk(-5, b"x"))

    assert len(log.lines) == 0


def test_a_rank_whose_output_is_behind_was_heard_when_it_last_wrote() -> None:
    log = RankLog(0)
    log.add(chunk(0, b"one\n", at=10.0))
    log.tell(Tail("j", "n1", 0, "out", 1000, 250, "newest", 50.0))
    log.add(chunk(4, b"two\n", at=11.0))

    assert (log.heard, log.last) == (50.0, "newest")
    log.add(chunk(8, bytes(991) + b"\n", at=50.0))
    assert log.last == ""


def test_a_rank_that_writes_again_after_a_long_pause_has_resumed() -> None:
    log = RankLog(0)
    for at, text in ((1.0, b"a\n"), (3.0, b"b\n"), (30.0, b"c\n"), (32.0, b"d\n")):
        log.add(Chunk("j", "n1", 0, "out", log.read.at()["out"], at, text))

    assert (log.heard, log.resumed) == (32.0, 30.0)


def test_a_log_that_lacks_the_newest_output_says_by_how_much_it_is_late() -> None:
    log = RankLog(0)
    assert log.late_by == 0
    log.add(Chunk("j", "n1", 0, "out", 0, 100.0, b"one\n"))
    assert log.late_by == 0
    log.tell(Tail("j", "n1", 0, "out", 5000, 70, "x", 118.0))
    assert log.late_by == 18
    log.add(Chunk("j", "n1", 0, "out", 4, 116.0, b"two\n"))
    assert log.late_by == 2
    log.add(Chunk("j", "n1", 0, "out", 8, 118.0, b"." * 4991 + b"\n"))
    assert log.late_by == 0


def test_the_newest_lines_are_the_same_however_they_are_kept() -> None:
    log, offset = RankLog(0), 0
    for word, lines in (("one", 3), ("two", 40), ("three", 50)):  # few lines are split at once
        data = "".join(f"{word} {n}\n" for n in range(lines)).encode()
        log.add(chunk(offset, data))
        offset += len(data)
    counts = (0, 1, 50, 51, 90, 92, 93, 200)
    found = [log.newest(count) for count in counts]

    whole = tuple(log.lines)  # splits all
    assert len(whole) == 93
    assert found == [whole[max(len(whole) - count, 0) :] for count in counts]
    assert log.newest(60) == whole[-60:]
