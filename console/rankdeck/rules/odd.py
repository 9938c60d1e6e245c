"""Which of many numbers is unlike the others."""

from collections.abc import Hashable, Mapping
from statistics import median
from typing import TypeVar

LEAST = 4
"""Numbers from which on there is a usual one."""
FAR = 6.0
"""Times the usual deviation from which on a number is odd."""
SHARE = 0.25
"""Of the usual number that it must differ by, however alike the others are."""
Key = TypeVar("Key", bound=Hashable)


def odd_ones(numbers: Mapping[Key, float], least: float = 0.0) -> frozenset[Key]:
    """Those far from the median, by the median of the deviations, and by more than `least`.

    None where more than a third would be.
    """
    if len(numbers) < LEAST:
        return frozenset()
    usual = median(numbers.values())
    deviation = median(abs(value - usual) for value in numbers.values())
    bound = max(FAR * deviation, SHARE * abs(usual), least)
    odd = frozenset(key for key, value in numbers.items() if abs(value - usual) > bound)
    return odd if 3 * len(odd) <= len(numbers) else frozenset()
