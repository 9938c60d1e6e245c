"""Slurm jobs that Rankdeck did not submit: describes one (`slurm look`) and copies its output.

Nothing of the job is changed. The keeper copies the job's output into a run folder; if `srun
--label` marks the lines, each goes to the log of its rank. It remembers how far each file was
copied, so that no line is copied twice.
"""

import json
import os
import re
import stat
import sys
from collections.abc import Mapping
from typing import Any, cast

from rankdeck_agent import LAUNCHER
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.private_files import replace_private
from rankdeck_agent.schedulers.slurm.commands import slurm_in
from rankdeck_agent.schedulers.slurm.job_reports import output_files, shown_job
from rankdeck_agent.schedulers.slurm.queue import QUEUE_COLUMNS, QUEUE_FIELDS, job_rows, jobs_in
from rankdeck_agent.schedulers.slurm.values import JOB_OR_TASK
from rankdeck_agent.text import parse_json_table, print_json_line

_LONGEST = 1 << 20
_HEAD = 1 << 16
"""Bytes at the beginning of a file that decide whether its lines are labelled."""
_AT_ONCE = 1 << 20
"""Most bytes of a file that are copied in one look."""
MOST = 256 << 20
"""Most bytes of a file that are copied in all."""
MOST_RANKS = 4096
"""With more ranks, the output is not separated by rank."""
_LABEL = re.compile(rb" *(\d{1,6}): ?")
_COPIED = "copied.json"
_PART = "job {0} is a component of the het job {1}, which begins and ends as a whole: name {1}"


def print_slurm_job() -> int:
    """Print one line of JSON about the job on stdin, {"id": …, "environment": {…}};
    or {"error": …}. Returns the exit code.
    """
    row = parse_json_table(sys.stdin.readline(_LONGEST)) or {}
    number = row.get("id")
    if not isinstance(number, str) or not JOB_OR_TASK.match(number):
        return print_json_line({"error": "no id of a job"})
    slurm = slurm_in(row)
    reply = slurm.ask("scontrol", "--local", "--oneliner", "show", "job", number)
    seen = shown_job(reply.out) if reply.well else None
    # A job's name may imitate the fields that scontrol writes after
    # it: the owner comes from squeue.
    listed = slurm.ask_columns(
        *QUEUE_FIELDS, "--states=all", f"--jobs={number}", columns=QUEUE_COLUMNS
    )
    rows = list(job_rows(listed.out))
    row = rows[0] if rows else None
    if seen is None or row is None:
        return print_json_line(
            {"error": f"Slurm tells nothing of job {number}: {reply.error or 'no answer'}"}
        )
    if row["offset"] is not None and row["id"] != number:
        return print_json_line({"error": _PART.format(number, row["id"])})
    out, err = output_files(reply.out)
    known = {key: row[key] for key in ("name", "user", "state", "submitted")}
    known.update(
        id=seen.id,
        array=seen.array,
        components=len(row.get("components", ())),
        tasks=sum(map(jobs_in, rows)),
    )
    split = 1 < seen.tasks <= MOST_RANKS and is_labelled(_head(out), seen.tasks)
    return print_json_line({**known, "out": out, "err": err, "ranks": seen.tasks if split else 1})


def _head(path: str) -> bytes:
    """The beginning of a file; b"" if it cannot be read yet."""
    try:
        return read_at(path, 0, _HEAD)
    except OSError:
        return b""


def is_labelled(head: bytes, ranks: int) -> bool:
    """Whether at least half of the complete lines begin with a label
    of `srun --label` and a valid rank.
    """
    lines = head.split(b"\n")[:-1]
    return bool(lines) and 2 * sum(rank_of(line, ranks)[0] >= 0 for line in lines) >= len(lines)


def rank_of(line: bytes, ranks: int) -> tuple[int, bytes]:
    """(rank, line without its label); the rank is LAUNCHER if the line has no valid label."""
    found = _LABEL.match(line)
    if found is None or int(found[1]) >= ranks:
        return LAUNCHER, line
    return int(found[1]), line[found.end() :]


