"""The verbs of `agent.pyz image`."""

import argparse
import json
import sys

from rankdeck_agent.image.look import request_rows
from rankdeck_agent.image.receive import receive, send
from rankdeck_agent.job.text import table

_LONGEST = 1 << 20


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="image", description="Images on this node: look, send, receive."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("look", help="which images lie here (request as JSON on stdin)")
    one = verbs.add_parser("send", help="a file from an offset on, on stdout")
    one.add_argument("path")
    one.add_argument("offset", type=int)
    one = verbs.add_parser("receive", help="a file on stdin; says from which offset")
    one.add_argument("path")
    one.add_argument("size", type=int)
    one.add_argument("sha256")
    one.add_argument("--base", default="")
    one.add_argument("--replace", action="store_true")
    return parser


def main(argv: list[str]) -> int:
    """Do one verb; its exit status."""
    asked = _parser().parse_args(argv)
    try:
        if asked.verb == "look":
            return _look()
        if asked.verb == "send":
            return send(asked.path, max(0, asked.offset))
        return receive(asked.path, asked.base, asked.size, asked.sha256, replace=asked.replace)
    except (OSError, ValueError) as error:
        print(f"rankdeck: {error}", file=sys.stderr)
        return 1


def _look() -> int:
    request = table(sys.stdin.buffer.read(_LONGEST).decode("utf-8", "replace"))
    if request is None:
        raise ValueError("look needs a request as JSON on stdin")
    print(json.dumps({"rows": request_rows(request)}))
    return 0
