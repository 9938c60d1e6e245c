"""The terminal under the console: a signal, or the loss of the terminal, ends the console.

Left alone, Textual reads a terminal that is gone in a loop without end. Leans on private
parts of its driver, as `display` does.
"""
# pyright: reportPrivateUsage=false

import os
import select
import signal
import threading
from contextlib import suppress
from typing import Any, TextIO

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

LOOK = 1000
"""Milliseconds between two looks at who has the terminal; its loss wakes us at once."""
LIMIT = 4.0
"""Seconds from the loss of the terminal, or the second signal, to an end by SIGALRM, whatever hangs then."""
PATIENCE = 10.0
"""The same from the first signal: the terminal may be one that reads nothing."""
SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
_STREAMS = (0, 1, 2)


class Dismissed(Message):
    """The console has to end, though nobody pressed a key."""

    def __init__(self, status: int, *, hurry: bool) -> None:
        super().__init__()
        self.status = status
        """Exit status, 128 + signal; that of SIGHUP where the terminal is gone."""
        self.hurry = hurry
        """Nobody looks any more, or asked twice."""


class Outlet:
    """What Textual writes to: after the first error everything goes nowhere."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.broken = False

    def write(self, text: str) -> None:
        """Write it, while somebody takes it."""
        try:
            self._file.write(text)
        except OSError:
            self._close()

    def flush(self) -> None:
        """Send what was written, while somebody takes it."""
        try:
            self._file.flush()
        except OSError:
            self._close()

    def fileno(self) -> int:
        return self._file.fileno()

    def _close(self) -> None:
        self.broken = True
        silence(self._file.fileno())


class TerminalDriver(LinuxDriver):
    """Textual's driver, which tells the app by `Dismissed` when it has to end."""

    def __init__(self, app: App[Any], **options: Any) -> None:  # noqa: ANN401 - Textual's own
        super().__init__(app, **options)  # pyright: ignore[reportUnknownMemberType]
        self._outlet = Outlet(self._file)  # pyright: ignore[reportArgumentType]
        self._file = self._outlet
        self._parent = os.getppid()
        self._asked = 0
        self._watch: threading.Thread | None = None

    def start_application_mode(self) -> None:
        """Take the terminal, and watch it from now on."""
        if self._watch is None:
            # Also where they were ignored at the start, as under `nohup` or `trap '' HUP`.
            for number in SIGNALS:
                self._loop.add_signal_handler(number, self._signalled, number)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            self._watch = threading.Thread(target=self._look, name="terminal", daemon=True)
            self._watch.start()
        super().start_application_mode()

    def run_input_thread(self) -> None:
        """Read keys until the terminal lets nobody read."""
        try:
            super().run_input_thread()
        except OSError:
            self._lost()

    def _look(self) -> None:
        """Wait until the terminal is gone; a thread of its own, because all others may be waiting for it."""
        poll = select.poll()
        for descriptor in _STREAMS:
            if os.isatty(descriptor):
                poll.register(descriptor, 0)
        while not (poll.poll(LOOK) or self._outlet.broken or self._left_behind()):
            continue
        self._lost()

    def _left_behind(self) -> bool:
        """Whether who started us is gone and its shell has taken the terminal back."""
        if os.getppid() == self._parent:
            return False
        with suppress(OSError):
            return os.tcgetpgrp(self.fileno) != os.getpgrp()
        return False

    def _lost(self) -> None:
        end_within(LIMIT)
        with suppress(RuntimeError):  # The loop is closed: we are ending already.
            self._loop.call_soon_threadsafe(self._dismiss, 128 + signal.SIGHUP, True)

    def _signalled(self, number: int) -> None:
        self._asked += 1
        hurry = number == signal.SIGHUP or self._asked > 1
        end_within(LIMIT if hurry else PATIENCE)
        self._dismiss(128 + number, hurry)

    def _dismiss(self, status: int, hurry: bool) -> None:
        if hurry:
            # Ends the thread that reads: it would read the same end of file for ever.
            self.disable_input()
        self._app.post_message(Dismissed(status, hurry=hurry))


def end_within(seconds: float) -> None:
    """Let the kernel end this process after that time, even where all of its threads wait for something."""
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    if not left or left > seconds:
        signal.setitimer(signal.ITIMER_REAL, seconds)


def silence(descriptor: int) -> None:
    """Send what is written there nowhere from now on: not even the end of Python shall fail by it."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