def read_at(path: str, offset: int, most: int) -> bytes:
    """At most `most` bytes of a file; raises OSError, also if it is not a
    regular file: a pipe could block us.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "no plain file")
        return os.pread(handle, most, offset)
    finally:
        os.close(handle)


class OutputCopy:
    """Copies the output files of such a job into the logs of its ranks.

    `settings` has their paths, `out` and `err`.
    """

    def __init__(self, folder: RunFolder, settings: Mapping[str, Any]) -> None:
        self._folder = folder
        self._ranks = sum(rank != LAUNCHER for rank in folder.ranks())
        files = {name: settings.get(name) for name in ("out", "err")}
        self._files = {name: path for name, path in files.items() if isinstance(path, str) and path}
        if self._files.get("err") == self._files.get("out"):
            self._files.pop("err", None)
        self._offsets = dict.fromkeys(self._files, 0)
        self._sizes: dict[str, int] = {}
        self._reported: set[str] = set()
        self._restore()

    def _restore(self) -> None:
        """Continue from the position that an earlier keeper saved, and cut off
        what it wrote to the logs after that.
        """
        try:
            note = parse_json_table((self._folder / _COPIED).read_text()) or {}
        except OSError:
            return
        for name, at in _numbers(note.get("at")).items():
            self._offsets[name] = at
        self._sizes = _numbers(note.get("sizes"))
        for rank in self._folder.ranks():
            for name in self._files:
                log = self._folder.place(rank) / name
                if log.exists():
                    os.truncate(log, self._sizes.get(f"{rank}.{name}", 0))

    def look(self, *, runs: bool) -> list[str]:
        """Copy what is new; returns sentences for the operator, each
        only once. `runs`: the job has begun.

        Raises OSError if our own files cannot be written.
        """
        return list(filter(None, (self._copy(name, runs=runs) for name in self._files)))

    def finish(self) -> list[str]:
        """Copy all that is left, even a last line without end; returns
        sentences as `print_slurm_job` does.
        """
        troubles: list[str] = []
        before = None
        while before != self._offsets:
            before = dict(self._offsets)
            troubles += self.look(runs=True)
        return troubles + list(filter(None, (self._copy(name, whole=True) for name in self._files)))

    def _copy(self, name: str, *, runs: bool = True, whole: bool = False) -> str:
        """Copy complete lines (with `whole` also a last one without end);
        returns a sentence if that is not possible.
        """
        most = min(_AT_ONCE, MOST - self._offsets[name])
        try:
            data = read_at(self._files[name], self._offsets[name], most) if most > 0 else b""
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not runs:
                return ""
            return self._once(
                f"its output cannot be read here: {self._files[name]}: {error.strerror}"
            )
        if self._ranks > 1 and not whole and (b"\n" in data or len(data) < most):
            data = data[: data.rfind(b"\n") + 1]
        if data:
            self._write(name, data)
        if self._offsets[name] >= MOST:
            return self._once(
                f"only the first {MOST >> 20} MB are shown: {self._files[name]} has all"
            )
        return ""

    def _once(self, text: str) -> str:
        fresh = text not in self._reported
        self._reported.add(text)
        return text if fresh else ""

    def _write(self, name: str, data: bytes) -> None:
        for rank, part in self._parts(data).items():
            with (self._folder.place(rank) / name).open("ab") as log:
                log.write(part)
            key = f"{rank}.{name}"
            self._sizes[key] = self._sizes.get(key, 0) + len(part)
        self._offsets[name] += len(data)
        note = json.dumps({"at": self._offsets, "sizes": self._sizes}).encode()
        replace_private(self._folder / _COPIED, note)

    def _parts(self, data: bytes) -> dict[int, bytes]:
        """Rank -> its part of `data`; without labels the single rank gets all."""
        if self._ranks == 1:
            return {0: data}
        found: dict[int, list[bytes]] = {}
        for line in data.splitlines(keepends=True):
            rank, text = rank_of(line, self._ranks)
            found.setdefault(rank, []).append(text)
        return {rank: b"".join(lines) for rank, lines in found.items()}


def _numbers(found: object) -> dict[str, int]:
    items = cast("dict[str, object]", found).items() if isinstance(found, dict) else ()
    return {key: value for key, value in items if isinstance(value, int)}
