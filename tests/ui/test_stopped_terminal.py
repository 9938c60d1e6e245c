"""A terminal that stops reading never stops ingest, and is painted anew when it reads again."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# A console in a real terminal: a starved machine may be too late once.
pytestmark = pytest.mark.slow

LIMIT = 40.0


class Terminal:
    """The far side of a terminal of 120 x 40 with the console on it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            editor = {"VISUAL": "/no/such/editor"}
            environment = {**os.environ, **editor, "TERM": "xterm-256color"}
            argv = [sys.executable, "-m", "tests.ui.stalled", str(file)]
            os.execve(argv[0], argv, environment)
        size = struct.pack("HHHH", 40, 120, 0, 0)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def read(self) -> bytes:
        if not select.select((self.master,), (), (), 0.05)[0]:
            return b""
        return os.read(self.master, 1 << 16)

    def read_until(self, is_so: Callable[[bytes], bool], what: str) -> None:
        seen, deadline = b"", time.monotonic() + LIMIT
        while not is_so(seen):
            assert time.monotonic() < deadline, f"{what}: {seen[-2000:]!r}"
            seen = (seen + self.read())[-(1 << 18) :]

    @property
    def told(self) -> tuple[int, int]:
        """Lines that were written, and lines that the model has."""
        words = self.file.read_text().split() if self.file.exists() else []
        return (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)

    def wait_for_lines(self, count: int) -> None:
        deadline = time.monotonic() + LIMIT
        while self.told[1] < count:
            assert time.monotonic() < deadline, f"ingest stopped at {self.told}"
            time.sleep(0.05)

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.master)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path / "told")
    try:
        yield terminal
    finally:
        terminal.close()


def test_the_terminal_comes_back_from_a_program_that_cannot_start(
    terminal: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text("job: hello\n")
    terminal.read_until(lambda seen: newest_step(seen) > 0, "the job is not shown")
    os.write(terminal.master, b"3")
    terminal.read_until(lambda seen: b"mpirun" in seen, "Launch is not shown")
    os.write(terminal.master, b":")
    time.sleep(0.5)
    os.write(terminal.master, b"edit\r")
    terminal.read_until(lambda seen: b"no such editor" in seen, "the console is not back")
    os.write(terminal.master, b"1")
    terminal.read_until(lambda seen: b"newest first" in seen, "keys have no effect")


def newest_step(seen: bytes) -> int:
    return max((int(n) for n in re.findall(rb"step +(\d+)", seen)), default=-1)


def test_a_terminal_that_stops_reading_stops_nothing_and_is_painted_when_it_reads_again(
    terminal: Terminal,
) -> None:
    terminal.read_until(lambda seen: newest_step(seen) > 0, "the job is not shown")
    # Nobody reads: what the terminal itself holds is full after a few frames.
    before = terminal.told[1]
    terminal.wait_for_lines(before + 64_000)
    written, known = terminal.told
    assert known == written

    terminal.read_until(
        lambda seen: newest_step(seen) >= written // 16 - 1, "nothing new is painted"
    )
    os.write(terminal.master, b"c")
    terminal.read_until(lambda seen: b"collapsed" in seen, "keys have no effect")


def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_says_for_how_long_it_was_stopped() -> None:
    pid, master = pty.fork()
    if pid == 0:
        environment = {**os.environ, "TERM": "xterm-256color", "TMUX": "", "PS1": "shell$ "}
        os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], environment)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    seen = bytearray()

    def read_until(text: bytes) -> None:
        deadline = time.monotonic() + LIMIT
        while text not in seen:
            assert time.monotonic() < deadline, f"no {text!r}: {bytes(seen[-2000:])!r}"
            if select.select((master,), (), (), 0.05)[0]:
                seen.extend(os.read(master, 1 << 16))
        del seen[: seen.index(text) + len(text)]

    try:
        read_until(b"shell$ ")
        os.write(master, f"{sys.executable} -m tests.ui.preview 3 --patient\r".encode())
        read_until(b"STATE")
        os.write(master, b"\x1a")
        read_until(b"Stopped")
        read_until(b"shell$ ")
        os.write(master, b"jobs -p; echo back $((40 + 2))\r")
        read_until(b"back 42")
        time.sleep(1.1)
        os.write(master, b"fg\r")
        read_until(b"the console was stopped for ")
        read_until(b"jobs went on")
        os.write(master, b"q")
        read_until(b"shell$ ")
        os.write(master, b"echo status $?\r")
        read_until(b"status 0")
    finally:
        os.write(master, b"\x03kill -9 %1\rexit\rexit\r")
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        os.close(master)
        os.waitpid(pid, 0)
