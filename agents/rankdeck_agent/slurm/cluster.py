"""`slurm watch`, `list` and `ended`: print all nodes, partitions and
everybody's jobs of Slurm as lines of JSON.

A console that shows the cluster touches `slurm/wanted`. Then the keeper asks Slurm, once for all
consoles, and writes each answer to a file in the same folder, after a line with the time and the
error. The commands read these files. Their settings are one line on stdin: {"environment": {…},
"rpcs_per_minute": …}; `watch` runs until stdin ends. `ended` asks sacct, which asks slurmdbd and
not the controller; its answer is used by all consoles for a minute.
"""

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Optional

from rankdeck_agent.files import make_private_folder, replace_private, user_name, wait_readable
from rankdeck_agent.slurm.commands import (
    QUEUE_CALLS,
    SACCT_FIELDS,
    Budget,
    QueueTimer,
    Slurm,
    account_rows,
    calls_a_minute,
    cluster_period,
    cut_columns,
    known_text,
    one_line,
    parse_count,
    parse_moment,
    parse_span,
    patience_in,
    slurm_in,
)
from rankdeck_agent.slurm.folder import KeeperWatch, keeper_folder, touched_time
from rankdeck_agent.slurm.queue import QUEUE_COLUMNS, QUEUE_FIELDS, Row, job_rows, shown_jobs_of
from rankdeck_agent.slurm.verdict import FINAL, EndWords, judge_slurm_job, slurm_exit_status
from rankdeck_agent.text import parse_json_table, plain_line, print_json_line

MOST_NODES, MOST_PARTITIONS = 20_000, 1_000
_JOBS_OF_NODE = 64
NODE_COLUMNS = {
    "NodeHost": 64,
    "PartitionName": 64,
    "StateLong": 24,
    "Gres": 256,
    "GresUsed": 320,
    "features_act": 120,
    "CPUsState": 24,
    "AllocMem": 14,
    "Memory": 14,
    "User": 32,
    "Timestamp": 24,
    "Available": 10,
    "Time": 16,
    "Size": 24,
    "Partition": 66,
    "Reason": 240,
}
"""Field of `sinfo -O` -> its width."""
SINFO = (
    "sinfo", "--local", "--noheader", "--all", "--Node",
    "--Format=" + ",".join(f"{name}:{width}" for name, width in NODE_COLUMNS.items()),
)  # fmt: skip
"""The command for nodes and partitions: prints a line for each node of each partition."""
_SYMBOLS = {
    "*": "not responding",
    "~": "powered down",
    "#": "powering up",
    "!": "to be powered down",
    "%": "powering down",
    "$": "reserved for maintenance",
    "@": "to be rebooted",
    "^": "rebooting",
    "-": "planned for a job",
    "+": "",
}
"""Sign at the end of a node's state -> its meaning."""


def node_rows(text: str) -> tuple[list[Row], list[Row]]:
    """(nodes, partitions) in the output of SINFO; other lines are skipped."""
    nodes: dict[str, Row] = {}
    partitions: dict[str, Row] = {}
    for line in text.splitlines():
        if "/" not in line:
            continue  # a quick check, because there may be megabytes of lines
        cells = dict(cut_columns(line, NODE_COLUMNS))
        name, where = cells["NodeHost"], cells["PartitionName"]
        if not name or not cells["StateLong"] or "/" not in cells["CPUsState"]:
            continue
        if name not in nodes and len(nodes) < MOST_NODES:
            nodes[name] = _node(cells)
        if name in nodes and where:
            nodes[name]["partitions"].append(where)
        if where and (where in partitions or len(partitions) < MOST_PARTITIONS):
            _count(partitions.setdefault(where, _partition(cells)), cells)
    return list(nodes.values()), list(partitions.values())


def _node(cells: Mapping[str, str]) -> Row:
    word = cells["StateLong"]
    state = word.rstrip("".join(_SYMBOLS))
    busy, _, _, total = _numbers(cells["CPUsState"])
    return {
        "name": cells["NodeHost"],
        "state": state,
        "also": [_SYMBOLS[sign] for sign in word[len(state) :] if _SYMBOLS[sign]],
        "reason": _reason(cells["Reason"]),
        "by": known_text(cells["User"]),
        "since": parse_moment(cells["Timestamp"]),
        "partitions": [],
        "features": known_text(cells["features_act"]),
        "gres": _gres(cells["Gres"]),
        "gres_used": _gres(cells["GresUsed"]),
        "cpus": total,
        "cpus_used": busy,
        "memory": parse_count(cells["Memory"]),
        "memory_used": parse_count(cells["AllocMem"]),
        "jobs": [],
    }


