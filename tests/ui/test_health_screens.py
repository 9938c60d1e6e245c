"""Filters, checks, acknowledgements, events and the past: keys in, screen out."""

import re

import pytest

from rankdeck.rules import query
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import Event
from tests.ui.support import sample
from tests.ui.support.stage import Stage
from tests.ui.test_screens import console, lacks, shows, text_of, type_in, until

SIZES = [(200, 50), (80, 24)]


def subject(name="n07", state="ok", checks=(), **numbers) -> query.Subject:
    known = {key.replace("_", "."): value for key, value in numbers.items()}
    return query.Subject(f"{name} {state}", state, known.get, name, frozenset(checks))


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("gpu.temp>80 & state!=ok", False),
        ("gpu.temp>80 | state!=ok", True),
        ("(gpu.temp>80 | state=bad) & n07", True),
        ("!(gpu.temp>80)", False),
        ("!n08 & !n09", True),
        ("n[01-09]", True),
        ("node=n[01-04]", False),
        ("node!=n[01-04]", True),
        ("check=disk.full", True),
        ("check!=disk.full", False),
        ("a | b | ok & n0", True),
    ],
)
def test_a_filter_means_what_it_says(text: str, matches: bool) -> None:
    assert query.parse_query(text)(subject(checks=["disk.full"], gpu_temp=90)) is matches


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("gpu.tmp>80", 0),
        ("n01 & gpu.temp>hot", 15),
        ("(n01 | n02", 0),
        ("n01)", 3),
        ("n01 & ", 6),
        ("state>ok", 5),
        ("state=okay", 6),
        ("n[1", 0),
        ("a & <3", 4),
    ],
)
def test_a_mistake_is_pointed_at(text: str, column: int) -> None:
    with pytest.raises(query.QueryError) as caught:
        query.parse_query(text)

    assert caught.value.column == column
    assert query.point_at_mistake(caught.value, 200).startswith(" " * column + "^ ")


def sick() -> Stage:
    stage, _ = sample.fleet(12)
    for node in stage.fleet.nodes():
        if node.hello:
            # So that no node falls silent while a slow machine tests.
            stage.fleet.apply(node.name, replace(node.hello, period=60.0))
    first = stage.cluster.nodes[0].name
    stage.fleet.apply(
        first,
        Event(
            1_010.0,
            "bad",
            "kernel.xid",
            "Xid 79, GPU has fallen off the bus · reboot",
            "0000:18:00",
        ),
    )
    return stage


async def test_the_sign_stands_under_the_mistake() -> None:
    async with console(sick(), (100, 30)) as (app, pilot):
        await pilot.press("slash")
        await type_in(pilot, "ok & gpu.tmp>80")
        await shows(app, pilot, "did you mean gpu.temp?")
        lines = text_of(app).splitlines()

    typed = next(n for n, line in enumerate(lines) if "gpu.tmp>80" in line)
    assert lines[typed].index("gpu.tmp") == lines[typed + 1].index("^")


@pytest.mark.long
async def test_an_earlier_filter_comes_back_with_the_up_key() -> None:
    async with console(sick()) as (app, pilot):
        await pilot.press("slash")
        await type_in(pilot, "state=bad")
        await pilot.press("enter")
        await shows(app, pilot, "1 of 12 nodes")
        await pilot.press("escape", "slash", "up", "enter")
        await shows(app, pilot, "1 of 12 nodes")


@pytest.mark.parametrize("size", SIZES)
async def test_the_node_page_has_every_check_with_its_evidence(size) -> None:
    async with console(sick(), size) as (app, pilot):
        await shows(app, pilot, "✗ bad")
        await pilot.press("enter")
        await shows(app, pilot, "Xid 79, GPU has fallen off the bus")
        await shows(app, pilot, "of 25 checks judged")
        seen = text_of(app)
        for _ in range(8):
            await pilot.press("pagedown")
            seen += text_of(app)

    for title in ("Every GPU is there", "Like the cluster file and its peers"):
        assert title in seen
    assert re.search(r"✗ bad +4  Xid and SXid", seen)
    if size[0] > 100:
        assert "/scratch: space used 78% (warn ≥ 80%)" in seen


