"""What is said of a job is the same while it ends, from another console, and
after all were closed and opened again.
"""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_main_path import Console, demo_console
from tests.support.polling import until
from textual.geometry import Size

from rankdeck.cli import choose
from rankdeck.cli.shapes import job_shape
from rankdeck.demo import cluster as demo
from rankdeck.model.cancel_report import ProofState
from rankdeck.model.job import Job
from rankdeck.model.rank import State
from rankdeck.opening import open_cluster_session
from rankdeck.rules.progress import last_run
from rankdeck.session import Session
from rankdeck.ui.screens.job_head import head_lines
from rankdeck.ui.themes import UNICODE
from rankdeck.values import field_names, replace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
RANKS = 4
VICTIM = "sakura"
"""The node that is crashed: ranks 2 and 3 are there."""
Shape = dict[str, Any]
HEAD = "job: {name}\nlaunch: {launch}\nnodes: 2\nranks_per_node: 2\ngrace: 1\nabort: {{countdown: 1}}\n"
TWO_SECONDS = '[ "$RANK" = 2 ] && { sleep 1; %s; }; sleep 60'


@dataclass(frozen=True)
class Kind:
    """A way to end: the command of the job, how it is said to end, and a part of what is said."""

    command: str
    state: State = State.FAILED
    said: str = ""
    launch: str = "plain"
    lines: int = 0
    """Of each rank, where that is known."""
    how: str = ""
    """What is done to it once every rank has written: see `do_to`."""


def shell(text: str) -> str:
    return json.dumps(["sh", "-c", text])


def python(text: str) -> str:
    return json.dumps(["python3", "-c", text])


KINDS = {
    "not-found": Kind('["/opt/none/solver", "-x"]', said="exit 127"),
    "signal": Kind(shell(TWO_SECONDS % "kill -SEGV $$"), said="signal 11 (SIGSEGV)"),
    "traceback": Kind(
        python(
            "import os, time\nif os.environ['RANK'] == '2': time.sleep(1); {}['lr']\ntime.sleep(60)"
        ),
        said="exit 1",
    ),
    "mpi-abort": Kind(
        python(
            "from mpi4py import MPI; import time; w = MPI.COMM_WORLD; print('rank', w.rank, flush=True)\n"
            "if w.rank == 2: time.sleep(1); w.Abort(7)\ntime.sleep(60)"
        ),
        said="exit 7",
        launch="mpi",
    ),
    "cancel": Kind(shell("echo here; sleep 60"), state=State.CANCELLED, how="cancel"),
    "cancel-elsewhere": Kind(
        shell("echo here; sleep 60"), state=State.CANCELLED, how="cancel elsewhere"
    ),
    "node-lost": Kind(shell("echo here; sleep 60"), said="node sakura", how="crash"),
    "lines": Kind(
        python("for i in range(200_000): print('line', i)"), state=State.DONE, lines=200_000
    ),
}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with demo_console(tmp_path_factory.mktemp("reopened")) as console:
        yield console


@pytest.fixture
def folders(console: Console, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """The same folders for this process as for the command line; a node
    that was crashed is up again after it.
    """
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, console.env[name])
    monkeypatch.delenv("RANKDECK_STATE", raising=False)
    yield console
    demo.start_demo()


@asynccontextmanager
async def opened() -> AsyncIterator[Session]:
    async with open_cluster_session(choose.choose_cluster("demo")) as session:
        yield session


def shape(job: Job) -> Shape:
    return without_kernel(json.loads(json.dumps(job_shape(job))))


def without_kernel(job: Shape) -> Shape:
    """Without the kernel log: that of this machine may speak of another
    test at any moment, also after the job.
    """
    return {**job, "nodes_said": [one for one in job["nodes_said"] if not of_kernel(one["check"])]}


def of_kernel(check: str) -> bool:
    return check.startswith("kernel.")


def quiet(job: Job) -> Job:
    """The same of a snapshot."""
    return replace(job, node_notes=tuple(n for n in job.node_notes if not of_kernel(n.check)))


async def over(session: Session, job_id: str) -> Job:
    """The job once it has ended and all its output is here."""
    await until(lambda: session.jobs.knows(job_id), limit=60)
    await until(lambda: session.jobs.job(job_id).state.final, limit=60)
    await session.following.finished(job_id)
    return session.jobs.job(job_id)


async def looked_at(session: Session, job_id: str) -> Job:
    """The job once somebody had all output of it fetched."""
    session.following.watch(job_id, range(RANKS), None)
    return await session.following.finished(job_id)


