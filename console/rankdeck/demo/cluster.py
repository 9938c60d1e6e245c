"""Brings the embedded cluster up and down; its nodes outlive the console."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rankdeck.config.paths import state_folder
from rankdeck.config.private import private_folder
from rankdeck.demo import files
from rankdeck.demo.layout import MARKER, NODES, Layout
from rankdeck.demo.processes import Record, end_all, read_record
from rankdeck.errors import RankdeckError

_START_LIMIT = 30.0
_END_LIMIT = 10.0


class DemoError(RankdeckError):
    """The embedded cluster cannot be brought up or down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoNode:
    """One virtual node that runs."""

    name: str
    pid: int
    port: int
    isolated: bool
    """Has its own host name, processes and /tmp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStatus:
    """The embedded cluster now."""

    running: bool
    """Every node runs."""
    nodes: tuple[DemoNode, ...]
    file: Path
    """The cluster file."""
    note: str = ""
    """One sentence for the user where this machine cannot do all of it."""


def up(faults: Sequence[str] = ()) -> Path:
    """Start what does not run yet and give the cluster file; raises DemoError.

    `faults` as `simulate:` in a cluster file has them, e.g. gpu:hot@NODE.
    """
    layout = _layout()
    with _alone(layout):
        files.lay(layout)
        _start(layout, [name for name in NODES if not _alive(layout, name)])
        ports = {node.name: node.port for node in status().nodes}
        files.write_cluster(layout, ports, faults)
    return layout.cluster_file


def down() -> bool:
    """End every process of the embedded cluster; False where nothing ran."""
    layout = _layout()
    if not layout.root.is_dir():
        return False
    with _alone(layout):
        records = [record for name in NODES if (record := _alive(layout, name))]
        if not end_all(records, (MARKER, str(layout.root)), _END_LIMIT):
            raise DemoError("some processes of the demo cluster do not end; see `ps`")
    return bool(records)


def status() -> DemoStatus:
    """What runs now, read from the records of the last start."""
    layout = _layout()
    found = [(name, _alive(layout, name)) for name in NODES]
    live = [(name, record) for name, record in found if record]
    nodes = tuple(
        DemoNode(name=name, pid=record.pid, port=record.port, isolated=bool(record.way))
        for name, record in live
    )
    whys = [record.why or "refused" for _, record in live if not record.way]
    note = (
        f"The demo nodes share this machine's host name ({whys[0]}): MPI over two of them cannot run."
        if whys
        else ""
    )
    return DemoStatus(
        running=len(nodes) == len(NODES),
        nodes=nodes,
        file=layout.cluster_file,
        note=note,
    )


def _layout() -> Layout:
    return Layout(state_folder().absolute() / "demo")


def _alive(layout: Layout, name: str) -> Record | None:
    record = read_record(layout.record(name))
    return record if record and record.alive else None


@contextmanager
def _alone(layout: Layout) -> Generator[None]:
    """Hold off every other `up` and `down` of this user."""
    private_folder(layout.root)
    with layout.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start(layout: Layout, names: list[str]) -> None:
    """Start these nodes at once and wait until each accepts."""
    starting = [(name, _spawn(layout, name)) for name in names]
    for name, process in starting:
        try:
            failed = process.wait(_START_LIMIT) != 0
        except subprocess.TimeoutExpired:
            failed = True
            process.kill()
        if failed:
            end = layout.log(name).read_text(errors="replace").strip().splitlines()[-1:]
            raise DemoError(f"demo node {name} does not start: {''.join(end) or 'no answer'}")


def _spawn(layout: Layout, name: str) -> subprocess.Popen[bytes]:
    last = read_record(layout.record(name))
    argv = [sys.executable, "-m", "rankdeck.demo.node", str(layout.root), name]
    imports = os.pathsep.join(entry for entry in sys.path if entry)
    home = str(layout.root)
    with layout.log(name).open("wb") as log:
        return subprocess.Popen(
            [*argv, str(last.port if last else 0)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            env={"HOME": home, "PATH": os.defpath, "PYTHONPATH": imports, MARKER: home},
        )
