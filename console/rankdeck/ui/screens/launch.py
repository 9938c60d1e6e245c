"""Start a job: choose a file, read exactly what will be done, press enter."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual.containers import Horizontal
from textual.widget import Widget

from rankdeck.errors import RankdeckError
from rankdeck.model.job import JobSpec
from rankdeck.ui.clean import clean
from rankdeck.ui.screens.base import DeckScreen
from rankdeck.ui.widgets.canvas import Runs
from rankdeck.ui.widgets.text import TextPage
from rankdeck.ui.widgets.vtable import Column, VTable


class LaunchScreen(DeckScreen):
    """Job files on the left, the plan on the right."""

    deck_name: ClassVar[str] = "launch"
    paint_period: ClassVar[float] = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._paths: dict[str, Path] = {}
        self._shown: tuple[str, float] | None = None
        self._spec: JobSpec | None = None
        self._filter = ""
        self.files = VTable(
            (Column("JOB FILE", 20, lambda row, _: self._file_cell(row), grow=True),),
            empty="no job files here",
            id="files",
        )
        self.plan = TextPage(id="plan")

    def body(self) -> Iterable[Widget]:
        return (Horizontal(self.files, self.plan, id="halves"),)

    @property
    def main(self) -> Widget:
        return self.files

    def _file_cell(self, row: str) -> Runs:
        path = self._paths[row]
        return [(clean(path.stem), "title"), (f"  {clean(path.parent.name)}", "dim")]

    def select(self, path: Path) -> None:
        """Put the cursor on this file, which need not be in the list."""
        self._paths[str(path)] = path
        self.files.show(sorted(self._paths))
        self.files.cursor = str(path)
        self._extra = path
        self._show_plan()

    _extra: Path | None = None

    def tick(self) -> None:
        paths = list(self.deck.session.job_files())
        if self._extra is not None and self._extra not in paths:
            paths.append(self._extra)
        self._paths = {str(path): path for path in paths if self._filter in str(path)}
        self.files.show([str(path) for path in paths if str(path) in self._paths])
        self._show_plan()

    def _show_plan(self) -> None:
        """Read the chosen file again if it is another one or was changed."""
        path = self._paths.get(self.files.cursor)
        if path is None:
            self.plan.show([])
            self._shown, self._spec = None, None
            return
        stamp = (str(path), _changed(path))
        if stamp == self._shown:
            return
        restart = self._shown is None or self._shown[0] != stamp[0]
        self._shown = stamp
        self.plan.show(self._plan_lines(path), restart=restart)

    def _plan_lines(self, path: Path) -> list[Runs]:
        session = self.deck.session
        self._spec = None
        try:
            spec = session.read_job(path)
            text = session.render(session.plan(spec))
        except RankdeckError as error:
            return [[(clean(line), "bad")] for line in str(error).splitlines()]
        self._spec = spec
        return [[(clean(line), _role(line))] for line in text.splitlines()]

    def on_vtable_moved(self) -> None:
        self._show_plan()

    def on_vtable_opened(self) -> None:
        self.action_launch()

    def action_launch(self) -> None:
        if self._spec is None:
            self.say(
                "nothing to start: mend the job file first"
                if self._shown
                else "choose a job file",
                "warn",
            )
            return
        self.deck.launch(self._spec)

    def action_filter(self) -> None:
        self.prompt.ask("/", self._filter, "part of a file's name")

    def typed(self, text: str) -> None:
        self._filter = text.strip()
        self.tick()

    def answered(self, text: str | None) -> None:
        self.typed(text or "")

    def action_back(self) -> None:
        self.say("")
        self.typed("")

    def key_tab(self) -> None:
        (self.files if self.plan.has_focus else self.plan).focus()


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _role(line: str) -> str:
    if line.lstrip().startswith("#"):
        return "dim"
    return "title" if line and not line[0].isspace() else "text"
