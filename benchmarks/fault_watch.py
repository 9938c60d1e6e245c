"""A console without a screen: follows jobs and prints what it
shows of them, one JSON line a change.

`python -m benchmarks.fault_watch CLUSTER_FILE`; orders are JSON lines on stdin:
{"follow": JOB}, {"keep": JOB}, {"cancel": JOB}.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from rankdeck.cli.shapes import job_shape
from rankdeck.config.clusters import read_cluster
from rankdeck.errors import RankdeckError, UnknownJobError
from rankdeck.following import wait_for_condition
from rankdeck.model.job import Job
from rankdeck.opening import open_cluster_session
from rankdeck.session import Session

PERIOD = 0.05
GRACE = 0.5
FIND_LIMIT = 30.0
"""Seconds within which a launched job is in the history."""
SHOWN = ("state", "ranks", "first_failure", "stalled", "troubles")
"""The parts of a job whose change is printed."""


class Watcher:
    """Takes orders and prints changes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last: dict[str, Job] = {}
        self._told: dict[str, str] = {}

    async def obey(self, order: dict[str, str]) -> None:
        if job := order.get("follow"):
            await self._follow(job)
        if job := order.get("keep"):
            self._session.following.hold(job)
        if job := order.get("cancel"):
            await self._cancel(job)

    async def _follow(self, name: str) -> None:
        """Jobs of other consoles are followed automatically: wait until this one is known."""
        await wait_for_condition(lambda: self._knows(name), FIND_LIMIT)
        if not self._knows(name):
            raise UnknownJobError(f"{name} is not in the history")

    def _knows(self, name: str) -> bool:
        return any(job.id == name for job in self._session.jobs.all())

    async def _cancel(self, name: str) -> None:
        try:
            report = await self._session.control.cancel(name, GRACE)
            left = [f"{one.node}: {one.command}" for one in report.left]
            answer: dict[str, object] = {"left": left, "unverified": dict(report.unverified)}
        except RankdeckError as error:
            answer = {"left": [], "unverified": {"": str(error)}}
        _say({"cancelled": name, **answer})

    def tell(self) -> None:
        """Print every job that has changed."""
        for job in self._session.jobs.all():
            if self._last.get(job.id) is job:
                continue
            self._last[job.id] = job
            shape = job_shape(job)
            digest = json.dumps([shape[key] for key in SHOWN])
            if self._told.get(job.id) != digest:
                self._told[job.id] = digest
                _say({"at": time.time(), "job": shape})


def _say(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


async def watch(file: Path) -> None:
    """Follow the jobs that stdin orders, until stdin ends."""
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    async with open_cluster_session(read_cluster(file), telemetry=False) as session:
        watcher = Watcher(session)
        async with asyncio.TaskGroup() as tasks:
            teller = tasks.create_task(_tell(watcher))
            while line := await orders.readline():
                await watcher.obey(json.loads(line))
            teller.cancel()


async def _tell(watcher: Watcher) -> None:
    while True:
        watcher.tell()
        await asyncio.sleep(PERIOD)


if __name__ == "__main__":
    asyncio.run(watch(Path(sys.argv[1])))
