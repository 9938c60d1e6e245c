import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.state.series import Ring, rates


@given(st.integers(1, 20), st.lists(st.integers(0, 1000), max_size=60))
def test_a_ring_keeps_the_newest_points_in_order(size, values) -> None:
    ring = Ring(size)
    for at, value in enumerate(values):
        ring.add(1_700_000_000 + at, value)

    expected = [(1_700_000_000 + at, value) for at, value in enumerate(values)][-size:]
    assert list(ring.points()) == expected
    assert len(ring) == len(expected)


def test_rates_leave_out_new_devices_and_resets() -> None:
    assert rates({"a": 10, "b": 10}, {"a": 30, "b": 5, "c": 1}, 2.0) == {"a": 10.0}


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_no_time_no_rate(seconds) -> None:
    assert rates({"a": 1}, {"a": 2}, seconds) == {}
