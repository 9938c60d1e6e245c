"""Rows that stop one process for a while (SIGSTOP, then SIGCONT):
nothing false may be said after it.
"""

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks import fault_plants as plants
from benchmarks.fault_model import Seen, Shape
from benchmarks.fault_run import wait
from benchmarks.matrix.model import STATE_LIMIT, Group, Row, Tally
from benchmarks.matrix.processes import (
    FIRST,
    LAB_NODE,
    NODE,
    RANK,
    Victim,
    began,
    counted,
    misstated,
    writers,
)
from benchmarks.matrix.scene import (
    END_LIMIT,
    START_LIMIT,
    Scene,
    console_of,
    ended,
    playing,
    untold,
)
from benchmarks.matrix.sites import Sites

SHORT, LONG = 20.0, 120.0
PAUSE = 0.1
"""Seconds between two lines of a rank."""
AFTER = STATE_LIMIT + 5
"""Seconds for which the ranks still write after the process goes on."""
ON_NODE = frozenset({2, 3})
"""The ranks of NODE, and of LAB_NODE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """A process that stands still, and what may be said while it does."""

    victim: Victim
    stalls: frozenset[int] = frozenset()
    """Ranks of which it is true that they are not heard."""
    lost: str = ""
    """A node of which it is true that it does not answer."""


def found_by(find: plants.Find, name: str, *, launch: str = "plain", lab: bool = False) -> Victim:
    return Victim(name=name, find=find, launch=launch, lab=lab)


FREEZES = (
    Freeze(victim=found_by(plants.supervisor_on(NODE), "supervisor"), stalls=ON_NODE),
    Freeze(victim=found_by(plants.shim_of(RANK), "shim")),
    Freeze(victim=found_by(plants.rank_of(RANK), "rank"), stalls=frozenset({RANK})),
    Freeze(
        victim=found_by(plants.program_on(("mpirun", "prterun"), FIRST), "mpirun", launch="mpi")
    ),
    Freeze(victim=found_by(plants.program_on(("torchrun",), NODE), "torchrun", launch="torchrun")),
    Freeze(victim=found_by(plants.agents_on(NODE), "telemetry")),
    Freeze(
        victim=found_by(plants.connections_on(LAB_NODE), "connection", lab=True),
        stalls=ON_NODE,
        lost=LAB_NODE,
    ),
    Freeze(
        victim=found_by(lambda site, _: [site.first_process(NODE)], "demo-node"),
        stalls=ON_NODE,
        lost=NODE,
    ),
)
RUN = Freeze(victim=found_by(lambda _site, _job: [], "run"))
"""`run` itself, which is found by its scene."""


def lasting(seconds: float, launch: str = "plain", **more: object) -> Shape:
    """A job that still writes for a while after a process has stood so long."""
    return writers(launch, int((seconds + AFTER) / PAUSE), PAUSE, **more)


def freeze(what: Freeze, seconds: float, sites: Sites) -> Tally:
    """Stop it for so many seconds after the first lines, and let it go on."""
    victim = what.victim
    # A node that says nothing for 15 s is lost: the others are then stopped, as they should be.
    more = {"abort": {"enabled": False}} if what.lost else {}
    job = lasting(seconds, victim.launch, **more)
    with playing(victim.site(sites), job) as scene:
        began(scene, 10)
        pids = _pids(what, scene)
        at = plants.send(signal.SIGSTOP, pids, victim.name)
        time.sleep(seconds)
        on = plants.send(signal.SIGCONT, pids, victim.name)
        code = scene.finish(seconds + END_LIMIT)  # a rank that stood still writes on for as long
        return judged(scene, what, (at, on), code)


def _pids(what: Freeze, scene: Scene) -> list[int]:
    """What is to be stopped; raises RuntimeError where it is not there."""
    if what is RUN:
        return [console_of(scene.process)]
    wait(lambda: what.victim.find(scene.site, scene.job), START_LIMIT)
    if found := what.victim.find(scene.site, scene.job):
        return found
    raise RuntimeError(f"no {what.victim.name} runs")


def judged(scene: Scene, what: Freeze, during: tuple[float, float], code: int | None) -> Tally:
    """What was said while it stood, and how long it was still said afterwards."""
    seen = [one for one in scene.watch.seen[scene.job] if one.at >= during[0]]
    wrong = [*false_words(seen, what, during[1]), *misstated(scene, "done", code, 0)]
    wrong += untold(scene, allowed(what))
    return ended(
        scene,
        state="done",
        seconds=cleared(seen, during[1]),
        missing=counted(scene),
        wrong=wrong,
        note="; ".join(said(seen)),
    )


def allowed(what: Freeze) -> list[str]:
    """What `run` may say of it."""
    told = [r"(no longer )?stalled: "] if what.stalls else []
    lost = [r"first failure so far: node ", r"\S+: (does not answer|answers again)", "corrected: "]
    return told + (lost if what.lost else [])


def said(seen: Sequence[Seen]) -> list[str]:
    """All that was said to be wrong, once each."""
    return list(dict.fromkeys(word for one in seen for word in complaints(one.job)))


def complaints(job: Shape) -> list[str]:
    """What a picture of a job says to be wrong."""
    words = [f"stalled {one['ranks']}: {one['text']}" for one in job["stalled"]]
    failure = job["first_failure"]
    words += [f"failed: {failure['what']} {failure['node']} {failure['rank']}"] if failure else []
    return words + [f"trouble: {text}" for text in job["troubles"]]


def false_words(seen: Sequence[Seen], what: Freeze, on: float) -> list[str]:
    """What was said of those who were well; and of anybody a while after all were well again."""
    wrong: list[str] = []
    for one in seen:
        stalls = [stall for stall in one.job["stalled"] if not set(stall["ranks"]) <= what.stalls]
        wrong += [f"stalled {stall['ranks']}: {stall['text']}" for stall in stalls]
        failure = one.job["first_failure"]
        if failure and (failure["what"], failure["node"]) != ("node", what.lost):
            wrong.append(f"failed: {failure['what']} on {failure['node']}")
        if one.at > on + STATE_LIMIT and (one.job["stalled"] or failure):
            wrong += [f"still after {one.at - on:.0f} s: {word}" for word in complaints(one.job)]
    return list(dict.fromkeys(wrong))


def cleared(seen: Sequence[Seen], on: float) -> float:
    """Seconds after which nobody was said to be stalled, failed or lost any more."""
    last = 0.0
    for one, after in zip(seen, [*seen[1:], None], strict=True):
        bad = one.job["stalled"] or one.job["first_failure"] or "lost" in _states(one.job)
        if bad:
            last = max(last, (after.at if after else time.time()) - on)
    return last


def _states(job: Shape) -> set[str]:
    return {rank["state"] for rank in job["ranks"]}


def _rows(seconds: float, ending: str) -> tuple[Row, ...]:
    return tuple(
        Row(
            name=f"freeze.{what.victim.name}{ending}",
            group=Group.PROCESSES,
            does=f"SIGSTOP of the {what.victim.name} for {seconds:.0f} s, then SIGCONT",
            run=partial(freeze, what, seconds),
            lacking=what.victim.lacking,
        )
        for what in (RUN, *FREEZES)
    )


ROWS = (*_rows(SHORT, ""), *_rows(LONG, ".long"))
