"""Which lines of the kernel log are about a process, from records as /dev/kmsg gives them."""

import json
import os
from collections.abc import Callable, Iterator

import pytest
from tests.unit.agent.machines import DATA

from rankdeck_agent.job.kernel_evidence import KernelLog

RECORDED = DATA / "kernel-lines" / "kernel_lines.jsonl"
KILLED = "Memory cgroup out of memory: Killed process 4242 (python3) total-vm:9kB, anon-rss:8kB"
Log = tuple[KernelLog, Callable[[str], None]]


@pytest.fixture
def log() -> Iterator[Log]:
    # In this mode a pipe gives one message for each read, as the kernel's ring does.
    reading, writing = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)

    def say(message: str, level: int = 6) -> None:
        os.write(writing, f"{level},1,762859988,-;{message}\n KEY=value\n".encode())

    yield KernelLog(reading), say
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    "line",
    [
        KILLED,
        "Out of memory: Killed process 4242 (python3) total-vm:1460016kB, anon-rss:1414008kB",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/job,task=python3,pid=4242,uid=1000",
        "python3[4242]: segfault at 0 ip 00007fb28e185ad8 sp 00007ffdbf579c08 error 4 in libc.so.6[167ad8,7fb+156000]",
        "traps: my solver[4242] general protection fault ip:401136 sp:7ffe error:0 in solver[401000+1000]",
        "traps: solver[4242] trap divide error ip:401136 sp:7ffe error:0 in solver[401000+1000]",
        "NVRM: Xid (PCI:0000:05:00): 31, pid=4242, name=python3, Ch 00000010, MMU Fault",
        "NVRM: Xid (PCI:0000:05:00): 13, pid='4242', name=python3, Graphics Exception",
        "Memory failure: 0x12345: Sending SIGBUS to python3:4242 due to hardware memory corruption",
        "MCE: Killing python3:4242 due to hardware memory corruption fault at 7f00",
        "INFO: task python3:4242 blocked for more than 122 seconds.",
        'audit: type=1326 audit(1.2:3): auid=0 uid=0 gid=0 ses=1 pid=4242 comm="x" sig=31 arch=c000003e',
    ],
)
def test_a_line_that_names_a_process_is_told_of_it_alone(log: Log, line: str) -> None:
    kernel, say = log
    say(line)

    assert kernel.about({4242}, 0) == [line]
    assert kernel.about({42, 424, 242, 0, 1, 31, 13, 122}, 0) == []


def test_lines_from_before_a_rank_began_are_not_told_of_it(log: Log) -> None:
    kernel, say = log
    say(KILLED)
    mark = kernel.mark()

    assert kernel.about({4242}, mark) == []
    say(KILLED.replace("python3", "later"))
    assert kernel.about({4242}, mark) == [KILLED.replace("python3", "later")]


def test_what_a_program_wrote_into_the_log_is_not_the_kernels(log: Log) -> None:
    kernel, say = log
    say(KILLED, level=12)

    assert kernel.about({4242}, 0) == []


def test_at_most_five_short_lines_are_told(log: Log) -> None:
    kernel, say = log
    for number in range(9):
        say(f"python3[4242]: segfault at {number} " + "\x1b[2J" * 200)

    told = kernel.about({4242}, 0)

    assert [line.split()[3] for line in told] == ["4", "5", "6", "7", "8"]
    assert all(len(line) <= 300 and line.isprintable() for line in told)


def test_only_kills_for_want_of_memory_are_counted_as_such(log: Log) -> None:
    kernel, say = log
    say(KILLED)
    say("x[4243]: segfault at 0 ip 0 sp 0 error 4 in x[1,2]")
    mark = kernel.mark()

    assert kernel.killed(0) == {4242}
    assert kernel.killed(mark) == set()


def test_a_log_that_may_not_be_read_says_nothing() -> None:
    assert KernelLog(None).about({4242}, 0) == []


def test_recorded_lines_are_found_by_the_pid_in_them(log: Log) -> None:
    if not RECORDED.exists():
        pytest.skip(f"no recorded kernel lines: {RECORDED} is missing")
    kernel, say = log
    lines = [json.loads(row)["line"] for row in RECORDED.read_text().splitlines()]
    named = [line for line in lines if ", pid=" in line and "unknown" not in line]
    assert named
    for line in named:
        mark = kernel.mark()
        say(line[line.index("NVRM") :])
        pid = int(line.split(", pid=")[1].partition(",")[0].strip("'"))
        assert kernel.about({pid}, mark), line
