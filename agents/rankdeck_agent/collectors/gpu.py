"""GPUs of every make under one set of names."""

import json
import os
import pwd
import sys
from pathlib import Path
from typing import Any, Optional

from rankdeck_agent.collectors import amd, nvidia, nvidia_calls
from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.collectors.nvidia import present, running
from rankdeck_agent.files import clean, reason

_LOOK_AGAIN = 60.0


class GpuCollector:
    """Load, memory, heat, power and faults of every NVIDIA and AMD GPU."""

    name = "gpu"
    lane = "gpu"
    period = 0.0
    metrics: tuple[str, ...] = tuple(dict.fromkeys((*nvidia_calls.METRICS, *amd.METRICS)))

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._root = root
        self._looked = -_LOOK_AGAIN
        self._nvidia: Optional[nvidia.Nvidia] = None
        self._amd = amd.Amd(root, "amd" if nvidia.present(root) else "")

    def collect(self, now: float) -> Reading:
        if self._nvidia is None and now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            self._nvidia = nvidia.Nvidia() if nvidia.present(self._root) else None
        self.doing = "NVML"
        reading = self._nvidia.collect(now) if self._nvidia else Reading()
        self.doing = "amdgpu"
        self._amd.collect(reading, now)
        # Nothing here: nothing is woken up for it at every beat.
        self.period = 0.0 if self._nvidia or self._amd.cards else _LOOK_AGAIN
        self.doing = ""
        return reading

    def close(self) -> None:
        """Let the process that asks NVML end."""
        if self._nvidia:
            self._nvidia.close()


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
