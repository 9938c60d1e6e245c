"""Commands on nodes: `rankdeck sh`, `cp`, `ps`, `images` and `images push`."""

import argparse
import asyncio
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rankdeck.cli import choose, output
from rankdeck.cli.jobs import DAY, ended_job_sentence
from rankdeck.cli.opening import (
    Interrupts,
    find_meant_job,
    hear_nodes,
    open_for_command,
    until_done,
)
from rankdeck.cli.output import UsageError
from rankdeck.cli.shapes import Shape, image_shape, rank_use_shape
from rankdeck.config.files import expand_path
from rankdeck.errors import ConfigError, NodeError
from rankdeck.images.bring import (
    ImageAt,
    WantedImage,
    describe_versions,
    file_name,
    short_digest,
    wanted_by,
)
from rankdeck.images.copy import CopyState, Failed, FetchState, FilePlace, progress_words
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.process import CommandEnd, NodeProcess, OutputGroup, RankUse, rank_uses
from rankdeck.model.safe_text import strip_controls
from rankdeck.remote.command import CommandRun, CommandState, FoundProcesses
from rankdeck.runtimes import has_store
from rankdeck.session import Session
from rankdeck_agent.rules.units import write_size, write_speed

_PERIOD = 0.2
_TELL = 5.0
"""Seconds between two lines that name the nodes still running."""


def run_sh(options: argparse.Namespace, _open_console: object) -> int:
    """Run a command and show its output; the exit code is the largest of all nodes."""
    if not 0 < options.limit <= DAY:
        raise UsageError("--limit: seconds, more than 0 and at most a day")
    if not 0 < options.fan_out <= 1000:
        raise UsageError("--fan-out: nodes, from 1 to 1000")
    cluster = choose.choose_cluster(options.cluster)
    nodes = choose.expand_node_option(cluster, options.nodes)
    return until_done(_sh(cluster, nodes, options))


