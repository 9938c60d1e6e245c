"""Run the telemetry of one node until the lease ends."""

import contextlib
import os
import select
import signal
import sys
import time
import zlib
from collections.abc import Generator
from types import SimpleNamespace

from rankdeck_agent import __version__
from rankdeck_agent.collectors import Collector, collectors
from rankdeck_agent.collectors.simulated import chosen
from rankdeck_agent.config import SIZE_LIMIT, Config, ConfigError, from_file, from_line
from rankdeck_agent.files import Tree, clean, reason
from rankdeck_agent.machine import machine
from rankdeck_agent.sampler import LATE_SHARE, Beats
from rankdeck_agent.wire import Hello

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Lease:
    """Whether the agent should still run: until a signal, or the end of standard input."""

    def __init__(self, *, stdin: bool) -> None:
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
            ready, _, _ = select.select(self._watched, [], [], left)
            if not ready:
                return False
            if self._bell in ready or not os.read(0, 65536):
                return True


def _ring(handle: int) -> None:
    # A full pipe has rung already.
    with contextlib.suppress(BlockingIOError):
        os.write(handle, b".")


def telemetry() -> int:
    """Publish as the line on standard input says, until standard input ends."""
    try:
        config = from_line(_line(0))
    except ConfigError as error:
        return _refuse(str(error))
    return run(config, Lease(stdin=True))


def headless(path: str) -> int:
    """Publish as the file says, until a signal."""
    try:
        config = from_file(path)
    except ConfigError as error:
        return _refuse(str(error))
    return run(config, Lease(stdin=False), installed=True)


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
    beats = Beats(_collectors(config))
    # The first reading is only the start of the first difference, but its events are news.
    first = beats.take(limit=config.period * LATE_SHARE)
    publisher.describe(first.inventory)
    for event in first.events:
        publisher.event(event)
    _trim()
    due = time.monotonic() + _phase(config)
    while not lease.wait(max(0.0, due - time.monotonic())):
        lag = time.monotonic() - due
        beat = beats.take(limit=config.period * LATE_SHARE, lag=lag)
        publisher.describe(beat.inventory)
        publisher.sample(beat.sample)
        for event in beat.events:
            publisher.event(event)
        # Beats that were slept through are left out, not made up for.
        due += config.period * (1 + int((time.monotonic() - due) // config.period))
    publisher.stop()
    return 0


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
        period=config.period,
        inventory=machine(tree),
        simulated=tuple(chosen(config.simulate, config.node)),
        installed=installed,
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
