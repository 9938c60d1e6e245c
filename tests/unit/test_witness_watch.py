"""When the ranks of a silent job are asked, and what becomes of their answer."""

import asyncio
from types import SimpleNamespace

from rankdeck.backends.witnesses import AGAIN, EARLY, FIRST, SHARE, SILENT, WitnessWatch
from rankdeck.errors import UnreachableError
from rankdeck.model.job import Job
from rankdeck.model.stall import Stall
from rankdeck.remote.agent import Agents
from rankdeck.state.jobs import Jobs
from rankdeck.values import replace
from tests.unit.test_job_recorder import running

HEARD = 1010.0
"""When the job of `running` wrote its last line."""
GUESS = Stall(kind="all", ranks=tuple(range(8)), since=HEARD, text="all 8 ranks silent")


def silent_job(*, launcher: str = "torchrun") -> Job:
    jobs = Jobs()
    job = jobs.job(running(jobs))
    nodes = [
        replace(node, processes=tuple(replace(one, name=launcher) for one in node.processes))
        for node in job.plan.nodes
    ]
    return replace(job, plan=replace(job.plan, nodes=tuple(nodes)))


class CutOff:
    """A way to nodes of which none can be reached."""

    async def open(self, node: str, *_: object) -> None:
        raise UnreachableError(node, "no route")


def watch() -> WitnessWatch:
    return WitnessWatch(Agents(CutOff()))  # type: ignore[arg-type]


def test_a_job_is_asked_only_once_it_is_silent() -> None:
    job, asked = silent_job(), watch()

    assert not asked.due(job, HEARD + EARLY - 1)
    assert asked.due(job, HEARD + EARLY)


def test_nothing_is_told_by_the_first_question_and_the_second_is_asked_soon_after() -> None:
    job, asked = silent_job(), watch()
    assert asked.due(job, HEARD + EARLY)

    asyncio.run(asked.ask(job, HEARD + EARLY))

    assert not asked.due(job, HEARD + AGAIN - 0.1)
    assert asked.due(job, HEARD + AGAIN)


def test_a_job_that_went_on_after_the_first_question_is_not_asked_so_early_again() -> None:
    job, asked = silent_job(), watch()
    assert asked.due(job, HEARD + EARLY)
    heard = HEARD + EARLY + 1
    again = replace(job, ranks=(replace(job.ranks[0], heard=heard), *job.ranks[1:]))

    assert not asked.due(again, heard + AGAIN - 0.1)
    assert asked.due(again, heard + AGAIN)


def test_a_job_that_never_wrote_is_asked_after_its_ranks_have_begun() -> None:
    job, asked = silent_job(), watch()
    began = max(rank.started or 0.0 for rank in job.ranks)
    mute = replace(job, ranks=tuple(replace(rank, heard=None) for rank in job.ranks))

    assert began
    assert not asked.due(mute, began + EARLY - 1)
    # A clock that is known better than before moves the times at which ranks began.
    moved = replace(mute, ranks=tuple(replace(rank, started=began + 0.2) for rank in mute.ranks))
    assert asked.due(moved, began + EARLY)
    waits = replace(mute, ranks=(replace(mute.ranks[0], started=None), *mute.ranks[1:]))
    assert not watch().due(waits, began + EARLY)


def test_ranks_of_torchrun_mpi_and_of_schedulers_are_asked_and_those_of_others_are_not() -> None:
    for launcher in ("torchrun", "mpirun"):
        assert watch().due(silent_job(launcher=launcher), HEARD) is False
        assert due_late(silent_job(launcher=launcher))
    plain = silent_job(launcher="sh")
    assert not due_late(plain)
    login = replace(plain.plan.nodes[0], elsewhere=True)
    assert due_late(replace(plain, plan=replace(plain.plan, nodes=(login,))))


def due_late(job: Job) -> bool:
    asked = watch()
    asked.due(job, HEARD)
    return asked.due(job, HEARD + 100)


def test_a_job_that_was_silent_for_long_and_went_on_is_asked_later_the_next_time() -> None:
    job, asked = silent_job(), watch()
    assert asked.due(job, HEARD + 100)
    heard = HEARD + 40
    again = replace(job, ranks=(replace(job.ranks[0], heard=heard), *job.ranks[1:]))

    assert not asked.due(again, heard + 1.5 * 40 - 1)
    assert asked.due(again, heard + 1.5 * 40)


