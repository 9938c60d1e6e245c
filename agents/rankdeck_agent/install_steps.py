"""Steps of an installation: each runs a command, writes a file or removes one."""

import contextlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rankdeck_agent.service_files import File
from rankdeck_agent.values import Value

LIMIT = 30.0


class InstallError(Exception):
    """The installation failed; the text is one sentence that says why."""


class InstallStep(Value):
    """One step: run a command, or write or remove a file."""

    what: str
    """run, write or remove."""
    text: str
    """The command or the path."""
    detail: str = ""
    """The text of a file to write, without its password."""
    needed: bool = True
    """Whether the installation fails if this step fails."""
    argv: tuple[str, ...] = ()


def command_step(*argv: str, needed: bool = True) -> InstallStep:
    """The step that runs a command."""
    return InstallStep("run", " ".join(argv), needed=needed, argv=argv)


def do_steps(steps: Sequence[InstallStep], contents: "dict[str, File]") -> None:
    """Carry out the steps in order; raises InstallError at the first needed one that fails.

    `contents`: path -> file to write.
    """
    for step in steps:
        if step.what == "write":
            _write(contents[step.text])
        elif step.what == "remove":
            _remove(Path(step.text))
        else:
            _run(step)


def _write(file: File) -> None:
    """Write the file atomically: it is never incomplete. Raises InstallError."""
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
    # Remove the folder only if it is ours and empty.
    if path.parent.name == "rankdeck":
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def _run(step: InstallStep) -> None:
    try:
        done = _finished(step.argv)
    except OSError as error:
        if step.needed:
            raise InstallError(f"{step.argv[0]}: {error.strerror}") from error
        return
    if step.needed and done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        why = lines[-1][:200] if lines else f"exit status {done.returncode}"
        raise InstallError(f"`{step.text}`: {why}")


def _finished(words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """A command that has ended, and what it printed. Raises OSError, TimeoutExpired."""
    return subprocess.run(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        timeout=LIMIT,
        check=False,
    )


def command_output(words: Sequence[str]) -> str:
    """The stdout of a command; "" if it cannot be run."""
    try:
        done = _finished(words)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
