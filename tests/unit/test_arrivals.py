"""Who keeps the others waiting, by what the ranks themselves say."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.rules.arrivals import Absence, RankTestimony, find_absence, read_testimony

NODES = {0: "n1", 1: "n1", 2: "n2", 3: "n2"}


def op(
    number: int, what: str = "all_reduce", *, over: bool = True, ago: float = 30.0, size: int = 4
) -> dict:
    return {
        "number": number, "what": f"gloo:{what}", "sizes": [[size]], "types": ["Float"],
        "over": over, "ago": ago, "between": False,
    }  # fmt: skip


def rank(number: int, recorded: dict, place: str = "", peer: list | None = None) -> RankTestimony:
    groups = {
        "0": {"ranks": [0, 1, 2, 3], "called": "default_pg"},
        "1": {"ranks": [0, 3], "called": "tensor_parallel"},
    }
    stack = [
        ["all_reduce", "/opt/venv/lib/python3.11/site-packages/torch/distributed_c10d.py", 9],
        [place or "train", "/home/u/train.py", 3],
    ]
    raw = {"rank": number, "groups": groups, "recorded": recorded, "stack": stack}
    found = read_testimony(raw | ({"peer": peer} if peer else {}))
    assert found is not None
    return found


def absence(*said: RankTestimony, least: float = 8.0) -> Absence | None:
    return find_absence({one.rank: one for one in said}, NODES, least)


def waits(number: int, at: int = 7, **more: object) -> RankTestimony:
    return rank(number, {"0": [op(at - 1), op(at, over=False, **more)]})  # type: ignore[arg-type]


def test_the_rank_that_has_not_entered_what_others_wait_in_is_named_with_its_place() -> None:
    late = rank(2, {"0": [op(6, ago=41)]}, "load_batch")

    found = absence(waits(0), waits(1), late, waits(3))

    assert found is not None
    assert (found.ranks, found.waiting, found.deadlock) == ((2,), (0, 1, 3), False)
    assert found.text == (
        "rank 2 on n2 never entered all_reduce 7 (ranks 0-1,3 wait there since 30 s);"
        " it is in load_batch (train.py:3)"
    )


def test_a_rank_that_says_nothing_is_not_accused() -> None:
    assert absence(waits(0), waits(1), waits(3)) is None


def test_who_entered_something_just_now_is_not_accused() -> None:
    busy = rank(2, {"0": [op(6)], "1": [op(900, ago=0.4)]})

    assert absence(waits(0), waits(1), busy, waits(3)) is None


def test_an_operation_that_was_entered_just_now_keeps_nobody_waiting() -> None:
    late = rank(2, {"0": [op(6)]})

    assert absence(waits(0, ago=1), waits(1, ago=1), late, waits(3, ago=2)) is None


def test_of_several_groups_the_rank_for_which_all_wait_in_the_end_is_named() -> None:
    in_pair = rank(0, {"0": [op(6)], "1": [op(3, over=False)]})
    late = rank(3, {"0": [op(6)], "1": [op(2)]}, "save")

    found = absence(in_pair, waits(1), waits(2), late)

    assert found is not None
    assert found.ranks == (3,)
    assert "never entered" in found.text
    assert "it is in save (train.py:3)" in found.text


def test_two_operations_under_one_number_do_not_match() -> None:
    other = rank(1, {"0": [op(7, "broadcast", over=False)]})

    found = absence(waits(0), other, waits(2), waits(3))

    assert found is not None
    assert (found.ranks, found.deadlock) == ((1,), True)
    assert (
        "rank 1 on n1 is in broadcast 7; ranks 0,2-3 are in all_reduce: these do not match"
        in found.text
    )


def test_of_two_halves_that_do_not_match_none_is_named() -> None:
    others = [rank(n, {"0": [op(7, "broadcast", over=False)]}) for n in (1, 3)]

    found = absence(waits(0), others[0], waits(2), others[1])

    assert found is not None
    assert found.deadlock
    assert found.ranks == found.waiting == (0, 1, 2, 3)
    assert "these do not match" in found.text


def test_a_tensor_of_another_size_is_told_with_both_sizes() -> None:
    gone_on = [rank(n, {"0": [op(7), op(8, "barrier", over=False)]}) for n in (0, 1, 3)]
    odd = rank(2, {"0": [op(6), op(7, over=False, size=5)]})

    found = absence(*gone_on, odd)

    assert found is not None
    assert found.ranks == (2,)
    assert (
        "in all_reduce 7 with [[5]] ['Float']; the others called all_reduce with [[4]]"
        in found.text
    )


def test_ranks_that_receive_from_each_other_are_a_deadlock() -> None:
    found = absence(rank(0, {}, peer=["recv", 1]), rank(1, {}, peer=["recv", 0]))

    assert found is not None
    assert (found.ranks, found.deadlock) == ((0, 1), True)
    assert "rank 0 waits to receive from rank 1; rank 1 waits to receive from rank 0" in found.text


def test_who_waits_for_a_message_of_a_rank_that_does_something_else_is_told() -> None:
    found = absence(rank(0, {}, peer=["recv", 1]), rank(1, {}, "load_batch"))

    assert found is not None
    assert (
        found.text == "rank 0 waits to receive from rank 1 on n1; it is in load_batch (train.py:3)"
    )


C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def joining(number: int) -> RankTestimony:
    return beginning(number, ["init_process_group", C10D, 1800], ["main", "/home/u/train.py", 9])


def beginning(number: int, *stack: list) -> RankTestimony:
    """A rank that has no group yet."""
    found = read_testimony({"rank": number, "groups": {}, "recorded": {}, "stack": [*stack]})
    assert found is not None
    return found


def test_the_rank_that_never_came_to_form_the_first_group_is_named_with_its_place() -> None:
    late = beginning(2, ["load_shards", "/home/u/train.py", 4])

    found = absence(joining(0), joining(1), late, joining(3))

    assert found is not None
    assert (found.ranks, found.waiting, found.deadlock) == ((2,), (0, 1, 3), False)
    assert found.text == (
        "rank 2 on n2 never entered init_process_group (ranks 0-1,3 wait there);"
        " it is in load_shards (train.py:4)"
    )


def test_a_rank_that_still_loads_modules_is_not_accused_of_being_late() -> None:
    loads = beginning(
        2,
        ["get_data", "<frozen importlib._bootstrap_external>", 1],
        ["<module>", "/home/u/train.py", 2],
    )

    assert absence(joining(0), joining(1), loads, joining(3)) is None


def test_of_ranks_that_form_a_group_only_a_minority_is_late_and_none_that_is_unknown() -> None:
    late = [beginning(n, ["load_shards", "/home/u/train.py", 4]) for n in (1, 2, 3)]

    assert absence(joining(0), *late) is None
    assert absence(joining(0), joining(1), late[1]) is None


JAX = "/site-packages/jax/_src/distributed.py"
HUB = "10.0.0.1:6000"


def meeting(number: int, links: object, name: str = "initialize") -> RankTestimony:
    """A rank that waits for the others of JAX, with these connections."""
    stack = [[name, JAX, 145], ["<module>", "/home/u/train.py", 7]]
    found = read_testimony({"rank": number, "stack": stack, "links": links})
    assert found is not None
    return found


def linked(own: Sequence[str] = (), peers: Sequence[str] = (), seeks: Sequence[str] = ()) -> dict:
    return {"own": list(own), "peers": list(peers), "seeks": list(seeks)}


HOST = meeting(
    0, linked([HUB, "10.0.0.1:41000"], ["10.0.0.1:41000", HUB, "10.0.0.2:4", "10.0.0.3:5"])
)
GUESTS = [meeting(n, linked([f"10.0.0.{n + 1}:{n + 3}"], [HUB])) for n in (1, 2)]


def test_who_came_and_is_not_connected_to_where_all_others_are_is_named() -> None:
    apart = meeting(3, linked(seeks=["10.0.0.1:6001"]))

    found = absence(HOST, *GUESTS, apart)

    assert found is not None
    assert (found.ranks, found.waiting, found.apart) == ((3,), (0, 1, 2), True)
    assert found.text == (
        "rank 3 on n2 is not connected to 10.0.0.1:6000, where ranks 0-2 wait in initialize;"
        " it seeks 10.0.0.1:6001"
    )


@pytest.mark.parametrize(
    "last",
    [
        meeting(3, linked(["10.0.0.4:9"], [HUB])),
        meeting(3, {}),
        meeting(3, {"own": [], "peers": 7}),
        meeting(3, None),
        meeting(3, linked(), "shutdown"),
    ],
    ids=["connected too", "not known", "half known", "never told", "elsewhere"],
)
def test_who_may_be_connected_is_not_accused(last: RankTestimony) -> None:
    assert absence(HOST, *GUESTS, last) is None


def test_nobody_is_apart_where_most_have_no_address_in_common() -> None:
    alone = [meeting(n, linked([f"10.0.0.{n}:4"], [f"10.0.9.{n}:5"])) for n in range(3)]

    assert absence(*alone, meeting(3, linked())) is None
    assert absence(HOST, GUESTS[0], meeting(2, linked()), meeting(3, linked())) is None


def test_who_never_came_to_the_end_is_named_with_its_place() -> None:
    ending = [meeting(n, linked(), "shutdown") for n in (0, 1, 3)]

    found = absence(*ending, beginning(2, ["save", "/home/u/train.py", 30]))

    assert found is not None
    assert found.text.startswith("rank 2 on n2 never entered shutdown (ranks 0-1,3 wait there)")


def test_in_a_job_that_goes_on_nobody_waits() -> None:
    assert absence(*(rank(n, {"0": [op(7, ago=0.1)]}) for n in range(4))) is None


@pytest.mark.parametrize("raw", [None, 3, [], {}, {"rank": True}, {"rank": 1}, {"rank": "1"}])
def test_what_is_no_testimony_is_none(raw: object) -> None:
    assert read_testimony(raw) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 40) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["rank", "groups", "recorded", "stack", "peer", "ranks", "called", "number", "what", "over", "ago", "0"]),
        inner, max_size=6,
    ),
    max_leaves=30,
)  # fmt: skip


@given(st.dictionaries(st.integers(0, 3), VALUES, max_size=4))
def test_whatever_a_node_says_is_read_or_refused(said: dict[int, object]) -> None:
    read = {
        number: found
        for number, raw in said.items()
        if (found := read_testimony({**raw, "rank": number} if isinstance(raw, dict) else raw))
    }
    json.dumps(sorted(read))

    found = find_absence(read, NODES, 8.0)

    assert found is None or found.text.isprintable()
