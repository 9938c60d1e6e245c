"""The scaling screen: kept studies, the plan of a study, its plots, table and sentences."""

from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import ClassVar

from textual.containers import Vertical
from textual.widget import Widget

from rankdeck.config.files import expand_path, find_job
from rankdeck.errors import RankdeckError
from rankdeck.model.safe_text import printable_line
from rankdeck.scaling.planning import ScaleRequest
from rankdeck.scaling.screen_page import (
    PLOT_NAMES,
    PLOT_WIDTH,
    STATE_ROLES,
    draw_study_plots,
    run_line,
    study_line,
    study_lines,
    study_plan_lines,
    study_start_lines,
)
from rankdeck.scaling.study import ScalingProtocol, Study, StudyState
from rankdeck.scaling.table import number_name, study_headline
from rankdeck.scaling.typed import read_typed_study
from rankdeck.ui import actions, formatting, movement
from rankdeck.ui.operations import errors_shown, in_background, say_stopping
from rankdeck.ui.screens import base
from rankdeck.ui.screens.modals import WIDE, ChangeQuestion
from rankdeck.ui.widgets.canvas import Run, Runs, TextPage, break_runs
from rankdeck.ui.widgets.vtable import Column, VTable

NOTHING = "no scaling study yet: A plans one, such as `stencil --ranks 1,2,4,8`"
HINT = "JOB --ranks 1,2,4,8 [--nodes …] [--set KEY=V,V] [--weak KEY=V] [--repeat 3]"
_MOST_PLOT = 16
"""Most lines of the plots."""
_LEAST_BELOW = 8


