"""Cost of acceptance: a round of 500 simulated pairs with the real runner, and
real iperf3 between eight namespace nodes.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.acceptance_means import SimulatedMeans
from tests.support.lab import missing, running
from tests.support.shaped_lab import NODES, ShapedLab

from benchmarks.measure import slower
from benchmarks.result import MissingError, Result
from rankdeck.acceptance import view
from rankdeck.acceptance.measure import RawOutputs
from rankdeck.acceptance.run import RunPlan, StagePlan, acceptance_plan_json, plan_hash
from rankdeck.acceptance.runner import Runner
from rankdeck.acceptance.store import AcceptanceRuns, KeptRun
from rankdeck.acceptance.values import Stage
from rankdeck.acceptance.work import Setup
from rankdeck.model.cluster import Cluster, Node

PAIRS = 500
ROUND = 17.0
"""Seconds of a round of iperf3: two repeats of each direction of 4 s, and a start."""
_LIMIT = 400


def run() -> list[Result]:
    """CPU of the console for one round; wall time beside the bare programs."""
    found = [_simulated()]
    try:
        found += _real()
    except MissingError as why:
        print(f"acceptance: the real pairs are skipped: {why}", file=sys.stderr)
    return found


def _simulated() -> Result:
    names = tuple(f"n{number:04}" for number in range(2 * PAIRS))
    cluster = Cluster(name="c", nodes=tuple(Node(name=name) for name in names))
    plan = RunPlan(
        cluster="c",
        nodes=names,
        seed=1,
        stages=(StagePlan(stage=Stage.PAIRS, recipe="iperf3", rounds=3),),
    )
    with tempfile.TemporaryDirectory(prefix="rankdeck-bench.") as folder:
        store = AcceptanceRuns(Path(folder) / "acceptance.db")
        store.begin(KeptRun("r", "c", 1.0, plan_hash(plan), body=acceptance_plan_json(plan)))
        means = SimulatedMeans(cluster, lambda _a, _b: 94.0)
        runner = Runner(
            means, store, RawOutputs(Path(folder)), Setup(cluster=cluster), lambda: None
        )
        begin = time.process_time()
        asyncio.run(runner.go("r", plan))
        view.judge_results(plan, runner.done, {}, {})
        spent = (time.process_time() - begin) / 3
        store.close()
    return Result(
        name="acceptance_round", value=100 * spent / ROUND, unit="% of a core", budget=30 * slower(), on_ratio=False,
        note=f"{PAIRS} pairs a round: {spent:.2f} s of CPU in {ROUND:.0f} s, jobs made up (no SSH)",
    )  # fmt: skip


def _real() -> list[Result]:
    if why := missing() or ("" if shutil.which("iperf3") else "iperf3 is not installed"):
        raise MissingError(why)
    with running(ShapedLab, NODES) as lab:
        file = lab.cluster_file()
        script = str(Path(__file__).with_name("acceptance_pairs.py"))
        done = lab.enter([sys.executable, script, str(file)], limit=_LIMIT)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        ours, pairs = map(float, done.stdout.split()[-2:])
        bare = _bare(lab)
    each = (ours - bare) / 7
    return [
        Result(name="acceptance_28_pairs", value=ours, unit="s", peer="bare iperf3", peer_value=bare, budget=40, on_ratio=False, note=f"{pairs:.0f} pairs x 4 repeats of 1 s"),
        Result(name="acceptance_overhead", value=each, unit="s", budget=0.5 * slower(), on_ratio=False, note="per pair beyond the bare programs, four pairs at once"),
    ]  # fmt: skip


def _bare(lab: ShapedLab) -> float:
    """The same measurements without Rankdeck: seven rounds of four
    pairs, four repeats one after the other.
    """
    order = list(lab.nodes)
    begin = time.monotonic()
    for _ in range(len(order) - 1):
        pairs = [(order[at], order[-1 - at]) for at in range(len(order) // 2)]
        shells = [
            subprocess.Popen(lab.as_roots(_four(lab, *pair)), env=lab.environment())
            for pair in pairs
        ]
        for shell in shells:
            shell.wait(_LIMIT)
        order = [order[0], order[-1], *order[1:-1]]
    return time.monotonic() - begin


def _four(lab: ShapedLab, first: str, last: str) -> str:
    """Measure one pair twice in each direction, started on the head in
    the network namespaces of both nodes.
    """
    lines: list[str] = []
    for sender, receiver in ((first, last), (last, first)) * 2:
        into = "nsenter --net=/run/netns/"
        lines.append(
            f"{into}{receiver} iperf3 -s -1 >/dev/null & sleep 0.1; {into}{sender} iperf3 -c {lab.address(receiver)} -t 1 -J >/dev/null; wait"
        )
    return "; ".join(lines)
