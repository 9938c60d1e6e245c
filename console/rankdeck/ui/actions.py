"""Table of all actions, from which keys, palette, footer and help are made.

A letter means the same on every screen; `tests/ui/test_keys.py` checks that.
"""

from textual.binding import Binding
from textual.keys import format_key

from rankdeck.ui.movement import key_grid_step, key_sidestep, key_steps
from rankdeck.values import Value

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

HABITS = {
    "e": "`:edit` opens the job file of Launch; e goes to the next error, as in lnav",
    "ctrl+k": "x cancels a job, X sends a signal to a process",
}
"""Keys that users know from other programs, and what does the same here."""


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
    Action("open", "enter", "open", ("fleet", "jobs", "messages", "events", "acceptance", "scaling"), "Open what is under the cursor, start the plan shown", True),
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
