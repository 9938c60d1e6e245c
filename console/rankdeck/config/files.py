"""Reads a cluster or a job file; the key `cluster` or `job` says which it is."""

from pathlib import Path

from rankdeck.config import trust
from rankdeck.config.clusters import KEYS as CLUSTER_KEYS
from rankdeck.config.clusters import cluster_from
from rankdeck.config.document import Entry, finish, load
from rankdeck.config.jobs import KEYS as JOB_KEYS
from rankdeck.config.jobs import job_from
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import JobSpec


def look_at(path: Path) -> tuple[Cluster | JobSpec, tuple[trust.Use, ...]]:
    """What `path` describes and what it would run and read, none of it done; raises ConfigError with every mistake in it."""
    root = load(path)
    document = job_from(root) if _is_job(root) else cluster_from(root)
    uses = trust.uses_of(root)
    root.problems[:] = [p for p in root.problems if not isinstance(p, trust.Use)]
    finish(root)
    return document, uses


def _is_job(root: Entry) -> bool:
    """By the key `job` or `cluster`; where neither is there, by what the others look like."""
    noted = len(root.problems)
    keys = root.fields().keys() if root.kind == "map" else set[str]()
    del root.problems[noted:]
    if "job" in keys or "cluster" in keys:
        return "cluster" not in keys
    return len(keys & set(JOB_KEYS)) > len(keys & set(CLUSTER_KEYS))
