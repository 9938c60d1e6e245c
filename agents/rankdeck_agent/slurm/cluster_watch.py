"""`slurm watch` and `slurm list`: nodes, partitions and everybody's jobs, as lines of JSON.

The configuration is one line on stdin: {"path": …, "rpcs_per_minute": …}. `watch` ends with stdin. The keeper asks
Slurm; here its answers are read, and what changed in them is told.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Optional

from rankdeck_agent.job.folder import table
from rankdeck_agent.slurm import claim
from rankdeck_agent.slurm.cluster import (
    NODES,
    QUESTIONS,
    QUEUE,
    TOUCH,
    Answer,
    Row,
    job_rows,
    node_rows,
    place_jobs,
    read,
    want,
)
from rankdeck_agent.slurm.commands import LIMIT
from rankdeck_agent.slurm.keeper import named

_TURN = 1.0
_FRESH = 90.0
"""Seconds for which `list` takes an answer that is there."""
_LONGEST = 65536
_KEYS = {"node": "name", "partition": "name", "job": "id"}
"""Kind of row -> the key by which rows of it are told apart."""


class ClusterView:
    """Takes answers in any order; `news` gives what to tell the console."""

    def __init__(self) -> None:
        self._stamps: dict[str, float] = {}
        self._nodes: list[Row] = []
        self._partitions: list[Row] = []
        self._jobs: list[Row] = []
        self._errors: dict[str, str] = {}
        self._told: dict[tuple[str, str], str] = {}
        self._trouble = ""

    @property
    def complete(self) -> bool:
        """Whether every question was answered, or refused."""
        return self._stamps.keys() == QUESTIONS.keys()

    def take(self, name: str, answer: Optional[Answer]) -> None:
        """Take an answer, new or not."""
        if answer is None or self._stamps.get(name) == answer.at:
            return
        self._stamps[name] = answer.at
        self._errors[name] = answer.error
        if answer.error:
            return  # what is known stands
        if name == NODES:
            self._nodes, self._partitions = node_rows(answer.text)
        else:
            self._jobs = list(job_rows(answer.text))
        for node in self._nodes:
            node["jobs"] = []
        place_jobs(self._nodes, self._jobs)

    def news(self) -> Iterator[Row]:
        """Rows that are new or changed, names of rows that are gone, and trouble as it begins and ends."""
        now: dict[tuple[str, str], Row] = {}
        for kind, rows in (("partition", self._partitions), ("node", self._nodes), ("job", self._jobs)):  # fmt: skip
            now.update({(kind, row[_KEYS[kind]]): row for row in rows})
        for kind, name in self._told.keys() - now.keys():
            del self._told[kind, name]
            yield {f"{kind}_gone": name}
        for key, row in now.items():
            text = json.dumps(row)
            if self._told.get(key) != text:
                self._told[key] = text
                yield {key[0]: row}
        trouble = next(filter(None, self._errors.values()), "")
        if trouble != self._trouble:
            self._trouble = trouble
            yield {"trouble": f"Slurm does not answer: {trouble}" if trouble else ""}


def watch() -> int:
    """Tell of nodes and jobs until stdin ends."""
    settings = _settings()
    _say({"about": {"user": named(str(os.getuid()))}})
    over = threading.Event()
    threading.Thread(target=_await_end, args=(over,), daemon=True).start()
    view, keeper, touched, ready = ClusterView(), claim.Watch(), float("-inf"), False
    while not over.is_set():
        if time.monotonic() - touched > TOUCH:
            touched = time.monotonic()
            want(settings)
        keeper.ensure()
        _look(view)
        for row in view.news():
            _say(row)
        if view.complete and not ready:
            ready = True
            _say({"ready": True})
        over.wait(_TURN)
    return 0


def list_all() -> int:
    """Tell of them once, as they were a minute ago at most."""
    want(_settings())
    _say({"about": {"user": named(str(os.getuid()))}})
    view, keeper, deadline = ClusterView(), claim.Watch(), time.monotonic() + LIMIT
    while not view.complete and time.monotonic() < deadline:
        keeper.ensure()
        for name in QUESTIONS:
            answer = read(name)
            if answer is not None and time.time() - answer.at < _FRESH:
                view.take(name, answer)
        if not view.complete:
            time.sleep(_TURN / 5)
    for row in view.news():
        _say(row)
    if not view.complete:
        _say({"trouble": "Slurm was not heard: the keeper left no answer"})
    return 0


def _settings() -> dict[str, Any]:
    row = table(sys.stdin.readline(_LONGEST)) or {}
    return {**row, "path": row.get("path") or os.environ.get("PATH", os.defpath)}


def _look(view: ClusterView) -> None:
    for name in (NODES, QUEUE):
        view.take(name, read(name))


def _await_end(over: threading.Event) -> None:
    while sys.stdin.readline(_LONGEST):
        pass
    over.set()


def _say(row: Row) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()
