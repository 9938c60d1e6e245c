"""Space of mounts, bytes and progress of disks."""

import os
import re

from rankdeck_agent.collectors.base import DEVICE_LIMIT, Reading
from rankdeck_agent.collectors.network_mounts import SPACE, MountSpace, NetworkMounts
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text
from rankdeck_agent.values import Value

_LOCAL = frozenset(
    "ext2 ext3 ext4 xfs btrfs zfs f2fs jfs reiserfs bcachefs vfat exfat ntfs3 overlay tmpfs".split()  # noqa: SIM905
)
_MEMORY_MOUNTS = ("/", "/dev/shm", "/tmp")
"""The mounts without a disk (tmpfs, overlay) that matter to a job."""
_PSEUDO = frozenset(
    "proc sysfs devtmpfs devpts cgroup cgroup2 mqueue hugetlbfs securityfs debugfs tracefs pstore "  # noqa: SIM905
    "bpf efivarfs configfs fusectl binfmt_misc rootfs ramfs squashfs iso9660 nsfs selinuxfs".split()
)
_READONLY = ("disk.readonly", "disk.forced_readonly")
_RO = frozenset({"ro", "emergency_ro"})
_WHOLE = re.compile(rb"(?:sd|vd|hd|xvd|dasd)[a-z]+|nvme\d+n\d+|mmcblk\d+|pmem\d+")
_COLUMNS: tuple[tuple[str, int, float], ...] = (
    ("disk.reads", 0, 1),
    ("disk.reads_merged", 1, 1),
    ("disk.read", 2, 512),
    ("disk.read_time", 3, 1e-3),
    ("disk.writes", 4, 1),
    ("disk.writes_merged", 5, 1),
    ("disk.write", 6, 512),
    ("disk.write_time", 7, 1e-3),
    ("disk.in_flight", 8, 1),
    ("disk.busy", 9, 1e-3),
    ("disk.queued", 10, 1e-3),
    ("disk.discards", 11, 1),
    ("disk.discards_merged", 12, 1),
    ("disk.discarded", 13, 512),
    ("disk.discard_time", 14, 1e-3),
    ("disk.flushes", 15, 1),
    ("disk.flush_time", 16, 1e-3),
)
"""(metric, column of diskstats after the name, factor); older kernels have fewer
(linux Documentation/admin-guide/iostats.rst).
"""
_DISKS = (*(metric for metric, _, _ in _COLUMNS), "disk.io_stuck")
_UNCOUNTED = 1 << 31
"""Requests in flight from which on the count is wrong: it fell below 0."""
_MOUNT_LIMIT = 64
_ESCAPE = re.compile(r"\\([0-7]{3})")
_AUTOMATIC = "autofs"
"""Not asked: that would mount what it stands for."""
_OURS = re.compile(
    r"fuse\.(?:lxcfs|gvfsd-fuse|portal|snapfuse|squashfuse|rootlesskit.*|fuse-overlayfs)"
)
"""FUSE mounts served by a program on this machine that do not matter to a job."""
_BY_HAND = frozenset({"noauto", "nofail", "x-systemd.automount", "user", "users", "bind", "rbind"})
"""Options of fstab with which a mount may be missing."""
_SPACE_EVERY = 5.0


class Mount(Value):
    """A line of mountinfo."""

    path: str
    kind: str
    device: str
    source: str
    """What is mounted: a device, or SERVER:PATH."""
    readonly: bool
    forced: bool
    """Read-only although it was mounted writable: the kernel does that after errors."""


class Disk(Value):
    """A whole disk in diskstats; `numbers` are its columns after the name."""

    name: str
    numbers: tuple[int, ...]

    @property
    def done(self) -> int:
        """Requests done."""
        return self.numbers[0] + self.numbers[4]

    @property
    def in_flight(self) -> int:
        """Requests that are not done."""
        return self.numbers[8]

    @property
    def busy(self) -> int:
        """Milliseconds in which it had work."""
        return self.numbers[9]


