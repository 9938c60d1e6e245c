"""The console says where it cannot be shown, in one sentence with a way out."""

import os
import pty
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from rankdeck.cli.output import UsageError, require_terminal


@contextmanager
def on_terminal() -> Generator[None]:
    """A terminal of our own; pytest puts other streams in place before each test."""
    master, slave = pty.openpty()
    with (
        os.fdopen(slave, "r+b", buffering=0) as stream,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", stream)
        patch.setattr(sys, "stdout", stream)
        yield
    os.close(master)


@pytest.mark.parametrize("kind", ["xterm-256color", "tmux", "linux", "vt100", ""])
def test_any_terminal_with_a_cursor_will_do(kind: str) -> None:
    with on_terminal():
        require_terminal({"TERM": kind})


@pytest.mark.parametrize("kind", ["dumb", "unknown"])
def test_one_that_only_prints_lines_is_refused(kind: str) -> None:
    with on_terminal(), pytest.raises(UsageError, match=f"TERM is `{kind}`; try TERM"):
        require_terminal({"TERM": kind})


def test_a_pipe_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "w") as stdout:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(UsageError, match="rankdeck status --json"):
            require_terminal({"TERM": "xterm"})
