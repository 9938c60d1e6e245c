"""The RDMA lab: two virtual machines with kernels of their own and real RDMA (Soft-RoCE).

QEMU emulates them in software, so neither KVM nor a module of this machine's kernel is needed.
Debian's kernel has rdma_rxe; eth1 of both is one cable (10.9.0.0/24), and the console reaches their
sshd through a port on loopback. Image and a snapshot of the running machines are made once and kept
in the cache folder: a lab is up in seconds. It takes the cores of a small machine, so tests skip
unless RANKDECK_RDMA_LAB is set, as `make rdma` does.

A test that cuts the link, fills the disk or reboots must undo that: all tests share one lab.
`python -m tests.support.rdma_lab` brings one up by hand.
"""

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.commands import Commands
from tests.support.lab import images
from tests.support.programs import search_path
from tests.support.rdma_lab.machine import HARDWARE, QEMU, Machine

__all__ = ["RdmaLab", "missing", "rdma_lab", "running"]
_SCRIPTS = Path(__file__).parent
_TO_RUN = (QEMU, "qemu-img", "setpriv", "ssh")
_TO_BUILD = ("mmdebstrap", "apt-get", "chroot", "cpio", "mke2fs", "ssh-keygen", "unshare")
NAMES = ("rxe1", "rxe2")
SWITCH = "RANKDECK_RDMA_LAB"
_REPOSITORY = Path(__file__).resolve().parents[3]


def _recipe() -> Iterator[bytes]:
    """What the images depend on; a snapshot is of one version of QEMU."""
    for file in sorted(_SCRIPTS.glob("*.sh")):
        yield file.read_bytes()
    yield repr(HARDWARE).encode()
    if program := shutil.which(QEMU, path=search_path()):
        yield subprocess.run([program, "--version"], capture_output=True, check=True).stdout


@functools.cache
def _images() -> Path:
    return images.place_of("rankdeck-rdma-lab", _recipe())


if os.environ.get(SWITCH):
    _images()  # before any test gets folders of its own


@functools.cache
def missing() -> str:
    """Build the images if needed; why the lab cannot run here, "" if it can."""
    if not os.environ.get(SWITCH):
        return f"the RDMA lab needs {SWITCH}=1 (`make rdma`)"
    if lacking := _lacking(_TO_RUN):
        return f"the RDMA lab needs {lacking}"
    if not _images().exists():
        if lacking := _lacking(_TO_BUILD):
            return f"the RDMA lab needs {lacking}, to make its machines"
        if os.geteuid() != 0:
            return "the RDMA lab needs root, to make its machines"
    return images.make_images(_images(), "the machines of the RDMA lab", _build)


def _lacking(programs: tuple[str, ...]) -> str:
    return ", ".join(one for one in programs if not shutil.which(one, path=search_path()))


def _build(place: Path, log: Path) -> None:
    """Make the files, start both machines, and take the snapshot; raises OSError or
    SubprocessError.
    """
    images.run_build([str(_SCRIPTS / "image.sh"), str(place)], log)
    machines = [Machine(place, place, number) for number in (1, 2)]
    try:
        for one in machines:
            one.boot()
        for one in machines:
            one.wait_for_boot()
        for one in machines:
            one.freeze()
    except AssertionError as error:
        raise OSError(str(error)) from error
    finally:
        for one in machines:
            one.end()


class RdmaLab:
    """A running lab; `machines` by name."""

    nodes = NAMES

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines = {
            name: Machine(_images(), folder, number) for number, name in enumerate(NAMES, start=1)
        }
        self._commands = Commands()
        self._lock = _images().with_suffix(".lock").open("w")

    def up(self) -> None:
        """Restore both machines."""
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        for one in self.machines.values():
            one.restore()
        key = " ".join((_images() / "hostkey.pub").read_text().split()[:2])
        known = "".join(f"[127.0.0.1]:{one.port} {key}\n" for one in self.machines.values())
        (self.folder / "known_hosts").write_text(known)
        shutil.copy(_images() / "id", self.folder / "id")
        (self.folder / "id").chmod(0o600)

    def down(self) -> None:
        """End both machines, and every command."""
        self._commands.close()
        for one in self.machines.values():
            one.end()
        self._lock.close()

    def run(self, node: str, command: str, limit: float = 60.0) -> str:
        """Run a shell command on a node as root; fails if its status is not 0."""
        return self.machines[node].run(command, limit)

    def sent_packets(self) -> int:
        """RDMA packets that both nodes have sent."""
        counter = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"
        return sum(int(self.run(node, f"cat {counter}")) for node in self.nodes)

    def rankdeck(self, *args: str, limit: float = 240.0) -> "subprocess.CompletedProcess[str]":
        """Run our own command line: `lab.rankdeck("-c", str(file), "status")`."""
        return self._commands.run(args, self.environment(), limit)

    def environment(self) -> dict[str, str]:
        """Environment of the console: folders of this lab alone, this checkout's code."""
        home = self.folder / "console"
        return {
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PATH": search_path(),
            "PYTHONPATH": f"{_REPOSITORY / 'console'}:{_REPOSITORY / 'agents'}",
            "RANKDECK_STATE": str(home / "state"),
            "XDG_STATE_HOME": str(home / ".local/state"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "XDG_CONFIG_HOME": str(home / ".config"),
        }

    def cluster_file(self, patience: int = 18, **more: Any) -> Path:
        """Write the cluster file: nodes may take `patience` times as long as usual; `more` are
        further sections, `node` adds to both nodes.
        """
        per_node = more.pop("node", {})
        usual = {"address": "127.0.0.1", "slots": 2, "rdma": 1, "interface": "eth1"}
        nodes = [
            {"name": name, **usual, "port": one.port, **per_node}
            for name, one in self.machines.items()
        ]
        access = {
            "user": "lab",
            "identity": str(self.folder / "id"),
            "known_hosts": str(self.folder / "known_hosts"),
            "config": "none",
            "connect_limit": 10 * patience,
            "patience": patience,
        }
        content = {"cluster": "rxe", "nodes": nodes, "ssh": access, "network": "10.9.0.0/24"}
        file = self.folder / "cluster.yaml"
        file.write_text(yaml.safe_dump({**content, **more}, sort_keys=False))
        return file


@contextmanager
def running() -> Iterator[RdmaLab]:
    """A lab in a folder of its own, up until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="rdma.") as folder:
        lab = RdmaLab(Path(folder).resolve())
        try:
            lab.up()
            yield lab
        finally:
            lab.down()


@pytest.fixture(scope="session")
def rdma_lab() -> Iterator[RdmaLab]:
    """Give two nodes rxe1 and rxe2 with real RDMA; skips the test where there can be none."""
    if why := missing():
        pytest.skip(why)
    with running() as lab:
        yield lab
