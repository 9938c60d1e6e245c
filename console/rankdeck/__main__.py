"""The command: a verb of the command line, or the console when there is none."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankdeck.cli.main import run

if TYPE_CHECKING:
    from rankdeck.model.cluster import Cluster


def open_console(cluster: "Cluster", job: str = "") -> int:
    """Show the console until it is closed, on this job if one is named."""
    from rankdeck.config.settings import read_settings
    from rankdeck.session import open_session
    from rankdeck.ui.app import run as show

    return show(open_session, read_settings(), cluster=cluster, job=job)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code."""
    return run(sys.argv[1:] if argv is None else argv, open_console)


if __name__ == "__main__":
    sys.exit(main())
