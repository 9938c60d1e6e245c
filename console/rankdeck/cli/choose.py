"""Which cluster is meant, and which of its jobs."""

import os
from collections.abc import Iterable
from pathlib import Path

from rankdeck.cli.codes import UsageError
from rankdeck.config.clusters import read_cluster
from rankdeck.config.paths import config_folder, find_cluster
from rankdeck.demo.cluster import status as demo_status
from rankdeck.errors import UnknownJobError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import Job

VARIABLE = "RANKDECK_CLUSTER"


def cluster(given: str) -> Cluster:
    """The cluster of this file or name, else the one that is meant where none is given."""
    name = given or os.environ.get(VARIABLE, "")
    if name == "demo":
        return read_cluster(_demo_file())
    return read_cluster(find_cluster(name) if name else _only_cluster())


def _demo_file() -> Path:
    demo = demo_status()
    if not demo.running:
        raise UsageError(
            "the demo cluster does not run; start it with `rankdeck demo up`"
        )
    return demo.file


def _only_cluster() -> Path:
    """The user's one cluster file, else the demo's while it runs."""
    folder = config_folder() / "clusters"
    files = sorted((*folder.glob("*.yaml"), *folder.glob("*.yml")))
    if len(files) == 1:
        return files[0]
    if files:
        names = ", ".join(file.stem for file in files)
        raise UsageError(
            f"which cluster? say -c NAME or set {VARIABLE}; there are: {names}"
        )
    demo = demo_status()
    if demo.running:
        return demo.file
    raise UsageError(
        f"no cluster: say -c FILE, set {VARIABLE}, put a file into {folder}, or try `rankdeck demo`"
    )


def job(jobs: Iterable[Job], given: str) -> Job:
    """The job of that id or beginning of an id, else the newest of that name."""
    known = tuple(jobs)
    exact = [job for job in known if job.id == given]
    named = sorted(
        (job for job in known if job.name == given), key=lambda job: -job.created
    )
    begun = [job for job in known if job.id.startswith(given)] if given else []
    if exact or named:
        return (exact or named)[0]
    if len(begun) > 1:
        ids = ", ".join(sorted(job.id for job in begun))
        raise UnknownJobError(f"more than one job begins with `{given}`: {ids}")
    if not begun:
        raise UnknownJobError(f"no job `{given}` on this cluster; see `rankdeck jobs`")
    return begun[0]
