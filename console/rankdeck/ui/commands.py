"""The command line after `:`: what can be typed, and how it is completed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `argument` names what follows it, "" where nothing does."""

    name: str
    argument: str
    help: str
    many: bool = False
    """Takes several words; each is completed by itself."""


COMMANDS: tuple[Command, ...] = (
    Command("fleet", "", "All nodes"),
    Command("node", "NODE", "One node"),
    Command("jobs", "", "All jobs"),
    Command("job", "ID", "One job"),
    Command("ended", "", "Slurm: also list jobs of all users that ended within a day"),
    Command("launch", "FILE", "Start a job; without FILE, choose one"),
    Command("messages", "", "Messages of Rankdeck itself"),
    Command("events", "", "What happened on the nodes"),
    Command("acceptance", "", "Acceptance runs: which node or link is slow or faulty"),
    Command("cancel", "JOB", "End every process of a job; of a Slurm array: only tasks 3,5-7"),
    Command("sh", "", "Run a command on the marked nodes, else on this one; alone: output of the last one", many=True),
    Command("mark", "FILTER", "Fleet: mark the nodes that match this filter", many=True),
    Command("silence", "", "Silence the marked nodes for a while (maintenance): 4h WHY"),
    Command("drain", "", "Slurm: drain the marked nodes, else this one: WHY; on other clusters: the commands, to copy"),
    Command("resume", "", "Slurm: resume nodes that were drained from here; `resume anyway`: also those that others drained"),
    Command("cp", "", "Copy a file to the marked nodes: FILE [PATH]; or from them, as NAME.NODE: `:FILE [FOLDER]`"),
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
NAMES = {command.name: command for command in COMMANDS}


class CommandError(ValueError):
    """A command that cannot be understood."""


def parse(text: str) -> tuple[Command, str]:
    """The command and its argument; the start of a name is enough if only one fits."""
    name, _, argument = text.strip().partition(" ")
    command = NAMES.get(name)
    if command is None:
        starts = [one for one in COMMANDS if name and one.name.startswith(name)]
        if len(starts) != 1:
            near = [one.name for one in starts] or get_close_matches(name, NAMES, 2)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; ? lists them"
            raise CommandError(f"no command `{name}`{hint}")
        command = starts[0]
    return command, argument.strip()


def complete(text: str, choices: Callable[[str], Sequence[str]]) -> list[str]:
    """Lines that `text` may become; `choices` gives the values of an argument."""
    name, space, argument = text.partition(" ")
    if not space:
        return [
            one.name + (" " if one.argument else "")
            for one in COMMANDS
            if one.name.startswith(name)
        ]
    command = NAMES.get(name)
    if command is None or not command.argument:
        return []
    values = choices(command.argument)
    if command.many:
        before, space, argument = argument.rpartition(" ")
        name = f"{name} {before}" if space else name
    starting = [value for value in values if value.startswith(argument)]
    return [f"{name} {value}" for value in starting or [v for v in values if argument in v]]
