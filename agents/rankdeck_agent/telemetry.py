"""Run the telemetry of one node until the lease ends; or take one sample."""

import contextlib
import json
import os
import platform
import select
import signal
import sys
import time
import zlib
from collections.abc import Generator, Mapping
from dataclasses import asdict
from types import SimpleNamespace

from rankdeck_agent import __version__
from rankdeck_agent.beat import LATE_SHARE, Beat, Beats
from rankdeck_agent.collectors import collectors
from rankdeck_agent.config import SIZE_LIMIT, Config, ConfigError, from_file, from_line
from rankdeck_agent.files import Tree, clean, reason
from rankdeck_agent.wire import Hello

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FIRST_LOOK = 2.0
"""Seconds that a collector may take for its first reading, in `sample`."""
_BETWEEN = 0.5


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
    return run(config, Lease(stdin=False))


def run(config: Config, lease: Lease) -> int:
    """Publish until the lease ends; the exit status."""
    try:
        with _without_openssl() if not config.tls else contextlib.nullcontext():
            from rankdeck_agent.publisher import Publisher
        publisher = Publisher(config, hello(config))
    except ImportError as error:
        return _refuse(f"paho-mqtt 2 is needed to publish: {error}")
    except (OSError, ValueError) as error:
        # Only reading the certificates can fail before anything is connected.
        return _refuse(f"ca_file {config.ca_file!r}: {reason(error)}")
    publisher.start()
    beats = Beats(collectors(config.root, config.simulate, config.node))
    # The first reading is only the start of the first difference.
    publisher.describe(beats.take(limit=config.period * LATE_SHARE).inventory)
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


def sample(root: str, *, as_json: bool) -> int:
    """Print what this machine says of itself now."""
    beats = Beats(collectors(root))
    first = beats.take(limit=_FIRST_LOOK)
    time.sleep(_BETWEEN)
    beat = beats.take(limit=_FIRST_LOOK)
    inventory = {**_inventory(Tree(root)), **first.inventory, **beat.inventory}
    if as_json:
        print(json.dumps({**asdict(beat.sample), "inventory": inventory}))
    else:
        print("\n".join(_table(beat, inventory)))
    return 0


def hello(config: Config) -> Hello:
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
        inventory=_inventory(tree),
        simulated=config.simulate,
    )


def _inventory(tree: Tree) -> dict[str, str]:
    python = platform.python_version()
    return {
        "kernel": platform.release(),
        "arch": platform.machine(),
        "os": _system(tree),
        "python": python,
    }


def _system(tree: Tree) -> str:
    try:
        text = tree.read("etc/os-release").decode("utf-8", "replace")
    except OSError:
        return platform.system()
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return clean(value.strip("\"'"))
    return platform.system()


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


def _table(beat: Beat, inventory: Mapping[str, str]) -> list[str]:
    taken = beat.sample
    lines = [f"{key:<40} {value}" for key, value in inventory.items()]
    for metric in sorted(taken.values):
        for device, value in sorted(taken.values[metric].items()):
            lines.append(f"{metric:<40} {device:<16} {value}")
    lines += [
        f"{key:<40} could not be read: {why}" for key, why in taken.failed.items()
    ]
    lines += [f"{metric:<40} not here" for metric in taken.absent]
    return lines


def _refuse(why: str) -> int:
    print(f"rankdeck-agent: {clean(why, 500)}", file=sys.stderr)
    return 2
