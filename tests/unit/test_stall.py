"""Who is stuck, on ranks made by hand: the rule fires where it should and nowhere else."""

import pytest

from rankdeck.following import ASLEEP, HEAR, PauseWatch
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Job, RankState
from rankdeck.model.job_spec import Launch
from rankdeck.model.plan import Plan
from rankdeck.model.queue import QueueStatus
from rankdeck.model.rank import Activity, State
from rankdeck.rules.progress import job_phases, last_run
from rankdeck.rules.rank_signs import QUIET, KnownOfJob
from rankdeck.rules.stall import BUSY, START, UNSURE, find_stalls, is_idle
from rankdeck_agent.wire import NodePlan

PER_NODE = 8


def rank(number: int, heard: float, lines: int = 100, **more: object) -> RankState:
    fields = {"state": State.RUNNING, "started": 0.0, **more}
    node = f"n{number // PER_NODE + 1}"
    return RankState(rank=number, node=node, heard=heard, lines=lines, **fields)


def job(ranks: list[RankState], **more: object) -> Job:
    nodes = tuple(NodePlan("j", name, ()) for name in dict.fromkeys(r.node for r in ranks))
    plan = Plan(job="j", name="j", cluster="c", backend="ssh", nodes=nodes)
    fields = {"state": State.RUNNING, "created": -1.0, **more}
    return Job(id="j", name="j", cluster="c", plan=plan, ranks=tuple(ranks), **fields)


idle = KnownOfJob(idle=lambda _: True)
busy = KnownOfJob(idle=lambda _: False)
unknown = KnownOfJob()


def test_the_one_silent_rank_of_512_is_named() -> None:
    now = 1000.0
    ranks = [rank(n, 600.0 if n == 137 else now - n % 5) for n in range(512)]

    (found,) = find_stalls(job(ranks), now, unknown)

    assert (found.kind, found.ranks) == ("rank", (137,))
    assert found.text == "rank 137 on n18 silent for 6 min 30 s while 511 others go on"


def test_after_a_pause_of_all_not_every_rank_writes_at_once() -> None:
    now = 1000.0
    ranks = [rank(n, 966.0 if n == 2 else now - 2, 1000, resumed=990.0) for n in range(6)]

    assert find_stalls(job(ranks), now, unknown) == ()

    later = [rank(n, 966.0 if n == 2 else 1024.0, 1000, resumed=990.0) for n in range(6)]
    (found,) = find_stalls(job(later), 1025.0, unknown)
    assert found.ranks == (2,)


def test_ranks_that_pause_often_go_on_after_each_pause() -> None:
    ranks = [rank(n, 300.0 if n == 2 else 995.0, lines=70, resumed=995.0) for n in range(6)]

    (found,) = find_stalls(job(ranks), 1000.0, unknown)

    assert found.ranks == (2,)


def test_the_tasks_of_an_array_wait_for_nobody() -> None:
    now = 1000.0
    ranks = [rank(n, 300.0 if n == 137 else now - n % 5) for n in range(512)]
    array = job(ranks, in_scheduler=QueueStatus(id="10", state="RUNNING", array="0-511"))
    stuck = KnownOfJob(
        looks={137: [Activity("T", "do_signal_stop", 0.0, None, at) for at in (990.0, 995.0)]}
    )

    assert find_stalls(array, now, unknown) == ()
    assert [found.kind for found in find_stalls(array, now, stuck)] == ["stopped"]


def test_512_that_wait_for_one_are_noticed_and_the_first_silent_is_named() -> None:
    now = 1000.0
    ranks = [rank(n, 800.0 if n == 137 else 850.0 + n % 7) for n in range(512)]

    (found,) = find_stalls(job(ranks), now, idle)

    assert found.kind == "all"
    assert found.first == (137,)
    assert "all 512 ranks silent for 2 min 00 s, CPUs and GPUs are idle" in found.text
    assert "rank 137 on n18 fell silent first" in found.text


@pytest.mark.parametrize(("load", "patience"), [(idle, QUIET), (unknown, UNSURE), (busy, BUSY)])
def test_the_longer_the_nodes_may_be_computing_the_longer_one_waits(load, patience) -> None:
    ranks = [rank(n, 100.0) for n in range(8)]

    assert not find_stalls(job(ranks), 100.0 + patience - 1, load)
    assert find_stalls(job(ranks), 100.0 + patience + 1, load)


def test_on_busy_nodes_one_that_fell_silent_before_the_rest_is_told_soon() -> None:
    ranks = [rank(n, 98.0 if n == 2 else 100.0) for n in range(8)]

    assert not find_stalls(job(ranks), 100.0 + UNSURE - 1, busy)
    (found,) = find_stalls(job(ranks), 100.0 + UNSURE + 1, busy)

    assert found.first == (2,)
    assert found.text.endswith("the nodes are busy; rank 2 on n1 fell silent first")


@pytest.mark.parametrize(
    ("lines", "spread", "first"), [(11, 0.1, (2,)), (12, 0.1, ()), (11, 0.6, ())]
)
def test_one_that_wrote_a_line_less_half_a_pause_before_the_rest_is_named(
    lines: int, spread: float, first: tuple[int, ...]
) -> None:
    """As the sample `hang-rank2` was seen: a line each half second, after a start that took two."""
    ranks = [rank(n, 8.0 + spread * (n == 5), lines=12) for n in range(6)]
    ranks[2] = rank(2, 7.55, lines=lines)

    (found,) = find_stalls(job(ranks), 60.0, idle)

    assert found.first == first
    assert ("rank 2 on n1 fell silent first" in found.text) is bool(first)


