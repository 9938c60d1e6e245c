"""The console on the wall of a job, whose keys are pressed and timed under load."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyte

from benchmarks.fault_sites import AnySite
from benchmarks.matrix.meter import Cost, metered
from benchmarks.matrix.scene import rankdeck
from benchmarks.measure import cpu_of
from benchmarks.terminal import SIZE, Terminal, terminal

LIMIT = 60.0
_KEY = b"\t"
_PAINTED = "━".encode()
"""Tab moves the focus from pane to pane: the frame of the one that has it is heavy."""
_PAINT_LIMIT = 20.0
_PAUSE = 0.15


@dataclass(slots=True)
class ConsoleInPty:
    """The console; `terminal` is the side at which a person sits."""

    terminal: Terminal
    pid: int
    cost: Cost
    keys: list[float] = field(default_factory=list[float])
    """Milliseconds of CPU of the console from each key to its picture: with a whole core for it,
    the time that the key takes; on a busy machine, other programs' time is left out."""

    def press(self) -> None:
        """Press a key and wait for its picture; raises RuntimeError where none comes."""
        before = cpu_of(self.pid)
        self.terminal.write(_KEY)
        if not self.terminal.wait_for(_PAINTED, _PAINT_LIMIT):
            raise RuntimeError(f"no picture of a key in {_PAINT_LIMIT:.0f} s")
        self.keys.append((cpu_of(self.pid) - before) * 1000)

    def type_for(self, seconds: float) -> None:
        """Press keys all the time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.press()
            self.terminal.read_for(_PAUSE)

    def screen(self, seconds: float) -> str:
        """What stands on the screen after so many more seconds; a
        picture of all of it is asked for.
        """
        page = pyte.Screen(SIZE[1], SIZE[0])
        stream = pyte.ByteStream(page)
        self.terminal.write(b"\x0c")
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            stream.feed(self.terminal.read(left))
        return "\n".join(line.rstrip() for line in page.display)


@contextmanager
def console_in_pty(site: AnySite, job: str) -> Generator[ConsoleInPty]:
    """The console on the wall of a job, ended afterwards."""
    argv = rankdeck(site, "attach", job)
    with terminal(argv, {**site.environment(), "LC_ALL": "C.UTF-8"}) as shown:
        pid = shown.pid
        with metered(pid) as cost:
            if not shown.wait_for(_PAINTED, LIMIT):
                raise RuntimeError("the job never came on the screen")
            yield ConsoleInPty(shown, pid, cost)
