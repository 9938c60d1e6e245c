"""The `job` commands run, cancel, inspect, spawn, answer,
remove, clean, list, attempts, port and address.
"""

import argparse
import contextlib
import json
import shutil
import socket
import sys
from typing import Any, Callable, Optional

from rankdeck_agent.job.folder import (
    FolderError,
    RunFolder,
    all_folders,
    find_run_folder,
    is_closed,
    is_start_forbidden,
    run_folder,
    wait_until,
)
from rankdeck_agent.job.orders import give_order
from rankdeck_agent.job.supervisor_state import is_supervised
from rankdeck_agent.private_files import set_private_umask
from rankdeck_agent.schedulers.job_scheduler import JobScheduler, find_scheduler
from rankdeck_agent.text import parse_json_table, print_complaint, print_json_line
from rankdeck_agent.wire.job_events import ASKERS, is_request_id
from rankdeck_agent.wire.leftovers import KEEP_DAYS
from rankdeck_agent.wire.run_folder import SPAWN

_LONGEST = 1 << 18
_START_LIMIT = 15.0
_POLL = 0.01


def request_daemon(folder: RunFolder) -> dict[str, Any]:
    """Have the supervisor on this node start an MPI daemon; the request
    {"id": …, "command": …} is on stdin.

    Raises FolderError.
    """
    raw = parse_json_table(sys.stdin.buffer.read(_LONGEST).decode("utf-8", "replace"))
    if (
        raw is None
        or not is_request_id(str(raw.get("id")))
        or not isinstance(raw.get("command"), str)
    ):
        raise FolderError('spawn needs {"id": …, "command": …} on stdin')

    request = str(raw["id"])
    place = folder / SPAWN / f"{request}.json"
    place.write_text(json.dumps(raw), encoding="utf-8")
    if not give_order(folder, f"daemon {request}"):
        raise FolderError(f"the supervisor of job {folder.job} on {folder.node} is gone")

    started = folder / SPAWN / f"{request}.started"
    wait_until(started.exists, _START_LIMIT, _POLL)
    late = f"the supervisor did not answer within {_START_LIMIT:.0f} s"
    answer = started.read_text() if started.exists() else late
    return {"ok": True} if answer == "ok" else {"ok": False, "error": answer}


def pass_answer(folder: RunFolder, request: str, text: str) -> dict[str, Any]:
    """Pass the console's answer to the launch agent that waits for it.

    Raises FolderError, but not if the job is over.
    """
    if not is_request_id(request):
        raise FolderError(f"{request[:60]!r} is not the id of a request")
    delivered = give_order(folder, f"answer {request} {' '.join(text.split())}")
    if not delivered and not is_closed(folder.events):
        raise FolderError(f"the supervisor of job {folder.job} on {folder.node} is gone")
    return {"ok": True}


def remove_job(folder: RunFolder) -> dict[str, Any]:
    """Delete the run folder of a job that is over, or was never started;
    raises FolderError if it is neither.
    """
    if not is_start_forbidden(folder) and not is_closed(
        find_run_folder(folder.job, folder.node).events
    ):
        raise FolderError(f"job {folder.job} is not over on {folder.node}")
    shutil.rmtree(folder.path)
    with contextlib.suppress(OSError):
        folder.path.parent.rmdir()
    return {"ok": True}


def print_jobs(*, plans: bool, ended: bool) -> None:
    """Print one line of JSON for every job known here.

    With `plans`, running jobs have their `plan` and `alive`; with `ended`, those that are over too.
    """
    for folder in all_folders():
        with contextlib.suppress(FileNotFoundError):  # it is being removed, or a part of it is gone
            print_json_line(_listed(folder, plans=plans, ended=ended))


def _listed(folder: RunFolder, *, plans: bool, ended: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "job": folder.job,
        "node": folder.node,
        "closed": is_closed(folder.events),
        "created": round(folder.plan.stat().st_mtime, 3),
    }
    if plans and (ended or not row["closed"]):
        row["alive"] = is_supervised(folder)
        row["plan"] = _planned(folder)
    return row


def _planned(folder: RunFolder) -> Optional[dict[str, Any]]:
    """The ranks and commands of its plan, without files and environments:
    they are large and may hold secrets.
    """
    raw = parse_json_table(folder.plan.read_text(encoding="utf-8"))
    if raw is None:
        return None
    fields = {name: raw.get(name) for name in ("ranks", "grace", "elsewhere")}
    processes = [
        {name: process.get(name) for name in ("name", "argv", "rank")}
        for process in raw.get("processes", ())
    ]
    return {**fields, "processes": processes}


