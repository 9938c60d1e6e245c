"""Where the ranks of a silent job stand: what their witnesses say, else their native stacks, and
what each waits for in the kernel.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankdeck_agent.job import processes
from rankdeck_agent.job.activity import moves_of
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.inspect import find_rank_processes, main_process
from rankdeck_agent.job.kernel_wait import describe_wait
from rankdeck_agent.job.last_words import Bound, read_last_words
from rankdeck_agent.job.native_stack import NativeReader, StackError
from rankdeck_agent.job.nccl_ras import ask_nccl_counts
from rankdeck_agent.job.tcp_sockets import list_connections
from rankdeck_agent.job.witness import ANSWER_LIMIT, WitnessQuestion, list_witnesses

STACKS_LIMIT = 4.0
"""Seconds for the stacks of all ranks of a node together; one rank is read at a time."""
_SOON = 0.3
"""Seconds after which stacks are read of ranks whose witness has not answered yet."""
LOOKS, _GAP = 3, 0.7
"""How often each rank is looked at, and seconds between two looks."""
_MOST_FRAMES = 40
_LINES, _SAID, _ALL_SAID = 20, 3000, 256 << 10
"""Last lines of a rank that are told; most bytes of them, and of those of all ranks together: an
answer has to fit into one row of a black box.
"""
_UNREAD = "TtDZX"
"""Ranks in these states cannot be stopped, or need not be."""

Row = dict[str, Any]


def look_at_standing_ranks(folder: RunFolder, host: str = "") -> Row:
    """{"ranks": a row per running rank with its `rank`, what its witness says, `native` (its stack,
    unless it told its operations itself), `does`, `links` (its connections) and what it `said`
    last; "blind": why there are no stacks, or ""; "ras": what NCCL says; "pids": [pid, rank] of
    each process of a rank}.

    With `host`, only ranks that began on that host: several nodes may share the run folder.
    """
    found = look_at_processes(find_rank_processes(folder, host), list_witnesses(folder))
    add_last_words(folder, found["ranks"])
    return found


def look_at_processes(mine: "Mapping[int, list[int]]", witnesses: "Mapping[int, Path]") -> Row:
    """The same without what ranks said last, of these ranks with their processes, and of those
    whose witnesses wait in these places.
    """
    with WitnessQuestion(witnesses) as question:
        early = question.collect(_SOON)
        told = {rank for rank, said in early.items() if said.get("recorded")}
        stacks, blind = read_rank_stacks({r: pids for r, pids in mine.items() if r not in told})
        answers = question.collect(ANSWER_LIMIT)
    rows: dict[int, Row] = {rank: {**said, "rank": rank} for rank, said in answers.items()}
    links = list_connections(mine)
    for rank, pids in mine.items():
        row = rows.setdefault(rank, {"rank": rank})
        row.update(stacks.get(rank, {}), does=describe_wait(main_process(pids)))
        row["links"] = links[rank]
    pids = {pid: rank for rank, pids in mine.items() for pid in pids}
    ras = ask_nccl_counts(pids) if pids else {}
    found: Row = {"ranks": [rows[rank] for rank in sorted(rows)], "blind": blind}
    return {**found, "ras": ras, "pids": [[pid, rank] for pid, rank in sorted(pids.items())]}


def add_last_words(folder: RunFolder, rows: "list[Row]") -> None:
    """Add to the row of each rank what it `said` last, by its logs in this run folder."""
    bound = Bound(_LINES, min(_SAID, _ALL_SAID // max(len(rows), 1)), 2, 1 << 14)
    for row in rows:
        row["said"] = read_last_words(folder.place(row["rank"]), bound)


def read_rank_stacks(mine: "Mapping[int, list[int]]") -> "tuple[dict[int, Row], str]":
    """(rank -> {"native": its stack, and `looks` that show whether it stands still}, why some have
    none). Reads one rank after the other, LOOKS times.
    """
    reader, deadline = NativeReader(), time.monotonic() + STACKS_LIMIT
    mains = {rank: main_process(pids) for rank, pids in sorted(mine.items())}
    found: dict[int, Row] = {}
    blind = ""
    for count in range(LOOKS):
        began = time.monotonic()
        for rank, pid in mains.items():
            if time.monotonic() > deadline:
                return found, blind or "there are too many ranks to read all their stacks in time"
            blind = _look(reader, pid, found.setdefault(rank, {"native": {"looks": []}})) or blind
        found = {rank: row for rank, row in found.items() if len(row["native"]["looks"]) > count}
        mains = {rank: pid for rank, pid in mains.items() if rank in found}
        if count + 1 < LOOKS and mains:
            time.sleep(max(0.0, _GAP - (time.monotonic() - began)))
    return found, blind


def _look(reader: NativeReader, pid: int, row: Row) -> str:
    """Add one look at a rank to its row; says why not."""
    held = processes.read_own_state(pid) in _UNREAD
    process = processes.find_process(pid)
    if process is None or held:
        return ""
    try:
        stack = reader.read(pid)
    except StackError as error:
        return str(error)
    native = row["native"]
    native["frames"] = [[name, file] for name, file in stack.frames[:_MOST_FRAMES]]
    native["entered"] = stack.entered
    at = round(time.monotonic(), 3)
    seen = [at, stack.mark, process.computed, moves_of([process]), stack.entered]
    native["looks"].append(seen)
    return ""
