"""Tables of all actions and of all commands after `:`, from which keys, palette, footer,
help and completion are made.

A letter means the same on every screen; `tests/ui/test_keys.py` checks that.
"""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TypeVar

from textual.binding import Binding
from textual.keys import format_key

from rankdeck.values import Value

T = TypeVar("T")
LISTS = ("fleet", "jobs", "launch", "messages", "events", "processes", "help")
"""Screens that `/` filters."""
EVERYWHERE = (
    "fleet",
    "node",
    "jobs",
    "job",
    "launch",
    "messages",
    "events",
    "help",
    "inspect",
    "sh",
    "processes",
    "acceptance",
    "pair",
    "scaling",
)
IN_AN_EMERGENCY = ("cancel", "keep")
"""Actions that the footer shows however narrow it is, with those of every screen."""
LOGS = ("one", "merged")
"""Views of the job screen that show a log."""
TABLES = ("collapsed", "diff")


class Action(Value):
    """Something the user can do. Its method is `action_<id>` of the screen or the app."""

    id: str
    keys: str
    """Separated by commas; the first is shown."""
    label: str
    screens: tuple[str, ...]
    help: str
    footer: bool = False
    views: tuple[str, ...] = ()
    """Views of the job screen whose footer shows the action; (): all."""

    @property
    def target(self) -> str:
        """The name by which Textual finds the action from a screen."""
        return f"app.{self.id}" if self.id in OF_THE_APP else self.id

    @property
    def shown_key(self) -> str:
        return key_label(self.keys.split(",")[0])

    @property
    def shown_keys(self) -> str:
        """All keys of the action, as the user reads them."""
        return " ".join(map(key_label, self.keys.split(",")))


OF_THE_APP = frozenset(
    {
        "goto_fleet",
        "goto_jobs",
        "goto_launch",
        "goto_messages",
        "help",
        "redraw",
        "suspend_process",
        "inspect",
        "launch_on",
        "logs",
        "processes",
        "clone",
        "replay",
        "swap",
        "goto_events",
        "goto_acceptance",
        "goto_scaling",
        "shell",
        "scheduler",
    }
)
KEY_NAMES = {
    "slash": "/", "colon": ":", "question_mark": "?", "escape": "esc",
    "left_square_bracket": "[", "right_square_bracket": "]", "plus": "+", "minus": "-",
    "pagedown": "pgdn", "pageup": "pgup", "asterisk": "*",
    "comma": ",", "full_stop": ".", "less_than_sign": "<", "greater_than_sign": ">",
    "ampersand": "&", "number_sign": "#", "vertical_line": "|", "exclamation_mark": "!", "apostrophe": "'", "at": "@",
}  # fmt: skip

