"""The screen of a command on many nodes: who is done, who failed, what each wrote."""

import time
from collections.abc import Iterable
from typing import ClassVar

from rankdeck.config.files import expand_path
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.process import OutputGroup
from rankdeck.model.rank import State
from rankdeck.model.safe_text import printable_line
from rankdeck.remote.command import CommandRun
from rankdeck.ui import formatting
from rankdeck.ui.screens.base import BaseScreen
from rankdeck.ui.themes import Mark, paint_line
from rankdeck.ui.widgets.canvas import Run, Runs, TextPage, fit_runs

MOST_LINES = 2_000
"""Most lines of one group on the screen; a saved file has all of them."""
SAVE = "save to "


class CommandScreen(BaseScreen):
    """A command on many nodes: which nodes are done, which failed, what each wrote."""

    screen_name: ClassVar[str] = "sh"

    def __init__(self, run: CommandRun) -> None:
        super().__init__()
        self.run_shown = run
        self._began = time.monotonic()
        self._took: float | None = None
        self._proven = False
        self._seen: tuple[object, ...] = ()
        self.main = self.page = TextPage()

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
            (printable_line(state.command), "title"),
            (
                f"   {done:,} of {formatting.format_many(of, 'node')} done",
                "text" if done < of else "ok",
            ),
        ]
        if failed:
            runs.append((f"   {failed:,} failed", "bad"))
        runs.append((f"   {formatting.format_duration(self._seconds)}", "dim"))
        return fit_runs(runs, self.size.width, self.console.glyphs.more)

    def _group(self, group: OutputGroup) -> list[Runs]:
        mark = self._mark(group)
        count = f" ({len(group.nodes):,})" if len(group.nodes) > 1 else ""
        lines: list[Runs] = [
            [
                (f" {mark.glyph} ", mark.role),
                (printable_line(fold_nodes(group.nodes)), "title"),
                (f"{count}  ", "dim"),
                (printable_line(group.words), "bad" if mark.role == "bad" else "dim"),
            ]
        ]
        shown = group.lines[-MOST_LINES:]
        if left := len(group.lines) - len(shown):
            lines.append([(f"   {left:,} lines before these; O saves all", "dim")])
        for stream, text in shown:
            lines.append(
                [("   ", "text"), *paint_line(text, "stderr" if stream == "err" else "text")]
            )
        if group.end is not None:
            lines += [
                [("   left  ", "bad"), (f"{one.pid} {printable_line(one.command)}", "text")]
                for one in group.end.left
            ]
        return lines

    def _mark(self, group: OutputGroup) -> Mark:
        if group.end is None:
            return self.console.glyphs.state(State.RUNNING)
        return self.console.glyphs.state(State.DONE if group.end.well else State.FAILED)

    def _say_proof(self) -> None:
        """After a cancel, say once what is verified."""
        run = self.run_shown
        if not run.cancelled or not run.state.over or self._proven:
            return
        self._proven = True
        open_ends = run.state.not_proven()
        if open_ends:
            self.say(f"not verified on {fold_nodes(open_ends)}: look there", "bad")
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
            self.save_lines(expand_path(text), lines, f"{len(lines):,} lines")

    def _texts(self) -> list[str]:
        """All output, as `rankdeck sh` prints it."""
        lines: list[str] = []
        for group in self.run_shown.state.groups():
            lines += [f"{fold_nodes(group.nodes)} ({len(group.nodes)}): {group.words}"]
            lines += [printable_line(text) for text in group.text]
        return lines


def _urgency(group: OutputGroup) -> tuple[bool, bool]:
    """Sort key: groups that failed first, then groups that still run."""
    return (group.end is None or group.end.well, group.end is not None)
