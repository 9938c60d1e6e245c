"""What NCCL's RAS says of its communicators, and which rank is behind or gone."""

import copy

from hypothesis import given
from hypothesis import strategies as st

from rankdeck.rules.nccl_ras import find_ras_absence, read_ras

NODES = {0: "n1", 1: "n1", 2: "n2", 3: "n2"}
OURS = {100: 0, 101: 1, 102: 2, 103: 3}


def ras_rank(number: int, launched: int = 64) -> dict:
    return {
        "rank": number, "host": "10.0.0.1", "pid": 100 + number, "cuda_dev": 0, "nvml_dev": 0,
        "status": {"init_state": 0, "async_error": 0, "abort_flag": False},
        "collective_counts": {"AllReduce": launched, "Broadcast": 2},
    }  # fmt: skip


def report(*ranks: dict, missing: tuple[dict, ...] = ()) -> dict:
    """As NCCL 2.28 and later write it."""
    one = {
        "hash": "0x78db921d", "size": 4, "ranks_count": len(ranks), "ranks": [*ranks],
        "missing_ranks_count": len(missing), "missing_ranks": [*missing],
    }  # fmt: skip
    return {"json": {"nccl_version": "2.28.7", "communicators_count": 1, "communicators": [one]}}


LATE = report(ras_rank(0), ras_rank(1), ras_rank(2, 60), ras_rank(3))
GONE = {"rank": 2, "pid": 102, "status": {"unresponsive": True, "considered_dead": True}}
TEXT = {
    "lines": [
        "NCCL version 2.24.3 compiled with CUDA 12.5", "Warnings", "========",
        "#0-0 (78db921d1c117b4a) MISMATCH",
        "  Communicator ranks have different AllReduce operation counts",
        "  3 ranks have launched up to operation 64",
        "  Rank 2 has launched up to operation 60 -- GPU 3 managed by process 102 on node node1",
    ]
}  # fmt: skip
OLDER = {
    "lines": [
        "#0-0 (27a079b828ff1a75) MISMATCH",
        "  Communicator ranks have different collective operation counts",
        "  26 ranks have launched up to operation 6650",
        "  6 ranks have launched up to operation 6649",
        "  Rank 1 -- GPU 0 managed by process 101 on node 172.16.64.210",
    ]
}


def judged(before: dict, now: dict | None = None, ours: dict[int, int] = OURS):
    return find_ras_absence(read_ras(before), read_ras(now or before), ours, NODES)


def test_the_rank_that_has_launched_fewer_operations_is_named() -> None:
    found = judged(LATE)

    assert found is not None
    assert (found.ranks, found.waiting) == ((2,), (0, 1, 3))
    assert found.text == (
        "rank 2 on n2 never launched AllReduce 61 of NCCL communicator 0x78db921d"
        " (most others have launched 64)"
    )


def test_the_report_of_an_older_nccl_names_it_too() -> None:
    found, older = judged(TEXT), judged(OLDER)

    assert found is not None
    assert "rank 2 on n2 never launched AllReduce 61 " in found.text
    assert older is not None
    assert "rank 1 on n1 never launched operation 6,650 " in older.text


def test_a_rank_that_does_not_answer_is_named() -> None:
    found = judged(report(ras_rank(0), ras_rank(1), ras_rank(3), missing=(GONE,)))

    assert found is not None
    assert found.text == "rank 2 on n2 does not answer NCCL's RAS, which takes it for dead"


def test_a_job_that_goes_on_between_two_answers_accuses_nobody() -> None:
    later = copy.deepcopy(LATE)
    later["json"]["communicators"][0]["ranks"][0]["collective_counts"]["AllReduce"] += 1

    assert judged(LATE, later) is None
    assert judged({}, LATE) is None
    assert judged(report(*map(ras_rank, NODES))) is None


def test_the_ras_of_another_job_accuses_nobody() -> None:
    assert judged(LATE, ours={}) is None
    assert judged(LATE, ours={7: 2}) is None


