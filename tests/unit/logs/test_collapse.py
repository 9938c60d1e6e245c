"""Equal lines fold into rank sets; no line is lost and what is odd is found."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.logs.collapse import Collapse, fold_groups
from rankdeck.logs.line_templates import (
    TemplateCache,
    extract_numbers,
    fill_template,
    mask_numbers,
)
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.rank_output import Chunk
from rankdeck.state.lines import RankLog
from tests.unit.logs.feed import log_of, logs_of, write

LINES = st.lists(
    st.one_of(
        st.sampled_from(["ready", "step 1 loss 2.5", "step 2 loss 2.25", "done", ""]),
        st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp", "Cs"))),
    ),
    max_size=12,
)


def whole(logs: dict[int, RankLog]) -> Collapse:
    collapse = Collapse(logs)
    while collapse.update(7):
        pass
    return collapse


@given(st.binary())
def test_a_masked_line_can_be_filled_again(raw: bytes) -> None:
    raw = raw.replace(b"\0", b"").replace(b"\x1b", b"")
    assert fill_template(mask_numbers(raw), extract_numbers(raw)) == raw


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        (b"step   9 of 10", (b"  9", b"10")),  # all but one space before a number align a column
        (b"loss -2.5e-3, lr 1e-4", (b"-2.5e-3", b"1e-4")),
        (b"at 0x1F and 0xzz", (b"0x1F", b"0")),
        (b"5-3 -- 1.", (b"5", b"3", b"1")),
        (b"job-20261128-0514-1 at -3 (-2) a=-1", (b"20261128", b"0514", b"1", b"-3", b"-2", b"-1")),
    ],
)
def test_numbers_are_read_whole(line: bytes, numbers: tuple[bytes, ...]) -> None:
    assert extract_numbers(line) == numbers
    assert mask_numbers(line).count(b"\0") == len(numbers)


PARTS = st.sampled_from(
    [
        "0x1f",
        "2x1f",
        "10X",
        "7",
        "0",
        "9.25e-3",
        "-4",
        "a-1",
        "  12",
        " ",
        "x",
        "\x1b[31m",
        "é",
        "=",
        ".",
    ]
)
ROWS = st.lists(st.lists(PARTS, max_size=6).map(lambda row: "".join(row).encode()), max_size=9)


@given(st.lists(ROWS, max_size=4))
def test_templates_of_lines_that_came_before_are_those_of_the_lines_alone(
    batches: list[list[bytes]],
) -> None:
    cache = TemplateCache()

    for lines in batches:
        assert cache.of(lines) == [mask_numbers(line) for line in lines]


@given(st.dictionaries(st.integers(0, 20), LINES, max_size=8))
def test_every_line_of_every_rank_is_in_exactly_one_group(
    texts: dict[int, list[str]],
) -> None:
    collapse = whole(logs_of(texts))

    for rank, lines in texts.items():
        wanted = Counter(mask_numbers(line.encode()) for line in lines)
        found = {g.template: g.counts[rank] for g in collapse.groups if rank in g.counts}
        assert found == dict(wanted)
    assert collapse.total == sum(map(len, texts.values()))


@given(st.dictionaries(st.integers(0, 9), LINES, max_size=5), LINES)
def test_lines_that_come_later_give_the_same_as_all_at_once(
    texts: dict[int, list[str]], more: list[str]
) -> None:
    texts[3] = texts.get(3, [])
    logs = logs_of(texts)
    collapse = whole(logs)
    write(logs[3], [(99.0, text) for text in more])
    while collapse.update(3):
        pass

    at_once = whole(logs_of({**texts, 3: texts[3] + more}))
    assert {(g.template, tuple(sorted(g.counts.items()))) for g in collapse.groups} == {
        (g.template, tuple(sorted(g.counts.items()))) for g in at_once.groups
    }


def test_a_rank_that_is_read_again_from_the_start_is_counted_once() -> None:
    logs = {0: RankLog(0), 1: log_of(1, [(1.0, "a"), (1.0, "b")])}
    logs[0].add(Chunk("j", "n1", 0, "out", 2, 1.0, b"b\n"))
    collapse = whole(logs)
    assert logs[0].read.resume(None)
    write(logs[0], [(1.0, "a"), (2.0, "b"), (3.0, "c")])
    while collapse.update():
        pass

    assert {g.template: dict(g.counts) for g in collapse.groups} == {
        b"a": {0: 1, 1: 1},
        b"b": {0: 1, 1: 1},
        b"c": {0: 1},
    }


def test_numbers_that_differ_are_shown_as_a_range() -> None:
    collapse = whole(logs_of({r: [f"step 7 loss {r}.5"] for r in range(4)}))

    assert collapse.groups[0].text() == b"step 7 loss 0.5..3.5"


def test_streams_are_kept_apart() -> None:
    log = log_of(0, [(1.0, "same")])
    write(log, [(2.0, "same")], "err")

    assert [g.stream for g in whole({0: log}).groups] == ["out", "err"]


def test_lines_that_the_ring_let_go_of_before_they_were_read_are_counted() -> None:
    log = RankLog(0, keep=10)
    collapse = Collapse({0: log})
    write(log, [(1.0, f"line {n}") for n in range(25)])
    while collapse.update():
        pass

    assert (collapse.skipped, collapse.total) == (15, 10)


# ---- 512 ranks


def hang() -> dict[int, RankLog]:
    """Rank 17 dies in the data loader; a switch with ranks 96-103
    is cut off; two ranks are slow.
    """
    texts: dict[int, list[str]] = {}
    for rank in range(512):
        speed = 4000 if rank in (88, 203) else 11_800 + rank % 7
        lines = [f"NCCL INFO Bootstrap: rank {rank}", "model built in 3.1 s"]
        lines += [f"step {n} loss 2.{n:03} {speed} tok/s" for n in range(36)]
        if rank == 17:
            lines += [
                "Traceback (most recent call last):",
                "OSError: [Errno 5] shard-0412",
            ]
        elif not 96 <= rank <= 103:
            lines += ["Watchdog caught collective operation timeout: SeqNum=18237"]
        texts[rank] = lines
    return logs_of(texts)


@pytest.mark.long
def test_the_answer_of_a_hang_on_512_ranks_stands_on_top() -> None:
    rows = fold_groups(whole(hang()))

    assert [fold_ranks(row.group.counts) for row in rows[:2]] == ["17", "17"]
    assert rows[0].group.text() == b"Traceback (most recent call last):"
    watchdog = next(row for row in rows if b"Watchdog" in row.group.template)
    assert fold_ranks(watchdog.missing) == "17,96-103"
    assert rows.index(watchdog) == 2
    steps = next(row for row in rows if b"tok/s" in row.group.template)
    assert {one.rank for one in steps.outliers} == {88, 203}
    assert steps.outliers[0].value == 4000
    assert rows.index(steps) == 3


def test_of_a_failure_on_512_ranks_the_rank_that_differs_stands_on_top() -> None:
    texts = {
        rank: [f"rank {rank} of 512", "epoch 0"]
        + (["CUDA error: uncorrectable ECC error encountered"] if rank == 301 else [])
        + ([] if rank == 301 else ["NCCL WARN remote process exited"])
        for rank in range(512)
    }
    rows = fold_groups(whole(logs_of(texts)))

    assert rows[0].group.text() == b"CUDA error: uncorrectable ECC error encountered"
    assert tuple(rows[0].group.counts) == (301,)
    assert rows[1].missing == (301,)


def test_a_rank_that_says_nothing_is_named() -> None:
    texts: dict[int, list[str]] = {rank: ["hello"] for rank in range(8)}
    texts[5] = []

    assert whole(logs_of(texts)).silent() == (5,)


def test_a_stuck_step_is_unlike_the_others() -> None:
    texts = {r: [f"step {18237 if r == 3 else 18300 + r % 2} done"] for r in range(16)}

    (row,) = fold_groups(whole(logs_of(texts)))
    assert [one.rank for one in row.outliers] == [3]


def test_ranks_that_run_alike_have_no_outliers() -> None:
    texts = {r: [f"rank {r} pid {9000 + 13 * r} loss 2.{300 + r}"] for r in range(512)}

    (row,) = fold_groups(whole(logs_of(texts)))
    assert row.outliers == ()
    assert not row.unusual