def unlike(one: object, other: object, where: str = "") -> list[str]:
    """Where two shapes differ, every field of it."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted({*one, *other})
        return [
            text for key in keys for text in unlike(one.get(key), other.get(key), f"{where}.{key}")
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [text for place, (a, b) in pairs for text in unlike(a, b, f"{where}[{place}]")]
    return [] if one == other else [f"{where}: {one} != {other}"]


def apart(first: Session, second: Session, job_id: str) -> list[str]:
    """What these consoles do not say alike of a job; what its nodes
    said reaches each at its next look.
    """
    one, other = quiet(first.jobs.job(job_id)), quiet(second.jobs.job(job_id))
    asked = {node for job in (one, other) for node, proof in job.proofs.items() if proof.state is ProofState.NOT_ASKED}  # fmt: skip
    return [
        *(f"{node} is asked what is left" for node in sorted(asked)),
        *(
            f"{name}: {getattr(one, name)} and {getattr(other, name)}"
            for name in field_names(Job)
            if getattr(one, name) != getattr(other, name)
        ),
    ]


def head_of(session: Session, job_id: str) -> list[str]:
    """The lines over the ranks on the job screen, without what the kernel of
    this machine said of others meanwhile.
    """
    job = replace(session.jobs.job(job_id), node_notes=())
    lines = head_lines(job, UNICODE, Size(200, 50), last_run(job, session.jobs.all()))
    return ["".join(text for text, _ in line) for line in lines]


async def launched(session: Session, console: Console, name: str) -> str:
    """Start the job of this kind; gives its id."""
    kind = KINDS[name]
    text = HEAD.format(name=name, launch=kind.launch) + f"command: {kind.command}\n"
    job_id = await session.control.launch(
        session.control.read_job(Path(console.file(f"{name}.yaml", text)))
    )
    session.following.watch(job_id, range(RANKS))
    return job_id


async def everybody_wrote(session: Session, job_id: str) -> None:
    await until(lambda: all(one.lines for one in session.jobs.job(job_id).ranks), limit=30)


async def crash(node: str) -> None:
    """End every process of a virtual node at once."""
    (record,) = [one for one in demo.demo_status().nodes if one.name == node]
    os.kill(record.pid, signal.SIGKILL)


async def do_to(job_id: str, how: str, first: Session, second: Session) -> None:
    """Carry out what ends a job of this kind."""
    if how:
        await everybody_wrote(first, job_id)
    if how == "crash":
        await crash(VICTIM)
    elif how:
        await (second if "elsewhere" in how else first).control.cancel(job_id)


@pytest.mark.left_out(
    "cancel-elsewhere", "mpi-abort", "node-lost", "not-found", "signal", "traceback", "lines"
)
@pytest.mark.parametrize("name", KINDS)
async def test_what_is_said_of_a_job_is_the_same_in_every_console_and_after_reopening(
    folders: Console, name: str
) -> None:
    kind = KINDS[name]
    async with opened() as first, opened() as second:
        job_id = await launched(first, folders, name)
        await until(lambda: second.jobs.knows(job_id), limit=60)
        await do_to(job_id, kind.how, first, second)
        for session in (first, second):
            await over(session, job_id)
        # What the one saw later than the other, or by another clock, reaches it within the second.
        with suppress(AssertionError):
            await until(lambda: not apart(first, second, job_id), limit=60)
        assert not apart(first, second, job_id)
        seen = {"first": first.jobs.job(job_id), "second": second.jobs.job(job_id)}
        seen["watched"] = await looked_at(second, job_id)
        seen["agreed"], head = first.jobs.job(job_id), head_of(first, job_id)
    listed = without_kernel(await asyncio.to_thread(folders.job, job_id))
    async with opened() as again:
        seen["reopened"] = again.jobs.job(job_id)
        assert head_of(again, job_id) == head
        seen["reopened, looked at"] = await looked_at(again, job_id)
        assert head_of(again, job_id) == head
    if kind.how == "crash":
        await asyncio.to_thread(demo.start_demo)
    after = without_kernel(await asyncio.to_thread(folders.job, job_id))

    shapes = {who: shape(job) for who, job in seen.items()} | {"jobs": listed, "then": after}
    unequal = {who: found for who, told in shapes.items() if (found := unlike(listed, told))}
    assert not unequal
    assert listed["state"] == kind.state
    assert kind.said in (seen["first"].first_failure.sentence if kind.said else "")
    written = [rank["lines"] for rank in listed["ranks"]]
    if kind.lines:
        assert written == [kind.lines] * RANKS
    else:
        rows = await asyncio.to_thread(folders.objects, "logs", job_id)
        assert written == [sum(row["rank"] == rank for row in rows) for rank in range(RANKS)]


HANGS = """
import os, time
for step in range(16):
    print("step", step, flush=True)
    time.sleep(0.25)
    if os.environ["RANK"] == "2" and step == 5:
        break
time.sleep(600)
"""


APART = 0.1
"""Seconds between two consoles' times of one event: each measures
the clocks of the nodes for itself.
"""


def stalls(shape: Shape) -> list[Shape]:
    """The stalls of a job, without how long they last by now."""
    return [
        {**one, "text": re.sub(r"(?<=silent for )[^;,]*", "…", one["text"])}
        for one in shape["stalled"]
    ]


async def stalled(session: Session, job_id: str) -> list[Shape]:
    """The stalls once the processes of all ranks were looked at."""
    told = lambda: "hrtimer_nanosleep" in str(session.jobs.job(job_id).stalled)  # noqa: E731
    await until(told, limit=60)
    return stalls(shape(session.jobs.job(job_id)))


@pytest.mark.left_out
async def test_a_stall_is_the_same_in_every_console_and_after_reopening(folders: Console) -> None:
    head = HEAD.format(name="hangs", launch="plain")
    file = Path(folders.file("hangs.yaml", f"{head}command: {python(HANGS)}\n"))
    async with opened() as first, opened() as second:
        job_id = await first.control.launch(first.control.read_job(file))
        seen = {"first": await stalled(first, job_id), "second": await stalled(second, job_id)}
        seen["jobs"] = stalls(await asyncio.to_thread(folders.job, job_id))
        table = (await asyncio.to_thread(folders.run, "jobs")).stdout
    async with opened() as again:
        seen["reopened"] = await stalled(again, job_id)
        head_again = head_of(again, job_id)
        await again.control.cancel(job_id, grace=0.5)

    since = [one.pop("since") for told in seen.values() for one in told]
    assert max(since) - min(since) < APART
    (expected,) = seen["first"]
    assert (expected["kind"], expected["first"]) == ("all", [2])
    assert {who: unlike([expected], told) for who, told in seen.items()} == {
        who: [] for who in seen
    }
    for text in (expected["text"], table, str(head_again)):
        assert "rank 2 on sakura fell silent first" in text
