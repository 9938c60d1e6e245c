"""Rows that kill or stop one process in the middle of a job."""

import json
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import fault_judge as judge
from benchmarks import fault_plants as plants
from benchmarks.fault_list import BIN
from benchmarks.fault_model import Answer, Fault, Kind, Shape
from benchmarks.fault_run import wait
from benchmarks.fault_sites import AnySite
from benchmarks.matrix.lines import WRITER, Missed, missed_of
from benchmarks.matrix.model import STATE_LIMIT, Group, Row, Tally
from benchmarks.matrix.scene import START_LIMIT, Scene, ended, job_file, playing
from benchmarks.matrix.sites import Sites
from rankdeck.demo.cluster import NODES

FIRST_LINES = 20
"""Lines of each rank that are written before anything is harmed."""
FAST, SLOW = 0.02, 0.1
"""Seconds between two lines of a rank: in a row that kills, and in one that stops."""
AFTER = 8.0
"""Seconds for which ranks still write after a process was let go on."""
NODE, RANK = "sakura", 3
"""A node of the embedded cluster that has no launcher, and a rank there."""
FIRST = "sakuya"
LAB_NODE = "n2"
PROGRAMS = {"mpi": (str(BIN / "mpirun"),), "torchrun": (str(BIN / "torchrun"),)}
LAUNCHERS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "mpi": {"mpi": {"flavour": "openmpi5", "path": PROGRAMS["mpi"][0]}},
    "torchrun": {"nodes": 2, "torch": {"path": PROGRAMS["torchrun"][0]}},
}


def writers(launch: str, count: int, pause: float, **more: Any) -> Shape:
    """A job whose ranks write `count` numbered lines each, and note how far they are.

    Two seconds after a failure the other ranks are stopped.
    """
    run = "${RANKDECK_RUN}"
    command = ["python3", f"{run}/prog.py", str(count), str(pause), run]
    own: dict[str, Any] = {"launch": launch, "files": {"prog.py": WRITER}}
    own |= {"abort": {"countdown": 2}}
    return job_file(command, **{**own, **LAUNCHERS[launch], **more})


def wrote(site: AnySite, job: str) -> dict[int, int]:
    """Rank -> the lines that it has written, as it noted itself."""
    files = (f for node in site.nodes() for f in site.folder(job, node).glob("wrote.*"))
    return {int(file.suffix[1:]): int(file.read_text() or 0) for file in files}


def began(scene: Scene, least: int = FIRST_LINES) -> None:
    """Wait until every rank has written some lines; raises RuntimeError."""
    scene.start()
    ranks = len(scene.shape()["ranks"])

    def at_work() -> bool:
        counts = wrote(scene.site, scene.job)
        return len(counts) == ranks and min(counts.values()) >= least

    if not wait(at_work, START_LIMIT):
        raise RuntimeError(f"the ranks do not write: {scene.words()}")


def shown_by_logs(site_ask: Any, job: str) -> list[str]:
    """The lines of all ranks as `logs` prints them."""
    told: subprocess.CompletedProcess[str] = site_ask("logs", job, "--json")
    if told.returncode:
        raise RuntimeError(f"`logs` ended with {told.returncode}: {told.stderr[-500:]}")
    texts = [json.loads(line) for line in told.stdout.splitlines()]
    return [one["text"] for one in texts if one["rank"] is not None]


def on_disk(site: AnySite, job: str) -> dict[int, int]:
    """Rank -> the whole lines of it that are in the log on its node."""
    files = (f for node in site.nodes() for f in site.folder(job, node).glob("rank.*/out"))
    return {int(file.parent.suffix[1:]): file.read_bytes().count(b"\n") for file in files}


