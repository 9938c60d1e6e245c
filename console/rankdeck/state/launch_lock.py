"""The launch lock of a job: which console of this machine is starting it."""

import fcntl
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rankdeck.config.files import console_state_folder, lock_if_free

log = logging.getLogger(__name__)


def _place(job: str) -> Path:
    return console_state_folder() / "launching" / job


@contextmanager
def launch_of(job: str) -> Generator[None]:
    """Hold the launch lock of this job until the block or the process ends; see `is_launched`."""
    path = _place(job)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        # Without the lock, other consoles may judge too early that the job was never started.
        log.warning("%s cannot be written: %s", path, error)
        yield
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(held)


def is_launched(job: str) -> bool:
    """Whether a running console is launching this job now."""
    try:
        with lock_if_free(_place(job)) as free:
            if free:
                _place(job).unlink(missing_ok=True)
            return not free
    except OSError:
        return False
