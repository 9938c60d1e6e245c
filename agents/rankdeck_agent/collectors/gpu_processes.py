"""The command `gpu-processes`: prints the processes on NVIDIA's GPUs."""

import json
from pathlib import Path
from typing import Any

from rankdeck_agent.collectors import nvidia
from rankdeck_agent.text import clean_text, failure_reason, print_complaint
from rankdeck_agent.user_names import user_name

_COMMAND_LIMIT = 200


def main() -> int:
    """`gpu-processes`: print a JSON object per process: gpu, instance (MIG),
    pid, bytes, use (percent), user, command.

    Returns the exit code.
    """
    if not nvidia.has_nvidia_driver("/"):
        return print_complaint("rankdeck-agent: no NVIDIA driver on this machine", 2)
    try:
        found = nvidia.list_gpu_programs()
    except (OSError, ValueError) as error:
        return print_complaint(f"rankdeck-agent: {failure_reason(error)}", 1)
    for row in found:
        print(json.dumps({**row, **_who(int(row["pid"]))}))
    return 0


def _who(pid: int) -> dict[str, Any]:
    """User and command of a process; both None if it has ended or belongs to somebody else."""
    folder = Path("/proc") / str(pid)
    try:
        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").strip()
        command = clean_text(words.decode("utf-8", "replace"), _COMMAND_LIMIT)
        return {"user": user_name(folder.stat().st_uid), "command": command}
    except OSError:
        return {"user": None, "command": None}
