"""`sh`: one shell command of the operator on this node, with a time limit, ended with proof."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Optional

from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import table
from rankdeck_agent.names import JOB_VARIABLE, NODE_VARIABLE

_BLOCK = 65_536
_LONGEST = 16_384
"""Bytes of one line; the rest of it is another."""
_QUESTION = 1 << 20
_GRACE, _PROOF = 5.0, 2.0
"""Seconds from SIGTERM to SIGKILL, and from there to the last look."""
_POLL = 0.05
_DRAIN = 0.5
"""Seconds after the end for what it left in the background to close the output."""
_STREAMS = ("out", "err")


@dataclass
class _Stream:
    """One output of the command: its name in the answers, and the line that is not whole yet."""

    name: str
    rest: bytes = b""


@dataclass
class _Output:
    """What the command writes, told as lines, up to a limit."""

    most: int
    told: int = 0
    cut: int = 0
    """Bytes left out."""
    open: dict[int, _Stream] = field(default_factory=dict[int, _Stream])

    def take(self, descriptor: int) -> bool:
        """Read what there is and tell it; whether there may be more."""
        stream = self.open[descriptor]
        data = os.read(descriptor, _BLOCK)
        *lines, stream.rest = (stream.rest + data).split(b"\n")
        while len(stream.rest) >= _LONGEST:
            lines.append(stream.rest[:_LONGEST])
            stream.rest = stream.rest[_LONGEST:]
        if not data:
            self.flush(descriptor)
            return False
        self._tell(stream.name, lines)
        return True

    def flush(self, descriptor: int) -> None:
        """Tell the line that has no end."""
        stream = self.open.pop(descriptor)
        if stream.rest:
            self._tell(stream.name, [stream.rest])

    def _tell(self, name: str, lines: list[bytes]) -> None:
        kept: list[str] = []
        for line in lines:
            if self.cut or self.told + len(line) > self.most:
                self.cut += len(line) + 1
                continue
            self.told += len(line) + 1
            kept.append(line.decode("utf-8", "replace"))
        if kept:
            _say({name: kept})


def main() -> int:
    """Run the command that the first line on stdin names; the exit status says only whether it could be told.

    The line is `{"command": TEXT, "limit": SECONDS, "most": BYTES}`. Answers on stdout, one JSON object a
    line: `{"out": [LINE, …]}`, `{"err": [LINE, …]}`, and last `{"end": {…}}`. Whatever else comes on stdin,
    its end too, cancels the command: a console that is gone leaves nothing behind.
    """
    asked = _question()
    if asked is None:
        print('rankdeck: sh needs {"command": …, "limit": …, "most": …} on stdin', file=sys.stderr)
        return 2
    command, limit, most = asked
    began = time.monotonic()
    mark = f"sh-{os.getpid()}-{time.time_ns()}"
    process = subprocess.Popen(
        ("/bin/sh", "-c", command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, JOB_VARIABLE: mark, NODE_VARIABLE: ""},
        start_new_session=True,
    )
    output = _Output(most)
    why = _follow(process, output, began + limit)
    left = _end(process, mark) if why else []
    code = process.poll()
    for descriptor in list(output.open):
        output.flush(descriptor)
    _say(
        {
            "end": {
                "code": 128 - code if code is not None and code < 0 else code,
                "why": why,
                "left": left,
                "behind": 0 if why else len(_running(mark)),
                "cut": output.cut,
                "seconds": round(time.monotonic() - began, 3),
            }
        }
    )
    return 0


def _question() -> Optional[tuple[str, float, int]]:
    data = b""
    while not data.endswith(b"\n") and len(data) < _QUESTION:
        more = os.read(0, _BLOCK)
        if not more:
            break
        data += more
    raw = table(data.decode("utf-8", "replace")) or {}
    command, limit, most = raw.get("command"), raw.get("limit"), raw.get("most")
    if isinstance(command, str) and isinstance(limit, (int, float)) and isinstance(most, int):
        return command, float(limit), most
    return None


def _follow(process: "subprocess.Popen[bytes]", output: _Output, deadline: float) -> str:
    """Tell what it writes until it is over; why it must be ended, "" where it ended by itself."""
    chosen = selectors.DefaultSelector()
    chosen.register(0, selectors.EVENT_READ)
    for pipe, name in zip((process.stdout, process.stderr), _STREAMS):
        assert pipe is not None
        output.open[pipe.fileno()] = _Stream(name)
        chosen.register(pipe.fileno(), selectors.EVENT_READ)
    over: Optional[float] = None
    while output.open or over is None:
        now = time.monotonic()
        if over is None and process.poll() is not None:
            over = now
        if over is None and now >= deadline:
            return "limit"
        if over is not None and now - over > _DRAIN:
            break
        if _read(chosen, output):
            return "cancelled"
    return ""


def _read(chosen: selectors.BaseSelector, output: _Output) -> bool:
    """Tell what has come since; whether it is cancelled."""
    for key, _ in chosen.select(_POLL):
        if key.fd == 0:
            return True
        if not output.take(key.fd):
            chosen.unregister(key.fd)
    return False


def _running(mark: str) -> dict[int, processes.Process]:
    return processes.belonging(mark, "", os.getpid())


def _end(process: "subprocess.Popen[bytes]", mark: str) -> list[dict[str, Any]]:
    """SIGTERM, a grace, SIGKILL, and a look: what would not end."""
    found = _running(mark)
    for number, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _PROOF)):
        told: set[int] = set()
        deadline = time.monotonic() + patience
        while found and time.monotonic() < deadline:
            # What was started meanwhile is told too.
            processes.send(found, found.keys() - told, number)
            told |= found.keys()
            time.sleep(_POLL)
            process.poll()
            found = _running(mark)
    return [processes.named(row) for row in found.values()]


def _say(row: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()
