"""Inputs without end, made of a corpus by small changes: the same seed gives the same inputs."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

BLOCK = 1000
"""Inputs that one number of a block stands for."""
LONGEST = 4096
"""Bytes of an input; what is read quickly is read often."""
_DIGITS = re.compile(rb"\d+")
_WHOLE = (0, -1, 1, 255, 256, 65535, 1 << 31, 1 << 53, 1 << 63, 1 << 64, 10**30, 10**400)
_NUMBERS = (*(b"%d" % n for n in _WHOLE), b"1e999", b"NaN", b"-0.0", b"\xc2\xb2", b"0x10")
_BYTES = b"\x00\x01\x1b\x7f\x80\xff\n\r\t \"'\\/$`[]{}(),:;-+.0"

T = TypeVar("T")
Change = Callable[["Mutator", bytes], bytes]


@dataclass(slots=True)
class Mutator:
    """One block of inputs; `seeds` may not be empty."""

    seeds: Sequence[bytes]
    words: Sequence[bytes]
    draw: random.Random

    def inputs(self) -> Iterator[bytes]:
        """BLOCK of them."""
        for _ in range(BLOCK):
            made = self.any_of(self.seeds)
            for _ in range(1 + self.below(4)):
                made = self.any_of(CHANGES)(self, made)
            yield made[:LONGEST]

    def below(self, limit: int) -> int:
        """A whole number from 0 up to `limit`, which it does not reach."""
        # Three times as fast as randrange; inputs need not be fair.
        return int(self.draw.random() * limit)

    def any_of(self, many: Sequence[T]) -> T:
        return many[int(self.draw.random() * len(many))]

    def place(self, raw: bytes) -> int:
        return int(self.draw.random() * (len(raw) + 1))


def block(
    seeds: Sequence[bytes], words: Sequence[bytes], seed: str, number: int
) -> Iterator[bytes]:
    """The inputs of one block: always the same for these arguments."""
    return Mutator(seeds, words, random.Random(f"{seed}/{number}")).inputs()


# ---- changes -------------------------------------------------------------------------------


def _byte(one: Mutator, raw: bytes) -> bytes:
    at = one.place(raw)
    return raw[:at] + bytes((one.below(256),)) + raw[at + 1 :]


def _telling_byte(one: Mutator, raw: bytes) -> bytes:
    at = one.place(raw)
    return raw[:at] + bytes((one.any_of(_BYTES),)) + raw[at + one.below(2) :]


def _word(one: Mutator, raw: bytes) -> bytes:
    at = one.place(raw)
    return raw[:at] + one.any_of(one.words) + raw[at + one.below(6) :]


def _cut(one: Mutator, raw: bytes) -> bytes:
    at = one.place(raw)
    return raw[:at] + raw[at + one.below(1 + len(raw) // 4) :]


def _end(one: Mutator, raw: bytes) -> bytes:
    return raw[: one.place(raw)]


def _repeat(one: Mutator, raw: bytes) -> bytes:
    at = one.place(raw)
    part = raw[at : at + 1 + one.below(16)]
    return raw[:at] + part * (1 << one.below(8)) + raw[at:]


def _join(one: Mutator, raw: bytes) -> bytes:
    other = one.any_of(one.seeds)
    return raw[: one.place(raw)] + other[one.place(other) :]


def _number(one: Mutator, raw: bytes) -> bytes:
    found = _DIGITS.search(raw, one.place(raw))
    if found is None:
        return raw
    return raw[: found.start()] + one.any_of(_NUMBERS) + raw[found.end() :]


CHANGES: tuple[Change, ...] = (
    _byte, _telling_byte, _telling_byte, _word, _word, _cut, _end, _repeat, _join, _number,
)  # fmt: skip