async def _sh(cluster: Cluster, nodes: Sequence[str], options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        command = " ".join(options.words)
        run = session.command(nodes, command, options.limit, options.fan_out)
        with Interrupts(terminate=True) as interrupts:
            cancelled = await _until_over(run, interrupts, options)
    state = run.state
    if options.json:
        output.say_object(command_shape(state))
    elif not options.lines:
        for group in state.groups():
            _say_group(group)
    _say_ends(state, cancelled=cancelled)
    return output.INTERRUPTED if cancelled else state.status


async def _until_over(run: CommandRun, interrupts: Interrupts, options: argparse.Namespace) -> bool:
    """Follow the command to its end; returns whether it was cancelled."""
    follow = (
        _Lines(run.state).print if options.lines and not options.json else _Waiting(run.state).say
    )
    async with asyncio.TaskGroup() as tasks:
        cancelling = tasks.create_task(_cancel_when_interrupted(interrupts, run))
        while not run.state.over:
            await asyncio.sleep(_PERIOD)
            follow()
        cancelling.cancel()
    return run.cancelled


async def _cancel_when_interrupted(interrupts: Interrupts, run: CommandRun) -> None:
    await interrupts.next()
    output.print_progress("rankdeck: cancelling, then checking what is left …")
    run.cancel()


class _Waiting:
    """Prints regularly which nodes have not ended."""

    def __init__(self, state: CommandState) -> None:
        self._state, self._next = state, time.monotonic() + _TELL

    def say(self) -> None:
        """Print the line if it is time."""
        waiting = self._state.waited_for
        if waiting and time.monotonic() >= self._next:
            self._next = time.monotonic() + _TELL
            done = len(self._state.nodes) - len(waiting)
            output.print_progress(
                f"{done} of {len(self._state.nodes)} nodes are done; waiting for {fold_nodes(waiting)}"
            )


class _Lines:
    """Prints each line once, after the name of its node."""

    def __init__(self, state: CommandState) -> None:
        self._state = state
        self._printed = dict.fromkeys(state.nodes, 0)
        self._seen = -1

    def print(self) -> None:
        """Print what is new since the last call."""
        if self._state.changes == self._seen:
            return
        self._seen = self._state.changes
        for node, before in self._printed.items():
            lines = self._state.lines(node)
            for _, text in lines[before:]:
                output.say_line(f"{node}: ", text)
            self._printed[node] = len(lines)
        output.flush_stdout()


_RULE = "-" * 15


def _say_group(group: OutputGroup) -> None:
    """Print a group in the format of `clush -b`."""
    if not group.lines:
        return
    number = f" ({len(group.nodes)})" if len(group.nodes) > 1 else ""
    output.print_text(f"{_RULE}\n{fold_nodes(group.nodes)}{number}\n{_RULE}")
    for text in group.text:
        output.say_line("", text)


def _say_ends(state: CommandState, *, cancelled: bool) -> None:
    """Print on stderr which nodes failed, and after a cancel what is verified."""
    ends: dict[str, list[str]] = {}
    for node, end in state.ends.items():
        if not end.well or end.behind or end.cut:
            ends.setdefault(end.words, []).append(node)
    for words, nodes in ends.items():
        output.print_progress(f"rankdeck: {fold_nodes(nodes)} ({len(nodes)}): {words}")
    for end in state.not_proven().values():
        for one in end.left:
            output.print_progress(f"rankdeck: left on {one.node}: {one.pid} {one.command}")
    if cancelled and not state.not_proven():
        output.print_progress("rankdeck: cancelled; nothing is left on any node")


def command_shape(state: CommandState) -> dict[str, Any]:
    """`sh --json`."""
    return {
        "command": state.command,
        "status": state.status,
        "nodes": [_node_shape(node, state.ends[node], state) for node in state.nodes],
        "groups": [
            {"nodes": list(group.nodes), "ended": group.words, "lines": _programs_lines(group.text)}
            for group in state.groups()
        ],
    }


def _node_shape(node: str, end: CommandEnd, state: CommandState) -> dict[str, Any]:
    lines = state.lines(node)
    return {
        "node": node,
        **asdict(end),
        "left": [{"pid": one.pid, "command": one.command} for one in end.left],
        "status": end.status,
        "out": _programs_lines(text for stream, text in lines if stream == "out"),
        "err": _programs_lines(text for stream, text in lines if stream == "err"),
    }


def _programs_lines(lines: Iterable[str]) -> list[str]:
    """The lines for a program that reads them; colours stay."""
    return [strip_controls(text, colour=True) for text in lines]


def run_cp(options: argparse.Namespace, _open_console: object) -> int:
    """Copy a file to nodes, or from them; exit code 1 if a node failed."""
    cluster = choose.choose_cluster(options.cluster)
    file = expand_path(options.file)
    if not file.exists() and ":" in options.file:
        return _cp_from(cluster, options)
    if not file.is_file():
        what = "a folder; only files are copied" if file.is_dir() else "no such file"
        raise UsageError(f"{file}: {what}")
    text, _, path = options.to.partition(":")
    return until_done(_cp(cluster, file, choose.expand_node_option(cluster, text), path, options))


def _cp_from(cluster: Cluster, options: argparse.Namespace) -> int:
    text, _, path = options.file.partition(":")
    nodes, folder = choose.expand_node_option(cluster, text), expand_path(options.to)
    if not file_name(path) or (folder.exists() and not folder.is_dir()):
        what = f"{folder}: not a folder" if file_name(path) else f"{path}: names no file"
        raise UsageError(f"{what}; write `rankdeck cp NODESET:FILE FOLDER`")
    return until_done(_fetch(cluster, nodes, path, folder, options))


async def _fetch(
    cluster: Cluster, nodes: Sequence[str], path: str, folder: Path, options: argparse.Namespace
) -> int:
    async with open_for_command(cluster) as session:
        tell = _Fetching(path)
        with said_when_stopped(f"no half file is left, what is in {folder} is whole"):
            failed = await session.images.fetch(
                path, nodes, folder, tell, overwrite=options.replace
            )
    name = folder / file_name(path)
    shape = {"file": path, "files": {n: f"{name}.{n}" for n in nodes if n not in failed}}
    return print_copied(shape, nodes, failed, options, f"{name}.NODE: {path}")


class _Fetching:
    """Prints the progress on stderr, every second."""

    def __init__(self, path: str) -> None:
        self._path, self._next = path, time.monotonic() + 1.0

    def __call__(self, state: FetchState) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 1.0
            output.print_progress(f"{self._path}: {state.words}")


async def _cp(
    cluster: Cluster, file: Path, nodes: Sequence[str], path: str, options: argparse.Namespace
) -> int:
    async with open_for_command(cluster) as session:
        target = f"{path}{file.name}" if path.endswith("/") else path
        place, failed = await _pushed(session, file, target, nodes, options)
    shape = {"file": place.path, "size": place.size}
    return print_copied(shape, nodes, failed, options, place.path)


async def _pushed(
    session: Session, file: Path, to: str, nodes: Sequence[str], options: argparse.Namespace
) -> tuple[FilePlace, Failed]:
    """Copy a file to nodes, with progress; Ctrl-C says what is left."""
    with said_when_stopped(KEPT_THERE):
        tell = CopyProgress(file.name)
        return await session.images.push(file, to, nodes, tell, overwrite=options.replace)


BUSY_CPU, BUSY_RSS = 0.01, 256 << 20
"""A process that belongs to no job is shown from this many cores or bytes on."""
PROCESS_HEADS = ("NODE", "PID", "USER", "S", "CPU", "RSS", "GPU", "GPU MEM", "I/O", "RANK", "JOB", "COMMAND")  # fmt: skip
RANK_HEADS = ("RANK", "NODE", "PID", "S", "CPU", "RSS", "GPU", "GPU MEM", "I/O", "LINES")


def run_ps(options: argparse.Namespace, _open_console: object) -> int:
    """List processes; exit code 1 if a node did not answer."""
    cluster = choose.choose_cluster(options.cluster)
    return until_done(_ps(cluster, options))


async def _ps(cluster: Cluster, options: argparse.Namespace) -> int:
    nodes = choose.expand_node_option(cluster, options.nodes)
    async with open_for_command(cluster) as session:
        job = await find_meant_job(session, options.job) if options.job else None
        if job is not None:
            await hear_nodes(session)
            job = session.jobs.job(job.id)
            if job.state.final and not options.json:
                output.print_text(ended_job_sentence(job))
                return output.OK
            nodes = job.nodes
        found = await session.processes(nodes)
    if job is not None:
        _say_ranks(job, found, as_json=options.json)
    elif options.json:
        output.say_object(processes_shape(found))
    else:
        shown = [one for one in found.processes if options.all or _matters(one)]
        output.say_table(PROCESS_HEADS, map(_row, shown))
    for text in (*(f"{n}: not asked: {why}" for n, why in found.missing.items()), *found.notes):
        output.print_progress(f"rankdeck: {text}")
    return output.TROUBLE if found.missing else output.OK


def _matters(one: NodeProcess) -> bool:
    return bool(one.job or one.gpus) or one.cpu >= BUSY_CPU or one.rss >= BUSY_RSS


def _row(one: NodeProcess) -> tuple[str, ...]:
    rank = "-" if one.rank is None else str(one.rank)
    return (
        one.node, str(one.pid), one.user, one.state, f"{one.cpu:.0%}", write_size(one.rss), *_gpu(one.gpus, one.gpu_memory),
        write_speed(one.traffic) if one.traffic is not None else "-", rank, one.job or "-", one.command,
    )  # fmt: skip


def _gpu(gpus: Iterable[str], memory: int | None) -> tuple[str, str]:
    names = ",".join(gpus)
    return names or "-", write_size(memory or 0) if names else "-"


def _say_ranks(job: Job, found: FoundProcesses, *, as_json: bool) -> None:
    uses = rank_uses(job, found.processes)
    if as_json:
        ranks = [rank_use_shape(one) for one in uses.values()]
        output.say_object({"job": job.id, "ranks": ranks, "missing": dict(found.missing)})
        return
    lines = {rank.rank: rank.lines for rank in job.ranks}
    output.say_table(RANK_HEADS, (_rank_row(one, lines[one.rank]) for one in uses.values()))


def _rank_row(one: RankUse, lines: int) -> tuple[str, ...]:
    cpu = "-" if one.cpu is None else f"{one.cpu:.0%}"
    rss = "-" if one.rss is None else write_size(one.rss)
    return (
        str(one.rank), one.node, str(one.pid or "-"), one.state, cpu, rss, *_gpu(one.gpus, one.gpu_memory),
        write_speed(one.traffic) if one.traffic is not None else "-", f"{lines:,}",
    )  # fmt: skip


def processes_shape(found: FoundProcesses) -> dict[str, Any]:
    """`ps --json`."""
    return {
        "processes": [asdict(one) for one in found.processes],
        "missing": dict(found.missing),
        "notes": list(found.notes),
    }


def run_images(options: argparse.Namespace, _open_console: object) -> int:
    """Show the images of the job files, or push one; the exit code says whether all is well."""
    cluster = choose.choose_cluster(options.cluster)
    words: list[str] = options.words
    if words[:1] == ["push"]:
        if len(words) != 3:
            raise output.UsageError("write `rankdeck images push FILE NODESET`")
        file, nodes = Path(words[1]), choose.expand_node_option(cluster, words[2])
        if not file.is_file():
            raise output.UsageError(f"no file {file}")
        if has_store(options.runtime):
            return until_done(_load(cluster, file, nodes, options))
        return until_done(_push(cluster, file, nodes, options))
    if len(words) > 1:
        raise output.UsageError("write `rankdeck images [NODESET]`")
    return until_done(_show(cluster, choose.expand_node_option(cluster, "".join(words)), options))


# ---- show ------------------------------------------------------------------------------


async def _show(cluster: Cluster, nodes: Sequence[str], options: argparse.Namespace) -> int:
    async with open_for_command(cluster) as session:
        wanted = _wanted(session, options.image, options.runtime)
        if not wanted:
            output.print_progress("no job file names an image; name one with --image PATH")
        shapes: list[Shape] = []
        rows: list[tuple[str, ...]] = []
        well = True
        for one in wanted:
            output.print_progress(f"{one.image}: asking {len(nodes)} nodes …")
            found = await session.images.look(nodes, one)
            answered = {n: row for n, row in found.items() if isinstance(row, ImageAt)}
            differs = describe_versions(answered)
            well = well and not differs and len(answered) == len(found)
            shapes.append(_shape(one, found, differs))
            rows += _rows(one, found, differs)
    if options.json:
        output.say_object({"cluster": cluster.name, "images": shapes})
    elif rows:
        output.say_table(("IMAGE", "RUNTIME", "DIGEST", "SIZE", "NODES"), rows)
    return output.OK if well else output.TROUBLE


def _wanted(session: Session, named: str, runtime: str) -> tuple[WantedImage, ...]:
    """The image that is named, or else those of all job files that can be read."""
    if named:
        return (WantedImage(runtime or "apptainer", named),)
    found: dict[WantedImage, None] = {}
    for path in session.job_files():
        try:
            wanted = wanted_by(session.read_job(path))
        except ConfigError:
            continue  # `rankdeck check` says what is wrong with it.
        if wanted is not None:
            found[wanted] = None
    return tuple(found)


def _shape(wanted: WantedImage, found: dict[str, ImageAt | NodeError], differs: str) -> Shape:
    return {
        "image": wanted.image,
        "runtime": wanted.runtime,
        "same": not differs,
        "nodes": {node: image_shape(row) for node, row in found.items()},
    }


def _rows(
    wanted: WantedImage, found: dict[str, ImageAt | NodeError], differs: str
) -> list[tuple[str, ...]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for node, row in found.items():
        groups.setdefault(_cells(row), []).append(node)
    name = f"{wanted.image} (DIFFERENT)" if differs else wanted.image
    return [(name, wanted.runtime, *cells, fold_nodes(nodes)) for cells, nodes in groups.items()]


def _cells(row: ImageAt | NodeError) -> tuple[str, str]:
    if isinstance(row, NodeError):
        return row.why, "–"
    if not row.there:
        return row.error or row.kind, "–"
    return short_digest(row.digest), write_size(row.size)


# ---- push ------------------------------------------------------------------------------


async def _push(
    cluster: Cluster, file: Path, nodes: Sequence[str], options: argparse.Namespace
) -> int:
    async with open_for_command(cluster) as session:
        output.print_progress(f"{file}: reading its digest …")
        place, failed = await _pushed(session, file, options.to, nodes, options)
    shape: Shape = {"image": place.path, "digest": place.sha256, "size": place.size}
    return print_copied(shape, nodes, failed, options, f"{place.path}: sha256 {place.sha256}")


async def _load(
    cluster: Cluster, file: Path, nodes: Sequence[str], options: argparse.Namespace
) -> int:
    """Load the archive into the nodes' image stores."""
    shape = {"image": str(file), "digest": "", "size": file.stat().st_size}  # noqa: ASYNC240
    async with open_for_command(cluster) as session:
        failed = await session.images.load(file, options.runtime, nodes, CopyProgress(file.name))
    return print_copied(shape, nodes, failed, options, f"{file}: in {options.runtime}'s store")


@contextmanager
def said_when_stopped(words: str) -> Generator[None]:
    """In this block, Ctrl-C prints a line about what is left."""
    try:
        yield
    except asyncio.CancelledError:
        output.print_progress(f"rankdeck: stopped; {words}")
        raise


KEPT_THERE = (
    "no half file is seen on a node; what came is kept there, and the same command goes on from it"
)
"""What Ctrl-C leaves of a copy to nodes."""


def print_copied(
    shape: Shape,
    nodes: Sequence[str],
    failed: Mapping[str, NodeError],
    options: argparse.Namespace,
    well: str,
) -> int:
    """Print which nodes have the file and which failed; returns the exit code."""
    for error in failed.values():
        output.print_progress(f"rankdeck: {error}")
    there = [node for node in nodes if node not in failed]
    if options.json:
        output.say_object(
            {**shape, "nodes": there, "failed": {n: e.why for n, e in failed.items()}}
        )
    elif there:
        output.print_text(f"{well} on {fold_nodes(there)}")
    return output.TROUBLE if failed else output.OK


class CopyProgress:
    """Prints on stderr the progress of a copy, at most once a second, and failures at a launch."""

    def __init__(self, name: str) -> None:
        self._name, self._next, self._complete = name, 0.0, False

    def __call__(self, progress: CopyState | str) -> None:
        if isinstance(progress, str):
            output.print_progress(progress)
            return
        complete = bool(progress.done) and all(
            done >= progress.total for done in progress.done.values()
        )
        if progress.sent and (progress.seconds >= self._next or (complete and not self._complete)):
            self._next, self._complete = progress.seconds + 1.0, complete
            output.print_progress(f"{self._name}: {progress_words(progress)}")
