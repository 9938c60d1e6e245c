"""Acceptance runs as front ends get them: the real judge on planted speeds."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from rankdeck.acceptance.judge import judge_measurements
from rankdeck.acceptance.run import (
    AcceptanceRun,
    Drift,
    Request,
    RunPlan,
    RunState,
    StagePlan,
    StageView,
)
from rankdeck.acceptance.store import Exclusion
from rankdeck.acceptance.suspects import Context
from rankdeck.acceptance.values import READ, Answer, Measurement, Outcome, Result, Stage
from rankdeck.errors import RankdeckError
from rankdeck.values import replace

RECIPE = "iperf3"
START = 1_700_000_000.0
Speed = Callable[[str, str], float | None]
"""(sender, receiver) -> Gb/s; None: not measured, below 0: failed."""


def names(count: int) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(1, count + 1))


def healthy(sender: str, receiver: str) -> float | None:
    """Full speed, a little different for each pair."""
    return 9.4 + 0.01 * _jitter(sender, receiver)


def _jitter(sender: str, receiver: str) -> int:
    return (sum(map(ord, sender)) * 7 + sum(map(ord, receiver)) * 3) % 7


def slow_sender(node: str, share: float = 0.6) -> Speed:
    """One node sends slowly and receives at full speed."""
    return lambda a, b: (healthy(a, b) or 0.0) * (share if a == node else 1.0)


def result(sender: str, receiver: str, value: float | None, **more: object) -> Result:
    """One measurement of a pair."""
    outcome = (
        Outcome.NOT_MEASURED if value is None else Outcome.FAILED if value < 0 else Outcome.MEASURED
    )
    shown = value if outcome is Outcome.MEASURED else None
    text = f"{shown:.3g} Gb/s" if shown is not None else "it never began: Connection refused"
    fields = {
        "stage": Stage.PAIRS, "recipe": RECIPE, "outcome": outcome, "value": shown, "unit": "Gb/s",
        "seconds": 4.0, "text": text, "raw": f"/r/{sender}-{receiver}.out", "job": f"accept-{sender}",
    }  # fmt: skip
    return Result(sender=sender, receiver=receiver, **{**fields, **more})  # type: ignore[arg-type]


def results_of(nodes: tuple[str, ...], speed: Speed) -> tuple[Result, ...]:
    """Every pair in both directions, in the rounds of the circle method."""
    ring = [*nodes, *([""] if len(nodes) % 2 else [])]
    found: list[Result] = []
    for number in range(len(ring) - 1):
        for a, b in zip(ring[: len(ring) // 2], reversed(ring), strict=False):
            found += [
                result(x, y, speed(x, y), round=number, repeat=repeat)
                for x, y in ((a, b), (b, a))
                if x and y
                for repeat in range(2)
            ]
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return tuple(found)


def judged(run: AcceptanceRun) -> AcceptanceRun:
    """The run with the judgement of its pairs."""
    done = [
        Measurement(
            stage=one.stage, sender=one.sender, receiver=one.receiver, value=one.value,
            status=one.outcome, round=one.round, repeat=one.repeat, text=one.text,
        )
        for one in run.results
        if one.outcome in READ and one.receiver
    ]  # fmt: skip
    context = Context(unit="Gb/s", leaves=run.plan.leaves, left_out=run.plan.left_out)
    found = judge_measurements(done, context)
    return replace(
        run, judgements={RECIPE: found}, verdicts=found.verdicts,
        answers={**found.nodes, **dict.fromkeys(run.plan.left_out, Answer.LEFT_OUT)},
    )  # fmt: skip


def made_run(
    count: int = 8, speed: Speed = healthy, leaves: Mapping[str, str] | None = None, **more: object
) -> AcceptanceRun:
    """A run that is done."""
    nodes = names(count)
    pairs = StagePlan(
        stage=Stage.PAIRS, recipe=RECIPE, rounds=count - 1, tests=count * (count - 1) * 2, minutes=2.5,
        bytes=30 << 30, commands=("iperf3 -s -1 -p 5201", "iperf3 -c n2 -t 3 -O 1 -J --token hunter2hunter2"), note="TCP: no RDMA and no GPU",
    )  # fmt: skip
    gate = StagePlan(stage=Stage.SINGLE, recipe="sysbench", tests=count, minutes=0.3)
    plan = RunPlan(
        cluster="lab", nodes=nodes, left_out={"n99": "busy: job 4711 of alice"}, stages=(gate, pairs),
        leaves=leaves or {}, seed=7, notes=("63 pairs at a time, up to 10 Gb/s each; 0 bytes written to disks",),
    )  # fmt: skip
    single = tuple(
        result(n, "", 4100.0, stage=Stage.SINGLE, recipe="sysbench", unit="events/s", text="4100 events/s", raw="") for n in nodes
    )  # fmt: skip
    results = (*single, *results_of(nodes, speed))
    identity = {
        node: {"kernel": "6.1.0-40", "driver": "570.12" if node != "n2" else "550.90"}
        for node in nodes
    }
    fields = {
        "progress": RunState.DONE, "started": START, "ended": START + 150, "results": results,
        "stages": (StageView(plan=gate, progress=RunState.DONE, done=count), StageView(plan=pairs, progress=RunState.DONE, done=len(results), rounds_done=count - 1)),
        "identity": identity, "differing": {"n2": "its driver is 550.90, 7 of 8 have 570.12"},
        "baseline": "run r0 of 2026-11-20", "changed": "driver 550.90 → 570.12 on n1",
        "drift": (Drift("", -0.06, "−6.0 % on 8 of 8"),),
    }  # fmt: skip
    run = AcceptanceRun(id="r1", cluster="lab", operator="root", plan=plan, **{**fields, **more})  # type: ignore[arg-type]
    return judged(run)


class Outputs:
    """Where the raw outputs are, for reports and the screen."""

    def __init__(self, text: str = "[  5] 0.00-3.00 sec 3.3 GBytes 9.41 Gbits/sec\n") -> None:
        self.text = text

    def raw(self, result: Result, most: int = 1 << 20) -> str:
        return self.text[:most] if result.raw else ""

    def commands(self, run: AcceptanceRun, result: Result) -> tuple[str, ...]:
        return (
            f"ssh {result.receiver} iperf3 -s -1",
            f"ssh {result.sender} iperf3 -c {result.receiver}",
        )


class Port(Outputs):
    """Implements what the acceptance screen needs; records the calls."""

    def __init__(self, *kept: AcceptanceRun, current: AcceptanceRun | None = None) -> None:
        super().__init__()
        self.kept = {one.id: one for one in kept}
        self.current = current
        self.asked: list[tuple[object, ...]] = []
        self.planned: AcceptanceRun | None = None
        """The answer of `plan`."""
        self.trouble: RankdeckError | None = None
        """Raised by every request that may fail."""
        self.out: dict[str, str] = {}
        """Node -> why jobs are kept away from it."""
        self.ended = asyncio.Event()
        """A started run ends when this is set."""

    def _ask(self, *what: object) -> None:
        self.asked.append(what)
        if self.trouble is not None:
            raise self.trouble

    async def plan(self, request: Request) -> AcceptanceRun:
        self._ask("plan", request.nodes)
        assert self.planned is not None
        self.current = self.planned
        return self.current

    async def start(self) -> AcceptanceRun:
        self._ask("start")
        assert self.current is not None
        self.current = replace(self.current, progress=RunState.RUNNING)
        await self.ended.wait()
        self.current = replace(self.current, progress=RunState.DONE)
        return self.current

    async def stop(self) -> tuple[str, ...]:
        self._ask("stop")
        assert self.current is not None
        self.current = replace(self.current, progress=RunState.STOPPED)
        return ()

    def exclude(self, node: str, why: str, until: float, run: str) -> None:
        self._ask("exclude", node, why, run)
        one = Exclusion(cluster="lab", node=node, why=why, run=run, at=START, until=until)
        self.out[node] = one.sentence

    def readmit(self, node: str) -> None:
        self._ask("readmit", node)
        del self.out[node]

    def excluded(self) -> Mapping[str, str]:
        return dict(self.out)

    async def again(self, nodes: Sequence[str], recipe: str) -> None:
        self._ask("again", tuple(nodes), recipe)

    def runs(self) -> tuple[AcceptanceRun, ...]:
        return tuple(replace(one, results=()) for one in self.kept.values())

    def open(self, run: str) -> AcceptanceRun:
        self._ask("open", run)
        return self.kept[run]

    def resume(self, run: str) -> AcceptanceRun:
        self._ask("resume", run)
        self.current = self.kept[run]
        return self.current
