"""`job clean`: removes what ended jobs left on this node: run folders,
links in /tmp, and agents that nothing uses.

`list_leftovers` finds what is there, `decide_removals` says what goes and why, `carry_out` removes
it. A clock that is wrong destroys nothing: then no age counts. A run folder is renamed before it is
removed, so that nobody takes half of it for a job. Nodes may share a home folder, and two of them
may clean it at once: what is gone already is no error.
"""

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

from rankdeck_agent.file_system import measure_room
from rankdeck_agent.job import cgroups, processes
from rankdeck_agent.job.folder import RunFolder, good_name, is_closed, is_start_forbidden
from rankdeck_agent.job.layout import hold_links, unlink_links
from rankdeck_agent.job.supervisor_state import is_starting, is_supervised
from rankdeck_agent.older_python import delete_file, find_paths
from rankdeck_agent.private_files import make_private_folder
from rankdeck_agent.schedulers.job_scheduler import find_scheduler
from rankdeck_agent.state_folder import agent_state_folder
from rankdeck_agent.text import failure_reason, plain_line
from rankdeck_agent.values import Value
from rankdeck_agent.wire.leftovers import GOES, KEEP_DAYS, Ground, LeftoverKind

DAY = 86400.0
AGENT_LEAST = 30 * DAY
"""Seconds for which an agent file stays at least: nodes that share the home folder may run it."""
SLACK = 3600.0
"""Seconds by which a file, or the console's clock, may differ from our
clock: file servers have their own.
"""
MOST_NAMES = 20
"""Names that the answer has of each group."""
TMP = Path("/tmp")


class Leftover(Value):
    """One thing that a job or a console left here."""

    kind: LeftoverKind
    name: str
    path: Path
    size: int
    """Bytes on disk, as `du` counts them."""
    at: float
    """When it was used last: epoch seconds, by the clock of its file system."""
    stays: Optional[Ground] = None
    """Why it stays at any age; None if it may go."""
    least: float = 0.0
    """Seconds for which it stays, even if the user keeps less."""
    at_once: bool = False
    """Whether it goes at any age."""


class CleanRule(Value):
    """What the user keeps."""

    age: float = KEEP_DAYS * DAY
    """Seconds since the last use."""
    size: Optional[int] = None
    """Bytes of all run folders together; None: any."""


class Clock(Value):
    """Whether the ages of files can be known."""

    trusted: bool
    newest: str = ""
    """Name of the newest thing, if it is newer than our clock."""
    ahead: float = 0.0
    """Seconds by which it is newer."""
    console: float = 0.0
    """Seconds by which our clock is ahead of the console's."""


class Decision(Value):
    """Whether a thing goes, and why."""

    what: Leftover
    ground: Ground

    @property
    def goes(self) -> bool:
        return self.ground in GOES


# ---- the rule


def judge_clock(found: Iterable[Leftover], now: float, console: Optional[float] = None) -> Clock:
    """Compare our clock (`now`, epoch seconds) with the newest thing here, and
    with the console's if that is known.
    """
    newest = max(found, key=lambda one: one.at, default=None)
    ahead = newest.at - now if newest else 0.0
    differs = 0.0 if console is None else now - console
    if newest and ahead > SLACK:
        return Clock(False, newest.name, round(ahead, 1), round(differs, 1))
    return Clock(abs(differs) <= SLACK, console=round(differs, 1))


def decide_removals(
    found: Sequence[Leftover], rule: CleanRule, clock: Clock, now: float
) -> tuple[Decision, ...]:
    """What goes: by age, if the clock can be trusted, then the oldest run
    folders until the rest is small enough.
    """
    by_age = [Decision(one, _by_age(one, rule, clock, now)) for one in found]
    crowded = _too_much([one.what for one in by_age if not one.goes], rule)
    return tuple(Decision(one.what, Ground.SIZE) if one.what in crowded else one for one in by_age)


def _by_age(one: Leftover, rule: CleanRule, clock: Clock, now: float) -> Ground:
    if one.stays is not None:
        return one.stays
    if one.at_once:
        return Ground.USELESS
    if not clock.trusted:
        return Ground.CLOCK
    old = max(now - one.at, 0.0) >= max(rule.age, one.least)
    return Ground.OLD if old else Ground.RECENT


def _too_much(staying: Iterable[Leftover], rule: CleanRule) -> set[Leftover]:
    """The oldest run folders of ended jobs whose removal brings all run folders below the limit."""
    runs = [one for one in staying if one.kind is LeftoverKind.RUN]
    excess = 0 if rule.size is None else sum(one.size for one in runs) - rule.size
    crowded: set[Leftover] = set()
    for one in sorted(runs, key=lambda one: one.at):
        if excess > 0 and one.stays is None and not one.least:
            crowded.add(one)
            excess -= one.size
    return crowded


# ---- what is there


