"""`slurm watch` and `slurm list`: print all nodes, partitions and everybody's jobs of Slurm
as lines of JSON.

They read the answers that the keeper leaves in files (`answers`). Their settings are one line on
stdin: {"environment": {…}, "rpcs_per_minute": …}; `watch` runs until stdin ends.
"""

import json
import os
import time
from collections.abc import Iterator

from rankdeck_agent.descriptors import wait_readable
from rankdeck_agent.schedulers.slurm.answers import (
    NODES,
    QUESTIONS,
    QUEUE,
    TOUCH,
    SlurmAnswer,
    answer_to,
    leave_answer,
    read_answer,
    read_question_settings,
    want_answers,
)
from rankdeck_agent.schedulers.slurm.commands import patience_in, slurm_in
from rankdeck_agent.schedulers.slurm.keeper_lease import KeeperWatch
from rankdeck_agent.schedulers.slurm.queue import Row, job_rows, shown_jobs_of
from rankdeck_agent.schedulers.slurm.sinfo import node_rows, place_jobs
from rankdeck_agent.schedulers.slurm.values import user_name_of
from rankdeck_agent.text import print_json_line

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
    settings = read_question_settings()
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
    settings = read_question_settings()
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


def _look(view: SlurmView, since: float = 0.0) -> None:
    for name in QUESTIONS:
        answer = read_answer(name)
        if answer is not None and answer.at >= since:
            view.take(name, answer)
