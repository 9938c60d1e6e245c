"""The other `job` commands: run, cancel, inspect, attempts, spawn, answer, remove, list, port."""

import argparse
import contextlib
import json
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, Optional

from rankdeck_agent.files import keep_private
from rankdeck_agent.job.cancel import ASKERS, cancel
from rankdeck_agent.job.daemons import good_id
from rankdeck_agent.job.detach import run, run_each
from rankdeck_agent.job.folder import FolderError, RunFolder, all_folders, existing, is_slurm
from rankdeck_agent.job.inspect import inspect
from rankdeck_agent.job.journal import is_closed, table
from rankdeck_agent.job.supervisor_state import supervisor_pid, tell

_LONGEST = 1 << 18
_START_LIMIT = 15.0
_POLL = 0.01


def spawn(folder: RunFolder) -> dict[str, Any]:
    """Have the supervisor here start the daemon of the request on stdin."""
    raw = table(sys.stdin.buffer.read(_LONGEST).decode("utf-8", "replace"))
    if raw is None or not good_id(str(raw.get("id"))) or not isinstance(raw.get("command"), str):
        raise FolderError('spawn needs {"id": …, "command": …} on stdin')
    request = str(raw["id"])
    place = folder / "spawn" / f"{request}.json"
    place.write_text(json.dumps(raw), encoding="utf-8")
    if not tell(folder / "control", f"daemon {request}"):
        raise FolderError(f"the supervisor of job {folder.job} on {folder.node} is gone")
    said = _await(folder / "spawn" / f"{request}.started")
    return {"ok": True} if said == "ok" else {"ok": False, "error": said}


def _await(path: Path) -> str:
    deadline = time.monotonic() + _START_LIMIT
    while time.monotonic() < deadline:
        if path.exists():
            return path.read_text()
        time.sleep(_POLL)
    return f"the supervisor did not answer within {_START_LIMIT:.0f} s"


def answer(folder: RunFolder, request: str, text: str) -> dict[str, Any]:
    """Hand the console's answer to the launch agent that waits for it; where the job is over, nobody does."""
    if not good_id(request):
        raise FolderError(f"{request[:60]!r} is not the id of a request")
    told = tell(folder / "control", f"answer {request} {' '.join(text.split())}")
    if not told and not is_closed(folder / "events"):
        raise FolderError(f"the supervisor of job {folder.job} on {folder.node} is gone")
    return {"ok": True}


def remove(folder: RunFolder) -> dict[str, Any]:
    """Delete what a job that is over left here."""
    if not is_closed(folder / "events"):
        raise FolderError(f"job {folder.job} is not over on {folder.node}")
    shutil.rmtree(folder.path)
    with contextlib.suppress(OSError):
        folder.path.parent.rmdir()
    return {"ok": True}


def listing(*, plans: bool) -> None:
    """One line of JSON for every job known here; with what was planned of those that run, if asked."""
    for folder in all_folders():
        row: dict[str, Any] = {
            "job": folder.job,
            "node": folder.node,
            "closed": is_closed(folder / "events"),
            "created": round((folder / "plan.json").stat().st_mtime, 3),
        }
        if plans and not row["closed"]:
            row["alive"] = bool(supervisor_pid(folder))
            row["plan"] = _planned(folder)
        print(json.dumps(row))


def _planned(folder: RunFolder) -> Optional[dict[str, Any]]:
    """Its ranks and commands, without files and environments: they are large and may hold secrets."""
    raw = table((folder / "plan.json").read_text(encoding="utf-8"))
    if raw is None:
        return None
    told = {name: raw.get(name) for name in ("ranks", "grace", "elsewhere")}
    processes = [
        {name: process.get(name) for name in ("name", "argv", "rank")}
        for process in raw.get("processes", ())
    ]
    return {**told, "processes": processes}


def free_port() -> int:
    """A TCP port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="job", description="Start, follow and end jobs on this node."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    start = verbs.add_parser("run", help="start the job whose plan is on stdin")
    start.add_argument("--each", action="store_true", help="a job for every line, until stdin ends")
    known = verbs.add_parser("list", help="the jobs known here")
    known.add_argument("--plans", action="store_true", help="with what runs of them")
    verbs.add_parser("port", help="a free TCP port")
    for verb, purpose in (
        ("cancel", "end every process of the job here"),
        ("spawn", "start an MPI daemon (request on stdin)"),
        ("remove", "delete what a job that is over left here"),
        ("answer", "answer a request of the launch agent"),
        ("inspect", "say where every rank here is now"),
        ("attempts", "Slurm: where the output of each run begins"),
    ):
        one = verbs.add_parser(verb, help=purpose)
        one.add_argument("job")
        one.add_argument("node")
        if verb == "cancel":
            one.add_argument("--grace", type=float, default=10.0, metavar="S")
            one.add_argument("--by", choices=ASKERS, default=ASKERS[0])
            one.add_argument("--tasks", default="", metavar="3,5-7", help="of an array of Slurm")
        if verb == "answer":
            one.add_argument("id")
            one.add_argument("text", nargs="+")
    return parser


def main(argv: list[str]) -> int:
    """Run one command; returns its exit status."""
    asked = _parser().parse_args(argv)
    keep_private()
    try:
        return _VERBS[asked.verb](asked)
    except (FolderError, OSError) as error:
        print(f"rankdeck: {error}", file=sys.stderr)
        return 1


def _say(row: Mapping[str, Any]) -> int:
    print(json.dumps(row))
    return 0 if row.get("ok", True) else 1


def _list(asked: argparse.Namespace) -> int:
    listing(plans=asked.plans)
    return 0


def _port(_: argparse.Namespace) -> int:
    print(free_port())
    return 0


def _inspect(folder: RunFolder) -> dict[str, Any]:
    if is_slurm(folder):
        from rankdeck_agent.slurm.inside import inspect as inspect_inside

        return inspect_inside(folder)
    return inspect(folder)


def _attempts(folder: RunFolder) -> dict[str, Any]:
    from rankdeck_agent.slurm.run import log_starts

    return {"starts": log_starts(folder)}


_VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": lambda asked: run_each() if asked.each else run(),
    "list": _list,
    "port": _port,
    "cancel": lambda asked: _say(
        cancel(existing(asked.job, asked.node), max(0.0, asked.grace), asked.by, asked.tasks)
    ),
    "attempts": lambda asked: _say(_attempts(existing(asked.job, asked.node))),
    "inspect": lambda asked: _say(_inspect(existing(asked.job, asked.node))),
    "spawn": lambda asked: _say(spawn(existing(asked.job, asked.node))),
    "remove": lambda asked: _say(remove(existing(asked.job, asked.node))),
    "answer": lambda asked: _say(
        answer(existing(asked.job, asked.node), asked.id, " ".join(asked.text))
    ),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
