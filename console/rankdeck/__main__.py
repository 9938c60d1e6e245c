"""The command: a verb of the command line, or the console when there is none."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rankdeck.cli.main import run
from rankdeck.config.safe_files import keep_private

if TYPE_CHECKING:
    from rankdeck.model.cluster import Cluster


def open_console(cluster: "Cluster", job: str = "", *, replay: float = 0.0) -> int:
    """Show the console, on this job if one is named, until it is closed."""
    from rankdeck.cli import demo
    from rankdeck.ui.garbage_collection import hold_off

    demo.require(os.environ)
    hold_off()  # Reading the modules below would bring three full collections.
    from rankdeck.config.settings import UiSettings, lacks_unicode, read_settings
    from rankdeck.ui.app import run as show
    from rankdeck.ui.session_protocol import open_session

    chosen = read_settings()
    plain = lacks_unicode(os.environ) if chosen.ascii is None else chosen.ascii
    settings = UiSettings(theme=chosen.theme, ascii=plain, diff=chosen.diff)
    return show(
        partial(open_session, cluster),
        settings,
        cluster=cluster,
        job=job,
        replay=replay,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code."""
    given = sys.argv[1:] if argv is None else argv
    if given[:1] != ["agent"]:  # other users may have to read an agent installed here
        keep_private()
    return run(given, open_console)


if __name__ == "__main__":
    sys.exit(main())
