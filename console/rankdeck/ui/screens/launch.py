"""The launch screen: choose a job file, change values, read exactly
what will be done, start the job.
"""

import contextlib
import os
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.worker import Worker

from rankdeck.backends.plan_text import DiffKind, plan_difference
from rankdeck.config.files import config_folder, shown_path, write_new
from rankdeck.config.jobs import fill_form, form_of
from rankdeck.config.user import allow_uses
from rankdeck.errors import RankdeckError, UntrustedError
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.plan import Plan
from rankdeck.model.safe_text import printable_line
from rankdeck.preflight.findings import Finding
from rankdeck.state.node import NodeState
from rankdeck.ui import actions, formatting, movement
from rankdeck.ui.commands import CommandError
from rankdeck.ui.operations import NOT_LENT, errors_shown, is_off, launch_job
from rankdeck.ui.screens.base import BaseScreen, Details, ListFilter, no_match
from rankdeck.ui.screens.job_head import plan_runs
from rankdeck.ui.screens.modals import PASTED, file_question
from rankdeck.ui.widgets.bars import Form
from rankdeck.ui.widgets.canvas import Run, Runs, TextPage
from rankdeck.ui.widgets.grid import indent_rows, section_head
from rankdeck.ui.widgets.vtable import Column, VTable
from rankdeck_agent.rules.levels import Level

FIELDS = (
    ("nodes", "nodes"),
    ("ranks_per_node", "ranks/node"),
    ("on", "only on"),
    ("command", "command"),
    ("env", "env"),
)
_DIFF_ROLES = {
    DiffKind.OLD: "bad",
    DiffKind.NEW: "ok",
    DiffKind.SAME: "dim",
    DiffKind.PLACE: "accent",
}
_MOST_WARNED = 4
LEAST_FILES, NARROW, LOW = 28, 80, 18
"""Least cells of the files on screens of NARROW cells or more; below LOW lines, space is saved."""
LACKS_PERIOD = 60.0
"""Seconds between two checks of what the nodes lack for the jobs in the list."""


