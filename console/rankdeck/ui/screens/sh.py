"""What a command wrote on many nodes: equal output once, those in trouble first."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual.widget import Widget

from rankdeck.model.nodeset import fold
from rankdeck.model.process import OutputGroup
from rankdeck.model.states import State
from rankdeck.model.text import printable
from rankdeck.remote.command import CommandRun
from rankdeck.ui import formatting
from rankdeck.ui.screens.base import BaseScreen
from rankdeck.ui.themes import Mark, painted
from rankdeck.ui.widgets.canvas import Run, Runs, TextPage, fitted

MOST_LINES = 2_000
"""Of one group on the screen; all of them go to a file."""
SAVE = "save to "


class CommandScreen(BaseScreen):
    """One command: who is done, who failed, who wrote what."""

    screen_name: ClassVar[str] = "sh"

    def __init__(self, run: CommandRun) -> None:
        super().__init__()
        self.run_shown = run
        self._began = time.monotonic()
        self._took: float | None = None
        self._proven = False
        self._seen: tuple[object, ...] = ()
        self.page = TextPage()

    @property
    def main(self) -> Widget:
        return self.page

    def tick(self) -> None:
        state = self.run_shown.state
        if state.over and self._took is None:
            self._took = time.monotonic() - self._began
        seen = (state.changes, self.size.width, self.console.glyphs, int(self._seconds))
        if seen == self._seen:
            return
        self._seen = seen
        groups = sorted(state.groups(), key=_urgency)
        lines: list[Runs] = [self._head(), []]
        for group in groups:
            lines += [*self._group(group), []]
        self.page.show(lines)
        self._say_proof()

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began if self._took is None else self._took

    def _head(self) -> Runs:
        state = self.run_shown.state
        done, of = len(state.ends), len(state.nodes)
        failed = sum(not end.well for end in state.ends.values())
        runs: list[Run] = [
            (" $ ", "dim"),
            (printable(state.command), "title"),
            (f"   {done:,} of {formatting.many(of, 'node')} done", "text" if done < of else "ok"),
        ]
        if failed:
            runs.append((f"   {failed:,} not well", "bad"))
        runs.append((f"   {formatting.lasted(self._seconds)}", "dim"))
        return fitted(runs, self.size.width, self.console.glyphs.more)

    def _group(self, group: OutputGroup) -> list[Runs]:
        mark = self._mark(group)
        count = f" ({len(group.nodes):,})" if len(group.nodes) > 1 else ""
        lines: list[Runs] = [
            [
                (f" {mark.glyph} ", mark.role),
                (printable(fold(group.nodes)), "title"),
                (f"{count}  ", "dim"),
                (printable(group.words), "bad" if mark.role == "bad" else "dim"),
            ]
        ]
        shown = group.lines[-MOST_LINES:]
        if left := len(group.lines) - len(shown):
            lines.append([(f"   {left:,} lines before these; O saves all", "dim")])
        for stream, text in shown:
            lines.append([("   ", "text"), *painted(text, "stderr" if stream == "err" else "text")])
        if group.end is not None:
            lines += [
                [("   left  ", "bad"), (f"{one.pid} {printable(one.command)}", "text")]
                for one in group.end.left
            ]
        return lines

    def _mark(self, group: OutputGroup) -> Mark:
        if group.end is None:
            return self.console.glyphs.state(State.RUNNING)
        return self.console.glyphs.state(State.DONE if group.end.well else State.FAILED)

    def _say_proof(self) -> None:
        """After a cancel: what is proven, once."""
        run = self.run_shown
        if not run.cancelled or not run.state.over or self._proven:
            return
        self._proven = True
        open_ends = run.state.not_proven()
        if open_ends:
            self.say(f"not verified on {fold(open_ends)}: look there", "bad")
        else:
            self.say("cancelled: nothing is left on any node", "ok")

    def without_effect(self) -> Iterable[str]:
        return ("cancel",) if self.run_shown.state.over else ()

    # ---- keys

    def action_cancel(self) -> None:
        if self.run_shown.state.over:
            self.refuse("it has ended")
        else:
            self.say("cancelling, then checking what is left …", "warn")
            self.run_shown.cancel()

    def action_copy(self) -> None:
        lines = self._texts()
        self.console.copy("\n".join(lines), f"{len(lines):,} lines")

    def action_save(self) -> None:
        self.prompt.ask(SAVE, "sh.log", "a file that does not exist yet")

    def answered(self, text: str | None) -> None:
        if text:
            lines = self._texts()
            self.save_lines(Path(text).expanduser(), lines, f"{len(lines):,} lines")

    def _texts(self) -> list[str]:
        """All of it, as `rankdeck sh` prints it."""
        lines: list[str] = []
        for group in self.run_shown.state.groups():
            lines += [f"{fold(group.nodes)} ({len(group.nodes)}): {group.words}"]
            lines += [printable(text) for text in group.text]
        return lines


def _urgency(group: OutputGroup) -> tuple[bool, bool]:
    """Those that ended badly first, then those that still run."""
    return (group.end is None or group.end.well, group.end is not None)
