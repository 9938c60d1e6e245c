"""NVIDIA GPUs, read by a separate process, so that the agent never waits for the driver."""

import contextlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import rankdeck_agent
from rankdeck_agent.collectors import nvidia_calls
from rankdeck_agent.collectors.base import BootMemory, Reading
from rankdeck_agent.collectors.nvidia_reader import BOARD
from rankdeck_agent.descriptors import wait_readable
from rankdeck_agent.system_files import CHUNK
from rankdeck_agent.text import clean_text, failure_reason

LIBRARY_VARIABLE = "RANKDECK_NVML"
"""Environment variable: folder of libnvidia-ml.so.1, if the loader does not find it by itself."""
METRICS = (*nvidia_calls.METRICS, *nvidia_calls.ACTIVITY)
DEADLINE = 10.0
"""Seconds without an answer after which all metrics fail."""
FIRST_ANSWER = 1.5
"""Seconds to wait for the first answer of a new process."""
AGAIN = 60.0
"""Seconds until a process that has ended is started again."""
SLOW = 2.0
"""Seconds of waiting after which `gpu.answer` reports the waiting time."""
_LINE_LIMIT = 1 << 20
_DRIVER = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl")
_COMMAND = "nvml"
# Not -m: that would search modules in the current folder.
_PROGRAM = (
    "import sys; sys.path[0] = sys.argv[1]; "
    "from rankdeck_agent.__main__ import main; sys.exit(main(sys.argv[2:]))"
)


def has_nvidia_driver(root: str) -> bool:
    """Whether there is an NVIDIA driver to ask: on this machine (`root` is
    "/"), or named by LIBRARY_VARIABLE.
    """
    named = LIBRARY_VARIABLE in os.environ
    return named or (root == "/" and any(map(os.path.exists, _DRIVER)))


class NvmlProcess:
    """The only process that calls NVML. It is never killed, because that can freeze a GPU.

    Raises OSError.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.started = time.monotonic()
        self._board = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as this object
        self._board.write(BOARD.pack(self.started, b"NVML to start"))
        self._board.flush()
        self._process = self._start()
        self._out = self._process.stdout.fileno() if self._process.stdout else -1
        os.set_blocking(self._out, False)
        self._rest = b""
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def _start(self) -> "subprocess.Popen[bytes]":
        handle = self._board.fileno()
        # In a zip file this is a path inside it; Python can import from there too.
        home = str(Path(rankdeck_agent.__file__).parent.parent)
        argv = [sys.executable, "-c", _PROGRAM, home, _COMMAND]
        argv += [str(handle), str(os.getpid())]
        return subprocess.Popen(
            argv,
            env=_environment(),
            pass_fds=(handle,),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait(self, seconds: float) -> None:
        """Wait until there is something to read, at most `seconds`."""
        wait_readable([self._out], seconds)

    def lines(self) -> list[bytes]:
        """The complete lines since the last call; does not wait."""
        parts = [self._rest]
        size = len(self._rest)
        while size < _LINE_LIMIT:
            try:
                part = os.read(self._out, CHUNK)
            except BlockingIOError:
                break
            if not part:
                break
            parts.append(part)
            size += len(part)
        *whole, self._rest = b"".join(parts).split(b"\n")
        return whole

    def waiting(self) -> tuple[float, str]:
        """(seconds that the driver has not answered, 0 if it is not
        being asked; what it was asked).
        """
        since, what = BOARD.unpack(os.pread(self._board.fileno(), BOARD.size, 0))
        text = what.rstrip(b"\0").decode("utf-8", "replace")
        return (max(0.0, time.monotonic() - since), clean_text(text)) if since else (0.0, "")

    def ended(self) -> Optional[str]:
        """How the process ended; None while it runs."""
        status = self._process.poll()
        if status is None:
            return None
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return f"the process that asks NVML ended with {how}"

    def close(self) -> None:
        """Close its input: it then ends by itself."""
        for file in (self._process.stdin, self._process.stdout, self._board):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()


class Nvidia:
    """Readings of NVIDIA GPUs; starts the process, and starts it again when it has ended."""

    def __init__(self, memory: Optional[BootMemory] = None) -> None:
        self._process: Optional[NvmlProcess] = None
        self._retry = 0.0
        self._memory = memory
        self._known = memory.recall("nvidia") if memory else dict[str, str]()
        """UUID -> GPU number, kept when the process or the agent is started again."""
        self._answered: set[str] = set()
        self._orphan = 0
        """Pid of the process of an earlier agent, stuck in the driver; 0 if there is none."""
        self._last = Reading()

    def collect(self, now: float) -> Reading:
        """What the process has read since the last call; never waits longer than FIRST_ANSWER."""
        if self._process is None and now >= self._retry:
            self._begin(now)
        reading = Reading()
        if self._process is not None:
            self._take_lines(reading, self._process, now)
        else:
            waited = _waiting_of(self._orphan)
            if waited:
                reading.put("gpu.answer", round(waited, 1))

        reading.inventory = self._last.inventory
        reading.failed.update(self._last.failed)
        reading.pending |= self._last.pending - set(reading.values)
        return reading

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def start_again(self) -> None:
        """Start a new process at the next reading, because NVML lists only the
        GPUs that were there when it started.
        """
        self.close()
        self._retry = 0.0

    def _begin(self, now: float) -> None:
        self._retry = now + AGAIN
        self._orphan = 0
        stuck = left_behind()
        if stuck:
            # It may be about to end: then we need not wait a minute.
            time.sleep(FIRST_ANSWER / 2)
            stuck = left_behind()
        if stuck:
            why = f"the driver still holds process {stuck} of an agent that has gone"
            self._all_fail(why)
            self._orphan = stuck
            return

        try:
            self._process = NvmlProcess({"known": self._known})
        except OSError as error:
            why = f"no process to ask NVML with: {failure_reason(error)}"
            self._last.failed = dict.fromkeys(METRICS, why)
            return
        self._process.wait(FIRST_ANSWER)

    def _take_lines(self, reading: Reading, process: NvmlProcess, now: float) -> None:
        ended = process.ended()
        for line in process.lines():
            self._take(reading, line)
        waited, what = process.waiting()
        if ended is not None:
            self.close()
            self._retry = now + AGAIN
            self._all_fail(self._last.failed.get("gpu.used", ended))
        elif waited > DEADLINE:
            reading.trouble = f"the driver did not answer in {waited:.0f} s ({what})"
            self._all_fail(reading.trouble)
        elif not self._last.inventory:
            self._last.pending = set(METRICS)
        if waited > SLOW:
            reading.values = {"gpu.answer": {"": round(waited, 1)}}

    def _all_fail(self, why: str) -> None:
        """Mark all metrics that were ever answered (or if none, all) as failed."""
        wanted = self._answered or set(METRICS)
        self._last.failed = dict.fromkeys(sorted(wanted - {"gpu.answer"}), why)
        self._last.pending = set()

    def _take(self, reading: Reading, line: bytes) -> None:
        shape = _shape(line)
        if not shape:
            return
        reading.values.update(shape["values"])
        self._last.failed = shape["failed"]
        self._last.pending = {*shape["pending"], *shape["values"]}
        self._answered |= self._last.pending
        self._last.inventory = shape["inventory"]
        for key, text in self._last.inventory.items():
            if key.startswith("gpu.") and key.endswith(".uuid"):
                self._remember(text, key.split(".")[1])

    def _remember(self, uuid: str, number: str) -> None:
        if self._known.get(uuid) != number:
            self._known[uuid] = number
            if self._memory:
                self._memory.keep("nvidia", self._known)


_TABLES = ("values", "failed", "inventory")


def _shape(line: bytes) -> "dict[str, Any]":
    """The reading in a line of our process; empty for a line that the driver's library printed."""
    try:
        shape: Any = json.loads(line)
        if all(isinstance(shape[key], dict) for key in _TABLES) and _fits(shape):
            return shape
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return {}