@pytest.mark.long
async def test_an_acknowledged_reason_is_listed_but_colours_nothing() -> None:
    stage = sick()
    first = stage.cluster.nodes[0].name
    async with console(stage) as (app, pilot):
        await shows(app, pilot, "✗ bad")
        await pilot.press("enter")
        await shows(app, pilot, "Xid 79")
        await pilot.press("a")
        await type_in(pilot, "vendor comes")
        await pilot.press("enter")
        await shows(app, pilot, "vendor comes")
        await shows(app, pilot, "Xid 79")
        await shows(app, pilot, f"{first}  ◐ acked")
        await pilot.press("escape")
        await lacks(app, pilot, "✗ bad")
        await shows(app, pilot, "◐ 1 acknowledged")
        await shows(app, pilot, f"{first} ")
        await shows(app, pilot, "◐ acked")

    assert stage.fleet.node(first).health.level is Level.OK
    assert stage.acks[0].check == "kernel.xid"


@pytest.mark.long
async def test_the_key_that_acknowledges_takes_it_back() -> None:
    stage = sick()
    first = stage.cluster.nodes[0].name
    async with console(stage) as (app, pilot):
        await shows(app, pilot, "✗ bad")
        await pilot.press("g", "a", "enter")
        await shows(app, pilot, "◐ 1 acknowledged")
        await pilot.press("a")
        await shows(app, pilot, f"{first}: no longer acknowledged")
        await shows(app, pilot, "✗ bad")
        await lacks(app, pilot, "1 acknowledged")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.long
async def test_events_are_listed_filtered_and_lead_to_the_node_at_that_time(
    size,
) -> None:
    async with console(sick(), size) as (app, pilot):
        await pilot.press("5")
        await shows(app, pilot, "Xid 79, GPU ha")
        await pilot.press("slash")
        await type_in(pilot, "check=kernel.xid & state=bad")
        await pilot.press("enter")
        await lacks(app, pilot, "silent")
        await pilot.press("enter")
        await shows(app, pilot, "PAUSED at")
        await shows(app, pilot, "Until then")


@pytest.mark.parametrize("size", SIZES)
async def test_the_picture_can_be_held_and_taken_back_in_time(size) -> None:
    stage = sick()
    async with console(stage, size) as (app, pilot):
        await shows(app, pilot, "✗ bad")
        await until(pilot, stage.fleet.past.span, "no picture of the past yet")
        await pilot.press("P")
        await shows(app, pilot, "PAUSED at")
        await pilot.press("comma")
        await shows(app, pilot, "PAUSED at")
        await pilot.press("P")
        await lacks(app, pilot, "PAUSED")
        await shows(app, pilot, "12 of 12 nodes")


async def test_from_the_events_every_other_screen_is_a_key_away() -> None:
    async with console(sick()) as (app, pilot):
        await pilot.press("5")
        await shows(app, pilot, "WHAT")
        await pilot.press("1")
        await shows(app, pilot, "12 of 12 nodes")
        await pilot.press("5", "q")


async def test_the_cursor_stays_on_the_newest_event_until_one_moves_it() -> None:
    stage = sick()
    first = stage.cluster.nodes[0].name

    def happens(second: float, words: str) -> None:
        stage.fleet.apply(first, Event(second, "bad", "kernel.xid", f"{words} · reboot", words))

    async with console(stage, (120, 30)) as (app, pilot):
        await pilot.press("5")
        await shows(app, pilot, "Xid 79, GPU ha")
        happens(1_020.0, "Xid 48")
        await shows(app, pilot, "Xid 48")
        table = app.screen.table
        assert table.cursor == table.rows[0]
        await pilot.press("down")
        held = table.cursor
        happens(1_030.0, "Xid 62")
        await shows(app, pilot, "Xid 62")

        assert held == table.cursor != table.rows[0]