def test_after_each_question_the_next_one_comes_later_until_there_is_output() -> None:
    job, asked = silent_job(), watch()
    now = HEARD + SILENT
    assert asked.due(job, now)

    asyncio.run(asked.ask(job, now))

    assert not asked.due(job, now + FIRST - 1)
    assert asked.due(job, now + FIRST)
    asyncio.run(asked.ask(job, now + FIRST))
    assert not asked.due(job, now + 2 * FIRST)
    louder = replace(job, ranks=(replace(job.ranks[0], heard=now), *job.ranks[1:]))
    assert not asked.due(louder, now + 1)
    assert asked.due(louder, now + SILENT)


def test_what_nobody_answers_changes_nothing() -> None:
    job, asked = silent_job(), watch()
    asked.due(job, HEARD + SILENT)
    asyncio.run(asked.ask(job, HEARD + SILENT))

    assert asked.judge(job, (GUESS,), HEARD + 40) == (GUESS,)


class Slow:
    """A way to nodes that fails once the test allows it."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def open(self, node: str, *_: object) -> None:
        self.tried.append(node)
        self.asked.set()
        await self.go_on.wait()
        raise UnreachableError(node, "no route")


def test_who_looks_once_waits_for_a_question_that_is_under_way_and_asks_no_second_one() -> None:
    job, shell = silent_job(), Slow()
    asked = WitnessWatch(Agents(shell))  # type: ignore[arg-type]
    now = HEARD + SILENT

    async def go() -> None:
        assert asked.due(job, now)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asked.ask(job, now))
            await shell.asked.wait()
            assert not asked.due(job, now + 1000)
            other = tasks.create_task(asked.ask_enough(job))
            again = tasks.create_task(asked.ask(job, now))
            await again
            assert not other.done()
            shell.go_on.set()
            await other

    asyncio.run(go())

    assert sorted(shell.tried) == sorted(node.node for node in job.plan.nodes)


class Answering:
    """Agents that answer of the ranks of their node what the test tells."""

    patience = 1.0

    def __init__(self, job: Job) -> None:
        self._ranks = {plan.node: plan.ranks for plan in job.plan.nodes}
        self.rows: list[dict] = []

    async def call(self, node: str, *_: object, **__: object) -> SimpleNamespace:
        rows = [row for row in self.rows if row["rank"] in self._ranks[node]]
        return SimpleNamespace(row={"ranks": rows})


class Deliberate(Answering):
    """The same after a while."""

    async def call(self, node: str, *_: object, **__: object) -> SimpleNamespace:
        await asyncio.sleep(2 * FIRST * SHARE)
        return await super().call(node)


def test_a_scheduler_that_takes_long_to_answer_is_asked_less_often() -> None:
    now = HEARD + SILENT
    nodes, job = silent_job(), silent_job()
    login = replace(job.plan.nodes[0], elsewhere=True)
    scheduled = replace(job, plan=replace(job.plan, nodes=(login,)))

    for one, often in ((nodes, True), (scheduled, False)):
        asked = WitnessWatch(Deliberate(one))  # type: ignore[arg-type]
        assert asked.due(one, now)
        asyncio.run(asked.ask(one, now))
        assert asked.due(one, now + FIRST) is often
        assert asked.due(one, now + 60)


def stands(rank: int, call: str) -> dict:
    looks = [[0.7 * n, 1, 100, 5, call] for n in range(3)]
    return {"rank": rank, "native": {"frames": [[call, "m"]], "entered": call, "looks": looks}}


def unread(rank: int) -> dict:
    return {"rank": rank, "does": {"state": "R"}}


def test_one_stack_that_could_not_be_read_takes_nothing_back_and_a_second_one_does() -> None:
    job = silent_job(launcher="mpirun")
    agents = Answering(job)
    asked = WitnessWatch(agents)  # type: ignore[arg-type]
    ranks = [rank.rank for rank in job.ranks]
    assert asked.due(job, HEARD + SILENT)

    def ask(*rows: dict) -> bool:
        agents.rows = list(rows)
        asyncio.run(asked.ask(job, HEARD + SILENT))
        return bool(asked.judge(job, (), HEARD + 2 * SILENT))

    standing = [stands(rank, "MPI_Recv") for rank in ranks]
    assert not ask(*standing)
    assert ask(*standing)
    assert ask(unread(0), *standing[1:])
    assert not ask(unread(0), *standing[1:])
