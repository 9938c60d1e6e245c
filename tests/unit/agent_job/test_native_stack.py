"""Where a process is, by its registers, its stack and the tables of its program (in C)."""

import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.polling import eventually

from rankdeck_agent.job import native_stack
from rankdeck_agent.job.kernel_wait import describe_wait
from rankdeck_agent.job.native_stack import NativeReader, NativeStack, StackError

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64") or not shutil.which("cc"),
    reason="needs cc, on x86_64 or aarch64",
)
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <alloca.h>
static volatile long counted;
__attribute__((noinline)) void PMPI_Allreduce(int quick) { for (;;) { if (!quick) usleep(1000); } }
__attribute__((noinline)) void load_batch(int fd) { char c; read(fd, &c, 1); counted++; }
__attribute__((noinline)) void spin(void) { for (;;) counted++; }
__attribute__((noinline)) int compare(const void *a, const void *b) { PMPI_Allreduce(1); return a != b; }
__attribute__((noinline)) void with_room(int n) { char *room = alloca(n); memset(room, n, n); PMPI_Allreduce(1); counted += room[3]; }
int main(int argc, char **argv)
{
    int pipes[2], some[2] = {2, 1};
    pipe(pipes);
    puts("begins");
    fflush(stdout);
    switch (argv[1][0]) {
    case 'r': load_batch(pipes[0]); break;
    case 'f': load_batch(open(argv[2], O_RDONLY)); break;
    case 's': spin(); break;
    case 'q': PMPI_Allreduce(1); break;
    case 'n': PMPI_Allreduce(0); break;
    case 'a': with_room(atoi(argv[2])); break;
    case 'c': qsort(some, 2, sizeof *some, compare); break;
    }
    counted++;
    return (int)counted;
}
"""
Start = Callable[..., int]


@pytest.fixture(scope="module", params=["-O0", "-O2"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    (folder / "program.c").write_text(PROGRAM)
    subprocess.run(
        ["cc", request.param, "-fno-inline", "-w", "program.c", "-o", "program"],
        cwd=folder,
        check=True,
    )
    return folder / "program"


@pytest.fixture
def start(program: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> int:
        process = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        return process.pid

    yield begin
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def read(pid: int) -> NativeStack:
    try:
        return NativeReader().read(pid)
    except StackError as error:
        if "permitted" in str(error):
            pytest.skip(str(error))
        raise


def names(stack: NativeStack) -> list[str]:
    return [name for name, _ in stack.frames]


def in_call(pid: int, call: str) -> bool:
    return describe_wait(pid).get("call") == call


def test_a_process_that_sleeps_in_a_call_is_read_without_being_stopped(start: Start) -> None:
    pid = start("r")
    assert eventually(lambda: in_call(pid, "read"))

    stack = read(pid)

    assert names(stack)[1:3] == ["load_batch", "main"]
    assert stack.frames[1] == ("load_batch", "program")
    assert stack.entered == ""
    assert read(pid).mark == stack.mark


@pytest.mark.parametrize("how", ["q", "n"])
def test_a_process_in_a_function_of_mpi_stands_still_for_the_program(
    start: Start, how: str
) -> None:
    pid = start(how)
    assert eventually(lambda: "PMPI_Allreduce" in names(read(pid)))

    stacks = [read(pid) for _ in range(5)]

    assert {stack.entered for stack in stacks} == {"PMPI_Allreduce"}
    assert all("main" in names(stack) for stack in stacks)
    assert len({stack.mark for stack in stacks}) == 1


def test_a_process_that_works_changes_its_mark(start: Start) -> None:
    pid = start("s")
    assert eventually(lambda: "spin" in names(read(pid)))

    first = read(pid).mark

    assert eventually(lambda: read(pid).mark != first)


def test_functions_with_a_stack_of_unknown_size_and_of_the_library_are_passed(start: Start) -> None:
    room, sorts = start("a", "5000"), start("c")

    assert eventually(lambda: "with_room" in names(read(room)))
    assert eventually(lambda: "compare" in names(read(sorts)))
    assert names(read(room))[-1] == names(read(sorts))[-1] == "_start"
    assert "main" in names(read(room))
    assert "main" in names(read(sorts))


def test_a_process_goes_on_after_it_was_read_and_a_stopped_one_stays_stopped(start: Start) -> None:
    pid = start("q")
    for _ in range(20):
        read(pid)
    assert state(pid) == "R"

    os.kill(pid, signal.SIGSTOP)
    assert eventually(lambda: state(pid) == "T")
    read(pid)
    time.sleep(0)
    assert eventually(lambda: state(pid) == "T")


def test_the_moment_in_which_another_one_reads_it_is_no_state_of_its_own(start: Start) -> None:
    pid = start("r")
    assert eventually(lambda: in_call(pid, "read"))
    held = threading.Event()

    def hold() -> None:  # as the agent of another console does
        with native_stack._stopped(pid):  # pyright: ignore[reportPrivateUsage]
            held.set()
            time.sleep(0.1)

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(10)
    seen = state(pid)
    other.join()

    assert seen in {"S", "R"}  # it begins its call again


def state(pid: int) -> str:
    return describe_wait(pid)["state"]


def test_what_a_process_waits_for_names_the_file(start: Start, tmp_path: Path) -> None:
    pipe = tmp_path / "shard-17"
    os.mkfifo(pipe)
    handle = os.open(pipe, os.O_RDWR)
    try:
        pid = start("f", str(pipe))
        assert eventually(lambda: in_call(pid, "read"))
        found = describe_wait(pid)
    finally:
        os.close(handle)

    assert found["file"] == str(pipe)
    assert found["kind"]


def test_what_a_process_waits_for_names_the_peer() -> None:
    code = (
        "import socket,sys; s=socket.create_server(('127.0.0.1',0)); p=s.getsockname()[1];"
        "c=socket.create_connection(('127.0.0.1',p)); print(p,flush=True); c.recv(1)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert eventually(lambda: "peer" in describe_wait(process.pid))
        assert describe_wait(process.pid)["peer"] == f"127.0.0.1:{port}"
        process.kill()


def test_two_who_read_the_stack_of_one_process_at_a_time_wait_for_each_other(start: Start) -> None:
    pid = start("q")
    assert eventually(lambda: read(pid).entered == "PMPI_Allreduce")
    code = (
        "import sys, time; from rankdeck_agent.job.native_stack import NativeReader\n"
        "while True: NativeReader().read(int(sys.argv[1])); print(flush=True); time.sleep(0.002)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(pid)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline()

        found = {NativeReader().read(pid).entered for _ in range(100)}

        assert other.poll() is None
        other.kill()
    assert found == {"PMPI_Allreduce"}


def test_of_a_process_that_is_gone_there_is_no_stack() -> None:
    process = subprocess.Popen(["true"])
    process.wait()

    with pytest.raises(StackError):
        NativeReader().read(process.pid)


def test_a_program_whose_file_was_deleted_is_not_followed(
    start: Start, program: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copy(program, copy)
    with subprocess.Popen([copy, "q"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        copy.unlink()
        try:
            with pytest.raises(StackError):
                NativeReader().read(process.pid)
        finally:
            process.kill()
