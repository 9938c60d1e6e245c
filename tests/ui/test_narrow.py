"""Small terminals: nothing drops out without a sign, and what says why keeps its room."""

import logging
import re

import pytest

from rankdeck.model.rank import RankStatus, State
from rankdeck.state.history import HistoryState
from rankdeck.ui import actions
from rankdeck.ui.screens.help import help_lines
from rankdeck.ui.themes import UNICODE
from rankdeck_agent.wire import Event, Hello, Sample
from tests.ui.support import sample
from tests.ui.support.stage import Stage, cluster_of
from tests.ui.test_screens import console, lacks, shows, text_of, type_in, until

WIDTHS = [(200, 50), (100, 30), (80, 24), (60, 15)]
LONG = "the supply cannot keep up with what the board takes"


def mixed() -> Stage:
    """A node well, one bad, one warned of, one unheard: the longest counts there are."""
    stage = Stage(cluster_of(12, "long-cluster"))
    for place, node in enumerate(stage.cluster.nodes[:-2]):
        stage.fleet.apply(node.name, Hello(node.name, True, 1000.0, "b", "0", 600.0))
        full = {0: 99.0, 1: 85.0}.get(place, 20.0)
        for seq in (1, 2, 3):
            values = {"cpu.used": {"": 3.0}, "disk.used": {"/": full}}
            stage.fleet.apply(node.name, Sample(seq, 1000.0 + 99 * seq, values))
    return stage


@pytest.mark.long
@pytest.mark.parametrize("size", WIDTHS)
async def test_every_screen_has_all_tabs_and_the_state_of_the_fleet(size) -> None:
    names = {
        "1": "Fleet",
        "2": "Jobs",
        "3": "Launch",
        "4": "Messages",
        "5": "Events",
        "6": "Accept",
    }
    async with console(mixed(), size) as (app, pilot):
        for key, name in names.items():
            await pilot.press(key)
            await shows(app, pilot, f" {key} {name}")
            signs = [*(f" {number} " for number in names), *"✗◌●"]
            await until(
                pilot,
                lambda signs=signs: all(one in text_of(app).splitlines()[0] for one in signs),
                f"{key}: {text_of(app).splitlines()[0]}",
            )


async def test_a_click_on_a_short_tab_goes_there() -> None:
    async with console(mixed(), (60, 15)) as (app, pilot):
        await shows(app, pilot, "1 Fleet")
        place = text_of(app).splitlines()[0].index(" 5 ") + 1
        await pilot.click(offset=(place, 0))
        await shows(app, pilot, "5 Events")


@pytest.mark.parametrize("size", WIDTHS)
async def test_why_has_a_third_of_the_line_before_further_numbers(size) -> None:
    stage, _ = sample.fleet(3)
    stage.fleet.troubled("node03", LONG)
    async with console(stage, size) as (app, pilot):
        await shows(app, pilot, "▲ warn")
        row = next(one for one in text_of(app).splitlines() if "▲ warn" in one)
        shown = row[row.index("the supply") :].rstrip()
        whole = " ".join(text_of(app).split())  # a few nodes have more lines for it

    assert LONG in whole or (shown.endswith("…") and len(shown) >= size[0] // 3 - 2)


@pytest.mark.parametrize("size", WIDTHS)
async def test_an_event_names_its_device_and_what_happened(size) -> None:
    stage, _ = sample.fleet(3)
    told = Event(1010.0, "bad", "kernel.xid", "Xid 79, GPU is off the bus", "0000:18:00")
    stage.fleet.apply("node01", told)
    async with console(stage, size) as (app, pilot):
        await pilot.press("5")
        await shows(app, pilot, "0000:18:00: Xid")


@pytest.mark.parametrize("size", WIDTHS)
async def test_a_failed_job_says_which_rank_at_every_width(size) -> None:
    stage = Stage(cluster_of(3))
    job = stage.start("hello-1121-120000-aaaa", 2, 2)
    stage.tell(job, "node02", "exited", rank=2, code=1)
    async with console(stage, size) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "rank 2 on node02")
        await shows(app, pilot, job)


@pytest.mark.long
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("2", "no job matches the filter; esc shows all"),
        ("3", "no file matches the filter; esc"),
        ("4", "no message matches the filter; esc shows all"),
        ("5", "no event matches the filter; esc shows all"),
    ],
)
async def test_a_filter_that_matches_nothing_says_so(key: str, text: str) -> None:
    stage = Stage(cluster_of(3))
    stage.start("hello-1121-120000-aaaa", 2, 2)
    async with console(stage, (100, 30)) as (app, pilot):
        await pilot.press(key, "slash")
        await type_in(pilot, "zebra")
        await pilot.press("enter")
        await shows(app, pilot, text)


async def test_what_is_typed_stands_behind_its_sign() -> None:
    async with console(mixed(), (80, 24)) as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, "jobs")
        await shows(app, pilot, "\n:jobs")
        await pilot.press("escape", "slash")
        await type_in(pilot, "node01")
        await shows(app, pilot, "\n/node01")
        await pilot.press("enter", "enter", "a")
        await shows(app, pilot, "\n acknowledge: 4h")
        await shows(app, pilot, "how long, and why")


