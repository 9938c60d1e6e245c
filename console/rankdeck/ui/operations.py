"""Operations on jobs and nodes: a key, a command or a dialog asks
for one, and the session does it.
"""

import shutil
import time
from collections.abc import Awaitable, Generator, Mapping, Sequence, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rankdeck import plugins
from rankdeck.config.user import operator_name
from rankdeck.errors import RankdeckError
from rankdeck.model.capabilities import Capabilities
from rankdeck.model.health import Ack, parse_duration
from rankdeck.model.nodeset import fold_nodes, fold_ranks
from rankdeck.model.safe_text import printable_line
from rankdeck.ui.commands import CommandError
from rankdeck.ui.formatting import format_many
from rankdeck.ui.screens import base
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import LAUNCHER
from rankdeck_agent.wire.run_folder import name_rank_folder

if TYPE_CHECKING:
    from rankdeck.errors import NodeError
    from rankdeck.images.copy import CopyState
    from rankdeck.model.job import Job
    from rankdeck.model.job_spec import JobSpec
    from rankdeck.model.queue import Attempt
    from rankdeck.runtimes import Runtime
    from rankdeck.ui.protocols import Console
    from rankdeck.ui.widgets.logview import LogView


SPEED = 4.0
"""A replay runs this many times as fast as the job did."""


@contextmanager
def errors_shown(screen: "Console | base.BaseScreen", role: str = "warn") -> Generator[None]:
    """A block that ends at an error, which is shown in the colour of `role` and not raised."""
    try:
        yield
    except (RankdeckError, OSError) as error:
        screen.say(str(error), role)


def in_background(
    screen: "Console | base.BaseScreen",
    name: str,
    work: Awaitable[None],
    role: str = "bad",
    *,
    exclusive: bool = True,
) -> None:
    """Do this work until `screen` is closed, and say its error in the colour of `role`.

    With `exclusive`, earlier work of the same name is stopped.
    """

    async def careful() -> None:
        with errors_shown(screen, role):
            await work

    screen.run_worker(careful(), name=name, group=name, exclusive=exclusive)


async def say_stopping(screen: "Console | base.BaseScreen", stop: Awaitable[Sequence[str]]) -> None:
    """Wait until a run has stopped, and say what is left of it on nodes; `stop` gives that."""
    screen.say("stopping …", "warn")
    left = await stop
    words = "; ".join(map(printable_line, left)) or "stopped; nothing is left on any node"
    screen.say(words, "bad" if left else "ok")


def is_off(console: "Console", need: str, what: "JobSpec | str") -> bool:
    """Whether this user has no right to do this (see `Session.why_not`); if so, say why."""
    why = console.need_session().control.why_not(need, what)
    if why:
        console.say(why, "warn")
    return bool(why)


def launch_job(console: "Console", spec: "JobSpec") -> None:
    """Start a job and show it."""
    from rankdeck.images.copy import progress_words

    if is_off(console, "launch", spec):
        return

    def tell(progress: "CopyState | str") -> None:
        if isinstance(progress, str):
            console.say(printable_line(progress), "bad")
            return
        copied = printable_line(progress_words(progress))
        console.say(f"{spec.name}: image {copied}")

    console.say(f"starting {spec.name}…")
    in_background(
        console, "launch", _open(console, console.need_session().control.launch(spec, tell))
    )


async def _open(console: "Console", made: Awaitable[str]) -> None:
    """Show the job once it has started."""
    job_id = await made
    console.say("")
    console.open_job(job_id)


def attach_job(console: "Console", name: str) -> None:
    """Follow a job that others started, and show it."""
    if is_off(console, "follow", name):
        return
    console.say(f"reading {name} …", "dim")
    in_background(console, "attach", _open(console, console.need_session().control.attach(name)))


def list_ended(console: "Console") -> None:
    """Also list jobs that ended in the last day; the scheduler's accounting is asked once."""

    async def ask() -> None:
        console.say(await console.need_session().queue.list_ended(), "warn")

    console.goto("jobs")
    console.say(f"asking {console.need_session().cluster.can.scheduler} what has ended …", "dim")
    in_background(console, "ended", ask(), "warn")


def ask_cancel(console: "Console", job_id: str, tasks: Sequence[int] = ()) -> None:
    """Ask, then end every process of the job, or of these tasks of an array."""
    from rankdeck.ui.screens.modals import cancel_question, report_note

    session = console.need_session()

    async def end() -> None:
        report = await (
            session.control.cancel_tasks(job_id, tasks) if tasks else session.control.cancel(job_id)
        )
        console.say("")
        console.push_screen(report_note(report))

    def begin() -> None:
        console.say(f"ending {job_id}…", "warn")
        in_background(console, "cancel", end(), exclusive=False)

    with errors_shown(console):
        job = session.jobs.job(job_id)
        if job.state.final and not job.unproven:
            console.say(f"{job.id} has ended already", "warn")
        elif not is_off(console, "cancel", job.id):
            console.ask(cancel_question(job, tasks), begin)


