"""Lemons in a simulated fleet: of the nodes that are called lemons, how many are?

Each fleet has 200 nodes and a history of 500 jobs (as many as are kept) on 4 to 32 of them. Four in
a hundred nodes are lemons: each fails 10 to 40 % of its jobs; other nodes 0.4 %. Programs crash as
well: one in twelve jobs, on any rank, some again and again on the same node.
"""

import random
from collections.abc import Callable, Collection, Mapping

from benchmarks.result import Result
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Job, RankState
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.rules.lemons import NodeRecord, find_lemons, node_records
from rankdeck_agent.wire import NodePlan

NODES, JOBS, FLEETS = 200, 500, 40
LEMONS, USUAL = 0.04, 0.004
WORST, LEAST = 0.40, 0.10
CRASHES, STUBBORN = 1 / 12, 0.2
"""Share of jobs whose program crashes, and of programs that crash on the same node each time."""
PROGRAMS = 25
PRECISION = 0.95


def fleet_history(seed: int) -> tuple[frozenset[str], list[Job]]:
    """(the lemons, the jobs) of a fleet."""
    dice = random.Random(seed)
    names = [f"n{number:03}" for number in range(NODES)]
    share = {name: dice.uniform(LEAST, WORST) for name in names if dice.random() < LEMONS}
    stubborn = {f"p{n}": dice.choice(names) for n in range(PROGRAMS) if dice.random() < STUBBORN}
    return frozenset(share), [
        _job(dice, number, names, (share, stubborn)) for number in range(JOBS)
    ]


def _job(
    dice: random.Random, number: int, names: list[str],
    ill: tuple[dict[str, float], dict[str, str]],
) -> Job:  # fmt: skip
    share, stubborn = ill
    program = f"p{dice.randrange(PROGRAMS)}"
    nodes = dice.sample(names, dice.choice((4, 8, 16, 32)))
    if program in stubborn and dice.random() < 0.5 and stubborn[program] not in nodes:
        nodes[0] = stubborn[program]
    failed = next((name for name in nodes if dice.random() < share.get(name, USUAL)), None)
    if failed is not None:
        return _made(number, program, nodes, _failure("node", failed))
    if stubborn.get(program) in nodes and dice.random() < 0.8:
        return _made(number, program, nodes, _failure("rank", stubborn[program]))
    if dice.random() < CRASHES:
        return _made(number, program, nodes, _failure("rank", dice.choice(nodes)))
    return _made(number, program, nodes, None)


def _failure(what: str, node: str) -> FirstFailure:
    rank, number = (0, 11) if what == "rank" else (None, None)
    return FirstFailure(what=what, rank=rank, node=node, exit_code=None, signal=number, at=1.0)


def _made(number: int, name: str, nodes: list[str], failure: FirstFailure | None) -> Job:
    spec = JobSpec(name=name, launch=Launch.PLAIN, command=("x",))
    plans = tuple(NodePlan(name, node, ()) for node in nodes)
    plan = Plan(job=f"j{number}", name=name, cluster="c", backend="ssh", nodes=plans, spec=spec)
    ranks = tuple(RankState(rank=place, node=node) for place, node in enumerate(nodes))
    state = State.DONE if failure is None else State.FAILED
    return Job(
        id=f"j{number}", name=name, cluster="c", plan=plan, state=state, ranks=ranks,
        created=float(number), first_failure=failure,
    )  # fmt: skip


Rule = Callable[[Mapping[str, NodeRecord]], Collection[str]]


def by_two_faults(records: Mapping[str, NodeRecord]) -> Collection[str]:
    """The usual rule of thumb, as a control: who had two faults is a lemon."""
    return [name for name, one in records.items() if one.faults >= 2]


def judge_fleets(rule: Rule, count: int = FLEETS) -> tuple[int, int, int]:
    """How many are called lemons and are, are called so and are none, are so and not called."""
    right = wrong = missed = 0
    for seed in range(count):
        lemons, jobs = fleet_history(seed)
        found = frozenset(rule(node_records(jobs)))
        right, wrong = right + len(found & lemons), wrong + len(found - lemons)
        missed += len(lemons - found)
    return right, wrong, missed


def run() -> list[Result]:
    """Share of the lemons found that are none, and share of the real ones that are missed."""
    right, wrong, missed = judge_fleets(find_lemons)
    control = judge_fleets(by_two_faults)
    many = f"{FLEETS} fleets of {NODES} nodes, {JOBS} jobs each"
    return [
        Result(
            name="false among lemons",
            value=wrong / (right + wrong),
            unit="",
            peer="two faults",
            peer_value=control[1] / (control[0] + control[1]),
            budget=1 - PRECISION,
            on_ratio=False,
            note=f"{right} right, {wrong} wrong in {many}",
        ),
        Result(
            name="lemons missed",
            value=missed / (right + missed),
            unit="",
            peer="two faults",
            peer_value=control[2] / (control[0] + control[2]),
        ),
    ]
