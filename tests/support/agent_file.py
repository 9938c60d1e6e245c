"""Puts the compiled agent into the homes of nodes before their first command:
this saves half a second of CPU per node.

Only code that starts nodes for other tests calls this. The copy by the console is tested with
empty homes (tests/integration/test_ssh_connections.py).
"""

import asyncio
import functools
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from rankdeck.config.files import demo_folder
from rankdeck.demo.cluster import NODES, DemoFolders
from rankdeck.remote.agent import Agents
from rankdeck.remote.bundle import build_bundle
from tests.support.local import local_shell
from tests.support.programs import UNPACKED

_KEPT = UNPACKED.parent / f"home.{sys.implementation.cache_tag}"
"""A home to which the console has brought the agent: it stays for the
next run, and so do agents of 30 days.
"""
_PLACE = Path(".cache/rankdeck")


def put_agent(homes: Iterable[Path]) -> None:
    """Copy the agent, as the console puts it there, into homes of nodes with
    this interpreter; not in an event loop.
    """
    files = _brought()
    for home in homes:
        (home / ".cache").mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / _PLACE).mkdir(mode=0o700, exist_ok=True)
        for file in files:
            shutil.copy(file, home / _PLACE)


def put_agent_in_demo(root: Path | None = None) -> None:
    """The same in the homes of the embedded cluster, whose folder is
    `root`, else as the environment says.
    """
    demo = DemoFolders(root or demo_folder())
    put_agent(demo.node(name) / "home" for name in NODES)


@functools.cache
def _brought() -> tuple[Path, ...]:
    _KEPT.mkdir(parents=True, exist_ok=True)
    asyncio.run(_bring())
    # By name: other processes compile there at the same time, and rename complete files.
    names = [build_bundle(simulating=simulating).name for simulating in (False, True)]
    files = [file for name in names for file in (name, f"{name}.{sys.implementation.cache_tag}")]
    return tuple(path for file in files if (path := _KEPT / _PLACE / file).exists())


async def _bring() -> None:
    async with local_shell(_KEPT) as shell:
        for simulating in (False, True):
            agents = Agents(shell, sys.executable, simulating=simulating)
            await agents.call("here", ("--version",), limit=60)
