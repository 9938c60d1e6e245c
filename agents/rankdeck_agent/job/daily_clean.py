"""Starts `job clean` once a day on each node where jobs are started; small,
because every start of a job loads it.
"""

import contextlib
import os
import subprocess
import time
from pathlib import Path

from rankdeck_agent import AGENT_TOKEN, JOB_VARIABLE, NODE_VARIABLE, RUN_VARIABLE
from rankdeck_agent.job.start import with_agent
from rankdeck_agent.state_folder import agent_state_folder
from rankdeck_agent.wire.leftovers import KEEP_DAYS

_DAY = 86400.0


def clean_daily() -> None:
    """Start a process that applies the rule with its defaults, if none was
    started here for a day; returns at once.

    The first time, after a pause longer than the rule keeps things, and after the clock was set
    back, only the time is noted: a clock that was just set a year ahead would make everything old.
    """
    stamp = agent_state_folder().absolute() / f"cleaned.{os.uname().nodename}"
    with contextlib.suppress(OSError):  # a full disk must not fail the start of a job
        pause = _pause(stamp)
        if 0 <= pause < _DAY:
            return
        with stamp.open("w") as answer:
            os.utime(stamp)  # an empty file that was empty before keeps its time
            if _DAY <= pause < KEEP_DAYS * _DAY:
                _start(answer.fileno())


def _pause(stamp: Path) -> float:
    """Seconds since the last time; negative if there was none or the clock was set back."""
    try:
        return time.time() - stamp.stat().st_mtime
    except FileNotFoundError:
        return -1.0


def _start(answer: int) -> None:
    ours = (JOB_VARIABLE, NODE_VARIABLE, RUN_VARIABLE)
    subprocess.Popen(
        with_agent((AGENT_TOKEN, "job", "clean")),
        # With the marks of a job it would be ended with that job.
        env={name: value for name, value in os.environ.items() if name not in ours},
        stdin=subprocess.DEVNULL,
        stdout=answer,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: os.nice(10),
    )
