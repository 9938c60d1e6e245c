"""Who is unlike the others: shown to be found, and to stay quiet."""

import pytest

from rankdeck.rules.progress import odd_ones

ALIKE = dict.fromkeys(range(8), 100.0)


@pytest.mark.parametrize(
    ("numbers", "least", "odd"),
    [
        (ALIKE, 0, set()),
        ({**ALIKE, 3: 12.0}, 0, {3}),
        ({**ALIKE, 3: 12.0}, 200, set()),
        ({**ALIKE, 3: 120.0}, 0, set()),
        ({0: 1.0, 1: 1.0, 2: 50.0}, 0, set()),
        ({number: float(number) for number in range(9)}, 0, set()),
        ({**ALIKE, 1: 0.0, 2: 0.0, 3: 0.0}, 0, set()),
        ({0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0, 4: 1.0}, 20, set()),
    ],
)
def test_only_who_is_far_from_the_others_is_odd(
    numbers: dict[int, float], least: float, odd: set[int]
) -> None:
    assert odd_ones(numbers, least) == odd