def _reason(text: str) -> str:
    return "" if text == "none" else known_text(text)


_CPUS = 4


def _numbers(text: str) -> tuple[int, ...]:
    """(allocated, idle, other, total) in `4/0/0/4`."""
    words = text.split("/")
    return tuple(map(parse_count, words)) if len(words) == _CPUS else (0,) * _CPUS


_GRES = re.compile(r"([A-Za-z0-9_.+-]+(?::[A-Za-z0-9_.+-]+)?):(\d{1,9})(?:[KMGT])?(?:\(|,|$)")


def _gres(text: str) -> dict[str, int]:
    """Name -> number in `gpu:a100:4(S:0-1),nic:2`."""
    found: dict[str, int] = {}
    for name, count in _GRES.findall(re.sub(r"\([^)]*\)", "", text)):
        found[name] = found.get(name, 0) + int(count)
    return found


def _partition(cells: Mapping[str, str]) -> Row:
    return {
        "name": cells["PartitionName"],
        "usual": cells["Partition"].endswith("*"),
        "up": cells["Available"] == "up",
        "limit": parse_span(cells["Time"]),
        "size": cells["Size"],
        "nodes": 0,
        "idle": 0,
        "usable": 0,
    }


_UNUSABLE = ("down", "drain", "fail", "maint", "unknown", "error", "inval", "reboot", "future")


def _count(partition: Row, cells: Mapping[str, str]) -> None:
    word = cells["StateLong"]
    usable = not word.startswith(_UNUSABLE) and word != "drng" and not set(word) & set("*$@^")
    partition["nodes"] += 1
    partition["usable"] += usable
    partition["idle"] += usable and word.startswith("idle")


def place_jobs(nodes: Iterable[Row], jobs: Iterable[Row]) -> None:
    """Add to each node's row the jobs that run there."""
    known_nodes = {row["name"]: row for row in nodes}
    for job in jobs:
        for name in unfold_hosts(job["nodes"]) if job["state"] != "PENDING" else ():
            node = known_nodes.get(name)
            if node is not None and len(node["jobs"]) < _JOBS_OF_NODE:
                node["jobs"].append(f"{job['shown']} {job['user']}")


_PART = re.compile(r"([^,\[]*)\[([^\]]*)\]([^,\[]*)|([^,\[\]]+)")
_MOST_NAMES = 20_000


def unfold_hosts(text: str) -> list[str]:
    """The names in a host list such as `n[1-2,07],gpu3`, at most 20,000; lists
    with several dimensions are not supported.
    """
    names: list[str] = []
    for match in _PART.finditer(text):
        if match[4]:
            names.append(match[4])
            continue
        for word in match[2].split(","):
            names += (f"{match[1]}{number}{match[3]}" for number in _range(word))
        if len(names) > _MOST_NAMES:
            break
    return names[:_MOST_NAMES]


def _range(word: str) -> Iterable[str]:
    low, dash, high = word.partition("-")
    if not low.isdecimal() or (dash and not high.isdecimal()) or len(low + high) > 20:
        return ()
    last = min(int(high or low), int(low) + _MOST_NAMES)
    return (str(number).zfill(len(low)) for number in range(int(low), last + 1))


WANTED, NODES, QUEUE = "wanted", "cluster.nodes", "cluster.queue"
QUESTIONS = (QUEUE, NODES)
"""Files with the answers of Slurm, that to squeue first: it is what most people wait for."""
TOUCH = 10.0
"""Seconds between two touches by a console that wants the answers."""
FORGOTTEN = 35.0
"""Seconds without a touch after which nobody wants the answers any more."""


class SlurmAnswer(NamedTuple):
    """An answer of Slurm. `at`: epoch seconds; `error`: one sentence, "" if Slurm answered."""

    at: float
    text: str
    """With an error: what Slurm answered last."""
    error: str = ""
    told: float = 0.0
    """When Slurm told the text; 0.0: never."""


