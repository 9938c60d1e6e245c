"""Space of mounts, bytes and progress of disks, state and health of NVMe drives.

Each network mount is asked by a process of its own, because it may hang.
"""

import array
import fcntl
import os
import re
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Callable, Union

from rankdeck_agent.collectors.base import DEVICE_LIMIT, Reading, parse_unsigned
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text, failure_reason

_STAT = "/usr/bin/stat" if os.access("/usr/bin/stat", os.X_OK) else "/bin/stat"
COMMAND = (_STAT, "-f", "-c", "%b %f %a %S %c %d", "--")
"""The command for a mount; prints blocks: total, free, free for
users, size; inodes: total, free.
"""
_EVERY = 15.0
"""Seconds between two questions to a network mount."""
_DEADLINE = 5.0
"""Seconds of waiting after which the last answer is too old to be shown."""
_MOUNTS = 32
_LONGEST = 4096
SPACE = (
    "disk.used", "disk.size", "disk.free", "disk.free_all", "disk.inodes_used", "disk.inodes",
    "disk.inodes_free",
)  # fmt: skip


@dataclass(frozen=True)
class MountSpace:
    """The numbers of statvfs for a file system; `size` is bytes per block."""

    blocks: int
    free: int
    available: int
    size: int
    inodes: int
    inodes_free: int

    def put(self, reading: Reading, path: str) -> None:
        """Store the metrics of a mount; as in df, space reserved
        for root does not count as free.
        """
        used = self.blocks - self.free
        usable = used + self.available
        if usable > 0:
            reading.put("disk.used", round(100.0 * used / usable, 2), path)
            reading.put("disk.size", self.blocks * self.size, path)
            reading.put("disk.free", self.available * self.size, path)
            reading.put("disk.free_all", self.free * self.size, path)
        if self.inodes > 0:
            reading.put("disk.inodes", self.inodes, path)
            reading.put("disk.inodes_free", self.inodes_free, path)
            share = 100.0 * (self.inodes - self.inodes_free) / self.inodes
            reading.put("disk.inodes_used", round(share, 2), path)


class Probe:
    """One question to one mount, asked by a child process; raises
    OSError if that cannot be started.
    """

    def __init__(self, command: tuple[str, ...], path: str, now: float) -> None:
        self.since = now
        self._out, writing = os.pipe()
        try:
            self._pid = _spawn((*command, path), writing)
        except OSError:
            os.close(self._out)
            raise
        finally:
            os.close(writing)

    def answer(self) -> Union[MountSpace, ValueError, None]:
        """The answer of the mount, or a ValueError that says why it
        failed; None while it has not answered.
        """
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            return None
        output = os.read(self._out, _LONGEST)
        os.close(self._out)
        if status:
            return ValueError(_last_words(output))
        try:
            return MountSpace(*map(parse_unsigned, output.split()))
        except (ValueError, TypeError) as error:
            return ValueError(failure_reason(error))


def _spawn(command: tuple[str, ...], out: int) -> int:
    if sys.version_info < (3, 8):
        return _fork(command, out)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out, 1),
        (os.POSIX_SPAWN_DUP2, out, 2),
    ]
    return os.posix_spawn(command[0], command, {"LC_ALL": "C"}, file_actions=actions)


