"""Marks the file that the agent runs from as in use."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

_DAY = 86400.0


def mark_agent_used() -> None:
    """Touch the agent file that we run from, once a day: agent files
    that are not used for long are removed.

    For processes that run as long as a job. The home folder may be shared with other nodes.
    """
    path = Path(sys.argv[0])
    with suppress(OSError):
        if path.suffix == ".pyz" and time.time() - path.stat().st_mtime > _DAY:
            os.utime(path)