class ClusterPoll:
    """The keeper's part: asks Slurm while a console wants the answers."""

    def __init__(self) -> None:
        self._touched: Optional[float] = None
        self._wanted_at = float("-inf")
        self._rhythms = {name: QueueTimer() for name in QUESTIONS}
        self.slurm = Slurm()
        """Slurm's commands, with the environment in the console's settings."""
        self.most = calls_a_minute({})
        """Calls per minute, from the console's settings."""

    def wanted(self, now: float) -> bool:
        """Whether any console wants the answers; `now` in monotonic seconds."""
        at = touched_time(keeper_folder() / WANTED)
        if at is not None and at != self._touched:
            # At the first look the file may be old, from the time of an earlier keeper.
            if self._touched is not None or time.time() - at < FORGOTTEN:
                self._wanted_at = now
            self._touched = at
            self._read_settings()
        return now - self._wanted_at < FORGOTTEN

    def _read_settings(self) -> None:
        try:
            row = parse_json_table((keeper_folder() / WANTED).read_text()) or {}
        except OSError:
            return
        self.slurm = slurm_in(row)
        self.most = calls_a_minute(row)

    def want_queue(self, at: float) -> None:
        """Ask for everybody's jobs no later than at this time, as far as the
        budget allows: one of ours has changed.
        """
        self._rhythms[QUEUE].want(at)

    def ask(self, slurm: Slurm, budget: Budget, now: float, *, reserve: int) -> str:
        """Ask what is due while `reserve` calls remain; returns the new text of
        everybody's jobs, "" if not asked for.
        """
        news = ""
        for name in sorted(QUESTIONS, key=lambda name: self._rhythms[name].last):
            rhythm = self._rhythms[name]
            rhythm.period = cluster_period(budget.most)
            if not rhythm.due(now) or not budget.allows(QUEUE_CALLS + reserve, now):
                continue
            budget.spend(QUEUE_CALLS, now)
            answer = answer_to(name, slurm)
            rhythm.asked(now, well=not answer.error)
            leave_answer(name, answer)
            news = answer.text if name == QUEUE else news
        return news


def answer_to(name: str, slurm: Slurm) -> SlurmAnswer:
    """Ask Slurm one of QUESTIONS, by name."""
    if name == QUEUE:
        reply = slurm.ask_columns(*QUEUE_FIELDS, columns=QUEUE_COLUMNS)
    else:
        reply = slurm.ask(*SINFO)
    now = time.time()
    return SlurmAnswer(now, reply.out, "", now) if reply.well else SlurmAnswer(now, "", reply.error)


def leave_answer(name: str, answer: SlurmAnswer) -> None:
    """Write an answer to the file where consoles read it, with an error the text of the last one.

    Errors of the file system are ignored, since Slurm is asked again later.
    """
    before = read_answer(name) if answer.error else None
    if before is not None:
        answer = answer._replace(text=before.text, told=before.told)
    head = json.dumps({"at": answer.at, "error": answer.error, "told": answer.told})
    with contextlib.suppress(OSError):
        replace_private(keeper_folder() / name, f"{head}\n{answer.text}".encode("utf-8", "replace"))


def read_answer(name: str) -> Optional[SlurmAnswer]:
    """The newest answer in the file; None if there is none."""
    try:
        head, _, text = (keeper_folder() / name).read_text("utf-8", "replace").partition("\n")
    except OSError:
        return None
    row = parse_json_table(head) or {}
    at, error, told = row.get("at"), row.get("error"), row.get("told")
    if not isinstance(at, float) or not isinstance(error, str) or not isinstance(told, float):
        return None
    return SlurmAnswer(at, text, error, told)


def want_answers(settings: Mapping[str, object]) -> None:
    """Tell the keeper that the answers are wanted; raises OSError."""
    make_private_folder(keeper_folder())
    replace_private(keeper_folder() / WANTED, json.dumps(dict(settings)).encode())


def user_name_of(by: str) -> str:
    """The user's name for a user id; other text is returned as it is."""
    if not by.isdecimal():
        return by
    name = user_name(int(by))
    return f"user {by}" if name == by else name


_TURN = 1.0
_FRESH = 90.0
"""Most seconds of age of an answer that `list` uses while a newer one may come."""
_FIRST_WAIT = 75.0
"""Seconds for which `list` waits if nothing is known yet: two
slow commands, one after the other.
"""
_NEXT_WAIT = 12.0
"""The same if something is known, be it old: the calls of this minute may be spent."""
_LONGEST = 1 << 20
_KEYS = {"node": "name", "partition": "name", "job": "id"}
"""Kind of row -> the key that identifies a row."""


