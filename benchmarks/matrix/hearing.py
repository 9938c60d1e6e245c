"""Rows about what a console hears of its nodes while their links or
the jump host go away and come back.

The console itself: `python -m benchmarks.matrix.hearing
CLUSTER_FILE` prints one JSON object a look.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import descendants

from benchmarks.fault_plants import words_of
from benchmarks.fault_run import wait
from benchmarks.fault_sites import LabSite
from benchmarks.matrix.meter import metered
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.scene import elapsed
from benchmarks.matrix.sites import Sites
from benchmarks.matrix.wires import (
    VICTIM,
    Harm,
    Prepare,
    as_it_is,
    behind_a_jump_host,
    cut,
    restart_jump_host,
)
from rankdeck.config.clusters import read_cluster
from rankdeck.opening import open_cluster_session

PERIOD = 0.25
HEARD_LIMIT = 60.0
"""Seconds until all nodes are heard; the same after they could be reached again."""
LASTS = 30.0


# ---- the console ------------------------------------------------------------------------


async def hear(file: Path) -> None:
    """Print of each node how many samples came and how it is, until it is ended."""
    async with open_cluster_session(read_cluster(file)) as session:
        session.hearing.want(None)
        while True:
            nodes = {
                n.name: [n.samples, n.health.level.name, [r.text for r in n.health.reasons]]
                for n in session.fleet.nodes()
            }
            print(json.dumps(nodes), flush=True)
            await asyncio.sleep(PERIOD)


@dataclass(slots=True)
class Hearing:
    """What the console has heard up to now."""

    process: subprocess.Popen[str]
    console: int = 0
    """Its pid, as the bench sees it."""
    nodes: dict[str, tuple[int, str, list[str]]] = field(
        default_factory=dict[str, tuple[int, str, list[str]]]
    )

    def listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.nodes = {name: tuple(told) for name, told in json.loads(line).items()}

    def samples(self) -> Mapping[str, int]:
        return {name: told[0] for name, told in self.nodes.items()}

    def grown(self, before: Mapping[str, int], *names: str) -> bool:
        """Whether there are new samples of these nodes, of all without names."""
        now = self.samples()
        return bool(now) and all(now[name] > before.get(name, 0) for name in names or now)

    def silent(self, name: str) -> bool:
        """Whether it is said that nothing comes from this node."""
        told = self.nodes.get(name)
        return told is not None and told[1] == "UNKNOWN"


@contextmanager
def hearing(site: LabSite) -> Generator[Hearing]:
    """A console that hears the nodes of a site, until the end of the block."""
    argv = [sys.executable, "-m", "benchmarks.matrix.hearing", site.cluster]
    with subprocess.Popen(
        site.command(argv), env=site.environment(), text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        heard = Hearing(process)
        listener = threading.Thread(target=heard.listen, daemon=True)
        listener.start()
        heard.console = _console(process)
        try:
            yield heard
        finally:
            site.mend()
            os.kill(heard.console or process.pid, signal.SIGKILL)
            process.wait(10)
            listener.join(10)


def _console(process: subprocess.Popen[str]) -> int:
    """Its process: in the lab, `nsenter` and `unshare` stand before it."""

    def find() -> int:
        return next((pid for pid in descendants(process.pid)[1:] if _is_console(words_of(pid))), 0)

    wait(find, HEARD_LIMIT)
    return find()


def _is_console(words: Sequence[str]) -> bool:
    return "benchmarks.matrix.hearing" in words and Path(words[0]).name.startswith("python")


# ---- the rows ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lost:
    """The node, or the way to it, goes for half a minute and comes back."""

    harm: Harm
    prepare: Prepare = as_it_is
    named: bool = True
    """Lasts long enough that the node must be named."""

    def __call__(self, sites: Sites) -> Tally:
        with self.prepare(sites.lab) as site, hearing(site) as heard:
            with metered(heard.console) as cost:
                named, again, faults = self._played(heard, site)
            return Tally(
                state="heard again" if again is not None else "not heard again",
                right=again is not None,
                seconds=max(named or 0.0, again or HEARD_LIMIT),
                wrong=faults,
                memory=cost.memory,
                cpu=cost.cpu,
                note=f"named after {named or 0:.1f} s, heard again after {again or 0:.1f} s",
            )

    def _played(
        self, heard: Hearing, site: LabSite
    ) -> tuple[float | None, float | None, list[str]]:
        """Seconds until the node was named and until it was heard again; what was wrong."""
        if not wait(lambda: heard.grown({}), HEARD_LIMIT):
            raise RuntimeError(f"the nodes are not heard: {heard.nodes}")
        others = [name for name in heard.nodes if name != VICTIM]
        before = heard.samples()
        began = time.monotonic()
        self.harm(site)
        named = elapsed(lambda: heard.silent(VICTIM), LASTS) if self.named else None
        if self.named:
            time.sleep(max(began + LASTS - time.monotonic(), 0))
        wrong = [f"{VICTIM} was not named"] if self.named and named is None else []
        if self.named and not heard.grown(before, *others):
            wrong.append("the other nodes were not heard meanwhile")
        site.mend()
        again = self._again(heard)
        wrong += [f"{x}: {heard.nodes[x]}" for x in heard.nodes if heard.silent(x)]
        return named, again, wrong

    def _again(self, heard: Hearing) -> float | None:
        before = heard.samples()

        def fine() -> bool:
            return heard.grown(before) and not any(map(heard.silent, heard.nodes))

        return elapsed(fine, HEARD_LIMIT)


def _row(name: str, does: str, run: Callable[[Sites], Tally]) -> Row:
    return Row(name=f"hearing.{name}", group=Group.WIRES, does=does, run=run)


ROWS = (
    _row("cut", "numbers of a node whose link was cut for 30 s", Lost(cut)),
    _row(
        "jump",
        "numbers of nodes whose jump host was restarted",
        Lost(restart_jump_host, behind_a_jump_host, named=False),
    ),
)

if __name__ == "__main__":
    asyncio.run(hear(Path(sys.argv[1])))
