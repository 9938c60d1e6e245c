"""The verbs of `agent.pyz job`, but for those that only look (`looking`)."""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any, Callable

from rankdeck_agent.job import ask
from rankdeck_agent.job.cancel import ASKERS, cancel
from rankdeck_agent.job.detach import run
from rankdeck_agent.job.folder import FolderError, existing
from rankdeck_agent.job.inspection import inspect
from rankdeck_agent.private import keep_private


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="job", description="Start, follow and end jobs on this node."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("run", help="start the job whose plan is on stdin")
    known = verbs.add_parser("list", help="the jobs known here")
    known.add_argument("--plans", action="store_true", help="with what runs of them")
    verbs.add_parser("port", help="a free TCP port")
    for verb, purpose in (
        ("cancel", "end every process of the job here"),
        ("spawn", "start an MPI daemon (request on stdin)"),
        ("remove", "delete what a job that is over left here"),
        ("answer", "answer a request of the launch agent"),
        ("inspect", "say where every rank here is now"),
    ):
        one = verbs.add_parser(verb, help=purpose)
        one.add_argument("job")
        one.add_argument("node")
        if verb == "cancel":
            one.add_argument("--grace", type=float, default=10.0, metavar="S")
            one.add_argument("--by", choices=ASKERS, default=ASKERS[0])
        if verb == "answer":
            one.add_argument("id")
            one.add_argument("text", nargs="+")
    return parser


def main(argv: list[str]) -> int:
    """Do one verb; its exit status."""
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
    ask.listing(plans=asked.plans)
    return 0


def _port(_: argparse.Namespace) -> int:
    print(ask.free_port())
    return 0


_VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": lambda _: run(),
    "list": _list,
    "port": _port,
    "cancel": lambda asked: _say(
        cancel(existing(asked.job, asked.node), max(0.0, asked.grace), asked.by)
    ),
    "inspect": lambda asked: _say(inspect(existing(asked.job, asked.node))),
    "spawn": lambda asked: _say(ask.spawn(existing(asked.job, asked.node))),
    "remove": lambda asked: _say(ask.remove(existing(asked.job, asked.node))),
    "answer": lambda asked: _say(
        ask.answer(existing(asked.job, asked.node), asked.id, " ".join(asked.text))
    ),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
