"""The lens on made-up looks: who stands out, and in which words."""

import json

from hypothesis import given
from hypothesis import strategies as st

from rankdeck.rules.inspect import Look, QueuePair, conclude_inspection, group_stacks, look_of
from rankdeck.values import replace

REDUCE = (
    (
        "all_reduce",
        "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py",
        2500,
    ),
    ("step", "train.py", 8),
    ("<module>", "train.py", 20),
)
LOAD = (("load_batch", "train.py", 3), ("<module>", "train.py", 19))


def look(rank: int, *stacks, per_node: int = 8, **more) -> Look:
    node = f"n{rank // per_node + 1}"
    return Look(rank=rank, node=node, threads={}, stacks=stacks, **more)


def test_one_of_512_in_another_call_is_named() -> None:
    looks = [look(n, LOAD if n == 137 else REDUCE) for n in range(512)]

    found = conclude_inspection("j", 0.0, looks, {})

    assert found.odd == (137,)
    assert found.answer == (
        "511 in all_reduce (train.py:8), 1 in load_batch (train.py:3): rank 137 on n18"
    )


def test_who_is_not_in_the_collective_stands_out_even_where_it_is_the_majority() -> None:
    looks = [look(n, REDUCE if n < 3 else LOAD) for n in range(16)]

    found = conclude_inspection("j", 0.0, looks, {})

    assert found.odd == tuple(range(3, 16))


def test_ranks_that_poll_are_together_however_they_were_caught() -> None:
    test, sleep = (("<module>", "hang.py", 23),), (("<module>", "hang.py", 24),)
    stuck = (("<module>", "hang.py", 20),)
    looks = [
        look(0, test, sleep),
        look(1, sleep, sleep),
        look(2, stuck, stuck),
        look(3, test),
    ]

    found = conclude_inspection("j", 0.0, looks, {})

    assert [one.ranks for one in found.groups] == [(0, 1, 3), (2,)]
    assert found.odd == (2,)


def test_without_stacks_the_kernel_tells_them_apart() -> None:
    looks = [
        look(n, state="S", wchan="hrtimer_nanosleep" if n == 2 else "futex_wait_queue")
        for n in range(4)
    ]

    found = conclude_inspection("j", 0.0, looks, {"n9": "no answer"})

    assert found.odd == (2,)
    assert found.answer == (
        "3 waiting in futex_wait_queue (a lock or another thread), 1 waiting in hrtimer_nanosleep (a sleep): rank 2 on n1"
    )
    assert found.missing == {"n9": "no answer"}


def test_where_all_are_together_nobody_stands_out() -> None:
    found = conclude_inspection("j", 0.0, [look(n, REDUCE) for n in range(8)], {})

    assert found.odd == ()
    assert found.answer == "8 in all_reduce (train.py:8)"


def test_no_rank_at_all_is_said() -> None:
    assert conclude_inspection("j", 0.0, [], {}).answer == "no running rank could be looked at"


@given(
    st.lists(
        st.lists(
            st.sampled_from([REDUCE, LOAD, (("f", "a.py", 1),), (("f", "a.py", 2),)]),
            max_size=3,
        ),
        max_size=20,
    )
)
def test_every_rank_is_in_exactly_one_group(samples) -> None:
    looks = [look(n, *stacks, state="S") for n, stacks in enumerate(samples)]

    grouped = [rank for one in group_stacks(looks) for rank in one.ranks]

    assert sorted(grouped) == list(range(len(samples)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(
    st.fixed_dictionaries(
        {"rank": st.integers(-2, 5) | json_values},
        optional=dict.fromkeys(
            ("pid", "state", "wchan", "kernel", "threads", "stacks", "cpu", "last"),
            json_values,
        ),
    )
    | json_values
)
def test_whatever_a_node_sends_becomes_a_look_or_nothing(raw) -> None:
    found = look_of("n1", raw, {})

    if found is not None:
        conclude_inspection("j", 0.0, [found], {})
        assert found.last.isprintable() or not found.last
        json.dumps(found.rank)


def test_where_all_are_at_one_place_who_fell_silent_first_is_named() -> None:
    looks = [
        Look(rank=n, node=f"n{n}", state="S", wchan="futex", threads={}, silent=s)
        for n, s in enumerate([31.0, 31.2, 33.5, 31.1])
    ]

    answer = conclude_inspection("j", 0.0, looks, {}).answer
    assert answer == "4 waiting in futex; silent first: rank 2 on n2"
    lively = [replace(look, silent=(look.silent or 0) - 30) for look in looks]
    assert conclude_inspection("j", 0.0, lively, {}).answer == "4 waiting in futex"


def test_the_queue_pairs_of_a_rank_are_told_also_by_a_node_that_lies() -> None:
    rows = [
        {"device": "rxe0", "number": 17, "remote": 18, "kind": "RC", "state": "RTS"},
        {"device": "\x1b[31m", "number": "x", "remote": None, "kind": 7, "state": None},
        "nonsense",
    ]
    found = look_of("n1", {"rank": 0, "pairs": rows}, {})

    assert found is not None
    assert found.pairs[0] == QueuePair("rxe0", 17, 18, "RC", "RTS")
    assert found.pairs_text.startswith("2 queue pairs: rxe0 #17 to #18 RC RTS, ")
    assert found.pairs_text.isprintable()
    assert look(0).pairs_text == ""
