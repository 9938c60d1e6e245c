"""What an end is judged by: whose lines of the kernel log are told,
and when a counter of kills counts.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rankdeck_agent.job.evidence import EndEvidence
from rankdeck_agent.job.folder import UNKNOWN, RunFolder, decode_end, exact_outcome
from rankdeck_agent.job.kernel_evidence import KernelLog
from rankdeck_agent.job.kill_counters import KillCounter, Kills
from rankdeck_agent.job.last_words import RANK, read_last_words
from rankdeck_agent.job.processes import Process

KILLED = decode_end(128 + 9)


def process(pid: int, parent: int) -> Process:
    return Process(pid, parent, pid, "S", 1)


@dataclass
class Node:
    """A witness with a kernel log and a counter of kills that are the test's own."""

    witness: EndEvidence
    say: Callable[[str], None]
    counter: Path

    def kill(self, pid: int) -> None:
        self.say(f"Out of memory: Killed process {pid} (python3)")
        self.count(1)

    def count(self, more: int) -> None:
        kills = int(self.counter.read_text().split()[-1]) + more
        self.counter.write_text(f"oom 9\noom_kill {kills}\n")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    for rank in range(4):
        place = tmp_path / f"rank.{rank}"
        place.mkdir()
        (place / "err").write_text("".join(f"line {n}\n" for n in range(50)))
    counter = tmp_path / "memory.events"
    counter.write_text("oom_kill 7\n")
    reading, writing = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
    kernel, kills = KernelLog(reading), Kills([KillCounter(counter, "kills: {}")])
    witness = EndEvidence(RunFolder(tmp_path, "j", "n"), kernel, kills)
    say = lambda line: os.write(writing, f"6,1,1,-;{line}\n".encode())  # noqa: E731
    yield Node(witness, say, counter)
    os.close(reading)
    os.close(writing)


def test_a_process_below_a_rank_is_told_of_that_rank_only(node: Node) -> None:
    for rank in range(2):
        node.witness.began(rank, 100 + rank)
    rows = [process(100, 90), process(101, 91), process(300, 100), process(301, 300)]
    node.witness.saw({row.pid: row for row in rows}, {100: 0, 101: 1})
    node.say("Out of memory: Killed process 301 (pt_data_worker)")

    mine = node.witness.of_rank(0, decode_end(1), asked=False)
    other = node.witness.of_rank(1, decode_end(1), asked=False)

    assert mine.kernel == ("Out of memory: Killed process 301 (pt_data_worker)",)
    assert other.kernel == ()


def test_a_rank_in_another_pid_namespace_is_given_no_lines(node: Node) -> None:
    node.witness.began(0, 0)
    node.say("python3[57]: segfault at 0")

    assert node.witness.of_rank(0, decode_end(139), asked=False).kernel == ()


def test_a_kill_that_nobody_named_is_told_from_the_counter(node: Node) -> None:
    node.witness.began(0, 100)
    node.count(1)

    assert node.witness.of_rank(0, KILLED, asked=False).kernel == ("kills: 1",)


def test_a_kill_from_before_a_rank_began_is_not_told(node: Node) -> None:
    node.count(1)
    node.witness.look()
    node.witness.began(0, 100)

    assert node.witness.of_rank(0, KILLED, asked=False).kernel == ()


def test_one_kill_explains_one_end(node: Node) -> None:
    for rank in range(4):
        node.witness.began(rank, 100 + rank)
    node.kill(100)

    ends = [node.witness.of_rank(r, KILLED, asked=False) for r in range(4)]

    assert [end.kernel for end in ends] == [
        ("Out of memory: Killed process 100 (python3)",), (), (), (),
    ]  # fmt: skip


def test_two_kills_explain_two_ends(node: Node) -> None:
    for rank in range(3):
        node.witness.began(rank, 100 + rank)
    node.count(2)

    ends = [node.witness.of_rank(r, KILLED, asked=False) for r in range(3)]

    assert [end.kernel for end in ends] == [("kills: 2",), ("kills: 2",), ()]


@pytest.mark.parametrize("status", [1, 143, 139, UNKNOWN])
def test_the_counter_is_asked_only_for_what_was_killed(node: Node, status: int) -> None:
    node.witness.began(0, 100)
    node.count(1)

    assert node.witness.of_rank(0, decode_end(status), asked=False).kernel == ()


def test_each_last_line_comes_with_its_time_if_all_times_are_known(
    node: Node, tmp_path: Path
) -> None:
    for rank in range(2):
        node.witness.began(rank, 100 + rank)
    (tmp_path / "rank.0/err").write_text("one\ntwo\n")
    (tmp_path / "rank.0/err.idx").write_text("0 50.25\n4 51.5\n")

    known = node.witness.of_rank(0, decode_end(1), asked=False)
    unknown = node.witness.of_rank(1, decode_end(1), asked=False)

    assert (known.said, known.written) == (("one", "two"), (50.25, 51.5))
    assert unknown.written == ()


@pytest.mark.parametrize(
    ("status", "asked", "lines"),
    [(1, False, 40), (1, True, 40), (143, True, 3), (137, True, 3), (143, False, 40)],
)
def test_ranks_that_were_told_to_end_say_less(
    node: Node, status: int, asked: bool, lines: int
) -> None:
    node.witness.began(0, 100)

    said = node.witness.of_rank(0, decode_end(status), asked=asked).said

    assert said == tuple(f"line {n}" for n in range(50 - lines, 50))


@pytest.mark.parametrize(
    ("command", "code", "signal"),
    [("exit 137", 137, None), ("kill -9 $$", None, 9), ("exit 0", 0, None)],
)
def test_a_launcher_that_ends_with_137_was_not_killed_itself(
    command: str, code: int, signal: int
) -> None:
    _, status = os.waitpid(os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", command), 0)

    assert exact_outcome(status) == {"code": code, "signal": signal}


def test_the_message_of_glibc_is_kept_before_its_stack_and_map_of_memory(tmp_path: Path) -> None:
    says = "*** Error in `pb_mpi': corrupted size vs. prev_size: 0x0000000004e03120 ***"
    stack = ["/lib64/libc.so.6(+0x7f7c4)[0x7fca5756c7c4]", "pb_mpi[0x4de838]"] * 30
    maps = [
        f"7fca5{n:03x}b000-7fca5{n:03x}c000 r-xp 00000000 00:30 22 /lib/a.so" for n in range(90)
    ]
    lines = [says, "======= Backtrace: =========", *stack, "======= Memory map: ========", *maps]
    (tmp_path / "err").write_text("\n".join([*lines, "Signal: Aborted (6)", ""]))

    assert read_last_words(tmp_path, RANK) == [says, "Signal: Aborted (6)"]


def test_an_exception_among_the_last_words_is_known_of_a_rank_that_ended_well(
    node: Node, tmp_path: Path
) -> None:
    raised = (
        "Traceback (most recent call last):\n  File x\nRuntimeError: CUDA error\nsee the docs\n"
    )
    (tmp_path / "rank.2" / "err").write_text(raised)
    (tmp_path / "rank.3" / "err").write_text(raised + "step\n" * 1000)

    told = [node.witness.of_well_ended(rank).raised for rank in range(4)]
    assert told == [False, False, True, False]