class LaunchScreen(BaseScreen):
    """Job files on the left; a form and the plan on the right."""

    screen_name: ClassVar[str] = "launch"
    needs_session: ClassVar[bool] = True
    paint_period: ClassVar[float] = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._paths: dict[str, Path] = {}
        self._read: tuple[str, float] | None = None
        self._base: JobSpec | None = None
        """The job as read from its file, or as launched before (a clone)."""
        self._spec: JobSpec | None = None
        """The job as it would be launched now, with the values of the form."""
        hint = "part of a file's name"
        self.list_filter = ListFilter(self, hint, self.refresh_now, language=False)
        self._extra: Path | None = None
        self._cloned = ""
        self._only: tuple[str, ...] = ()
        """The nodes that were marked for the job; (): none."""
        self._compares, self._folds = False, True
        self._findings: list[Finding] = []
        self._lacks: Mapping[str, str] = {}
        """File -> what its nodes lack to run it, "" for nothing."""
        self._next_look = 0.0
        self._asking: Worker[None] | None = None
        """The preflight that was started last."""
        self._warned: JobSpec | None = None
        """The job whose preflight said that it would fail; it
        starts if it is launched once more.
        """
        self.main = self.files = VTable(
            (Column("JOB FILE", 20, lambda row, _: self._file_cell(row), grow=True),),
            empty="no job file",
            id="files",
        )
        self.about = Details(self.files)
        self.form = Form(self._form_head, FIELDS, id="form")
        self.plan = TextPage(id="plan", always=True)

    def body(self) -> Iterable[Widget]:
        self._left = Vertical(self.files, self.about, id="left")
        right = Vertical(self.form, self.plan, id="right")
        return (Horizontal(self._left, right, id="halves"),)

    @property
    def _form_head(self) -> Runs:
        return section_head("Values", f"{actions.action_key('part')} changes them")

    def on_resize(self) -> None:
        """Low screens have no heading over the form, and one line for each line of the plan."""
        self._left.styles.min_width = LEAST_FILES if self.size.width >= NARROW else 0
        self.plan.always = self.size.height >= LOW
        self.form.head = self._form_head if self.plan.always else ()
        self.call_after_refresh(self._show_again)

    def _show_again(self) -> None:
        if self._spec is not None:
            self._show_plan()

    def _file_cell(self, row: str) -> Runs:
        path = self._paths[row]
        name: Run = (printable_line(path.stem), "title")
        if lack := self._lacks.get(row):
            return [name, (f"  {printable_line(lack)}", "warn")]
        return [name, (f"  {printable_line(path.parent.name)}", "dim")]

    # ---- which job

    def select(self, path: Path) -> None:
        """Put the cursor on this file; it is added to the list if it is not there."""
        self._paths[str(path)] = path
        self.files.show(sorted(self._paths))
        self.files.cursor = str(path)
        self._extra, self._cloned = path, ""
        self._read_file()

    def clone(self, job: Job) -> None:
        """Fill the form with the values of an earlier job."""
        if job.plan.spec is None:
            self.say("the file of this old job was not kept; choose a job file", "warn")
            return
        self._cloned, self._base = job.id, job.plan.spec
        self.form.fill(form_of(job.plan.spec))
        self._show_plan(restart=True)
        self.form.focus()

    def tick(self) -> None:
        paths = list(self.console.need_session().control.job_files())
        if self._extra is not None and self._extra not in paths:
            paths.append(self._extra)
        self._paths = {str(path): path for path in paths if self.list_filter.text in str(path)}
        self.files.show([str(path) for path in paths if str(path) in self._paths])
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LACKS_PERIOD
            work = self._find_lacks(paths)
            self.run_worker(work, name="lacks", group="lacks", exclusive=True)
        if not self._cloned:
            self._read_file()
        self.about.tell("Job file", self._about_lines())

    def _about_lines(self) -> list[Runs]:
        """What is known of the chosen file: where it lies, what its nodes lack, its last run."""
        path = self._paths.get(self.files.cursor)
        if path is None:
            return []
        lines: list[Runs] = [[("file   ", "dim"), (printable_line(shown_path(path)), "text")]]
        if lack := self._lacks.get(str(path)):
            lines.append([("lacks  ", "dim"), (printable_line(lack), "warn")])
        last = self._last_run(self._base.name) if self._base else None
        if last is not None:
            mark = self.console.glyphs.state(last.state)
            ago = formatting.format_age(formatting.seconds_since(last.ended or last.created))
            lines.append([("last   ", "dim"), (f"{mark.glyph} {last.state}, {ago} ago", mark.role)])
        return lines

    def _last_run(self, name: str) -> Job | None:
        runs = (job for job in self.console.need_session().jobs.all() if job.name == name)
        return next(runs, None)

    async def _find_lacks(self, paths: Sequence[Path]) -> None:
        """Mark the files that cannot run here.

        Files that cannot be read are skipped: choosing one shows its error.
        """
        specs: list[JobSpec] = []
        for path in paths:
            with contextlib.suppress(RankdeckError):
                specs.append(self.console.need_session().control.read_job(path))
        with contextlib.suppress(RankdeckError):
            self._lacks = await self.console.need_session().control.find_lacking(specs)
        self.files.refresh()

    def without_effect(self) -> Iterable[str]:
        return () if self._spec is not None else ("launch", "preflight", "diff", "fold")

    def turned_off(self) -> Iterable[str]:
        spec = self._spec
        return (
            ("launch",)
            if spec and self.console.need_session().control.why_not("launch", spec)
            else ()
        )

    def _read_file(self) -> None:
        """Read the chosen file if another one is chosen now, or if it was changed."""
        path = self._paths.get(self.files.cursor)
        if path is None:
            self._read = self._base = self._spec = None
            self.plan.show(self._nothing())
            return
        stamp = (str(path), _changed(path))
        if stamp == self._read:
            return
        restart = self._read is None or self._read[0] != stamp[0]
        self._read = stamp
        try:
            self._base = self.console.need_session().control.read_job(path)
        except RankdeckError as error:
            if isinstance(error, UntrustedError):
                self._ask_to_trust(error)
            self._base = self._spec = None
            self.form.fill({})
            # The file is under the cursor, so its folder can be left out.
            complaint = _complaint(str(error).replace(f"{path.parent}/", ""), self._bad_sign)
            self.plan.show(complaint, restart=restart)
            return
        self._findings = []
        self._fill(self._base)
        self._show_plan(restart=restart)

    def use_only(self, nodes: Sequence[str]) -> None:
        """Put every job that is chosen from now on exactly on these nodes; () ends that."""
        self._only = tuple(nodes)
        self._cloned, self._read = "", None
        self.tick()

    def _fill(self, spec: JobSpec) -> None:
        """Fill the form with the values of a file, and with the marked nodes if there are any."""
        only = {"on": fold_nodes(self._only), "nodes": str(len(self._only))} if self._only else {}
        self.form.fill({**form_of(spec), **only})

    def _ask_to_trust(self, error: UntrustedError) -> None:
        """Ask whether to trust the file: once for each content, as commands do on the terminal."""

        def agree() -> None:
            allow_uses(error.problems)
            self._read = None

        self.console.ask(file_question(error), agree)

    def _nothing(self) -> list[Runs]:
        """Why there is no plan, and where to put job files."""
        if self.list_filter.text:
            return [[], section_head("Plan", no_match("file"))]
        rows: list[Runs] = [
            [
                ("put NAME.yaml into ", "dim"),
                (printable_line(str(config_folder() / "jobs")), "text"),
            ],
            [(":launch FILE takes one from anywhere", "dim")],
        ]
        return [[], section_head("Plan", "no job files yet"), *indent_rows(rows)]

    # ---- what would be done

    def _show_plan(self, *, restart: bool = False) -> None:
        self.plan.show(self._plan_lines(), restart=restart)

    @property
    def _bad_sign(self) -> str:
        return self.console.glyphs.level(Level.BAD).glyph

    def _plan_lines(self) -> list[Runs]:
        self._spec = None
        if self._base is None:
            return []
        session = self.console.need_session()
        try:
            spec = fill_form(self._base, self.form.values)
            plan = session.control.plan(spec)
        except (RankdeckError, ValueError) as error:
            return _complaint(str(error), self._bad_sign)
        # The job as planned, with the nodes that were chosen for it.
        self._spec = plan.spec or spec
        found = indent_rows(self._finding_lines())
        head = [[], section_head("Preflight"), *found] if found else []
        if self._compares:
            title, rows = section_head("Plan", "against the last run"), self._difference(plan)
        else:
            title, rows = section_head("Plan"), plan_runs(plan, folded=self._folds)
        lines = [*head, [], title, *indent_rows([*self._origin(), *self._node_lines(plan), *rows])]
        return lines if self.plan.always else [line for line in lines[1:] if line]

    def _origin(self) -> list[Runs]:
        if self._only:
            return [_headed("on", fold_nodes(self._only), "as marked; esc lets the file choose")]
        if self._cloned:
            return [_headed("again", self._cloned, "esc goes back to the files")]
        return []

    def _node_lines(self, plan: Plan) -> list[Runs]:
        """One line for each node of the plan that is not well, and for each
        node that was left out for that reason.
        """
        fleet, chosen = self.console.fleet, [node.node for node in plan.nodes]
        known = [fleet.node(name) for name in chosen if fleet.knows(name)]
        ill = [node for node in known if node.health.level is not Level.OK]
        lines = [self._node_line(node, "") for node in ill[:_MOST_WARNED]]
        lines += self._lemon_lines(chosen)
        out = self._left_out(chosen)[:_MOST_WARNED]
        lines += [self._node_line(fleet.node(name), "left out: ") for name in out]
        if more := len(ill) - _MOST_WARNED:
            lines += [[(f"and {more} more nodes that are not well", "warn")]] if more > 0 else []
        return lines

    def _lemon_lines(self, chosen: Sequence[str]) -> list[Runs]:
        """One line for each node of the plan on which jobs fail more often than on others."""
        lemons = self.console.need_session().jobs.judge_nodes().lemons
        found = [lemons[name] for name in chosen if name in lemons][:_MOST_WARNED]
        mark = self.console.glyphs.level(Level.WARN)
        hint = f"; {actions.action_key('preflight')} says how to leave it out"
        return [
            [
                (f"{mark.glyph} {printable_line(one.node)}  ", mark.role),
                (one.sentence + hint, "text"),
            ]
            for one in found
        ]

    def _left_out(self, chosen: Sequence[str]) -> list[str]:
        """The bad nodes that were replaced by others."""
        if self._base is None or self._base.on or self.form.values["on"]:
            return []
        session = self.console.need_session()
        first = [node.name for node in session.cluster.nodes[: len(chosen)]]
        return [name for name in first if name not in chosen and name in session.fleet.bad]

    def _node_line(self, node: NodeState, state: str) -> Runs:
        level = node.health.level
        mark = self.console.glyphs.level(level)
        why = formatting.describe_worst_reason(node) or "not heard yet"
        head = f"{mark.glyph} {printable_line(node.name)} {level.word}  "
        return [(head, mark.role), (state, "warn"), (why, "text")]

    def _difference(self, plan: Plan) -> list[Runs]:
        """The difference between this plan and that of the last run of the same name."""
        before = self._last_run(plan.name)
        if before is None:
            return [[("no earlier run of this name to compare with", "dim")]]
        lines = plan_difference(before.plan, plan)
        head = _headed("against", before.id, str(before.state))
        if not lines:
            return [head, [("identical", "ok")]]
        return [head, *([(printable_line(line.text), _DIFF_ROLES[line.kind])] for line in lines)]

    def edit(self) -> None:
        """Open the chosen file in the user's editor; `tick` reads it again afterwards."""
        path = self._paths.get(self.files.cursor)
        if path is None:
            self.say("no job file here", "dim")
            return
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        work = self._edit([*shlex.split(editor), str(path)])
        self.run_worker(work, name="edit", group="edit", exclusive=True)

    async def _edit(self, argv: list[str]) -> None:
        code = await self.console.lend_terminal(argv, f"rankdeck: {printable_line(argv[-1])}")
        why = {126: NOT_LENT, 127: f"{argv[0]}: no such editor; set $EDITOR"}
        if code:
            outcome = why.get(code, f"{argv[0]} ended with exit {code}")
            self.say(outcome, "warn")

    def script(self, file: Path) -> None:
        """Write the job that is shown as a shell script; raises CommandError or RankdeckError."""
        if self._spec is None:
            raise CommandError("no job here; choose one")
        try:
            write_new(
                file,
                [self.console.need_session().control.export(self._spec).rstrip("\n")],
                program=True,
            )
        except OSError as error:
            raise CommandError(f"not written: {printable_line(str(error))}") from error
        self.say(f"{file}: written; start it with `sh {file.name}`", "ok")

    # ---- keys

    def on_screen_resume(self) -> None:
        """If the values in the form could not be planned, replace them by those of the file."""
        if self._base is not None and self._spec is None:
            self._fill(self._base)
            self._show_plan()
        super().on_screen_resume()

    def on_descendant_focus(self) -> None:
        """In the form, letters are text: say how to get back to the keys."""
        if self.form.has_focus:
            back, command = actions.action_key("back"), actions.action_key("command")
            self.say(
                f"keys type into the form; {back} leaves it, then {command} takes a command", "dim"
            )

    def on_vtable_moved(self) -> None:
        self._cloned, self._read = "", None
        self._read_file()

    def on_vtable_opened(self) -> None:
        self.action_launch()

    def on_form_changed(self) -> None:
        self._findings = []
        self._show_plan()

    def action_launch(self) -> None:
        if self._spec is None:
            self.say(
                "nothing to start: fix the errors on the right first"
                if self._read or self._cloned
                else "choose a job file",
                "warn",
            )
            return
        if self.console.pasted:
            self.refuse(PASTED)
        elif self._spec == self._warned:
            launch_job(self.console, self._spec)
        elif not is_off(self.console, "launch", self._spec):
            self._look(self._spec, starts=True)

    def action_diff(self) -> None:
        self._compares = not self._compares
        self._show_plan(restart=True)

    def action_fold(self) -> None:
        if self._spec is None:
            self.refuse("no plan: there are no files to fold")
            return
        self._folds = not self._folds
        self._show_plan()

    def action_preflight(self) -> None:
        if self._spec is None:
            self.refuse("no plan to check")
        else:
            self._look(self._spec, starts=False)

    def _look(self, spec: JobSpec, *, starts: bool) -> None:
        """Run a preflight of this job; if it `starts` and nothing
        would go wrong, start it afterwards.
        """
        self._findings, self._warned = [], None
        self.say("asking the nodes …", "dim")
        work = self._look_ahead(spec, starts=starts)
        self._asking = self.run_worker(work, name="preflight", group="preflight", exclusive=True)

    async def _look_ahead(self, spec: JobSpec, *, starts: bool) -> None:
        """Show each finding as it comes, or say that nothing was found."""

        def tell(finding: Finding) -> None:
            self._findings = [*self._findings, finding]
            self._show_plan()

        def step(done: int, of: int, doing: str) -> None:
            back = f"; {actions.action_key('back')} does not start it" if starts else ""
            self.say(f"{spec.name}: preflight {done} of {of}, {doing}{back}", "dim")

        with errors_shown(self, "bad"):
            await self.console.need_session().control.preflight(spec, tell, step)
            self._looked(spec, starts=starts)

    def _looked(self, spec: JobSpec, *, starts: bool) -> None:
        """Called when all findings are there: start the job, or say why not."""
        self._show_plan()
        bad = sum(one.level is Level.BAD for one in self._findings)
        if bad:
            self._warned = spec
            key = actions.action_key("launch")
            again = f"; not started, {key} once more starts it all the same" if starts else ""
            self.say(f"preflight: {bad} would make it fail{again}", "warn")
        elif not starts:
            self.say("preflight: ready", "ok")
        elif spec == self._spec:
            launch_job(self.console, spec)
        else:
            self.say("not started: the form was changed while the nodes were asked", "warn")

    def _finding_lines(self) -> list[Runs]:
        """What preflight found, the worst first; everything that is well is in one line."""
        ill = [one for one in self._findings if one.level is not Level.OK]
        lines: list[Runs] = []
        for one in sorted(ill, key=lambda one: -one.level):
            mark = self.console.glyphs.level(one.level)
            where = f"{printable_line(one.node)}: " if one.node else ""
            head = (f"{mark.glyph} {printable_line(one.check)}  ", mark.role)
            lines.append([head, (f"{where}{printable_line(one.text)}", "text")])
            if one.fix:
                lines.append([("  try ", "dim"), (printable_line(one.fix), "accent")])
        well = dict.fromkeys(o.check for o in self._findings if o.level is Level.OK)
        if well:
            mark = self.console.glyphs.level(Level.OK)
            lines.append(
                [(f"{mark.glyph} well  ", mark.role), (printable_line(" ".join(well)), "dim")]
            )
        return lines

    def take_back(self) -> bool:
        """Cancel a running preflight; if there is none, leave form, plan, clone,
        marked nodes and filter, all at once.
        """
        shown = not self.files.has_focus or bool(self._cloned) or bool(self._only)
        if self._asking is not None and self._asking.is_running:
            self._asking.cancel()
            self.say("not started", "warn")
            return True
        self.files.focus()
        if self._cloned or self._only:
            self._cloned, self._read, self._only = "", None, ()
        return super().take_back() or shown

    def action_part(self) -> None:
        """Move the focus to the next of files, form and plan."""
        places = (self.files, self.form, self.plan)
        here = next((one for one in places if one.has_focus), self.plan)
        movement.next_choice(places, here).focus()


def _headed(word: str, name: str, note: str) -> Runs:
    """A line before a plan: `again  mpi-hello-1  esc goes back to the files`."""
    return [(f"{word:<5}  ", "key"), (printable_line(name), "title"), (f"  {note}", "dim")]


def _complaint(text: str, sign: str) -> list[Runs]:
    """Why there is no plan: the mistakes in a file or in the form."""
    rows: list[Runs] = [[(f"{sign} {printable_line(line)}", "bad")] for line in text.splitlines()]
    return [[], section_head("Plan", "none, because of this:"), *indent_rows(rows)]


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
