"""The full collections of garbage: when they come, and what they leave for later."""

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest
from rich.segment import Segment
from textual.strip import Strip

from rankdeck.ui import garbage_collection
from rankdeck.ui.garbage_collection import IdleTime, free_painted_lines


class Times:
    """A clock that is moved by hand, and the moments of collections."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.collected: list[float] = []
        self.quiet = IdleTime(lambda: self.collected.append(self.now), lambda: self.now)

    def wait(self, seconds: float, *, typing: bool) -> None:
        """Look four times a second, with a key before each look."""
        for _ in range(int(seconds * 4)):
            self.now += 0.25
            if typing:
                self.quiet.typed()
            self.quiet.look()


@pytest.fixture
def collector() -> Iterator[None]:
    """The collector of this process, as it was afterwards."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_once_a_minute_while_nobody_types() -> None:
    times = Times()
    times.wait(190, typing=False)
    assert [at - 1000 for at in times.collected] == [60, 120, 180]


def test_more_seldom_where_there_is_much_to_look_at() -> None:
    times = Times()

    def collect() -> None:
        times.collected.append(times.now)
        times.now += 0.2

    times.quiet = IdleTime(collect, lambda: times.now)
    times.wait(470, typing=False)
    assert [round(at - 1000) for at in times.collected] == [60, 260, 461]


def test_not_while_somebody_types_but_at_the_first_quiet_moment() -> None:
    times = Times()
    times.wait(90, typing=True)
    assert not times.collected
    times.wait(10, typing=False)
    assert [at - 1000 for at in times.collected] == [90 + garbage_collection.QUIET]


def test_somebody_who_never_rests_cannot_put_it_off_for_ever() -> None:
    times = Times()
    times.wait(garbage_collection.LONGEST + 30, typing=True)
    assert [at - 1000 for at in times.collected] == [garbage_collection.LONGEST]


@pytest.mark.long
def test_what_was_set_aside_is_freed_by_the_next_one(collector: None) -> None:
    class Knot:
        me: "Knot"

    knot = Knot()
    knot.me, seen = knot, weakref.ref(knot)
    garbage_collection.collect_and_set_aside()
    assert gc.get_freeze_count() > 0
    del knot
    garbage_collection.collect_and_set_aside()
    assert seen() is None


def test_no_full_collection_comes_on_its_own(collector: None) -> None:
    garbage_collection.stop_full_collections()
    before = gc.get_stats()[2]["collections"]
    kept = [[[]] for _ in range(300_000)]
    assert gc.get_stats()[2]["collections"] == before
    assert len(kept) == 300_000


def test_what_was_loaded_before_is_looked_through_no_more(collector: None) -> None:
    gc.set_threshold(10_000_000)
    loaded = [[] for _ in range(100_000)]
    garbage_collection.stop_full_collections()
    assert gc.get_freeze_count() > len(loaded)
    assert gc.get_threshold()[0] == garbage_collection.YOUNG


@pytest.mark.parametrize("cuts", [[10], [4, 10]], ids=["whole", "in parts"])
def test_a_line_that_was_painted_is_held_by_nobody(
    cuts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Strip, "divide", Strip.divide)  # as it was afterwards
    free_painted_lines()
    line = Strip([Segment("0123456789")])
    before = sys.getrefcount(line)

    parts = [part.text for part in line.divide(cuts)]

    assert "".join(parts) == "0123456789"
    assert len(parts) == len(cuts)
    assert sys.getrefcount(line) == before
