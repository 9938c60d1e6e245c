"""Laying out a run folder, and taking its links away again."""

import json
import os
import shutil
import socket
import stat
from dataclasses import asdict
from pathlib import Path

from rankdeck_agent.job.folder import FolderError, RunFolder, run_folder
from rankdeck_agent.job.scripts import LAUNCH_AGENT, RANK_SHIM
from rankdeck_agent.private import private_folder, write_private
from rankdeck_agent.wire import NodeFile, NodePlan


def make(plan: NodePlan) -> RunFolder:
    """Lay out the run folder with all its files; raises FolderError and leaves nothing then."""
    folder = run_folder(plan.job, plan.node)
    private_folder(folder.path.parent.parent)
    private_folder(folder.path.parent)
    try:
        folder.path.mkdir(mode=0o700)
    except FileExistsError:
        raise FolderError(f"job {plan.job} has been started on node {plan.node} before") from None
    try:
        _fill(folder, plan)
    except (OSError, FolderError) as error:
        unlink_links(folder)
        shutil.rmtree(folder.path, ignore_errors=True)
        raise FolderError(f"the run folder of {plan.job} could not be written: {error}") from error
    return folder


def _fill(folder: RunFolder, plan: NodePlan) -> None:
    _write(folder / "plan.json", json.dumps(asdict(plan), indent=1))
    _write(folder / "self", f"{folder.path}\n{plan.job}\n{plan.node}\n")
    _write(folder / "rank-shim", RANK_SHIM, program=True)
    for name in ("spawn", "launcher", *(f"rank.{rank}" for rank in plan.ranks)):
        (folder / name).mkdir(mode=0o700)
    for file in plan.files:
        path = _inside(folder, file)
        private_folder(path.parent)
        program = bool(file.mode & stat.S_IXUSR)
        _write(path, folder.plan_text(file.text), program=program)
    os.mkfifo(folder / "control", 0o600)
    _make_links(folder)
    _write(folder / "events", "")


def _inside(folder: RunFolder, file: NodeFile) -> Path:
    path = Path(os.path.normpath(folder.path / file.path))
    if folder.path not in path.parents:
        raise FolderError(f"file {file.path!r} is outside the run folder")
    return path


def _write(path: Path, text: str, *, program: bool = False) -> None:
    write_private(path, text.encode(), program=program)


def _make_links(folder: RunFolder) -> None:
    links = folder.links
    links.mkdir(mode=0o700, exist_ok=True)
    seen = links.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
        raise FolderError(f"{links} is not a private folder of this user")
    for name, script in (("rank", RANK_SHIM), ("launch-agent", LAUNCH_AGENT)):
        fresh = links / f".{name}.{os.getpid()}"
        _write(fresh, script, program=True)
        fresh.replace(links / name)
    for name in _link_names(folder):
        fresh = links / f".{name}.{os.getpid()}"
        fresh.symlink_to(folder.path)
        fresh.replace(links / name)


def _link_names(folder: RunFolder) -> tuple[str, ...]:
    """Host name and node name: virtual nodes of one machine share the first."""
    return tuple(dict.fromkeys((socket.gethostname(), folder.node)))


def unlink_links(folder: RunFolder) -> None:
    """Take this node's links away, and their folder with the last one."""
    for name in _link_names(folder):
        link = folder.links / name
        if link.is_symlink() and link.resolve() == folder.path.resolve():
            link.unlink()
    if folder.links.is_dir() and not any(p.is_symlink() for p in folder.links.iterdir()):
        shutil.rmtree(folder.links, ignore_errors=True)
