"""Commands, files and shells on the nodes of the embedded cluster, through the command line."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.test_main_path import Console, demo_console
from tests.support.commands import COMMANDS
from tests.support.terminal import terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
ALL = "koishi,sakura,sakuya"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with demo_console(tmp_path_factory.mktemp("hands")) as console:
        yield console


def rankdeck(console: Console, *words: str) -> subprocess.CompletedProcess[str]:
    return COMMANDS.run(("-c", "demo", *words), console.env, 90, Path.cwd())


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What it complains of; on a busy machine it says also how far it is."""
    return [line for line in done.stderr.splitlines() if line.startswith("rankdeck: ")]


@pytest.mark.kept
def test_equal_output_is_printed_once_with_its_nodes(console: Console) -> None:
    done = rankdeck(console, "sh", ALL, "--", "echo hello; echo $((1 + 1))")

    rule = "-" * 15
    assert done.stdout == f"{rule}\n{ALL} (3)\n{rule}\nhello\n2\n"
    assert (done.returncode, errors(done)) == (0, [])


@pytest.mark.kept
def test_the_largest_exit_status_is_the_answer_and_says_where(console: Console) -> None:
    done = rankdeck(console, "sh", ALL, "--", "case $(hostname) in sakura) exit 3;; esac")

    assert done.returncode == 3
    assert errors(done) == ["rankdeck: sakura (1): exit 3"]


def test_the_time_limit_ends_it_and_is_said(console: Console) -> None:
    (told,) = [
        json.loads(rankdeck(console, "sh", "--json", "--limit", "1", "sakura", "--", "sleep 77").stdout)
    ]  # fmt: skip

    (node,) = told["nodes"]
    assert (node["why"], node["status"], node["left"]) == ("limit", 124, [])


@pytest.mark.kept
def test_ctrl_c_ends_it_everywhere_and_proves_it(console: Console) -> None:
    mark = f"60.{time.time_ns() % 10**9:09}"
    process = subprocess.Popen(
        [sys.executable, "-m", "rankdeck", "-c", "demo", "sh", "--lines", ALL, "--",
         f"echo up; sleep {mark}"],
        env=console.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for _ in range(3):
        assert process.stdout.readline().endswith(": up\n")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=300)

    assert process.returncode == 130
    assert "nothing is left on any node" in told
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in words_of(p)]


