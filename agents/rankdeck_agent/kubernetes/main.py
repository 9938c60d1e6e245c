"""The `kubernetes` commands of the agent."""

import argparse
import ctypes
import os
import signal
import sys
import time

from rankdeck_agent.files import keep_private
from rankdeck_agent.job.folder import FolderError, RunFolder, existing
from rankdeck_agent.job.journal import shell_status
from rankdeck_agent.job.pipes import tell

_RESTARTS = 20
_RESTART_PAUSE = 1.0
_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    """Run one command; returns its exit status."""
    asked = _parser().parse_args(argv)
    keep_private()
    try:
        return _guard(existing(asked.job, asked.node))
    except (FolderError, OSError) as error:
        print(f"rankdeck: {error}", file=sys.stderr)
        return 1


def _guard(folder: RunFolder) -> int:
    """Run the keeper, again where it is killed: without it a job would run on and nobody would know."""
    for _ in range(_RESTARTS):
        child = os.fork()
        if child == 0:
            os._exit(_keep(folder))
        # The cancel of a job sends SIGTERM to us: the keeper ends the job, and we end with it.
        signal.signal(
            signal.SIGTERM, lambda _number, _frame, pid=child: os.kill(pid, signal.SIGTERM)
        )
        _, status = os.waitpid(child, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) == signal.SIGTERM:
            return shell_status(status)
        tell(folder / "control", "trouble the keeper of the job was killed; another one goes on")
        time.sleep(_RESTART_PAUSE)
    return 1


def _keep(folder: RunFolder) -> int:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Here, so that the process that only waits stays small.
    from rankdeck_agent.kubernetes.keeper import keep

    try:
        return keep(folder)
    except (FolderError, OSError) as error:
        print(f"rankdeck: {error}", file=sys.stderr, flush=True)
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
