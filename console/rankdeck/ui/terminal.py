"""The console's terminal: signals, a terminal that goes away, sending
only changed cells, the clipboard.
"""

import asyncio
import os
import re
import select
import shutil
import signal
import sys
import threading
from asyncio.subprocess import DEVNULL, PIPE
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from time import monotonic
from typing import Any, TextIO

from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key
from textual.message import Message
from textual.message_pump import MessagePump

# pyright: reportPrivateUsage=false


LOOK = 1000
"""Milliseconds between two checks of who has the terminal; if the
terminal goes away, we wake at once.
"""
LIMIT = 4.0
"""Seconds from the loss of the terminal, or the second signal, until
SIGALRM ends the process even if it hangs.
"""
PATIENCE = 10.0
"""The same from the first signal, for which the terminal may have stopped reading."""
SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
_STREAMS = (0, 1, 2)


class Dismissed(Message):
    """The console must end although no key was pressed."""

    def __init__(self, status: int, *, hurry: bool) -> None:
        super().__init__()
        self.status = status
        """Exit status: 128 + signal, SIGHUP if the terminal is gone."""
        self.hurry = hurry
        """Whether the terminal is gone, or the user asked twice."""


class TerminalOutput:
    """The output of Textual; after the first error it discards everything."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.broken = False

    def write(self, text: str) -> None:
        """Write `text`, unless writing has failed before."""
        try:
            self._file.write(text)
        except OSError:
            self._close()

    def flush(self) -> None:
        """Send what was written, unless writing has failed before."""
        try:
            self._file.flush()
        except OSError:
            self._close()

    def fileno(self) -> int:
        return self._file.fileno()

    def _close(self) -> None:
        self.broken = True
        discard_writes(self._file.fileno())


HandleKey = Callable[[Key], Awaitable[None]]
TOGETHER = 0.01
"""Seconds between two keys that no person types: they are a paste
without brackets, or a program's.
"""
STUCK = 5.0
"""Seconds after which a key no longer waits for the one before it: its widget may be gone."""


class KeyQueue:
    """Gives an app its keys one after another.

    Textual gives all keys that arrive together to the widget that has the focus at that moment: of
    a pasted `/word`, only the first key would reach the prompt that it opens. Of an unknown pair of
    escape and letter it makes one key: here they are the two that were pressed.
    """

    def __init__(self, app: App[int]) -> None:
        self._app = app
        self._waiting: deque[tuple[Key, HandleKey, bool]] = deque()
        self._began: float | None = None
        """When the key that is being handled was given to its widget
        (monotonic); None: no key is being handled.
        """
        self._arrived = float("-inf")
        self.hasty = False
        """Whether the key that is being handled came sooner after another than a person types."""

    async def take(self, key: Key, handle: HandleKey) -> None:
        """Have `handle` called with this key once the one before it has been handled."""
        letter = key.character if key.key.startswith("alt+") else None
        keys = (Key("escape", "\x1b"), Key(letter, letter)) if letter else (key,)
        hasty = key.time - self._arrived < TOGETHER
        self._arrived = key.time
        self._waiting.extend((one, handle, hasty) for one in keys)
        if self._began is None or monotonic() - self._began > STUCK:
            await self._next()

    async def _next(self) -> None:
        self._began = monotonic() if self._waiting else None
        if self._waiting:
            key, handle, self.hasty = self._waiting.popleft()
            await handle(key)
            self._follow(self._app.focused or self._app.screen)

    def _follow(self, node: MessagePump | None) -> None:
        """Follow the key from the widget up to the app, behind the key in each queue."""
        if node is None or node is self._app or not node.call_later(self._follow, node._parent):
            self._app.call_later(self._next)


class TerminalDriver(LinuxDriver):
    """Textual's driver; it also sends the app `Dismissed` when the console must end."""

    def __init__(self, app: App[Any], **options: Any) -> None:  # noqa: ANN401 - Textual's own
        super().__init__(app, **options)  # pyright: ignore[reportUnknownMemberType]
        self._outlet = TerminalOutput(self._file)  # pyright: ignore[reportArgumentType]
        self._file = self._outlet
        self._parent_pid = os.getppid()
        self._asked = 0
        self._watch: threading.Thread | None = None
        self.stopped_at: float | None = None
        """When ctrl+z gave the terminal to the shell (monotonic); None if it was lent last."""

    def suspend_application_mode(self) -> None:
        """Give the terminal to another program: one that we start, or the shell on ctrl+z."""
        self.stopped_at = None if getattr(self._app, "lent", False) else monotonic()
        super().suspend_application_mode()

    def start_application_mode(self) -> None:
        """Take the terminal, and watch for its loss from now on."""
        if self._watch is None:
            # Even if they were ignored at the start, as under `nohup` or `trap '' HUP`.
            for number in SIGNALS:
                self._loop.add_signal_handler(number, self._signalled, number)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            self._watch = threading.Thread(target=self._look, name="terminal", daemon=True)
            self._watch.start()
        super().start_application_mode()

    def run_input_thread(self) -> None:
        """Read keys until the terminal can no longer be read."""
        try:
            super().run_input_thread()
        except OSError:
            self._lost()

    def _look(self) -> None:
        """Wait until the terminal is gone.

        Runs in its own thread, because all others may be blocked on the terminal.
        """
        poll = select.poll()
        for descriptor in _STREAMS:
            if os.isatty(descriptor):
                poll.register(descriptor, 0)
        while not (poll.poll(LOOK) or self._outlet.broken or self._left_behind()):
            continue
        self._lost()

    def _left_behind(self) -> bool:
        """Whether our parent is gone and the shell has taken the terminal back."""
        if os.getppid() == self._parent_pid:
            return False
        with suppress(OSError):
            return os.tcgetpgrp(self.fileno) != os.getpgrp()
        return False

    def _lost(self) -> None:
        end_within(LIMIT)
        with suppress(RuntimeError):  # The loop is closed: we are ending already.
            self._loop.call_soon_threadsafe(self._dismiss, 128 + signal.SIGHUP, True)

    def _signalled(self, number: int) -> None:
        if number == signal.SIGINT and getattr(self._app, "lent", False):
            return  # The user means the program that has the terminal.
        self._asked += 1
        hurry = number == signal.SIGHUP or self._asked > 1
        end_within(LIMIT if hurry else PATIENCE)
        self._dismiss(128 + number, hurry)

    def _dismiss(self, status: int, hurry: bool) -> None:
        if hurry:
            # Ends the thread that reads keys, which would read the same end of file for ever.
            self.disable_input()
        self._app.post_message(Dismissed(status, hurry=hurry))


