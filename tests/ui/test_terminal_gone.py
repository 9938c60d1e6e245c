"""A console whose terminal is gone ends in seconds, spins in no loop and leaves nothing behind."""

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# A console in a real terminal: a starved machine may be too late once.
pytestmark = pytest.mark.slow

START = 60.0
READY = b"STATE"
END = 20.0
"""Seconds from the loss of the terminal to the end, where others have the processor."""
MOST_CPU = 1.5
"""Seconds of a core that the end may take; one that spins takes all of END."""
PREVIEW = (sys.executable, "-m", "tests.ui.preview", "3", "--patient")
ENVIRONMENT = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "", "TMUX": ""}
HUNG_UP = 128 + signal.SIGHUP
NEVER_CLOSES = """
import asyncio, contextlib, sys, time
from rankdeck.ui import app
from rankdeck.config.user import UiSettings
from tests.ui.support import sample
from tests.ui.support.stage import cluster_of

@contextlib.asynccontextmanager
async def open_session():
    yield sample.fleet(3, cluster=cluster_of(3, "preview"))[0]
    {hang}

app.LEAVE_LIMIT = {limit}
sys.exit(app.run_console(lambda _: open_session(), UiSettings(), cluster=cluster_of(3, "preview")))
"""


def never_closes(hang: str, limit: float = 5) -> tuple[str, ...]:
    """A console whose session does this when it is closed; `limit` is
    the console's patience in seconds.
    """
    script = NEVER_CLOSES.replace("{hang}", hang).replace("{limit}", str(limit))
    return sys.executable, "-c", script


Pair = tuple[int, int]


def new_terminal() -> Pair:
    """The far side and the near side of a terminal of 120 x 40."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    return master, slave


def read(master: int) -> bytes:
    if not select.select((master,), (), (), 0.05)[0]:
        return b""
    try:
        return os.read(master, 1 << 16)
    except OSError:
        return b""


def read_until(master: int, text: bytes, limit: float = START) -> bytes:
    seen, deadline = b"", time.monotonic() + limit
    while text not in seen:
        assert time.monotonic() < deadline, seen[-1500:]
        seen += read(master)
    return seen


class Console:
    """A console on a terminal of its own."""

    def __init__(
        self,
        argv: tuple[str, ...] = PREVIEW,
        *,
        own: bool = True,
        ignore: bool = True,
        inputs: Pair | None = None,
    ) -> None:
        """`own`: it controls the console; `ignore`: SIGHUP is, from
        before; `inputs`: keys come from there.
        """
        self.master, slave = new_terminal()
        self.name, self.attributes = os.ttyname(slave), termios.tcgetattr(slave)[:4]
        self.inputs, keys = inputs or (self.master, slave)
        self._open = {self.master, self.inputs}

        def prepare() -> None:
            if own:
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_IGN if ignore else signal.SIG_DFL)

        self.process = subprocess.Popen(
            argv,
            env=ENVIRONMENT,
            stdin=keys,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=prepare,
        )
        for near in {slave, keys}:
            os.close(near)

    def hang_up(self, far: int) -> None:
        """Close the far side of a terminal, `master` or `inputs`, as an emulator that has ended."""
        self._open.remove(far)
        os.close(far)

    def end(self) -> int:
        """Wait for the end; gives the status. It comes in time, and without spinning."""
        pid, before = self.process.pid, cpu(self.process.pid)
        begun = time.monotonic()
        while not has_ended(pid):
            assert time.monotonic() < begun + END, f"{cpu(pid) - before:.1f} s CPU"
            time.sleep(0.02)
        assert cpu(pid) - before < MOST_CPU
        return self.process.wait(1)

    def close(self) -> None:
        for far in [*self._open]:
            self.hang_up(far)
        self.process.kill()
        self.process.wait(END)


def cpu(pid: int) -> float:
    """Seconds of a core that a process has used; those of a zombie are still there."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


Open = Callable[..., Console]


