"""The last words of a rank: both streams by time, the exception kept,
traces of C++ left out, all in bounds.
"""

import os
from pathlib import Path

import pytest

from rankdeck_agent.job.last_words import LAUNCHER_BOUND, RANK, STOPPED, read_last_words

TRACEBACK = b"""Traceback (most recent call last):
  File "train.py", line 9, in <module>
    main()
    ~~~~^^
RuntimeError: CUDA error: out of memory
"""


def write(place: Path, name: str, *pieces: tuple[float, bytes]) -> None:
    """A log and its index, each piece as read at its time."""
    with (place / name).open("ab") as log, (place / f"{name}.idx").open("ab") as index:
        for at, data in pieces:
            index.write(b"%d %.3f\n" % (log.tell(), at))
            log.write(data)


def test_both_streams_are_told_together_in_the_order_of_time(tmp_path: Path) -> None:
    write(tmp_path, "out", (1, b"one\n"), (3, b"three\n"))
    write(tmp_path, "err", (2, b"two\n"), (4, b"four"))

    assert read_last_words(tmp_path, RANK) == ["one", "two", "three", "four"]


def test_of_what_was_read_at_once_stderr_is_told_last(tmp_path: Path) -> None:
    write(tmp_path, "err", (1, b"error\n"))
    write(tmp_path, "out", (1, b"step\n"))

    assert read_last_words(tmp_path, RANK) == ["step", "error"]


def test_a_line_counts_from_when_it_was_whole(tmp_path: Path) -> None:
    write(tmp_path, "err", (1, b"10%\r"), (5, b"20%\n"))
    write(tmp_path, "out", (3, b"between\n"))

    assert read_last_words(tmp_path, RANK) == ["between", "20%"]


@pytest.mark.parametrize("mark", [b"", b"[rank0]: ", b"[default0]:", b" 50%|#####    |"])
def test_an_exception_stays_however_much_comes_after_it(tmp_path: Path, mark: bytes) -> None:
    every = not mark.endswith(b"|")  # a bar that was not ended stands before the first line only
    lines = TRACEBACK.splitlines(keepends=True)
    text = b"".join((mark if every or i == 0 else b"") + x for i, x in enumerate(lines))
    write(tmp_path, "err", (1, text), (2, b"warning: leaked\n" * 300))

    said = read_last_words(tmp_path, RANK)

    assert said[0].endswith("RuntimeError: CUDA error: out of memory")
    assert said[1:] == ["warning: leaked"] * 39


def test_the_exceptions_of_a_chain_are_all_told(tmp_path: Path) -> None:
    second = TRACEBACK.replace(b"RuntimeError: CUDA", b"torch.DistError: NCCL")
    between = b"\nDuring handling of the above exception, another exception occurred:\n\n"
    write(tmp_path, "err", (1, TRACEBACK + between + second), (2, b"x\n" * 100))

    assert read_last_words(tmp_path, RANK)[:3] == [
        "RuntimeError: CUDA error: out of memory",
        "During handling of the above exception, another exception occurred:",
        "torch.DistError: NCCL error: out of memory",
    ]


@pytest.mark.parametrize(
    "frame",
    [
        b"frame #12: c10d::ProcessGroupNCCL::run() + 0x1d8 (0x7f12 in /usr/lib/libtorch_cuda.so)",
        b"[rank3]: frame #0: c10::Error::Error(c10::SourceLocation) + 0x96 (0x7f0 in libc10.so)",
        b"[n1:04242] [ 3] /lib/x86_64-linux-gnu/libc.so.6(+0x3c050)[0x7f2ff0a5a050]",
        b" 7  /opt/ucx/lib/libucs.so.0(ucs_handle_error+0x2e4) [0x7f2ff0a5a050]",
        b"    @     0x7f2ff0a5a050 (unknown)",
        b"    #3 0x4f2ff0 in main /src/a.c:3",
        b"vasp_std           00000000004D1A2E  Unknown               Unknown  Unknown",
        b"\t/src/main.go:12 +0x1d",
        b'  File "/opt/lib/pxla.py", line 1298 in __call__',
    ],
)
def test_a_trace_of_functions_does_not_push_out_the_message_above_it(
    tmp_path: Path, frame: bytes
) -> None:
    message = b"Watchdog caught collective operation timeout\n"
    write(tmp_path, "err", (1, message + (frame + b"\n") * 200 + b"aborting\n"))

    assert read_last_words(tmp_path, RANK) == [message.decode().strip(), "aborting"]


@pytest.mark.parametrize("bound", [RANK, LAUNCHER_BOUND, STOPPED])
def test_no_more_is_told_than_may_be(tmp_path: Path, bound: object) -> None:
    write(tmp_path, "out", (1, ("é" * 3000 + "\n").encode() * 200))
    write(tmp_path, "err", (2, TRACEBACK + b"y" * 90_000 + b"\n"), (3, b"line\n" * 500))

    said = read_last_words(tmp_path, bound)

    assert 0 < len(said) <= bound.lines
    assert sum(len(line.encode()) for line in said) <= bound.size
    assert max(map(len, said)) <= 500


def test_lines_are_free_of_what_commands_a_terminal(tmp_path: Path) -> None:
    evil = b"\x1b[31;1mERROR\x1b[0m \x1b]0;title\x07now\x00\x9b\xe2\x80\xaex\n  indented\tso\n"
    write(tmp_path, "err", (1, evil))

    said = read_last_words(tmp_path, RANK)

    assert said[0].startswith("ERROR now")
    assert said[1] == "  indented  so"
    assert "".join(said).isprintable()


def test_an_index_that_is_torn_or_missing_costs_only_the_order(tmp_path: Path) -> None:
    write(tmp_path, "out", (1, b"one\n"))
    (tmp_path / "out.idx").write_bytes(b"0 x\n\xff\n7")
    (tmp_path / "err").write_bytes(b"two\n")

    assert sorted(read_last_words(tmp_path, RANK)) == ["one", "two"]


def test_of_a_long_log_only_the_end_is_read(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as log:
        os.truncate(log.fileno(), 1 << 40)
        log.seek(1 << 40)
        log.write(b"\nthe end\n")

    assert read_last_words(tmp_path, RANK)[-1] == "the end"


def test_a_rank_that_wrote_nothing_said_nothing(tmp_path: Path) -> None:
    assert read_last_words(tmp_path, RANK) == []