def _fork(command: tuple[str, ...], out: int) -> int:
    """The same for Python 3.6 and 3.7."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.execve(command[0], command, {"LC_ALL": "C"})
    finally:
        os._exit(127)


def _last_words(complaint: bytes) -> str:
    """The end of "stat: cannot read file system information for '/x': Stale file handle"."""
    text = complaint.decode("utf-8", "replace").strip().rpartition(": ")[2]
    return clean_text(text, 160) or "cannot be asked"


class NetworkMounts:
    """Asks each network mount every _EVERY seconds, never twice at once;
    a child that hangs is not touched.
    """

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self._command = command
        self._probes: dict[str, Probe] = {}
        self._asked: dict[str, float] = {}
        self._answers: dict[str, Union[MountSpace, ValueError]] = {}

    def put(self, reading: Reading, paths: Sequence[str], now: float) -> None:
        """Store what is known about the mounts, and ask those that are
        due; `now` in monotonic seconds.
        """
        for path in paths[:_MOUNTS]:
            reading.put("disk.mounted", 1, path)
            self._take_answer(path)
            self._ask(path, now)
            self._put(reading, path, now)
        self._forget(paths)

    def _take_answer(self, path: str) -> None:
        probe = self._probes.get(path)
        answer = probe and probe.answer()
        if answer is not None:
            self._answers[path] = answer
            del self._probes[path]

    def _ask(self, path: str, now: float) -> None:
        if path in self._probes or now - self._asked.get(path, -_EVERY) < _EVERY:
            return
        self._asked[path] = now
        try:
            self._probes[path] = Probe(self._command, path, now)
        except OSError as error:
            self._answers[path] = ValueError(
                f"{self._command[0]} cannot be run: {failure_reason(error)}"
            )

    def _put(self, reading: Reading, path: str, now: float) -> None:
        probe, answer = self._probes.get(path), self._answers.get(path)
        waited = now - probe.since if probe else 0.0
        if answer is None and waited < _DEADLINE:
            # Also for this mount: others may have answered.
            reading.pending |= {*SPACE, f"disk.used/{path}"}
        if waited >= _DEADLINE:
            answer = ValueError(f"no answer for {waited:.0f} s")
        if isinstance(answer, ValueError):
            reading.fail(SPACE, answer, path)
        elif answer is not None:
            answer.put(reading, path)
        reading.put("disk.stuck", round(waited, 1), path)

    def _forget(self, paths: Sequence[str]) -> None:
        for path in set(self._asked) - set(paths) - set(self._probes):
            # Keep a probe that has not ended: the mount may come back and still hang.
            self._asked.pop(path)
            self._answers.pop(path, None)


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


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo."""

    path: str
    kind: str
    device: str
    source: str
    """What is mounted: a device, or SERVER:PATH."""
    readonly: bool
    forced: bool
    """Read-only although it was mounted writable: the kernel does that after errors."""


@dataclass(frozen=True)
class Disk:
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
        reading.attempt((*SPACE, *_READONLY, "disk.mounted"), self._look)
        reading.say_cut("disk.mounts", "local mounts", self._there, _MOUNT_LIMIT)
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


_BASE = "sys/class/nvme"
_LIMIT = 64
_IDENTITY = (("model", "model"), ("firmware", "firmware_rev"), ("serial", "serial"))


_STATES = {"live": 1, "new": 0.5, "resetting": 0.5, "connecting": 0.5}
"""State of a controller -> nvme.live (linux drivers/nvme/host/core.c); those
between 0 and 1 pass, unless something is wrong.
"""


class NvmeCollector:
    """State of each NVMe controller: unless it is "live", its disks do not answer."""

    name = "nvme"
    lane = "slow"
    period = 10.0
    metrics: tuple[str, ...] = ("nvme.live",)

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._inventory: dict[str, str] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        names: list[str] = []
        reading.attempt(self.metrics, lambda: names.extend(self._tree.names(_BASE)))
        reading.say_cut("nvme.drives", "NVMe drives", len(names), _LIMIT)
        for name in names[:_LIMIT]:
            self.doing = name
            device = clean_text(name)
            reading.attempt(
                self.metrics, lambda n=name, d=device: self._state(reading, n, d), device
            )
        self.doing = ""
        reading.inventory = self._inventory
        return reading

    def _state(self, reading: Reading, name: str, device: str) -> None:
        state = self._tree.text(f"{_BASE}/{name}/state")
        reading.put("nvme.live", _STATES.get(state, 0), device)
        if f"nvme.{device}.model" not in self._inventory:
            for what, file in _IDENTITY:
                text = self._tree.maybe(f"{_BASE}/{name}/{file}") or ""
                self._inventory[f"nvme.{device}.{what}"] = clean_text(text)
            if (self._tree.maybe(f"{_BASE}/{name}/transport") or "pcie") != "pcie":
                self._inventory[f"nvme.{device}.kind"] = "fabric"
        if self._inventory.get(f"nvme.{device}.state") != state:
            self._inventory = {**self._inventory, f"nvme.{device}.state": state}


