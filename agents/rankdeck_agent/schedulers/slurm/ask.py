"""`slurm ask`: what Slurm itself says about jobs, priorities, shares and its
controller, and how well jobs used what they had.

Takes one line of JSON on stdin: {"what": "job" | "priority" | "shares" | "controller" |
"efficiency", "jobs": […], "environment": {…}}; answers with {"pages": [{"line": the command,
"lines": […], "error": …}], "efficiency": […]}. Nothing of this is asked unless somebody wants to
see it.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, cast

from rankdeck_agent.schedulers.slurm.commands import Slurm, run_slurm_command, slurm_in
from rankdeck_agent.schedulers.slurm.environment import login_environment
from rankdeck_agent.schedulers.slurm.job_reports import shown_job
from rankdeck_agent.schedulers.slurm.queue import Row
from rankdeck_agent.schedulers.slurm.values import (
    JOB_OR_TASKS,
    gpus_of,
    known_text,
    parse_span,
    requested_megabytes,
)
from rankdeck_agent.schedulers.slurm.verdict import FINAL
from rankdeck_agent.text import parse_json_table, print_json_line, shown_line

JOB, PRIORITY, SHARES, CONTROLLER, EFFICIENCY = (
    "job",
    "priority",
    "shares",
    "controller",
    "efficiency",
)
_LONGEST, _MOST_JOBS, _LIMIT = 1 << 20, 200, 45.0
_MOST_LINES, _LONGEST_LINE = 4000, 1000
_TASKS = re.compile(r"_\[.*")
"""The tasks in the name of those that wait together: Slurm is asked about their array."""
_FIELDS: Sequence[str] = (
    "JobIDRaw", "JobID", "State", "ElapsedRaw", "AllocCPUS", "NNodes", "TotalCPU", "AllocTRES", "TRESUsageInTot",
)  # fmt: skip
_GPU_TIME = re.compile(r"(?:^|,)gres/gpuutil=([0-9]{1,9})(?=,|$)")


def answer_question() -> int:
    """Answer the question on stdin with one line of JSON; returns the exit code."""
    row = parse_json_table(sys.stdin.readline(_LONGEST)) or {}
    found, what = row.get("jobs"), row.get("what")
    given: list[object] = list(cast("list[object]", found)) if isinstance(found, list) else []
    jobs = [
        _TASKS.sub("", name)
        for name in given[:_MOST_JOBS]
        if isinstance(name, str) and JOB_OR_TASKS.match(name)
    ]
    if not isinstance(what, str) or what not in _ANSWERS or len(jobs) < len(given):
        return print_json_line({"error": "this question makes no sense"})
    if not jobs and what in (JOB, EFFICIENCY):
        return print_json_line({"error": "of which job?"})
    return print_json_line(_ANSWERS[what](slurm_in(row), jobs))


def slurm_page(slurm: Slurm, *argv: str) -> Row:
    """What a command of Slurm prints, for people: its lines as they are, and why it failed."""
    env = {**login_environment(os.environ, slurm.variables), "SLURM_TIME_FORMAT": "standard"}
    reply = run_slurm_command(argv, env, limit=_LIMIT * slurm.patience)
    lines = [shown_line(line, _LONGEST_LINE) for line in reply.out.rstrip("\n").split("\n")]
    more = len(lines) - _MOST_LINES
    cut = [f"… and {more} more lines"] if more > 0 else []
    return {"line": " ".join(argv), "lines": [*lines[:_MOST_LINES], *cut], "error": reply.error}


def _job(slurm: Slurm, jobs: Sequence[str]) -> Row:
    """`scontrol show job`, and of a job that waits the parts of its priority, of
    one that is over how it used what it had.
    """
    pages = [slurm_page(slurm, "scontrol", "show", "job", number) for number in jobs]
    reply = "\n".join(" ".join(one["lines"]) for one in pages)
    seen = shown_job(reply.strip())
    if seen is not None and seen.state == "PENDING":
        return {"pages": [*pages, *_priority(slurm, jobs)["pages"]], "efficiency": []}
    if seen is None or seen.state in FINAL:
        told = _efficiency(slurm, jobs)
        return {"pages": [*pages, *told["pages"]], "efficiency": told["efficiency"]}
    return {"pages": pages, "efficiency": []}


def _priority(slurm: Slurm, jobs: Sequence[str]) -> Row:
    of = (f"--jobs={','.join(_plain_numbers(jobs))}",) if jobs else ()
    return {"pages": [slurm_page(slurm, "sprio", "--long", *of)], "efficiency": []}


def _plain_numbers(jobs: Iterable[str]) -> "list[str]":
    """The numbers of the jobs without tasks, each once: sprio knows no others."""
    return list(dict.fromkeys(name.partition("_")[0] for name in jobs))


def _shares(slurm: Slurm, jobs: Sequence[str]) -> Row:
    del jobs
    return {"pages": [slurm_page(slurm, "sshare", "--all")], "efficiency": []}


def _controller(slurm: Slurm, jobs: Sequence[str]) -> Row:
    del jobs
    return {"pages": [slurm_page(slurm, "sdiag")], "efficiency": []}


def _efficiency(slurm: Slurm, jobs: Sequence[str]) -> Row:
    argv = (
        "sacct",
        "--noheader",
        "--parsable2",
        f"--format={','.join(_FIELDS)}",
        f"--jobs={','.join(jobs)}",
    )
    reply = slurm.ask(*argv, limit=_LIMIT)
    found = job_efficiencies(reply.out) if reply.well else []
    said: Row = {"line": " ".join(argv), "lines": [], "error": reply.error}
    return {"pages": [] if found else [said], "efficiency": found}


_ANSWERS: Mapping[str, Any] = {
    JOB: _job,
    PRIORITY: _priority,
    SHARES: _shares,
    CONTROLLER: _controller,
    EFFICIENCY: _efficiency,
}
"""What is asked -> the function that answers for some jobs."""


def job_efficiencies(text: str) -> "list[Row]":
    """How each job in sacct's rows of _FIELDS used its CPUs, memory
    and GPUs, reckoned as `seff` does.

    CPU time is that of all steps; memory that of the step with the most, the peaks of its
    tasks added up. What Slurm did not measure is None.
    """
    jobs: dict[str, Row] = {}
    for line in text.splitlines():
        words = line.split("|")
        if len(words) != len(_FIELDS):
            continue
        cells = dict(zip(_FIELDS, words))
        number, dot, _ = cells["JobIDRaw"].partition(".")
        if not number.isdecimal():
            continue
        if not dot:
            jobs[number] = _of_job(cells)
        elif number in jobs:
            _add_step(jobs[number], cells["TRESUsageInTot"])
    return [_reckoned(job) for job in jobs.values()]


def _of_job(cells: Mapping[str, str]) -> Row:
    return {
        "job": shown_line(cells["JobID"], 80),
        "state": shown_line(cells["State"].partition(" ")[0], 40),
        "elapsed": _whole(cells["ElapsedRaw"]),
        "cpus": int(_whole(cells["AllocCPUS"])),
        "nodes": int(_whole(cells["NNodes"])),
        "gpus": gpus_of(cells["AllocTRES"]),
        "memory": requested_megabytes(cells["AllocTRES"]) or None,
        "cpu_used": cpu_time(cells["TotalCPU"]),
        "memory_used": None,
        "gpu": None,
    }


def _add_step(job: Row, used: str) -> None:
    if not known_text(used):
        return
    job["memory_used"] = max(job["memory_used"] or 0.0, requested_megabytes(used))
    busy = _GPU_TIME.search(used)
    if busy and job["gpus"]:
        job["gpu"] = max(job["gpu"] or 0.0, min(int(busy[1]) / 100 / job["gpus"], 1.0))


def _reckoned(job: Row) -> Row:
    """The row with the shares of what the job had; without any step that was
    measured, CPU time is not known either.
    """
    had = job["elapsed"] * job["cpus"]
    measured = job["memory_used"] is not None or bool(job["cpu_used"])
    used = job["cpu_used"] if measured else None
    peak = job["memory_used"]
    return {
        **job,
        "cpu_used": used,
        "cpu": used / had if used is not None and had else None,
        "memory_share": peak / job["memory"] if peak is not None and job["memory"] else None,
    }


def _whole(text: str) -> float:
    return float(text) if text.isdecimal() and len(text) < 12 else 0.0


def cpu_time(text: str) -> Optional[float]:
    """Seconds in `00:01.234`, `1-02:03:04` or `02:03:04`; None for anything else."""
    whole, _, rest = text.partition(".")
    seconds = parse_span(whole)
    if seconds is None:
        return None
    return seconds + (int(rest) / 10 ** len(rest) if rest.isdecimal() and len(rest) < 10 else 0.0)
