"""Slurm's host lists, such as `n[1-2,07]`."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice, product

_WORD = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_MOST_NAMES = 20_000
_MOST_BRACKETS = 4
"""Most brackets of a name: Slurm's own limit of dimensions is 5."""


def unfold_hosts(text: str) -> list[str]:
    """The names in a host list such as `n[1-2,07],r[1-2]n[1-8],gpu3`, at most 20,000."""
    every = (name for word in _WORD.findall(text) for name in _names_of(word))
    return list(islice(every, _MOST_NAMES))


def _names_of(word: str) -> Iterator[str]:
    """The names of a word; its odd pieces are what is in brackets."""
    pieces = _BRACKETS.split(word)
    if len(pieces) > 2 * _MOST_BRACKETS + 1:
        return
    chosen = (_numbers(one) if n % 2 else (one,) for n, one in enumerate(pieces))
    yield from map("".join, product(*chosen))


def _numbers(inside: str) -> Iterator[str]:
    """The numbers in `1-2,07`, as they are written, at most 20,000."""
    return islice((n for word in inside.split(",") for n in _range(word)), _MOST_NAMES)


def _range(word: str) -> Iterable[str]:
    low, dash, high = word.partition("-")
    if not low.isdecimal() or (dash and not high.isdecimal()) or len(low + high) > 20:
        return ()
    last = min(int(high or low), int(low) + _MOST_NAMES)
    return (str(number).zfill(len(low)) for number in range(int(low), last + 1))
