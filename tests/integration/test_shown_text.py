"""A rank writes what is invisible: every command that prints it shows the same on
a terminal, and a pipe gets it as it came.
"""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from unicodedata import category

import pytest
from tests.integration.test_main_path import Console, demo_console

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NASTY = "in\u200bvi\u202esi\U000e0041ble \ufeff\u3164\ufe0f\ue000 e" + "\u0301" * 300 + " end"
SHOWN = (
    "in<U+200B>vi<U+202E>si<U+E0041>ble <U+FEFF><U+3164><U+FE0F><U+E000> e"
    + "\u0301" * 8
    + "<+292 marks> end"
)
OCTAL = "".join(f"\\{byte:03o}" for byte in NASTY.encode())
JOB = r"""
job: nasty
launch: plain
nodes: 2
ranks_per_node: 1
command: [sh, -c, 'printf "{octal}\n"; test $RANKDECK_RANK = 0 || printf "odd {octal}\n" >&2; exit 3']
"""
COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
COMMANDS = {
    "logs": (), "logs --follow": ("--follow",), "logs --collapse": ("--collapse",), "logs --merge": ("--merge",),
    "logs --diff": ("--diff",), "logs --diff=0,1": ("--diff=0,1",), "logs --stream": ("--stream", "err"),
}  # fmt: skip
"""Views of the output -> their options."""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with demo_console(tmp_path_factory.mktemp("shown")) as console:
        yield console


def seen(console: Console, *words: str) -> str:
    """All that a command writes on a terminal."""
    master, slave = pty.openpty()
    argv = [sys.executable, "-m", "rankdeck", "-c", "demo", *words]
    env = {**console.env, "TERM": "xterm", "LANG": "C.UTF-8"}
    with subprocess.Popen(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        parts: list[bytes] = []
        while part := _read(master):
            parts.append(part)
        process.wait(60)
    os.close(master)
    return b"".join(parts).decode().replace("\r\n", "\n")


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # the last program has closed the terminal
        return b""


def hidden(text: str) -> list[str]:
    """What draws nothing in it, except line ends and colour codes."""
    rest = COLOURS.sub("", text).replace("\n", "")
    return [sign for sign in rest if category(sign)[0] == "C" or sign in "\u3164\ufe0f"]


@pytest.fixture(scope="module")
def first_run(console: Console) -> str:
    return seen(console, "run", console.file("nasty.yaml", JOB.format(octal=OCTAL)))


def test_run_shows_what_is_invisible_in_output_and_summary(first_run: str) -> None:
    output, summary = first_run.split("first failure:")

    assert SHOWN in output
    assert "<U+200B>" in summary
    assert hidden(first_run) == []


@pytest.mark.usefixtures("first_run")
@pytest.mark.parametrize("view", COMMANDS)
def test_every_view_of_the_output_shows_the_same(console: Console, view: str) -> None:
    text = seen(console, "logs", console.newest(), *COMMANDS[view])

    assert SHOWN in text
    assert hidden(text) == []


@pytest.mark.usefixtures("first_run")
def test_jobs_shows_nothing_invisible(console: Console) -> None:
    text = seen(console, "jobs")

    assert console.newest() in text
    assert hidden(text) == []


@pytest.mark.parametrize("options", [(), ("--lines",)])
def test_sh_shows_the_same(console: Console, options: tuple[str, ...]) -> None:
    text = seen(console, "sh", *options, "sakura,koishi", "--", f"printf '{OCTAL}\\n'")

    assert SHOWN in text
    assert hidden(text) == []


@pytest.mark.usefixtures("first_run")
def test_a_pipe_gets_what_the_rank_wrote_without_marks_of_direction(console: Console) -> None:
    text = console.run("logs", console.newest(), "--stream", "out", "--rank", "0").stdout

    assert text == f"[0] {NASTY.replace(chr(0x202E), '')}\n"
