"""What all screens share: the bar on top, the keys below, the prompt, the paint timer."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from rankdeck.config.files import write_new
from rankdeck.model.safe_text import printable_line
from rankdeck.rules import query
from rankdeck.ui import actions, commands, formatting, movement
from rankdeck.ui.snapshots import step_moment
from rankdeck.ui.tour import OVER, OnScreen
from rankdeck.ui.widgets.bars import FilterBar, KeyBar, Prompt, TopBar, TourBar
from rankdeck.ui.widgets.canvas import MARGIN, Runs, TextPage, break_runs
from rankdeck.ui.widgets.grid import INDENT, indent_rows, section_head
from rankdeck.ui.widgets.vtable import VTable

if TYPE_CHECKING:
    from rankdeck.ui.protocols import Console


REFUSAL = 6.0
"""Seconds for which a screen says why a key did nothing; then its keys are shown again."""
PAINT = 0.25
"""Seconds between two updates from the model."""


class ListFilter:
    """The filter of a list: the text typed after `/`, and the query that it means."""

    def __init__(
        self,
        screen: "BaseScreen",
        hint: str,
        narrowed: Callable[[], None],
        *,
        language: bool = True,
    ) -> None:
        """`hint` says what to type; `narrowed` is called after each change.

        Without `language` the text is not parsed as a query, and the screen searches for it itself.
        """
        self._screen, self._hint, self._narrowed = screen, hint, narrowed
        self._language = language
        self.text = ""
        self.matches = query.parse_query("")

    def ask(self) -> None:
        """Open the prompt for the filter."""
        self._screen.prompt.ask("/", self.text, self._hint)

    def put(self, text: str) -> None:
        """Set the filter to this text; raises QueryError, and then changes nothing."""
        if self._language:
            self.matches = query.parse_query(text)
        self.text = text.strip()

    def typed(self, text: str) -> None:
        """Set the filter and narrow the list, or say what is wrong with the text."""
        try:
            self.put(text)
        except query.QueryError as error:
            self._screen.say(query.point_at_mistake(error, self._screen.size.width - 2), "warn")
            return
        self._screen.say("")
        self._narrowed()

    def take_back(self) -> bool:
        """Remove the filter; returns whether there was one."""
        filtered = bool(self.text)
        self.typed("")
        return filtered


LEAST_DETAILS = 6
"""Details are shown only if a short list leaves at least this many lines free."""


class Details(TextPage):
    """Details of the row under the cursor, in the lines that a short list leaves free."""

    def __init__(self, table: VTable) -> None:
        super().__init__(id="details", can_focus=False)
        self._table = table
        self.display = False

    @property
    def room(self) -> int:
        """Lines that the list leaves for the details, with their heading."""
        return self._height() - 2 - len(self._table.rows)

    def tell(self, title: str, lines: Sequence[Runs]) -> None:
        """Show these lines if there is room for them."""
        room = self.room
        self.display = bool(lines) and room >= LEAST_DETAILS
        self.styles.height = room
        width = self._table.size.width - len(INDENT) - MARGIN
        pieces = indent_rows(piece for line in lines for piece in break_runs(line, width))
        if len(pieces) >= room:
            pieces[room - 2 :] = [
                [(f"{INDENT}{actions.action_key('describe')}", "key"), (" shows the rest", "dim")]
            ]
        self.show([section_head(printable_line(title)), *pieces])

    def _height(self) -> int:
        """Lines that the table and the details have together."""
        around = self.parent
        if not isinstance(around, Widget):
            return 0
        others = (one for one in around.children if one.display and one not in (self, self._table))
        return around.size.height - sum(one.size.height for one in others)


def no_match(what: str) -> str:
    """The sentence in a list whose filter matches nothing; `what`
    is the plural noun for its rows.
    """
    return f"no {what} matches the filter; esc shows all"


class BaseScreen(Screen[None], inherit_bindings=False):
    """One screen.

    Subclasses set `main` and define `tick`, a method per action, and
    `body` if there is more than `main`.
    """

    screen_name: ClassVar[str] = ""
    paint_period: ClassVar[float] = PAINT
    needs_session: ClassVar[bool] = False
    """Whether there is nothing to show until the cluster is open; then the screen says so."""
    job_id: str = ""
    """The job that it is about; "" for others."""
    main: Widget
    """The widget with the focus; each screen sets it."""

    def __init_subclass__(cls) -> None:
        cls.BINDINGS = list(actions.screen_bindings(cls.screen_name))
        super().__init_subclass__()

    def __init__(self) -> None:
        super().__init__()
        self.top_bar = TopBar(self.screen_name)
        self.key_bar, self.tour_bar = KeyBar(self.screen_name), TourBar()
        self._prompt: Prompt | None = None
        self.filter_bar = FilterBar()
        self.filter_bar.display = False
        self.closed_page = TextPage(id="closed", can_focus=False)
        self.closed_page.display = False
        self._hidden: list[Widget] = []
        """The widgets that are hidden while the screen is closed."""
        self._refusal = "", 0.0
        """The sentence that refused a key, and until when it is shown."""
        self._refused: set[str] = set()
        """Unknown keys that were reported already."""
        self.list_filter = ListFilter(self, "", self.refresh_now)
        """Used by screens that are lists; they set the hint."""
        self.below: Details | None = None
        """Set by lists whose rows have more details than fit on a line."""

    @property
    def console(self) -> "Console":
        return cast("Console", self.app)  # pyright: ignore[reportUnknownMemberType]

    @property
    def below_room(self) -> int:
        """Lines that the details below a list have for what stands below their heading."""
        return max(self.below.room - 2, 0) if self.below is not None else 0

    @property
    def is_current(self) -> bool:
        """Whether this screen can be seen, even behind a dialog.

        Textual's own `is_current` is also true below an opaque screen, and
        repaints everything when it changes.
        """
        return self.console.top_screen is self

    @property
    def is_closed(self) -> bool:
        """Whether it can show nothing, because the cluster is not open."""
        return self.needs_session and self.console.session is None

    @property
    def own_actions(self) -> Mapping[str, str]:
        """Textual's names of the actions that are not on every screen -> their ids."""
        found = actions.for_screen(self.screen_name)
        return {one.target: one.id for one in found if one.screens != actions.EVERYWHERE}

    @property
    def targets(self) -> tuple[str, ...]:
        """The nodes that a command or a shell applies to on this screen."""
        return ()

    @property
    def chosen_jobs(self) -> tuple[str, ...]:
        """Slurm's names of the jobs that a command about jobs applies to on this screen."""
        return ()

    @property
    def marked(self) -> tuple[str, ...]:
        """The nodes that are marked on this screen, in the order of the cluster file."""
        return ()

    def body(self) -> Iterable[Widget]:
        """The widgets between the two bars."""
        return (self.main,)

    def tick(self) -> None:
        """Read the model and tell the widgets what to show; called every
        `paint_period` seconds while `is_current`.
        """

    def wanted_nodes(self) -> frozenset[str] | None:
        """The nodes whose full samples this screen needs; None: all nodes."""
        return frozenset()

    def turned_off(self) -> Iterable[str]:
        """Ids of actions that are not possible now, for example for lack
        of a right; their keys say why.
        """
        return ()

    def without_effect(self) -> Iterable[str]:
        """Ids of actions that would do nothing now, such as cancelling an
        ended job; the footer leaves them out.
        """
        return ()

    def compose(self) -> ComposeResult:
        yield self.top_bar
        if self.needs_session:
            yield self.closed_page
        yield from self.body()
        if self.below is not None:
            yield self.below
        yield self.filter_bar
        yield self.tour_bar
        yield self.key_bar

    def on_mount(self) -> None:
        self.set_interval(self.paint_period, self._tick_if_seen, name="tick")
        self._open_or_close()
        self.main.focus()
        self.call_after_refresh(self.refresh_now)
        self.call_after_refresh(lambda: self.prompt)  # behind the first picture

    def on_screen_resume(self) -> None:
        self.main.focus()
        self.refresh_now()

    def _tick_if_seen(self) -> None:
        if self.is_current:
            self.refresh_now()

    def refresh_now(self) -> None:
        """Update the screen from the model."""
        if self.is_mounted:
            self.console.catch_up()
            self.top_bar.tick()
            self._open_or_close()
            if self.is_closed:
                self.key_bar.offer(off=(), idle=self.own_actions.values())
            else:
                self.tick()
                self._tell_details()
                self.key_bar.offer(off=self.turned_off(), idle=self.without_effect())
            refused, until = self._refusal
            if refused and time.monotonic() > until:
                self._refusal = "", 0.0
                if self.key_bar.said == refused:
                    self.say("")
            asked = self._prompt and self._prompt.display and self._prompt.mode == "/"
            self.filter_bar.show("" if asked else self.list_filter.text)
            if self.console.tour.look(self.sight()):
                self.say(OVER, "ok")
            self.tour_bar.show(self.console.tour.place)

    def _open_or_close(self) -> None:
        """While there is no session, show only why; afterwards show the screen."""
        closed = self.is_closed
        if closed:
            self.closed_page.show([[(f" {self.console.why_closed}", "dim")]])
        if closed == self.closed_page.display:
            return
        self.closed_page.display = closed
        if closed:
            around = {self.top_bar, self.filter_bar, self.tour_bar, self.key_bar, self.closed_page}
            self._hidden = [one for one in self.children if one.display and one not in around]
        for one in self._hidden:
            one.display = not closed
        if not closed:
            self.main.focus()

    def sight(self) -> OnScreen:
        """What is on the screen, for the tour of the demo."""
        return OnScreen(self.screen_name, self.list_filter.text)

    def say(self, text: str, role: str = "text") -> None:
        """Show a sentence instead of the keys, in the colour of `role`."""
        self.key_bar.say(text, role)

    def refuse(self, why: str) -> None:
        """Say why the key that was pressed does nothing now, for some seconds."""
        self.say(why, "dim")
        self._refusal = self.key_bar.said, time.monotonic() + REFUSAL

    def unknown_key(self, key: str) -> None:
        """Say that a key does nothing on this screen, and where it does something; once per key."""
        if key not in self._refused:
            self._refused.add(key)
            self.refuse(actions.elsewhere_sentence(key))

    def save_lines(self, path: Path, lines: Sequence[str], what: str) -> None:
        """Write these lines to a new file in the background, and say so; `what` describes them."""
        self.run_worker(self._save_lines(path, lines, what), group="save", exclusive=True)

    async def _save_lines(self, path: Path, lines: Sequence[str], what: str) -> None:
        try:
            await asyncio.to_thread(write_new, path, lines)
        except OSError as error:
            self.say(f"not saved: {error}", "warn")
        else:
            self.say(f"saved {what} to {path}", "ok")

    # ---- the prompt

    @property
    def prompt(self) -> Prompt:
        """The prompt; made on first use."""
        if self._prompt is None:
            self._prompt = Prompt(self._complete)
            self.mount(self._prompt, before=self.tour_bar)
        return self._prompt

    def _complete(self, text: str) -> list[str]:
        found = commands.complete_command(text, self.console.choices)
        if len(found) > 1:
            self.say("   ".join(found[:12]), "dim")
        return found

    def action_command(self) -> None:
        self.say("")
        self.prompt.ask(":", hint="command, tab completes")

    def on_prompt_typed(self, message: Prompt.Typed) -> None:
        if message.mode == ":":
            self._complete(message.text)
        elif message.mode == "/" and self.screen_name in actions.LISTS:
            self.list_filter.typed(message.text)
        else:
            self.typed(message.text)

    def on_prompt_done(self, message: Prompt.Done) -> None:
        self.say("")
        self.main.focus()
        if message.mode == "/" and self.screen_name in actions.LISTS:
            self.list_filter.typed(message.text or "")
        elif message.mode != ":":
            self.answered(message.text)
        elif message.text:
            self.console.run_command(message.text)

    def typed(self, text: str) -> None:
        """Called with the text so far while a search or another answer is typed."""

    def answered(self, text: str | None) -> None:
        """Called with a search or another answer; None: the user pressed escape."""

    def action_filter(self) -> None:
        self.list_filter.ask()

    def whole(self) -> tuple[str, Sequence[Runs]]:
        """What `describe` shows about the row under the cursor: a
        title and lines; () for nothing.
        """
        return "", ()

    def details(self) -> tuple[str, Sequence[Runs]]:
        """Details of the row under the cursor, shown below a short list: a title and lines."""
        return self.whole()

    def _tell_details(self) -> None:
        if self.below is not None:
            self.below.tell(*self.details())

    def on_vtable_moved(self) -> None:
        self._tell_details()

    def action_describe(self) -> None:
        title, lines = self.whole()
        if lines:
            self.console.show_whole(title, lines)
        else:
            self.refuse("there is nothing under the cursor")

    def copy_page(self, page: TextPage) -> None:
        """Copy the lines of a page that are on screen to the clipboard."""
        lines = page.in_view
        self.console.copy("\n".join(lines), formatting.format_many(len(lines), "line"))

    # ---- back in time

    def action_pause(self) -> None:
        """Pause the screen, or return to now."""
        now = self.console.fleet.wall()
        self.console.moment = now if self.console.moment is None else None
        self.refresh_now()

    def action_step(self, frames: int) -> None:
        """Move forward by `frames` pictures of the past; back if negative."""
        self.console.moment = step_moment(self.console.fleet, self.console.moment, frames)
        self.refresh_now()

    def idle_steps(self) -> Iterable[str]:
        """The actions for steps in time that do nothing now: all of
        them unless the screen is paused.
        """
        moment, span = self.console.moment, self.console.fleet.past.span()
        if moment is None or span is None or moment <= span[0]:
            yield "step(-1)"
        if moment is None or span is None or moment >= span[1]:
            yield "step(1)"

    # ---- everywhere

    def take_back(self) -> bool:
        """Undo what hides a part of this screen, such as a filter; returns
        whether there was anything to undo.
        """
        return self.screen_name in actions.LISTS and self.list_filter.take_back()

    def action_back(self) -> None:
        self.say("")
        if not self.take_back():
            self._return()

    def action_leave(self) -> None:
        if not self._return():
            self.console.leave()

    def _return(self) -> bool:
        """Return to the previous screen, and from main screens to the
        fleet; False if there is none.
        """
        if not self.console.at_home:
            self.console.pop_screen()
            return True
        home = self.screen_name == "fleet"
        self.console.goto("fleet")
        return not home