def test_where_pids_and_numbers_do_not_agree_only_pids_count() -> None:
    found = judged(LATE, ours={102: 1, 100: 0, 101: 2, 103: 3})

    assert found is not None
    assert found.ranks == (1,)


def test_ranks_that_claim_to_be_ahead_or_most_that_are_late_accuse_nobody() -> None:
    odd = ras_rank(2, 60)
    odd["collective_counts"]["Broadcast"] = 9
    assert judged(report(ras_rank(0), ras_rank(1), odd, ras_rank(3))) is None
    late = report(
        *map(ras_rank, NODES), missing=tuple({**GONE, "rank": n, "pid": 100 + n} for n in NODES)
    )
    assert judged(late) is None


def test_a_report_most_of_whose_processes_are_not_ours_accuses_nobody() -> None:
    """Another job, of which a process on another node has the number of one of ours."""
    assert judged(LATE, ours={102: 2}) is None
    assert judged(LATE, ours={102: 2, 100: 0}) is not None


def test_a_report_that_names_a_rank_twice_accuses_nobody() -> None:
    assert judged(report(*map(ras_rank, NODES), ras_rank(2, 60))) is None


def test_the_order_of_ranks_in_a_report_does_not_matter() -> None:
    mixed = report(ras_rank(3), ras_rank(2, 60), ras_rank(0), ras_rank(1))

    assert read_ras(mixed) == read_ras(LATE)


def several(*communicators: dict[int, int]) -> dict:
    """A report of communicators, each as rank -> how many operations it has launched."""
    rows = [
        {
            **report(*(ras_rank(number, at) for number, at in one.items()))["json"]["communicators"][0],
            "hash": f"0x{place}",
            "size": len(one),
        }
        for place, one in enumerate(communicators)
    ]  # fmt: skip
    return {"json": {"communicators": rows}}


def test_of_several_communicators_the_rank_that_waits_in_none_is_named() -> None:
    tensor, data, other = {0: 7, 1: 7, 2: 6}, {2: 9, 3: 8, 1: 9}, {0: 4, 1: 4, 2: 3}

    assert judged(several(tensor, data)).ranks == (3,)
    assert judged(several(data, tensor)).ranks == (3,)
    assert judged(several(tensor, other)).ranks == (2,)


def test_where_two_ranks_are_late_and_neither_waits_for_the_other_nobody_is_accused() -> None:
    assert judged(several({0: 7, 1: 7, 2: 6}, {0: 9, 1: 9, 3: 8})) is None
    # Each waits for the other.
    assert judged(several({0: 7, 3: 7, 2: 6}, {0: 9, 2: 9, 3: 8})) is None


def test_a_count_that_is_none_decides_nothing_and_new_keys_are_left_alone() -> None:
    for count in (1 << 63, 1 << 200, -1, True, "60", None, 6.5):
        assert judged(report(ras_rank(0), ras_rank(1), ras_rank(2, count), ras_rank(3))) is None  # type: ignore[arg-type]
    newer = copy.deepcopy(LATE)
    newer["json"]["diagnostics"] = {"rings": [[0, 1], {}]}
    for row in newer["json"]["communicators"][0]["ranks"]:
        row["collective_counts"]["AllToAllV"] = 5
        row["status"]["rings"] = [1 << 80]

    found = judged(newer)

    assert found is not None
    assert found.ranks == (2,)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(
    JSON | st.fixed_dictionaries({"lines": JSON}) | st.fixed_dictionaries({"lines": st.lists(st.sampled_from([*TEXT["lines"], *OLDER["lines"]]))})
    | st.fixed_dictionaries({"json": st.fixed_dictionaries({"communicators": st.lists(st.fixed_dictionaries({"size": JSON, "hash": JSON, "ranks": JSON | st.lists(st.fixed_dictionaries({"rank": JSON, "pid": JSON, "collective_counts": JSON})), "missing_ranks": JSON}))})})
)  # fmt: skip
def test_whatever_ras_answers_breaks_nothing(raw: object) -> None:
    found = find_ras_absence(read_ras(raw), read_ras(raw), OURS, NODES)

    assert found is None or set(found.ranks) <= NODES.keys()