WALL = ("wall",)
NOWHERE = ("",)
"""For `views`: no footer of the job screen has room for the action."""
ACTIONS: tuple[Action, ...] = (
    Action("open", "enter", "open", ("fleet", "jobs", "events", "acceptance", "scaling"), "Open what is under the cursor, start the plan shown", True),
    Action("launch", "enter", "launch", ("launch",), "Start the job whose plan is shown", True),
    Action("zoom", "enter,z", "zoom", ("job",), "Show one rank on the whole screen, and back; collapsed: this line of each rank", True, (*WALL, *TABLES)),
    Action("filter", "slash", "filter", LISTS, "Show only lines that match", True),
    Action("search", "slash", "search", ("job",), "Find a text or a regular expression in the log of a rank, or of all ranks shown; on to the next ranks where this one has no more", True, LOGS),
    Action("next_match", "n", "next", ("job",), "Next match of the search", True, LOGS),
    Action("previous_match", "N", "previous", ("job",), "Previous match of the search"),
    Action("failure", "e", "error", ("job", "acceptance"), "Go to the next error in a log (repeats are skipped); else to the rank that failed first; on the map to the next bad cell", True),
    Action("previous_error", "E", "previous error", ("job",), "Go to the previous error"),
    Action("filter_in", "ampersand", "only", ("job",), "Show only lines with this text or pattern; empty: all again", True, LOGS),
    Action("filter_out", "V", "without", ("job",), "Hide lines with this text, like grep -v", True, LOGS),
    Action("streams", "vertical_line", "stderr", ("job",), "Only stderr, only stdout, both; on the wall: stderr of this rank", True, LOGS),
    Action("follow", "f", "follow", ("job",), "Go to the newest line and stay there", True, LOGS),
    Action("stamps", "t", "time", ("job",), "Time stamps: off, clock, since the start, since the line before", True, LOGS),
    Action("wall", "w", "wall", ("job",), "The newest lines of each rank, in tiles", True, (*LOGS, *TABLES)),
    Action("collapsed", "c", "collapsed", ("job",), "Equal lines once, with the ranks that wrote them", True, (*WALL, *LOGS, "diff")),
    Action("inspect", "i", "inspect", ("job", "jobs", "inspect"), "Show where every rank is now, and which are elsewhere", True),
    Action("merged", "M", "merged", ("job",), "All chosen ranks in one log, by time", True, (*WALL, "one", *TABLES)),
    Action("diff", "D", "diff", ("job", "launch"), "Show where ranks differ from the majority, or one rank from another; on Launch: this plan from that of the last run", True, (*WALL, *LOGS, "collapsed")),
    Action("sort", "o", "order", ("fleet", "jobs", "job", "processes"), "Sort by the next column; ranks: unusual first, number, node, slowest first", True, (*WALL, "collapsed")),
    Action("reverse", "I", "reverse", ("fleet", "jobs", "processes"), "Reverse the order"),
    Action("run", "exclamation_mark", "run", ("fleet", "node"), "Run a command on the marked nodes, else on this one", True),
    Action("rank_shell", "S", "container", ("job",), "A shell in the container of this rank"),
    Action("signal", "X", "signal", ("processes",), "Send a signal to this process, after a question", True),
    Action("launch_on", "J", "job on", ("fleet", "node"), "Start a job on exactly the marked nodes, else on this one"),
    Action("ranks", "r", "ranks", ("job",), "Choose ranks: 0-7,node=gpu[01-04],state=failed; in a list: the ranks of this line", True, (*WALL, *TABLES)),
    Action("next_page", "right_square_bracket", "page", ("job",), "Next page of ranks; in a log: the next rank", True, (*WALL, "one")),
    Action("previous_page", "left_square_bracket", "page", ("job",), "Previous page of ranks; in a log: the previous rank"),
    Action("more", "plus", "more", ("job",), "More ranks on a page; more lines around each that a filter keeps"),
    Action("fewer", "minus", "fewer", ("job",), "Fewer ranks on a page; fewer lines around"),
    Action("pin", "p", "pin", ("job",), "Pin this rank to every page, or unpin it"),
    Action("logs", "l", "logs", ("fleet", "node", "jobs", "job"), "All ranks of the job on this node in one log; on a job: what its launcher wrote", True, NOWHERE),
    Action("describe", "d", "describe", ("fleet", "jobs", "job", "messages", "events", "processes", "acceptance"), "All about what is under the cursor: a node, a job and its plan, the whole text of a line", True),
    Action("goto", "number_sign", "go to", ("job", "events"), "Go to a line (1200), a time (14:30:05), five minutes ago (-5m), half way (50%)", True, LOGS),
    Action("fold", "F", "fold", ("job", "launch"), "Merged: fold equal lines of many ranks into one, or show each; Launch: show the files of the plan", True, ("merged",)),
    Action("events", "v", "events", ("job",), "Merged: show or hide the events of the nodes", True, ("merged",)),
    Action("at_node", "at", "node", ("job", "acceptance"), "The node of this line, at its time; escape comes back", True, LOGS),
    Action("mark", "space", "mark", ("fleet", "jobs", "job"), "Mark this node, job or line, or unmark it", True, NOWHERE),
    Action("mark_all", "asterisk", "mark all", ("fleet", "jobs"), "Mark all nodes or jobs that are shown, or unmark them"),
    Action("scheduler", "Q", "slurm", ("jobs", "job"), "What Slurm says of this job: all its settings, the parts of its priority, how it used what it had", True, NOWHERE),
    Action("next_mark", "apostrophe", "next mark", ("job",), "Go to the next marked line"),
    Action("wrap", "W", "wrap", ("job",), "Wrap long lines", True, LOGS),
    Action("lofi", "L", "plain", ("job",), "Show only the lines, mouse off: select and copy with the terminal"),
    Action("save", "O", "save", ("job", "sh", "acceptance", "pair", "scaling"), "Output to a file: what is shown; reports of a run; commands and outputs of a pair"),
    Action("copy", "y", "copy", ("fleet", "node", "jobs", "job", "messages", "events", "processes", "inspect", "sh", "acceptance", "pair", "scaling"), "Copy the name, row or line under the cursor, or what is marked; on a page: the lines in view"),
    Action("copy_path", "Y", "copy path", ("job",), "Copy the path of the log on its node"),
    Action("metric", "m", "map", ("fleet", "acceptance", "scaling"), "Colour the map by the next metric; in acceptance: show the next test, in scaling: the next plot", True),
    Action("part", "tab", "next part", ("launch", "acceptance", "pair", "scaling"), "Go to the next part of the screen", True),
    Action("preflight", "T", "preflight", ("launch",), "Preflight: ask the nodes what would go wrong", True),
    Action("clone", "C", "again", ("jobs", "job"), "Start it again: opens its form and plan, to edit first", True),
    Action("replay", "R", "replay", ("jobs", "job"), "Replay it as it happened, four times as fast; Jobs keeps the replay", True),
    Action("swap", "Z", "swap", ("jobs", "job"), "Program or node? Run it again briefly with its ranks on other nodes, after a question; while that runs: how far it is", True, NOWHERE),
    Action("keep", "K", "keep", ("job",), "Stop the countdown: the other ranks keep running"),
    Action("cancel", "x", "cancel", ("jobs", "job", "sh", "acceptance", "scaling"), "End every process of the job, command or run; a replay on Jobs: forget it", True),
    Action("shell", "s", "shell", ("fleet", "node", "job"), "A shell on this node, or on that of the rank; exit comes back here", True),
    Action("processes", "h", "processes", ("fleet", "node", "job"), "Processes of this node, like htop; on a job: what each rank uses", True),
    Action("plan", "A", "plan", ("acceptance", "scaling"), "Ask the nodes, and show what a run or study would do", True),
    Action("again", "u", "do again", ("acceptance", "pair"), "Measure this pair again; on the diagonal: this node", True),
    Action("exclude", "B", "exclude", ("acceptance", "pair"), "Keep jobs away from the node of this row (of a pair: the sender) for a while, with a reason; again: let them back", True),
    Action("resume", "U", "go on", ("acceptance", "scaling"), "Go on with a run or study that was stopped", True),
    Action("acknowledge", "a", "acknowledge", ("fleet", "node", "events"), "Acknowledge for a while: still listed, no longer counted; again: take it back", True),
    Action("pause", "P", "pause", ("fleet", "node", "job"), "Pause the screen; again: back to now; in a replay: pause and go on", True),
    Action("step(-1)", "comma", "earlier", ("fleet", "node", "job"), "One step back in time; in a replay: ten seconds", True),
    Action("step(1)", "full_stop", "later", ("fleet", "node", "job"), "One step forward in time; in a replay: ten seconds", True),
    Action("step(-10)", "less_than_sign", "earlier", ("fleet", "node", "job"), "Ten steps back in time"),
    Action("step(10)", "greater_than_sign", "later", ("fleet", "node", "job"), "Ten steps forward in time"),
    Action("hours", "H", "hours", ("node",), "How far back the site's metrics are drawn: 1, 6, 24 hours, 7 days"),
    Action("command", "colon", "command", EVERYWHERE, "Type a command; tab completes", True),
    Action("help", "question_mark,f1", "help", EVERYWHERE, "The keys of this screen; again: all keys, commands and filters", True),
    Action("tour", "t", "tour", ("help",), "On the demo: ten things worth knowing in two minutes; again: end it", True),
    Action("goto_fleet", "1", "fleet", EVERYWHERE, "All nodes"),
    Action("goto_jobs", "2", "jobs", EVERYWHERE, "All jobs"),
    Action("goto_launch", "3", "launch", EVERYWHERE, "Start a job"),
    Action("goto_messages", "4", "messages", EVERYWHERE, "Messages of Rankdeck itself"),
    Action("goto_events", "5", "events", EVERYWHERE, "What happened on the nodes"),
    Action("goto_acceptance", "6", "acceptance", EVERYWHERE, "Acceptance runs: which node or link is slow or faulty"),
    Action("goto_scaling", "7", "scaling", EVERYWHERE, "Scaling studies: how a job scales with ranks and values"),
    Action("back", "escape", "back", EVERYWHERE, "Clear the filter or search; else go back"),
    Action("leave", "q", "back/quit", EVERYWHERE, "Go back; on the fleet screen: quit. Jobs go on"),
    Action("suspend_process", "ctrl+z", "stop", EVERYWHERE, "Stop the console and go back to the shell, until `fg`. Jobs go on"),
    Action("redraw", "ctrl+l", "redraw", EVERYWHERE, "Redraw the whole screen"),
)  # fmt: skip

