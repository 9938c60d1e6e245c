"""Laws of scaling: fits give back what the points were made from."""

import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rankdeck.scaling.laws import amdahl_speedup, fit_amdahl, fit_gustafson, serial_share

RANKS = (1, 2, 4, 8, 16)
SHARES = st.floats(0.0, 0.95)


@given(share=SHARES, seconds=st.floats(0.01, 1e5), first=st.sampled_from((1, 2, 4)))
def test_amdahls_law_is_found_again_from_exact_times(share, seconds, first) -> None:
    points = [(ranks, seconds * (share + (1 - share) / ranks)) for ranks in RANKS if ranks >= first]
    found = fit_amdahl(points)

    assert found is not None
    assert math.isclose(found.share, share, abs_tol=1e-6)
    assert found.error == pytest.approx(0.0, abs=1e-5)
    assert found.misfit == pytest.approx(0.0, abs=1e-6)


@given(share=SHARES, factor=st.floats(1e-3, 1e3))
def test_the_serial_share_does_not_depend_on_the_unit(share, factor) -> None:
    points = [(ranks, (share + (1 - share) / ranks) * (1 + 0.05 * (ranks % 3))) for ranks in RANKS]
    one, other = fit_amdahl(points), fit_amdahl([(ranks, time * factor) for ranks, time in points])

    assert one is not None
    assert other is not None
    assert math.isclose(one.share, other.share, rel_tol=1e-6, abs_tol=1e-9)


@given(share=st.floats(0.0, 1.0))
def test_gustafsons_law_is_found_again_from_exact_speed_ups(share) -> None:
    found = fit_gustafson([(ranks, ranks - share * (ranks - 1)) for ranks in RANKS])

    assert found is not None
    assert math.isclose(found.share, share, abs_tol=1e-9)


@given(share=SHARES, ranks=st.sampled_from(RANKS[1:]))
def test_one_point_has_the_serial_share_of_the_law_that_it_follows(share, ranks) -> None:
    found = serial_share(ranks, amdahl_speedup(share, ranks))

    assert found is not None
    assert math.isclose(found, share, abs_tol=1e-9)


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(1e-3, 1e6)), min_size=2, max_size=30))
def test_a_share_is_a_share_whatever_was_measured(points) -> None:
    assume(len({ranks for ranks, _ in points}) > 1)
    found = fit_amdahl(points)

    if found is not None:
        assert 0 <= found.share <= 1
        assert found.misfit >= 0
        assert found.error is None or found.error >= 0


@pytest.mark.parametrize("share", [0.02, 0.1, 0.4])
def test_the_uncertainty_covers_the_true_share_in_about_95_of_100_studies(share: float) -> None:
    source, inside = random.Random(7), 0
    for _ in range(200):
        points = [
            (ranks, (share + (1 - share) / ranks) * source.gauss(1.0, 0.03))
            for ranks in RANKS for _ in range(3)
        ]  # fmt: skip
        found = fit_amdahl(points)
        assert found is not None
        assert found.error is not None
        inside += abs(found.share - share) <= found.error

    assert 178 <= inside <= 199


@pytest.mark.parametrize("points", [[], [(4, 1.0)], [(4, 1.0), (4, 2.0)], [(1, 0.0), (2, -1.0)]])
def test_without_two_numbers_of_ranks_there_is_no_law(points) -> None:
    assert fit_amdahl(points) is None
    assert fit_gustafson([(1.0, 1.0)]) is None


def test_two_runs_give_a_share_and_no_uncertainty() -> None:
    found = fit_amdahl([(1, 1.0), (2, 0.6)])

    assert found is not None
    assert found.share == pytest.approx(0.2)
    assert found.error is None
