"""The `rankdeck` command: runs a verb of the command line, or without one opens the console."""

import sys

from rankdeck.python_releases import python_refusal

if (sentence := python_refusal(sys.version_info, sys.executable)) and "doctor" not in sys.argv:
    sys.exit(f"rankdeck: {sentence}")  # `doctor` lists it, with what else is missing

import gc
import os
import resource
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankdeck.cli.main import run_command_line
from rankdeck.cli.output import require_terminal
from rankdeck.config.files import make_files_private

if TYPE_CHECKING:
    from rankdeck.model.cluster import Cluster

YOUNG = 200_000
"""New objects after which Python collects garbage: more than a command loads, because what is
loaded stays, and looking through it takes a tenth of a short command. The console sets its own.
"""
MOST_FILES = 1 << 16
"""Highest limit of open files that is requested; the private broker and
its clients use at most half of them.
"""


def open_console(
    cluster: "Cluster", job: str = "", *, replay: float = 0.0, simulated: bool = False
) -> int:
    """Show the console until the user closes it; returns the exit code.

    `job` is shown first if given, as a replay if `replay` (its speed) is
    not 0. `simulated`: on simulated nodes.
    """
    require_terminal(os.environ)
    from rankdeck.config.user import read_settings
    from rankdeck.ui.app import run_console as show
    from rankdeck.ui.opening import open_console_session, open_simulated

    return show(
        open_simulated if simulated else open_console_session,
        read_settings(),
        cluster=cluster,
        job=job,
        replay=replay,
    )


def take_descriptors() -> None:
    """Raise the limit of open files, up to MOST_FILES: each node
    and each MQTT client needs some.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def silence_libraries() -> None:
    """Keep warnings of libraries, which mean nothing to an operator, off the
    terminal; `-W` and PYTHONWARNINGS win.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = sys.argv[1:] if argv is None else argv
    _, *older = gc.get_threshold()
    gc.set_threshold(YOUNG, *older)
    if given[:1] != ["agent"]:  # other users may need to read an agent that is installed here
        make_files_private()
        take_descriptors()
    silence_libraries()
    return run_command_line(given, open_console)


if __name__ == "__main__":
    sys.exit(main())
