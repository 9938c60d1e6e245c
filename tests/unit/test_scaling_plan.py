"""The plan of a study: ranks on nodes, values of the job file; each wrong input in one sentence."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.config.jobs import change_value
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import Container, JobSpec, Launch, MpiOptions
from rankdeck.scaling.planning import (
    ScaleRequest,
    ScalingError,
    fill_counts,
    hash_job,
    job_of,
    parse_counts,
    parse_values,
    plan_study,
)
from rankdeck.scaling.typed import read_typed_study
from rankdeck.values import replace

CLUSTER = Cluster(name="lab", nodes=tuple(Node(name=f"n{i}", slots=4) for i in (1, 2, 3)))
NAMES = ("n1", "n2", "n3")
SPEC = JobSpec(name="stencil", launch=Launch.MPI, command=("./bmt", "S"), nodes=2, env={"T": "1"})


def made(spec: JobSpec = SPEC, **more: object):
    return plan_study(ScaleRequest(file="s.yaml", **more), CLUSTER, spec, NAMES)  # type: ignore[arg-type]


def places(plan) -> list[tuple[int, int, int]]:
    return [(one.ranks, one.nodes, one.ranks_per_node) for one in plan.points]


def test_ranks_fill_as_few_nodes_as_possible_with_equally_many_on_each() -> None:
    assert places(made(ranks=(1, 2, 4, 6, 8, 12))) == [
        (1, 1, 1), (2, 1, 2), (4, 1, 4), (6, 2, 3), (8, 2, 4), (12, 3, 4)
    ]  # fmt: skip


def test_the_ranks_per_node_of_the_job_are_kept_as_far_as_they_reach() -> None:
    plan = made(replace(SPEC, ranks_per_node=2), ranks=(1, 2, 4, 6, 8))

    assert places(plan) == [(1, 1, 1), (2, 1, 2), (4, 2, 2), (6, 3, 2), (8, 2, 4)]
    assert plan.notes == ("8 ranks need 4 on each node; the job file says 2",)


@given(st.integers(1, 12), st.integers(0, 4))
def test_a_point_has_exactly_the_ranks_that_were_asked_for(ranks: int, each: int) -> None:
    fits = {n * per for n in (1, 2, 3) for per in (1, 2, 3, 4)}
    if ranks not in fits:
        with pytest.raises(ScalingError, match="cannot be spread evenly"):
            made(replace(SPEC, ranks_per_node=each), ranks=(ranks,))
        return
    plan = made(replace(SPEC, ranks_per_node=each), ranks=(ranks,))
    (point,) = plan.points
    spec = job_of(SPEC, point, plan.nodes)
    assert spec.nodes * spec.ranks_per_node == ranks
    assert len(spec.on) == spec.nodes <= 3
    assert spec.ranks_per_node <= 4


def test_nodes_are_compared_with_the_ranks_of_the_job_on_each() -> None:
    assert places(made(nodes=(1, 3))) == [(4, 1, 4), (12, 3, 4)]
    tensorflow = replace(SPEC, launch=Launch.TENSORFLOW)
    assert places(made(tensorflow, nodes=(1, 2))) == [(1, 1, 1), (2, 2, 1)]


def test_every_combination_of_values_is_a_curve_and_a_single_value_none() -> None:
    plan = made(ranks=(1, 2), sets=(("env.T", ("1", "2")), ("command", ("./a", "./b x")), ("workdir", ("/w",))))  # fmt: skip

    assert [one.curve for one in plan.points[::2]] == [
        "env.T=1, command=./a", "env.T=1, command=./b x", "env.T=2, command=./a", "env.T=2, command=./b x"
    ]  # fmt: skip
    spec = job_of(SPEC, plan.points[-1], plan.nodes, "s1")
    assert (spec.command, spec.env["T"], spec.workdir, spec.part_of) == (
        ("./b", "x"),
        "2",
        "/w",
        "s1",
    )


def test_a_value_may_grow_with_the_ranks_by_a_list_or_a_formula() -> None:
    listed = made(ranks=(1, 4), weak=(("command", ("./bmt S", "./bmt M")),))
    formula = made(ranks=(1, 4), weak=(("command", ("./bmt {24*ranks} {nodes}",)),))

    assert listed.weak
    assert [job_of(SPEC, one, NAMES).command for one in listed.points] == [
        ("./bmt", "S"),
        ("./bmt", "M"),
    ]
    assert [job_of(SPEC, one, NAMES).command for one in formula.points] == [
        ("./bmt", "24", "1"), ("./bmt", "96", "1")
    ]  # fmt: skip
    assert fill_counts("{ranks} {3 * nodes} {other}", 8, 2) == "8 6 {other}"


def test_spread_and_packed_ranks_can_be_compared() -> None:
    plan = made(ranks=(2,), sets=(("ranks_per_node", ("1", "2")),))

    assert places(plan) == [(2, 2, 1), (2, 1, 2)]


def test_every_second_block_goes_backwards() -> None:
    assert made(ranks=(1, 2, 4), repeats=3).order == (
        (0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0), (2, 0), (2, 1), (2, 2)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"ranks": (64,)}, "--ranks 64: `lab` has 3 nodes for this job: n[1-3], with 4 slots on each, so 12 in all"),
        ({"ranks": (5,)}, "cannot be spread evenly over 3 nodes with at most 4 ranks on each; near it are 4 and 6"),
        ({"nodes": (4,)}, "--nodes 4: `lab` has 3 nodes"),
        ({}, "nothing to compare"),
        ({"ranks": (1,), "nodes": (1,)}, "--ranks and --nodes: give one of them"),
        ({"ranks": (1,), "repeats": 0}, "--repeat: from 1 to 100"),
        ({"ranks": (1, 2), "sets": (("size", ("1", "2")),)}, "--set size=1: `size` cannot be set here"),
        ({"ranks": (1, 2), "sets": (("env.T", ("1", "2")),), "weak": (("env.T", ("1", "2")),)}, "`env.T` is given twice"),
        ({"ranks": (1, 2), "sets": (("nodes", ("1", "2")),)}, "use --ranks or --nodes"),
        ({"ranks": (1, 2), "sets": (("command", ("",)),)}, "--set command=: is empty"),
        ({"ranks": (1, 2), "sets": (("command", ("a 'b",)),)}, "No closing quotation"),
        ({"ranks": (1, 2), "sets": (("container.image", ("x.sif",)),)}, "the job has no container"),
        ({"ranks": (1, 2), "sets": (("torch.args", ("-x",)),)}, "has no effect with `launch: mpi`"),
        ({"ranks": (1, 2, 4), "weak": (("env.T", ("1", "2")),)}, "has 2 values for 3 numbers of ranks"),
        ({"ranks": (1, 2), "weak": (("env.T", ("7",)),)}, "write one value for each number of ranks, or {ranks} in it"),
        ({"ranks": (1,), "weak": (("env.T", ("{ranks}",)),)}, "needs at least two numbers of ranks"),
        ({"ranks": tuple(range(1, 5)), "repeats": 100, "sets": (("env.T", tuple("123456")),)}, "at most 200 points and 1000 runs"),
    ],
)  # fmt: skip
def test_a_study_that_cannot_be_has_one_clear_sentence(more: dict, words: str) -> None:
    with pytest.raises(ScalingError) as found:
        made(**more)

    assert words in str(found.value)
    assert "\n" not in str(found.value)


def test_a_variable_that_the_file_does_not_have_is_added_and_told() -> None:
    plan = made(ranks=(1, 2), sets=(("env.OMP_NUM_THREADS", ("1", "2")),))

    assert plan.notes == ("the job file sets no OMP_NUM_THREADS: the study adds it",)
    assert job_of(SPEC, plan.points[-1], NAMES).env == {"T": "1", "OMP_NUM_THREADS": "2"}


@pytest.mark.parametrize("text", ["x", "1,y", "0", "4-2", "1-9999", "-3", "1.5", "٣", "2-"])
def test_ranks_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(ScalingError, match=r"^--ranks: "):
        parse_counts(text, "--ranks")


def test_ranks_are_sorted_and_each_counts_once() -> None:
    assert parse_counts("8, 1,2-4,2", "--ranks") == (1, 2, 3, 4, 8)
    assert parse_counts("", "--ranks") == ()


def test_a_comma_in_a_value_is_escaped() -> None:
    assert parse_values(r"command=a\,b,c", "--set") == ("command", ("a,b", "c"))
    for wrong in ("command", "=1,2", "env.T=1,1"):
        with pytest.raises(ScalingError):
            parse_values(wrong, "--set")


def test_the_hash_of_a_job_changes_with_the_job() -> None:
    assert hash_job(SPEC) == hash_job(replace(SPEC))
    assert hash_job(SPEC) != hash_job(replace(SPEC, files={"a": "b"}))


def test_a_typed_line_means_the_same_as_the_command() -> None:
    found = read_typed_study(
        "stencil --ranks 1,2 --set env.T=1,2 --set 'command=./a x' --repeat 2", Path
    )

    assert found == ScaleRequest(
        file="stencil",
        ranks=(1, 2),
        sets=(("env.T", ("1", "2")), ("command", ("./a x",))),
        repeats=2,
    )
    for wrong in ("", "a --rank 1", "a --repeat x", "a 'b", "a b"):
        with pytest.raises(ScalingError):
            read_typed_study(wrong, Path)


def test_set_changes_command_and_sections() -> None:
    spec = replace(SPEC, container=Container(image="a.sif"), mpi=MpiOptions())

    assert change_value(spec, "command", "./b 'c d'").command == ("./b", "c d")
    assert change_value(spec, "container.image", "b.sif").container == Container(image="b.sif")
    assert change_value(spec, "mpi.args", "--bind-to core").mpi.args == ("--bind-to", "core")
    for key, value in (
        ("command", "a : b"),
        ("command", ""),
        ("container.image", "-x"),
        ("on", "n1"),
    ):
        with pytest.raises(ValueError, match=r"."):
            change_value(spec, key, value)


def test_where_only_a_scheduler_knows_the_nodes_a_node_has_the_ranks_of_the_job() -> None:
    pods = Cluster(name="k8s", nodes=(), backend="kubernetes")
    spec = replace(SPEC, ranks_per_node=2)
    asked = ScaleRequest(file="s.yaml", ranks=(1, 3, 64))
    free, named = (plan_study(asked, pods, spec, names) for names in ((), tuple(f"w{i}" for i in range(40))))  # fmt: skip

    assert places(free) == places(named) == [(1, 1, 1), (3, 3, 1), (64, 32, 2)]
    assert job_of(spec, free.points[2], free.nodes).on == ()
    assert len(job_of(spec, named.points[2], named.nodes).on) == 32
    with pytest.raises(ScalingError, match="no node `w1` in cluster `lab`; there are"):
        plan_study(asked, CLUSTER, spec, ("w1",))
