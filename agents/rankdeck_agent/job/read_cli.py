"""`job follow` and `job browse`: the verbs that only look, loaded without what starts and ends jobs."""

import sys
from typing import Callable

from rankdeck_agent.job.browse import browse
from rankdeck_agent.job.folder import FolderError, existing
from rankdeck_agent.job.follow import follow

_AFTER = "--after"


def main(argv: list[str]) -> int:
    """Do one verb; its exit status."""
    verb, *words = argv
    try:
        return _VERBS[verb](words)
    except (FolderError, OSError) as error:
        print(f"rankdeck: {error}", file=sys.stderr)
        return 1


def _follow(words: list[str]) -> int:
    job, node, *rest = words if len(words) > 1 else ("", "")
    after = rest[1] if len(rest) == 2 and rest[0] == _AFTER else "-1"
    if len(rest) not in (0, 2) or not after.lstrip("-").isdigit():
        raise FolderError("usage: job follow JOB NODE [--after SEQ]")
    return follow(existing(job, node), int(after))


def _browse(words: list[str]) -> int:
    if len(words) != 2:
        raise FolderError("usage: job browse JOB NODE")
    return browse(existing(*words))


_VERBS: dict[str, Callable[[list[str]], int]] = {"follow": _follow, "browse": _browse}
