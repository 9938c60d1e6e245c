"""Copy to the clipboard, also from inside tmux, which drops what programs send it themselves."""

import asyncio
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping

LIMIT = 74_000
"""Bytes that terminals take at once."""
WAIT = 2.0


async def through_tmux(text: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Hand `text` to tmux; False where we are not in one, or it refuses."""
    program = shutil.which("tmux", path=environment.get("PATH"))
    if not environment.get("TMUX") or program is None:
        return False
    argv = (program, "load-buffer", "-w", "-")
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, env=environment
        )
    except OSError:
        return False
    try:
        await asyncio.wait_for(process.communicate(text.encode()), WAIT)
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode == 0