@pytest.fixture
def console() -> Iterator[Open]:
    opened: list[Console] = []

    def start(*arguments, ready: bytes = READY, **options) -> Console:
        opened.append(Console(*arguments, **options))
        read_until(opened[-1].master, ready)
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.mark.parametrize("own", [True, False], ids=["controlling", "another's"])
@pytest.mark.parametrize("ignore", [True, False], ids=["ignores SIGHUP", "heeds it"])
def test_a_console_ends_when_its_terminal_is_closed(console: Open, own: bool, ignore: bool) -> None:
    shown = console(own=own, ignore=ignore)

    shown.hang_up(shown.master)

    assert shown.end() == HUNG_UP


def test_a_console_ends_when_nobody_can_press_a_key_any_more(console: Open) -> None:
    shown = console(own=False, inputs=new_terminal())

    shown.hang_up(shown.inputs)

    seen = b""
    while not has_ended(shown.process.pid):
        seen += read(shown.master)
    assert shown.end() == HUNG_UP
    assert b"\x1b[?1049l" in seen


def test_a_console_ends_when_nobody_can_see_it_any_more(console: Open) -> None:
    shown = console(own=False, inputs=new_terminal())

    shown.hang_up(shown.master)

    assert shown.end() == HUNG_UP


def test_a_console_ends_when_a_terminal_that_took_nothing_is_closed(
    console: Open,
) -> None:
    shown = console()
    # Every redraw sends some kilobytes, and nobody reads them.
    for _ in range(40):
        os.write(shown.master, b"\x0c2\x0c1")
        time.sleep(0.05)

    shown.hang_up(shown.master)

    assert shown.end() == HUNG_UP


@pytest.mark.parametrize(
    "hang", ["await asyncio.sleep(60)", "time.sleep(60)"], ids=["waits", "blocks"]
)
def test_a_session_that_does_not_close_holds_up_no_end(console: Open, hang: str) -> None:
    shown = console(never_closes(hang))

    shown.hang_up(shown.master)

    assert shown.end() in (HUNG_UP, -signal.SIGALRM)


def test_a_console_ends_when_its_terminal_is_revoked(console: Open) -> None:
    if os.getuid():
        pytest.skip("needs root")
    shown = console()

    def take() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        fcntl.ioctl(os.open(shown.name, os.O_RDWR), termios.TIOCSCTTY, 1)

    subprocess.run(
        [sys.executable, "-c", "import ctypes; ctypes.CDLL(None).vhangup()"],
        start_new_session=True,
        check=True,
        timeout=END,
        preexec_fn=take,
    )

    assert shown.end() == HUNG_UP