def end_within(seconds: float) -> None:
    """Have the kernel end this process after so many seconds, even if all of its threads hang."""
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    if not left or left > seconds:
        signal.setitimer(signal.ITIMER_REAL, seconds)


def discard_writes(descriptor: int) -> None:
    """Discard what is written to `descriptor` from now on, so that
    not even the exit of Python fails.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


STALLED = 4
"""Frames waiting for the terminal before further ones are dropped."""
JOIN = 4
"""Up to this many unchanged cells are sent again, which is cheaper
than moving the cursor past them.
"""

Cell = tuple[str, str]
"""Text ("" behind a wide character) and the SGR codes before it."""
Piece = tuple[int, int, Iterable[Segment]]
"""Column, line, what is painted there."""


class TerminalPicture:
    """What the terminal shows now, as far as we know. A cell that is not known is None."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._rows: list[list[Cell | None]] = [[None] * width for _ in range(height)]

    def update(self, pieces: Iterable[Piece], colours: ColorSystem | None) -> str:
        """Note what is painted; returns what to send so that the terminal shows it."""
        pen = _Pen()
        for x, y, segments in pieces:
            if 0 <= y < self.height and x < self.width:
                self._piece(pen, x, y, _cells(segments, colours))
        return pen.text()

    def _piece(self, pen: "_Pen", x: int, y: int, cells: list[Cell]) -> None:
        row = self._rows[y]
        cells = cells[: self.width - x]
        old = row[x : x + len(cells)]
        if old == cells:
            return
        for first, last in _changes(old, cells):
            pen.write(x + first, y, cells[first:last])
        self._break_wide(row, x, len(cells))
        row[x : x + len(cells)] = cells

    @staticmethod
    def _break_wide(row: list[Cell | None], x: int, count: int) -> None:
        """Writing over one half of a wide character blanks the other half: forget it."""
        start, after = row[x], x + count
        if x and start is not None and not start[0]:
            row[x - 1] = None
        if after < len(row) and (behind := row[after]) is not None and not behind[0]:
            row[after] = None