class MarkingScreen(BaseScreen):
    """A list whose rows can be marked, for actions on several at once. Subclasses set `table`."""

    table: VTable

    @property
    def marks(self) -> frozenset[str]:
        """The marked rows, also those that the filter hides."""
        return self.table.marked

    def mark(self, rows: Iterable[str]) -> None:
        """Mark exactly these rows."""
        self.table.marked = frozenset(rows)
        self.table.refresh()

    def action_mark(self) -> None:
        if self.table.cursor:
            self.mark(self.marks ^ {self.table.cursor})
            self.table.move(1)

    def action_mark_all(self) -> None:
        shown = frozenset(self.table.rows)
        self.mark(self.marks - shown if shown <= self.marks else self.marks | shown)

    def take_back(self) -> bool:
        """Show all rows again; if all are shown, unmark all."""
        if super().take_back():
            return True
        marked = bool(self.marks)
        self.mark(())
        return marked


class SortedScreen(BaseScreen):
    """A list that is sorted by one column.

    Subclasses set `orders` and `order`, and define `rearrange`.
    """

    orders: Sequence[str]
    """Titles of the columns to sort by."""
    order: str
    turned = False
    """Whether the order is reversed."""

    def rearrange(self) -> None:
        """Filter, sort and paint the rows again."""

    def on_vtable_heading(self, message: VTable.Heading) -> None:
        if message.title == self.order:
            self.action_reverse()
        elif message.title in self.orders:
            self.order, self.turned = message.title, False
            self.rearrange()

    def action_sort(self) -> None:
        self.order = movement.next_choice(self.orders, self.order)
        self.rearrange()

    def action_reverse(self) -> None:
        self.turned = not self.turned
        self.rearrange()


