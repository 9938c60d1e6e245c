"""The console in a real terminal."""

import os
import sys
import time

from tests.support.terminal import Terminal, terminal

LIMIT = 20.0
PREVIEW = (sys.executable, "-m", "tests.ui.preview", "3")


def shows(shown: Terminal, text: str) -> None:
    deadline = time.monotonic() + LIMIT
    while text not in shown.text():
        assert time.monotonic() < deadline, shown.text()
        time.sleep(0.1)


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