MOVES: tuple[tuple[str, str], ...] = (
    ("j k / arrows", "line by line; on the wall: from tile to tile"),
    ("g G / home end", "first, last"),
    ("pgup pgdn / b / ctrl+b ctrl+f", "a page"),
    ("ctrl+u ctrl+d", "half a page"),
    ("left right", "scroll a log sideways"),
    ("tab shift+tab", "the next tile of the wall, the next part of a screen"),
    ("ctrl+p", "all actions of this screen, by name"),
    ("mouse", "click selects, click again opens, wheel scrolls; shift-drag selects text"),
)
"""Keys that move in lists, logs and the wall, for the help screen."""

FILTERS: tuple[tuple[str, str], ...] = (
    ("gpu-01", "this word, in a name or text"),
    ("state!=ok", "state is ok, warn, bad or unknown"),
    ("gpu.temp>80", "any metric; < <= > >= = !=; of several devices the highest"),
    ("cpu>50 & mem>90", "both; short names: cpu mem gpu temp load"),
    ("(state=bad | gpu>90) & !login", "either; not; parentheses"),
    ("node=n[01-04], check=disk.full", "one condition each: node set, check that fired"),
    ("age<2h", "Jobs and Events of the last two hours; s, m, h, d"),
    ("user=ann & partition=gpu", "Slurm; also account, qos, reason=Priority; state=timeout"),
)


