"""The session of a command: opening it, its questions, finding the job that is meant, Ctrl-C."""

import argparse
import asyncio
import os
import signal
import sys
import termios
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Hashable,
    Iterable,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, Self

from rankdeck.cli import choose, output
from rankdeck.cli.output import UsageError
from rankdeck.config.files import find_job
from rankdeck.config.jobs import change_value, read_job
from rankdeck.errors import HostKeyError, UnknownJobError
from rankdeck.following import wait_for_condition
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.nodeset import expand_known_nodes, fold_nodes
from rankdeck.opening import open_cluster_session
from rankdeck.remote.questions import Answers, LoginQuestion, Operator
from rankdeck.session import Session
from rankdeck.values import replace


def open_for_command(
    cluster: Cluster, *, telemetry: bool = False, brief: bool = False
) -> AbstractAsyncContextManager[Session]:
    """Open the session of a command; progress goes to stderr, questions of
    host keys and logins to the terminal.
    """
    return open_cluster_session(
        cluster,
        telemetry=telemetry,
        brief=brief,
        operator=Operator(_confirm, _answer if output.can_ask() else None),
        progress=output.print_progress,
    )


async def find_meant_job(session: Session, text: str) -> Job:
    """The job that is meant, even if only its nodes know it; raises UnknownJobError."""
    try:
        return session.jobs.find(text)
    except UnknownJobError:
        await session.control.find_running()
    try:
        return session.jobs.find(text)
    except UnknownJobError as error:
        if not session.cluster.can.chooses_nodes:
            raise
        return session.jobs.job(await _attached(session, text, error))


async def hear_nodes(session: Session, silent: Collection[str] = ()) -> None:
    """Wait until the nodes have sent what they know about their jobs;
    names those that have not, on stderr.

    `silent`: nodes that are not waited for.
    """
    late = await session.following.caught_up(silent=silent)
    if late:
        output.print_progress(
            f"{fold_nodes(late)}: has not sent all that it knows about its jobs yet: what is shown may be old"
        )


ATTACH_LIMIT = 10.0
"""Seconds to wait for the output that a job started by others has written so far."""


async def _attached(session: Session, text: str, unknown: UnknownJobError) -> str:
    """Follow a job that others started; returns its id."""
    try:
        job = await session.control.attach(text)
    except UnknownJobError as error:
        raise (error if session.queue.is_number(text) else unknown) from None
    output.print_progress(
        f"{job}: {session.jobs.job(job).plan.owner or 'started by another console'}; reading what it wrote …"
    )
    limit = ATTACH_LIMIT * session.cluster.access.patience
    await wait_for_condition(lambda: _has_spoken(session.jobs.job(job)), limit)
    for trouble in session.jobs.job(job).troubles:
        output.print_progress(f"{job}: {trouble}")
    return job


def _has_spoken(job: Job) -> bool:
    """Whether output of every rank has arrived, or it is known why not."""
    return job.state.final or bool(job.troubles) or all(rank.lines for rank in job.ranks)


def until_done(work: Coroutine[Any, Any, int]) -> int:
    """Run the verb; returns its exit code."""
    return asyncio.run(work)


async def ask_agreement(question: str) -> bool:
    """Whether the user at the terminal says yes; False without a terminal."""
    return (await ask_line(f"{question} [y/N] ")).lower() in ("y", "yes")


async def ask_line(question: str) -> str:
    """What the user at the terminal answers; "" without a terminal."""
    if not output.can_ask():
        return ""
    output.print_progress(question)
    return (await _line_of_stdin()).strip()


async def _confirm(error: HostKeyError) -> bool:
    """Ask whether to trust an unknown host key; False without a
    terminal, or if the key has changed.
    """
    if not error.line:
        return False
    return await ask_agreement(f"{error}\n{error.fingerprint}\nTrust this key and remember it?")


async def _answer(question: LoginQuestion) -> Answers:
    """Ask at the terminal what a server wants to know; None if the user
    gives no answer to the first question.
    """
    again = "refused; once more: " if question.again else ""
    output.print_progress(
        f"{question.node}: {again}{question.whom} asks for a login. {question.words}".rstrip()
    )
    if question.warning:
        output.print_progress(f"{question.warning} Ctrl-C stops all questions.")
    answers: list[str] = []
    for prompt in question.prompts:
        with _input_of_answers(echo=prompt.echo):
            output.print_progress(prompt.text)
            answers.append(await _line_of_stdin())
        if answers[-1].endswith(_CTRL_C) or not answers[0].endswith("\n") or answers[0] == "\n":
            return None
    return tuple(answer.removesuffix("\n") for answer in answers)


_CTRL_C = "\x03"


