"""Runs a program in its own terminal, whose output is read all the time as by a real terminal."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import pyte

WIDE = (200, 50)
"""Columns and lines of a large terminal."""
LIMIT = 30.0
END = 5.0
TURN = 0.1
"""Seconds between two checks of the reader whether it should stop."""
_LOOK = 0.05


class Terminal:
    """The screen of a program, how many bytes it sends, and its keyboard."""

    def __init__(
        self, process: subprocess.Popen[bytes], master: int, width: int, height: int
    ) -> None:
        self.process = process
        self.sent = 0
        """Bytes received so far."""
        self.begun = time.monotonic()
        self._master = master
        self._waiting: tuple[bytes, threading.Event] = (b"", threading.Event())
        self._seen = bytearray()
        self._screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self._screen)
        self._drawn = 0
        """Bytes that `_screen` has taken."""
        self._pressed = 0
        """Bytes received until the last key was pressed."""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def written(self) -> bytes:
        """Every byte since the start."""
        with self._lock:
            return bytes(self._seen)

    def press(self, keys: str) -> None:
        """Send keys; nothing if the program has ended."""
        self._pressed = self.sent
        with suppress(OSError):
            os.write(self._master, keys.encode())

    def wait_for(self, text: str) -> float:
        """Come back when `text` is sent, since a key was last pressed;
        gives the seconds since the start.
        """
        with self._lock:
            self._waiting = (text.encode(), threading.Event())
            self._look()
        if not self._waiting[1].wait(LIMIT):
            raise TimeoutError(f"no `{text}` in the terminal: {bytes(self._seen[-500:])!r}")
        return time.monotonic() - self.begun

    def shows(self, *words: str, limit: float = 2 * LIMIT) -> bool:
        """Wait until all of these are on the screen at once; False if they are not in time."""
        deadline = time.monotonic() + limit
        while not all(word in self.text() for word in words):
            if time.monotonic() > deadline or self.process.poll() is not None:
                return False
            time.sleep(_LOOK)
        return True

    def after(self, keys: str, *words: str, limit: float = 2 * LIMIT) -> float | None:
        """Press these keys; seconds until the words are on the
        screen, None if they do not come.
        """
        began = time.monotonic()
        self.press(keys)
        return time.monotonic() - began if self.shows(*words, limit=limit) else None

    def leaves(self, limit: float) -> float | None:
        """Press q; the seconds until the program has ended, None if it has not in time."""
        began = time.monotonic()
        self.press("q")
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        took = time.monotonic() - began
        self._reader.join(END)
        return took

    def close(self) -> None:
        """Call this once the program has ended; its children may still hold the terminal."""
        self._reader.join(END)
        # A reader that goes on would read from the next file with this descriptor.
        self._over.set()
        self._reader.join()
        os.close(self._master)

    def text(self) -> str:
        """The screen now, as lines of text."""
        with self._lock:
            fresh = bytes(self._seen[self._drawn :])
            self._drawn = len(self._seen)
            self._stream.feed(fresh)
            return "\n".join(line.rstrip() for line in self._screen.display)

    def _read(self) -> None:
        turn = select.poll()
        turn.register(self._master, select.POLLIN)
        while not self._over.is_set():
            if not turn.poll(TURN * 1000):
                continue
            if not (data := _some(self._master)):
                return
            with self._lock:
                self.sent += len(data)
                self._seen += data
                self._look()

    def _look(self) -> None:
        wanted, found = self._waiting
        if self._seen.find(wanted, self._pressed) >= 0:
            found.set()


def _some(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:
        return b""


@contextmanager
def terminal(
    argv: Sequence[str],
    env: Mapping[str, str],
    width: int = 120,
    height: int = 40,
    cwd: str | None = None,
) -> Iterator[Terminal]:
    """Run a program in a terminal of that size; ended with the block."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    process = subprocess.Popen(
        argv,
        env={**env, "TERM": "xterm-256color", "COLORTERM": "", "LANG": "C.UTF-8"},
        cwd=cwd,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    shown = Terminal(process, master, width, height)
    try:
        yield shown
    finally:
        process.terminate()
        try:
            process.wait(END)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(END)
        shown.close()