class ScalingScreen(base.BaseScreen):
    """Kept studies, the plan of a study, and its results; tab goes from one to the next."""

    screen_name: ClassVar[str] = "scaling"
    needs_session: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._opened: Study | None = None
        """The kept study that is shown; None: the one that was planned or started here."""
        self._kept: dict[str, Study] = {}
        self._view = ""
        """`studies`, `plan` or `study`."""
        self._plot = PLOT_NAMES[0]
        self._seen: tuple[object, ...] = ()
        self._asked = ""
        """What the prompt asks for: `plan` or `save`."""
        self.head = TextPage(id="scale-head", can_focus=False)
        self.studies = VTable(self._columns(), empty=NOTHING, id="studies")
        self.studies.sorted_by = ("STARTED",)
        self.plan = TextPage(id="scale-plan")
        self.plots = TextPage(id="scale-plots", can_focus=False, wraps=False)
        self.main = self.page = TextPage(id="scale-page")
        self._both = Vertical(self.plots, self.page, id="scale")

    def body(self) -> Iterable[Widget]:
        return self.head, self.studies, self.plan, self._both

    def _columns(self) -> tuple[Column, ...]:
        return (
            Column("STUDY", 22, lambda row, _: [(printable_line(row), "title")], keep=8),
            Column("STARTED", 16, lambda row, _: [(formatting.format_day(self._kept[row].started), "dim")], keep=7),
            Column("JOB", 16, lambda row, _: [(printable_line(self._kept[row].plan.job), "text")], keep=9),
            Column("STATE", 8, lambda row, _: [self._state(self._kept[row])], keep=8),
            Column("OUTCOME", 20, lambda row, _: [(self._outcome(self._kept[row]), "text")], grow=True, least=20),
        )  # fmt: skip

    def _state(self, study: Study) -> Run:
        return study.progress.value, STATE_ROLES[study.progress]

    def _outcome(self, study: Study) -> str:
        first = next(iter(study.verdicts), None)
        return printable_line(first.text if first else study_headline(study))

    # ---- what is shown

    @property
    def _port(self) -> ScalingProtocol:
        return self.console.need_session().scaling

    @property
    def study_shown(self) -> Study | None:
        """The study on screen."""
        now, kept = self._port.current, self._opened
        return now if kept is None or (now is not None and now.id == kept.id) else kept

    @property
    def _is_going(self) -> bool:
        study = self._port.current
        return study is not None and study.progress is StudyState.RUNNING

    def tick(self) -> None:
        study = self.study_shown
        self.head.show(self._head_lines(study))
        look = (
            self._view,
            self._plot,
            self.size,
            self.page.size,
            self.console.ascii,
            self.console.palette.name,
        )
        seen = (id(self._port), study, *look)
        if self._seen == seen:
            return
        first, self._seen = not self._seen, seen
        if first or self._view == "studies":
            self._kept = {one.id: one for one in self._port.studies()}
            self.studies.show(list(self._kept))
            self.studies.refresh()
        if not self._view:
            self._show_view(_first_view(study))
        elif study is not None:
            self._show_study(study)

    def _show_study(self, study: Study) -> None:
        if self._view == "plan":
            self.plan.show(study_plan_lines(study))
        elif self._view == "study":
            height = self.size.height - 4
            room = min(max(height - _LEAST_BELOW, 0), _MOST_PLOT, max(height // 2, 6))
            width = self.size.width - 1
            lines = draw_study_plots(study, (width, room), self._plot, self.console.glyphs)
            self.plots.styles.height = len(lines)
            self.plots.show(lines)
            self.page.show(study_lines(study, width))

    def _show_view(self, view: str) -> None:
        self._view = view
        for name, widget in (("studies", self.studies), ("plan", self.plan), ("study", self._both)):
            widget.display = name == view
        self.main = {"studies": self.studies, "plan": self.plan}.get(view, self.page)
        if self.is_current:
            self.main.focus()
        self.tick()

    def _look_at(self, study: Study | None, view: str = "") -> None:
        self._opened = study
        self._show_view(view or _first_view(self.study_shown))

    def _head_lines(self, study: Study | None) -> list[Runs]:
        if study is None or self._view == "studies":
            return [
                [(" Scaling", "title"), ("  how does a job scale with ranks and values?", "dim")]
            ]
        compared = f" compared: {printable_line(number_name(study))}" if study.number else ""
        return [study_line(study, self.console.fleet.wall()), [(compared, "dim"), run_line(study)]]

    def without_effect(self) -> Iterable[str]:
        """Actions that would do nothing in this view and this state of the study."""
        study, going = self.study_shown, self._is_going
        able = {
            "open": self._can_open(study),
            "copy": self._view != "studies" or self.studies.cursor in self._kept,
            "part": study is not None,
            "metric": self._view == "study" and self.size.width // PLOT_WIDTH < len(PLOT_NAMES),
            "save": study is not None and self._view != "studies",
            "cancel": going,
            "plan": not going,
            "resume": not going and self._stopped_study() is not None,
        }
        return [name for name, can in able.items() if not can]

    def _can_open(self, study: Study | None) -> bool:
        if self._view == "studies":
            return self.studies.cursor in self._kept
        return self._view == "plan" and self._is_new(study)

    def _is_new(self, study: Study | None) -> bool:
        return study is not None and not self._opened and study.progress is StudyState.PENDING

    def _stopped_study(self) -> Study | None:
        """The stopped study that `resume` would continue; None if there is none."""
        study = self._kept.get(self.studies.cursor) if self._view == "studies" else self.study_shown
        return study if study is not None and study.progress is StudyState.STOPPED else None

    # ---- keys

    def action_copy(self) -> None:
        if self._view == "studies":
            self.console.copy(self.studies.cursor, printable_line(self.studies.cursor))
        else:
            self.copy_page(self.plan if self._view == "plan" else self.page)

    def action_part(self) -> None:
        """Go to the next of results, plan and studies."""
        views = ("study", "plan", "studies") if self.study_shown is not None else ("studies",)
        self._show_view(movement.next_choice(views, self._view))

    def action_metric(self) -> None:
        """Begin with the next plot."""
        self._plot = movement.next_choice(PLOT_NAMES, self._plot)
        self.tick()

    def take_back(self) -> bool:
        """Go from a kept study back to the list."""
        opened = self._opened is not None
        if opened:
            self._look_at(None, "studies")
        return opened

    def on_vtable_opened(self) -> None:
        self._open_study()

    def action_open(self) -> None:
        if self._view == "studies":
            self._open_study()
        elif self._view == "plan":
            self._ask_start()

    def _open_study(self) -> None:
        row = self.studies.cursor
        if row not in self._kept:
            return
        now = self._port.current
        with errors_shown(self, "bad"):
            own = now is not None and now.id == row
            self._look_at(None if own else self._port.open(row), "study")

    def action_plan(self) -> None:
        if self._is_free():
            self._asked = "plan"
            self.prompt.ask("scale", "", HINT)

    def action_save(self) -> None:
        if self.study_shown is not None:
            self._asked = "save"
            self.prompt.ask("reports", f"scaling-{self.study_shown.id}", "folder for the reports")

    def answered(self, text: str | None) -> None:
        asked, self._asked = self._asked, ""
        if text is None or not text.strip():
            return
        if asked == "plan":
            self._make_plan(text)
        elif asked == "save":
            self._save(expand_path(text.strip()))

    def _make_plan(self, text: str) -> None:
        cluster = self.console.cluster
        try:
            request = read_typed_study(text, lambda name: find_job(name, cluster.file))
        except RankdeckError as error:
            self.say(printable_line(str(error)), "warn")
            return
        self.say("looking at what runs on the nodes …", "dim")
        self._do(self._plan(request))

    async def _plan(self, request: ScaleRequest) -> None:
        await self._port.plan(request)
        self.say("enter starts it, after you confirm", "dim")
        self._look_at(None, "plan")

    def _ask_start(self) -> None:
        study = self.study_shown
        if study is None or not self._is_new(study):
            self.refuse("this study has begun already; A plans another one")
            return
        lines = [piece for line in study_start_lines(study) for piece in break_runs(line, WIDE)]
        self.console.ask(
            ChangeQuestion("Start this study?", lines, "start", "not yet"), self._start
        )

    def _start(self) -> None:
        self._look_at(None, "study")
        self.say("running; x stops it, after you confirm", "dim")
        self._do(self._run())

    async def _run(self) -> None:
        self.say(study_headline(await self._port.start()), "ok")

    def action_cancel(self) -> None:
        study = self._port.current
        if study is None or not self._is_going:
            self.refuse("no study is in progress")
            return
        lines: list[Runs] = [
            [("study    ", "dim"), (printable_line(study.id), "title")],
            [("running  ", "dim"), (printable_line(study.running), "text")],
            [],
            [("Its job is cancelled with proof. What was measured is kept,", "text")],
            [(f"and {actions.action_key('resume')} goes on from there.", "text")],
        ]
        self.console.ask(ChangeQuestion("Stop this study?", lines, "stop", "go on"), self._stop)

    def _stop(self) -> None:
        self._do(say_stopping(self, self._port.stop()))

    def action_resume(self) -> None:
        study = self._stopped_study()
        if study is None:
            self.refuse("only a stopped study can be continued")
        elif self._is_free():
            with errors_shown(self, "bad"):
                self._port.resume(study.id)
                self._start()

    def _is_free(self) -> bool:
        if self._is_going:
            self.say("a study is in progress: x stops it", "warn")
        return not self._is_going

    def _save(self, folder: Path) -> None:
        from rankdeck.rules.secrets import Secrets
        from rankdeck.scaling.report_files import write_study_files

        study = self.study_shown
        if study is None:
            return
        with errors_shown(self, "bad"):
            made = write_study_files(study, folder, Secrets([self.console.cluster.environment]))
            self.say(f"{len(made)} files in {folder}: open report.html", "ok")

    def _do(self, work: Awaitable[None]) -> None:
        """Do this work, also while other screens are open."""
        in_background(self.console, "scaling", work, exclusive=False)


def _first_view(study: Study | None) -> str:
    if study is None:
        return "studies"
    return "plan" if study.progress is StudyState.PENDING else "study"
