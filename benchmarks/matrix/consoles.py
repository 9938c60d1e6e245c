"""Rows in which consoles are killed, or two of them do things to one job at once."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial

from tests.support.terminal import terminal

from benchmarks import fault_plants as plants
from benchmarks.fault_judge import blame_of
from benchmarks.fault_run import wait
from benchmarks.fault_sites import AnySite
from benchmarks.matrix.lines import missed_of
from benchmarks.matrix.model import STATE_LIMIT, Group, Row, Tally
from benchmarks.matrix.processes import (
    FAST,
    NODE,
    RANK,
    began,
    counted,
    listed_state,
    misstated,
    writers,
    wrote,
)
from benchmarks.matrix.scene import (
    END_LIMIT,
    START_LIMIT,
    Scene,
    ask,
    console_of,
    ended,
    playing,
    rankdeck,
)
from benchmarks.matrix.sites import Sites
from rankdeck.values import replace

LINES, PAUSE = 300, 0.1
"""Of each rank: half a minute, however slowly a command starts on a busy machine."""

# ---- consoles that are killed ------------------------------------------------------------


def kill_run(sites: Sites) -> Tally:
    """Kill `run` and the console beside it; a new one finds the job, and all that it wrote."""
    with playing(sites.demo, writers("plain", LINES, PAUSE)) as scene:
        began(scene, 10)
        for pid in (console_of(scene.process), scene.watch.process.pid):
            os.kill(pid, signal.SIGKILL)
        tally = found_again(scene.site, scene.job)
        return replace(tally, memory=scene.cost.memory, cpu=scene.cost.cpu)


def found_again(site: AnySite, job: str) -> Tally:
    """What new consoles say of a job that nobody follows, and show of its output."""
    verb = partial(ask, site)
    begin = time.monotonic()
    found = listed_state(verb, job)
    took = time.monotonic() - begin
    followed = ask(site, "logs", job, "--follow", limit=END_LIMIT)
    lines = [line.partition("] ")[2] for line in followed.stdout.splitlines()]
    missing = missed_of(lines, wrote(site, job))
    state = listed_state(verb, job)
    wrong = [f"`logs --follow` said: {followed.stderr.strip()[-200:]}"] if followed.stderr else []
    wrong += [f"`jobs` said {found} of a job that runs"] if found != "running" else []
    return Tally(
        lost=missing.lost,
        doubled=missing.doubled,
        left=len([*plants.processes(job)]),
        state=state,
        right=state == "done",
        wrong=tuple(wrong),
        note=f"`jobs` took {took:.1f} s, its start and the load of the machine included",
    )


@contextmanager
def printing(site: AnySite, *words: str) -> Generator[subprocess.Popen[str]]:
    """A command of ours that prints until it is ended."""
    argv = rankdeck(site, *words)
    with subprocess.Popen(
        argv,
        env=site.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def kill_logs(sites: Sites) -> Tally:
    """Kill `logs --follow`; the next one shows everything, and `run` does not notice."""
    with playing(sites.demo, writers("plain", LINES, PAUSE)) as scene:
        began(scene, 10)
        with printing(scene.site, "logs", scene.job, "--follow") as reader:
            assert reader.stdout
            first = [reader.stdout.readline() for _ in range(50)]
            os.kill(console_of(reader), signal.SIGKILL)
        followed = found_again(scene.site, scene.job)
        code = scene.finish()
        cut = [] if len(first) == 50 else ["`logs --follow` printed nothing"]
        return _both(scene, followed, [*cut, *misstated(scene, "done", code, 0)])


def kill_screen(sites: Sites) -> Tally:
    """Kill a console on a terminal; the next one shows everything, and `run` does not notice."""
    with playing(sites.demo, writers("plain", LINES, PAUSE)) as scene:
        began(scene, 10)
        argv = rankdeck(scene.site, "attach", scene.job)
        with terminal(argv, scene.site.environment()) as shown:
            shown.wait_for("line ")
            shown.process.kill()
        followed = found_again(scene.site, scene.job)
        code = scene.finish()
        return _both(scene, followed, misstated(scene, "done", code, 0))


def _both(scene: Scene, followed: Tally, wrong: Sequence[str]) -> Tally:
    """What `run` shows, and what a console shows that came later."""
    shown = missed_of(scene.lines(), wrote(scene.site, scene.job))
    return replace(
        followed,
        lost=(followed.lost or 0) + shown.lost,
        doubled=(followed.doubled or 0) + shown.doubled,
        wrong=(*followed.wrong, *wrong),
        memory=scene.cost.memory,
        cpu=scene.cost.cpu,
    )


# ---- two consoles, and moments that are hard to hit --------------------------------------


def two_cancels(sites: Sites) -> Tally:
    """Two commands cancel the same job at once: both prove it, and say the same."""
    with playing(sites.demo, writers("plain", 10_000, FAST)) as scene:
        began(scene, 10)
        argv = rankdeck(scene.site, "cancel", scene.job, "--json")
        both = [_quiet(argv, scene.site) for _ in range(2)]
        reports = [process.communicate(timeout=END_LIMIT) for process in both]
        wrong = [word for one, (out, err) in zip(both, reports, strict=True)
                 for word in _wrong_report(one.returncode, out, err)]  # fmt: skip
        return _cancelled(scene, wrong)


def _quiet(argv: Sequence[str], site: AnySite) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        argv, env=site.environment(), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
    )


def _wrong_report(code: int, out: str, err: str) -> list[str]:
    """Where a `cancel --json` does not prove that the job was cancelled."""
    try:
        report = json.loads(out)
    except ValueError:
        return [f"`cancel` ended with {code}: {err.strip()[-200:]}"]
    right: dict[str, object] = {"state": "cancelled", "left": [], "unverified": {}}
    return [f"`cancel`: {k} is {report[k]}" for k, v in right.items() if report[k] != v] + (
        [f"`cancel` ended with {code}"] if code else []
    )


def cancelled_by_command(scene: Scene) -> list[str]:
    """Cancel it by another command; where that does not prove that the job was cancelled."""
    done = scene.ask("cancel", scene.job, "--json")
    return _wrong_report(done.returncode, done.stdout, done.stderr)


def _cancelled(scene: Scene, wrong: Sequence[str]) -> Tally:
    """The tally of a job that was cancelled from elsewhere: `run` says so, and blames nobody."""
    code = scene.finish()
    blamed = blame_of(scene.shape())
    said = [f"blamed {blamed.what} {blamed.ranks} on {blamed.node}"] if blamed else []
    said += misstated(scene, "cancelled", code, 130)
    missing = counted(scene)
    seconds = _until_cancelled(scene)
    wrong = (*wrong, *said)
    return ended(scene, state="cancelled", seconds=seconds, missing=missing, wrong=wrong)


def _until_cancelled(scene: Scene) -> float | None:
    """Seconds from the first node that was asked to cancel to the state that a console shows."""
    files = (scene.site.folder(scene.job, node) / "events" for node in scene.site.nodes())
    rows = (x for file in files if file.exists() for x in file.read_text().splitlines())
    asked = [event["at"] for event in map(json.loads, rows) if event["kind"] == "cancel"]
    seen = scene.watch.seen.get(scene.job, [])
    shown = [one.at for one in seen if one.job["state"] == "cancelled"]
    return shown[0] - min(asked) if asked and shown else None


def cancel_at_start(launch: str, told: str, sites: Sites) -> Tally:
    """Cancel a job that is just being started: nothing of it is left."""
    with playing(sites.demo, writers(launch, 10_000, FAST)) as scene:
        if not wait(lambda: told in scene.words(), START_LIMIT):
            raise RuntimeError(f"`run` did not say `{told}`: {scene.words()}")
        done = _cancel_newest(scene)
        wrong = _wrong_report(done.returncode, done.stdout, done.stderr)
        if not wait(lambda: scene.job, START_LIMIT):
            wrong.append(f"`run` named no job: {scene.words()}")
        scene.watch.order(follow=scene.job)
        return _cancelled(scene, wrong)


def _cancel_newest(scene: Scene) -> subprocess.CompletedProcess[str]:
    """Cancel the newest job by its name, as soon as it is known and has not ended."""

    def known() -> bool:
        jobs = [json.loads(x) for x in scene.ask("jobs", "--json").stdout.splitlines()]
        return bool(jobs) and jobs[0]["state"] in ("pending", "running")

    if not wait(known, START_LIMIT):
        raise RuntimeError("the job is not known")
    return scene.ask("cancel", "matrix", "--json")


def keep(sites: Sites) -> Tally:
    """A rank fails; who keeps the others running in one console keeps them in all."""
    job = writers("plain", 200, PAUSE, abort={"countdown": 8})
    with playing(sites.demo, job) as scene:
        began(scene, 10)
        at = plants.signal_rank(signal.SIGKILL, RANK)(scene.site, scene.job)
        assert at is not None
        wait(lambda: blame_of(scene.shape()), STATE_LIMIT)
        seconds = time.time() - at
        wait(lambda: "stopping the other ranks in" in scene.words(), STATE_LIMIT)
        scene.watch.order(keep=scene.job)
        code = scene.finish()
        missing = counted(scene)
        ranks = {r["rank"]: r["state"] for r in scene.shape()["ranks"]}
        wrong = [f"rank {r} is {s}" for r, s in ranks.items() if r != RANK and s != "done"]
        wrong += misstated(scene, "failed", code, 128 + signal.SIGKILL)
        if "kept running" not in scene.words():
            wrong.append(f"`run` did not say that the others are kept running: {scene.words()}")
        return ended(scene, state="failed", seconds=seconds, missing=missing, wrong=wrong)


def launch_without_a_node(sites: Sites) -> Tally:
    """Launch while a node is down: it is named, and nothing runs on the others."""
    site = sites.demo
    site.crash(NODE)
    begin = time.monotonic()
    with playing(site, writers("plain", 10_000, FAST)) as scene:
        wait(lambda: NODE in scene.words() or scene.over(), END_LIMIT)
        seconds = time.monotonic() - begin
        wait(scene.over, END_LIMIT)
        words = scene.words()
        jobs = [json.loads(x) for x in scene.ask("jobs", "--json").stdout.splitlines()]
        scene.job = jobs[0]["job"] if jobs else ""
        state = jobs[0]["state"] if jobs else ""
        wrong = [] if NODE in words else [f"{NODE} was not named: {words[-200:]}"]
        wrong += [] if scene.process.returncode == 1 else [f"code {scene.process.returncode}"]
        wrong += ["a traceback"] if "Traceback" in words else []
        return Tally(
            left=scene.left(),
            state=state,
            right=state == "failed",
            seconds=seconds,
            wrong=tuple(wrong),
            memory=scene.cost.memory,
            cpu=scene.cost.cpu,
        )


def _row(name: str, does: str, run: Callable[[Sites], Tally], *, short: bool = False) -> Row:
    return Row(name=name, group=Group.PROCESSES, does=does, run=run, short=short)


ROWS = (
    _row("kill.run", "kill -9 of `run` and of the console beside it", kill_run, short=True),
    _row("kill.logs", "kill -9 of `logs --follow`", kill_logs),
    _row("kill.screen", "kill -9 of a console on a terminal", kill_screen),
    _row("two.cancels", "two commands cancel one job at once", two_cancels, short=True),
    _row("two.keep", "one console keeps what the other would stop", keep, short=True),
    _row(
        "start.cancel",
        "cancel while nodes are told to start",
        partial(cancel_at_start, "plain", "starting on"),
        short=True,
    ),
    _row(
        "start.cancel.mpi",
        "cancel while mpirun starts its daemons",
        partial(cancel_at_start, "mpi", ": pending on"),
    ),
    _row("start.node-down", "launch while a node is down", launch_without_a_node),
)
