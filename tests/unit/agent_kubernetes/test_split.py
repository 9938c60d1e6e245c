"""Whose a line of a container's log is, in every launcher's format; and the place in a log."""

import pytest

from rankdeck_agent.schedulers.kubernetes.objects import (
    LogPiece,
    LogPosition,
    Splitter,
    split_time_stamp,
)


def pieces(*lines: bytes, form: str = "rankdeck", first: int = 0) -> list[tuple]:
    splitter = Splitter(form, first)
    return [(p.rank, p.what, p.text) for line in lines for p in splitter.feed(line)]


def texts(found: list[tuple]) -> dict:
    joined: dict = {}
    for rank, what, text in found:
        joined[rank, what] = joined.get((rank, what), b"") + text
    return joined


def test_the_shims_lines_have_rank_and_stream() -> None:
    found = pieces(
        b"[rank 3 start] node-a", b"[rank 3 out] a  b", b"[rank 3 err] ", b"[rank 3 exit] 7"
    )

    assert found == [
        (3, "start", b"node-a"),
        (3, "out", b"a  b\n"),
        (3, "err", b"\n"),
        (3, "exit", b"7"),
    ]


def test_what_no_rank_wrote_has_no_rank() -> None:
    assert pieces(b"mpirun noticed", b"") == [
        (None, "out", b"mpirun noticed\n"),
        (None, "out", b"\n"),
    ]


def test_parts_of_two_ranks_on_one_line_are_put_together_again() -> None:
    found = texts(pieces(b"[rank 0 out] par[rank 1 out] whole", b"tial", b"[rank 0 out] next"))

    assert found == {(0, "out"): b"partial\nnext\n", (1, "out"): b"whole\n"}


def test_a_mark_that_a_rank_prints_at_the_beginning_of_its_line_is_its_own_text() -> None:
    """As in a report that one rank gathers of all: the others did not write that."""
    assert texts(pieces(b"[1,0]<stdout>:[1,3]<stderr>: KeyError: 'x'", form="openmpi")) == {
        (0, "out"): b"[1,3]<stderr>: KeyError: 'x'\n"
    }
    assert pieces(b"[rank 0 out] [rank 3 exit] 1") == [(0, "out", b"[rank 3 exit] 1\n")]


def test_a_last_line_without_an_end_gets_one_before_the_next() -> None:
    found = texts(pieces(b"[rank 0 out] last[rank 0 exit] 0", b"mpirun: bye"))

    assert found[0, "out"] == b"last\n"
    assert found[None, "out"] == b"mpirun: bye\n"


def test_the_parts_that_are_open_can_be_taken_up_by_another_splitter() -> None:
    first = Splitter()
    first.feed(b"[rank 0 out] par[rank 1 out] whole")

    assert Splitter(parts=first.parts).feed(b"tial") == [LogPiece(0, "out", b"tial\n")]


@pytest.mark.parametrize(
    ("form", "line", "wanted"),
    [
        ("openmpi", b"[1,0]<stdout>:text", {(0, "out"): b"text\n"}),
        ("openmpi", b"[1,12]<stderr>: text", {(12, "err"): b"text\n"}),
        ("openmpi", b"[3]<stdout>: text", {(3, "out"): b"text\n"}),
        ("openmpi", b"[1,0][host:123]<stdout>: text", {(0, "out"): b"text\n"}),
        (
            "openmpi",
            b"[1,0]<stdout>:partial[1,1]<stdout>:out",
            {(0, "out"): b"partial", (1, "out"): b"out\n"},
        ),
        ("torchrun", b"[default1]:step 1", {(5, "out"): b"step 1\n"}),
    ],
)
def test_other_launchers_formats(form: str, line: bytes, wanted: dict) -> None:
    assert texts(pieces(line, form=form, first=4 if form == "torchrun" else 0)) == wanted


@pytest.mark.parametrize(
    ("line", "moment", "text"),
    [
        (b"2026-11-21T11:16:19.844772072Z a b", 1795259779_844772072, b"a b"),
        (b"2026-11-21T11:16:19.84Z a", 1795259779_840000000, b"a"),
        (b"2026-11-21T11:16:19Z ", 1795259779_000000000, b""),
        (b"2026-11-21T20:16:19.5+09:00 a", 1795259779_500000000, b"a"),
        (b"2026-13-41T11:16:19Z a", None, b"2026-13-41T11:16:19Z a"),
        (b"no stamp", None, b"no stamp"),
    ],
)
def test_a_stamp_is_read_to_the_nanosecond_in_any_zone(
    line: bytes, moment: int, text: bytes
) -> None:
    assert split_time_stamp(line) == (moment, text)


SECOND = 1795259779 * 10**9


def read(place: LogPosition, *moments: int) -> list[int]:
    return [moment for moment in moments if place.fresh(SECOND + moment)]


def test_a_log_that_is_read_again_from_its_last_second_gives_no_line_twice() -> None:
    place = LogPosition()
    lines = (5, 10, 10, 30)
    assert read(place, *lines) == list(lines)

    place.resume()

    assert place.since == "2026-11-21T11:16:19Z"
    assert read(place, *lines, 30, 40) == [30, 40]


def test_lines_out_of_order_and_lines_that_rotation_took_away_cost_nothing() -> None:
    place = LogPosition()
    read(place, 20, 10, 30)
    place.resume()

    assert read(place, 30, 15, 10**9 + 1) == [15, 10**9 + 1]
