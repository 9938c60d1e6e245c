"""Drills without a cluster: what is planned, who counts as named, what is read of a job."""

import ast
from pathlib import Path

import pytest

from rankdeck.drill.judge import Named, judge_fault, launcher_named, named_in
from rankdeck.drill.planning import (
    DrillError,
    DrillRequest,
    parse_launches,
    parse_link,
    parse_ways,
    plan_drill,
    without_lacking,
)
from rankdeck.drill.programs import LAUNCHES, MARK, drill_program
from rankdeck.drill.table import HEADS, drill_headline, drill_shape, result_row
from rankdeck.drill.trial import STANDS, FaultWatch
from rankdeck.drill.values import (
    LIMIT,
    NO_LINK,
    Drill,
    DrillFault,
    DrillResult,
    DrillVerdict,
    Link,
    Way,
)
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Job, RankState
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.model.rank_output import Chunk
from rankdeck.model.stall import Explained, Stall
from rankdeck.state.jobs import Jobs
from rankdeck.values import replace
from rankdeck_agent.wire import NodePlan

CLUSTER = Cluster(name="c", nodes=tuple(Node(name=f"n{i}", slots=4) for i in (1, 2, 3)))
NAMES = ("n1", "n2", "n3")


def faults(**more: object) -> tuple[DrillFault, ...]:
    request = DrillRequest(**more)  # type: ignore[arg-type]
    return plan_drill(request, CLUSTER, NAMES).faults


# ---- plan


def test_every_fault_is_planted_with_every_launcher_but_what_plain_ranks_cannot_do() -> None:
    found = {(one.launch, one.way) for one in faults()}

    assert found == {(launch, way) for launch in LAUNCHES for way in Way} - {
        (Launch.PLAIN, Way.SLOW),
        (Launch.PLAIN, Way.COLLECTIVE),
    }


def test_the_victims_change_and_are_never_rank_0_nor_on_the_first_node_for_a_fault_of_a_node() -> (
    None
):
    found = faults()

    assert len({one.victim for one in found}) >= 4
    assert min(one.victim for one in found) >= 1
    assert min(one.victim for one in found if one.way.of_node) >= 2
    assert max(one.victim for one in found) <= 5


def test_a_cluster_of_one_node_has_a_drill_too() -> None:
    one = Cluster(name="c", nodes=(Node(name="n1", slots=2),))
    found = plan_drill(DrillRequest(), one, ("n1",)).faults

    assert {fault.victim for fault in found} == {1}
    assert {(fault.spec.nodes, fault.spec.ranks_per_node) for fault in found} == {(1, 2)}


def test_one_rank_alone_is_refused() -> None:
    one = Cluster(name="c", nodes=(Node(name="n1", slots=1),))
    with pytest.raises(DrillError, match="needs two ranks"):
        plan_drill(DrillRequest(), one, ("n1",))


def test_only_faults_that_need_common_work_with_plain_ranks_alone_are_refused() -> None:
    with pytest.raises(DrillError, match="do not work together"):
        faults(launches=(Launch.PLAIN,), ways=(Way.SLOW,))


def test_a_link_is_cut_only_where_the_site_has_programs_for_it() -> None:
    (without,) = faults(launches=(Launch.PLAIN,), ways=(Way.CUT,))
    link = parse_link("ssh switch port-down {node}", "ssh switch port-up {node}")
    (with_it,) = faults(launches=(Launch.PLAIN,), ways=(Way.CUT,), link=link)

    assert "--cut and --mend" in without.unplanted
    assert with_it.unplanted == ""
    assert link == Link(("ssh", "switch", "port-down", "{node}"), ("ssh", "switch", "port-up", "{node}"))  # fmt: skip


@pytest.mark.parametrize(
    ("cut", "mend", "said"),
    [
        ("down {node}", "", "--cut needs --mend"),
        ("down {node}", "up", "--mend: write {node}"),
        ("down '{node}", "up {node}", "--cut: No closing quotation"),
    ],
)
def test_half_a_pair_of_link_programs_is_refused(cut: str, mend: str, said: str) -> None:
    with pytest.raises(DrillError, match=said):
        parse_link(cut, mend)


