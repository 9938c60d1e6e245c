"""Who made a job fail where the output of ranks stayed with their launchers."""

from rankdeck.rules.ends import LAUNCHER_ENDINGS, End, ends_in_output
from rankdeck.rules.failed_job import FailedJob
from rankdeck.rules.root_cause import find_cause

LOST_PEER = (
    "RuntimeError: [gloo/transport/tcp/pair.cc:542] Connection closed by peer [10.0.0.2]:4567"
)


def launcher(node: str, at: float, *said: str) -> End:
    return End(what="launcher", name="torchrun", node=node, at=at, code=1, lines=said)


def raised(rank: int, error: str) -> tuple[str, ...]:
    lines = ("Traceback (most recent call last):", '  File "train.py", line 9, in <module>', error)
    return tuple(f"[rank{rank}]: {line}" for line in lines)


def blamed(*launchers: End) -> tuple[int | None, str]:
    heard = ends_in_output(launchers)
    ends = tuple(heard.get(n, End(rank=n, node="n1" if n < 2 else "n2")) for n in range(4))
    torchrun = LAUNCHER_ENDINGS["torchrun"]
    cause = find_cause(FailedJob(ends=ends, launchers=launchers, ending=torchrun))
    assert cause is not None
    return cause.end.rank, cause.end.node


def test_the_rank_that_raised_an_error_of_its_own_is_named_and_where_it_ran() -> None:
    # Planned on n2, and started on n1 by a rendezvous that numbers the nodes itself.
    first = launcher("n2", 10.0, *raised(0, LOST_PEER), *raised(1, LOST_PEER))
    second = launcher("n1", 11.0, "rank 2 step 10", *raised(2, "ValueError: no sample 17"))

    assert blamed(first, second) == (2, "n1")


def test_a_rank_that_was_killed_without_a_word_is_known_by_its_launcher() -> None:
    first = launcher(
        "n2",
        10.0,
        *raised(0, LOST_PEER),
        *raised(1, LOST_PEER),
        "Some rank(s) exited with non-zero exit code: {1: ProcessFailure(local_rank=1, exitcode=1)}",
    )
    told = "Some rank(s) exited with non-zero exit code: {2: ProcessFailure(local_rank=0, exitcode=-9)}"
    second = launcher("n1", 11.0, *raised(3, LOST_PEER), told)

    assert blamed(first, second) == (2, "n1")


def test_launchers_that_pass_on_no_output_name_no_rank_by_it() -> None:
    assert ends_in_output((launcher("n1", 10.0, "rank 3 exited with code 1"),)) == {}


def test_all_are_known_from_the_same_moment_because_only_their_launchers_ends_are_known() -> None:
    ends = ends_in_output(
        (launcher("n1", 10.0, *raised(0, LOST_PEER)), launcher("n2", 12.0, *raised(3, LOST_PEER)))
    )

    assert {rank: end.at for rank, end in ends.items()} == {0: 10.0, 3: 10.0}


def test_who_raised_nothing_is_not_said_to_have_ended() -> None:
    said = ("[rank1]: UserWarning: no CUDA", *raised(0, "KeyError: 'x'"), "ValueError: of torchrun")

    assert [*ends_in_output((launcher("n1", 10.0, *said),))] == [0]


def test_an_end_stays_the_same_so_that_its_meaning_is_found_once() -> None:
    launchers = (launcher("n1", 10.0, *raised(0, "KeyError: 'x'")),)

    assert ends_in_output(launchers)[0] is ends_in_output(launchers)[0]