def show_attempt(console: "Console", job_id: str, view: "LogView", number: int) -> None:
    """Show only what was written in this run (from 0) of the job,
    and where and how that run ended.
    """

    async def show() -> None:
        run = await console.need_session().control.find_run(job_id, number)
        view.want(replace(view.wanted, run=(number, run)))
        status = console.need_session().jobs.job(job_id).in_scheduler
        earlier = [one for one in status.attempts if one.number == number] if status else []
        console.say(attempt_words(earlier[0]) if earlier else f"attempt {number}, the newest")

    in_background(console, "attempt", show(), "warn")


def attempt_words(attempt: "Attempt") -> str:
    """`attempt 0 on n[1-2]: a node failed; rank 3 failed, exit code 1`."""
    ranks = fold_ranks(attempt.failed)
    code = "" if attempt.exit_code is None else f", exit code {attempt.exit_code}"
    failed = f"; rank {ranks} failed{code}" if ranks else ""
    where = f" on {fold_nodes(attempt.nodes)}" if attempt.nodes else ""
    return f"attempt {attempt.number}{where}: {attempt.text}{failed}"


def replay_job(console: "Console", job_id: str, speed: float = SPEED) -> None:
    """Read what a job's nodes kept and show it as it happened, `speed` times as fast."""
    console.say(f"reading {job_id} back from its nodes …", "dim")
    in_background(
        console, "replay", _open(console, console.need_session().control.replay(job_id, speed))
    )


def forget_replay(console: "Console", job_id: str) -> None:
    """Remove a replay from the list; the job itself stays."""
    with errors_shown(console):
        console.need_session().following.forget(job_id)
        console.say("the replay is forgotten, the job itself is not", "ok")


def write_job_report(console: "Console", job_id: str, path: "Path") -> None:
    """Write everything about a job to this new file."""

    async def write() -> None:
        missing = await console.need_session().control.report(
            job_id, path, page=path.suffix == ".html"
        )
        console.say(f"written: {path}", "ok")
        for node, why in list(missing.items())[:1]:
            console.say(f"not in it: {node}: {why}{_and_more(missing)}", "warn")

    console.say(f"collecting all about {job_id} …", "dim")
    in_background(console, "report", write(), exclusive=False)


def _and_more(nodes: Sized) -> str:
    """`; and 3 more`, after the first of these nodes; "" if it is the only one."""
    return f"; and {len(nodes) - 1} more" if len(nodes) > 1 else ""


def show_first(console: "Console") -> None:
    """Show the job that the console was opened for, or its replay."""
    if not console.first_job:
        return
    with errors_shown(console):
        job_id = console.need_session().jobs.find(console.first_job).id
        if console.first_replay:
            replay_job(console, job_id, console.first_replay)
        else:
            console.call_after_refresh(console.open_job, job_id)


RUN = "!"
"""The mode of the prompt for a shell command."""
NOT_LENT = "this terminal cannot be lent to another program"
MOST_NAMED = 40
"""Most characters of a node set in a sentence."""


def target_nodes(console: "Console") -> tuple[str, ...]:
    """The nodes that an action on this screen applies to; () if there are none."""
    screen = cast("base.BaseScreen | None", console.top_screen)
    if screen is None:
        return ()
    return screen.targets or cast("base.BaseScreen", console.home("fleet")).marked


def nodes_phrase(nodes: Sequence[str]) -> str:
    """`sakuya`, `n[1-4]`, or the number of nodes if that is too long."""
    text = printable_line(fold_nodes(nodes))
    return text if len(text) <= MOST_NAMED else format_many(len(nodes), "node")


# ---- commands


def ask_command(screen: base.BaseScreen) -> None:
    """Open the prompt for a shell command on the nodes of `target_nodes`; raises NotOpenError."""
    screen.console.need_session()
    nodes = target_nodes(screen.console)
    if not nodes:
        screen.say("no node here", "dim")
        return
    screen.prompt.ask(RUN, "", f"a shell command for {nodes_phrase(nodes)}")


def run_on_nodes(console: "Console", command: str) -> None:
    """Run a shell command on the nodes of `target_nodes`, and show its output."""
    nodes = target_nodes(console)
    if not nodes:
        console.say("no node is marked", "warn")
        return
    with errors_shown(console):
        console.push_screen(
            base.make_screen("sh", console.need_session().nodes.run_command(nodes, command))
        )


