"""The `kubernetes` commands of the agent."""

import argparse
import sys

from rankdeck_agent.files import keep_private
from rankdeck_agent.job.folder import FolderError, existing
from rankdeck_agent.kubernetes.keeper import keep


def main(argv: list[str]) -> int:
    """Run one command; returns its exit status."""
    asked = _parser().parse_args(argv)
    keep_private()
    try:
        return keep(existing(asked.job, asked.node))
    except (FolderError, OSError) as error:
        print(f"rankdeck: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubernetes", description="Jobs on Kubernetes.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    keeper = verbs.add_parser(
        "keep", help="create the job of a run folder, and follow it to its end"
    )
    keeper.add_argument("job")
    keeper.add_argument("node")
    return parser
