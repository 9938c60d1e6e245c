"""A node of the embedded demo whose agent lies, and commands tried on a terminal beside it."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.processes import descendants

from benchmarks.fault_plants import words_of
from benchmarks.fault_sites import DemoSite
from benchmarks.matrix.meter import metered
from benchmarks.measure import ROOT
from rankdeck.remote.bundle import build_bundle

LIAR = "koishi"
PROGRAM = ROOT / "tests/support/liar.py"
PYTHON = """\
#!/bin/sh
lie="$HOME/.cache/rankdeck/{program}"
case "$1 $2" in
"-ES "*.pyz) [ -e "$lie" ] && {{ shift 2; exec {real} "$lie" "$@"; }} ;;
esac
exec {real} "$@"
"""
CODES = range(6)
"""Exit codes that `status`, `run` and the other verbs have."""
LIMIT = 90.0
"""Seconds in which every command has to end, whatever a node says."""


def place(site: DemoSite) -> Path:
    """Where the agent of the lying node lies."""
    return site.layout.node(LIAR) / "home/.cache/rankdeck"


@contextmanager
def lying(
    site: DemoSite, kind: str, only: Sequence[str] = (), texts: Sequence[str] = (), **more: object
) -> Generator[None]:
    """One node lies so long; `only` names the words of the agent's command that do.

    The agent's file stays as it is, or the console would bring it anew: what lies is the Python
    that the cluster file names, on the node that has the program.
    """
    agent, folder = build_bundle(), place(site)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lie: dict[str, object] = {
        "kind": kind,
        "only": [*only],
        "texts": [*texts],
        "names": {},
        "command": "",
    }
    lie |= more
    (folder / "lie.json").write_text(json.dumps(lie))
    (folder / "real.pyz").write_bytes(agent.data)
    (folder / PROGRAM.name).write_bytes(PROGRAM.read_bytes())
    python = site.place() / "python"
    python.write_text(PYTHON.format(real=sys.executable, program=PROGRAM.name))
    python.chmod(0o700)
    file = Path(site.cluster)
    text = file.read_text()
    file.write_text(text.replace(sys.executable, str(python)))
    try:
        yield
    finally:
        (folder / PROGRAM.name).unlink()
        file.write_text(text)
        _end_liars(site)


def _end_liars(site: DemoSite) -> None:
    """Some go on lying after everybody has left."""
    for pid in descendants(site.first_process(LIAR)):
        if any(word.endswith(PROGRAM.name) for word in words_of(pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command did on its terminal."""

    code: int | None
    """None: it did not end in time and was killed."""
    written: bytes
    seconds: float
    memory: float

    def objects(self) -> list[dict[str, Any]]:
        """The JSON objects among its lines."""
        lines = self.written.decode("utf-8", "replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def faults(self) -> tuple[str, ...]:
        """What no command may do, whatever a node says."""
        text = self.written.decode("utf-8", "replace")
        said = [] if self.code is not None else [f"did not end in {self.seconds:.0f} s"]
        said += [f"ended with {self.code}"] if self.code not in (None, *CODES) else []
        said += [f"traceback: {text[-300:]}"] if "Traceback (most recent" in text else []
        return tuple(said)


def rankdeck(site: DemoSite, *words: str) -> list[str]:
    """The command line of a verb on this site."""
    return [sys.executable, "-m", "rankdeck", "-c", site.cluster, *words]


def on_terminal(
    argv: Sequence[str], env: Mapping[str, str], limit: float = LIMIT, cwd: str | None = None
) -> Ended:
    """Run a command on a terminal, and read all that it writes there."""
    master, slave = pty.openpty()
    began, pieces = time.monotonic(), list[bytes]()
    process = subprocess.Popen(
        argv, env={**env, "TERM": "xterm-256color"}, cwd=cwd, stdin=subprocess.DEVNULL,
        stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    try:
        with metered(process.pid) as cost:
            while data := _some(master, began + limit - time.monotonic()):
                pieces.append(data)
            ended = _end(process, began + limit - time.monotonic())
    finally:
        os.close(master)
    return Ended(ended, b"".join(pieces), time.monotonic() - began, cost.memory)


def _some(master: int, limit: float) -> bytes:
    if limit <= 0 or not select.select((master,), (), (), limit)[0]:
        return b""
    try:
        return os.read(master, 1 << 16)
    except OSError:  # the last of its processes has closed the terminal
        return b""


def _end(process: subprocess.Popen[bytes], limit: float) -> int | None:
    """Its exit code; None where it had to be killed."""
    try:
        return process.wait(max(limit, 0.1))
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        return None


JOB = """\
job: {name}
launch: plain
command: [sh, -c, '{script}']
nodes: 3
ranks_per_node: 1
grace: 1
"""


def job_file(site: DemoSite, name: str, script: str) -> str:
    """A job of one rank a node; the path of its file."""
    file = site.place() / f"{name}.yaml"
    file.write_text(JOB.format(name=name, script=script))
    return str(file)


def launched(site: DemoSite, name: str, script: str) -> str:
    """Launch it while nobody lies, and leave it running; its id."""
    return started(site, job_file(site, name, script))


def started(site: DemoSite, file: str) -> str:
    """Launch the job of a file and leave it running; its id."""
    done = subprocess.run(
        rankdeck(site, "run", file, "--no-preflight", "--detach", "--json"),
        env=site.environment(), capture_output=True, text=True, timeout=LIMIT, check=True,
    )  # fmt: skip
    return str(json.loads(done.stdout.splitlines()[-1])["job"])


def clean_up(site: DemoSite, job: str) -> None:
    """End what is left of a job once nobody lies, and forget the liar's files."""
    for name in ("lie.json", "real.pyz", "login.json"):
        (place(site) / name).unlink(missing_ok=True)
    argv = rankdeck(site, "cancel", job, "--grace", "0")
    subprocess.run(argv, env=site.environment(), capture_output=True, timeout=LIMIT, check=False)
