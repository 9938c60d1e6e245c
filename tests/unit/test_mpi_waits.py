"""Which ranks of an MPI job keep the others waiting, by where their stacks stand."""

from hypothesis import given
from hypothesis import strategies as st

from rankdeck.rules.arrivals import Absence
from rankdeck.rules.mpi_waits import LOOKS, StandingRank, find_mpi_absence, read_standing_rank
from tests.support.cases import each

NODES = {0: "n1", 1: "n1", 2: "n2", 3: "n2"}
INSIDE = {"call": "futex", "state": "S"}


def looks(entered: str, mark: int = 1, ticks: int = 0, moves: int = 0) -> list[list]:
    """Three looks; `ticks` and `moves`: between one and the next."""
    return [[0.7 * n, mark, 100 + n * ticks, 5 + n * moves, entered] for n in range(3)]


def row(rank: int, *frames: str, entered: str = "", does: dict | None = None, **more) -> dict:
    """The answer of a rank in these functions of the program `train`, innermost first."""
    files = {True: "libmpi.so.40", False: "train"}
    named = [
        [one, files[one.lower().startswith(("pmpi", "mpi", "ompi"))]] for one in (*frames, "_start")
    ]
    native = {"frames": named, "entered": entered, "looks": looks(entered, **more)}
    return {"rank": rank, "native": native, "does": does or {}}


def in_mpi(rank: int, what: str = "PMPI_Allreduce", where: str = "add", **more) -> dict:
    return row(rank, what, where, "main", entered=what, **more)


def outside(rank: int, **more) -> dict:
    found = row(rank, "read", "load_batch", "main", **more)
    found["native"]["frames"][0] = ["read", "libc.so.6"]
    return found


def judged(*rows: dict, before: tuple[dict, ...] = (), nodes=NODES) -> Absence | None:
    """By two answers of each rank; `before` is the first one, if it is another."""
    answers = {
        now["rank"]: [
            found for raw in (then, now) if (found := read_standing_rank(raw, "")) is not None
        ]
        for then, now in zip(before or rows, rows, strict=True)
    }
    return find_mpi_absence(answers, nodes)


def test_the_rank_outside_of_mpi_is_named_with_what_it_does_instead() -> None:
    reads = {"call": "read", "state": "S", "file": "/data/shard-17", "kind": "nfs4", "source": "10.0.0.9:/export"}  # fmt: skip

    found = judged(in_mpi(0), in_mpi(1), outside(2, does=reads), in_mpi(3))

    assert found is not None
    assert (found.ranks, found.waiting, found.deadlock, found.still) == (
        (2,),
        (0, 1, 3),
        False,
        True,
    )
    assert found.text == (
        "rank 2 on n2 never entered MPI_Allreduce (ranks 0-1,3 wait there);"
        " it is in read ← load_batch; it reads /data/shard-17 (nfs4 10.0.0.9:/export)"
    )


def test_where_others_wait_for_messages_it_is_told_who_waits_where() -> None:
    found = judged(in_mpi(0, "MPI_Recv"), in_mpi(1, "MPI_Recv"), outside(2), in_mpi(3, "MPI_Wait"))

    assert found is not None
    assert found.ranks == (2,)
    assert found.text.startswith(
        "rank 2 on n2 is in no operation of MPI"
        " (ranks 0-1 wait in MPI_Recv ← add, rank 3 in MPI_Wait ← add)"
    )


def test_a_rank_that_works_accuses_nobody_however_long_it_takes() -> None:
    changes = outside(2)
    changes["native"]["looks"][1][1] = 7
    for late in (changes, outside(2, ticks=70)):
        assert judged(in_mpi(0), in_mpi(1), late, in_mpi(3)) is None


