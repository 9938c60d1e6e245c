"""Doing what was decided: commands run, files written whole, folders left clean."""

import contextlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankdeck_agent.install.layout import File

LIMIT = 30.0


class InstallError(Exception):
    """Why it cannot be done; the text is one sentence."""


@dataclass(frozen=True)
class Step:
    """One thing that is done: a command, or a file written or taken away."""

    what: str
    """run, write or remove"""
    text: str
    detail: str = ""
    needed: bool = True
    argv: tuple[str, ...] = ()


def command(*argv: str, needed: bool = True) -> Step:
    """A command as a step."""
    return Step("run", " ".join(argv), needed=needed, argv=argv)


def do(steps: Sequence[Step], contents: "dict[str, File]") -> None:
    """Carry out the steps in order; raises InstallError at the first that fails and is needed."""
    for step in steps:
        if step.what == "write":
            _write(contents[step.text])
        elif step.what == "remove":
            _remove(Path(step.text))
        else:
            _run(step)


def _write(file: File) -> None:
    """The whole file or the old one, never half of it."""
    file.path.parent.mkdir(parents=True, exist_ok=True)
    part = file.path.with_name(f".{file.path.name}.{os.getpid()}")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(file.data)
            out.flush()
            os.fsync(out.fileno())
        part.chmod(file.mode)
        part.replace(file.path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise InstallError(f"{file.path} cannot be written: {error.strerror}") from error


def _remove(path: Path) -> None:
    path.unlink()
    # Only folders that are ours, and empty.
    if path.parent.name == "rankdeck":
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def _run(step: Step) -> None:
    try:
        done = subprocess.run(step.argv, capture_output=True, text=True, timeout=LIMIT, check=False)
    except OSError as error:
        if step.needed:
            raise InstallError(f"{step.argv[0]}: {error.strerror}") from error
        return
    if step.needed and done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        why = lines[-1][:200] if lines else f"exit status {done.returncode}"
        raise InstallError(f"`{step.text}`: {why}")


def ask(words: Sequence[str]) -> str:
    """What a program prints; "" where it cannot be asked."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