def counted(scene: Scene, truth: Mapping[int, int] | None = None) -> Missed:
    """Bytes lost or doubled by `run`, and by `logs` afterwards, together.

    `truth` is rank -> the lines that it wrote; None: as the ranks noted themselves.
    """
    truth = wrote(scene.site, scene.job) if truth is None else truth
    one, two = (
        missed_of(scene.lines(), truth),
        missed_of(shown_by_logs(scene.ask, scene.job), truth),
    )
    return Missed(one.lost + two.lost, one.doubled + two.doubled)


# ---- one process is killed ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A process that is harmed, and what the console has to say of that."""

    name: str
    find: plants.Find
    launch: str = "plain"
    lab: bool = False
    """Needs a real sshd: the namespace lab."""
    state: str = "done"
    """How the job ends where it is killed."""
    right: Answer | None = None
    """Who is to blame then; None: nobody."""
    code: int = 0
    """Exit code of `run` then."""
    reads: bool = False
    """It reads what ranks write: what it had not read yet when it was killed is gone with it."""
    short: bool = False

    def site(self, sites: Sites) -> AnySite:
        return sites.lab if self.lab else sites.demo

    def lacking(self) -> str:
        """Where its launcher should be and is not, or ""."""
        return plants.need(*PROGRAMS.get(self.launch, ()))()


VICTIMS = (
    Victim(
        name="supervisor",
        find=plants.supervisor_on(NODE),
        state="failed",
        right=Answer(node=NODE, what="launcher", word="supervisor"),
        code=1,
        reads=True,
        short=True,
    ),
    Victim(name="shim", find=plants.shim_of(RANK), short=True),
    Victim(
        name="mpirun",
        find=plants.program_on(("mpirun", "prterun"), FIRST),
        launch="mpi",
        state="failed",
        right=Answer(node=FIRST, what="launcher", word="mpirun|SIGKILL"),
        code=128 + signal.SIGKILL,
        short=True,
    ),
    Victim(
        name="torchrun",
        find=plants.program_on(("torchrun",), NODE),
        launch="torchrun",
        state="failed",
        right=Answer(node=NODE, what="launcher", word="torchrun|SIGKILL"),
        code=128 + signal.SIGKILL,
    ),
    Victim(
        name="rank",
        find=plants.rank_of(RANK),
        state="failed",
        right=Answer(ranks=frozenset({RANK}), word="SIGKILL|signal 9"),
        code=128 + signal.SIGKILL,
        short=True,
    ),
    Victim(name="connection", find=plants.connections_on(LAB_NODE), lab=True),
)


def kill(victim: Victim, sites: Sites) -> Tally:
    """Kill it after the first lines; the job ends as it has to."""
    job = writers(victim.launch, 200, FAST)
    with playing(victim.site(sites), job) as scene:
        began(scene)
        at = plants.signal_to(signal.SIGKILL, victim.find, victim.name)(scene.site, scene.job)
        assert at is not None
        code = scene.finish()
        return judged(scene, victim, at, code)


def judged(scene: Scene, victim: Victim, at: float, code: int | None) -> Tally:
    """What `run`, the console beside it, `jobs` and `logs` said of a process that was killed."""
    seen = scene.watch.seen[scene.job]
    outcome = judge.outcome(_fault(victim), seen, at, "", alike=True)
    wrong = [f"{outcome.named} was blamed"] if outcome.verdict == judge.WRONG else []
    wrong += ["blamed somebody else first"] if outcome.changed else []
    if victim.right and not (outcome.explained or wrong):
        wrong.append(f"not explained: {outcome.said[:200]!r}")
    wrong += misstated(scene, victim.state, code, victim.code)
    shown = seen[-1].job["state"]
    missing = counted(scene, on_disk(scene.site, scene.job) if victim.reads else None)
    late = outcome.seconds if victim.right else None
    silent = outcome.verdict == judge.SILENT
    return ended(
        scene,
        state="somebody to blame" if silent else victim.state,
        seconds=late,
        missing=missing,
        wrong=wrong,
        note=f"{shown}; named {outcome.named}{_unread(scene)}",
    )