def show_last(console: "Console") -> None:
    """Show the last command that was run on nodes."""
    if commands := console.need_session().nodes.commands:
        console.push_screen(base.make_screen("sh", commands[-1]))
    else:
        console.say("no command was run yet; ! on Fleet runs one", "dim")


# ---- a shell


def open_shell(console: "Console", words: Sequence[str] = ()) -> None:
    """Lend the terminal to ssh to the node of `target_nodes`, for a shell or to run `words`."""
    nodes = target_nodes(console)
    if len(nodes) != 1:
        console.say(
            "a shell needs exactly one node: esc removes the marks" if nodes else "no node here",
            "warn",
        )
        return
    on_terminal(console, nodes[0], words, "shell")


def on_terminal(console: "Console", node: str, words: Sequence[str], what: str) -> None:
    """Lend the terminal to ssh to this node, for a shell or to run
    `words`; `what` names that in messages.
    """
    if shutil.which("ssh") is None:
        console.say("no `ssh` on this machine: install OpenSSH's client", "warn")
        return
    with errors_shown(console):
        argv = console.need_session().nodes.shell_command(node, words)
        in_background(console, "shell", _lend(console, node, argv, what))


def rank_shell(console: "Console", job: "Job | None", rank: int | None) -> None:
    """Open a shell in the container of this rank."""
    spec = job.plan.spec if job else None
    if job is None or rank is None or spec is None or spec.container is None:
        console.say("the ranks of this job have no container; s opens a shell on the node", "dim")
        return
    runtime: Runtime = plugins.find_plugin("runtimes", spec.container.runtime)()
    open_shell(console, runtime.shell(spec.container, job.id, rank))


def log_folder(job: "Job | None", rank: int | None) -> tuple[str, str]:
    """The node that keeps the log of this rank, and its folder there; "" for none."""
    plans = job.plan.nodes if job is not None and rank is not None else ()
    node = next((one.node for one in plans if rank == LAUNCHER or rank in one.ranks), "")
    folder = "" if rank is None else name_rank_folder(rank)
    state = "${RANKDECK_STATE:-${XDG_STATE_HOME:-~/.local/state}/rankdeck}"
    return node, f"{state}/jobs/{job.id if job else ''}/{node}/{folder}"


def page_rank_log(console: "Console", job: "Job | None", rank: int | None) -> bool:
    """Read the whole log of a rank in the pager of its node; False if there is none."""
    node, folder = log_folder(job, rank)
    if node:
        # Not quoted: the names are our own, and the node's shell must
        # expand the path of its state folder.
        script = f"cd {folder} && exec ${{PAGER:-less}} out err"
        on_terminal(console, node, ("sh", "-c", script), "pager")
    return bool(node)


async def _lend(console: "Console", node: str, argv: Sequence[str], what: str) -> None:
    code = await console.lend_terminal(
        argv, f"rankdeck: a {what} on {printable_line(node)}; exit comes back to the console"
    )
    if code == 255:
        console.say(f"{node}: ssh could not log in; `:sh true` says why", "warn")
    elif code == 126:
        console.say(NOT_LENT, "warn")
    elif code:
        console.say(f"{node}: the {what} ended with exit {code}", "dim")


# ---- files


def copy_file(console: "Console", nodes: Sequence[str], file: Path, path: str = "") -> None:
    """Copy a file from this machine to nodes; `path`: where to; "": the same name.

    Raises CommandError.
    """
    from rankdeck.images.copy import CopyState, progress_words

    if not file.is_file():
        raise CommandError(f"{file}: no such file; folders are not copied")

    def tell(state: CopyState) -> None:
        if state.done:
            console.say(f"{file.name}: {progress_words(state)}")

    console.say(f"copying {file.name} to {nodes_phrase(nodes)} …")
    images = console.need_session().images

    async def push() -> Mapping[str, "NodeError"]:
        return (await images.push(file, path, nodes, tell))[1]

    copied = _copied(console, push(), nodes, f"{file.name} is on {{}}")
    in_background(console, "cp", copied, exclusive=False)


def fetch_file(console: "Console", nodes: Sequence[str], path: str, folder: Path) -> None:
    """Copy this file from nodes into a folder here."""
    console.say(f"copying {path} from {nodes_phrase(nodes)} …")
    work = console.need_session().images.fetch(
        path, nodes, folder, lambda state: console.say(f"{path}: {state.words}")
    )
    well = f"{path} of {{}} is in {folder}, as NAME.NODE"
    in_background(console, "cp", _copied(console, work, nodes, well), exclusive=False)


async def _copied(
    console: "Console", work: Awaitable[Mapping[str, "NodeError"]], nodes: Sequence[str], well: str
) -> None:
    """Say which nodes were copied, and why the others failed."""
    failed = await work
    there = [node for node in nodes if node not in failed]
    console.say(well.format(nodes_phrase(there)) if there else "", "ok")
    for error in list(failed.values())[:1]:
        console.say(f"not copied: {error}{_and_more(failed)}", "bad")