def free_port() -> int:
    """A TCP port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="job", description="Start, follow and end jobs on this node."
    )
    verbs = parser.add_subparsers(dest="verb")
    verbs.required = True
    start = verbs.add_parser("run", help="start the job whose plan is on stdin")
    start.add_argument("--each", action="store_true", help="a job for every line, until stdin ends")
    known = verbs.add_parser("list", help="the jobs known here")
    known.add_argument("--plans", action="store_true", help="with what runs of them")
    known.add_argument("--ended", action="store_true", help="and what ran of those that are over")
    verbs.add_parser("port", help="a free TCP port")
    address = verbs.add_parser("address", help="this node's address in the job network")
    address.add_argument("--network", default="", metavar="CIDR")
    address.add_argument("--interface", default="", metavar="NAME")
    sweep = verbs.add_parser("clean", help="remove what ended jobs and older consoles left here")
    sweep.add_argument("--dry-run", action="store_true", help="only say what that is")
    sweep.add_argument("--keep-days", type=float, default=KEEP_DAYS, metavar="N")
    sweep.add_argument("--keep-bytes", type=int, metavar="N", help="of all run folders together")
    sweep.add_argument("--clock", type=float, metavar="EPOCH", help="the console's clock")

    for verb, purpose in (
        ("cancel", "end every process of the job here"),
        ("spawn", "start an MPI daemon (request on stdin)"),
        ("remove", "delete what a job that is over left here"),
        ("answer", "answer a request of the launch agent"),
        ("inspect", "say where every rank here is now"),
        ("witness", "say what every rank of a silent job here waits for"),
        ("box", "print what the black box of the job has kept"),
        ("attempts", "say where the output of each run begins, if it was queued again"),
    ):
        one = verbs.add_parser(verb, help=purpose)
        one.add_argument("job")
        one.add_argument("node")
        if verb == "cancel":
            one.add_argument("--grace", type=float, default=10.0, metavar="S")
            one.add_argument("--by", choices=ASKERS, default=ASKERS[0])
            one.add_argument("--tasks", default="", metavar="3,5-7", help="of an array")
        if verb == "answer":
            one.add_argument("id")
            one.add_argument("text", nargs="+")
    return parser


def main(argv: list[str]) -> int:
    """Run one command; returns the exit code."""
    asked = _parser().parse_args(argv)
    set_private_umask()
    try:
        return _VERBS[asked.verb](asked)
    except (FolderError, OSError) as error:
        return print_complaint(f"rankdeck: {error}", 1)


def _start(asked: argparse.Namespace) -> int:
    # Only this verb needs the supervisor, whose modules are most of the agent.
    from rankdeck_agent.job.supervisor_start import run_each, start_job

    return run_each() if asked.each else start_job()


def _list(asked: argparse.Namespace) -> int:
    print_jobs(plans=asked.plans, ended=asked.ended)
    return 0


def _port(_: argparse.Namespace) -> int:
    print(free_port())
    return 0


def _address(asked: argparse.Namespace) -> int:
    from rankdeck_agent.job.network import NetworkError, find_network_place

    try:
        print(find_network_place(asked.network, asked.interface).address)
    except NetworkError as error:
        return print_complaint(str(error), 1)
    return 0


def _clean(asked: argparse.Namespace) -> dict[str, Any]:
    from rankdeck_agent.job.clean import DAY, CleanRule, remove_leftovers

    rule = CleanRule(max(0.0, asked.keep_days) * DAY, asked.keep_bytes)
    return remove_leftovers(rule, dry=asked.dry_run, console=asked.clock)


def _cancel(asked: argparse.Namespace) -> dict[str, Any]:
    from rankdeck_agent.job.cancel import end_node_processes

    folder, grace = run_folder(asked.job, asked.node), max(0.0, asked.grace)
    return end_node_processes(folder, grace, asked.by, asked.tasks)


def _box(asked: argparse.Namespace) -> dict[str, Any]:
    from rankdeck_agent.job.black_box import pack_box

    return pack_box(find_run_folder(asked.job, asked.node))


def _scheduler_of(asked: argparse.Namespace) -> JobScheduler:
    """What runs the job whose run folder is here; raises NoFolderError."""
    return find_scheduler(find_run_folder(asked.job, asked.node))


_VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": _start,
    "list": _list,
    "port": _port,
    "address": _address,
    "clean": lambda asked: print_json_line(_clean(asked)),
    "cancel": lambda asked: print_json_line(_cancel(asked)),
    "attempts": lambda asked: print_json_line(
        {"starts": _scheduler_of(asked).attempt_log_starts()}
    ),
    "inspect": lambda asked: print_json_line(_scheduler_of(asked).inspect()),
    "witness": lambda asked: print_json_line(_scheduler_of(asked).ask_witnesses()),
    "box": lambda asked: print_json_line(_box(asked)),
    "spawn": lambda asked: print_json_line(request_daemon(find_run_folder(asked.job, asked.node))),
    "remove": lambda asked: print_json_line(remove_job(run_folder(asked.job, asked.node))),
    "answer": lambda asked: print_json_line(
        pass_answer(find_run_folder(asked.job, asked.node), asked.id, " ".join(asked.text))
    ),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
