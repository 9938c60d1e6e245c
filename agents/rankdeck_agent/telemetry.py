"""`telemetry`: publishes the samples of this node until stdin is closed or the service stops."""

import contextlib
import json
import os
import signal
import sys
import time
import zlib
from collections.abc import Generator
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rankdeck_agent import __version__
from rankdeck_agent.collectors import Collector, collectors
from rankdeck_agent.collectors.simulated import chosen
from rankdeck_agent.config import SIZE_LIMIT, Config, ConfigError, from_file, from_line
from rankdeck_agent.files import Tree, clean, leave_no_core, readable, reason
from rankdeck_agent.machine import machine
from rankdeck_agent.node_judge import NodeJudge, Reporter
from rankdeck_agent.sampler import LATE_SHARE, Beats
from rankdeck_agent.wire import Hello

if TYPE_CHECKING:
    from rankdeck_agent.publisher import Publisher

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Lease:
    """Whether the agent should still run: until a signal, or the end of standard input.

    A line `{"samples": true}` on standard input says whether full samples are wanted from now on.
    """

    def __init__(self, *, stdin: bool, samples: bool = True) -> None:
        self.samples = samples
        self._line = b""
        self._bell, ring = os.pipe()
        self._watched = [self._bell] + ([0] if stdin else [])
        os.set_blocking(ring, False)
        for number in _ENDING:
            signal.signal(number, lambda _number, _frame: _ring(ring))

    def wait(self, seconds: float) -> bool:
        """Sleep at most that long; True where the lease has ended."""
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            ready = readable(self._watched, left)
            if not ready:
                return False
            if self._bell in ready or not self._read():
                return True

    def _read(self) -> bool:
        """Take what stands on standard input; False at its end."""
        data = os.read(0, 65536)
        *lines, rest = (self._line + data).split(b"\n")
        self._line = rest[-SIZE_LIMIT:]
        for line in lines:
            self.samples = wanted(line, self.samples)
        return bool(data)


def wanted(line: bytes, before: bool) -> bool:
    """Whether full samples are wanted after this line; as before where it does not say."""
    try:
        told: Any = json.loads(line)
        found = told.get("samples")
    except (ValueError, AttributeError, RecursionError):
        return before
    return found if isinstance(found, bool) else before


def _ring(handle: int) -> None:
    # A full pipe has rung already.
    with contextlib.suppress(BlockingIOError):
        os.write(handle, b".")


def telemetry() -> int:
    """Publish as the line on standard input says, until standard input ends."""
    leave_no_core()
    try:
        config = from_line(_line(0))
    except ConfigError as error:
        return _refuse(str(error))
    return run(config, Lease(stdin=True, samples=config.samples))


def headless(path: str) -> int:
    """Publish as the file says, until a signal."""
    leave_no_core()
    try:
        config = from_file(path)
    except ConfigError as error:
        return _refuse(str(error))
    return run(config, Lease(stdin=False, samples=config.samples), installed=True)


def forgotten(path: str) -> int:
    """Take the node's retained hello off the broker; the exit status."""
    try:
        config = from_file(path)
        from rankdeck_agent.publisher import forget

        why = forget(config)
    except ConfigError as error:
        return _refuse(str(error))
    return _refuse(why) if why else 0


def run(config: Config, lease: Lease, *, installed: bool = False) -> int:
    """Publish until the lease ends; the exit status."""
    try:
        with _without_openssl() if not config.tls else contextlib.nullcontext():
            from rankdeck_agent.publisher import Publisher
        publisher = Publisher(config, hello(config, installed=installed))
    except ImportError as error:
        return _refuse(f"paho-mqtt 2 is needed to publish: {error}")
    except (OSError, ValueError) as error:
        # Only reading the certificates can fail before anything is connected.
        where = f"ca_file {config.ca_file!r}" if config.ca_file else "ca"
        return _refuse(f"{where}: {reason(error)}")
    publisher.start()
    _publish(config, lease, publisher)
    publisher.stop()
    return 0


