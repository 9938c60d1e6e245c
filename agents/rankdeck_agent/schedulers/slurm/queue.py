"""Everybody's jobs in Slurm's queue: what squeue is asked for, and the
rows that are made of its answer. No I/O.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rankdeck_agent.schedulers.slurm.commands import BETWEEN
from rankdeck_agent.schedulers.slurm.job_reports import SlurmJobRow
from rankdeck_agent.schedulers.slurm.values import (
    NO_TASK,
    cut_nodes,
    gpus_of,
    known_text,
    parse_count,
    parse_moment,
    parse_number_ranges,
    parse_span,
    requested_megabytes,
)
from rankdeck_agent.schedulers.slurm.verdict import slurm_wait_reason
from rankdeck_agent.text import plain_line

Row = dict[str, Any]
MOST_JOBS = 5_000
QUEUE_COLUMNS = (
    "JobID", "ArrayJobID", "ArrayTaskID", "State", "UserName", "Partition", "NumNodes", "NumCPUs", "StartTime", "EndTime",
    "SubmitTime", "TimeLimit", "Reason", "NodeList", "Account", "QOS", "PriorityLong", "tres-alloc", "tres-per-job",
    "tres-per-node", "tres-per-task", "NumTasks", "HetJobID", "HetJobOffset", "Name",
)  # fmt: skip
"""Fields of `squeue -O`. The name is last: it may contain anything."""
QUEUE_FIELDS = ("squeue", "--local", "--noheader", "--all", "--sort=-p,i")
"""The command for everybody's jobs that are not over, highest
priority first; see `Slurm.ask_columns`.
"""


def job_rows(text: str) -> Iterator[Row]:
    """The jobs in the answer for QUEUE_COLUMNS, with their places in
    the queue; other lines are skipped.

    A het job is one row, with its `components`.
    """
    places: dict[str, int] = {}
    waiting: list[Row] = []
    found: dict[str, list[Row]] = {}
    for line in text.splitlines():
        words = line.split(BETWEEN)
        if len(words) != len(QUEUE_COLUMNS) or not words[0].isdecimal():
            continue
        cells = {
            key: plain_line(word, _LIMITS.get(key, 300)) for key, word in zip(QUEUE_COLUMNS, words)
        }
        row = _job(cells)
        if row["state"] == "PENDING":
            row["position"] = max(_join_queues(row["partition"], places))
            waiting.append(row)
        found.setdefault(_het_id(cells) or row["id"], []).append(row)
    for row in waiting:
        row["waiting"] = max(places[name] for name in row["partition"].split(","))
    for number, parts in found.items():
        yield parts[0] if parts[0]["offset"] is None else _het_job(number, parts)


_LIMITS = {"NodeList": 1 << 16}
"""Column -> most characters of it, where that is not 300: a node list is read before it is cut."""


def _het_id(cells: Mapping[str, str]) -> str:
    """The number of the het job whose component this row is; "" for any other job."""
    number = cells["HetJobID"]
    return number if number.isdecimal() and number != "0" else ""


def _het_job(number: str, parts: Sequence[Row]) -> Row:
    """The row of a het job: as its first component, with what all of them
    have, and each of them in `components`.
    """
    ordered = sorted(parts, key=lambda part: part["offset"])
    shared = {
        key: sum(part[key] for part in ordered) for key in ("count", "cpus", "gpus", "memory")
    }
    return {
        **ordered[0],
        **shared,
        "id": number,
        "shown": number,
        "nodes": ",".join(filter(None, (part["nodes"] for part in ordered))),
        "components": [
            {**{key: part[key] for key in _OF_COMPONENT}, "id": f"{number}+{part['offset']}"}
            for part in ordered
        ],
    }


_OF_COMPONENT = ("state", "partition", "nodes", "count", "cpus", "gpus", "memory", "text")


def _join_queues(partitions: str, places: dict[str, int]) -> Iterator[int]:
    """The place of a job that waits in each of these partitions
    (`gpu,debug`), and note that it is there.
    """
    for name in partitions.split(","):
        places[name] = places.get(name, 0) + 1
        yield places[name]


def shown_jobs_of(rows: Iterable[Row], user: str) -> tuple[list[Row], int]:
    """(the rows that a console is sent, how many are left out): at most
    MOST_JOBS, those of this user first.
    """
    ordered = sorted(rows, key=lambda row: row["user"] != user)
    shown = [{**row, "nodes": cut_nodes(row["nodes"])} for row in ordered[:MOST_JOBS]]
    return shown, len(ordered) - len(shown)


def _job(cells: Mapping[str, str]) -> Row:
    task = "" if cells["ArrayTaskID"] in NO_TASK else known_text(cells["ArrayTaskID"])
    number = cells["JobID"]
    seen = SlurmJobRow(number, cells["State"], known_text(cells["Reason"]))
    why = slurm_wait_reason(seen)
    return {
        "id": number,
        "shown": f"{cells['ArrayJobID']}_{_tasks(task)}" if task else number,
        "offset": parse_count(cells["HetJobOffset"]) if _het_id(cells) else None,
        "state": cells["State"],
        "user": cells["UserName"],
        "name": cells["Name"],
        "partition": cells["Partition"],
        "account": known_text(cells["Account"]),
        "qos": known_text(cells["QOS"]),
        "priority": parse_count(cells["PriorityLong"]),
        "count": parse_count(cells["NumNodes"]),
        "cpus": parse_count(cells["NumCPUs"]),
        "gpus": _gpus(cells),
        "memory": requested_megabytes(cells["tres-alloc"]),
        "start": parse_moment(cells["StartTime"]),
        "end": parse_moment(cells["EndTime"]),
        "submitted": parse_moment(cells["SubmitTime"]),
        "limit": parse_span(cells["TimeLimit"]),
        "reason": seen.reason,
        "text": why.text,
        "do": why.do,
        "stuck": why.stuck,
        "nodes": known_text(cells["NodeList"]),
    }


def _gpus(cells: Mapping[str, str]) -> int:
    """GPUs that the job has or asks for: of all its nodes."""
    times = {
        "tres-per-node": parse_count(cells["NumNodes"]),
        "tres-per-task": parse_count(cells["NumTasks"]),
    }
    asked = ("tres-alloc", "tres-per-job", "tres-per-node", "tres-per-task")
    found = ((name, gpus_of(cells[name])) for name in asked)
    return next((count * max(times.get(name, 1), 1) for name, count in found if count), 0)


def _tasks(task: str) -> str:
    """`3`, or `[4-9]` for tasks that wait together."""
    return task if task.isdecimal() else f"[{task}]"


def tasks_named(name: str) -> "tuple[str, set[int]]":
    """(number, tasks) of `48_3` or `48_[2-5%2]`; no tasks for another job,
    and where Slurm has cut their list.
    """
    job, _, tasks = name.partition("_")
    try:
        return job, set(parse_number_ranges(tasks.strip("[]").partition("%")[0]))
    except ValueError:
        return job, set()


def jobs_in(row: Row) -> int:
    """How many jobs of Slurm this row is: the tasks of an array that wait
    together, the components of a het job.
    """
    _, tasks = tasks_named(row["shown"])
    return max(len(tasks), len(row.get("components", ())), 1)