class SlurmView:
    """The nodes, partitions and jobs, from answers in any order; `news`
    returns what to send to the console.
    """

    def __init__(self) -> None:
        self._stamps: dict[str, float] = {}
        self._told: dict[str, float] = {}
        """Question -> when Slurm told what is known of its answer."""
        self._told_age = 0.0
        self._nodes: list[Row] = []
        self._partitions: list[Row] = []
        self._user = user_name_of(str(os.getuid()))
        self._queue: list[Row] = []
        self._jobs: list[Row] = []
        self._left_out = self._told_left_out = 0
        self._errors: dict[str, str] = {}
        self._printed: dict[tuple[str, str], str] = {}
        self._trouble = ""

    @property
    def complete(self) -> bool:
        """Whether every question was answered, perhaps with an error."""
        return self._stamps.keys() == set(QUESTIONS)

    @property
    def trouble(self) -> str:
        """Why Slurm has not answered a question, one sentence; "" if it has."""
        return next(filter(None, self._errors.values()), "")

    def take(self, name: str, answer: SlurmAnswer) -> None:
        """Use an answer; does nothing if it was used before."""
        if self._stamps.get(name) == answer.at:
            return
        self._stamps[name] = answer.at
        self._errors[name] = answer.error
        if not answer.told or self._told.get(name) == answer.told:
            return  # keep what is known
        self._told[name] = answer.told
        if name == NODES:
            self._nodes, self._partitions = node_rows(answer.text)
        else:
            self._queue = list(job_rows(answer.text))
            self._jobs, self._left_out = shown_jobs_of(self._queue, self._user)
        for node in self._nodes:
            node["jobs"] = []
        place_jobs(self._nodes, self._queue)

    def news(self) -> Iterator[Row]:
        """{KIND: row} for new or changed rows, {KIND_gone: name}, and
        {"trouble": …} when it begins or ends ("").
        """
        now: dict[tuple[str, str], Row] = {}
        for kind, rows in (("partition", self._partitions), ("node", self._nodes), ("job", self._jobs)):  # fmt: skip
            now.update({(kind, row[_KEYS[kind]]): row for row in rows})
        for kind, name in self._printed.keys() - now.keys():
            del self._printed[kind, name]
            yield {f"{kind}_gone": name}
        for key, row in now.items():
            text = json.dumps(row)
            if self._printed.get(key) != text:
                self._printed[key] = text
                yield {key[0]: row}
        if self._left_out != self._told_left_out:
            self._told_left_out = self._left_out
            yield {"left_out": self._left_out}
        if self._told.get(QUEUE, 0.0) != self._told_age:
            self._told_age = self._told[QUEUE]
            yield {"queue_age": max(time.time() - self._told_age, 0.0)}
        trouble = self.trouble
        if trouble != self._trouble:
            self._trouble = trouble
            yield {"trouble": f"Slurm does not answer: {trouble}" if trouble else ""}


def watch_queue() -> int:
    """Print nodes, partitions and jobs until stdin ends; returns the exit code."""
    settings = _settings()
    print_json_line({"about": {"user": user_name_of(str(os.getuid()))}})
    view, keeper, touched, ready = SlurmView(), KeeperWatch(), float("-inf"), False
    while True:
        if time.monotonic() - touched > TOUCH:
            touched = time.monotonic()
            want_answers(settings)
        keeper.ensure()
        _look(view)
        for row in view.news():
            print_json_line(row)
        if view.complete and not ready:
            ready = True
            print_json_line({"ready": True})
        if wait_readable([0], _TURN) and not os.read(0, _LONGEST):
            return 0


def list_all() -> int:
    """Print them once, at most _FRESH seconds old, or with {"now": true} as
    they are now; returns the exit code.

    A slow Slurm is waited for; what it has not told by then is printed
    as it was known before, with its age.
    """
    settings = _settings()
    want_answers(settings)
    print_json_line({"about": {"user": user_name_of(str(os.getuid()))}})
    if settings.get("now") is True:
        for name in QUESTIONS:
            leave_answer(name, answer_to(name, slurm_in(settings)))
    view, keeper = SlurmView(), KeeperWatch()
    known_before = all(read_answer(name) is not None for name in QUESTIONS)
    wait = (_NEXT_WAIT if known_before else _FIRST_WAIT) * patience_in(settings)
    deadline = time.monotonic() + wait
    while not view.complete and not view.trouble and time.monotonic() < deadline:
        keeper.ensure()
        _look(view, time.time() - _FRESH)
        if not view.complete:
            time.sleep(_TURN / 5)
    _look(view)
    for row in view.news():
        print_json_line(row)
    if not view.complete and not view.trouble:
        print_json_line(
            {"trouble": f"Slurm has not told all of its queue and nodes within {wait:.0f} s"}
        )
    return 0


