"""Rows that kill what the health of nodes is heard through, while a job runs."""

import asyncio
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from tests.support.certificates import Authority
from tests.support.mosquitto import Mosquitto

from benchmarks import fault_plants as plants
from benchmarks.fault_sites import DemoSite
from benchmarks.matrix.model import STATE_LIMIT, Group, Row, Tally
from benchmarks.matrix.processes import FIRST_LINES, NODE, began, counted, misstated, writers
from benchmarks.matrix.scene import START_LIMIT, ended, playing, untold
from benchmarks.matrix.sites import Sites
from rankdeck.config.clusters import read_cluster
from rankdeck.config.document import write_documents
from rankdeck.following import wait_for_condition
from rankdeck.opening import open_cluster_session
from rankdeck.session import Session
from rankdeck.values import replace

COUNT, PAUSE = 400, 0.1
UNDERWAY = 2.0
"""Seconds after the harm in which samples may still come that were sent before it."""
CONSOLE = "console"
LONG_SILENCE = r"on its nodes: \S+: silent for more than "
"""True of every node where the broker stands still for longer than what is left out as short."""

Harm = Callable[[str], None]
"""Does harm while the job of this id runs."""


def harmed(site: DemoSite, harm: Harm, allowed: Sequence[str] = ()) -> Tally:
    """A job that runs while a console hears its nodes, and loses sight of them for a while."""
    with playing(site, writers("plain", COUNT, PAUSE)) as scene:
        began(scene, FIRST_LINES)
        seconds = asyncio.run(_heard_again(site, lambda: harm(scene.job)))
        code = scene.finish()
        wrong = [*misstated(scene, "done", code, 0), *untold(scene, allowed)]
        wrong += ["its nodes were not heard again"] if seconds is None else []
        missing = counted(scene)
        return ended(scene, state="done", seconds=seconds, missing=missing, wrong=wrong)


async def _heard_again(site: DemoSite, harm: Callable[[], None]) -> float | None:
    """Seconds from the end of the harm to new samples of every node; None: they never came."""
    async with open_cluster_session(read_cluster(Path(site.cluster))) as session:
        session.hearing.want(None)
        await session.hearing.settle(START_LIMIT)
        await asyncio.to_thread(harm)
        begin = time.monotonic()
        await asyncio.sleep(UNDERWAY)
        before = _samples(session)
        await wait_for_condition(lambda: _grown(before, _samples(session)), START_LIMIT)
        grown = _grown(before, _samples(session))
        return time.monotonic() - begin if grown else None


def _samples(session: Session) -> dict[str, int]:
    return {node.name: node.samples for node in session.fleet.nodes()}


def _grown(before: dict[str, int], now: dict[str, int]) -> bool:
    return all(now[name] > count for name, count in before.items())


def kill_agent(sites: Sites) -> Tally:
    """Kill the telemetry agents of a node, those of `run` and of a console."""
    site = sites.demo
    kill = plants.signal_to(signal.SIGKILL, plants.agents_on(NODE), "telemetry agent")
    return harmed(site, lambda job: _do(kill, site, job))


def _do(plant: plants.Plant, site: DemoSite, job: str) -> None:
    plant(site, job)


def kill_broker(sites: Sites) -> Tally:
    """Kill the broker of the site; it is started again after five seconds."""
    with broker(sites.demo) as (site, mosquitto):
        return harmed(site, lambda _: restart(mosquitto))


def freeze_broker(sites: Sites) -> Tally:
    """Stop the broker of the site for longer than a node may be silent."""
    with broker(sites.demo) as (site, mosquitto):
        return harmed(site, lambda _: _freeze(_process(mosquitto)), [LONG_SILENCE])


def restart(mosquitto: Mosquitto) -> None:
    """Kill the broker, and start it again after five seconds; it has kept nothing."""
    process = _process(mosquitto)
    process.kill()
    process.wait(10)
    time.sleep(5)
    mosquitto.start()


def _freeze(process: subprocess.Popen[bytes]) -> None:
    plants.send(signal.SIGSTOP, [process.pid], "broker")
    time.sleep(STATE_LIMIT)
    plants.send(signal.SIGCONT, [process.pid], "broker")


def _process(mosquitto: Mosquitto) -> subprocess.Popen[bytes]:
    assert mosquitto.process
    return mosquitto.process


def password_of(node: str) -> str:
    """The password of a node's account."""
    return f"of-{node}"


@contextmanager
def broker(site: DemoSite, *, unlimited: bool = False) -> Generator[tuple[DemoSite, Mosquitto]]:
    """The same nodes with a mosquitto as a site has it: TLS, passwords, ACL.

    `unlimited`: it takes and sends messages of any length.
    """
    with tempfile.TemporaryDirectory(prefix="broker.", dir=site.place()) as name:
        folder = Path(name)
        nodes = {node: password_of(node) for node in site.nodes()}
        authority = Authority(folder)
        mosquitto = Mosquitto(folder, authority, {**nodes, CONSOLE: CONSOLE})
        if unlimited:
            conf = folder / "mosquitto.conf"
            conf.write_text(re.sub("max_packet_size.*", "", conf.read_text()))
        mosquitto.start()
        block = {"url": f"mqtts://127.0.0.1:{mosquitto.port}", "ca_file": str(authority.file)}
        try:
            yield replace(site, cluster=_cluster(site, folder, block, nodes)), mosquitto
        finally:
            mosquitto.stop()


def _cluster(site: DemoSite, folder: Path, block: dict[str, str], nodes: dict[str, str]) -> str:
    """The cluster file of a site with this broker in it."""
    (folder / "console.password").write_text(CONSOLE)
    accounts = (f"{node}:{password}\n" for node, password in nodes.items())
    (folder / "accounts").write_text("".join(accounts))
    content = yaml.safe_load(Path(site.cluster).read_text())
    content["broker"] = {
        **block,
        "username": CONSOLE,
        "password_file": str(folder / "console.password"),
        "agents_file": str(folder / "accounts"),
    }
    # In the folder of the keys: a cluster file that reads elsewhere is asked about first.
    file = Path(site.cluster).with_name("broker.yaml")
    file.write_text(write_documents([content]))
    return str(file)


def _row(name: str, does: str, run: Callable[[Sites], Tally], *needs: str) -> Row:
    lacking = plants.need(*needs)
    return Row(name=name, group=Group.PROCESSES, does=does, run=run, lacking=lacking)


BROKER = ("mosquitto", "mosquitto_passwd")
ROWS = (
    replace(_row("kill.telemetry", "kill -9 of a node's telemetry agents", kill_agent), short=True),
    _row("kill.broker", "kill -9 of the site's broker, and its restart", kill_broker, *BROKER),
    _row("freeze.broker", "SIGSTOP of the site's broker for 20 s", freeze_broker, *BROKER),
)