@contextmanager
def _input_of_answers(*, echo: bool) -> Generator[None]:
    """In this block Ctrl-C ends the line that is typed, and not the command;
    without `echo` the line is not shown.
    """
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    keys: list[bytes | int] = [*before[6]]
    keys[termios.VINTR], keys[termios.VEOL] = b"\0", _CTRL_C.encode()
    shown = before[3] if echo else before[3] & ~termios.ECHO
    asking = [*before[:3], shown, *before[4:6], keys]
    termios.tcsetattr(terminal, termios.TCSADRAIN, asking)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


_LONGEST = 4096
"""Most bytes of a line that a terminal hands over."""


async def _line_of_stdin() -> str:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        if not answer.done():
            answer.set_result(_read_line())

    loop.add_reader(sys.stdin.fileno(), read)
    try:
        return await answer
    finally:
        loop.remove_reader(sys.stdin.fileno())


def _read_line() -> str:
    """What was typed; "" if the terminal is gone."""
    try:
        # A line may end with another key than enter; the reader of `sys.stdin` would wait for that.
        return os.read(sys.stdin.fileno(), _LONGEST).decode("utf-8", "replace")
    except OSError:
        return ""


def job_meant(options: argparse.Namespace) -> tuple[Cluster, Path, JobSpec]:
    """The cluster, the job file and the job that a command names, with its
    `--on` and `--set`; raises UsageError.
    """
    cluster, file = file_meant(options)
    return cluster, file, job_in(cluster, file, options)


def file_meant(options: argparse.Namespace) -> tuple[Cluster, Path]:
    """The cluster and the job file that a command names."""
    cluster = choose.choose_cluster(options.cluster)
    return cluster, find_job(options.file, cluster.file)


def job_in(cluster: Cluster, file: Path, options: argparse.Namespace) -> JobSpec:
    """The job of a file, with the `--on` and `--set` of a command; raises UsageError."""
    spec = choose.read_agreed(lambda: read_job(file))
    if options.on:
        names = _chosen_nodes(cluster, options.on)
        spec = replace(spec, on=names, nodes=len(names))
    return _changed(spec, options.set)


def _chosen_nodes(cluster: Cluster, text: str) -> tuple[str, ...]:
    try:
        names = expand_known_nodes(text, [node.name for node in cluster.nodes])
    except ValueError as error:
        raise UsageError(f"--on {text[:60]}: {error}") from error
    if not names:
        raise UsageError(f"--on {text[:60]}: no node is left")
    return names


def _changed(spec: JobSpec, changes: Sequence[str]) -> JobSpec:
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise UsageError(f"--set {change}: write KEY=VALUE")
        try:
            spec = change_value(spec, key, value)
        except ValueError as error:
            raise UsageError(f"--set {change}: {error}") from error
    return spec


_NEWS = 0.25
"""Seconds between two looks at what has ended."""


async def carry_out_run(
    run: Coroutine[Any, Any, object],
    tell: Callable[[], Iterable[tuple[Hashable, Callable[[], str]]]],
    stop: Callable[[], Awaitable[Sequence[str]]],
) -> None:
    """Await a run and print a line for each part of it that has ended; Ctrl-C or SIGTERM calls
    `stop`, which cancels what runs and returns a sentence for each thing that is left.

    `tell` is called four times a second and once at the end; it returns (part, what makes its line)
    of all parts so far, and the line of each part is made and printed once.
    """
    printed: set[Hashable] = set()

    def print_news() -> None:
        for part, make_line in tell():
            if part not in printed:
                printed.add(part)
                output.print_progress(make_line())

    async def print_until_cancelled() -> None:
        try:
            while True:
                await asyncio.sleep(_NEWS)
                print_news()
        finally:
            print_news()

    with Interrupts(terminate=True) as interrupts:
        async with asyncio.TaskGroup() as tasks:
            runs = tasks.create_task(run)
            asks = tasks.create_task(interrupts.next())
            prints = tasks.create_task(print_until_cancelled())
            await asyncio.wait((runs, asks), return_when=asyncio.FIRST_COMPLETED)
            asks.cancel()
            if not runs.done():
                output.print_progress("^C: cancelling what runs …")
                left = await stop()
                output.print_progress("\n".join(left) or "cancelled: nothing is left on any node")
            prints.cancel()


class Interrupts:
    """While entered, SIGINT does not end the process: `next` waits for it.

    With `terminate` the same holds for SIGTERM, for commands that run under a supervisor.
    """

    def __init__(self, *, terminate: bool = False) -> None:
        self._signals = (signal.SIGINT, signal.SIGTERM)[: 1 + terminate]
        self._waiting: asyncio.Queue[None] = asyncio.Queue()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in self._signals:
            loop.add_signal_handler(number, self._waiting.put_nowait, None)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._signals:
            asyncio.get_running_loop().remove_signal_handler(number)

    async def next(self) -> None:
        """Wait for the next signal; signals that came before are not lost."""
        await self._waiting.get()