# linux include/uapi/linux/nvme_ioctl.h, include/linux/nvme.h
_ADMIN_COMMAND = 0xC0484E41
_COMMAND = struct.Struct("=BBHIIIQQII6III")
_GET_LOG, _HEALTH, _ALL = 0x02, 0x02, 0xFFFFFFFF
LOG_SIZE = 512
_PATIENCE_MS = 5000
_KELVIN = 273
_UNIT = 512_000
"""Bytes per data unit of the health log."""
_LASTING = 0b101100
"""Bits of the critical warning that mean a failing drive: reliability degraded,
read-only, persistent memory region lost.
"""


class NvmeHealthCollector:
    """The health log of each NVMe drive; needs root.

    Has a thread of its own: a dying drive answers after a minute, or never.
    """

    name = "nvme_health"
    lane = "nvme_health"
    period = 300.0
    metrics: tuple[str, ...] = (
        "nvme.failing",
        "nvme.warning",
        "nvme.temp",
        "nvme.spare",
        "nvme.worn",
        "nvme.media_errors",
        "nvme.unsafe_shutdowns",
        "nvme.power_on",
        "nvme.read",
        "nvme.written",
    )

    def __init__(self, root: str = "/", ask: "Callable[[str], bytes] | None" = None) -> None:
        self.doing = ""
        self._tree = Tree(root)
        # Below another root the drives are of another machine and cannot be asked.
        self._ask = ask or (health_log if root == "/" else None)

    def collect(self, now: float) -> Reading:
        reading = Reading()
        for name in self._tree.names(_BASE)[:_LIMIT] if self._ask else ():
            # A controller that is not live would block us until its time limit.
            if clean_text(name) == name and self._tree.maybe(f"{_BASE}/{name}/state") == "live":
                self.doing = name
                reading.attempt(self.metrics, lambda n=name: self._health(reading, n), name)
        self.doing = ""
        return reading

    def _health(self, reading: Reading, name: str) -> None:
        if self._ask is None:
            return
        try:
            log = self._ask(name)
        except PermissionError:
            # Not root: the metrics are absent, and the inventory says why.
            reading.inventory = {**reading.inventory, f"nvme.{name}.health": "not read: needs root"}
            return
        reading.put_all(parse_health_log(log), name)


def parse_health_log(log: bytes) -> Mapping[str, int]:
    """The numbers of a health log (NVM Express base specification,
    log page 02h); raises ValueError.
    """
    if len(log) < LOG_SIZE:
        raise ValueError(f"a health log of {len(log)} bytes")
    warning, kelvin, spare, _, worn = struct.unpack_from("<BHBBB", log)

    def counted(at: int) -> int:
        return int.from_bytes(log[at : at + 16], "little")

    found = {
        "nvme.failing": int(bool(warning & _LASTING)),
        "nvme.warning": int(bool(warning)),
        "nvme.spare": spare,
        "nvme.worn": worn,
        "nvme.read": counted(32) * _UNIT,
        "nvme.written": counted(48) * _UNIT,
        "nvme.power_on": counted(128) * 3600,
        "nvme.unsafe_shutdowns": counted(144),
        "nvme.media_errors": counted(160),
    }
    # 0 kelvin: the drive does not report its temperature.
    return {**found, "nvme.temp": kelvin - _KELVIN} if kelvin else found


def health_log(name: str) -> bytes:
    """The health log of a controller of this machine, such as nvme0; raises
    OSError, PermissionError without root.
    """
    handle = os.open(f"/dev/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = array.array("B", bytes(LOG_SIZE))
        address, _ = data.buffer_info()
        words = (LOG_SIZE // 4 - 1) << 16 | _HEALTH
        command = bytearray(
            _COMMAND.pack(
                _GET_LOG,
                0,
                0,
                _ALL,
                0,
                0,
                0,
                address,
                0,
                LOG_SIZE,
                words,
                0,
                0,
                0,
                0,
                0,
                _PATIENCE_MS,
                0,
            )
        )
        status = fcntl.ioctl(handle, _ADMIN_COMMAND, command)
        if status:
            raise OSError(f"the drive refuses its health log: status {status:#x}")
        return data.tobytes()
    finally:
        os.close(handle)