def list_leftovers() -> tuple[Leftover, ...]:
    """Everything on this node that jobs and consoles leave; something that
    is just being removed is left out.
    """
    marks = processes.all_marks()
    looks: tuple[tuple[Iterable[Path], Callable[[Path, set[int]], Leftover]], ...] = (
        (find_paths(_jobs(), "*/*"), _run),
        (find_paths(_asides(), "*"), _aside),
        (find_paths(TMP, "rankdeck.*"), _links),
    )
    found: list[Leftover] = []
    for paths, look_at in looks:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                found.append(look_at(path, marks))
    return (*found, *_agents(_cache()))


def _jobs() -> Path:
    return agent_state_folder().absolute() / "jobs"


def _asides() -> Path:
    """Where run folders lie while they are removed: in the same file system."""
    return agent_state_folder().absolute() / "removing"


def _cache() -> Path:
    """Where consoles put the agent."""
    return Path("~/.cache/rankdeck").expanduser()


def _run(path: Path, marks: set[int]) -> Leftover:
    """One run folder; `marks`: those of the processes here."""
    folder = RunFolder(path, path.parent.name, path.name)
    name, kind = f"{folder.job}/{folder.node}", LeftoverKind.RUN
    at = path.lstat().st_mtime
    strange = path.is_symlink() or not path.is_dir()
    if strange or not (good_name(folder.job) and good_name(folder.node)):
        return Leftover(kind, name, path, 0, at, stays=Ground.UNKNOWN)

    if is_start_forbidden(folder):
        # A start that arrives late must find it.
        return Leftover(kind, name, path, disk_size(path), at, least=DAY)

    try:
        at, stays = folder.events.stat().st_mtime, _why_it_stays(folder, marks)
    except FileNotFoundError:
        stays = Ground.STARTING
    except OSError:
        stays = Ground.UNKNOWN
    return Leftover(kind, name, path, disk_size(path), at, stays=stays)


def _why_it_stays(folder: RunFolder, marks: set[int]) -> Optional[Ground]:
    """Why the job is not over here; None if it is. Raises OSError."""
    kept = find_scheduler(folder).is_kept()
    supervised = is_supervised(folder) or is_starting(folder) or kept
    ours = (processes.mark_of(folder.job, node) for node in (folder.node, ""))
    if supervised or not marks.isdisjoint(ours):
        return Ground.RUNS
    return None if is_closed(folder.events) else Ground.OPEN


def _aside(path: Path, _: set[int]) -> Leftover:
    at = path.lstat().st_mtime
    return Leftover(LeftoverKind.ASIDE, path.name, path, disk_size(path), at, at_once=True)


def _links(path: Path, marks: set[int]) -> Leftover:
    seen = path.lstat()
    kind, size = LeftoverKind.LINKS, seen.st_blocks * 512
    mine = seen.st_uid == os.geteuid()
    if not mine or not stat.S_ISDIR(seen.st_mode) or seen.st_mode & 0o077:
        stays = Ground.UNKNOWN if mine else Ground.FOREIGN
        # Time and size are the owner's to choose.
        return Leftover(kind, path.name, path, 0, 0.0, stays=stays)

    targets = sorted(Path(os.readlink(one)) for one in path.iterdir() if one.is_symlink())
    grounds = filter(None, (_why_links_stay(target, marks) for target in targets))
    gone = not targets or not all(os.path.exists(target) for target in targets)  # noqa: PTH110
    # A folder without links may be about to get some, and a file system may be mounted again.
    least = DAY if gone else 0.0
    stays, size = next(grounds, None), disk_size(path)
    return Leftover(kind, path.name, path, size, seen.st_mtime, stays, least, at_once=not gone)


def _why_links_stay(target: Path, marks: set[int]) -> Optional[Ground]:
    folder = RunFolder(target, target.parent.name, target.name)
    try:
        return _why_it_stays(folder, marks)
    except FileNotFoundError:
        return Ground.STARTING if target.is_dir() else None
    except OSError:
        return Ground.UNKNOWN


_AGENT = re.compile(r"(agent-[0-9a-f]{12}\.pyz)(\..*)?")
_RUNNING = re.compile(rb"agent-[0-9a-f]{12}\.pyz")


def _agents(cache: Path) -> Iterator[Leftover]:
    """Every version of the agent, with its compiled modules; what else
    is in the cache has its own limit.
    """
    running = _agents_that_run()
    versions: dict[str, list[Path]] = {}
    for path in find_paths(cache, "agent-*"):
        match = _AGENT.fullmatch(path.name)
        if match:
            versions.setdefault(match[1], []).append(path)
    for name, files in versions.items():
        stays = Ground.IN_USE if name in running else None
        with contextlib.suppress(FileNotFoundError):
            size, at = sum(map(disk_size, files)), max(map(_used, files))
            yield Leftover(LeftoverKind.AGENT, name, cache / name, size, at, stays, AGENT_LEAST)


def _used(path: Path) -> float:
    seen = path.lstat()
    return max(seen.st_mtime, seen.st_atime)


def _agents_that_run() -> set[str]:
    """The names of the agent files from which a process of this machine runs, this one included."""
    found: set[bytes] = set()
    for pid in processes.list_processes():
        with contextlib.suppress(OSError):
            found.update(_RUNNING.findall(Path(f"/proc/{pid}/cmdline").read_bytes()))
    return {name.decode() for name in found}


