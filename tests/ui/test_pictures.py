"""Every screen looks as it did when somebody looked at it, at
three sizes, in letters and in colours.

`make pictures` draws all of them again. Look at what changed (`git diff
tests/ui/pictures`) before it is committed.
"""

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rankdeck.model.process import NodeProcess
from rankdeck.ui.app import RankdeckApp
from rankdeck.ui.screens import processes
from rankdeck.values import replace
from rankdeck_agent.wire import Event, Hello
from tests.support.acceptance_run import Port, made_run, slow_sender
from tests.support.scaling_study import ScalingPort, falling
from tests.ui.support import sample, scenes
from tests.ui.support.sample import Simulation
from tests.ui.support.stage import Stage, cluster_of
from tests.ui.test_node_page import machine
from tests.ui.test_screens import console, shows, text_of

FOLDER = Path(__file__).parent / "pictures"
RENEW = bool(os.environ.get("RANKDECK_RENEW"))
SIZES = ((200, 50), (120, 40), (80, 24))
NOW = 1_800_000_000.0
GIB = 1 << 30
QUIET = 1.5
"""Seconds without a change after which a new picture is taken as it is."""


class Clock:
    """Stands still unless a scene moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", lambda: NOW + clock.now - 1000.0)
    monkeypatch.setattr(Stage, "clock", clock)
    # One look: a second one would count lines.
    monkeypatch.setattr(processes, "PERIOD", 3600.0)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(sample, "INVENTORY", {"kernel": "6.8.0", "cpu.model": "EPYC", "gpu.0.model": "H100"})  # fmt: skip
    return clock


# ---- what there is to see


def fleet(clock: Clock, count: int, seconds: int = 60) -> Stage:
    """Nodes that were watched for a while: one silent, one hot; a
    job that failed and one that runs.
    """
    stage = Stage(cluster_of(count))
    simulation = Simulation(stage)
    event = Event(
        NOW, "bad", "kernel.xid", "Xid 79, GPU has fallen off the bus · reboot", "0000:18:00"
    )
    for second in range(seconds):
        if second == seconds - 1:
            stage.fleet.apply(stage.cluster.nodes[0].name, event)
        simulation.step()
        clock.now += 1
        stage.fleet.take_changes()
    return stage


def busy(clock: Clock) -> Stage:
    stage = fleet(clock, 3)
    stage.start("train-1121-143005-3f2a", 2, 4)
    failed = stage.start("hello-1121-120000-aaaa", 2, 2)
    stage.tell(failed, "node02", "exited", rank=2, code=1)
    return stage


def crowd(clock: Clock) -> Stage:
    return fleet(clock, 1000, 12)


def sick(clock: Clock) -> Stage:
    stage = machine(gpu="hot", rdma="flap", seconds=90)
    stage.fleet.apply("gpu01", replace(stage.fleet.node("gpu01").hello or Hello(""), period=600.0))
    del clock
    return stage


def told(clock: Clock) -> Stage:
    stage = fleet(clock, 3, 3)
    for level, text in ((logging.INFO, "sample clusters are read"), (logging.ERROR, "node02: no Python 3.9 there; install python3")):  # fmt: skip
        record = {"name": "rankdeck", "msg": text, "levelno": level, "levelname": logging.getLevelName(level), "created": NOW}  # fmt: skip
        stage.messages.handle(logging.makeLogRecord(record))
    return stage


def accepted(clock: Clock) -> Stage:
    stage = fleet(clock, 3, 3)
    stage.acceptance = Port(current=made_run(8, slow_sender("n3")))
    return stage


def scaled(clock: Clock) -> Stage:
    stage = fleet(clock, 3, 3)
    stage.scaling = ScalingPort(current=falling())
    return stage


def working(clock: Clock) -> Stage:
    stage = fleet(clock, 3, 3)
    more = {"user": "ml", "state": "S", "read": 0, "write": 0}
    stage.running = [
        NodeProcess(node="node01", pid=4242, start=1, command="python train.py", cpu=7.9, rss=9 * GIB, gpus={"0": 70 * GIB}, **more),
        NodeProcess(node="node01", pid=77, start=1, command="sshd: ml", cpu=0.0, rss=GIB // 200, **more),
    ]  # fmt: skip
    return stage


def still(_: Clock) -> Stage:
    return scenes.hanging()


def failing(_: Clock) -> Stage:
    return scenes.failing()


Scene = tuple[Callable[[Clock], Stage], tuple[str, ...], str]
SCENES: dict[str, Scene] = {
    "fleet": (busy, (), "Xid 79"),
    "fleet-1000": (crowd, (), "mean"),
    "node": (sick, ("enter",), "4 × Simulated GPU"),
    "jobs": (busy, ("2",), "FIRST FAILURE"),
    "job-failed": (failing, ("job",), "failed first"),
    "job-stalled": (still, ("job",), "stalled"),
    "job-collapsed": (still, ("job", "c"), "x31"),
    "job-merged": (still, ("job", "M"), "by time"),
    "job-inspect": (still, ("job", "i"), "answer"),
    "job-ranks": (still, ("job", "h"), "SILENT"),
    "job-swap": (failing, ("job", "Z"), "Start up to"),
    "job-cancel": (failing, ("job", "x"), "cancel"),
    "launch": (busy, ("files", "3"), "JOB FILE"),
    "messages": (told, ("4",), "no Python 3.9"),
    "events": (busy, ("5",), "Xid 79"),
    "accept": (accepted, ("6",), "n3"),
    "accept-pair": (accepted, ("6", "enter"), "of the median"),
    "scaling": (scaled, ("7",), "pays up to"),
    "processes": (working, ("h",), "4242"),
    "help": (busy, ("question_mark",), "Everywhere"),
    "palette": (busy, ("ctrl+p",), "acknowledge  a"),
}
"""Name -> how it comes about, the keys that lead there, what is on it."""


# ---- and how it is compared


def picture(app: RankdeckApp) -> str:
    """The screen as text, and below it how many signs have which colours."""
    strips = app.screen._compositor.render_strips()
    signs: Counter[str] = Counter()
    for segment in (segment for strip in strips for segment in strip):
        signs[str(segment.style)] += sum(not sign.isspace() for sign in segment.text)
    styles = (f"{number:6} {style}" for style, number in sorted(signs.items()) if number)
    return "\n".join((text_of(app), "", *styles))


async def opened(app: RankdeckApp, pilot, keys: tuple[str, ...], text: str) -> None:
    for key in keys:
        if key == "job":
            app.open_job(scenes.JOB)
            await shows(app, pilot, scenes.JOB)
        elif key == "files":
            jobs = Path(__file__).parents[2] / "sample-clusters/jobs"
            app.session.files = tuple(jobs / f"{name}.yaml" for name in ("mpi-hello", "stencil"))
        else:
            await pilot.press(key)
            await pilot.pause(0.2)
    await shows(app, pilot, text)


async def settled(app: RankdeckApp, pilot) -> str:
    """The picture once it changes no more."""
    seen, since = picture(app), time.monotonic()
    while time.monotonic() - since < QUIET:
        await pilot.pause(0.1)
        if (now := picture(app)) != seen:
            seen, since = now, time.monotonic()
    return seen


async def come(app: RankdeckApp, pilot, wanted: str) -> str:
    """The picture as soon as it is the one that is wanted, else the last one."""
    deadline = time.monotonic() + 10
    while picture(app) != wanted and time.monotonic() < deadline:
        await pilot.pause(0.05)
    return picture(app)


@pytest.mark.long
@pytest.mark.parametrize("name", SCENES)
async def test_a_screen_looks_as_it_did(name: str, clock: Clock) -> None:
    build, keys, text = SCENES[name]
    async with console(build(clock), SIZES[0]) as (app, pilot):
        await opened(app, pilot, keys, text)
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            file = FOLDER / f"{name}-{width}.txt"
            if RENEW:
                file.write_text(await settled(app, pilot) + "\n")
            wanted = file.read_text().rstrip("\n")
            assert await come(app, pilot, wanted) == wanted


def test_there_is_a_picture_of_every_screen_at_every_size_and_no_other() -> None:
    wanted = {f"{name}-{width}.txt" for name in SCENES for width, _ in SIZES}

    assert {file.name for file in FOLDER.iterdir()} == wanted
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 400_000
