"""The `kubernetes` commands of the agent."""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rankdeck_agent.files import keep_private
from rankdeck_agent.job.folder import FolderError, RunFolder, existing, table

_LONGEST = 64 << 20


def main(argv: list[str]) -> int:
    """Run one command; returns its exit status."""
    asked = _parser().parse_args(argv)
    keep_private()
    try:
        if asked.verb == "try":
            return _try()
        return _keep(existing(asked.job, asked.node))
    except (FolderError, OSError) as error:
        print(f"rankdeck: {error}", file=sys.stderr)
        return 1


def _try() -> int:
    """Have the server check a job without creating it; prints {"ok": …, "error": …}."""
    row = table(sys.stdin.buffer.read(_LONGEST).decode("utf-8", "replace")) or {}
    why = _refused(row)
    print(json.dumps({"ok": not why, "error": why}))
    return 1 if why else 0


def _refused(row: Mapping[str, Any]) -> str:
    """Why the server would not take {"target": …, "objects": […]}; "" where it would."""
    from rankdeck_agent.kubernetes.api import ApiError, Proxy, ProxyError, end_tidily, refusal
    from rankdeck_agent.kubernetes.target import Target, create

    end_tidily()
    try:
        target = Target(**row["target"])
        with Proxy(target.context) as proxy:
            if not target.namespace:
                target = replace(target, namespace=proxy.namespace())
            create(proxy.api, target, row["objects"], dry=True)
    except (KeyError, TypeError, ValueError) as error:
        return f"bad request: {error}"
    except ProxyError as error:
        return str(error)
    except ApiError as error:
        return refusal(error)
    return ""


def _keep(folder: RunFolder) -> int:
    from rankdeck_agent.kubernetes.keeper import keep

    return keep(folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubernetes", description="Jobs on Kubernetes.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("try", help="have the server check the job on stdin, and create nothing")
    keeper = verbs.add_parser(
        "keep", help="create the job of a run folder, and follow it to its end"
    )
    keeper.add_argument("job")
    keeper.add_argument("node")
    return parser
