"""Lays out the run folder of a job, and the links to it in /tmp that are the same on every node."""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import stat
from collections.abc import Generator
from pathlib import Path

from rankdeck_agent import LAUNCHER
from rankdeck_agent.job.folder import (
    CancelledEarlierError,
    FolderError,
    FolderThereError,
    RunFolder,
    is_start_forbidden,
    run_folder,
)
from rankdeck_agent.job.shell_scripts import LAUNCH_AGENT, RANK_SHIM
from rankdeck_agent.job.supervisor_state import note_starter
from rankdeck_agent.private_files import make_private_folder, write_private_file
from rankdeck_agent.state_folder import unwritable_folder
from rankdeck_agent.wire import NodePlan
from rankdeck_agent.wire.inside_rank import INSIDE_FILE, INSIDE_RANK
from rankdeck_agent.wire.run_folder import CONTROL, INSIDE, SELF, SHIM, SPAWN, name_rank_folder


def make_run_folder(plan: NodePlan) -> RunFolder:
    """Make the run folder with all its files. Raises FolderError and then leaves nothing.

    FolderThereError: it exists; CancelledEarlierError: see `forbid_start`.
    """
    folder = run_folder(plan.job, plan.node)
    try:
        make_private_folder(folder.path.parent.parent)
        make_private_folder(folder.path.parent)
        folder.path.mkdir(mode=0o700)
    except FileExistsError as error:
        if Path(error.filename) != folder.path:
            raise FolderError(unwritable_folder(Path(error.filename), error)) from error
        if is_start_forbidden(folder):
            why = f"job {plan.job} was cancelled on node {plan.node}: it is not started there any more"
            raise CancelledEarlierError(why) from None
        why = f"job {plan.job} has been started on node {plan.node} before"
        raise FolderThereError(why) from None
    except OSError as error:
        raise FolderError(unwritable_folder(folder.path.parent.parent, error)) from error

    try:
        _fill(folder, plan)
    except (OSError, FolderError) as error:
        unlink_links(folder)
        shutil.rmtree(folder.path, ignore_errors=True)
        if isinstance(error, FolderError):
            raise
        if isinstance(error, FileExistsError):
            why = f"{error.filename} is there already and is not ours: have its owner remove it"
            raise FolderError(why) from error
        full = Path(os.fsdecode(error.filename)).parent if error.filename else folder.path
        raise FolderError(unwritable_folder(full, error)) from error
    return folder


def _fill(folder: RunFolder, plan: NodePlan) -> None:
    _write(folder.plan, json.dumps(plan, indent=1, default=vars))
    _write(folder / SELF, f"{folder.path}\n{plan.job}\n{plan.node}\n")
    _write(folder / SHIM, RANK_SHIM, program=True)
    (folder / INSIDE).mkdir(mode=0o700)
    _write(folder / INSIDE / INSIDE_FILE, INSIDE_RANK)
    for name in (SPAWN, *map(name_rank_folder, (LAUNCHER, *plan.ranks))):
        (folder / name).mkdir(mode=0o700)
    for file in plan.files:
        path = Path(os.path.normpath(folder.path / file.path))
        if folder.path not in path.parents:
            raise FolderError(f"file {file.path!r} is outside the run folder")
        make_private_folder(path.parent)
        program = bool(file.mode & stat.S_IXUSR)
        _write(path, folder.plan_text(file.text), program=program)

    os.mkfifo(folder / CONTROL, 0o600)
    _make_links(folder)
    note_starter(folder)
    _write(folder.events, "")  # from now on others see the job


def _write(path: Path, text: str, *, program: bool = False) -> None:
    write_private_file(path, text.encode(), program=program)


def _make_links(folder: RunFolder) -> None:
    while True:
        folder.links.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(folder.links):
            if not os.path.lexists(folder.links):
                continue
            raise FolderError(f"{folder.links} is not a private folder of this user")
        with hold_links(folder.links) as there:
            if there:
                _lay_links(folder)
                return


@contextlib.contextmanager
def hold_links(links: Path) -> Generator[bool, None, None]:
    """Lock the links folder, because several virtual nodes of this machine may
    share it; yields False if it is gone.
    """
    try:
        handle = os.open(links, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield False
        return
    try:
        # The lock is held only to make or remove a few links; the end of the process releases it.
        fcntl.flock(handle, fcntl.LOCK_EX)
        seen = os.fstat(handle)
        yield seen.st_nlink > 0 and seen.st_uid == os.geteuid()
    finally:
        os.close(handle)


def _lay_links(folder: RunFolder) -> None:
    links = folder.links
    for name, script in (("rank", RANK_SHIM), ("launch-agent", LAUNCH_AGENT)):
        fresh = links / f".{name}.{os.getpid()}"
        _write(fresh, script, program=True)
        fresh.replace(links / name)
    for name in _link_names(folder):
        fresh = links / f".{name}.{os.getpid()}"
        fresh.symlink_to(folder.path)
        fresh.replace(links / name)


def _is_private(path: Path) -> bool:
    """Whether it is a folder that only this user can access: in /tmp
    another user may have made it first.
    """
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o077


def _link_names(folder: RunFolder) -> tuple[str, ...]:
    """Host name and node name; virtual nodes of one machine share the host name."""
    return tuple(dict.fromkeys((socket.gethostname(), folder.node)))


def unlink_links(folder: RunFolder) -> None:
    """Remove this node's links, and with the last link their folder; does
    nothing if the folder is not ours.
    """
    if not _is_private(folder.links):
        return
    with hold_links(folder.links) as there:
        if not there:
            return
        for name in _link_names(folder):
            link = folder.links / name
            if link.is_symlink() and link.resolve() == folder.path.resolve():
                link.unlink()
        if not any(p.is_symlink() for p in folder.links.iterdir()):
            shutil.rmtree(folder.links, ignore_errors=True)