def words_of(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.mark.kept
def test_a_file_is_copied_and_another_one_kept(console: Console, tmp_path: Path) -> None:
    file = tmp_path / "hosts.txt"
    file.write_text("n1\nn2\n")
    rankdeck(console, "sh", ALL, "--", "rm -rf made")
    copied = rankdeck(console, "cp", str(file), f"{ALL}:made/")
    there = rankdeck(console, "sh", ALL, "--", "cat made/hosts.txt")
    file.write_text("other\n")
    kept = rankdeck(console, "cp", str(file), f"{ALL}:made/hosts.txt")

    assert copied.returncode == 0, copied.stderr
    assert there.stdout.endswith("n1\nn2\n")
    assert there.stdout.count("n1") == 1
    assert kept.returncode == 1
    assert "--replace" in kept.stderr


def test_a_file_of_each_node_comes_here_named_by_node(console: Console, tmp_path: Path) -> None:
    make = "cd; hostname > who; mkfifo -m 600 pipe; head -c 3000000 /dev/zero > large; : > empty"
    rankdeck(console, "sh", ALL, "--", make)
    folder = tmp_path / "made"
    done = rankdeck(console, "cp", f"{ALL}:~/who", str(folder))
    again = rankdeck(console, "cp", f"{ALL}:who", str(folder))
    for name in ("large", "empty", "/proc/self/status"):
        assert rankdeck(console, "cp", f"sakura:{name}", str(folder)).returncode == 0
    refused = {
        path: errors(rankdeck(console, "cp", f"{ALL}:{path}", str(folder)))
        for path in ("pipe", "none", "/dev/zero", "/tmp")
    }

    assert done.returncode == 0, done.stderr
    hosts = {node: (folder / f"who.{node}").read_text() for node in ALL.split(",")}
    assert hosts == {node: f"{node}\n" for node in hosts}
    assert (folder / "large.sakura").stat().st_size == 3_000_000
    assert (folder / "empty.sakura").read_bytes() == b""
    assert "Name:" in (folder / "status.sakura").read_text()
    assert again.returncode == 1
    assert again.stderr.count("is there already; --replace") == 3
    for said in refused.values():
        assert len(said) == 3, said
        assert all("no regular file" in line or "No such file" in line for line in said), said
        assert not any("Errno" in line for line in said), said
    assert not list(folder.glob(".*"))
    assert rankdeck(console, "cp", "--replace", "sakura:who", str(folder)).returncode == 0


def stopped(console: Console, *words: str) -> tuple[int, str]:
    """The exit status of a `cp` that gets Ctrl-C once some MiB are there, and its last line."""
    with console.start("cp", *words) as process:
        assert process.stderr
        far = next(line for line in process.stderr if re.search(r" [1-9]\S* MiB of ", line))
        process.send_signal(signal.SIGINT)
        out, told = process.communicate(timeout=300)
    assert (out, told.count("Traceback")) == ("", 0), far + told
    return process.returncode, (far + told).splitlines()[-1]


def test_ctrl_c_leaves_no_half_file_here_and_says_so(console: Console, tmp_path: Path) -> None:
    rankdeck(console, "sh", ALL, "--", "cd; truncate -s 1G vast")
    code, told = stopped(console, f"{ALL}:vast", str(tmp_path))
    rankdeck(console, "sh", ALL, "--", "cd; rm vast")

    assert code == 130
    assert told == f"rankdeck: stopped; no half file is left, what is in {tmp_path} is whole"
    assert list(tmp_path.glob("*vast*")) == []


def test_ctrl_c_leaves_no_half_file_on_a_node_and_says_so(console: Console, tmp_path: Path) -> None:
    file = tmp_path / "vast"
    with file.open("wb") as made:
        made.truncate(1 << 30)
    code, told = stopped(console, str(file), "sakura:vast-there/")
    seen = rankdeck(console, "sh", "sakura", "--", "cd; ls vast-there; rm -r vast-there")

    assert code == 130
    assert told.startswith("rankdeck: stopped; no half file is seen on a node")
    assert (seen.stdout, seen.returncode) == ("", 0)


@pytest.mark.kept
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cp", "n99:who", "."), "no node `n99`"),
        (("cp", "sakura:there/", "."), "names no file"),
        (("cp", "sakura:who", "/etc/hosts"), "not a folder"),
        (("sh", "n99", "--", "true"), "no node `n99`"),
        (("sh", "sakura", "--limit", "0", "--", "true"), "--limit"),
        (("sh", "sakura", "--fan-out", "0", "--", "true"), "--fan-out"),
        (("cp", f"{os.sep}nowhere", "sakura"), "no such file"),
    ],
)
def test_bad_input_is_one_sentence(console: Console, words: tuple[str, ...], said: str) -> None:
    done = rankdeck(console, *words)

    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.kept
def test_s_lends_the_terminal_to_a_shell_on_the_node_and_takes_it_back(
    console: Console, need: Callable[..., None]
) -> None:
    need("ssh")
    argv = [sys.executable, "-m", "rankdeck", "-c", "demo"]
    with terminal(argv, console.env) as shown:
        # All nodes are heard; on a busy machine they are not ok.
        shown.wait_for("all 3")
        shown.press("s")
        shown.wait_for("a shell on ")
        shown.press("\x03")
        shown.press("echo $((40 + 2))-$(hostname | cut -c1-2)\n")
        shown.wait_for("42-")
        shown.press("exit 3\n")
        shown.wait_for("the shell ended with exit 3")
        shown.press("\x1b")
        shown.wait_for("3")
        assert shown.process.poll() is None
