"""`inside`: in a pod of a job that Rankdeck started, where its ranks are, and what silent ones wait
for. The control host has it run there (`inside_pods.py`).
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable

from rankdeck_agent.job import processes
from rankdeck_agent.job.inspect import inspect_processes
from rankdeck_agent.job.standstill import look_at_processes
from rankdeck_agent.older_python import find_paths
from rankdeck_agent.text import print_json_line
from rankdeck_agent.values import Value
from rankdeck_agent.wire.run_folder import POD_PID, POD_WITNESS

INSPECT, WITNESS = "inspect", "witness"
_PLACE = re.compile(r"rankdeck\.(\d{1,7})\.(\d{1,10})\Z", re.ASCII)
"""Name of the folder that the shim makes for a rank: its number, and the pid of the shim."""
_MOST_DIGITS = 10


class PodRank(Value):
    """A rank that runs in this pod."""

    rank: int
    pid: int
    place: Path
    """The folder that its shim made."""


def main(argv: "list[str]") -> int:
    """Answer one of the questions in _ANSWERS; returns the exit code."""
    answer = _ANSWERS.get("".join(argv))
    if answer is None:
        print(f"rankdeck-agent: inside takes one of: {', '.join(_ANSWERS)}", file=sys.stderr)
        return 2
    ranks = list(find_pod_ranks())
    trees = processes.process_trees(processes.list_processes(), [one.pid for one in ranks])
    mine = {one.rank: trees[one.pid] for one in ranks if one.pid in trees}
    return print_json_line(answer(mine, {one.rank: one.place / POD_WITNESS for one in ranks}))


def find_pod_ranks() -> Iterator[PodRank]:
    """The ranks whose shims run here, by the folders that these have made."""
    for base in ("/dev/shm", os.environ.get("TMPDIR") or "/tmp", "/var/tmp"):
        for place in find_paths(Path(base), "rankdeck.*"):
            named = _PLACE.match(place.name)
            pid = _read_pid(place / POD_PID) if named else 0
            row = processes.find_process(pid) if pid else None
            # Pods that share their memory with others see the folders of those, too.
            if named and row is not None and not row.gone and row.ppid == int(named.group(2)):
                yield PodRank(int(named.group(1)), pid, place)


def _read_pid(path: Path) -> int:
    word = processes.read_proc_word(path)
    return int(word) if word.isdecimal() and len(word) < _MOST_DIGITS else 0


_ANSWERS: "Mapping[str, Callable[[Mapping[int, list[int]], Mapping[int, Path]], dict[str, Any]]]" = {
    INSPECT: inspect_processes,
    WITNESS: look_at_processes,
}
