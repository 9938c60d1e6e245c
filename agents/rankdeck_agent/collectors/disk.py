"""Disks: space on mounts, bytes and progress of whole disks. Network mounts are never touched from here."""

import os
import re
from dataclasses import dataclass
from typing import Optional

from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.collectors.network_mounts import SPACE, MountSpace, NetworkMounts
from rankdeck_agent.files import Tree, clean

_LOCAL = frozenset(
    "ext2 ext3 ext4 xfs btrfs zfs f2fs jfs reiserfs bcachefs vfat exfat ntfs3 overlay tmpfs".split()  # noqa: SIM905
)
_MEMORY_MOUNTS = ("/", "/dev/shm", "/tmp")
"""Of those without a disk of their own, these matter to a job."""
_PSEUDO = frozenset(
    "proc sysfs devtmpfs devpts cgroup cgroup2 mqueue hugetlbfs securityfs debugfs tracefs pstore "  # noqa: SIM905
    "bpf efivarfs configfs fusectl binfmt_misc rootfs ramfs squashfs iso9660 nsfs selinuxfs".split()
)
_READONLY = ("disk.readonly", "disk.forced_readonly")
_RO = frozenset({"ro", "emergency_ro"})
_WHOLE = re.compile(rb"(?:sd|vd|hd|xvd|dasd)[a-z]+|nvme\d+n\d+|mmcblk\d+|pmem\d+")
_DISKS = ("disk.read", "disk.write", "disk.io_stuck")
_MOUNT_LIMIT = 64
_ESCAPE = re.compile(r"\\([0-7]{3})")
_AUTOMATIC = "autofs"
"""To look at it would mount what it stands for."""
_OURS = re.compile(
    r"fuse\.(?:lxcfs|gvfsd-fuse|portal|snapfuse|squashfuse|rootlesskit.*|fuse-overlayfs)"
)
"""Served by a program of this machine, of no interest to a job."""
_SPACE_EVERY = 5.0


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo."""

    path: str
    kind: str
    device: str
    readonly: bool
    forced: bool
    """Read-only by the file system, not by who mounted it: what the kernel does after errors."""


@dataclass(frozen=True)
class Disk:
    """A whole disk in diskstats: bytes, requests done, and requests it has not answered."""

    name: str
    read: int
    written: int
    done: int
    in_flight: int


class DiskCollector:
    """Space per mount, bytes and progress per whole disk."""

    name = "disk"
    lane = "disk"
    period = 0.0
    metrics: tuple[str, ...] = (
        *SPACE,
        *_READONLY,
        "disk.mounted",
        "disk.stuck",
        *_DISKS,
    )

    def __init__(self, root: str = "/", network: Optional[NetworkMounts] = None) -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._raw = b""
        self._mounts: tuple[Mount, ...] = ()
        self._remote: tuple[str, ...] = ()
        # Under another root the mounts are those of another machine: nobody to ask.
        ours = NetworkMounts() if root == "/" else None
        self._network = network or ours
        self._progress: dict[str, tuple[int, float]] = {}
        self._looked = -_SPACE_EVERY
        self._space = Reading()

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if now - self._looked >= _SPACE_EVERY:
            self._looked, self._space = now, self._read_space()
        _copy(self._space, reading)
        self._ask_network(reading, now)
        reading.attempt(_DISKS, lambda: self._disks(reading, now))
        return reading

    def _ask_network(self, reading: Reading, now: float) -> None:
        if self._network is not None:
            self._network.put(reading, self._remote, now)
            return
        for path in self._remote:
            reading.put("disk.mounted", 1, path)

    def _read_space(self) -> Reading:
        reading = Reading()
        reading.attempt((*SPACE, *_READONLY, "disk.mounted"), self._look)
        for mount in self._mounts:
            self.doing = mount.path
            reading.attempt(SPACE, lambda m=mount: self._ask(reading, m), mount.path)
            reading.put("disk.readonly", int(mount.readonly), mount.path)
            reading.put("disk.forced_readonly", int(mount.forced), mount.path)
        self.doing = ""
        return reading

    def _look(self) -> None:
        raw = self._tree.read("proc/self/mountinfo")
        if raw != self._raw:
            self._raw, self._mounts = raw, local_mounts(raw)
            self._remote = network_mounts(raw)

    def _ask(self, reading: Reading, mount: Mount) -> None:
        found = os.statvfs(self._tree.path(mount.path))
        space = MountSpace(
            found.f_blocks,
            found.f_bfree,
            found.f_bavail,
            found.f_frsize,
            found.f_files,
            found.f_ffree,
        )
        space.put(reading, mount.path)

    def _disks(self, reading: Reading, now: float) -> None:
        progress: dict[str, tuple[int, float]] = {}
        for disk in parse_diskstats(self._tree.read("proc/diskstats")):
            reading.put("disk.read", disk.read, disk.name)
            reading.put("disk.write", disk.written, disk.name)
            done, since = self._progress.get(disk.name, (-1, now))
            if not disk.in_flight or disk.done != done:
                since = now
            progress[disk.name] = disk.done, since
            reading.put("disk.io_stuck", round(now - since, 1), disk.name)
        self._progress = progress


def _copy(source: Reading, target: Reading) -> None:
    # The devices too: network mounts are added to them.
    target.values.update({m: dict(d) for m, d in source.values.items()})
    target.failed.update(source.failed)


def parse_diskstats(data: bytes) -> list[Disk]:
    """The whole disks; lines of another shape are left out."""
    found: list[Disk] = []
    for line in data.splitlines():
        fields = line.split(None, 12)
        if len(fields) < 12 or not _WHOLE.fullmatch(fields[2]):
            continue
        numbers = fields[3:12]
        if all(n.isdigit() and len(n) <= 20 for n in numbers):
            reads, _, read, _, writes, _, written, _, waiting = map(int, numbers)
            name = fields[2].decode()
            found.append(Disk(name, read * 512, written * 512, reads + writes, waiting))
    return found


def network_mounts(data: bytes) -> tuple[str, ...]:
    """The mounts that only a server, or a program, can answer for."""
    mounts = [m for m in map(_mount, data.decode("utf-8", "replace").splitlines()) if m]
    paths = {m.path: _is_remote(m) for m in mounts}
    # The last mount of a path hides those before it.
    return tuple(path for path, remote in paths.items() if remote)[:_MOUNT_LIMIT]


def _is_remote(mount: Mount) -> bool:
    if mount.kind == _AUTOMATIC or _OURS.fullmatch(mount.kind):
        return False
    known = mount.kind in _LOCAL or mount.kind in _PSEUDO
    return not known and clean(mount.path, 256) == mount.path


def local_mounts(data: bytes) -> tuple[Mount, ...]:
    """The mounts whose space may be asked for without waiting for a server."""
    mounts = [m for m in map(_mount, data.decode("utf-8", "replace").splitlines()) if m]
    remote = [m.path for m in mounts if m.kind not in _LOCAL and m.kind not in _PSEUDO]
    chosen: dict[str, Mount] = {}
    seen: set[str] = set()
    for mount in sorted(mounts, key=lambda m: len(m.path)):
        if not _wanted(mount) or mount.device in seen or _below(mount.path, remote):
            continue
        # One file system mounted twice (bind mounts) is one.
        seen.add(mount.device)
        chosen[mount.path] = mount
    return tuple(list(chosen.values())[:_MOUNT_LIMIT])


def _mount(line: str) -> "Mount | None":
    fields = line.split(" ")
    try:
        dash = fields.index("-", 6)
        kind, options = fields[dash + 1], fields[dash + 3]
    except (ValueError, IndexError):
        return None
    path = _ESCAPE.sub(lambda found: chr(int(found.group(1), 8)), fields[4])
    wanted, is_now = set(fields[5].split(",")), set(options.split(","))
    readonly = bool((wanted | is_now) & _RO)
    # `mount -o ro`, as of a system whose /usr or / is never written, says so in both.
    forced = "emergency_ro" in is_now or ("ro" in is_now and "ro" not in wanted)
    return Mount(path, kind, fields[2], readonly, forced)


def _wanted(mount: Mount) -> bool:
    if mount.kind not in _LOCAL or clean(mount.path, 256) != mount.path:
        return False
    return mount.kind not in ("tmpfs", "overlay") or mount.path in _MEMORY_MOUNTS


def _below(path: str, parents: list[str]) -> bool:
    """Whether the way to `path` leads through one of `parents`: that alone can hang."""
    return any(path == p or path.startswith(f"{p.rstrip('/')}/") for p in parents if p != "/")
