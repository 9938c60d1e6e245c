"""Images of labs: made once, whole or not at all, and kept in the cache folder by their recipe."""

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

BUILD_LIMIT = 1800
ALONE = ("unshare", "-m", "-p", "-f", "--kill-child=KILL", "--mount-proc")
"""Runs a build so that all its processes end with it."""


def place_of(family: str, recipe: Iterable[bytes]) -> Path:
    """The folder of the images of this recipe; call it before a test gets folders of its own."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    digest = hashlib.sha256(b"\0".join(recipe)).hexdigest()[:12]
    return Path(cache) / family / digest


def make_images(place: Path, what: str, make: Callable[[Path, Path], None]) -> str:
    """Make missing images; returns why that failed, or "".

    `make` gets a folder and a file for its log, and raises OSError or SubprocessError. Images of
    other recipes that no lab is running on are removed.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    log = place.with_suffix(".log")
    with place.with_suffix(".lock").open("w") as lock:
        # Running labs share the lock; only a build holds it exclusively.
        for way in (fcntl.LOCK_SH, fcntl.LOCK_EX):
            fcntl.flock(lock, way)
            if place.exists():
                return ""
        _prune(place)
        part = place.with_suffix(".part")
        _remove(part)
        try:
            make(part, log)
        except (OSError, subprocess.SubprocessError) as error:
            return f"{what} cannot be built: {error}; see {log}"
        part.rename(place)
    return ""


def run_build(command: list[str], log: Path) -> None:
    """Run a build whose processes all end with it; raises OSError or SubprocessError."""
    with log.open("wb") as output:
        subprocess.run(
            [*ALONE, *command], stdout=output, stderr=output, timeout=BUILD_LIMIT, check=True
        )


def _prune(place: Path) -> None:
    """Take away the images of other recipes, but for those that a lab is running on."""
    for lock in place.parent.glob("*.lock"):
        other = lock.with_suffix("")
        if other == place:
            continue
        with lock.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            for left in (other, other.with_suffix(".part")):
                _remove(left)
            other.with_suffix(".log").unlink(missing_ok=True)
            lock.unlink()


def _remove(folder: Path) -> None:
    if folder.exists():
        subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)
