"""A console on a terminal: every byte that it writes is kept, and its picture is known."""

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

import pyte

HEIGHT, WIDTH = 50, 200
LIMIT = 60.0
_LOOK = 0.05


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

    def leaves(self, limit: float) -> float | None:
        """Press q until it has ended; the seconds from the last q, None where it did not in time."""
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