def disk_size(path: Path) -> int:
    """Bytes on disk of a file or a whole folder, as `du` counts them;
    what cannot be read is left out.
    """
    total = _blocks(path)
    for folder, folders, files in os.walk(path):
        total += sum(_blocks(Path(folder, name)) for name in (*folders, *files))
    return total


def _blocks(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0


# ---- removal


def carry_out(decided: Iterable[Decision]) -> dict[Leftover, str]:
    """Remove what goes.

    Returns thing -> "" if it was removed, else why not; without what others removed meanwhile.
    """
    done: dict[Leftover, str] = {}
    for one in decided:
        if not one.goes:
            continue
        try:
            if _REMOVE[one.what.kind](one.what):
                done[one.what] = ""
        except OSError as error:
            done[one.what] = failure_reason(error)
    return done


def _remove_run(one: Leftover) -> bool:
    folder = RunFolder(one.path, one.path.parent.name, one.path.name)
    unlink_links(folder)
    cgroups.remove_cgroup(folder)
    aside = _asides() / f"{folder.job}@{folder.node}.{os.urandom(4).hex()}"
    make_private_folder(aside.parent)
    try:
        folder.path.rename(aside)
    except FileNotFoundError:
        return False
    _delete(aside)
    with contextlib.suppress(OSError):  # another node's part of the job is there
        folder.path.parent.rmdir()
    return True


def _remove_links(one: Leftover) -> bool:
    with hold_links(one.path) as there:
        # Locked: a job of the same name may have been started here meanwhile.
        if there and _links(one.path, processes.all_marks()).stays is None:
            _delete(one.path)
            return True
    return False


def _remove_agent(one: Leftover) -> bool:
    files = find_paths(one.path.parent, f"{one.path.name}*")
    if max(map(_used, files), default=one.at) > one.at:
        return False  # a console has just found it and is about to run it
    for file in files:
        delete_file(file)
    return bool(files)


def _remove_aside(one: Leftover) -> bool:
    _delete(one.path)
    return True


_REMOVE: dict[LeftoverKind, Callable[[Leftover], bool]] = {
    LeftoverKind.RUN: _remove_run,
    LeftoverKind.LINKS: _remove_links,
    LeftoverKind.AGENT: _remove_agent,
    LeftoverKind.ASIDE: _remove_aside,
}


def _delete(path: Path) -> None:
    """Remove a folder with everything below it, also what a job has
    write-protected; raises OSError.
    """
    shutil.rmtree(path, ignore_errors=True)
    if not path.exists():
        return
    path.chmod(0o700)
    for folder, names, _ in os.walk(path):
        for name in names:
            inside = Path(folder, name)
            if not inside.is_symlink():
                inside.chmod(0o700)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


# ---- the command


def remove_leftovers(
    rule: CleanRule, *, dry: bool, console: Optional[float] = None
) -> dict[str, Any]:
    """Remove what the rule does not keep, or with `dry` only say what that
    is; returns the answer for the console.

    `console`: its clock in epoch seconds, if a console asks.
    """
    now, found = time.time(), list_leftovers()
    clock = judge_clock(found, now, console)
    decided = decide_removals(found, rule, clock, now)
    done = {} if dry else carry_out(decided)
    return {
        "ok": True,
        "dry": dry,
        "rows": _rows(decided, done, dry=dry),
        "failed": [
            {"name": plain_line(one.name, 200), "why": why} for one, why in done.items() if why
        ],
        "clock": {
            "trusted": clock.trusted,
            "newest": plain_line(clock.newest, 200),
            "ahead": clock.ahead,
            "console": clock.console,
        },
    }


def _rows(
    decided: Iterable[Decision], done: dict[Leftover, str], *, dry: bool
) -> list[dict[str, Any]]:
    """One row for each kind and ground: how many, how many bytes, the
    first names, and where they lie.
    """
    groups: dict[tuple[LeftoverKind, Ground], list[Leftover]] = {}
    for one in decided:
        ground = one.ground
        if one.goes and not dry:
            if one.what not in done:
                continue  # another node has removed it
            ground = Ground.FAILED if done[one.what] else ground
        groups.setdefault((one.what.kind, ground), []).append(one.what)
    places = {kind: _place(kind) for kind, _ in groups}
    return [
        {
            "kind": kind.value,
            "ground": ground.value,
            "place": places[kind],
            "count": len(some),
            "bytes": sum(one.size for one in some),
            "names": [plain_line(one.name, 200) for one in some[:MOST_NAMES]],
        }
        for (kind, ground), some in groups.items()
    ]


def _place(kind: LeftoverKind) -> str:
    """Where this kind lies: equal on two nodes only if they see the same
    folder, so that the console counts it once.
    """
    folder = {LeftoverKind.LINKS: TMP, LeftoverKind.AGENT: _cache()}.get(kind, _jobs())
    mount = measure_room(folder).get("mount")
    if mount:
        return f"{mount} {folder}"
    try:
        seen = folder.stat()
    except OSError:
        return ""
    return f"{processes.read_boot_id()} {seen.st_dev}:{seen.st_ino}"
