"""The embedded cluster: its files and processes, starting and stopping
it; its nodes outlive the console.
"""

import fcntl
import json
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rankdeck.config.document import write_documents
from rankdeck.config.files import create_private_folder, demo_folder, read_regular, write_user_file
from rankdeck.errors import RankdeckError
from rankdeck.model.json_tables import parse_table
from rankdeck.values import Value, value_table

NODES = ("sakuya", "sakura", "koishi")
SLOTS = 4
MARKER = "RANKDECK_DEMO"
"""Variable in the environment of all processes on virtual nodes,
by which `stop_demo` finds them.
"""


class DemoFolders(Value):
    """The files of one embedded cluster."""

    root: Path

    @property
    def cluster_file(self) -> Path:
        return self.root / "cluster.yaml"

    @property
    def known_hosts(self) -> Path:
        return self.root / "known_hosts"

    @property
    def identity(self) -> Path:
        return self.root / "id"

    @property
    def authorized(self) -> Path:
        return self.root / "id.pub"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    def node(self, name: str) -> Path:
        """The folder of one node: its home, its state, its log."""
        return self.root / "nodes" / name

    def host_key(self, name: str) -> Path:
        return self.node(name) / "host-key"

    def record(self, name: str) -> Path:
        return self.node(name) / "running.json"

    def log(self, name: str) -> Path:
        return self.node(name) / "log"