# ---- acknowledge, silence, launch


def unknown_reasons(console: "Console", nodes: Sequence[str]) -> list[tuple[str, str, str]]:
    """Node, check and device of every reason that is not acknowledged."""
    return [
        (node, reason.check, reason.device)
        for node in nodes
        for reason in console.fleet.node(node).health.reasons
        if reason.acknowledged_until is None
    ]


def _withdrawals(console: "Console", nodes: Sequence[str]) -> list[Ack]:
    """What takes back every acknowledgement of these nodes, silence included."""
    who, states = operator_name(), [console.fleet.node(name) for name in nodes]
    checks = {(one.name, reason.check) for one in states for reason in one.health.reasons}
    silenced = {(one.name, "") for one in states if one.silenced}
    return [Ack(node, check, 0.0, who) for node, check in sorted(checks | silenced)]


def is_acknowledgeable(console: "Console", nodes: Sequence[str]) -> bool:
    """Whether there is something to acknowledge on these nodes, or
    an acknowledgement to take back.
    """
    return any(
        console.fleet.node(n).health.reasons or console.fleet.node(n).silenced for n in nodes
    )


def ask_to_acknowledge(screen: base.BaseScreen) -> None:
    """Ask how long and why to acknowledge all reasons of the nodes of
    this screen; raises NotOpenError.

    If all are acknowledged already, that is taken back.
    """
    from rankdeck.ui.screens import modals

    console = screen.console
    console.need_session()
    if unknown_reasons(console, screen.targets):
        modals.ask_acknowledgement(screen)
    elif back := _withdrawals(console, screen.targets):
        store_acknowledgements(
            console, back, f"{nodes_phrase(screen.targets)}: no longer acknowledged"
        )
    else:
        screen.refuse("there is nothing to acknowledge")


def run_answer(screen: base.BaseScreen, text: str | None) -> None:
    """Run the command that was typed, or acknowledge, on the nodes of this screen."""
    if text and screen.prompt.mode == RUN:
        run_on_nodes(screen.console, text)
    elif text:
        acknowledge_reasons(screen, text, unknown_reasons(screen.console, screen.targets))


def acknowledge_reasons(
    screen: base.BaseScreen, text: str, reasons: Sequence[tuple[str, str, str]]
) -> None:
    """Acknowledge these (node, check, device); `text` is how long and
    why, such as `4h cable is ordered`.
    """
    span, _, why = text.strip().partition(" ")
    try:
        until = time.time() + parse_duration(span)
    except ValueError as error:
        screen.say(str(error), "warn")
        return
    session = screen.console.need_session()
    acks: list[Ack] = []
    for node, check, device in reasons:
        found = [
            r.level
            for r in session.fleet.node(node).health.reasons
            if (r.check, r.device) == (check, device)
        ]
        level = max(found, default=Level.BAD)
        who = operator_name()
        acks.append(Ack(node, check, until, who, printable_line(why.strip()), device, level))
    what = ", ".join(dict.fromkeys(printable_line(check) for _, check, _ in reasons))
    store_acknowledgements(screen.console, acks, f"{what}: known for {span}")


def silence_nodes(console: "Console", nodes: Sequence[str], text: str) -> None:
    """Acknowledge all reasons of these nodes for a time; `text` is that time
    and why (`4h maintenance`), or `off`.
    """
    span, _, why = text.strip().partition(" ")
    try:
        until = 0.0 if span == "off" else time.time() + parse_duration(span or "4h")
    except ValueError as error:
        console.say(str(error), "warn")
        return
    acks = [Ack(node, "", until, operator_name(), printable_line(why.strip())) for node in nodes]
    done = f"silenced for {span or '4h'}" if until else "no longer silenced"
    store_acknowledgements(console, acks, f"{nodes_phrase(nodes)}: {done}")


def store_acknowledgements(console: "Console", acks: Sequence[Ack], done: str) -> None:
    """Store these acknowledgements in the background, then say `done`; says
    instead why they could not be stored.
    """

    async def store() -> None:
        await console.need_session().node_journal.acknowledge(*acks)
        console.say(done, "ok")

    in_background(console, "acknowledge", store(), exclusive=False)


def drain_lines(can: Capabilities, nodes: Sequence[str], why: str) -> list[str]:
    """Commands that take nodes out of service, for the user to copy; empty without a scheduler."""
    reason = "".join(c if c.isalnum() or c in " .,:-_" else " " for c in why).strip()
    lines = can.out_of_service(nodes, reason or "see rankdeck")
    return [*lines[:-1], *(f"{back}   # takes it back" for back in lines[-1:])]
