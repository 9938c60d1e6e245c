"""The shim that starts ranks in pods, by the sh of this machine:
numbers, streams, ends, signals.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rankdeck.schedulers.kubernetes.manifest import POD_SHIM
from rankdeck_agent.schedulers.kubernetes.objects import Splitter
from tests.support.polling import wait_until

HERE = os.uname().nodename


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    (tmp_path / "rank-shim").write_text(POD_SHIM)
    return tmp_path / "rank-shim"


def started(shim: Path, *words: str, **variables: str) -> "subprocess.Popen[bytes]":
    env = {"PATH": os.environ["PATH"], "JOB_COMPLETION_INDEX": "0", **variables}
    return subprocess.Popen(
        ["sh", shim, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def read(output: bytes) -> dict[tuple[int | None, str], bytes]:
    splitter, texts = Splitter(), {}
    for line in output.splitlines():
        for piece in splitter.feed(line):
            key = piece.rank, piece.what
            texts[key] = texts.get(key, b"") + piece.text
    return texts


def test_streams_start_and_status_of_a_rank_are_told(shim: Path) -> None:
    running = started(shim, "sh", "-c", "echo out; echo err >&2; exit 7", RANK="3")
    output, _ = running.communicate(timeout=300)

    assert running.returncode == 7
    assert read(output) == {
        (3, "start"): HERE.encode(),
        (3, "out"): b"out\n",
        (3, "err"): b"err\n",
        (3, "exit"): b"7",
    }


def test_the_ranks_of_a_pod_are_numbered_and_the_first_bad_status_counts(shim: Path) -> None:
    line = 'printf "%s %s" "$RANK" "$LOCAL_RANK"; exit $((LOCAL_RANK * 4))'
    running = started(shim, "-n", "2", "sh", "-c", line, JOB_COMPLETION_INDEX="2")
    texts = read(running.communicate(timeout=300)[0])

    assert running.returncode == 4
    assert {rank: texts[rank, "out"].strip() for rank in (4, 5)} == {4: b"4 0", 5: b"5 1"}
    assert {rank: texts[rank, "exit"] for rank in (4, 5)} == {4: b"0", 5: b"4"}


@pytest.mark.parametrize("several", [(), ("-n", "2")])
def test_sigterm_is_passed_on_and_last_words_are_kept(shim: Path, several, tmp_path: Path) -> None:
    line = (
        f'trap "echo bye; exit 5" TERM; touch {tmp_path}/ready.$RANK; while :; do sleep 0.05; done'
    )
    running = started(shim, *several, "sh", "-c", line, RANK="0")
    ranks = range(2 if several else 1)
    wait_until(lambda: all((tmp_path / f"ready.{rank}").exists() for rank in ranks))
    running.terminate()
    texts = read(running.communicate(timeout=300)[0])

    assert running.returncode == 5
    for rank in ranks:
        assert texts[rank, "out"] == b"bye\n"
        assert texts[rank, "exit"] == b"5"


def test_a_rank_that_is_killed_says_by_which_signal(shim: Path) -> None:
    running = started(shim, "sh", "-c", "kill -9 $$", RANK="0")
    texts = read(running.communicate(timeout=300)[0])

    assert texts[0, "exit"] == str(128 + signal.SIGKILL).encode()


@pytest.mark.long
def test_what_a_rank_leaves_in_the_background_is_not_waited_for(shim: Path) -> None:
    running = started(shim, "sh", "-c", "sleep 30 & echo done", RANK="0")

    assert running.wait(20) == 0
    assert running.stdout is not None
    running.stdout.close()


@pytest.mark.long
def test_a_log_that_is_read_slowly_is_whole_after_the_end_of_the_rank(shim: Path) -> None:
    running = started(shim, "sh", "-c", "seq -f %099.0f 1 1000; echo the last", RANK="0")
    time.sleep(4)  # the rank has ended, and nobody has read a byte
    texts = read(running.communicate(timeout=300)[0])

    lines = texts[0, "out"].decode().splitlines()
    assert [int(line) for line in lines[:-1]] == [*range(1, 1001)]
    assert lines[-1] == "the last"
    assert texts[0, "exit"] == b"0"


def test_a_copy_lies_on_the_volume_claim(shim: Path, tmp_path: Path) -> None:
    running = started(
        shim, "sh", "-c", "echo out; exit 2", RANK="1", RANKDECK_LOGS=str(tmp_path / "c")
    )
    running.communicate(timeout=300)
    kept = {path.name: path.read_text() for path in (tmp_path / "c" / "rank.1").iterdir()}

    start, began = kept["start"].splitlines()
    status, ended = kept["exit"].splitlines()
    assert (kept["out"], kept["err"], start, status) == ("out\n", "", HERE, "2")
    assert time.time() - 60 < int(began) <= int(ended) <= time.time()


@pytest.mark.long
@pytest.mark.parametrize("tools", ["all", "no stdbuf", "no sed"])
def test_long_lines_of_several_ranks_do_not_mix(shim: Path, tmp_path: Path, tools: str) -> None:
    env: dict[str, str] = {}
    if tools != "all":
        for name in ("sh", "sed", "awk", "mkdir", "mkfifo", "uname", "rm", "sleep"):
            if tools == f"no {name}":
                continue
            (tmp_path / name).symlink_to(shutil.which(name) or name)
        env["PATH"] = str(tmp_path)
    program = (
        'BEGIN { for (n = 0; n < 8; n++) { text = ENVIRON["RANK"];'
        " while (length(text) < 3000 * (n % 7) + n) text = text text;"
        " print n, text; fflush() } }"
    )
    running = started(shim, "-n", "4", "awk", program, **env)
    texts = read(running.communicate(timeout=300)[0])

    assert running.returncode == 0
    assert {rank for rank, _ in texts} == {0, 1, 2, 3}
    for rank in range(4):
        lines = texts[rank, "out"].decode().splitlines()
        assert [line.split()[0] for line in lines] == [str(n) for n in range(8)]
        assert {letter for line in lines for letter in line.split()[1]} == {str(rank)}
        assert max(map(len, lines)) > 20_000


@pytest.mark.long
def test_nothing_of_the_shim_is_left_after_its_end(shim: Path) -> None:
    for _ in range(3):
        assert started(shim, "-n", "40", "true").wait(60) == 0

    mine = str(shim).encode()
    wait_until(lambda: not [one for one in Path("/proc").glob("[0-9]*") if mine in words_of(one)])


def words_of(process: Path) -> list[bytes]:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