def test_a_job_file_gives_environment_and_options_and_nothing_else() -> None:
    like = JobSpec(
        name="mine", launch=Launch.MPI, command=("./solver",), nodes=9, env={"A": "1"},
        workdir="/data", options={"slurm.partition": "gpu"}, progress={"step": "x"}, file="mine.yaml",
    )  # fmt: skip
    (one,) = faults(like=like, launches=(Launch.MPI,), ways=(Way.KILLED,))

    assert one.spec.options == {"slurm.partition": "gpu"}
    assert one.spec.env["A"] == "1"
    assert (one.spec.name, one.spec.nodes, one.spec.workdir, one.spec.file) == ("drill", 3, "", "")
    assert one.spec.command[0] == "python3"


def test_words_are_faults_and_launchers() -> None:
    assert parse_ways("slow, killed") == (Way.KILLED, Way.SLOW)
    assert parse_launches("") == LAUNCHES
    with pytest.raises(DrillError, match="did you mean `killed`"):
        parse_ways("kiled")
    with pytest.raises(DrillError, match="no launcher `tensorflow`; there are: plain"):
        parse_launches("tensorflow")


def test_what_nodes_lack_is_said_and_not_planted() -> None:
    plan = plan_drill(DrillRequest(ways=(Way.KILLED,)), CLUSTER, NAMES)
    told = without_lacking(plan, ["", "", "no torchrun"])

    assert [one.unplanted for one in told.faults] == ["", "", "its nodes have no torchrun"]


@pytest.mark.parametrize("launch", LAUNCHES)
def test_the_program_is_python_for_old_nodes(launch: Launch) -> None:
    ast.parse(drill_program(launch), feature_version=(3, 6))


# ---- who is named


def job_of(**more: object) -> Job:
    ranks = tuple(
        RankState(rank=n, node=f"n{n // 2 + 1}", state=State.RUNNING, started=1.0) for n in range(6)
    )
    nodes = tuple(NodePlan("j", name, ()) for name in NAMES)
    plan = Plan(job="j", name="drill", cluster="c", backend="ssh", nodes=nodes)
    fields = {"state": State.RUNNING, "created": 0.0, "ranks": ranks, **more}
    return Job(id="j", name="drill", cluster="c", plan=plan, **fields)  # type: ignore[arg-type]


def stall(kind: str, ranks: tuple[int, ...], text: str = "", **more: tuple[int, ...]) -> Stall:
    return Stall(kind=kind, ranks=ranks, since=1.0, text=text, **more)


def failure(rank: int | None, node: str, *, settled: bool = True) -> FirstFailure:
    what = "rank" if rank is not None else "node"
    return FirstFailure(
        what=what, rank=rank, node=node, exit_code=None, signal=9, at=1.0, settled=settled
    )


SILENCE = stall("all", tuple(range(6)), "all 6 ranks are silent")
DEADLOCK = replace(SILENCE, explained=(Explained("a deadlock", "compare what they call"),))


@pytest.mark.parametrize(
    ("job", "who"),
    [
        (job_of(), None),
        (job_of(stalled=(stall("stopped", (4,)),)), "rank 4"),
        (job_of(stalled=(stall("all", tuple(range(6)), odd=(3,)),)), "rank 3"),
        (job_of(stalled=(DEADLOCK,)), "nobody"),
        (job_of(stalled=(DEADLOCK, stall("slow", (2,)))), "rank 2"),
        (job_of(first_failure=failure(5, "n3"), stalled=(DEADLOCK,)), "rank 5"),
        (job_of(first_failure=failure(None, "n2")), "node n2"),
        (job_of(mute={"n3": "no answer for 15 s"}), "node n3"),
    ],
)
def test_who_is_named(job: Job, who: str | None) -> None:
    found = named_in(job)
    assert (found.who if found else None) == who


RANK = (Way.SILENT, 3, "n2")


def verdict(named: Named | None, right: tuple[Way, int, str] = RANK) -> DrillVerdict:
    return judge_fault([(10.0, named)], 5.0, right).verdict


