"""Filters: in, out, context, and lines that come later."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.logs.goal import Goal, goal_of
from rankdeck.logs.line_filter import Filtered, LineFilter
from rankdeck.logs.search import Search, pick_troubles
from rankdeck.state.lines import RankLog
from tests.unit.logs.feed import log_of, write

WORDS = st.lists(st.sampled_from(["alpha", "beta", "alpha beta", "gamma"]), max_size=20)


def kept(filtered: Filtered) -> list[str]:
    filtered.update()
    return [line.text for line in filtered.lines]


def test_lines_are_kept_that_have_all_texts_and_none_of_the_others() -> None:
    log = log_of(0, [(1.0, "alpha"), (2.0, "alpha beta"), (3.0, "gamma")])

    assert kept(Filtered(log, LineFilter(("alpha",)))) == ["alpha", "alpha beta"]
    assert kept(Filtered(log, LineFilter(("alpha",), ("beta",)))) == ["alpha"]
    assert kept(Filtered(log, LineFilter((), ("alpha",)))) == ["gamma"]


def test_capitals_make_it_exact() -> None:
    log = log_of(0, [(1.0, "Error"), (2.0, "error")])

    assert kept(Filtered(log, LineFilter(("error",)))) == ["Error", "error"]
    assert kept(Filtered(log, LineFilter(("Error",)))) == ["Error"]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("loss=[0-9.]+", ["step 7 loss=0.25", "step 8 LOSS=1"]),
        ("loss=(", ["broken loss=( here"]),
        ("Loss=.*", []),
        (r"step \d+ LOSS", ["step 8 LOSS=1"]),
        (r"\S LOSS", ["step 8 LOSS=1"]),
        (r"\S loss", ["step 7 loss=0.25", "step 8 LOSS=1", "broken loss=( here"]),
        ("naïve$|^broken", ["broken loss=( here", "a naïve"]),
    ],
)
def test_a_text_with_signs_of_a_pattern_is_one_unless_it_cannot_be(
    text: str, fits: list[str]
) -> None:
    lines = ["step 7 loss=0.25", "step 8 LOSS=1", "broken loss=( here", "a naïve"]
    log = log_of(0, [(1.0, line) for line in lines])

    assert kept(Filtered(log, LineFilter((text,)))) == fits


def test_what_a_pattern_matched_is_told_in_characters() -> None:
    assert Search("ï[a-z]+|x*").spans("a naïve ïb") == [(4, 7), (8, 10)]
    assert Search("(a+)+$").spans("a" * 5_000 + "!") == []


@given(WORDS, WORDS, st.integers(0, 3))
def test_later_lines_give_the_same_as_all_at_once(
    first: list[str], later: list[str], around: int
) -> None:
    wanted = LineFilter(("alpha",), ("beta",), around)
    log = log_of(0, [(1.0, text) for text in first])
    filtered = Filtered(log, wanted)
    filtered.update()
    write(log, [(2.0, text) for text in later])

    assert kept(filtered) == kept(Filtered(log, wanted))


@given(WORDS, st.integers(0, 3))
def test_context_is_what_stands_near_a_match(texts: list[str], around: int) -> None:
    log = log_of(0, [(1.0, text) for text in texts])
    hits = [n for n, text in enumerate(texts) if "gamma" in text]
    near = [n for n in range(len(texts)) if any(abs(n - h) <= around for h in hits)]

    assert kept(Filtered(log, LineFilter(("gamma",), (), around))) == [texts[n] for n in near]


def test_lines_that_the_ring_lets_go_leave_the_filter_too() -> None:
    log = RankLog(0, keep=5)
    filtered = Filtered(log, LineFilter(("line",)))
    write(log, [(1.0, f"line {n}") for n in range(5)])
    assert len(kept(filtered)) == 5
    write(log, [(1.0, "line 5"), (1.0, "line 6")])

    assert kept(filtered) == [f"line {n}" for n in range(2, 7)]
    assert filtered.first == 2
    assert filtered.number(2) == 2


def test_colours_do_not_hide_a_match() -> None:
    log = log_of(0, [(1.0, "\x1b[31mER\x1b[0mROR")])
    search = Search("ERROR")
    search.update(log)

    assert search.count(None) == "1"


def test_troubles_are_named_once_each() -> None:
    texts = ["fine", "ERROR 1", "ERROR 2", "Traceback (most recent call last):", "ok"]
    log = log_of(0, [(1.0, text) for text in texts])

    found = pick_troubles()
    found.update(log)
    assert found.matches == (1, 3)


def test_a_long_log_is_looked_at_in_slices_with_the_same_answer() -> None:
    texts = [f"line {n} {'error' if n % 7 == 0 else ''}" for n in range(100)]
    log = log_of(0, [(1.0, text) for text in texts])
    found, filtered = Search("error"), Filtered(log, LineFilter(("error",), (), 1))
    seen: list[int] = []
    while found.behind(log) or filtered.behind:
        found.update(log, 9)
        filtered.update(9)
        seen.append(len(found.matches))

    assert len(seen) == 12
    assert found.matches == tuple(range(0, 100, 7))
    whole = Filtered(log, LineFilter(("error",), (), 1))
    whole.update()
    assert filtered.lines == whole.lines


DAY = datetime(2026, 11, 23, 14, 0, 0).timestamp()


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("1200", Goal(line=1200)),
        ("50%", Goal(share=0.5)),
        ("250%", Goal(share=1.0)),
        ("13:59:30", Goal(at=DAY - 30)),
        ("9:30", Goal(at=DAY - 4.5 * 3600)),
        ("14:00:01", Goal(at=DAY + 1 - 86400)),
        ("2026-11-22 14:00:00", Goal(at=DAY - 86400)),
        ("-5m", Goal(at=DAY - 300)),
        (" -2h ", Goal(at=DAY - 7200)),
    ],
)
def test_where_to_go_is_a_line_a_time_or_a_share(text: str, goal: Goal) -> None:
    assert goal_of(text, DAY) == goal


@pytest.mark.parametrize(
    "text", ["", "soon", "25:99", "-", "%", "1e400%x", "-9e999d", "9999999-1-1 1:1"]
)
def test_what_is_no_place_in_a_log_is_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"not understood|write a line"):
        goal_of(text, DAY)


def test_a_line_beyond_the_end_is_the_last_one() -> None:
    assert [Goal(line=n).row(10) for n in (0, 1, 10, 99)] == [0, 0, 9, 9]
    assert [Goal(share=s).row(10) for s in (0.0, 0.5, 1.0)] == [0, 5, 9]
    assert Goal(line=1).row(0) == 0
