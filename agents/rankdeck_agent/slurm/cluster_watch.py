"""`slurm watch`, `list` and `ended`: nodes, partitions and everybody's jobs, as lines of JSON.

The configuration is one line on stdin: {"path": …, "rpcs_per_minute": …}. `watch` ends with stdin. The keeper asks
Slurm; here its answers are read, and what changed is sent. `ended` asks sacct, so slurmdbd and not the
controller; its answer is left in the state folder and serves every console for a minute.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Optional

from rankdeck_agent.files import private_folder
from rankdeck_agent.job.folder import plain, table
from rankdeck_agent.slurm import claim
from rankdeck_agent.slurm.cluster import (
    NODES,
    QUESTIONS,
    QUEUE,
    TOUCH,
    Row,
    SlurmAnswer,
    job_rows,
    leave,
    node_rows,
    place_jobs,
    read,
    want,
)
from rankdeck_agent.slurm.commands import LIMIT, Slurm, one_line
from rankdeck_agent.slurm.keeper import named
from rankdeck_agent.slurm.rows import SACCT_FIELDS, account_rows, known
from rankdeck_agent.slurm.verdict import FINAL, EndWords, status, verdict

_TURN = 1.0
_FRESH = 90.0
"""Seconds for which `list` takes an answer that is there."""
_LONGEST = 65536
_KEYS = {"node": "name", "partition": "name", "job": "id"}
"""Kind of row -> the key by which rows of it are told apart."""


class SlurmView:
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

    def take(self, name: str, answer: Optional[SlurmAnswer]) -> None:
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
    view, keeper, touched, ready = SlurmView(), claim.KeeperWatch(), float("-inf"), False
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
    view, keeper, deadline = SlurmView(), claim.KeeperWatch(), time.monotonic() + LIMIT
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


def _look(view: SlurmView) -> None:
    for name in (NODES, QUEUE):
        view.take(name, read(name))


def _await_end(over: threading.Event) -> None:
    while sys.stdin.readline(_LONGEST):
        pass
    over.set()


def _say(row: Row) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


ENDED = "cluster.ended"
"""The file with the answer."""
_ENDED_FRESH, _LIMIT, _MOST = 60.0, 60.0, 2000
_MORE = ("User", "NNodes", "AllocCPUS", "JobName")
"""After the fields of our own jobs. The name is last: it may hold anything, also what looks like other rows."""
SACCT = (
    "sacct", "--noheader", "--parsable2", "--allocations", "--allusers", "--starttime=now-1days", "--endtime=now",
    f"--state={','.join(sorted(FINAL - {'RECONFIG_FAIL', 'LAUNCH_FAILED'}))}",
    f"--format={','.join((*SACCT_FIELDS, *_MORE))}",
)  # fmt: skip
"""Slurm shows a user what it may see: of others nothing where `PrivateData` has jobs."""
_OFF = "accounting storage is disabled"
NO_HISTORY = (
    "this Slurm keeps no history (its accounting is off): of jobs that ended only those that Rankdeck followed are known"
)  # fmt: skip


def ended() -> int:
    """Tell of them as lines of JSON; the settings are one line on stdin: {"path": …}."""
    row = table(sys.stdin.readline(1 << 16)) or {}
    path = row.get("path")
    answer = read(ENDED)
    if answer is None or not 0 <= time.time() - answer.at < _ENDED_FRESH:
        answer = _ask(Slurm(path if isinstance(path, str) else ""))
    for found in ended_rows(answer.text):
        _say_ended({"ended": found})
    _say_ended({"trouble": _sentence(answer.error)})
    return 0


def _ask(slurm: Slurm) -> SlurmAnswer:
    mark = os.urandom(8).hex()
    reply = slurm.ask(*SACCT, f"--delimiter={mark}", limit=_LIMIT)
    rows = (line.replace(mark, "|") for line in reply.out.split("\n") if mark in line)
    answer = SlurmAnswer(
        time.time(), "\n".join(map(one_line, rows)) if reply.well else "", reply.error
    )
    private_folder(claim.place())
    leave(ENDED, answer)
    return answer


def _sentence(error: str) -> str:
    if not error:
        return ""
    return NO_HISTORY if _OFF in error else f"Slurm's accounting does not answer: {error}"


def ended_rows(text: str) -> Iterator[Row]:
    """The jobs in an answer to `SACCT` that are over, the newest first; other lines are left out."""
    found = [row for line in text.splitlines() if (row := _row(line)) is not None]
    found.sort(key=lambda row: -(row["end"] or 0.0))
    yield from found[:_MOST]


def _row(line: str) -> "Row | None":
    words = line.split("|", len(SACCT_FIELDS) + len(_MORE) - 1)
    seen = next(account_rows(line), None)
    if seen is None or len(words) < len(SACCT_FIELDS) + len(_MORE) or seen.state not in FINAL:
        return None
    user, nodes, cpus, name = words[len(SACCT_FIELDS) :]
    told = verdict(seen, EndWords())
    return {
        "id": seen.id,
        "shown": seen.array or seen.id,
        "state": seen.state,
        "user": plain(known(user), 64),
        "name": plain(name, 300),
        "partition": seen.partition,
        "nodes": seen.nodes,
        "count": int(nodes) if nodes.isdecimal() and len(nodes) < 8 else 0,
        "cpus": int(cpus) if cpus.isdecimal() and len(cpus) < 10 else 0,
        "start": seen.start,
        "end": seen.end,
        "submitted": seen.submitted,
        "text": told.text,
        "code": status(seen),
    }


def _say_ended(row: Row) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