def for_screen(screen: str) -> tuple[Action, ...]:
    """The actions of one screen, in the order of the table."""
    return tuple(action for action in ACTIONS if screen in action.screens)


def key_label(key: str) -> str:
    """The name of a key, as the user reads it."""
    return KEY_NAMES.get(key) or (format_key(key) if "_" in key else key)


def action_key(action_id: str) -> str:
    """The key of this action, to name it in a sentence."""
    return next(one.shown_key for one in ACTIONS if one.id == action_id)


def screen_bindings(screen: str) -> list[Binding]:
    """Textual's bindings for one screen."""
    return [
        Binding(key, action.target, action.label, show=False, key_display=action.shown_key)
        for action in for_screen(screen)
        for key in action.keys.split(",")
    ]


HABITS = {
    "e": "`:edit` opens the job file of Launch; e goes to the next error, as in lnav",
    "ctrl+k": "x cancels a job, X sends a signal to a process",
}
"""Keys that users know from other programs, and what does the same here."""


def is_key(screen: str, key: str) -> bool:
    """Whether the key does something on this screen, including moving the cursor."""
    own = any(key in one.keys.split(",") for one in for_screen(screen))
    moves = (
        key_steps(key, 1) is not None
        or key_sidestep(key, 1) is not None
        or key_grid_step(key) is not None
    )
    return own or moves or key in ("tab", "shift+tab", "ctrl+p", "ctrl+c", "ctrl+q", "enter")