class DiskCollector:
    """Space per mount, bytes and progress per whole disk."""

    name = "disk"
    lane = "disk"
    period = 0.0
    metrics: tuple[str, ...] = (
        *SPACE,
        *_READONLY,
        "disk.mounted",
        "disk.automatic",
        "disk.stuck",
        *_DISKS,
    )

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._raw: bytes = b""
        self._mounts: tuple[Mount, ...] = ()
        self._there = 0
        """Local mounts that there are: more than are read, if they are very many."""
        self._remote: tuple[str, ...] = ()
        self._unmounted: tuple[str, ...] = ()
        """Paths of fstab on which nothing is mounted."""
        self._automatic: tuple[str, ...] = ()
        # Below another root the mounts are of another machine and cannot be asked.
        self._network = NetworkMounts() if root == "/" else None
        self._inventory: dict[str, str] = {}
        self._progress: dict[str, tuple[int, float, int]] = {}
        """Disk -> (requests done, since when not more, its time with work then)."""
        self._looked = -_SPACE_EVERY
        self._space = Reading()

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if now - self._looked >= _SPACE_EVERY:
            self._looked, self._space = now, self._read_space()
        # The inner tables are copied too: network mounts are added to them.
        reading.values.update({m: dict(d) for m, d in self._space.values.items()})
        reading.take_failures(self._space)
        reading.inventory = self._inventory

        if self._network is not None:
            self._network.put(reading, self._remote, now)
        else:
            for path in self._remote:
                reading.put("disk.mounted", 1, path)
        for path in self._unmounted:
            reading.put("disk.mounted", 0, path)
        for path in self._automatic:
            reading.put("disk.automatic", 1, path)
        reading.attempt(_DISKS, lambda: self._disks(reading, now))
        return reading

    def _read_space(self) -> Reading:
        reading = Reading()
        reading.attempt((*SPACE, *_READONLY, "disk.mounted"), self._read_mounts)
        reading.say_cut("disk.mounts", "local mounts", self._there, _MOUNT_LIMIT)
        for mount in self._mounts:
            self.doing = mount.path
            reading.attempt(SPACE, lambda m=mount: self._measure(reading, m), mount.path)
            reading.put("disk.readonly", int(mount.readonly), mount.path)
            reading.put("disk.forced_readonly", int(mount.forced), mount.path)
        self.doing = ""
        return reading

    def _read_mounts(self) -> None:
        raw = self._tree.read("proc/self/mountinfo")
        if raw != self._raw:
            mounts = local_mounts(raw)
            self._raw, self._there = raw, len(mounts)
            self._mounts = mounts[:_MOUNT_LIMIT]
            self._remote = network_mounts(raw)
            shown = (*(m.path for m in self._mounts), *self._remote)
            found = {m.path: clean_text(f"{m.kind} {m.source}", 160) for m in _mounts_in(raw)}
            self._inventory = {f"mount.{path}": found[path] for path in shown}
            self._automatic = automatic_mounts(raw)

        # Read each time: an administrator may take a mount out of it.
        table = self._tree.maybe("etc/fstab") or ""
        self._unmounted = find_unmounted(table, raw) if table else ()

    def _measure(self, reading: Reading, mount: Mount) -> None:
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
        progress: dict[str, tuple[int, float, int]] = {}
        disks = parse_diskstats(self._tree.read("proc/diskstats"))
        reading.say_cut("disk.disks", "disks", len(disks), DEVICE_LIMIT)
        for disk in disks[:DEVICE_LIMIT]:
            for (metric, _, factor), number in zip(_COLUMNS, disk.numbers):
                reading.put(metric, number * factor, disk.name)

            done, since, busy = self._progress.get(disk.name, (-1, now, 0))
            if not 0 < disk.in_flight < _UNCOUNTED or disk.done != done:
                since, busy = now, disk.busy
            if disk.busy == busy:
                # A count that was left behind: the disk has had no work since.
                since = now
            progress[disk.name] = disk.done, since, busy
            reading.put("disk.io_stuck", round(now - since, 1), disk.name)
        self._progress = progress


def parse_diskstats(data: bytes) -> list[Disk]:
    """The whole disks (no partitions); lines that do not fit are skipped."""
    found: list[Disk] = []
    for line in data.splitlines():
        fields = line.split(None, 3 + len(_COLUMNS))
        if len(fields) < 14 or not _WHOLE.fullmatch(fields[2]):
            continue
        numbers = fields[3 : 3 + len(_COLUMNS)]
        if all(n.isdigit() and len(n) <= 20 for n in numbers):
            found.append(Disk(fields[2].decode(), tuple(map(int, numbers))))
    return found


