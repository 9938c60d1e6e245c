"""Copying through tmux: what it is handed, and what happens when it hangs."""

import os
from pathlib import Path

import pytest

from rankdeck.ui import terminal


def program(folder: Path, text: str) -> dict[str, str]:
    """The environment of somebody inside a tmux that does this."""
    path = folder / "tmux"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return {"TMUX": "/a,1,0", "PATH": f"{folder}:/usr/bin:/bin"}


async def test_the_whole_text_reaches_tmux(tmp_path: Path) -> None:
    environment = program(tmp_path, f'echo "$*" > {tmp_path}/argv; cat > {tmp_path}/in')
    text = "line\n" * 50_000

    assert await terminal.through_tmux(text, environment)
    assert (tmp_path / "argv").read_text() == "load-buffer -w -\n"
    assert (tmp_path / "in").read_text() == text


async def test_a_tmux_that_refuses_or_hangs_is_told_and_ended(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(terminal, "WAIT", 0.3)
    refuses = program(tmp_path, "exit 1")

    assert not await terminal.through_tmux("x", refuses)
    hangs = program(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    assert not await terminal.through_tmux("x", hangs)
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_outside_of_tmux_nothing_is_started(tmp_path: Path) -> None:
    environment = program(tmp_path, f"touch {tmp_path}/ran")
    del environment["TMUX"]

    assert not await terminal.through_tmux("x", environment)
    assert not (tmp_path / "ran").exists()
