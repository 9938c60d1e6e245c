"""The console on a simulated fleet, for `scale`.

Run as `python -m benchmarks.scale_app private|site NODES FOLDER [PORT]`.

`private`: the broker within this process, a connection for each node. `site`: mosquitto on PORT,
agents installed. A file FOLDER/ask with one table in JSON says what to do; what came of it is then
in FOLDER/answer: {"measure": seconds} watches, {"record": true} measures from now on each call of
the event loop (which costs some percent of its time) for FOLDER/work, {"ill": share, "seconds": s}
makes nodes ill, {"stop": true} leaves.
"""

import asyncio
import cProfile
import json
import os
import resource
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.paint_app import record
from rankdeck.config.user import UiSettings
from rankdeck.demo.fleet import FleetProcess, fleet_cluster
from rankdeck.model.cluster import Broker, Cluster
from rankdeck.opening import Reach, open_session_on
from rankdeck.session import Session
from rankdeck.state.fleet import Fleet
from rankdeck.telemetry.agent_configs import agent_config
from rankdeck.ui.app import run_console
from rankdeck.ui.widgets.vtable import VTable
from rankdeck_agent.wire import HealthReport, Message, Sample

LOOK = 0.2
PLAN = {"faults": 0.01}
"""The load of 1 % of the nodes changes each second; one change in a hundred is a fault."""


class Painted:
    """Measures the seconds from an agent's reading until it was judged and handed to the screen.

    A row that changes without a message, as when a node falls silent or its numbers are dropped
    because it has left the screen, does not count.
    """

    def __init__(self, known: Fleet) -> None:
        self.after: list[float] = []
        self._waiting: dict[str, float] = {}
        """Node -> when its agent read the oldest values that are not yet on the screen."""
        touch, apply = VTable.touch, Fleet.apply

        def applied(fleet: Fleet, node: str, message: Message, *, retained: bool = False) -> None:
            if isinstance(message, HealthReport | Sample) and not retained:
                self._waiting.setdefault(node, message.at)
            apply(fleet, node, message, retained=retained)

        def touched(table: VTable, changed: frozenset[str]) -> None:
            now = time.time()
            judged = changed - known._changed.keys()  # pyright: ignore[reportPrivateUsage]
            for name in judged & self._waiting.keys():
                self.after.append(now - self._waiting.pop(name))
            touch(table, changed)

        Fleet.apply = applied  # pyright: ignore[reportAttributeAccessIssue]
        VTable.touch = touched  # pyright: ignore[reportAttributeAccessIssue]


class Watch:
    """Carries out the orders of the benchmark."""

    def __init__(self, session: Session, fleet: FleetProcess, folder: Path) -> None:
        self._session, self._fleet, self._folder = session, fleet, folder
        self._painted = Painted(session.fleet)

    async def run(self) -> None:
        ask = self._folder / "ask"
        while True:
            await asyncio.sleep(LOOK)
            if ask.exists():
                told = json.loads(ask.read_text())
                ask.unlink()
                self._write(await self._do(told))

    def _write(self, answer: dict[str, Any]) -> None:
        fresh = self._folder / "fresh"
        fresh.write_text(json.dumps(answer))
        fresh.rename(self._folder / "answer")

    async def _do(self, told: dict[str, Any]) -> dict[str, Any]:
        if "record" in told:
            record(self._folder / "work")
        if "ill" in told or "change" in told:
            self._fleet.command(told)
        sent, cpu, begin = await self._fleet.ask(), time.process_time(), time.monotonic()
        self._painted.after.clear()
        profile = cProfile.Profile(time.thread_time) if os.environ.get("SCALE_PROFILE") else None
        if profile:
            profile.enable()
        await asyncio.sleep(told.get("measure", 0.0))
        if profile:
            profile.disable()
            profile.dump_stats(os.environ["SCALE_PROFILE"])
        used, passed = time.process_time() - cpu, time.monotonic() - begin
        after = await self._fleet.ask()
        return {
            "cpu": used,
            "seconds": passed,
            "painted": sorted(self._painted.after),
            "levels": self._levels(),
            "fleet": {"before": sent, "after": after},
            "behind": self._session.fleet.behind,
        }

    def _levels(self) -> list[int]:
        found = [0, 0, 0, 0]
        for node in self._session.fleet.nodes():
            found[node.health.level] += 1
        return found


@asynccontextmanager
async def private(cluster: Cluster, folder: Path) -> AsyncGenerator[Session]:
    async with (
        FleetProcess(**PLAN) as fleet,
        open_session_on(cluster, Reach(fleet.reach)) as session,
        watching(session, fleet, folder),
    ):
        yield session


@asynccontextmanager
async def site(cluster: Cluster, folder: Path) -> AsyncGenerator[Session]:
    """All agents are there before the console; samples are only made where they are looked at."""
    async with FleetProcess(**PLAN, installed=True) as fleet:
        assert cluster.broker is not None
        for node in cluster.nodes:
            config = {**agent_config(cluster, cluster.broker, node.name), "samples": False}
            fleet.tell(node.name, json.dumps(config).encode())
        async with (
            open_session_on(cluster, Reach(fleet.reach)) as session,
            watching(session, fleet, folder),
            asyncio.TaskGroup() as tasks,
        ):
            task = tasks.create_task(_pass_on(session, fleet))
            yield session
            task.cancel()


async def _pass_on(session: Session, fleet: FleetProcess) -> None:
    """Tell the agents what a broker would keep to itself: whose samples have a reader."""
    before: frozenset[str] = frozenset()
    while True:
        await asyncio.sleep(LOOK)
        wanted = session.fleet.wanted or frozenset()
        for name in wanted ^ before:
            fleet.tell(name, json.dumps({"samples": name in wanted}).encode())
        before = wanted


@asynccontextmanager
async def watching(session: Session, fleet: FleetProcess, folder: Path) -> AsyncGenerator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(Watch(session, fleet, folder).run())
        yield
        task.cancel()


def main() -> int:
    way, count, folder, *port = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    cluster = fleet_cluster(
        int(count), Broker(host="127.0.0.1", port=int(port[0])) if port else None
    )
    opener = {"private": private, "site": site}[way]
    return run_console(
        lambda _: opener(cluster, Path(folder)), UiSettings(theme_folders=()), cluster=cluster
    )


if __name__ == "__main__":
    sys.exit(main())
