"""Rows about the health that agents tell by themselves: hostile,
untrue, old, stopped and lost words.
"""

import asyncio
import json
import signal
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from tests.support.mosquitto import Mosquitto
from tests.support.terminal import WIDE, terminal

from benchmarks import fault_plants as plants
from benchmarks.fault_run import wait
from benchmarks.fault_sites import DemoSite
from benchmarks.matrix.lying import LIAR, on_terminal, rankdeck
from benchmarks.matrix.meter import metered
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.nodes import others_heard
from benchmarks.matrix.scene import START_LIMIT
from benchmarks.matrix.sites import Sites
from benchmarks.matrix.steered import KEYS, QUIT_LIMIT, opened, pressed
from benchmarks.matrix.steering import SHOWN, planted, reached
from benchmarks.matrix.telemetry import BROKER, CONSOLE, broker, password_of, restart
from rankdeck.config.clusters import read_cluster
from rankdeck.following import wait_for_condition
from rankdeck.opening import open_cluster_session
from rankdeck.session import Session
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import HealthReport, Sample, encode_message, message_topic

PAUSE = 0.02
"""Seconds between two hostile messages: fifty times as many as an honest agent sends."""
LONG = 100 << 20
ALMOST = 15 << 20
"""Bytes that the console still lets a broker send."""
MANY = 10_000
HOUR = 3600.0
ROUNDS = 2
"""Times that all of them are sent before keys are pressed; they go on meanwhile."""


def _told(**more: object) -> bytes:
    fine: dict[str, object] = {
        "at": time.time(), "level": 3, "heartbeat": 10.0, "applies": (1 << 26) - 2,
        "judged": (1 << 26) - 2, "reasons": [_reason("/ is full")], "numbers": {"cpu.used": 12.5},
    }  # fmt: skip
    return json.dumps({**fine, **more}, ensure_ascii=False).encode("utf-8", "replace")


def _reason(
    text: str, check: str = "disk.full", device: str = "/", held: float = 5.0
) -> list[object]:
    return [check, 3, device, held, text]  # fmt: skip


def hostile() -> Sequence[bytes]:
    """Health messages that no honest agent sends."""
    texts = planted()
    wrong = [
        {field: value}
        for field in ("at", "level", "heartbeat", "applies", "judged", "reasons", "numbers", "failed", "more", "grown")
        for value in ("seven", None, [None], {"x": [1]}, -1, float("nan"), 10**400, 1e308)
    ]  # fmt: skip
    return [
        *(_told(**one) for one in wrong),
        *(_told(reasons=[_reason(text, text, text) for text in texts[at : at + 60]]) for at in range(0, len(texts), 60)),
        _told(reasons=[_reason(f"{SHOWN} {n}", f"c{n}", f"d{n}") for n in range(MANY)]),
        _told(numbers={f"m{n}": 1 for n in range(MANY)}),
        _told(numbers={"cpu.used": 1e308, "gpu.temp": -1e308, "net.rx": 10**30}),
        _told(grown={f"net.errors/{n}": {f"e{m}": m for m in range(100)} for n in range(100)}),
        _told(reasons=[_reason(SHOWN, held=9e17)], at=9e17),
        _told(at=-9e17, heartbeat=3600.0),
        _told(level=0),
        _told(reasons=[], more=(1 << 53) - 1),
        _told(node="sakuya", expect="x" * 100_000, limits=SHOWN * 10_000),
        b"[" * 500_000, b'{"reasons":' * 90_000, b"\xff\xfe\x00", b"{", b"null", b"x" * (900 << 10),
    ]  # fmt: skip


# ---- who publishes ----------------------------------------------------------------------


@contextmanager
def publishing(mosquitto: Mosquitto, node: str) -> Generator[Client]:
    """A client with the account of a node, as somebody has it who took the node over."""
    client = Client(CallbackAPIVersion.VERSION2)
    client.username_pw_set(node, password_of(node))
    authority = str(mosquitto.ca)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    client.tls_set_context(ssl.create_default_context(cafile=authority))  # pyright: ignore[reportUnknownMemberType]
    client.connect("127.0.0.1", mosquitto.port)
    client.loop_start()
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


@contextmanager
def repeating(client: Client, name: str, many: Sequence[bytes]) -> Generator[Callable[[], int]]:
    """Send these again and again until the end of the block; gives the number sent until now."""
    over, sent = threading.Event(), 0

    def send() -> None:
        nonlocal sent
        while True:
            for one in many:
                client.publish(name, one, qos=1, retain=sent % 2 == 0)
                sent += 1
                if over.wait(PAUSE):
                    return

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield lambda: sent
    finally:
        over.set()
        thread.join(10)