def _unread(scene: Scene) -> str:
    """What never reached the disk of a node, in words."""
    disk = on_disk(scene.site, scene.job)
    truth = wrote(scene.site, scene.job)
    gone = sum(max(count - disk.get(rank, 0), 0) for rank, count in truth.items())
    return f"; {gone} lines had not been read from the ranks" if gone else ""


def misstated(scene: Scene, state: str, code: int | None, right: int) -> list[str]:
    """Where `run` and `jobs` say something else of the end."""
    said = [f"`run` ended with {code}, not {right}"] if code != right else []
    said += ["a traceback"] if "Traceback" in scene.words() else []
    listed = listed_state(scene.ask, scene.job)
    return said + ([f"`jobs` says {listed}, not {state}"] if listed != state else [])


def listed_state(ask: Any, job: str) -> str:
    """The state of a job as `jobs` says it."""
    told: subprocess.CompletedProcess[str] = ask("jobs", "--json")
    jobs = (json.loads(line) for line in told.stdout.splitlines())
    return next((one["state"] for one in jobs if one["job"] == job), "")


def _fault(victim: Victim) -> Fault:
    kind = Kind.FAILURE if victim.right else Kind.HEALTHY
    right = victim.right or Answer()
    return Fault(name=victim.name, launcher=victim.launch, job="", right=right, kind=kind)


def crash(nodes: Sequence[str], sites: Sites) -> Tally:
    """Kill nodes with all that runs there; once they are back, it
    is said what became of the job.
    """
    site = sites.demo
    with playing(site, writers("plain", 1000, FAST, abort={"enabled": False})) as scene:
        began(scene)
        begin = time.monotonic()
        for node in nodes:
            site.crash(node)
        wait(lambda: {"lost"} == set().union(*map(scene.states, nodes)), STATE_LIMIT * 2)
        seconds = time.monotonic() - begin
        wrong = unread(scene, nodes)
        site.mend()
        code = scene.finish()
        blamed = judge.blame_of(scene.shape())
        if blamed is None or blamed.node not in nodes:
            wrong.append(f"{judge.who(blamed)} was blamed")
        wrong += misstated(scene, "failed", code, 1)
        # Who reads the ranks died with them: what it had not read is on no disk.
        missing = counted(scene, on_disk(site, scene.job))
        return ended(
            scene, state="failed", seconds=seconds, missing=missing, wrong=wrong,
            note=_unread(scene).removeprefix("; "),
        )  # fmt: skip


def unread(scene: Scene, nodes: Sequence[str]) -> list[str]:
    """Where `logs` does not show what the other nodes have, while these are gone."""
    others = {rank["rank"] for rank in scene.shape()["ranks"] if rank["node"] not in nodes}
    try:
        lines = shown_by_logs(scene.ask, scene.job)
    except subprocess.TimeoutExpired:
        return ["`logs` did not end while a node was gone"]
    truth = {rank: n for rank, n in wrote(scene.site, scene.job).items() if rank in others}
    missing = missed_of([x for x in lines if int(x.split()[1]) in others], truth)
    return [f"`logs` missed {missing.lost} bytes of other nodes"] if missing.lost else []


def _crash_row(name: str, does: str, nodes: Sequence[str]) -> Row:
    run = partial(crash, nodes)
    return Row(name=name, group=Group.PROCESSES, does=does, run=run)


CRASHES = (
    _crash_row("kill.demo-node", "kill -9 of all that runs on a node", (NODE,)),
    _crash_row("kill.demo", "kill -9 of all nodes", NODES),
)
KILLS = tuple(
    Row(
        name=f"kill.{victim.name}",
        group=Group.PROCESSES,
        does=f"kill -9 of the {victim.name} in mid-job",
        run=partial(kill, victim),
        short=victim.short,
        lacking=victim.lacking,
    )
    for victim in VICTIMS
)
ROWS = (*KILLS, *CRASHES)