def _settings() -> dict[str, Any]:
    return parse_json_table(sys.stdin.readline(_LONGEST)) or {}


def _look(view: SlurmView, since: float = 0.0) -> None:
    for name in QUESTIONS:
        answer = read_answer(name)
        if answer is not None and answer.at >= since:
            view.take(name, answer)


ENDED = "cluster.ended"
"""File with the answer to SACCT."""
_ENDED_FRESH, _LIMIT, _MOST = 60.0, 60.0, 2000
_MORE = ("User", "NNodes", "AllocCPUS", "JobName")
"""Fields after SACCT_FIELDS.

The name is last: it may contain anything, even text that looks like rows.
"""
SACCT = (
    "sacct", "--noheader", "--parsable2", "--allocations", "--allusers", "--starttime=now-1days", "--endtime=now",
    f"--state={','.join(sorted(FINAL - {'RECONFIG_FAIL', 'LAUNCH_FAILED'}))}",
    f"--format={','.join((*SACCT_FIELDS, *_MORE))}",
)  # fmt: skip
"""The command for everybody's jobs that ended in the last day; with
`PrivateData=jobs` Slurm shows only one's own.
"""
_OFF = "accounting storage is disabled"
NO_HISTORY = (
    "this Slurm keeps no history (its accounting is off): of jobs that ended only those that Rankdeck followed are known"
)  # fmt: skip


def print_ended_jobs() -> int:
    """Print the jobs that ended in the last day as lines of JSON; returns the exit code.

    Settings on stdin: {"environment": {…}}.
    """
    settings = _settings()
    answer = read_answer(ENDED)
    if answer is None or not 0 <= time.time() - answer.at < _ENDED_FRESH:
        answer = _ask(slurm_in(settings))
    for found in ended_rows(answer.text):
        print_json_line({"ended": found})
    print_json_line({"trouble": _sentence(answer.error)})
    return 0


def _ask(slurm: Slurm) -> SlurmAnswer:
    mark = os.urandom(8).hex()
    reply = slurm.ask(*SACCT, f"--delimiter={mark}", limit=_LIMIT)
    rows = (line.replace(mark, "|") for line in reply.out.split("\n") if mark in line)
    now = time.time()
    answer = (
        SlurmAnswer(now, "\n".join(map(one_line, rows)), "", now)
        if reply.well
        else SlurmAnswer(now, "", reply.error)
    )
    make_private_folder(keeper_folder())
    leave_answer(ENDED, answer)
    return answer


def _sentence(error: str) -> str:
    if not error:
        return ""
    return NO_HISTORY if _OFF in error else f"Slurm's accounting does not answer: {error}"


def ended_rows(text: str) -> Iterator[Row]:
    """The jobs that are over in the output of SACCT, newest first; other lines are skipped."""
    found = [row for row in map(_row, text.splitlines()) if row is not None]
    found.sort(key=lambda row: -(row["end"] or 0.0))
    yield from found[:_MOST]


def _row(line: str) -> "Row | None":
    words = line.split("|", len(SACCT_FIELDS) + len(_MORE) - 1)
    seen = next(account_rows(line), None)
    if seen is None or len(words) < len(SACCT_FIELDS) + len(_MORE) or seen.state not in FINAL:
        return None
    user, nodes, cpus, name = words[len(SACCT_FIELDS) :]
    state = judge_slurm_job(seen, EndWords())
    return {
        "id": seen.id,
        "shown": seen.array or seen.id,
        "state": seen.state,
        "user": plain_line(known_text(user), 64),
        "name": plain_line(name, 300),
        "partition": seen.partition,
        "nodes": seen.nodes,
        "count": int(nodes) if nodes.isdecimal() and len(nodes) < 8 else 0,
        "cpus": int(cpus) if cpus.isdecimal() and len(cpus) < 10 else 0,
        "start": seen.start,
        "end": seen.end,
        "submitted": seen.submitted,
        "text": state.text,
        "code": slurm_exit_status(seen),
    }