def find_unmounted(table: str, data: bytes) -> tuple[str, ...]:
    """The paths in fstab that are mounted at boot, and on which nothing is mounted by mountinfo."""
    there = {mount.path for mount in _mounts_in(data)}
    wanted = (line.split() for line in table.splitlines())
    rows = [row for row in wanted if len(row) >= 4 and row[0][0] != "#" and row[1][0] == "/"]
    paths = [_ESCAPE.sub(_unescaped, row[1]) for row in rows if not _BY_HAND & {*row[3].split(",")}]
    found = [path.rstrip("/") or "/" for path in paths if clean_text(path, 256) == path]
    return tuple(path for path in dict.fromkeys(found) if path not in there)[:_MOUNT_LIMIT]


def automatic_mounts(data: bytes) -> tuple[str, ...]:
    """The paths below an automatic mount: they are unmounted when nobody uses them."""
    mounts = _mounts_in(data)
    parents = [mount.path for mount in mounts if mount.kind == _AUTOMATIC]
    kept = (m.path for m in mounts if m.kind != _AUTOMATIC and m.kind not in _PSEUDO)
    return tuple(path for path in dict.fromkeys(kept) if _below(path, parents))[:_MOUNT_LIMIT]


def _mounts_in(data: bytes) -> "list[Mount]":
    return [m for m in map(_mount, data.decode("utf-8", "replace").splitlines()) if m]


def network_mounts(data: bytes) -> tuple[str, ...]:
    """Paths of the mounts, in mountinfo, that a server or a program serves."""
    mounts = _mounts_in(data)
    paths = {m.path: _is_remote(m) for m in mounts}
    # The last mount on a path hides earlier ones.
    return tuple(path for path, remote in paths.items() if remote)[:_MOUNT_LIMIT]


def _is_remote(mount: Mount) -> bool:
    if mount.kind == _AUTOMATIC or _OURS.fullmatch(mount.kind):
        return False
    known = mount.kind in _LOCAL or mount.kind in _PSEUDO
    return not known and clean_text(mount.path, 256) == mount.path


def local_mounts(data: bytes) -> tuple[Mount, ...]:
    """The mounts, in mountinfo, whose space can be read without waiting for a server."""
    mounts = _mounts_in(data)
    remote = [m.path for m in mounts if m.kind not in _LOCAL and m.kind not in _PSEUDO]
    chosen: dict[str, Mount] = {}
    seen: set[str] = set()
    for mount in sorted(mounts, key=lambda m: len(m.path)):
        if not _wanted(mount) or mount.device in seen or _below(mount.path, remote):
            continue
        # A file system that is mounted twice (bind mounts) counts once.
        seen.add(mount.device)
        chosen[mount.path] = mount
    return tuple(chosen.values())


def _mount(line: str) -> "Mount | None":
    fields = line.split(" ")
    try:
        dash = fields.index("-", 6)
        kind, source, options = fields[dash + 1 : dash + 4]
    except (ValueError, IndexError):
        return None
    path = _ESCAPE.sub(_unescaped, fields[4])
    wanted, is_now = set(fields[5].split(",")), set(options.split(","))
    readonly = bool((wanted | is_now) & _RO)
    # With `mount -o ro`, as for a system with a read-only / or /usr, both have `ro`.
    forced = "emergency_ro" in is_now or ("ro" in is_now and "ro" not in wanted)
    return Mount(path, kind, fields[2], _ESCAPE.sub(_unescaped, source), readonly, forced)


def _unescaped(found: "re.Match[str]") -> str:
    return chr(int(found.group(1), 8))


def _wanted(mount: Mount) -> bool:
    if mount.kind not in _LOCAL or clean_text(mount.path, 256) != mount.path:
        return False
    return mount.kind not in ("tmpfs", "overlay") or mount.path in _MEMORY_MOUNTS


def _below(path: str, parents: list[str]) -> bool:
    """Whether `path` is one of `parents` or below one: reading it could hang."""
    return any(path == p or path.startswith(f"{p.rstrip('/')}/") for p in parents if p != "/")