def elsewhere_sentence(key: str) -> str:
    """The sentence to show for a key that does nothing on this screen."""
    if key in HABITS:
        return HABITS[key]
    there = [one for one in ACTIONS if key in one.keys.split(",")]
    if not there:
        return f"{key_label(key)} does nothing here; ? lists the keys"
    return f"{key_label(key)} ({there[0].label}) does nothing here; it works on {', '.join(there[0].screens)}"


FAR = 1 << 40
"""A step that is longer than any list or log."""


def key_steps(key: str, page: int) -> int | None:
    """How many lines down this key moves, up if negative; `page` is a page in lines.

    None for other keys.
    """
    return {
        "down": 1, "j": 1, "up": -1, "k": -1, "pagedown": page, "ctrl+f": page, "pageup": -page, "b": -page,
        "ctrl+b": -page, "ctrl+d": max(page // 2, 1), "ctrl+u": -max(page // 2, 1),
        "home": -FAR, "g": -FAR, "end": FAR, "G": FAR, "upper_g": FAR,
    }.get(key)  # fmt: skip


def key_sidestep(key: str, step: int) -> int | None:
    """How many cells to the right this key moves, left if negative; None for other keys."""
    return {"right": step, "left": -step}.get(key)


def key_grid_step(key: str) -> tuple[int, int] | None:
    """The step in a grid for this key: columns, rows; None for other keys."""
    return {
        "left": (-1, 0), "right": (1, 0), "down": (0, 1), "j": (0, 1), "up": (0, -1), "k": (0, -1),
    }.get(key)  # fmt: skip


def next_choice(choices: Sequence[T], now: T) -> T:
    """The choice after `now`, for a key that goes through all: after the
    last, and for an unknown one, the first.
    """
    at = choices.index(now) if now in choices else -1
    return choices[(at + 1) % len(choices)]


class Command(Value):
    """One command. `argument` names the argument to complete; "" if there is none."""

    name: str
    argument: str
    help: str
    many: bool = False
    """The argument may have several words, each completed separately."""


COMMANDS: tuple[Command, ...] = (
    Command("fleet", "", "All nodes"),
    Command("node", "NODE", "One node"),
    Command("jobs", "", "All jobs"),
    Command("job", "ID", "One job"),
    Command("ended", "", "Slurm: also list jobs of all users that ended within a day"),
    Command("hold", "", "Slurm: hold the marked jobs, else this one; shows the command, asks, runs it"),
    Command("release", "", "Slurm: release the marked jobs, else this one"),
    Command("requeue", "", "Slurm: stop the marked jobs, else this one, and put them back into the queue"),
    Command("timelimit", "", "Slurm: another time limit for the marked jobs, else this one: 02:00:00, +30"),
    Command("slurm", "QUESTION", "Slurm: what it says of this job, priority, efficiency; of shares, controller"),
    Command("launch", "FILE", "Start a job; without FILE, choose one"),
    Command("messages", "", "Messages of Rankdeck itself"),
    Command("events", "", "What happened on the nodes"),
    Command("acceptance", "", "Acceptance runs: which node or link is slow or faulty"),
    Command("scaling", "", "Scaling studies: how a job scales with ranks and values"),
    Command("swap", "", "Program or node? Run this job again with its ranks on other nodes, each run at most so long: 30m"),
    Command("cancel", "JOB", "End every process of a job; of a Slurm array: only tasks 3,5-7"),
    Command("sh", "", "Run a command on the marked nodes, else on this one; alone: output of the last one", many=True),
    Command("mark", "FILTER", "Fleet: mark the nodes that match this filter", many=True),
    Command("silence", "", "Silence the marked nodes for a while (maintenance), else this one: 4h WHY; `off` ends it"),
    Command("drain", "", "Slurm: drain the marked nodes, else this one: WHY; on other clusters: the commands, to copy"),
    Command("resume", "", "Slurm: resume nodes that were drained from here; `resume anyway`: also those that others drained"),
    Command("cp", "", "Copy a file to the marked nodes: FILE [PATH]; or from them, as NAME.NODE: `:FILE [FOLDER]`"),
    Command("namespace", "NAMESPACE", "Kubernetes: what is in namespace NAME (`*`: all); alone: those there are, and where you may look"),
    Command("allocation", "ALLOCATION", "Slurm: work within an allocation you hold: its number; alone: that of `salloc` around us; `off`: back"),
    Command("rank", "RANK", "On a job: zoom into this rank"),
    Command("attempt", "", "On a job that Slurm requeued: only the output of run N, from 0, and how it ended; alone: all runs"),
    Command("pager", "", "On a job: the whole log of this rank in $PAGER, on its node"),
    Command("goto", "", "In a log or in Events: go to a line (1200), a time (14:30:05), five minutes ago (-5m), half way (50%)"),
    Command("report", "PATH", "All about this job: a page (.html) or an archive (.tar.gz) to attach to a ticket"),
    Command("edit", "", "On Launch: this job file in $EDITOR"),
    Command("script", "PATH", "On Launch: this job as a shell script that needs no Rankdeck"),
    Command("view", "VIEW", "Fleet: show the saved view NAME; save NAME, delete NAME; alone: the default view", many=True),
    Command("columns", "COLUMN", "Fleet: show these columns or metrics; alone: the default ones", many=True),
    Command("sort", "SORT", "Fleet: sort by these, the first counts most", many=True),
    Command("theme", "THEME", "Change the colours"),
    Command("ascii", "", "Draw with ASCII only; again: with all signs"),
    Command("tour", "", "On the demo: ten things worth knowing in two minutes; again: end it"),
    Command("help", "", "Keys and commands"),
    Command("q", "", "Quit; jobs go on"),
)  # fmt: skip
COMMAND_NAMES = {command.name: command for command in COMMANDS}


class CommandError(ValueError):
    """A command cannot be understood; the text says why."""


def parse_command(text: str) -> tuple[Command, str]:
    """The command and its argument; the start of a name is enough if only one fits."""
    name, _, argument = text.strip().partition(" ")
    command = COMMAND_NAMES.get(name)
    if command is None:
        starts = [one for one in COMMANDS if name and one.name.startswith(name)]
        if len(starts) != 1:
            near = [one.name for one in starts] or get_close_matches(name, COMMAND_NAMES, 2)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; ? lists them"
            raise CommandError(f"no command `{name}`{hint}")
        command = starts[0]
    return command, argument.strip()


def complete_command(text: str, choices: Callable[[str], Sequence[str]]) -> list[str]:
    """Completions of `text`, as whole lines; `choices` gives the values of an argument."""
    name, space, argument = text.partition(" ")
    if not space:
        return [
            one.name + (" " if one.argument else "")
            for one in COMMANDS
            if one.name.startswith(name)
        ]
    command = COMMAND_NAMES.get(name)
    if command is None or not command.argument:
        return []
    values = choices(command.argument)
    if command.many:
        before, space, argument = argument.rpartition(" ")
        name = f"{name} {before}" if space else name
    starting = [value for value in values if value.startswith(argument)]
    return [f"{name} {value}" for value in starting or [v for v in values if argument in v]]
