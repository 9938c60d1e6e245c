"""Runs a program in its own terminal, whose output is read all the time as by a real terminal."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyte

LIMIT = 30.0
END = 5.0
TURN = 0.1
"""Seconds between two checks of the reader whether it should stop."""


class Terminal:
    """The screen of a program, how many bytes it sends, and its keyboard."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.sent = 0
        """Bytes received so far."""
        self.begun = time.monotonic()
        self._master = master
        self._waiting: tuple[bytes, threading.Event] = (b"", threading.Event())
        self._seen = bytearray()
        self._pressed = 0
        """Bytes received until the last key was pressed."""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def press(self, keys: str) -> None:
        self._pressed = self.sent
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

    def close(self) -> None:
        """Call this once the program has ended; its children may still hold the terminal."""
        self._reader.join(END)
        # A reader that goes on would read from the next file with this descriptor.
        self._over.set()
        self._reader.join()
        os.close(self._master)

    def text(self, width: int = 120, height: int = 40) -> str:
        """The screen now, as lines of text."""
        screen = pyte.Screen(width, height)
        with self._lock:
            pyte.ByteStream(screen).feed(bytes(self._seen))
        return "\n".join(line.rstrip() for line in screen.display)

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
    argv: Sequence[str], env: Mapping[str, str], width: int = 120, height: int = 40
) -> Iterator[Terminal]:
    """Run a program in a terminal of that size; ended with the block."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    process = subprocess.Popen(
        argv,
        env={**env, "TERM": "xterm-256color", "COLORTERM": "", "LANG": "C.UTF-8"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    shown = Terminal(process, master)
    try:
        yield shown
    finally:
        process.terminate()
        try:
            process.wait(END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END)
        shown.close()