def test_ranks_that_communicate_are_no_deadlock() -> None:
    nodes = {0: "n1", 1: "n1"}
    both = (in_mpi(0, "MPI_Recv"), in_mpi(1, "MPI_Send"))

    assert judged(in_mpi(0, "MPI_Recv", mark=9), both[1], before=both, nodes=nodes) is None
    assert judged(in_mpi(0, "MPI_Recv", moves=50), both[1], nodes=nodes) is None
    assert judged(*both, nodes=nodes) is not None


def test_fewer_looks_than_needed_tell_nothing() -> None:
    short = outside(2)
    short["native"]["looks"].pop()
    once = {n: [one] for n in (0, 1) if (one := read_standing_rank(in_mpi(n, "MPI_Recv"), ""))}

    assert judged(in_mpi(0), in_mpi(1), short, in_mpi(3)) is None
    assert find_mpi_absence(once, {0: "n1", 1: "n1"}) is None


def test_ranks_that_receive_from_each_other_are_a_deadlock() -> None:
    found = judged(*(in_mpi(n, "PMPI_Recv", "exchange") for n in NODES))

    assert found is not None
    assert found.deadlock
    assert (
        found.text
        == "a deadlock, all 4 ranks wait for each other: ranks 0-3 are in MPI_Recv ← exchange"
    )


def test_collectives_that_do_not_match_name_the_few() -> None:
    found = judged(in_mpi(0), in_mpi(1, "mpi_allgather_", "share"), in_mpi(2), in_mpi(3))

    assert found is not None
    assert found.ranks == (1,)
    assert found.text == (
        "a deadlock, all 4 ranks wait for each other: ranks 0,2-3 are in MPI_Allreduce ← add;"
        " rank 1 is in MPI_Allgather ← share: these do not match"
    )


@each(["MPI_Bcast", "MPI_Scatter", "MPI_Scatterv"])
def test_a_rank_alone_below_a_root_is_named_as_a_guess(call: str) -> None:
    found = judged(in_mpi(0, call), *(in_mpi(n, "MPI_Allreduce") for n in (1, 2, 3)))

    assert found is not None
    assert (found.ranks, found.deadlock, found.guess) == ((0,), True, True)
    assert f"rank 0 is in {call} ← add: these do not match" in found.text


def test_below_a_root_two_ranks_or_one_whose_others_need_not_all_come_are_not_named() -> None:
    nodes = dict.fromkeys(range(5), "n1")
    two = [in_mpi(n, "MPI_Bcast" if n < 2 else "MPI_Barrier") for n in nodes]
    sends = [in_mpi(n, "MPI_Bcast" if n < 1 else "MPI_Gather") for n in nodes]

    for rows in (two, sends):
        found = judged(*rows, nodes=nodes)
        assert found is not None
        assert (found.ranks, found.deadlock, found.guess) == (tuple(nodes), True, False)


@each(["MPI_Reduce", "MPI_Gatherv", "MPI_Recv", "MPI_Wait"])
def test_a_rank_that_the_others_may_have_left_behind_is_not_named(call: str) -> None:
    """If one leaves out a reduction to rank 0, all others may go on to the next Barrier."""
    found = judged(in_mpi(0, call), *(in_mpi(n, "MPI_Barrier") for n in (1, 2, 3)))

    assert found is not None
    assert found.deadlock
    assert found.ranks == (0, 1, 2, 3)
    assert f"rank 0 is in {call} ← add" in found.text


def test_of_ranks_that_are_each_in_another_collective_nobody_is_named() -> None:
    # LAMMPS with an argument on rank 1 that it does not know.
    calls = ("PMPI_Cart_create", "PMPI_Barrier", "PMPI_Bcast")
    nodes = {0: "n1", 1: "n1", 2: "n2"}

    found = judged(*(in_mpi(n, call) for n, call in enumerate(calls)), nodes=nodes)

    assert found is not None
    assert found.deadlock
    assert found.ranks == found.waiting == (0, 1, 2)
    assert "rank 2 is in MPI_Bcast ← add: these do not match" in found.text


