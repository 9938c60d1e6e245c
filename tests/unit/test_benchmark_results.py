"""`make bench` fails when a ratio that was reached is lost."""

import json

import pytest
from benchmarks import result
from benchmarks.result import Result, keep_ratios, kept_ratios, show

ROW = Result(name="start", value=1.1, unit="s", peer="other", peer_value=1.0, budget=1.0)


@pytest.mark.parametrize(
    ("value", "kept", "fails"),
    [
        (1.10, {"start / other": 1.0}, False),
        (1.20, {"start / other": 1.0}, True),
        (0.90, {"start / other": 0.5}, True),  # within its goal, but it was better
        (1.20, {}, False),  # it was over its goal before
        (9.00, {"start / another": 1.0}, False),
    ],
)
def test_a_ratio_is_lost_by_more_than_15_percent(value, kept, fails) -> None:
    row = Result(name="start", value=value, unit="s", peer="other", peer_value=1.0, budget=1.0)
    assert row.fails(kept) is fails


@pytest.mark.parametrize(("value", "fails"), [(0.9, False), (1.1, True)])
def test_a_value_without_a_peer_is_held_to_its_goal(value, fails) -> None:
    assert (
        Result(name="stall", value=value, unit="ms", budget=1.0, on_ratio=False).fails({}) is fails
    )


def test_kept_ratios_of_other_rows_stay(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(result, "FIGURES", tmp_path / "figures.json")
    result.FIGURES.write_text(json.dumps({"old / other": 2.0}))
    keep_ratios([ROW, Result(name="no peer", value=1, unit="s")])
    assert kept_ratios() == {"old / other": 2.0, "start / other": 1.1}


def test_a_row_shows_the_goal_the_kept_ratio_and_what_limits_it(capsys) -> None:
    row = Result(
        name="find", value=2, unit="s", peer="grep", peer_value=1, budget=1.1, limit="lower()"
    )
    show([row], {"find / grep": 1.5}, as_json=False)
    line = capsys.readouterr().out
    words = ("2 s", "1 (grep)", "2.00", "1.50", "1.1x", "LOST", "limit: lower()")
    assert all(word in line for word in words)


def test_the_kept_ratios_can_be_read() -> None:
    assert all(ratio > 0 and " / " in row for row, ratio in kept_ratios().items())
