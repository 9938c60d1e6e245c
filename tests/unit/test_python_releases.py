"""A Python that is known to be broken is refused by name, with what to do."""

import os
import subprocess
import sys
from collections import namedtuple

import pytest

from rankdeck.python_releases import BROKEN, python_refusal

Version = namedtuple("Version", "major minor micro releaselevel")
_START = """
import collections, msgspec, sys  # msgspec chooses by the version what it imports
sys.version_info = collections.namedtuple("V", "major minor micro releaselevel serial")(3, 14, 1, "final", 0)
sys.argv[1:] = {words}
import runpy
runpy.run_module("rankdeck", run_name="__main__")
"""


@pytest.mark.parametrize("release", BROKEN)
def test_a_broken_release_is_refused_by_name_with_the_release_that_works(
    release: tuple[int, int, int],
) -> None:
    major, minor, micro = release
    said = python_refusal(Version(*release, "final"), "/usr/bin/python3")

    assert said.startswith(f"Python {major}.{minor}.{micro} (/usr/bin/python3) ")
    assert said.endswith(f": install Rankdeck with {major}.{minor}.{micro + 1} or newer")
    assert not python_refusal(Version(major, minor, micro + 1, "final"), "python3")


def test_a_release_that_is_not_final_is_refused_and_others_are_not() -> None:
    assert "is a candidate release" in python_refusal(Version(3, 15, 0, "candidate"), "python3")
    assert not python_refusal(sys.version_info, sys.executable)
    assert not python_refusal(Version(3, 11, 2, "final"), "Debian's")


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["status"], 1, "rankdeck: Python 3.14.1 ("),
        (["doctor"], 1, "Python 3.14.1 ("),
    ],
)
def test_no_command_starts_with_it_but_doctor_which_says_it(
    words: list[str], code: int, said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _START.format(words=words)],
        env={**os.environ, "TERM": "xterm"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == code
    assert said in (done.stdout if "doctor" in words else done.stderr)
    assert "Traceback" not in done.stderr
