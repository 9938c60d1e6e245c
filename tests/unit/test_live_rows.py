"""Programs that draw several progress bars anew leave no garbage in the lines of a rank."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress

from rankdeck.model.rank_output import Chunk
from rankdeck.state.lines import RankLog


def fed(data: bytes, cuts: list[int], log: RankLog | None = None) -> RankLog:
    """A log that got these bytes in pieces, as they come from a terminal."""
    log = log or RankLog(0)
    data, at = data.replace(b"\n", b"\r\n"), 0
    for cut in [*cuts, len(data)]:
        piece = data[at : at + max(cut, 1)]
        if piece:
            log.add(Chunk("j", "n1", 0, "out", log.read.at()["out"], 1.0 + at, piece))
        at += len(piece)
    return log


def texts(log: RankLog) -> list[str]:
    return [line.text.rstrip() for line in log.lines]


def rich_bars(rounds: int, *, words: bool) -> bytes:
    """What Rich writes for three tasks, with a line of text above them now and then."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60, color_system=None)
    with Progress(console=console, auto_refresh=False) as progress:
        tasks = [progress.add_task(f"task{n}", total=rounds) for n in range(3)]
        for step in range(rounds):
            for task in tasks:
                progress.advance(task)
            progress.refresh()
            if words:
                console.print(f"text {step}")
    console.print("after\nend")
    return out.getvalue().encode()


def tqdm_bars(steps: int) -> bytes:
    """What tqdm writes for three bars with `position=0, 1, 2`."""
    data = b""
    for step in range(steps + 1):
        for place in range(3):
            text = f"bar{place}: {step * 100 // steps:3}%|###| {step}/{steps}".encode()
            data += b"\n" * place + b"\r" + text + b"\x1b[A" * place
    return data


RICH = rich_bars(5, words=True)


@given(st.lists(st.integers(1, 60), max_size=40))
def test_bars_of_rich_are_lines_only_when_they_are_done(cuts: list[int]) -> None:
    log = fed(RICH, cuts)
    lines = texts(log)

    assert [line for line in lines if line.startswith("text")] == [f"text {n}" for n in range(5)]
    assert [line[:5] for line in lines[-5:]] == ["task0", "task1", "task2", "after", "end"]
    assert all("100%" in line for line in lines if line.startswith("task"))
    assert len(lines) == 5 + 3 + 2
    assert log.live == []


def test_while_they_run_all_bars_are_live_rows() -> None:
    data = rich_bars(4, words=False)
    log = fed(data[: data.rindex(b"\x1b[?25h") - 1], [97] * 50)

    assert texts(log) == []
    assert [line.text[:5] for line in log.live] == ["task0", "task1", "task2"]
    assert [line.text for line in log.bars] == [line.text for line in log.live]


def test_bars_of_tqdm_with_positions_stay_three_rows() -> None:
    log = fed(tqdm_bars(50), [4096] * 3)

    assert [line.text.strip() for line in log.live] == [
        f"bar{n}: 100%|###| 50/50" for n in range(3)
    ]
    assert len(texts(log)) <= 1
    log = fed(b"\n\n\nepoch 2\nloss 1\nloss 2\nloss 3\nloss 4\n", [], log)
    assert texts(log)[-5:] == ["epoch 2", "loss 1", "loss 2", "loss 3", "loss 4"]
    assert log.live == []


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=12))
def test_any_bytes_among_them_do_no_harm(data: bytes, cuts: list[int]) -> None:
    log = fed(b"one\n\x1b[A" + data + b"\x1b[?25h\x1b[3A\n" * 3, cuts)

    assert all("\x1b" not in line.text.replace("\x1b[", "") for line in log.lines)
    assert log.read.at()["out"] > 0
    offsets = [line.offset for line in log.lines]
    assert all(offset >= 0 for offset in offsets)


def test_hours_of_bars_need_no_memory() -> None:
    log = RankLog(0)
    frame = b"\x1b[A\r\x1b[2Ka %d\r\n\x1b[2Kb %d"
    log.add(Chunk("j", "n1", 0, "out", 0, 1.0, b"\x1b[?25la 0\r\nb 0"))
    for step in range(5000):
        data = frame % (step, step)
        log.add(Chunk("j", "n1", 0, "out", log.read.at()["out"], 1.0, data))

    assert log.total == 0
    assert [line.text for line in log.live] == ["a 4999", "b 4999"]
