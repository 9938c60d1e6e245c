"""Disks: space on local mounts, bytes of whole disks. Network mounts are never touched."""

import os
import re
from dataclasses import dataclass

from rankdeck_agent.collectors.base import Reading
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
_WHOLE = re.compile(rb"(?:sd|vd|hd|xvd|dasd)[a-z]+|nvme\d+n\d+|mmcblk\d+|pmem\d+")
_MOUNT_LIMIT = 64
_ESCAPE = re.compile(r"\\([0-7]{3})")
_SPACE_EVERY = 5.0
_SPACE = ("disk.used", "disk.size", "disk.free", "disk.inodes_used")


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo."""

    path: str
    kind: str
    device: str
    readonly: bool


class DiskCollector:
    """Space per local mount, bytes per whole disk."""

    name = "disk"
    lane = "disk"
    period = 0.0
    metrics: tuple[str, ...] = (*_SPACE, "disk.readonly", "disk.read", "disk.write")

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._raw = b""
        self._mounts: tuple[Mount, ...] = ()
        self._looked = -_SPACE_EVERY
        self._space = Reading()

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if now - self._looked >= _SPACE_EVERY:
            self._looked, self._space = now, self._read_space()
        _copy(self._space, reading)
        reading.attempt(("disk.read", "disk.write"), lambda: self._bytes(reading))
        return reading

    def _read_space(self) -> Reading:
        reading = Reading()
        reading.attempt((*_SPACE, "disk.readonly"), self._look)
        for mount in self._mounts:
            self.doing = mount.path
            reading.attempt(_SPACE, lambda m=mount: self._ask(reading, m), mount.path)
            reading.put("disk.readonly", int(mount.readonly), mount.path)
        self.doing = ""
        return reading

    def _look(self) -> None:
        raw = self._tree.read("proc/self/mountinfo")
        if raw != self._raw:
            self._raw, self._mounts = raw, local_mounts(raw)

    def _ask(self, reading: Reading, mount: Mount) -> None:
        space = os.statvfs(self._tree.path(mount.path))
        used = space.f_blocks - space.f_bfree
        # As df: what root keeps for itself is not free for a job.
        usable = used + space.f_bavail
        if usable > 0:
            reading.put("disk.used", round(100.0 * used / usable, 2), mount.path)
            reading.put("disk.size", space.f_blocks * space.f_frsize, mount.path)
            reading.put("disk.free", space.f_bavail * space.f_frsize, mount.path)
        if space.f_files > 0:
            inodes = 100.0 * (space.f_files - space.f_ffree) / space.f_files
            reading.put("disk.inodes_used", round(inodes, 2), mount.path)

    def _bytes(self, reading: Reading) -> None:
        for name, read, written in parse_diskstats(self._tree.read("proc/diskstats")):
            reading.put("disk.read", read, name)
            reading.put("disk.write", written, name)


def _copy(source: Reading, target: Reading) -> None:
    target.values.update(source.values)
    target.failed.update(source.failed)


def parse_diskstats(data: bytes) -> list[tuple[str, int, int]]:
    """`(disk, bytes read, bytes written)` of whole disks; lines of another shape are left out."""
    found: list[tuple[str, int, int]] = []
    for line in data.splitlines():
        fields = line.split(None, 10)
        if len(fields) < 10 or not _WHOLE.fullmatch(fields[2]):
            continue
        if fields[5].isdigit() and fields[9].isdigit():
            found.append(
                (fields[2].decode(), int(fields[5]) * 512, int(fields[9]) * 512)
            )
    return found


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
    flags = {*fields[5].split(","), *options.split(",")}
    return Mount(path, kind, fields[2], readonly=bool(flags & {"ro", "emergency_ro"}))


def _wanted(mount: Mount) -> bool:
    if mount.kind not in _LOCAL or clean(mount.path, 256) != mount.path:
        return False
    return mount.kind not in ("tmpfs", "overlay") or mount.path in _MEMORY_MOUNTS


def _below(path: str, parents: list[str]) -> bool:
    """Whether the way to `path` leads through one of `parents`: that alone can hang."""
    return any(
        path == p or path.startswith(f"{p.rstrip('/')}/") for p in parents if p != "/"
    )
