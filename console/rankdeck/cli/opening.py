"""Open the session of a command, and ask the questions it may have."""

import asyncio
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from rankdeck.cli import output
from rankdeck.errors import HostKeyError, UnknownJobError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job
from rankdeck.session import Session, open_session


def opened(cluster: Cluster, *, telemetry: bool = False) -> AbstractAsyncContextManager[Session]:
    """The session of a verb: progress on stderr, host keys asked about on the terminal."""
    return open_session(cluster, telemetry=telemetry, confirm=_confirm, progress=output.progress)


async def job_of(session: Session, text: str) -> Job:
    """The job that is meant, also one that only its nodes know; raises UnknownJobError."""
    try:
        return session.jobs.find(text)
    except UnknownJobError:
        await session.find_running()
    return session.jobs.find(text)


def until_done(work: Coroutine[Any, Any, int]) -> int:
    """Run the verb; gives its exit code."""
    return asyncio.run(work)


async def _confirm(error: HostKeyError) -> bool:
    """Ask about an unknown host key; no where nobody can be asked, or the key has changed."""
    if not sys.stdin.isatty() or not error.line:
        return False
    output.progress(f"{error}\n{error.fingerprint}\nTrust this key and remember it? [y/N] ")
    answer = await _line_of_stdin()
    return answer.strip().lower() in ("y", "yes")


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
    """What was typed; "" where the terminal is gone."""
    try:
        return sys.stdin.readline()
    except OSError:
        return ""