def _name(site: DemoSite, kind: str) -> str:
    return message_topic(read_cluster(Path(site.cluster)).name, LIAR, kind)


# ---- the rows ---------------------------------------------------------------------------


def told_anything(sites: Sites) -> Tally:
    """One node tells all that is hostile, many times a second,
    while screens and verbs look at it.
    """
    with (
        broker(sites.demo, unlimited=True) as (site, mosquitto),
        publishing(mosquitto, LIAR) as liar,
    ):
        many, name = hostile(), _name(site, "health")
        with repeating(liar, name, many) as sent:
            for size in (ALMOST, LONG):
                liar.publish(name, b"x" * size, qos=1, retain=True)
            wrong, memory = _looked_at(site, lambda: sent() > ROUNDS * len(many))
            for words in (("status", "--json", "--wait", "8"), ("health", "--wait", "8")):
                ended = on_terminal(rankdeck(site, *words), site.environment())
                said = [*ended.faults(), *reached(ended.written, screen=False)]
                said += [*others_heard(ended, "")] if "--json" in words else []
                wrong += [f"{' '.join(words)}: {one}" for one in said]
            return Tally(wrong=wrong, memory=memory, inputs=sent())


def _looked_at(site: DemoSite, ready: Callable[[], bool]) -> tuple[list[str], float]:
    """The console on a terminal, through all its pages; what was wrong, and its memory."""
    with (
        terminal(rankdeck(site), site.environment(), *WIDE, str(site.place())) as shown,
        metered(shown.process.pid) as cost,
    ):
        wrong = [*opened(shown)]
        wait(ready, START_LIMIT)
        for part in KEYS:
            wrong += pressed(shown, part)
        took = shown.leaves(20)
        wrong += [f"q took {took or 20:.1f} s"] if took is None or took > QUIT_LIMIT else []
    wrong += [] if SHOWN.encode() in shown.written else ["nothing of what was planted was shown"]
    wrong += reached(shown.written, screen=True)
    wrong += ["traceback"] if b"Traceback" in shown.written else []
    return wrong, cost.memory


@asynccontextmanager
async def _unwatched(site: DemoSite) -> AsyncGenerator[Session]:
    """A console that asks for no samples: all that it knows is what agents say of themselves."""
    async with open_cluster_session(read_cluster(Path(site.cluster))) as session:
        await wait_for_condition(lambda: _all_known(session), START_LIMIT)
        yield session


def _level(session: Session, node: str = LIAR) -> Level:
    return session.fleet.node(node).health.level


def _all_known(session: Session) -> bool:
    nodes = session.fleet.nodes()
    return all(n.was_heard and n.health.level is not Level.UNKNOWN for n in nodes)


def _others(session: Session) -> dict[str, Level]:
    return {n.name: n.health.level for n in session.fleet.nodes() if n.name != LIAR}


async def _took(true: Callable[[], bool], limit: float = START_LIMIT) -> float | None:
    """Seconds until it is so; None: it did not become so in time."""
    began = time.monotonic()
    await wait_for_condition(true, limit)
    return time.monotonic() - began if true() else None


def stopped(sites: Sites) -> Tally:
    """SIGSTOP of a node's agent while nobody looks: its heartbeat ends; then SIGCONT."""
    return asyncio.run(_stopped(sites.demo))


async def _stopped(site: DemoSite) -> Tally:
    async with _unwatched(site) as session:
        agents = plants.agents_on(LIAR)(site, "")
        plants.send(signal.SIGSTOP, agents, "telemetry agent")
        named = await _took(lambda: _level(session) is Level.UNKNOWN)
        others = _others(session)
        plants.send(signal.SIGCONT, agents, "telemetry agent")
        again = await _took(lambda: _all_known(session))
        wrong = ["it was not heard again"] if again is None else []
        wrong += [f"{name} is unknown" for name, level in others.items() if level is Level.UNKNOWN]
        note = f"heard again after {again or 0:.1f} s"
        return Tally(
            state="unknown", right=named is not None, seconds=named, wrong=wrong, note=note
        )


def forgotten(sites: Sites) -> Tally:
    """kill -9 of the site's broker, which comes back without what it had kept."""
    with broker(sites.demo) as (site, mosquitto):
        return asyncio.run(_forgotten(site, mosquitto))