@pytest.mark.long
async def test_long_lines_of_help_go_on_below() -> None:
    async with console(mixed(), (60, 15)) as (app, pilot):
        await pilot.press("question_mark", "question_mark")
        seen = ""
        for _ in range(48):
            seen += text_of(app)
            await pilot.press("pagedown")

    words = " ".join(seen.split())
    assert "alone: the default view" in words
    for state in (*State, RankStatus.STALLED, RankStatus.VICTIM):
        assert f" {state} " in words, state
    assert "shift-drag selects text" in words


def test_at_80_columns_each_sign_stands_beside_its_word() -> None:
    told = "\n".join("".join(text for text, _ in line) for line in help_lines("fleet", UNICODE, 80))
    for status in (RankStatus.STALLED, RankStatus.VICTIM):
        assert f"{UNICODE.status(status).glyph} {status}" in told


async def test_a_broker_that_is_gone_is_said_and_so_is_its_return() -> None:
    stage = mixed()
    async with console(stage, (100, 30)) as (app, pilot):
        stage.fleet.trouble = "broker 10.0.0.9:1883 refused the connection"
        await shows(app, pilot, "✗ broker 10.0.0.9:1883 refused the connection")
        await pilot.press("2")
        await shows(app, pilot, "✗ no broker")
        stage.fleet.trouble = ""
        await lacks(app, pilot, "no broker")
        await pilot.press("1")
        await lacks(app, pilot, "10.0.0.9")


async def test_messages_from_before_the_first_look_are_on_screen() -> None:
    stage = Stage(cluster_of(3))
    early = {"name": "rankdeck", "msg": "an early word", "levelno": logging.INFO}
    stage.messages.handle(logging.makeLogRecord(early))
    async with console(stage, (100, 30)) as (app, pilot):
        await pilot.press("4")
        await shows(app, pilot, "an early word")


async def test_a_long_message_is_all_there() -> None:
    stage = Stage(cluster_of(3))
    text = "the broker at broker.example:8883 is gone and will be tried again in a while"
    told = {"name": "rankdeck", "msg": text, "levelno": logging.ERROR}
    stage.messages.handle(logging.makeLogRecord(told))
    async with console(stage, (60, 15)) as (app, pilot):
        await pilot.press("4")
        await shows(app, pilot, "Message")
        assert text in " ".join(re.sub("[│┃|]", " ", text_of(app)).split())


async def test_a_message_shows_and_opens_the_job_that_it_is_about() -> None:
    stage = Stage(cluster_of(3))
    job = stage.start("training-of-a-model-1121-120000-aaaa", 2, 2)
    stage.tell(job, "node02", "exited", rank=2, code=3)
    told = {"name": "rankdeck", "msg": "stopping the others", "source": job}
    stage.messages.handle(logging.makeLogRecord(told))
    async with console(stage, (160, 40)) as (app, pilot):
        await pilot.press("4")
        await shows(app, pilot, f"info   {job}")
        await shows(app, pilot, "rank 2 on node02")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen.screen_name == "job", "the job is not open")


async def test_a_long_sentence_in_the_last_line_is_all_there_and_the_keys_come_back() -> None:
    text = "nodes can be drained and resumed on Slurm only: the cluster file names no login node"
    async with console(Stage(cluster_of(3)), (60, 15)) as (app, pilot):
        app.screen.say(text)
        await shows(app, pilot, "login node")
        assert text in " ".join(text_of(app).split())
        assert len(text_of(app).splitlines()) <= 15
        app.screen.say("x" * 500)
        await shows(app, pilot, "x…")
        assert app.screen.key_bar.size.height == 4
        app.screen.say("")
        await until(pilot, lambda: app.screen.key_bar.size.height == 1, "not one line again")
        await shows(app, pilot, "? help")


async def test_the_past_names_the_key_that_leads_back() -> None:
    stage, _ = sample.fleet(3)
    async with console(stage, (60, 15)) as (app, pilot):
        key = next(one for one in actions.ACTIONS if one.id == "pause").shown_key
        await pilot.press(key)
        await shows(app, pilot, "PAUSED")
        await shows(app, pilot, f"{key} live")
        await pilot.press("down", "enter", "end")
        await shows(app, pilot, "nothing is remembered")
        await pilot.press("escape")
        await pilot.press(key)
        await lacks(app, pilot, "PAUSED")


@pytest.mark.long
async def test_the_palette_is_ascii_where_all_is() -> None:
    async with console(mixed(), (100, 30), ascii=True) as (app, pilot):
        await pilot.press("ctrl+p")
        await shows(app, pilot, "Search for commands")
        page = text_of(app).replace("Search for commands…", "")

    assert page.isascii()


@pytest.mark.parametrize(
    ("width", "said"), [(160, "connecting 212 of 1,000"), (80, "connecting 212/1,000")]
)
async def test_the_start_says_how_many_nodes_are_reached(width: int, said: str) -> None:
    stage = mixed()
    stage.connecting = (212, 1000)
    async with console(stage, (width, 24)) as (app, pilot):
        await shows(app, pilot, said)
        stage.connecting = (1000, 1000)
        await lacks(app, pilot, said)


@pytest.mark.parametrize("key", "123456")
async def test_every_screen_says_that_the_history_is_not_written(key: str) -> None:
    stage = mixed()
    stage.state = HistoryState("history.db cannot be written (disk full)", "", "")
    async with console(stage, (100, 30)) as (app, pilot):
        await pilot.press(key)
        await shows(app, pilot, "✗ history not written")
        stage.state = HistoryState("", "", "")
        await lacks(app, pilot, "history not written")