def last_line_first(whole: tuple[str, Sequence[Runs]]) -> tuple[str, Sequence[Runs]]:
    """Details with the sentence first, which the row has no room for."""
    title, lines = whole
    return title, [*lines[-1:], *lines[:-1]]


SCREENS = {
    "fleet": "fleet:FleetScreen",
    "jobs": "jobs:JobsScreen",
    "launch": "launch:LaunchScreen",
    "messages": "messages:MessagesScreen",
    "events": "events:EventsScreen",
    "node": "node:NodeScreen",
    "job": "job:JobScreen",
    "inspect": "inspection:InspectScreen",
    "sh": "command_output:CommandScreen",
    "processes": "processes:ProcessesScreen",
    "help": "help:HelpScreen",
    "acceptance": "rankdeck.acceptance.screen:AcceptanceScreen",
    "pair": "rankdeck.acceptance.screen:PairScreen",
    "scaling": "rankdeck.scaling.screen:ScalingScreen",
}
"""Name of a screen -> its module and class."""


def screen_kind(name: str) -> "type[BaseScreen]":
    """The class of the screen of that name."""
    module, _, of = SCREENS[name].partition(":")
    return cast(
        "type[BaseScreen]",
        getattr(import_module(module if "." in module else f"rankdeck.ui.screens.{module}"), of),
    )


def make_screen(name: str, *arguments: Any) -> "BaseScreen":  # noqa: ANN401 - as its class says
    """A new screen of that name."""
    return screen_kind(name)(*arguments)
