"""Merged logs: by time, each rank in its own order, nothing lost, equal lines once."""

from hypothesis import given
from hypothesis import strategies as st

from rankdeck.logs.line_filter import LineFilter
from rankdeck.logs.merged_log import EVENT, GAP, NODE, MergedLine, MergedLog
from rankdeck.model.health import Occurrence
from rankdeck.state.lines import Line
from rankdeck.ui.widgets.logview import LogView
from rankdeck_agent.rules.levels import Level
from tests.unit.logs.feed import log_of, write

TIMED = st.lists(
    st.tuples(st.floats(0, 10), st.sampled_from(["a", "b", "c", "step 1"])), max_size=10
)
RANKS = st.dictionaries(st.integers(0, 5), TIMED, max_size=5)


def told(merged: MergedLog) -> dict[int, list[str]]:
    """What each rank wrote, read back from the merged log."""
    found: dict[int, list[str]] = {}
    for line in merged.lines:
        for rank, times in (line.counts or {line.rank: 1}).items():
            found.setdefault(rank, []).extend([line.text] * times)
    return found


@given(RANKS, RANKS, st.booleans())
def test_nothing_is_lost_and_every_rank_keeps_its_order(
    begin: dict[int, list[tuple[float, str]]],
    later: dict[int, list[tuple[float, str]]],
    fold: bool,
) -> None:
    logs = {rank: log_of(rank, begin.get(rank, [])) for rank in {*begin, *later}}
    merged = MergedLog(logs, fold=fold)
    merged.update()
    for rank, lines in later.items():
        write(logs[rank], lines)
    merged.update()

    for rank, log in logs.items():
        assert told(merged).get(rank, []) == [line.text for line in log.lines]


@given(RANKS)
def test_lines_stand_in_the_order_of_time(
    begin: dict[int, list[tuple[float, str]]],
) -> None:
    logs = {rank: log_of(rank, sorted(lines)) for rank, lines in begin.items()}
    merged = MergedLog(logs, fold=False)
    merged.update()

    times = [line.at for line in merged.lines]
    assert times == sorted(times)


ROUNDS = st.lists(
    st.tuples(
        st.sampled_from(["all", "a", "step", "stderr"]),
        st.sampled_from(["", "b"]),
        st.sampled_from(["", "out", "err"]),
        st.dictionaries(st.integers(0, 5), TIMED, max_size=3),
        st.integers(-40, 40),
    ),
    max_size=6,
)


@given(RANKS, ROUNDS, st.booleans(), st.integers(5, 40))
def test_every_line_shown_or_saved_names_who_wrote_it_however_one_filters_and_scrolls(
    begin: dict[int, list[tuple[float, str]]],
    rounds: list[tuple[str, str, str, dict[int, list[tuple[float, str]]], int]],
    fold: bool,
    keep: int,
) -> None:
    logs = {rank: log_of(rank, begin.get(rank, [])) for rank in range(6)}
    merged, view = MergedLog(logs, fold=fold, keep=keep), LogView()
    view.open(merged, lambda line: (f"{who_wrote(line)}|", "text"))
    for within, without, stream, more, steps in rounds:
        for rank, lines in more.items():
            write(logs[rank], lines, "err" if rank % 2 else "out")
        while merged.update():
            pass
        view.want(
            LineFilter(
                (within,) if within != "all" else (), (without,) if without else (), stream=stream
            )
        )
        view.move(steps)
        while view.busy:
            view.work()

        wanted = [
            f"{who_wrote(line)}|{line.text}"
            for line in merged.lines
            if (within == "all" or within in line.text)
            and not (without and without in line.text)
            and stream in ("", line.stream)
        ]
        assert view.texts() == wanted
        assert view.new_lines >= 0


def who_wrote(line: Line) -> dict[int, int]:
    counts = line.counts if isinstance(line, MergedLine) else {}
    return dict(counts) or {line.rank: 1}


def test_equal_lines_of_many_ranks_become_one() -> None:
    logs = {r: log_of(r, [(1.0, "ready"), (1.1, "go")]) for r in range(503)}
    merged = MergedLog(logs)
    merged.update()

    assert [line.text for line in merged.lines] == ["ready", "go"]
    assert len(merged.lines[0].counts) == 503


def test_equal_lines_far_apart_in_time_stay_two() -> None:
    merged = MergedLog({0: log_of(0, [(1.0, "beat")]), 1: log_of(1, [(9.0, "beat")])})
    merged.update()

    assert [line.rank for line in merged.lines] == [0, 1]


def test_what_a_node_says_stands_between_the_lines_once() -> None:
    xid = Occurrence(2.5, "n1", "event", Level.BAD, "gpu.xid", "0", "Xid 79: fell off the bus")
    merged = MergedLog({0: log_of(0, [(1.0, "a"), (4.0, "b")])}, lambda: [xid])
    merged.update()
    merged.update()

    assert [(line.rank, line.text) for line in merged.lines] == [
        (0, "a"),
        (EVENT, "n1: GPU 0: Xid 79: fell off the bus"),
        (0, "b"),
    ]
    assert merged.lines[1].stream == NODE


def test_lines_that_came_too_fast_leave_a_mark() -> None:
    log = log_of(0, [])
    merged = MergedLog({0: log}, keep=4_000, fold=False)
    write(log, [(1.0, f"line {n}") for n in range(9_999)])
    while merged.update():
        pass

    assert merged.lines[0].stream == GAP
    assert merged.lines[0].text.startswith("6,000 lines arrived faster")
    assert [line.text for line in merged.lines[1:]] == [f"line {n}" for n in range(6_000, 9_999)]


def test_lines_are_taken_in_by_and_by_and_none_is_left_out() -> None:
    logs = {rank: log_of(rank, []) for rank in range(4)}
    merged = MergedLog(logs, fold=False)
    for rank, log in logs.items():
        write(log, [(n + rank / 10, f"{rank} {n}") for n in range(3_000)])
    turns = 1
    while merged.update(100):
        turns += 1
        assert len(merged.lines) == 100 * (turns - 1)

    assert turns == 120
    assert [line.text for line in merged.lines] == [
        f"{r} {n}" for n in range(3_000) for r in range(4)
    ]
