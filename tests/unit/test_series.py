from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.state.metric_values import SIZE, WIDEST, Chart, counter_growth
from rankdeck_agent.rules.levels import growth_rates

AT = 1_700_000_000.0


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=2 * SIZE + 9))  # fmt: skip
def test_a_chart_keeps_the_newest_points_of_every_device_in_order(rows) -> None:
    chart, names = Chart(), ("a", "b")
    for at, row in enumerate(rows):
        chart.add(AT + at, names, row)

    for column, name in enumerate(names):
        expected = [(AT + at, row[column]) for at, row in enumerate(rows)][-SIZE:]
        assert chart.points(name) == expected
    assert chart.points("c") == []


def test_a_device_that_comes_or_goes_leaves_the_past_of_the_others() -> None:
    chart = Chart()
    chart.add(AT, ("a", "b"), (1, 2))
    chart.add(AT + 1, ("b", "c"), (3, 4))

    assert chart.points("a") == []
    assert chart.points("b") == [(AT, 2), (AT + 1, 3)]
    assert chart.points("c") == [(AT + 1, 4)]


def test_of_very_many_devices_the_first_are_charted() -> None:
    names = tuple(map(str, range(WIDEST + 5)))
    chart = Chart()
    for at in range(2):
        chart.add(AT + at, names, [at + int(name) for name in names])

    assert chart.points(str(WIDEST - 1)) == [(AT, WIDEST - 1), (AT + 1, WIDEST)]
    assert chart.points(str(WIDEST)) == []


def test_a_stamp_that_is_no_number_is_no_point() -> None:
    chart = Chart()
    chart.add(nan, ("a",), (1,))

    assert chart.points("a") == []


def test_growth_leaves_out_resets_gaps_and_steps_back_in_time() -> None:
    readings = [(0.0, 10.0), (2.0, 30.0), (3.0, 5.0), (50.0, 9.0), (49.0, 10.0), (50.0, 11.0)]

    assert counter_growth(readings, longest=15.0) == [(2.0, 10.0), (50.0, 1.0)]


def test_rates_leave_out_new_devices_and_resets() -> None:
    assert growth_rates({"a": 10, "b": 10}, {"a": 30, "b": 5, "c": 1}, 2.0) == {"a": 10.0}


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_no_time_no_rate(seconds) -> None:
    assert growth_rates({"a": 1}, {"a": 2}, seconds) == {}
