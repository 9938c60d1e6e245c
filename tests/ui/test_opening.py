"""While the cluster is being opened: every screen says so, no key asks for anything;
and the double that stands for a session.
"""

import asyncio
import contextlib
import inspect
import os
from collections.abc import AsyncGenerator
from operator import attrgetter
from pathlib import Path

import pytest

from rankdeck.config.user import UiSettings
from rankdeck.errors import BrokerError
from rankdeck.following import Following
from rankdeck.hearing import Hearing
from rankdeck.images.bring import ImageDistributor
from rankdeck.job_control import JobControl
from rankdeck.node_commands import NodeCommands
from rankdeck.node_journal import NodeJournal
from rankdeck.opening import Reach, open_session_on
from rankdeck.prometheus.site_past import SitePast
from rankdeck.remote.questions import Questions
from rankdeck.schedulers.kubernetes.queue import KubernetesQueue
from rankdeck.ui import actions, themes
from rankdeck.ui.app import RankdeckApp
from tests.ui.support import sample
from tests.ui.support.stage import PARTS, NoShell, SessionDouble, Stage, cluster_of
from tests.ui.test_screens import lacks, shows, text_of, type_in, until

HOMES = {
    "1": "fleet",
    "2": "jobs",
    "3": "launch",
    "4": "messages",
    "5": "events",
    "6": "acceptance",
    "7": "scaling",
}
"""Key -> main screen."""


@contextlib.asynccontextmanager
async def never() -> AsyncGenerator[Stage]:
    """A cluster that takes for ever to open."""
    await asyncio.Event().wait()
    yield Stage(cluster_of(3))


@contextlib.asynccontextmanager
async def opening(opener=never) -> AsyncGenerator[tuple[RankdeckApp, object]]:
    app = RankdeckApp(cluster_of(3), UiSettings(theme_folders=()))
    app.open_with(opener)
    async with app.run_test(size=(120, 40)) as pilot:
        yield app, pilot


async def test_the_console_opens_whatever_lies_among_the_themes_and_names_it(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "date.yaml").write_text("name: x\nroles: {text: 2001-99-99}\n")
    (tmp_path / "number.yaml").write_text("name: " + "9" * 6000)

    app = RankdeckApp(cluster_of(3), UiSettings(theme_folders=(tmp_path,)))
    async with app.run_test(size=(200, 40)) as pilot:
        await shows(app, pilot, "pipe.yaml:1:1: file: cannot be read: is a pipe")

    assert set(app.palettes) == set(themes.load_themes([themes.shipped_folder()])[0])


@pytest.mark.parametrize("key", HOMES)
async def test_a_screen_says_that_the_cluster_is_being_opened_and_nothing_else(key: str) -> None:
    async with opening() as (app, pilot):
        await pilot.press(key)
        await shows(app, pilot, "opening lab …")
        shown = text_of(app)

    assert not [
        word
        for word in ("no job", "nothing", "no acceptance", "no scaling", "NAME.yaml")
        if word in shown
    ]


async def test_a_node_can_be_opened_and_says_it_too() -> None:
    async with opening() as (app, pilot):
        await pilot.press("enter")
        await shows(app, pilot, "opening lab …")
        assert app.top_screen.screen_name == "node"


@pytest.mark.long
@pytest.mark.parametrize("key", HOMES)
async def test_no_key_of_a_screen_asks_a_session_that_is_not_there(key: str) -> None:
    ends = {"leave", "back", "redraw", "help", *(f"goto_{name}" for name in HOMES.values())}
    async with opening() as (app, pilot):
        for one in actions.for_screen(HOMES[key]):
            if one.id not in ends:
                app.goto(HOMES[key])
                await pilot.press(one.keys.split(",")[0])
                await pilot.press("escape")

        assert not app.session


@pytest.mark.parametrize("keys", ["3enter", "3D", "6A", "6x"])
async def test_what_a_key_would_do_is_refused_until_the_cluster_is_open(keys: str) -> None:
    screen, key = keys[0], keys[1:]
    async with opening() as (app, pilot):
        await pilot.press(screen, key)
        await until(pilot, lambda: text_of(app).count("opening lab …") == 2, "not refused")


@pytest.mark.parametrize(
    "command",
    ["job train", "cancel train", "sh uptime", "launch", "silence 4h", "tour", "drain x", "cp :a"],
)
async def test_a_command_that_needs_the_session_says_that_it_is_not_there(command: str) -> None:
    async with opening() as (app, pilot):
        await pilot.press("colon")
        await type_in(pilot, command)
        await pilot.press("enter")
        await shows(app, pilot, "opening lab …")


async def test_a_cluster_that_cannot_be_opened_says_why_on_each_screen() -> None:
    @contextlib.asynccontextmanager
    async def failing() -> AsyncGenerator[Stage]:
        raise BrokerError("the broker cannot listen")
        yield

    async with opening(failing) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "lab is not open: the broker cannot listen")


@pytest.mark.long
async def test_the_first_picture_does_not_wait_for_the_session() -> None:
    cluster = cluster_of(3)
    app = RankdeckApp(cluster, UiSettings())
    stage = Stage(cluster)

    @contextlib.asynccontextmanager
    async def opener() -> AsyncGenerator[Stage]:
        assert "node03" in text_of(app)
        yield stage

    app.open_with(opener)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.session is stage, "never opened")
        await lacks(app, pilot, "opening")
        await pilot.press("q")
        await until(pilot, lambda: app.return_code == 0, "never left")


async def test_a_screen_that_looks_first_shows_what_is_judged_later() -> None:
    cluster = cluster_of(3)
    app = RankdeckApp(cluster, UiSettings())
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(app, pilot, "◌ unknown")
        app.session, _ = sample.fleet(3, cluster=cluster)
        app.session.fleet.take_changes()
        assert app.top_screen
        app.top_screen.refresh_now()
        await shows(app, pilot, "● 3 ok")
        await lacks(app, pilot, "◌")


PLAYED = (
    JobControl,
    Following,
    KubernetesQueue,
    Hearing,
    NodeCommands,
    NodeJournal,
    ImageDistributor,
    Questions,
    SitePast,
)
"""The classes whose methods the double has, each under one name."""


def test_the_double_of_a_session_has_only_methods_of_its_parts_with_their_parameters() -> None:
    for name, made in vars(SessionDouble).items():
        if name.startswith("_") or not inspect.isfunction(made):
            continue
        ours = list(inspect.signature(made).parameters)
        method = next(getattr(part, name) for part in PLAYED if hasattr(part, name))
        real = inspect.signature(method).parameters
        needed = [one.name for one in real.values() if one.default is one.empty]
        asked = inspect.iscoroutinefunction(method)

        assert [one for one in real if one in ours] == ours, name
        assert set(needed) <= set(ours), name
        assert inspect.iscoroutinefunction(made) is asked, name


async def test_the_double_of_a_session_has_the_state_of_a_real_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    read = (
        "cluster",
        "fleet",
        "switches",
        "jobs",
        "messages",
        "acceptance",
        "scaling",
        "swaps",
        *PARTS,
    )
    of_parts = ("nodes.commands", "hearing.connecting", "history.state", "questions.pending")
    reach = Reach(lambda _: contextlib.nullcontext(NoShell()), telemetry=False)
    async with open_session_on(cluster_of(1), reach) as session:
        for one in (session, Stage(cluster_of(1))):
            assert [name for name in read if not hasattr(one, name)] == []
            for path in of_parts:
                attrgetter(path)(one)
