"""Slurm's host lists, such as `n[1-2,07]`."""

import re
from collections.abc import Iterable

_PART = re.compile(r"([^,\[]*)\[([^\]]*)\]([^,\[]*)|([^,\[\]]+)")
_MOST_NAMES = 20_000


def unfold_hosts(text: str) -> list[str]:
    """The names in a host list such as `n[1-2,07],gpu3`, at most 20,000; lists
    with several dimensions are not supported.
    """
    names: list[str] = []
    for match in _PART.finditer(text):
        if match[4]:
            names.append(match[4])
            continue
        for word in match[2].split(","):
            names += (f"{match[1]}{number}{match[3]}" for number in _range(word))
        if len(names) > _MOST_NAMES:
            break
    return names[:_MOST_NAMES]


def _range(word: str) -> Iterable[str]:
    low, dash, high = word.partition("-")
    if not low.isdecimal() or (dash and not high.isdecimal()) or len(low + high) > 20:
        return ()
    last = min(int(high or low), int(low) + _MOST_NAMES)
    return (str(number).zfill(len(low)) for number in range(int(low), last + 1))
