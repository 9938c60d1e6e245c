"""Asks the agents of this node to let the GPU driver go, for a reset
of a GPU, or to read the GPUs again.
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankdeck_agent.user_names import user_name
from rankdeck_agent.values import Value

SIGNALS = {"gpu-stop": signal.SIGUSR1, "gpu-start": signal.SIGUSR2}
"""Command -> what an agent is sent: to let the driver go, to read the GPUs again."""
STOPPED = (
    "stopped by `rankdeck agent stop --gpu`, so that nothing holds the driver; "
    "`rankdeck agent start --gpu` with the name of the node reads the GPUs again"
)
"""Why GPUs are not read meanwhile."""
RELEASE_LIMIT = 20.0
"""Seconds that agents have to let the driver go: the process that asks
it ends after its present question.
"""
_LOOK_EVERY = 0.1
_PUBLISHES = frozenset({b"telemetry", b"--config", b"beside"})
"""Commands of agents that read GPUs."""
_ARCHIVE = re.compile(rb"(?:.*/)?[^/]*(?:agent|rankdeck)[^/]*\.pyz|rankdeck_agent|rankdeck-agent")
_ASKS = b"nvml"
"""The command of the process of an agent that holds the driver open."""


class RunningAgent(Value):
    """An agent on this node that may hold the GPU driver."""

    pid: int
    user: str
    listens: bool
    """Whether it knows these signals, which would end an older agent."""


def running_agents(proc: Path = Path("/proc")) -> Iterator[RunningAgent]:
    """The agents that publish from this node, without those that /proc hides from us."""
    for folder in proc.iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if not _publishes(words):
                continue
            caught = _caught(folder)
            yield RunningAgent(int(folder.name), user_name(folder.stat().st_uid), caught)
        except (OSError, ValueError, IndexError):
            # It has ended meanwhile.
            continue


def _publishes(words: list[bytes]) -> bool:
    """Whether this is the command line of an agent that publishes."""
    for place, word in enumerate(words[:-1]):
        if _ARCHIVE.fullmatch(word):
            return bool(_PUBLISHES & set(words[place + 1 : place + 3]))
    return False


def _caught(process: Path) -> bool:
    """Whether a process handles both signals."""
    rows = (process / "status").read_text("utf-8", "replace").splitlines()
    mask = int(next(row for row in rows if row.startswith("SigCgt:")).split()[1], 16)
    return all(mask >> (number - 1) & 1 for number in SIGNALS.values())


def tell_agents(command: str, proc: Path = Path("/proc")) -> dict[str, Any]:
    """Send the signal of `command` (a key of SIGNALS) to all agents of this
    node, and wait for those that let go.

    Returns `ok`, `did`, `notes` (an agent and what became of it, one
    sentence each) and, if not ok, `why`.
    """
    told: list[RunningAgent] = []
    refused: list[str] = []
    for agent in running_agents(proc):
        why = _signal(agent, command)
        refused += [why] if why else []
        told += [] if why else [agent]

    deadline = time.monotonic() + RELEASE_LIMIT
    left = told if command == "gpu-stop" else []
    while left and time.monotonic() < deadline:
        left = [agent for agent in left if _holds(agent.pid, proc)]
        time.sleep(_LOOK_EVERY if left else 0)
    refused += [
        f"process {a.pid} of {a.user} still holds the driver, which does not answer it: reboot the node"
        for a in left
    ]

    count = len(told) - len(left)
    agents = "1 agent" if count == 1 else f"{count} agents"
    did = f"{agents} let the driver go" if command == "gpu-stop" else f"{agents} read GPUs again"
    answer: dict[str, Any] = {"ok": not refused, "did": did, "notes": refused}
    if refused:
        answer["why"] = f"{did}; {'; '.join(refused)}"
    return answer


def _signal(agent: RunningAgent, command: str) -> str:
    """Send the signal; returns why that was not possible, or ""."""
    who = f"process {agent.pid} of {agent.user}"
    if not agent.listens:
        return f"{who} is an older agent: restart it, or install it again"
    try:
        os.kill(agent.pid, SIGNALS[command])
    except ProcessLookupError:
        return ""
    except PermissionError:
        return f"{who} may be told by that user or by root only: log in so, or use sudo (--system)"
    return ""


def _holds(agent: int, proc: Path) -> bool:
    """Whether the process with which this agent asks the driver still has it open."""
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
            if parent == agent and _ASKS in (folder / "cmdline").read_bytes().split(b"\0"):
                return True
    return False
