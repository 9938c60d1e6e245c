"""Rows in which the console changes its version in mid-job, and one with a long history."""

import json
import os
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from benchmarks.fault_run import wait
from benchmarks.fault_sites import DemoSite, demo_site
from benchmarks.matrix.consoles import LINES, PAUSE, found_again, printing
from benchmarks.matrix.model import STATE_LIMIT, Group, Row, Tally
from benchmarks.matrix.processes import began, counted, misstated, writers, wrote
from benchmarks.matrix.scene import START_LIMIT, ask, ended, playing
from benchmarks.matrix.sites import Sites
from benchmarks.measure import ROOT
from rankdeck.config.files import console_state_folder
from rankdeck.model.job import Job
from rankdeck.state.history import History
from rankdeck.values import replace

OLDER = "b6e0a5c"
"""The commit whose jobs these consoles must be able to go on with."""
LENIENT = "2f05c15f"
"""The first one whose consoles leave out what newer ones write, and read nodes that were over
before they asked: these must go on with our jobs.
"""
JOBS = 2_000
RANKS = 6
_GIT_LIMIT = 60.0


def lacking() -> str:
    """Why the older versions cannot be had, or ""."""
    try:
        _git("cat-file", "-e", OLDER)
        _git("cat-file", "-e", LENIENT)
    except (OSError, subprocess.SubprocessError):
        return f"needs git and the commits {OLDER} and {LENIENT}"
    return ""


def _git(*words: str) -> bytes:
    argv = ("git", "-C", str(ROOT), *words)
    return subprocess.run(argv, check=True, capture_output=True, timeout=_GIT_LIMIT).stdout


@contextmanager
def older(site: DemoSite, commit: str) -> Generator[DemoSite]:
    """The same cluster for consoles of the older version, which bring the older agent."""
    with tempfile.TemporaryDirectory(prefix="older.") as name:
        with tarfile.open(fileobj=BytesIO(_git("archive", commit, "console", "agents"))) as tar:
            tar.extractall(name, filter="data")
        path = os.pathsep.join((f"{name}/console", f"{name}/agents", str(ROOT)))
        yield replace(site, variables={**site.variables, "PYTHONPATH": path})


def upgrade(sites: Sites) -> Tally:
    """Begin with the older console and agent, go on with these."""
    with older(sites.demo, OLDER) as old:
        return change(old, sites.demo)


def downgrade(sites: Sites) -> Tally:
    """Begin with these, go on with an older console and agent."""
    with older(sites.demo, LENIENT) as old:
        return change(sites.demo, old)


def change(first: DemoSite, second: DemoSite) -> Tally:
    """Kill the console of one version in mid-job; those of the other go on with it."""
    file = first.place() / "upgrade.json"
    file.write_text(json.dumps(writers("plain", LINES, PAUSE)))
    with printing(first, "run", str(file), "--no-preflight"):
        job = _at_work(first)
    try:
        tally = found_again(second, job)
    finally:
        ask(second, "cancel", job)
    wrong = [] if len(_agents(first)) > 1 else ["both versions bring the same agent"]
    return replace(tally, wrong=(*tally.wrong, *wrong))


def _agents(site: DemoSite) -> set[str]:
    """The agents that consoles have brought to the first node."""
    home = site.layout.node(site.nodes()[0]) / "home/.cache/rankdeck"
    return {file.name for file in home.glob("agent-*.pyz")}


def _at_work(site: DemoSite) -> str:
    """The newest job, once all its ranks have written some lines; raises RuntimeError."""

    def names() -> list[str]:
        listed = ask(site, "jobs", "--json").stdout.splitlines()
        running = (one for one in map(json.loads, listed) if one["state"] == "running")
        return [one["job"] for one in running]

    if not wait(names, START_LIMIT):
        raise RuntimeError("no job runs")
    job = names()[0]
    if not wait(lambda: len(wrote(site, job)) == RANKS, START_LIMIT):
        raise RuntimeError(f"{job}: its ranks do not write")
    return job


def long_history(_: Sites) -> Tally:
    """A job on a cluster of which 2,000 jobs are kept; the list of jobs, too."""
    with demo_site() as site:
        with playing(site, writers("plain", 10, PAUSE)) as scene:
            scene.start()
            scene.finish()
        _copy_jobs(console_state_folder() / "history.db")
        begin = time.monotonic()
        listed = ask(site, "jobs", "--all", "--json", limit=3 * STATE_LIMIT)
        took = time.monotonic() - begin
        with playing(site, writers("plain", 100, PAUSE)) as scene:
            began(scene, 10)
            code = scene.finish()
            wrong = misstated(scene, "done", code, 0)
            missing = counted(scene)
            note = f"{len(listed.stdout.splitlines())} jobs listed in {took:.1f} s"
            return ended(scene, state="done", seconds=took, missing=missing, wrong=wrong, note=note)


def _copy_jobs(path: Path) -> None:
    """Write the newest job 2,000 times into the history, each a second older."""
    with History(path) as history:
        (job,) = history.load("demo")
        for number in range(JOBS):
            history.save(_copy(job, number))


def _copy(job: Job, number: int) -> Job:
    name = f"old-{number:06d}"
    return replace(job, id=name, plan=replace(job.plan, job=name), created=job.created - 1 - number)


ROWS = (
    Row(
        name="upgrade",
        group=Group.PROCESSES,
        does="a job begun by an older console and agent, followed by these",
        run=upgrade,
        lacking=lacking,
    ),
    Row(
        name="downgrade",
        group=Group.PROCESSES,
        does="a job begun by this console and agent, followed by older ones",
        run=downgrade,
        lacking=lacking,
    ),
    Row(
        name="long-history",
        group=Group.PROCESSES,
        does=f"{JOBS} jobs in the history",
        run=long_history,
    ),
)