def test_only_the_victim_alone_is_right() -> None:
    assert verdict(Named((3,))) is DrillVerdict.RIGHT
    assert verdict(Named((3, 4))) is DrillVerdict.WRONG
    assert verdict(Named((), ("n2",))) is DrillVerdict.WRONG
    assert verdict(None) is DrillVerdict.SILENT
    assert verdict(Named(sentence="all silent")) is DrillVerdict.SILENT


def test_of_a_fault_of_a_node_only_the_node_is_right() -> None:
    right = (Way.FROZEN, 3, "n2")
    assert verdict(Named((), ("n2",)), right) is DrillVerdict.RIGHT
    assert verdict(Named((), ("n3",)), right) is DrillVerdict.WRONG
    assert verdict(Named((3,)), right) is DrillVerdict.WRONG


def test_a_deadlock_is_right_for_collectives_that_do_not_match_and_for_nothing_else() -> None:
    dead, silent = (named_in(job_of(stalled=(one,))) for one in (DEADLOCK, SILENCE))
    assert verdict(dead, (Way.COLLECTIVE, 3, "n2")) is DrillVerdict.RIGHT
    assert verdict(silent, (Way.COLLECTIVE, 3, "n2")) is DrillVerdict.SILENT
    assert verdict(dead) is DrillVerdict.SILENT


def test_seconds_count_to_the_answer_that_stayed_and_earlier_ones_are_told() -> None:
    shown = [
        (6.0, Named((4,), settled=False)),
        (7.0, Named((4,))),
        (8.0, None),
        (9.0, Named((3,), sentence="so far")),
        (12.0, Named((3,), sentence="in full")),
    ]
    found = judge_fault(shown, 5.0, RANK)

    assert (found.verdict, found.seconds, found.before) == (DrillVerdict.RIGHT, 4.0, ("rank 4",))
    assert found.named.sentence == "in full"


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("mpirun noticed that process rank 4 with PID 0 on node n3 exited on signal 9", "rank 4"),
        ("Root Cause (first observed failure):\n[0]:\n  time : x\n  rank      : 3 (local_rank: 1)", "rank 3"),
        ("=   RANK 2 PID 77 RUNNING AT n2", "rank 2"),
        ("=   PID 77 RUNNING AT n2\n=   EXIT CODE: 9", "n2"),
        ("srun: error: n2: task 3: Killed", "rank 3"),
        ("step 14\nstep 15", ""),
    ],
)  # fmt: skip
def test_whom_a_launcher_names(text: str, who: str) -> None:
    assert launcher_named(text) == who


# ---- what is read of a job


def fault(way: Way = Way.SILENT, victim: int = 3) -> DrillFault:
    spec = JobSpec(name="drill", launch=Launch.PLAIN, command=("python3",))
    return DrillFault(way=way, launch=Launch.PLAIN, victim=victim, spec=spec)


@pytest.fixture
def jobs() -> Jobs:
    spec = fault().spec
    node = NodePlan("j", "n2", (2, 3))
    found = Jobs()
    found.add(
        Plan(job="j", name="drill", cluster="c", backend="ssh", nodes=(node,), spec=spec), 0.0
    )
    return found


def written(jobs: Jobs, rank: int, text: str, at: float = 50.0) -> None:
    jobs.apply(Chunk("j", "n2", rank, "out", 0, at, text.encode()))


def test_the_fault_happens_when_the_victim_says_so(jobs: Jobs) -> None:
    written(jobs, 3, f"step 15\n{MARK} now 1.0\n")
    watch = FaultWatch(jobs, fault(), NO_LINK, LIMIT)
    watch.take_in(jobs.job("j"), 52.0)

    assert (watch.at, watch.node, watch.cannot) == (51.0, "n2", "")
    assert watch.shown == [(52.0, None)]


def test_another_rank_cannot_say_it_and_a_fault_that_cannot_happen_is_told(jobs: Jobs) -> None:
    watch = FaultWatch(jobs, fault(), NO_LINK, LIMIT)
    written(jobs, 2, f"{MARK} now 0\n")
    watch.take_in(jobs.job("j"), 52.0)
    assert (watch.at, watch.is_decided(jobs.job("j"), 52.0)) == (None, False)

    written(jobs, 3, f"{MARK} cannot no MPI library was found\n")
    watch.take_in(jobs.job("j"), 53.0)
    assert watch.cannot == "no MPI library was found"
    assert watch.is_decided(jobs.job("j"), 53.0)