async def _forgotten(site: DemoSite, mosquitto: Mosquitto) -> Tally:
    async with _unwatched(site) as session:
        before = {node.name: node.at for node in session.fleet.nodes()}
        await asyncio.to_thread(restart, mosquitto)
        seconds = await _took(
            lambda: (
                _all_known(session)
                and all(n.at > before[n.name] + 5 for n in session.fleet.nodes())
            )
        )
        kept: list[str] = mosquitto.heard(CONSOLE, CONSOLE, "rankdeck/#", 2 * len(before))  # pyright: ignore[reportUnknownMemberType]
        wrong = [f"kept by the broker: {len(kept)}"] if len(kept) != 2 * len(before) else []
        wrong += [f"trouble: {session.fleet.trouble}"] if session.fleet.trouble else []
        return Tally(state="heard again", right=seconds is not None, seconds=seconds, wrong=wrong)


def untrue(sites: Sites) -> Tally:
    """A node that says it is well while its own numbers say that it is not."""
    return _beside_the_agent(sites, _untrue)


def replayed(sites: Sites) -> Tally:
    """Words of an hour ago are sent again and kept; the node's agent goes on."""
    return _beside_the_agent(sites, _replayed)


Deceive = Callable[[DemoSite, Session, Client], AsyncGenerator[str]]


def _beside_the_agent(sites: Sites, deceive: Deceive) -> Tally:
    with broker(sites.demo) as (site, mosquitto), publishing(mosquitto, LIAR) as liar:

        async def run() -> Tally:
            async with _unwatched(site) as session:
                before = _others(session)
                wrong = [one async for one in deceive(site, session, liar)]
                # The machine itself may be warned of meanwhile; nothing may be unknown or bad.
                wrong += [
                    f"{name} became {level.word}"
                    for name, level in _others(session).items()
                    if level not in (Level.OK, Level.WARN, before[name])
                ]
                seconds = await _took(lambda: session.fleet.node(LIAR).at > time.time() - 15)
                return Tally(
                    state="its agent's word", right=seconds is not None, seconds=seconds, wrong=wrong
                )  # fmt: skip

        return asyncio.run(run())


async def _untrue(site: DemoSite, session: Session, liar: Client) -> AsyncGenerator[str]:
    node = session.fleet.node(LIAR)
    fine = HealthReport(time.time(), 0, 10.0, 6, 6)
    numbers: dict[str, dict[str, float]] = {"disk.used": {"/": 99.9}, "gpu.temp": {"0": 120.0}}
    session.hearing.want(frozenset({LIAR}))
    sample = Sample(1, time.time(), numbers, report=fine)
    liar.publish(_name(site, "health"), encode_message(fine), qos=1)
    liar.publish(_name(site, "sample"), encode_message(sample), qos=1)
    if await _took(lambda: node.value("disk.used", "/") == 99.9, 5) is None:
        yield "its numbers are not shown as they were sent"


async def _replayed(site: DemoSite, session: Session, liar: Client) -> AsyncGenerator[str]:
    node = session.fleet.node(LIAR)
    old = HealthReport(time.time() - HOUR, 3, 10.0, 6, 6, (("gpu.held", 3, "7", 1.0, SHOWN),))
    liar.publish(_name(site, "health"), encode_message(old), qos=1, retain=True)
    if await _took(lambda: any(r.check == "gpu.held" for r in node.health.reasons), 10) is None:
        yield "the old word did not arrive: nothing was tried"
    gone = await _took(lambda: not any(r.check == "gpu.held" for r in node.health.reasons), 20)
    if gone is None:
        yield "an old word stands for more than 20 s"


def _row(name: str, does: str, run: Callable[[Sites], Tally], *needs: str) -> Row:
    lacking = plants.need(*needs)
    return Row(name=f"health.{name}", group=Group.NODES, does=does, run=run, lacking=lacking)


ROWS: tuple[Row, ...] = (
    _row("hostile", "one node tells its health in every wrong way", told_anything, *BROKER),
    _row("untrue", "a node says that it is well, its numbers say no", untrue, *BROKER),
    _row("replayed", "what an agent said an hour ago is sent again", replayed, *BROKER),
    _row("stopped", "SIGSTOP of an agent that nobody looks at", stopped),
    _row("forgotten", "a site's broker comes back without what it kept", forgotten, *BROKER),
)
