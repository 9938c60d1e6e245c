"""The verbs of `agent.pyz job`."""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any, Callable

from rankdeck_agent.job import ask, ranges
from rankdeck_agent.job.cancel import cancel
from rankdeck_agent.job.detach import run
from rankdeck_agent.job.folder import FolderError, existing
from rankdeck_agent.job.follow import data_frame, follow
from rankdeck_agent.job.inspection import inspect


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="job", description="Start, follow and end jobs on this node."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("run", help="start the job whose plan is on stdin")
    verbs.add_parser("list", help="the jobs known here")
    verbs.add_parser("port", help="a free TCP port")
    for verb, purpose in (
        ("follow", "stream events and output"),
        ("cancel", "end every process of the job here"),
        ("spawn", "start an MPI daemon (request on stdin)"),
        ("remove", "delete what a job that is over left here"),
        ("answer", "answer a request of the launch agent"),
        ("inspect", "say where every rank here is now"),
        ("read", "a part of a rank's output, in frames as `follow` sends them"),
        ("find", "where a text stands in a rank's output"),
    ):
        one = verbs.add_parser(verb, help=purpose)
        one.add_argument("job")
        one.add_argument("node")
        if verb == "follow":
            one.add_argument("--after", type=int, default=-1, metavar="SEQ")
        if verb == "cancel":
            one.add_argument("--grace", type=float, default=10.0, metavar="S")
        if verb in ("read", "find"):
            one.add_argument("rank", type=int)
            one.add_argument("stream")
            one.add_argument("offset", type=int)
        if verb == "read":
            one.add_argument("size", type=int)
        if verb == "find":
            one.add_argument("text")
            one.add_argument("--back", action="store_true")
        if verb == "answer":
            one.add_argument("id")
            one.add_argument("text", nargs="+")
    return parser


def main(argv: list[str]) -> int:
    """Do one verb; its exit status."""
    asked = _parser().parse_args(argv)
    try:
        return _VERBS[asked.verb](asked)
    except (FolderError, OSError) as error:
        print(f"rankdeck: {error}", file=sys.stderr)
        return 1


def _say(row: Mapping[str, Any]) -> int:
    print(json.dumps(row))
    return 0 if row.get("ok", True) else 1


def _list(_: argparse.Namespace) -> int:
    ask.listing()
    return 0


def _port(_: argparse.Namespace) -> int:
    print(ask.free_port())
    return 0


def _read(asked: argparse.Namespace) -> int:
    path = ranges.log_path(existing(asked.job, asked.node), asked.rank, asked.stream)
    pieces, end = ranges.read(path, asked.offset, asked.size)
    for piece in pieces:
        sys.stdout.buffer.write(b"".join(data_frame(asked.rank, asked.stream, piece)))
    sys.stdout.buffer.write(json.dumps({"kind": "end", "o": end}).encode() + b"\n")
    sys.stdout.buffer.flush()
    return 0


def _find(asked: argparse.Namespace) -> int:
    path = ranges.log_path(existing(asked.job, asked.node), asked.rank, asked.stream)
    return _say(ranges.find(path, asked.text, max(asked.offset, 0), asked.back))


_VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": lambda _: run(),
    "list": _list,
    "port": _port,
    "follow": lambda asked: follow(existing(asked.job, asked.node), asked.after),
    "cancel": lambda asked: _say(
        cancel(existing(asked.job, asked.node), max(0.0, asked.grace))
    ),
    "inspect": lambda asked: _say(inspect(existing(asked.job, asked.node))),
    "read": _read,
    "find": _find,
    "spawn": lambda asked: _say(ask.spawn(existing(asked.job, asked.node))),
    "remove": lambda asked: _say(ask.remove(existing(asked.job, asked.node))),
    "answer": lambda asked: _say(
        ask.answer(existing(asked.job, asked.node), asked.id, " ".join(asked.text))
    ),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
