"""What computes on the GPUs now, told when somebody asks."""

import json
import os
import pwd
import sys
from pathlib import Path
from typing import Any

from rankdeck_agent.collectors.nvidia import present, running
from rankdeck_agent.files import clean, reason

_COMMAND_LIMIT = 200


def main() -> int:
    """Print one JSON object a line: gpu, pid, bytes, user, command; the exit status."""
    if not present("/"):
        print("rankdeck-agent: no NVIDIA driver on this machine", file=sys.stderr)
        return 2
    try:
        found = running()
    except (OSError, ValueError) as error:
        print(f"rankdeck-agent: {reason(error)}", file=sys.stderr)
        return 1
    for row in found:
        print(json.dumps({**row, **_who(int(row["pid"]))}))
    return 0


def _who(pid: int) -> dict[str, Any]:
    """User and command of a process; None where it has gone or is another's."""
    folder = Path("/proc") / str(pid)
    try:
        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").strip()
        command = clean(words.decode("utf-8", "replace"), _COMMAND_LIMIT)
        return {"user": _user(os.stat(folder).st_uid), "command": command}  # noqa: PTH116
    except OSError:
        return {"user": None, "command": None}


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