@pytest.fixture
def strays() -> Iterator[list[int]]:
    """Processes that are no children of ours; none is left after a test that failed."""
    found: list[int] = []
    yield found
    for pid in found:
        if not has_ended(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_console_ends_when_the_server_of_tmux_is_killed(
    tmp_path: Path, strays: list[int]
) -> None:
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    told, server = tmp_path / "pid", ("tmux", "-S", str(tmp_path / "socket"))
    # As `make demo` under `nohup`: a parent in between, and nobody heeds SIGHUP.
    line = f"trap '' HUP; sh -c 'echo $$ >{told}; exec {' '.join(PREVIEW)}'; true"
    start = ("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", line)
    subprocess.run([*server, *start], env=ENVIRONMENT, check=True, timeout=START)
    deadline = time.monotonic() + START
    while b"STATE" not in pane(server):
        assert time.monotonic() < deadline, pane(server)
        time.sleep(0.1)
    pid = int(told.read_text())
    strays.append(pid)
    before, begun = cpu(pid), time.monotonic()

    subprocess.run([*server, "kill-server"], check=True, timeout=START)

    used = before
    while not has_ended(pid):
        used = cpu_of_any(pid, used)
        assert time.monotonic() < begun + END, f"{used - before:.1f} s CPU"
        time.sleep(0.02)
    assert used - before < MOST_CPU


def pane(server: tuple[str, ...]) -> bytes:
    argv = [*server, "capture-pane", "-p"]
    return subprocess.run(argv, capture_output=True, check=False, timeout=END).stdout


def cpu_of_any(pid: int, otherwise: float) -> float:
    try:
        return cpu(pid)
    except OSError:
        return otherwise


def test_a_console_ends_when_its_parent_is_killed_and_the_shell_takes_the_terminal(
    tmp_path: Path, console: Open, strays: list[int]
) -> None:
    if not shutil.which("bash"):
        pytest.skip("bash is not installed")
    made, told = tmp_path / "make", tmp_path / "pid"
    shell = console(("bash", "--norc", "--noediting", "-i"), ready=b"bash-")
    # A job of the shell with the console in it, as `make demo` is one.
    line = (
        f"sh -c 'echo $$ >{made}; sh -c \"echo \\$\\$ >{told}; exec {' '.join(PREVIEW)}\"; true'\n"
    )
    os.write(shell.master, line.encode())
    read_until(shell.master, READY)
    pid = int(told.read_text())
    strays.append(pid)

    os.kill(int(made.read_text()), signal.SIGKILL)

    seen, begun = b"", time.monotonic()
    while not has_ended(pid):
        assert time.monotonic() < begun + END, seen[-500:]
        seen += read(shell.master)
    assert b"Traceback" not in seen
    assert is_sane(seen)


# ---- what the terminal is left like ---------------------------------------------------

OFF = (1000, 1003, 1004, 1006, 1015, 1049, 2004)
"""Mouse, focus, alternate screen, bracketed paste."""
ON = (7, 25)
"""Wrapping of lines, cursor."""


def is_sane(seen: bytes) -> bool:
    """Whether the last that was said of each mode leaves a terminal as a shell wants it."""
    wanted = {**dict.fromkeys(OFF, b"l"), **dict.fromkeys(ON, b"h")}
    return all(
        seen.rfind(b"\x1b[?%d%s" % (mode, good)) > seen.rfind(b"\x1b[?%d%s" % (mode, bad))
        for mode, good in wanted.items()
        for bad in (b"h" if good == b"l" else b"l",)
    ) and seen.rfind(b"\x1b[<u") > seen.rfind(b"\x1b[>")


def rest_of(shown: Console) -> bytes:
    """All that it writes until its end."""
    seen, deadline = b"", time.monotonic() + END
    while not has_ended(shown.process.pid):
        assert time.monotonic() < deadline, seen[-500:]
        seen += read(shown.master)
    while data := read(shown.master):
        seen += data
    return seen


def attributes(shown: Console) -> list[object]:
    return termios.tcgetattr(shown.master)[:4]


def is_pending(pid: int) -> bool:
    """Whether a signal has not been taken yet."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return any(int(line.split()[1], 16) for line in lines if "Pnd:" in line)


@pytest.mark.parametrize(
    ("how", "status"),
    [("q", 0), (signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)],
    ids=["q", "SIGTERM", "SIGINT", "SIGHUP"],
)
def test_the_terminal_is_as_before_when_the_console_has_ended(
    console: Open, how: str | signal.Signals, status: int
) -> None:
    shown = console()

    if isinstance(how, str):
        os.write(shown.master, how.encode())
    else:
        shown.process.send_signal(how)

    assert is_sane(rest_of(shown))
    assert attributes(shown) == shown.attributes
    assert shown.process.wait(1) == status


def test_a_second_signal_does_not_wait_for_a_session_that_does_not_close(
    console: Open,
) -> None:
    shown = console(never_closes("await asyncio.sleep(600)", limit=500))
    begun = time.monotonic()

    for _ in range(2):
        shown.process.send_signal(signal.SIGINT)
        while is_pending(shown.process.pid):  # The kernel would make one of two.
            assert time.monotonic() < begun + END

    assert is_sane(rest_of(shown))
    assert shown.process.wait(1) == 130
