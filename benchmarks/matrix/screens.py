"""Consoles on terminals: one of which every byte is kept, and one whose
keys are pressed and timed under load.
"""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pyte

from benchmarks.fault_sites import AnySite
from benchmarks.matrix.meter import Cost, metered
from benchmarks.matrix.scene import rankdeck
from benchmarks.measure import cpu_of
from benchmarks.terminal import SIZE, Terminal, terminal

HEIGHT, WIDTH = SIZE
LIMIT = 60.0
_LOOK = 0.05
_KEY = b"\t"
_PAINTED = "━".encode()
"""Tab moves the focus from pane to pane: the frame of the one that has it is heavy."""
_PAINT_LIMIT = 20.0
_PAUSE = 0.15


class Screen:
    """The side of the terminal at which a person sits; made by `screen`."""

    def __init__(self, process: "subprocess.Popen[bytes]", master: int) -> None:
        self.process = process
        self._master = master
        self._kept = bytearray()
        self._picture = pyte.Screen(WIDTH, HEIGHT)
        self._stream = pyte.ByteStream(self._picture)
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def written(self) -> bytes:
        """Every byte since the start."""
        with self._lock:
            return bytes(self._kept)

    def text(self) -> str:
        """The picture now, as lines of text."""
        with self._lock:
            return "\n".join(line.rstrip() for line in self._picture.display)

    def press(self, keys: str) -> None:
        """Send keys; nothing where the console has ended."""
        with suppress(OSError):
            os.write(self._master, keys.encode())

    def shows(self, *words: str, limit: float = LIMIT) -> bool:
        """Wait until all of these are in the picture at once; False where they are not in time."""
        deadline = time.monotonic() + limit
        while not all(word in self.text() for word in words):
            if time.monotonic() > deadline or self.process.poll() is not None:
                return False
            time.sleep(_LOOK)
        return True

    def after(self, keys: str, *words: str, limit: float = LIMIT) -> float | None:
        """Press these keys; seconds until the words are in the
        picture, None where they do not come.
        """
        began = time.monotonic()
        self.press(keys)
        return time.monotonic() - began if self.shows(*words, limit=limit) else None

    def leaves(self, limit: float) -> float | None:
        """Press q until it has ended; the seconds from the last q,
        None where it did not in time.
        """
        began = time.monotonic()
        self.press("q")
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        took = time.monotonic() - began
        self._reader.join(5)
        return took

    def close(self) -> None:
        """To be called once the console has ended: the number of the file may then be another's."""
        self._reader.join(5)
        os.close(self._master)

    def _read(self) -> None:
        while data := _some(self._master):
            with self._lock:
                self._kept += data
                self._stream.feed(data)


def _some(master: int) -> bytes:
    try:
        return os.read(master, 1 << 16)
    except OSError:
        return b""


@contextmanager
def screen(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Generator[Screen]:
    """Run a program on a terminal of 200 x 50; ended afterwards."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    process = subprocess.Popen(
        argv, env={**env, "TERM": "xterm-256color", "LANG": "C.UTF-8"}, cwd=cwd,
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    shown = Screen(process, master)
    try:
        yield shown
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        shown.close()


# ---- keys under load ---------------------------------------------------------------------


@dataclass(slots=True)
class ConsoleInPty:
    """The console; `terminal` is the side at which a person sits."""

    terminal: Terminal
    pid: int
    cost: Cost
    keys: list[float] = field(default_factory=list[float])
    """Milliseconds of CPU of the console from each key to its picture: with a whole core for it,
    the time that the key takes; on a busy machine, other programs' time is left out."""

    def press(self) -> None:
        """Press a key and wait for its picture; raises RuntimeError where none comes."""
        before = cpu_of(self.pid)
        self.terminal.write(_KEY)
        if not self.terminal.wait_for(_PAINTED, _PAINT_LIMIT):
            raise RuntimeError(f"no picture of a key in {_PAINT_LIMIT:.0f} s")
        self.keys.append((cpu_of(self.pid) - before) * 1000)

    def type_for(self, seconds: float) -> None:
        """Press keys all the time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.press()
            self.terminal.read_for(_PAUSE)

    def screen(self, seconds: float) -> str:
        """What stands on the screen after so many more seconds; a
        picture of all of it is asked for.
        """
        page = pyte.Screen(SIZE[1], SIZE[0])
        stream = pyte.ByteStream(page)
        self.terminal.write(b"\x0c")
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            stream.feed(self.terminal.read(left))
        return "\n".join(line.rstrip() for line in page.display)


@contextmanager
def console_in_pty(site: AnySite, job: str) -> Generator[ConsoleInPty]:
    """The console on the wall of a job, ended afterwards."""
    argv = rankdeck(site, "attach", job)
    with terminal(argv, {**site.environment(), "LC_ALL": "C.UTF-8"}) as shown:
        pid = shown.pid
        with metered(pid) as cost:
            if not shown.wait_for(_PAINTED, LIMIT):
                raise RuntimeError("the job never came on the screen")
            yield ConsoleInPty(shown, pid, cost)