def test_all_in_the_same_collective_are_told_later_as_data_may_be_under_way() -> None:
    found = judged(*map(in_mpi, NODES))

    assert found is not None
    assert (found.ranks, found.deadlock, found.told_after) == (tuple(NODES), True, 25.0)
    assert found.text.endswith("wait for each other: ranks 0-3 are in MPI_Allreduce ← add")


@each(["MPI_File_write_all", "MPI_Init", "MPI_Win_fence"])
def test_all_in_an_operation_that_may_wait_for_something_else_are_no_deadlock(call: str) -> None:
    assert judged(*(in_mpi(n, call) for n in NODES)) is None


def test_one_unknown_rank_is_no_deadlock() -> None:
    assert judged(*(in_mpi(n, "PMPI_Recv") for n in (0, 1, 2))) is None


def test_where_all_stand_in_a_barrier_no_data_are_on_their_way() -> None:
    """They mean different groups, or the network does not carry: nobody is named."""
    found = judged(*(in_mpi(n, "PMPI_Barrier") for n in NODES))

    assert found is not None
    assert (found.ranks, found.deadlock, found.told_after) == (tuple(NODES), True, 0.0)
    assert found.text.endswith("wait for each other: ranks 0-3 are in MPI_Barrier ← add")


def test_a_rank_that_finalizes_with_open_mpi_is_in_an_operation_of_mpi() -> None:
    """Its MPI_Finalize jumps into another function and leaves no frame."""
    ends = in_mpi(3, "ompi_mpi_finalize")

    found = judged(in_mpi(0, "MPI_Recv"), *(in_mpi(n, "MPI_Barrier") for n in (1, 2)), ends)

    assert found is not None
    assert (found.ranks, found.deadlock) == (tuple(NODES), True)
    assert "rank 3 is in MPI_Finalize ← add: these do not match" in found.text


def test_a_rank_that_polls_or_most_that_sleep_accuse_nobody() -> None:
    assert judged(in_mpi(0), in_mpi(1), in_mpi(2, "MPI_Test"), in_mpi(3)) is None
    assert judged(in_mpi(0), outside(1), outside(2), outside(3)) is None
    assert judged(*map(outside, NODES)) is None


def test_a_rank_in_state_d_counts_as_standing_still_without_a_stack() -> None:
    held = {"rank": 2, "does": {"state": "D", "call": "openat", "file": "/nfs/x", "kind": "nfs", "source": "s:/"}}  # fmt: skip

    found = judged(in_mpi(0), in_mpi(1), held, in_mpi(3))

    assert found is not None
    assert (
        found.text
        == "rank 2 on n2 did not enter MPI_Allreduce (ranks 0-1,3 wait there); it opens /nfs/x (nfs s:/)"
    )


def test_names_of_fortran_and_cpp_are_read() -> None:
    fortran = row(0, "MPI_ALLREDUCE", "_ZN6solver4stepEv", entered="mpi_allreduce_f08_")

    found = judged(fortran, in_mpi(1, "PMPI_Recv"), nodes={0: "n1", 1: "n1"})

    assert found is not None
    assert "rank 0 is in MPI_Allreduce ← solver::step" in found.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
LOOKED = JSON | st.lists(st.lists(JSON | st.just(3), min_size=5, max_size=5), max_size=4)
NATIVE = JSON | st.fixed_dictionaries({"frames": JSON, "entered": JSON, "looks": LOOKED})
ROW = st.fixed_dictionaries({"rank": st.integers(-2, 4) | JSON, "native": NATIVE, "does": JSON})


@given(st.lists(ROW, max_size=4))
def test_whatever_a_node_answers_breaks_nothing(rows: list[dict]) -> None:
    answers: dict[int, list[StandingRank]] = {}
    for raw in rows:
        if (one := read_standing_rank(raw, "")) is not None:
            answers[one.rank] = [one] * LOOKS
    found = find_mpi_absence(answers, NODES)

    assert found is None or set(found.ranks) <= NODES.keys()
