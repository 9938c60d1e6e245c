"""Table of all commands after `:`, from which palette, help and completion are made; filters."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches

from rankdeck.values import Value


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
