"""Commands of the container runtimes and of Slurm, asked with a limit."""

import subprocess
from collections.abc import Mapping
from typing import Optional

from rankdeck_agent.job.text import plain


def ask(
    argv: tuple[str, ...], limit: float, env: Optional[Mapping[str, str]] = None
) -> tuple[str, str]:
    """Why the command failed, or "", and what it wrote, also then."""
    try:
        done = subprocess.run(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return plain(str(error), 200), ""
    wrote = done.stdout.decode("utf-8", "replace").strip()
    said = plain(done.stderr.decode("utf-8", "replace").strip(), 200)
    return (said or f"exit {done.returncode}") if done.returncode else "", wrote