async def test_a_link_is_not_cut_when_the_job_has_ended_for_nobody_would_mend_it(
    jobs: Jobs, tmp_path: Path
) -> None:
    written(jobs, 3, f"{MARK} now 0\n")
    link = Link(cut=("touch", f"{tmp_path}/cut"), mend=("true",))
    job = jobs.job("j")
    ended = FaultWatch(jobs, replace(fault(), way=Way.CUT), link, LIMIT)

    await ended.look(replace(job, state=State.FAILED), 52.0)
    assert not (tmp_path / "cut").exists()

    running = FaultWatch(jobs, replace(fault(), way=Way.CUT), link, LIMIT)
    await running.look(job, 52.0)
    assert (tmp_path / "cut").exists()


def test_an_answer_must_stand_a_while_and_a_guess_is_none() -> None:
    job = job_of()
    watch = FaultWatch(Jobs(), fault(), NO_LINK, LIMIT, node="n2", at=50.0)
    watch.shown = [(60.0, Named((3,), sentence="a")), (61.0, Named((3,), sentence="b"))]
    assert not watch.is_decided(job, 60.0 + STANDS - 0.1)
    assert watch.is_decided(job, 60.0 + STANDS)

    watch.shown = [(60.0, Named((3,), settled=False))]
    assert not watch.is_decided(job, 60.0 + STANDS)
    assert watch.is_decided(replace(job, state=State.FAILED), 60.0)
    assert watch.is_decided(job, 50.1 + LIMIT)


# ---- what is shown


def drill_of(*results: DrillResult) -> Drill:
    plan = plan_drill(DrillRequest(ways=(Way.KILLED,)), CLUSTER, NAMES)
    return Drill(id="d1", plan=plan, results=results, started=1.0, ended=2.0)


RIGHT = DrillResult(
    fault=fault(), verdict=DrillVerdict.RIGHT, job="j", node="n2", named="rank 3", seconds=8.25,
    sentence="rank 3 is silent", launcher="rank 3",
)  # fmt: skip
UNPLANTED = DrillResult(fault=fault(), verdict=DrillVerdict.UNPLANTED, sentence="no torchrun")


def test_a_drill_is_trusted_only_if_all_that_was_planted_is_right_and_gone() -> None:
    assert drill_of(RIGHT, UNPLANTED).trusted
    assert not drill_of(UNPLANTED).trusted
    assert not drill_of().trusted
    assert not drill_of(RIGHT, replace(RIGHT, verdict=DrillVerdict.WRONG)).trusted
    assert not drill_of(RIGHT, replace(RIGHT, verdict=DrillVerdict.SILENT)).trusted
    assert not drill_of(replace(RIGHT, left={"n2": "process 7"})).trusted


def test_rows_lines_and_json_say_the_same() -> None:
    drill = drill_of(RIGHT, replace(RIGHT, verdict=DrillVerdict.WRONG, named="rank 1", launcher="", before=("rank 4",)), UNPLANTED)  # fmt: skip
    rows = [dict(zip(HEADS, result_row(one), strict=True)) for one in drill.results]
    shape = drill_shape(drill)

    assert (rows[0]["victim"], rows[0]["seconds"], rows[0]["launcher said"]) == ("rank 3 on n2", "8.2", "rank 3")  # fmt: skip
    assert (rows[1]["named"], rows[1]["launcher said"]) == ("rank 1 (first rank 4)", "nobody")
    assert (rows[2]["answer"], rows[2]["named"], rows[2]["sentence"]) == ("not planted", "-", "no torchrun")  # fmt: skip
    assert drill_headline(drill) == "1 of 2 right, half of them within 8 s; the launchers 1 of 2; 1 not planted"  # fmt: skip
    assert shape["counts"] == {"right": 1, "wrong": 1, "nobody": 0, "not planted": 1}
    assert [one["named"] for one in shape["results"]] == ["rank 3", "rank 1", ""]
    assert len(shape["planned"]) == 3
