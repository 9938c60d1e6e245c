"""One virtual machine in software emulation, with an RDMA device: QEMU, its monitor, and a hand
that runs commands as root.
"""

import base64
import contextlib
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.polling import wait_until

QEMU = "qemu-system-x86_64"
# The timers of a restored HPET never fire.
HARDWARE = (
    *("-accel", "tcg,thread=multi", "-cpu", "max", "-machine", "q35,hpet=off"),
    *("-m", "768", "-smp", "2"),
)
"""What a snapshot can be restored on."""
_KERNEL = "console=ttyS0 quiet panic=1 mitigations=off"
_SAID = re.compile(r"hand: (\d+) (\S*)\r?\n")
_FORWARD = re.compile(r"HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)")
_UP_LIMIT = 600.0
"""Seconds: an emulated processor among many busy ones is slow."""


class Machine:
    """Machine `number` (1 or 2) of a lab; `images` has what image.sh made, `folder` all else."""

    def __init__(self, images: Path, folder: Path, number: int) -> None:
        self.images, self.folder, self.number = images, folder, number
        self.name = f"rxe{number}"
        self.disk = folder / f"{self.name}.qcow2"
        self._process: subprocess.Popen[bytes] | None = None

    # ---- up and down ------------------------------------------------------------------

    def boot(self) -> None:
        """Start it on a new disk; `wait_for_boot` waits until it is there."""
        self._make_disk(self.images / "root.img", "raw")
        self._start()

    def wait_for_boot(self, times: int = 1) -> None:
        """Wait until it has said so often, since it was started, that it is ready."""
        wait_until(lambda: self._alive() and self.console().count("is ready") >= times, _UP_LIMIT)

    def restore(self) -> None:
        """Start it where `freeze` left it; sets its clock."""
        self._make_disk(self.images / f"{self.name}.qcow2", "qcow2")
        self._start("-incoming", f"exec:cat '{self.images}/{self.name}.state'")
        wait_until(lambda: self._status() == "paused", _UP_LIMIT)
        self.tell("cont")
        self.set_clock()

    def freeze(self) -> None:
        """Write its memory and its disk beside the images, and end it."""
        self.tell("stop")
        self.tell("migrate-set-parameters", **{"max-bandwidth": 1 << 33})
        state = self.images / f"{self.name}.state"
        self.tell("migrate", uri=f"exec:cat > '{state}'")
        wait_until(lambda: self.tell("query-migrate")["status"] == "completed", _UP_LIMIT)
        self.end()

    def end(self) -> None:
        """End it at once, as if its power were cut."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    def _alive(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} has ended: {self.log()}"
        return True

    def _make_disk(self, below: Path, kind: str) -> None:
        self.disk.unlink(missing_ok=True)
        # By its name alone where it stands beside: images are renamed when they are complete.
        base = below.name if below.parent == self.folder else str(below)
        make = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", kind, self.disk]
        subprocess.run(make, check=True, timeout=60)

    def _start(self, *more: str) -> None:
        here, other = self._socket("net"), self.folder / f"net{3 - self.number}"
        mac = f"52:54:00:00:{{}}:0{self.number}"
        link = f"local.type=unix,local.path={here},remote.type=unix,remote.path={other}"
        command = [
            QEMU, *HARDWARE, "-display", "none", "-nodefaults",
            "-kernel", f"{self.images}/vmlinuz", "-initrd", f"{self.images}/early.cpio",
            "-append", f"{_KERNEL} node={self.number}",
            "-drive", f"file={self.disk},if=virtio,cache=unsafe",
            "-netdev", "user,id=outer,restrict=on,hostfwd=tcp:127.0.0.1:0-:22",
            "-device", f"virtio-net-pci,netdev=outer,id=eth0,mac={mac.format('01')}",
            "-netdev", f"dgram,id=inner,{link}",
            "-device", f"virtio-net-pci,netdev=inner,id=eth1,mac={mac.format('02')}",
            "-serial", f"file:{self.folder}/{self.name}.console",
            "-chardev", f"socket,id=hand,path={self._socket('hand')},server=on,wait=off",
            "-serial", "chardev:hand",
            "-qmp", f"unix:{self._socket('qmp')},server=on,wait=off", *more,
        ]  # fmt: skip
        with (self.folder / f"{self.name}.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        wait_until(lambda: self._alive() and self._socket("qmp").exists(), _UP_LIMIT)

    def _socket(self, kind: str) -> Path:
        return self.folder / f"{kind}{self.number}"

    # ---- use --------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """Where its sshd listens on loopback."""
        shown = self.tell("human-monitor-command", **{"command-line": "info usernet"})
        found = _FORWARD.search(shown)
        assert found is not None, shown
        return int(found[1])

    def console(self) -> str:
        """What its kernel and its first process have written."""
        file = self.folder / f"{self.name}.console"
        return file.read_text(errors="replace") if file.exists() else ""

    def log(self) -> str:
        """What QEMU and the console say."""
        said = (self.folder / f"{self.name}.log").read_text(errors="replace")
        return f"{said}\n{self.console()[-4000:]}"

    def tell(self, command: str, **arguments: Any) -> Any:
        """Give QEMU's monitor a command; returns its answer."""
        with self._connected("qmp", 60.0) as monitor:
            stream = monitor.makefile("rw")
            for name, values in (("qmp_capabilities", {}), (command, arguments)):
                stream.write(json.dumps({"execute": name, "arguments": values}) + "\n")
            stream.flush()
            # A greeting, an answer to each command, and events at any time.
            answers = (one for one in map(json.loads, stream) if {"return", "error"} & set(one))
            next(answers)
            answer = next(answers)
        assert "return" in answer, answer
        return answer["return"]

    def run(self, command: str, limit: float = 60.0) -> str:
        """Run a shell command as root, also without a network; returns its output.

        Fails if its status is not 0, and if the machine does not answer within `limit` seconds.
        """
        assert "\n" not in command
        with self._connected("hand", limit) as hand:
            hand.sendall(f"{command}\n".encode())
            heard = ""
            while not (said := _SAID.search(heard)):
                heard += hand.recv(1 << 16).decode(errors="replace")
        text = base64.b64decode(said[2]).decode(errors="replace")
        assert said[1] == "0", f"{self.name}: {command}: status {said[1]}: {text}"
        return text

    def poke(self, command: str) -> None:
        """Run a shell command as root in a second, after which the machine may be gone."""
        self.run(f"(sleep 1; {command}) >/dev/null 2>&1 &")

    def set_clock(self, ahead: float = 0.0) -> None:
        """Set its clock to this machine's, or `ahead` seconds more."""
        tries: list[tuple[float, float]] = []
        for _ in range(3):
            asked = time.time()
            theirs = float(self.run("date +%s.%N"))
            heard = time.time()
            tries.append((heard - asked, (asked + heard) / 2 - theirs))
        # The quickest answer says most; a relative step does not depend on when it is made.
        self.run(f"date -s 'now {min(tries)[1] + ahead:+.3f} seconds'")

    def connect_link(self, up: bool) -> None:
        """Plug in or pull out the cable between the two machines, at this one."""
        self.tell("set_link", name="eth1", up=up)

    def _status(self) -> str:
        self._alive()
        return str(self.tell("query-status")["status"])

    @contextlib.contextmanager
    def _connected(self, kind: str, limit: float) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(limit)
            channel.connect(str(self._socket(kind)))
            yield channel