def _publish(config: Config, lease: Lease, publisher: "Publisher") -> None:
    """Read, judge and publish once a period until the lease ends."""
    judge = NodeJudge(config.expect, publisher.boot, config.heartbeat, brief=config.brief)
    reporter = Reporter(config.heartbeat)
    beats = Beats(_collectors(config))
    # The first reading is only the start of the first difference, but its events are news.
    first = beats.take(limit=config.period * LATE_SHARE)
    publisher.describe(first.inventory)
    for event in first.events:
        publisher.event(event)
    past = tuple(first.events)
    _trim()
    due = time.monotonic() + _phase(config)
    next_sample = 0.0
    while not lease.wait(max(0.0, due - time.monotonic())):
        lag = time.monotonic() - due
        beat = beats.take(limit=config.period * LATE_SHARE, lag=lag)
        publisher.describe(beat.inventory)
        for event in beat.events:
            publisher.event(event)
        report = judge.judge(beat.sample, (*past, *beat.events), publisher.inventory)
        past = ()
        now = time.monotonic()
        publisher.health(reporter, report, now)
        if lease.samples and now >= next_sample:
            publisher.sample(replace(beat.sample, report=report))
            next_sample = now + config.sample_period - EARLY
        # Samples that were missed (a suspended machine) are left out, not made up for.
        due += config.period * (1 + int((time.monotonic() - due) // config.period))


EARLY = 0.05
"""Seconds by which a beat may come early and still be the one that is due."""


@contextlib.contextmanager
def _without_openssl() -> Generator[None, None, None]:
    """paho comes without TLS where it is not asked for: a fifth less memory on every node."""
    hidden = [name for name in ("ssl", "_ssl", "_hashlib") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # pyright: ignore[reportArgumentType, reportCallIssue]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
    _lend_errors()


def _lend_errors() -> None:
    """paho names these errors in its `except` clauses even where it has no TLS."""
    from paho.mqtt import client

    if getattr(client, "ssl", None) is None:
        names = ("SSLError", "SSLWantReadError", "SSLWantWriteError")
        errors = {name: type(name, (OSError,), {}) for name in names}
        setattr(client, "ssl", SimpleNamespace(**errors))  # noqa: B010 - not a name it declares


def _trim() -> None:
    """Give back what compiling our own source took: a quarter of the memory."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


def _collectors(config: Config) -> list[Collector]:
    return collectors(config.root, config.simulate, config.node, rdma_exclude=config.rdma_exclude)


def hello(config: Config, *, installed: bool = False) -> Hello:
    """Who this node is, as far as it is known before the first reading."""
    tree = Tree(config.root)
    boot = tree.maybe("proc/sys/kernel/random/boot_id") or os.urandom(8).hex()
    return Hello(
        node=config.node,
        up=True,
        at=time.time(),
        boot=clean(boot.replace("/", "")),
        agent=__version__,
        period=max(config.period, config.sample_period),
        inventory=machine(tree),
        simulated=tuple(chosen(config.simulate, config.node)),
        installed=installed,
        heartbeat=config.heartbeat,
    )


def _phase(config: Config) -> float:
    """Seconds until the first sample: nodes started together do not speak together."""
    share = zlib.crc32(config.node.encode()) % 1000 / 1000
    return min(0.25, config.period / 2) + share * min(config.period, 1.0)


def _line(handle: int) -> bytes:
    """The first line of a file handle, without reading past it into a buffer of our own."""
    parts: list[bytes] = []
    while len(parts) <= SIZE_LIMIT:
        part = os.read(handle, 1)
        if part in (b"", b"\n"):
            return b"".join(parts)
        parts.append(part)
    raise ConfigError(f"the configuration is longer than {SIZE_LIMIT} bytes")


def _refuse(why: str) -> int:
    print(f"rankdeck-agent: {clean(why, 500)}", file=sys.stderr)
    return 2