def search_path() -> str:
    """PATH on the nodes: this interpreter's folder first, for mpirun and torchrun."""
    own = str(Path(sys.executable).parent)
    return f"{own}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def current_user() -> str:
    """The name of the user who runs this, from the password file."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def demo_environment(layout: DemoFolders, name: str) -> dict[str, str]:
    """The environment of commands on the node, without the variables of this machine's session."""
    folder = layout.node(name)
    return {
        "HOME": str(folder / "home"),
        "USER": current_user(),
        "LOGNAME": current_user(),
        "SHELL": "/bin/sh",
        "PATH": search_path(),
        "LANG": "C.UTF-8",
        "RANKDECK_STATE": str(folder / "state"),
        "XDG_STATE_HOME": str(folder / "home/.local/state"),
        "XDG_CACHE_HOME": str(folder / "home/.cache"),
        "XDG_CONFIG_HOME": str(folder / "home/.config"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        MARKER: str(layout.root),
    }


class ProcessRecord(Value):
    """What a running node left on disk."""

    pid: int
    start: int
    """When `pid` began, in clock ticks after boot; tells it from a
    later process with the same pid.
    """
    port: int
    way: str
    """How the node is isolated: "root", "user", or "" for not at all."""
    why: str = ""
    """Why it is not isolated better."""
    python: str = ""
    """Where the Python that started it is installed (`sys.prefix`): the node may see no other."""

    def write(self, path: Path) -> None:
        """Write the record atomically."""
        write_user_file(path, json.dumps(value_table(self)))

    @property
    def alive(self) -> bool:
        return self.start == start_time(self.pid)


def read_record(path: Path) -> ProcessRecord | None:
    """The record of the last start; None if there is none or it cannot be read."""
    try:
        return ProcessRecord(**(parse_table(read_regular(path)) or {}))
    except (OSError, TypeError):
        return None


def start_time(pid: int) -> int | None:
    """When the process began, in clock ticks after boot; None: it is gone or a zombie."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])


def marked_processes(variable: str, value: str) -> Iterator[int]:
    """The pids of all other processes of this user with this variable in their environment."""
    wanted = f"{variable}={value}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            found = wanted in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if found:
            yield int(entry.name)


def end_all(records: Sequence[ProcessRecord], mark: tuple[str, str], limit: float) -> bool:
    """Kill the recorded and the marked processes; False if some are left after `limit` seconds."""
    deadline = time.monotonic() + limit
    while left := [*(one.pid for one in records if one.alive), *marked_processes(*mark)]:
        if time.monotonic() > deadline:
            return False
        for pid in left:
            kill_process(pid)
        time.sleep(0.02)
    return True


def kill_process(pid: int) -> None:
    """End the process now; one that is gone already is fine."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


_ADDRESS = "127.0.0.1"
EXPECTED: Mapping[str, object] = {
    "gpu_count": 4,
    "gpu_model": "Simulated",
    "rdma_count": 2,
    "rdma_rate_gbps": 400,
}
"""Expectations on the simulated devices of a node, so that a missing one is noticed."""


def make_folders(layout: DemoFolders) -> None:
    """Create the folders, and keys that do not exist yet."""
    for name in NODES:
        for part in ("home", "state", "run"):
            create_private_folder(layout.node(name) / part)
    wanted = {layout.host_key(name): f"rankdeck demo {name}" for name in NODES}
    wanted[layout.identity] = "rankdeck demo"
    for file, note in wanted.items():
        if not _has_key(file):
            _make_key(file, note)


def write_cluster(layout: DemoFolders, ports: Mapping[str, int], faults: Sequence[str]) -> None:
    """Write known_hosts and the cluster file for nodes on these ports."""
    known = [_known_host(layout, name, port) for name, port in ports.items()]
    write_user_file(layout.known_hosts, "".join(known))
    interface = _interface()
    nodes = [
        {"name": name, "address": _ADDRESS, "port": port, "slots": SLOTS, "interface": interface}
        for name, port in ports.items()
    ]
    content = {
        "cluster": "demo",
        "nodes": nodes,
        "ssh": {
            "user": current_user(),
            "identity": str(layout.identity),
            "known_hosts": str(layout.known_hosts),
            "config": "none",
            "python": sys.executable,
        },
        "simulate": ["gpu", "rdma", *faults],
        "expect": EXPECTED,
        "environment": {"PATH": search_path()},
    }
    write_user_file(layout.cluster_file, write_documents([content]))


def _interface() -> str:
    """The interface of the default route: Open MPI 5 uses loopback
    only if there is no other interface.
    """
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        name, destination, *_ = line.split()
        if destination == "00000000":
            return name
    return "lo"


def _known_host(layout: DemoFolders, name: str, port: int) -> str:
    key = public_part(layout.host_key(name)).read_text().strip()
    return f"[{_ADDRESS}]:{port} {key}\n"


def public_part(key: Path) -> Path:
    """The path of the public half of a key."""
    return key.with_name(f"{key.name}.pub")


def _has_key(key: Path) -> bool:
    return key.exists() and public_part(key).exists()


def _make_key(path: Path, comment: str) -> None:
    """Write a fresh key and its public half."""
    import asyncssh  # imported only here, because it is slow: a running demo does not need it

    key = asyncssh.generate_private_key(  # pyright: ignore[reportUnknownMemberType]
        "ssh-ed25519", comment=comment
    )
    write_user_file(path, key.export_private_key().decode())
    write_user_file(public_part(path), key.export_public_key().decode())


_START_LIMIT = 30.0
_END_LIMIT = 10.0


class DemoError(RankdeckError):
    """The embedded cluster cannot be brought up or down."""


class DemoNode(Value, kw_only=True):
    """A running virtual node."""

    name: str
    pid: int
    port: int
    isolated: bool
    """Whether the node has its own host name, processes and /tmp."""


class DemoStatus(Value, kw_only=True):
    """The state of the embedded cluster."""

    running: bool
    """Whether every node runs."""
    nodes: tuple[DemoNode, ...]
    file: Path
    """The cluster file."""
    note: str = ""
    """A sentence for the user if this machine cannot isolate nodes fully; else ""."""


def start_demo(faults: Sequence[str] = ()) -> Path:
    """Start the nodes that do not run yet; returns the cluster file. Raises DemoError.

    Nodes that another installation has started may not see this one: they are ended first.
    `faults` are as for `simulate:` in a cluster file, such as `gpu:hot@NODE`.
    """
    layout = _layout()
    with _alone(layout):
        make_folders(layout)
        live = _live_nodes(layout)
        if any(record.python != sys.prefix for record in live):
            _end(layout, live)
        _start(layout, [name for name in NODES if not _alive(layout, name)])
        ports = {node.name: node.port for node in demo_status().nodes}
        write_cluster(layout, ports, faults)
    return layout.cluster_file


def stop_demo() -> bool:
    """End every process of the embedded cluster; False if nothing ran."""
    layout = _layout()
    if not layout.root.is_dir():
        return False
    with _alone(layout):
        records = _live_nodes(layout)
        _end(layout, records)
    return bool(records)


def _end(layout: DemoFolders, records: Sequence[ProcessRecord]) -> None:
    if not end_all(records, (MARKER, str(layout.root)), _END_LIMIT):
        raise DemoError("some processes of the demo cluster do not end; see `ps`")


def demo_status() -> DemoStatus:
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
        running=len(nodes) == len(NODES), nodes=nodes, file=layout.cluster_file, note=note
    )


def _layout() -> DemoFolders:
    return DemoFolders(demo_folder())


def _live_nodes(layout: DemoFolders) -> list[ProcessRecord]:
    return [record for name in NODES if (record := _alive(layout, name))]


def _alive(layout: DemoFolders, name: str) -> ProcessRecord | None:
    record = read_record(layout.record(name))
    return record if record and record.alive else None


@contextmanager
def _alone(layout: DemoFolders) -> Generator[None]:
    """Lock out every other `start_demo` and `stop_demo` of this user."""
    create_private_folder(layout.root)
    with layout.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start(layout: DemoFolders, names: list[str]) -> None:
    """Start these nodes at once, and wait until each accepts connections."""
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


def _spawn(layout: DemoFolders, name: str) -> subprocess.Popen[bytes]:
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