class _Pen:
    """Collects the output for changed cells; an SGR code is sent only where it changes."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._sgr = ""

    def write(self, x: int, y: int, cells: list[Cell]) -> None:
        self._parts.append(f"\x1b[{y + 1};{x + 1}H")
        for text, sgr in cells:
            if sgr != self._sgr:
                self._parts.append(f"\x1b[0;{sgr}m" if sgr else "\x1b[0m")
                self._sgr = sgr
            self._parts.append(text)

    def text(self) -> str:
        if self._sgr:
            self._parts.append("\x1b[0m")
        return "".join(self._parts)


def _changes(old: list[Cell | None], new: list[Cell]) -> Iterator[tuple[int, int]]:
    """Ranges of cells to send; near ones are joined, wide characters stay whole."""
    first = last = -1
    for index, cell in enumerate(new):
        if cell == old[index]:
            continue
        if first < 0:
            first = index
        elif index - last > JOIN:
            yield _whole(new, first, last)
            first = index
        last = index + 1
    if first >= 0:
        yield _whole(new, first, last)


def _whole(cells: list[Cell], first: int, last: int) -> tuple[int, int]:
    while first and not cells[first][0]:
        first -= 1
    while last < len(cells) and not cells[last][0]:
        last += 1
    return first, last


_EVEN = re.compile(r"[ -~°±·×–…′→↑↓─-◼✓✗⠀-⣿]*").fullmatch
"""Characters that take one cell each: ASCII and the signs that we draw with."""


def _cells(segments: Iterable[Segment], colours: ColorSystem | None) -> list[Cell]:
    cells: list[Cell] = []
    for text, style, control in segments:
        if control or not text:
            continue
        sgr = _sgr(style, colours) if style else ""
        even = text.isascii() or _EVEN(text)
        cells += map(_letters(sgr).__getitem__, text) if even else _wide(text, sgr)
    return cells


class _Letters(dict[str, Cell]):
    """Character -> its cell with these SGR codes; always the same object."""

    def __init__(self, sgr: str) -> None:
        super().__init__()
        self._sgr = sgr

    def __missing__(self, character: str) -> Cell:
        self[character] = cell = (character, self._sgr)
        return cell


@lru_cache(256)
def _letters(sgr: str) -> _Letters:
    return _Letters(sgr)


@lru_cache(512)
def _wide(text: str, sgr: str) -> tuple[Cell, ...]:
    """The cells of a text whose characters may be wide or have no width."""
    cells: list[Cell] = []
    letters = _letters(sgr)
    for character in text:
        width = get_character_cell_size(character)
        if width:
            # There are too many letters in all scripts to cache each.
            cells.append(letters[character] if character.isascii() else (character, sgr))
            cells.extend([("", sgr)] * (width - 1))
        elif cells:
            at = max(i for i in range(len(cells)) if cells[i][0])
            cells[at] = (cells[at][0] + character, sgr)
    return tuple(cells)


@lru_cache(4096)
def _sgr(style: Style, colours: ColorSystem | None) -> str:
    plain = style.update_link(None) if style.link else style
    before = plain.render("x", color_system=colours).partition("x")[0]
    return before.removeprefix("\x1b[").removesuffix("m")


def _pieces(update: object) -> Iterator[Piece]:
    """The pieces that an update of the compositor paints, from top to bottom."""
    if isinstance(update, LayoutUpdate):
        for y, strips in enumerate(update.strips, update.region.y):
            line = [segment for strip in strips for segment in strip]
            yield update.region.x, y, line
    elif isinstance(update, ChopsUpdate):
        for y, left, right in update.spans:
            for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                if strip is not None and x <= right and end > left:
                    yield x, y, strip


class FrameDiff(App[int]):
    """An App that sends its terminal only differences, and never waits for the terminal."""

    frame_diff = True
    _frame: TerminalPicture | None = None
    _owed = False
    """Frames were dropped: everything must be painted again."""
    _shown_cursor: tuple[int, int] | None = None

    lent = False
    """Another program has the terminal: nothing of ours is painted."""

    async def lend_terminal(self, argv: Sequence[str], note: str) -> int:
        """Let another program have the terminal until it ends; returns its exit status.

        The status is 127 if the program cannot start, and 126 if there is no terminal to lend.

        Nodes and jobs are followed meanwhile. `note` is printed first.
        """
        if self._driver is None or not self._driver.can_suspend:
            return 126
        self.lent = True
        try:
            with self.suspend():
                sys.stdout.write(f"{note}\n")
                sys.stdout.flush()
                return await _run(argv)
        finally:
            self.lent = False
            self.forget_frame()

    def forget_frame(self) -> None:
        """Repaint everything: something else has written to the terminal."""
        self._frame = None
        self._shown_cursor = None
        self.refresh()

    def _display(self, screen: object, renderable: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.lent:
            self._owed = True
            return
        if (
            self.frame_diff
            and isinstance(renderable, (LayoutUpdate, ChopsUpdate))
            and self._can_send()
        ):
            try:
                self._send(renderable)
            except AttributeError as error:
                self.frame_diff = False
                self.log.warning("sending whole lines:", str(error))
            else:
                self.post_display_hook()
                return
        if renderable is not None and not isinstance(renderable, (LayoutUpdate, ChopsUpdate)):
            self._frame = None
        super()._display(screen, renderable)  # pyright: ignore[reportArgumentType, reportUnknownMemberType]

    def _can_send(self) -> bool:
        driver = self._driver
        if driver is None or self._batch_count or self._closed or not self._running:
            return False
        return not (self.is_headless or driver.is_inline)

    def _send(self, update: LayoutUpdate | ChopsUpdate) -> None:
        if self._stalled():
            self._owed = True
            return
        width, height = self.size
        if self._frame is None or (self._frame.width, self._frame.height) != (width, height):
            self._frame = TerminalPicture(width, height)
        name = self.console.color_system
        text = self._frame.update(_pieces(update), COLOR_SYSTEMS[name] if name else None)
        cursor = self.screen.outer_size.clamp_offset(self.cursor_position)
        if not text and self._shown_cursor == tuple(cursor):
            return
        self._shown_cursor = (cursor.x, cursor.y)
        self._write_frame(f"{text}\x1b[{cursor.y + 1};{cursor.x + 1}H")

    def _write_frame(self, text: str) -> None:
        assert self._driver is not None
        self._begin_update()
        self._driver.write(text)
        self._end_update()
        self._driver.flush()

    def _stalled(self) -> bool:
        writer = getattr(self._driver, "_writer_thread", None)
        return writer is not None and writer._queue.qsize() > STALLED

    def pay_frame_debt(self) -> None:
        """Repaint if frames were dropped and the terminal reads again; call regularly."""
        if self._owed and not self._stalled():
            self._owed = False
            self.forget_frame()
            self.screen.refresh()


CLIPBOARD_LIMIT = 74_000
"""Bytes that all terminals accept in one clipboard sequence."""
WAIT = 2.0


async def _run(argv: Sequence[str]) -> int:
    """The exit status; 127 if the program cannot start.

    An exception here would leave Textual without its terminal.
    """
    try:
        process = await asyncio.create_subprocess_exec(*argv)
    except OSError:
        return 127
    return await process.wait()


async def through_tmux(text: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Hand `text` to tmux; False if we are not in one, or it refuses."""
    program = shutil.which("tmux", path=environment.get("PATH"))
    if not environment.get("TMUX") or program is None:
        return False
    argv = (program, "load-buffer", "-w", "-")
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, env=environment
        )
    except OSError:
        return False
    try:
        await asyncio.wait_for(process.communicate(text.encode()), WAIT)
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode == 0
