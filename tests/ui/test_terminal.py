"""The console in a real terminal, and that terminal itself."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.terminal import Terminal, terminal

LIMIT = 20.0
PREVIEW = (sys.executable, "-m", "tests.ui.preview", "3")


def shows(shown: Terminal, text: str) -> None:
    deadline = time.monotonic() + LIMIT
    while text not in shown.text():
        assert time.monotonic() < deadline, shown.text()
        time.sleep(0.1)


@pytest.mark.long
def test_every_main_screen_comes_back_after_another() -> None:
    with terminal(PREVIEW, os.environ) as shown:
        shows(shown, "3 of 3 nodes")
        for key, text in (
            ("5", "WHAT"),
            ("1", "3 of 3 nodes"),
            ("2", "FIRST FAILURE"),
            ("5", "WHAT"),
            ("1", "3 of 3 nodes"),
        ):
            shown.press(key)
            shows(shown, text)


@pytest.mark.long
def test_what_outlives_its_program_in_the_terminal_takes_nothing_from_the_next_one(
    tmp_path: Path,
) -> None:
    """Its reader did: a `cancel` that ran next ended with exit 0 and lost its only line."""
    go = tmp_path / "go"
    stays = f"(until [ -e {go} ]; do sleep 0.05; done; echo on) & echo up; wait"
    with terminal(["sh", "-c", stays], os.environ) as shown:
        shown.wait_for("up")
    next_one = ["sh", "-c", f"touch {go}; sleep 1; echo proof"]
    with subprocess.Popen(next_one, stdout=subprocess.PIPE) as process:
        process.wait(LIMIT)
        assert process.stdout
        assert process.stdout.read() == b"proof\n"
