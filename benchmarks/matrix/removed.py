"""Rows in which somebody takes away what a job keeps on a node: its run folder, or a log."""

import shutil
import time
from collections.abc import Callable

from benchmarks.fault_run import wait
from benchmarks.matrix.consoles import cancelled_by_command
from benchmarks.matrix.lines import line, missed_of
from benchmarks.matrix.model import STATE_LIMIT, Group, Row, Tally
from benchmarks.matrix.processes import FAST, NODE, RANK, began, misstated, writers, wrote
from benchmarks.matrix.scene import ended, playing
from benchmarks.matrix.sites import Sites

GONE = "is gone (removed, or its file system is not mounted)"
TAKEN_OUT = "bytes are gone (the log was emptied, moved or removed)"


def remove_folder(sites: Sites) -> Tally:
    """Remove the run folder on a node: it is said, and cancel ends what runs there all the same."""
    with playing(sites.demo, writers("plain", 10_000, FAST, abort={"enabled": False})) as scene:
        began(scene)
        begin = time.monotonic()
        shutil.rmtree(scene.site.folder(scene.job, NODE))
        wait(lambda: GONE in scene.words(), STATE_LIMIT * 2)
        seconds = time.monotonic() - begin
        wrong = [] if GONE in scene.words() else [f"`run` did not say it: {scene.words()[-200:]}"]
        wrong += cancelled_by_command(scene)
        wrong += misstated(scene, "cancelled", scene.finish(), 130)
        return ended(scene, state="cancelled", seconds=seconds, wrong=wrong)


def empty_log(sites: Sites) -> Tally:
    """Empty the log of a rank: `run` shows all that it writes later, and says how much is gone."""
    with playing(sites.demo, writers("plain", 500, FAST)) as scene:
        began(scene)
        (scene.site.folder(scene.job, NODE) / f"rank.{RANK}/out").write_bytes(b"")
        before = wrote(scene.site, scene.job)[RANK]
        code = scene.finish()
        # What the node had not sent yet is gone with the log; all later lines must come.
        unsent = {line(RANK, number) for number in range(before + 1)} - {*scene.lines()}
        missing = missed_of([*scene.lines(), *unsent], wrote(scene.site, scene.job))
        wrong = misstated(scene, "done", code, 0)
        wrong += [] if TAKEN_OUT in scene.words() else ["`run` did not say that bytes are gone"]
        return ended(scene, state="done", seconds=None, missing=missing, wrong=wrong)


def _row(name: str, does: str, run: Callable[[Sites], Tally]) -> Row:
    return Row(name=f"space.{name}", group=Group.SPACE, does=does, run=run, short=True)


ROWS = (
    _row("folder-removed", "run folder removed on a node in mid-job, cancel", remove_folder),
    _row("log-emptied", "log of a rank emptied in mid-job", empty_log),
)
