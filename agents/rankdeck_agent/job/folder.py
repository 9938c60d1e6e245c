"""The run folder of one job on one node: the paths in it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rankdeck_agent.names import LAUNCHER, RUN_TOKEN

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
STREAMS = ("out", "err")
SLURM_SETTINGS = "slurm.json"
"""What the console set for a job that Slurm runs."""


class FolderError(Exception):
    """A run folder that cannot be made or found; the text is a sentence."""


class FolderThereError(FolderError):
    """The job has been started on this node before."""


def good_name(name: str) -> bool:
    """Whether `name` can be a part of a path without leading anywhere else."""
    return bool(_NAME.match(name))


def state_folder() -> Path:
    """Where jobs are kept on this machine."""
    chosen = os.environ.get("RANKDECK_STATE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(base) / "rankdeck"


class RunFolder(NamedTuple):
    """Paths of one run folder."""

    path: Path
    job: str
    node: str

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def place(self, rank: int) -> Path:
        """The folder of one rank's output; LAUNCHER has one as well."""
        return self.path / ("launcher" if rank == LAUNCHER else f"rank.{rank}")

    def ranks(self) -> list[int]:
        """Every rank that has a folder here, LAUNCHER first."""
        found = (p.name[5:] for p in self.path.glob("rank.*"))
        return [LAUNCHER, *sorted(int(name) for name in found if name.isdigit())]

    @property
    def links(self) -> Path:
        """The folder whose path is the same on every node."""
        return Path(f"/tmp/rankdeck.{self.job}")

    def plan_text(self, text: str) -> str:
        """`text` with the run folder's path in the place of its token."""
        return text.replace(RUN_TOKEN, str(self.path))


def is_slurm(folder: RunFolder) -> bool:
    """Whether Slurm runs this job: a keeper, perhaps on another login node, writes its events."""
    return (folder / SLURM_SETTINGS).exists()


def run_folder(job: str, node: str) -> RunFolder:
    """The folder of that job on that node, whether it exists or not; raises FolderError."""
    for name in (job, node):
        if not good_name(name):
            raise FolderError(f"{name[:60]!r} is not a name of a job or node")
    return RunFolder(state_folder().absolute() / "jobs" / job / node, job, node)


def existing(job: str, node: str) -> RunFolder:
    """The same, raising FolderError where the job was never started here."""
    folder = run_folder(job, node)
    if not (folder / "events").is_file():
        raise FolderError(f"job {job} has not been started on node {node}")
    return folder


def all_folders() -> Iterator[RunFolder]:
    """Every job that this machine knows of."""
    for events in sorted((state_folder().absolute() / "jobs").glob("*/*/events")):
        yield RunFolder(events.parent, events.parent.parent.name, events.parent.name)