def test_ranks_that_write_every_minute_may_be_silent_for_ten() -> None:
    ranks = [rank(n, 6000.0) for n in range(8)]  # 100 lines in 6000 s

    assert not find_stalls(job(ranks), 6000.0 + 599, idle)
    assert find_stalls(job(ranks), 6000.0 + 601, idle)


def test_where_only_rank_0_reports_the_others_are_not_stuck() -> None:
    ranks = [rank(0, 999.0), *(rank(n, 20.0, lines=9) for n in range(1, 16))]

    assert not find_stalls(job(ranks), 1000.0, idle)


def test_ranks_that_never_began_are_named_with_the_launchers_words() -> None:
    ranks = [rank(n, 0.0, state=State.PENDING, started=None) for n in range(4)]
    said = ["ssh: Could not resolve hostname n2: Name or service not known"]

    (found,) = find_stalls(job(ranks), START + 10, KnownOfJob(launcher=said))

    assert found.kind == "start"
    assert found.text.startswith(
        "no rank has begun after 1 min 10 s; the launcher's last line: ssh:"
    )
    assert "host name" in found.explained[0].means


def test_a_job_on_kubernetes_that_waits_for_nodes_or_an_image_is_not_stalled() -> None:
    """What it waits for is told; ranks that run already wait for the others."""
    now = 3600.0
    waiting = [rank(n, 0.0, state=State.PENDING, started=None) for n in (1, 2)]
    mixed = job([rank(0, now - 900), *waiting], waits="pending: 2 of 3 pods: starting")
    put_aside = job(waiting, waits="queued by Kueue: no quota")

    assert find_stalls(mixed, now, idle) == ()
    assert find_stalls(put_aside, now, idle) == ()


def test_ranks_that_do_not_begin_once_nothing_is_waited_for_are_stalled_from_then_on() -> None:
    now = 3600.0
    waiting = [rank(n, 0.0, state=State.PENDING, started=None) for n in (0, 1)]

    assert find_stalls(job(waiting, waited=now - START / 2), now, idle) == ()
    (stall,) = find_stalls(job(waiting, waited=now - START - 1), now, idle)
    assert (stall.kind, stall.since) == ("start", now - START - 1)


def test_some_that_never_began_are_named() -> None:
    ranks = [rank(0, 99.0), rank(1, 99.0, state=State.PENDING, started=None)]

    (found,) = find_stalls(job(ranks), 100.0, unknown)

    assert found.text.startswith("rank 1 on n1 has not begun")


def test_a_job_that_failed_or_ended_is_not_stalled() -> None:
    ranks = [rank(n, 0.0) for n in range(4)]
    failure = FirstFailure(rank=0, node="n1", exit_code=1, signal=None, at=1.0)

    assert not find_stalls(job(ranks, first_failure=failure), 1e6, idle)
    assert not find_stalls(job(ranks, state=State.DONE), 1e6, idle)


@pytest.mark.parametrize(
    ("ranks", "cpu", "cores", "gpus", "wanted"),
    [(4, 1.0, 64, (), True), (4, 50.0, 64, (), False), (1, 1.6, 64, (), False), (4, 1.0, 64, (99.0,), False),
     (4, None, 64, (), None), (4, 1.0, None, (), None)],
)  # fmt: skip
def test_idle_is_judged_by_cores_per_rank(ranks, cpu, cores, gpus, wanted) -> None:
    assert is_idle(ranks, cpu, cores, gpus) is wanted


def test_phases_follow_the_marks_and_never_run_back() -> None:
    marks = {"ready": 2.0, "started": 5.0, "output": 4.9, "step": 9.0}
    done = job([rank(0, 9.0)], marks=marks, created=1.0, ended=20.0, state=State.DONE)

    found = job_phases(done)

    assert [(p.name, p.start, p.end) for p in found] == [
        ("copy", 1.0, 2.0), ("start", 2.0, 5.0), ("rendezvous", 5.0, 5.0), ("first step", 5.0, 9.0), ("running", 9.0, 20.0),
    ]  # fmt: skip


def test_the_last_run_is_the_newest_that_went_well() -> None:
    def past(created: float, state: State) -> Job:
        one = job([rank(0, 1.0)], created=created, state=state, ended=created + 1)
        return one.__class__(**{f: getattr(one, f) for f in one.__slots__} | {"id": f"j{created}"})

    others = [past(1.0, State.DONE), past(2.0, State.DONE), past(3.0, State.FAILED)]
    found = last_run(job([rank(0, 1.0)], created=9.0), others)

    assert found is not None
    assert found.id == "j2.0"
    assert last_run(job([rank(0, 1.0)], created=0.5), others) is None
    assert Launch.MPI


def test_who_stood_still_listens_for_a_while_before_it_judges() -> None:
    awake = PauseWatch()
    begin, woke = 1000.0, 1200.0

    looks = [awake.look(begin + second) for second in range(6)]
    after = [awake.look(woke + second) for second in range(6)]

    assert looks == after == [second >= HEAR for second in range(6)]


def test_a_console_that_is_only_slow_goes_on_judging() -> None:
    awake = PauseWatch()
    for second in range(5):
        awake.look(1000.0 + second)

    assert awake.look(1004.0 + ASLEEP - 1)
