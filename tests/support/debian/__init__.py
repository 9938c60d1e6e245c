"""A minimal Debian of another suite, without procps, where an ordinary user
has a checkout in a folder with a space.

Its image is made once, in the cache folder, keyed by the recipe and the
lock; each run gets a copy of it in memory.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TextIO

from tests.support.install import LOCK, ROOT
from tests.support.programs import UNPACKED

_SCRIPTS = Path(__file__).parent
_PROGRAMS = ("mmdebstrap", "apt-get", "chroot", "unshare", "pivot_root", "setpriv", "git")
_ALONE = ("unshare", "-m", "-p", "-f", "--kill-child=KILL")
_BUILD_LIMIT = 1200


def _image(suite: str) -> Path:
    recipe = [_SCRIPTS / "image.sh", *sorted(LOCK.iterdir())]
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in recipe)).hexdigest()[:12]
    return UNPACKED.parent / "debian" / f"{suite}-{digest}"


@functools.cache
def missing(suite: str) -> str:
    """Make the image if needed; why that cannot be done here, "" if it is there."""
    if os.geteuid() != 0:
        return "needs root, to make a Debian of its own"
    if lacking := [program for program in _PROGRAMS if not shutil.which(program)]:
        return f"needs {', '.join(lacking)}"
    image = _image(suite)
    image.parent.mkdir(parents=True, exist_ok=True)
    with _lock(image) as lock:
        for way in (fcntl.LOCK_SH, fcntl.LOCK_EX):  # who only uses it need not wait for others
            fcntl.flock(lock, way)
            if image.exists():
                return ""
        return _make(image, suite)


def _lock(image: Path) -> TextIO:
    """The file whose lock those share who use the image, and which is
    exclusive for who makes or removes it.
    """
    return image.with_name(f"{image.name}.lock").open("w")


def _prune(suite: str, image: Path) -> None:
    """Remove the images of other recipes and locks, but for those in use."""
    for old in image.parent.glob(f"{suite}-*/"):
        with _lock(old.with_name(old.name.removesuffix(".part"))) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            shutil.rmtree(old, ignore_errors=True)


def _make(image: Path, suite: str) -> str:
    """Make the image, whole or not at all; returns why that failed, or ""."""
    _prune(suite, image)
    part, log = image.with_name(f"{image.name}.part"), image.with_name(f"{image.name}.log")
    shutil.rmtree(part, ignore_errors=True)
    with log.open("wb") as output:
        try:
            subprocess.run(
                [*_ALONE, _SCRIPTS / "image.sh", part, suite],
                stdout=output, stderr=output, timeout=_BUILD_LIMIT, check=True,
            )  # fmt: skip
        except subprocess.SubprocessError as error:
            return f"no Debian {suite} can be made here: {error}; see {log}"
    part.rename(image)
    return ""


def run_inside(suite: str, folder: Path, *command: str, limit: float) -> str:
    """What a command prints in a fresh copy of that Debian, with this
    checkout; fails if its exit code is not 0.
    """
    files = folder / "files.tar"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    there = [
        name for name in listed.stdout.split(b"\0") if name and (ROOT / os.fsdecode(name)).exists()
    ]
    subprocess.run(
        ["tar", "-c", "--null", "-T", "-", "-f", files],
        cwd=ROOT, input=b"\0".join(there), timeout=60, check=True,
    )  # fmt: skip
    output = folder / "output"
    with output.open("wb") as file, _lock(_image(suite)) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        done = subprocess.run(
            [*_ALONE, _SCRIPTS / "inside.sh", _image(suite), files, *command],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=limit, check=False,
        )  # fmt: skip
    said = output.read_text(errors="replace")
    assert done.returncode == 0, said[-20_000:]
    return said
