"""The console as a program: opens the session after the first paint, owns theme and navigation."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, partialmethod
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import SystemCommand
from textual.dom import DOMNode
from textual.driver import Driver
from textual.filter import LineFilter, NoColor
from textual.screen import Screen
from textual.widgets import Input

from rankdeck.config.user import UiSettings
from rankdeck.errors import HostKeyError, RankdeckError, leaf_errors
from rankdeck.model.cluster import Cluster
from rankdeck.model.safe_text import printable_line
from rankdeck.schedulers.slurm.allocations import allocation_offer
from rankdeck.state.fleet import Fleet
from rankdeck.ui import actions, command_actions, commands, terminal, themes
from rankdeck.ui.basic_colours import SixteenColours
from rankdeck.ui.fleet_views import ViewError
from rankdeck.ui.formatting import is_acknowledged
from rankdeck.ui.garbage_collection import IdleTime, free_painted_lines, stop_full_collections
from rankdeck.ui.opening import NotOpenError, Opener, OpenSession
from rankdeck.ui.operations import open_shell, replay_job, show_first
from rankdeck.ui.screens import base
from rankdeck.ui.screens.base import PAINT, BaseScreen
from rankdeck.ui.terminal import Dismissed, FrameDiff, KeyQueue, TerminalDriver
from rankdeck.ui.tour import Tour
from rankdeck.ui.unseen_ends import PERIOD, UnseenEnds
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.rules.units import write_duration

if TYPE_CHECKING:
    from textual.actions import ActionParseResult

    from rankdeck.remote.questions import Answers, LoginQuestion
    from rankdeck.session import Session

LEAVE_LIMIT = 5.0
"""Seconds that closing the session may take."""
HURRY_LIMIT = 2.0
"""The same if the terminal is gone or the user asked twice."""
LABELS, KEYS = 12, 8
"""Widths of the columns of the command palette: the name of an action, its key."""


class RankdeckApp(FrameDiff):
    """The console on one cluster."""

    AUTO_FOCUS: ClassVar[str | None] = ""
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    TITLE = "rankdeck"
    BINDINGS: ClassVar = []
    acknowledged: frozenset[str] = frozenset()
    """The nodes that are well only because what is wrong was acknowledged."""
    few_colours = False
    """Whether the terminal has no more than sixteen colours."""
    first_screen = "fleet"
    """The main screen to show first; when the cluster changes, the one that was shown last."""
    next_cluster: Cluster | None = None
    """The cluster to show when this console has ended; None: no other."""
    may_change = False
    """Whether another cluster can be opened after this one."""
    _counted: object = None
    """The fleet whose changes are counted in `summary`."""

    def __init__(
        self, cluster: Cluster, settings: UiSettings, session: "Session | None" = None
    ) -> None:
        """`session`: of the open cluster; None if `open_with` will open it."""
        self.palettes, self._theme_faults = themes.load_themes(
            (themes.shipped_folder(), *settings.theme_folders)
        )
        self.palette = self._first_palette(settings)
        super().__init__()
        self._register_themes()
        self.set_alphabet(ascii_only=settings.ascii)
        self.animation_level = "none"
        self.cluster, self.first_cluster, self.session = cluster, cluster, session
        self._unheard = Fleet(cluster)
        self.trouble = ""
        self.first_job, self.first_replay = "", 0.0
        """The job to open first, and the speed of its replay; 0: no replay."""
        self.summary: Counter[Level] = Counter()
        self.moment: float | None = None
        """The time that the fleet and node screens show, in epoch seconds; None: now."""
        self._levels: dict[str, Level] = {}
        """Level of each node, as counted in `summary`."""
        self._changes = self.fleet.follow()
        self.frame_diff = settings.diff
        self.views_file = settings.views_file
        self._wanted_theme = settings.theme
        self._opener: OpenSession | None = None
        self._asked: HostKeyError | LoginQuestion | None = None
        self._question: Screen[Any] | None = None
        """The dialog that asks it."""
        self._homes: dict[str, BaseScreen] = {}
        self._leaving, self._status = asyncio.Event(), 0
        self.tour, self.unseen_ends = Tour(), UnseenEnds()
        self._idle = IdleTime()
        self._keys = KeyQueue(self)

    def _register_themes(self) -> None:
        """Give Textual's own widgets our colours from the first picture on."""
        for palette in self.palettes.values():
            self.register_theme(palette.theme())
        # If this were set later, all style sheets would be read again before the first picture.
        self.set_reactive(RankdeckApp.theme, self.palette.name)
        self.stylesheet.set_variables(self.get_css_variables())

    def set_alphabet(self, *, ascii_only: bool) -> None:
        """Draw with ASCII only, or with everything."""
        self.ascii = ascii_only
        self.glyphs = themes.terminal_glyphs(os.environ, ascii_only=ascii_only)
        self.set_class(ascii_only, "-ascii")

    def _first_palette(self, settings: UiSettings) -> themes.Palette:
        default = "mono" if themes.wants_no_colour(os.environ) else "dark"
        return self.palettes.get(settings.theme or default) or self.palettes[default]

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Remove all colours in a theme that has none; keep to the
        sixteen of a terminal that has no more.
        """
        if self.palette.mono:
            return [NoColor()]
        return [SixteenColours()] if self.few_colours else []

    # ---- life

    def get_default_screen(self) -> BaseScreen:
        """The fleet is at the bottom of the stack: Textual's own empty
        screen would be painted first.
        """
        self.catch_up()
        return self.home("fleet")

    def on_mount(self) -> None:
        self.few_colours = self.console.color_system == "standard" and not self.is_headless
        self.app_resume_signal.subscribe(self, self._resumed)  # pyright: ignore[reportUnknownMemberType]
        self.set_interval(PAINT, self._look, name="look")
        self.set_interval(PERIOD, self._look_at_ends, name="ends")
        if self._opener is not None:
            self.call_after_refresh(self._begin)
        if self.first_screen != "fleet":
            self.call_after_refresh(self.goto, self.first_screen)
        if offer := allocation_offer(self.cluster):
            self.call_after_refresh(self.say, offer, "dim")
        for fault in self._faults():
            self.call_after_refresh(self.say, fault, "warn")

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.InputEvent):
            self._idle.typed()
        if isinstance(event, events.Key) and not event.is_forwarded:
            await self._keys.take(event, super().on_event)
        else:
            await super().on_event(event)

    @property
    def pasted(self) -> bool:
        """Whether the key that is being handled came with others, faster than a person types."""
        return self._keys.hasty

    def on_key(self, event: events.Key) -> None:
        """Called with a key that nothing else handled."""
        screen = self.screen
        if isinstance(screen, BaseScreen) and not actions.is_key(screen.screen_name, event.key):
            screen.unknown_key(event.key)

    def _resumed(self, app: object) -> None:
        del app
        self.forget_frame()
        # This is called later than the terminal comes back.
        at = self._driver.stopped_at if isinstance(self._driver, TerminalDriver) else None
        if at is not None:
            took = write_duration(round(monotonic() - at))
            self.say(
                f"the console was stopped for {took}; jobs went on, their output is read now", "dim"
            )

    def _faults(self) -> list[str]:
        faults = list(self._theme_faults)
        if self._wanted_theme and self._wanted_theme not in self.palettes:
            faults.append(
                f"no theme `{self._wanted_theme}`; there are {', '.join(sorted(self.palettes))}"
            )
        return faults

    def open_with(self, opener: OpenSession) -> None:
        """Open the session once the first picture is painted."""
        self._opener = opener

    def _begin(self) -> None:
        self.run_worker(self._hold_session(), name="session", exit_on_error=False)

    async def _hold_session(self) -> None:
        """Keep the session open until the user leaves."""
        assert self._opener is not None
        try:
            async with self._opener() as session:
                self.session = session
                self._idle.collect()
                show_first(self)
                await self._leaving.wait()
        except* RankdeckError as group:
            self.trouble = printable_line("; ".join(str(error) for error in leaf_errors(group)))
            self.say(self.trouble, "bad")
            await self._leaving.wait()
        self._exit_now()

    def leave(self, limit: float = LEAVE_LIMIT) -> None:
        """Close the session, in at most `limit` seconds, then the program. Jobs go on."""
        if self._opener is None:
            self._exit_now()
            return
        self._leaving.set()
        self.set_timer(limit, self._exit_now)

    def _exit_now(self) -> None:
        self.exit(self._status or int(bool(self.trouble)))

    def on_dismissed(self, message: Dismissed) -> None:
        """Leave as on `q`."""
        self._status = message.status
        self.leave(HURRY_LIMIT if message.hurry else LEAVE_LIMIT)

    def get_driver_class(self) -> type[Driver]:
        """The driver that notices when its terminal is gone."""
        return TerminalDriver

    def _look(self) -> None:
        """Check what no screen checks: questions to the operator, a terminal that
        reads again, time for garbage collection.
        """
        self.pay_frame_debt()
        self._idle.look()
        question = self.session.questions.pending if self.session else None
        if question is not self._asked:
            # First, so that what the old dialog still answers is not taken
            # for an answer to the new question.
            self._asked = question
            # Nobody waits for the old question any more: its login has ended.
            # While the console ends, no screen is left.
            if self._question is not None and self._question in self.screen_stack[-1:]:
                self._question.dismiss(None)
            self._question = None
            if question is not None:
                self._ask_operator(question)

    def _look_at_ends(self) -> None:
        """Note which jobs ended, and which of these ends the operator sees now."""
        if self.session is None:
            return
        self.unseen_ends.note(self.session.jobs.all())
        screen = self.top_screen
        if screen is not None and (screen.screen_name == "jobs" or screen.job_id):
            self.unseen_ends.see(screen.job_id)

    def _ask_operator(self, question: "HostKeyError | LoginQuestion") -> None:
        from rankdeck.ui.screens.login_question import LoginAnswer
        from rankdeck.ui.screens.modals import host_key_question

        def answered(answers: "Answers") -> None:
            if self._asked is question:
                self.need_session().questions.answer(answers)

        if isinstance(question, HostKeyError):
            self._question = trust = host_key_question(question)
            self.push_screen(trust, lambda accept: answered(() if accept else None))
        else:
            self._question = typed = LoginAnswer(question)
            self.push_screen(typed, answered)

    def catch_up(self) -> None:
        """Count the levels of nodes that changed since the last call, and tell
        the session which nodes are on screen.
        """
        fleet = self.fleet
        if self._counted is not fleet:
            self._counted, self._changes = fleet, fleet.follow()
            self._levels, self.summary, self.acknowledged = {}, Counter(), frozenset()
        changed = {name: fleet.node(name) for name in self._changes.take()}
        acknowledged = frozenset(n for n, node in changed.items() if is_acknowledged(node))
        if acknowledged != self.acknowledged & changed.keys():
            self.acknowledged = (self.acknowledged - changed.keys()) | acknowledged
        levels = {name: node.health.level for name, node in changed.items()}
        if any(self._levels.get(name) is not level for name, level in levels.items()):
            # A new object: the widget that draws it compares it with the one before.
            summary = self.summary.copy()
            summary.subtract(self._levels[name] for name in levels if name in self._levels)
            summary.update(levels.values())
            self.summary = summary
            self._levels.update(levels)
        if self.session is not None:
            screen = self.top_screen
            self.session.hearing.want(screen.wanted_nodes() if screen else frozenset())

    # ---- the open cluster

    @property
    def fleet(self) -> Fleet:
        """The state of all nodes; until the cluster is open, one in which no node was heard."""
        return self.session.fleet if self.session else self._unheard

    @property
    def why_closed(self) -> str:
        """Why there is no session, one sentence; "" if there is one."""
        if self.session is not None:
            return ""
        name = printable_line(self.cluster.name)
        return f"{name} is not open: {self.trouble}" if self.trouble else f"opening {name} …"

    def need_session(self) -> "Session":
        """The session; raises NotOpenError if there is none."""
        if self.session is None:
            raise NotOpenError(self.why_closed)
        return self.session

    async def run_action(
        self,
        action: "str | ActionParseResult",
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Do what a key asks for; while the cluster is not open, say so
        instead of what needs the session.
        """
        try:
            screen = self.screen
            if isinstance(screen, BaseScreen) and screen.is_closed and action in screen.own_actions:
                self.need_session()
            return await super().run_action(action, default_namespace, namespaces)
        except NotOpenError as error:
            self.say(str(error), "warn")
            return True

    def change_cluster(self, cluster: Cluster) -> None:
        """Close this cluster, then show another in its place. Jobs go on."""
        if not self.may_change:
            self.say("no other cluster can be opened here", "warn")
            return
        shown = (
            name
            for s in reversed(self.screen_stack)
            for name in self._homes
            if s is self._homes[name]
        )
        self.first_screen = next(shown, "fleet")
        self.next_cluster = cluster
        self.leave()

    # ---- messages

    @property
    def top_screen(self) -> BaseScreen | None:
        """The topmost screen that is not a question."""
        return next((s for s in reversed(self.screen_stack) if isinstance(s, BaseScreen)), None)

    def say(self, text: str, role: str = "text") -> None:
        """Show a sentence in the last line."""
        if screen := self.top_screen:
            screen.say(text, role)

    def ask(self, question: Screen[bool], act: Callable[[], None]) -> None:
        """Ask a question, and call `act` if the answer is yes."""
        self.push_screen(question, lambda yes: act() if yes else None)

    def copy(self, text: str, what: str) -> None:
        """Copy to the clipboard of the user's own terminal."""
        self.run_worker(self._copy(text, what), group="copy", exclusive=True)

    async def _copy(self, text: str, what: str) -> None:
        if not await terminal.through_tmux(text):
            self.copy_to_clipboard(text[: terminal.CLIPBOARD_LIMIT])
        self.say(f"copied {what}", "ok")

    def show_whole(self, title: str, lines: Sequence[Sequence[tuple[str, str]]]) -> None:
        """Show the full text of what is under the cursor, on top of the screen."""
        from rankdeck.ui.screens.modals import Whole

        self.push_screen(Whole(title, lines))

    def use_mouse(self, *, on: bool) -> None:
        """Take the mouse, or leave it to the terminal so that the user can select text."""
        names = ("_disable_mouse_support", "_enable_mouse_support")
        switch = getattr(self._driver, names[on], None)
        if switch is not None:
            switch()

    # ---- navigation

    def home(self, name: str) -> BaseScreen:
        """A main screen; made on first use."""
        if name not in self._homes:
            self._homes[name] = base.make_screen(name)
            # Textual removes a screen that is not installed when another takes its place.
            self.install_screen(self._homes[name], name)  # pyright: ignore[reportUnknownMemberType]
        return self._homes[name]

    @property
    def at_home(self) -> bool:
        """Whether a main screen is shown, with nothing on top of it."""
        return self.screen in self._homes.values()

    def goto(self, name: str) -> None:
        """Show one of the main screens, with nothing on top of it."""
        while not self.at_home:
            self.pop_screen()
        home = self.home(name)
        if self.screen is home:
            return
        if len(self.screen_stack) == 1:
            self.push_screen(home)
        elif home is self.screen_stack[0]:
            self.pop_screen()
        else:
            self.switch_screen(home)  # pyright: ignore[reportUnknownMemberType]

    def open_node(self, name: str, at: float | None = None) -> None:
        """Show a node; with `at` (epoch seconds), mark what happened there around that time."""
        self._open("node", name, at)

    def open_job(self, job_id: str) -> None:
        jobs = self.need_session().jobs
        job = jobs.job(job_id) if jobs.knows(job_id) else None
        if job is not None and job.plan.replay_of and job.clock is None:
            # Kept from an earlier session: its nodes have the output.
            replay_job(self, job_id)
        else:
            self._open("job", job_id)

    def _open(self, kind: str, *arguments: object) -> None:
        """Show a new screen on top, in place of one of the same kind if that is on top now."""
        if isinstance(self.screen, BaseScreen) and self.screen.screen_name == kind:
            self.pop_screen()
        self.push_screen(base.make_screen(kind, *arguments))

    action_inspect = command_actions.show_inspection
    action_clone = command_actions.show_clone
    action_scheduler = command_actions.show_scheduler
    action_swap = command_actions.swap_ranks
    action_logs = command_actions.show_logs
    action_processes = command_actions.show_processes
    action_launch_on = command_actions.launch_on
    action_shell = open_shell

    def action_replay(self) -> None:
        if job_id := command_actions.shown_job_id(self):
            replay_job(self, job_id)

    action_goto_fleet = partialmethod(goto, "fleet")
    action_goto_jobs = partialmethod(goto, "jobs")
    action_goto_launch = partialmethod(goto, "launch")
    action_goto_messages = partialmethod(goto, "messages")
    action_goto_events = partialmethod(goto, "events")
    action_goto_acceptance = partialmethod(goto, "acceptance")
    action_goto_scaling = partialmethod(goto, "scaling")

    def action_help(self) -> None:
        """The keys of this screen; on Help itself: all keys, and back."""
        from rankdeck.ui.screens.help import HelpScreen

        screen = self.top_screen
        if isinstance(screen, HelpScreen):
            screen.show_more()
        else:
            self._open("help", screen.screen_name if screen else "fleet")

    def action_redraw(self) -> None:
        self.forget_frame()
        self.screen.refresh()

    # ---- commands

    def choices(self, argument: str) -> list[str]:
        """The possible values of this argument of a command, for completion."""
        return command_actions.argument_choices(self, argument)

    def run_command(self, text: str) -> None:
        """Run the command that was typed after `:`."""
        try:
            command_actions.run_typed_command(self, text)
        except (commands.CommandError, ViewError, RankdeckError) as error:
            self.say(str(error), "warn")

    def _begin_command(self, command: commands.Command) -> None:
        """Run the command, or ask for its argument where it takes one."""
        screen = self.screen
        if command.argument and isinstance(screen, BaseScreen):
            screen.prompt.ask(":", f"{command.name} ")
        else:
            self.run_command(command.name)

    def choose_theme(self, name: str) -> None:
        """Change the colours."""
        self.palette = self.palettes[name]
        self.theme = name
        self.paint_anew()

    def paint_anew(self) -> None:
        """Repaint everything, because all of it looks different now."""
        for screen in self.screen_stack:
            screen.refresh(layout=True)
            for widget in screen.walk_children():
                widget.refresh()
        if screen := self.top_screen:
            screen.refresh_now()

    def on_command_palette_opened(self) -> None:
        """Stop the cursor from blinking: each blink would send bytes."""
        self.screen.query_one(Input).cursor_blink = False

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette: one line for each action of this screen and each theme."""
        told: set[tuple[str, str]] = set()
        if isinstance(screen, BaseScreen):
            for action in actions.for_screen(screen.screen_name):
                told.add((action.label, action.help))
                run = partial(screen.run_action, action.target)
                yield SystemCommand(
                    _palette_line(action.label, action.shown_key, action.help), "", run
                )
        for command in commands.COMMANDS:
            if (command.name, command.help) not in told:
                run = partial(self._begin_command, command)
                yield SystemCommand(_palette_line(command.name, ":", command.help), "", run)
        for name in sorted(self.palettes):
            choose = partial(self.choose_theme, name)
            yield SystemCommand(f"{'theme':<{LABELS + KEYS + 1}} {name}", "", choose)


def _palette_line(label: str, key: str, words: str) -> str:
    """A line of the palette; a bracket stays one, and begins no markup."""
    return f"{label:<{LABELS}} {key:<{KEYS}} {words}".replace("[", "\\[")


def run_console(
    opener: Opener, settings: UiSettings, *, cluster: Cluster, job: str = "", replay: float = 0.0
) -> int:
    """Run the console on this cluster, first on `job` or its replay; returns the exit status.

    When the user changes to another cluster, `opener` opens that one.
    """
    stop_full_collections()
    free_painted_lines()
    first, screen = cluster, "fleet"
    while True:
        app = RankdeckApp(cluster, settings)
        app.first_job, app.first_replay, app.first_screen = job, replay, screen
        app.first_cluster, app.may_change = first, True
        app.open_with(partial(opener, cluster))
        status = app.run()
        if app.next_cluster is None:
            return status if status is not None else app.return_code or 0
        cluster, screen, job, replay = app.next_cluster, app.first_screen, "", 0.0