def _fits(shape: "dict[str, Any]") -> bool:
    texts: list[Any] = [*shape["pending"], *shape["failed"].values(), *shape["inventory"].values()]
    tables: list[Any] = [*shape["values"].values()]
    return all(isinstance(t, str) for t in texts) and all(isinstance(t, dict) for t in tables)


def left_behind() -> int:
    """Pid of the NVML process of an earlier agent that still runs, stuck
    in the driver; 0 if there is none.
    """
    for folder in Path("/proc").iterdir():
        # Processes of other users and of containers cannot be checked.
        with contextlib.suppress(OSError, ValueError, IndexError):
            if folder.name.isdecimal() and _orphan(folder):
                return int(folder.name)
    return 0


def _waiting_of(pid: int) -> float:
    """Seconds that the driver has not answered this process of an
    earlier agent; 0 if that is not known.
    """
    with contextlib.suppress(OSError, ValueError, IndexError, struct.error):
        folder = Path("/proc") / str(pid)
        words = (folder / "cmdline").read_bytes().split(b"\0")
        handle = int(words[words.index(_COMMAND.encode()) + 1])
        since, _ = BOARD.unpack((folder / "fd" / str(handle)).read_bytes()[: BOARD.size])
        return max(0.0, time.monotonic() - since) if since else 0.0
    return 0.0


def _orphan(folder: Path) -> bool:
    words = (folder / "cmdline").read_bytes().split(b"\0")
    if _PROGRAM.encode() not in words:
        return False
    agent = words[words.index(_COMMAND.encode()) + 2]
    stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    same = (folder / "ns/pid").samefile("/proc/self/ns/pid")
    return same and stat.rpartition(")")[2].split()[1].encode() != agent


def _environment() -> dict[str, str]:
    """Our environment, with LIBRARY_VARIABLE's folder added to the loader's path."""
    name = "LD_LIBRARY_PATH"
    folders = (os.environ.get(LIBRARY_VARIABLE), os.environ.get(name))
    found = os.pathsep.join(filter(None, folders))
    return {**os.environ, name: found} if found else dict(os.environ)


def list_gpu_programs() -> list[dict[str, Any]]:
    """The processes that compute on GPUs: rows of gpu, instance, pid,
    bytes, use; raises OSError, ValueError.
    """
    process = NvmlProcess({"once": True})
    deadline = process.started + DEADLINE
    lines: list[bytes] = []
    while not lines:
        waited, what = process.waiting()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the driver did not answer in {waited:.0f} s ({what})")
        ended = process.ended()
        process.wait(0.1)
        lines = process.lines()
        if ended is not None and not lines:
            raise OSError(ended)
    found = json.loads(lines[0])
    if isinstance(found, dict):
        raise OSError(next(iter(found["failed"].values())))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    return found
