"""The head of a job: what went wrong is whole at every size, and numbers are plots."""

import pytest
from textual.geometry import Size

from rankdeck.model.job import Job
from rankdeck.model.rank_output import Tail
from rankdeck.model.stall import Explained, Stall, share_words
from rankdeck.ui.job_figures import progress_figures, say_number
from rankdeck.ui.screens.job import JobScreen
from rankdeck.ui.screens.job_head import head_lines, instrument_lines
from rankdeck.ui.themes import ASCII, UNICODE
from rankdeck.ui.widgets.canvas import Runs
from tests.ui.support import scenes
from tests.ui.support.scenes import JOB, TRACEBACK
from tests.ui.test_screens import console, lacks, shows, text_of, until

SIZES = [(200, 50), (120, 40), (80, 24)]
LONG = (
    "a smaller batch, or fewer ranks on each of these nodes, or a model that is cut into parts; "
    "`nvidia-smi` shows who else is on that GPU, and `rankdeck inspect` where each rank is"
)


def words_of(lines: list[Runs], width: int = 120) -> str:
    """The text of the first columns of all lines, without frames and blanks at their ends."""
    texts = ("".join(text for text, _ in line)[:width].strip("│ ") for line in lines)
    return " ".join(" ".join(texts).split())


def failed(text: str = TRACEBACK) -> Job:
    stage = scenes.training()
    begun = stage.jobs.job(JOB).created
    stage.write(JOB, 5, text, "err", at=begun + 70)
    stage.tell(JOB, "node02", "exited", begun + 70.2, rank=5, code=1, signal=None)
    return stage.jobs.job(JOB)


@pytest.mark.parametrize("size", SIZES)
async def test_what_to_try_is_whole_at_every_size(size: tuple[int, int]) -> None:
    stage = scenes.hanging()
    stall = Stall(kind="rank", ranks=(6,), since=0.0, text="rank 6 is silent", explained=(Explained("one rank stands still", LONG),))  # fmt: skip
    stage.jobs.set_stalled(JOB, (stall,))
    async with console(stage, size) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "rank 6 is silent")
        screen = app.screen
        assert isinstance(screen, JobScreen)

        assert LONG in words_of(list(screen.head.lines))
        head = text_of(app).splitlines()[1 : 1 + len(screen.head.lines)]
        assert not [line for line in head if "…" in line]


async def test_below_the_list_of_jobs_no_line_is_broken_twice() -> None:
    stage = scenes.hanging()
    stall = Stall(kind="rank", ranks=(6,), since=0.0, text="rank 6 is silent", explained=(Explained("one rank stands still", LONG),))  # fmt: skip
    stage.jobs.set_stalled(JOB, (stall,))
    async with console(stage, (80, 24)) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "rank 6 is silent")
        await shows(app, pilot, "a smaller batch")
        shown = text_of(app).splitlines()
        first = next(n for n, line in enumerate(shown) if "a smaller batch" in line)
        rows = [line.strip() for line in shown[first:]]
        told = rows[: next(n for n, line in enumerate(rows) if "each rank is" in line) + 1]
        assert LONG in " ".join(told)
        assert min(map(len, told[:-1])) > 40


@pytest.mark.parametrize("who", ["", "[rank5]:", "[rank5]: ", "[default1]:", "[1,5]<stderr>:"])
def test_marks_below_a_line_of_code_are_no_evidence_whoever_wrote_them(who: str) -> None:
    text = "".join(
        f"{who}{line}\n"
        for line in (
            "Traceback (most recent call last):",
            '  File "train.py", line 3, in <module>',
            "    a = b @ c",
            "        ~~^~~",
            "        ^^^^^",
            "RuntimeError: shapes",
        )
    )
    head = words_of(head_lines(failed(text), UNICODE, Size(200, 50)))

    assert "a = b @ c" in head
    assert "RuntimeError: shapes" in head
    assert "~~" not in head
    assert "^^" not in head


def test_what_went_wrong_is_in_a_frame_of_the_width_asked_for_beside_the_plots() -> None:
    plots: list[Runs] = [[("x" * 79, "text")]] * 5
    asked: list[tuple[int, int]] = []

    def figures(room: tuple[int, int]) -> list[Runs]:
        asked.append(room)
        return plots

    lines = instrument_lines(failed(), UNICODE, Size(200, 50), None, figures)
    rows = ["".join(text for text, _ in line) for line in lines]
    boxed = [row for row in rows if row[0] in "╭│╰"]

    assert asked == [(79, len(boxed))]
    assert {row.rstrip("x ").__len__() for row in boxed} == {120}
    assert "x" * 79 in boxed[0]


def test_without_numbers_the_frame_has_the_whole_width() -> None:
    lines = instrument_lines(failed(), ASCII, Size(200, 50), None, lambda room: [])
    rows = ["".join(text for text, _ in line) for line in lines]

    assert {len(row) for row in rows if row[0] in "+|"} == {200}


def test_another_suspect_is_named() -> None:
    stage = scenes.training()
    begun = stage.jobs.job(JOB).created
    for rank, at in ((5, 70.2), (9, 70.9)):
        stage.write(JOB, rank, TRACEBACK, "err", at=begun + at - 0.1)
        node = f"node{rank // 4 + 1:02}"
        stage.tell(JOB, node, "exited", begun + at, rank=rank, code=1, signal=None)
    head = words_of(head_lines(stage.jobs.job(JOB), UNICODE, Size(200, 50)))

    assert "else rank 9 on node03: " in head


def test_each_number_of_a_job_is_a_figure_named_in_words() -> None:
    figures = progress_figures(scenes.training().jobs.job(JOB).progress)

    assert [one.title for one in figures] == ["loss", "tokens/s"]
    assert [one.newest for one in figures] == ["1.16", "11,800"]
    assert all(one.scale.foot == 0 for one in figures)
    assert say_number(123_456_789.0) == "1.2e8"
    assert say_number(-0.25) == "-0.25"
    assert progress_figures(None) == []


async def test_a_large_screen_has_plots_of_the_job_and_of_its_nodes() -> None:
    async with console(scenes.training(), (200, 50)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "─ loss ─")
        await shows(app, pilot, "─ tokens/s ─")
        await shows(app, pilot, "─ CPU ─")
        await shows(app, pilot, "─ GPU ─")
        await pilot.press("M")
        await until(pilot, lambda: "─ loss ─" not in text_of(app), "plots above a log")


async def test_each_rank_has_its_number_above_and_its_node_below() -> None:
    async with console(scenes.training(), (120, 40)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "● 0 node01 running")
        rows = text_of(app).splitlines()
        at = next(y for y, row in enumerate(rows) if row.startswith(" rank "))
        numbers, signs, nodes = rows[at : at + 3]
        assert numbers.split()[1:] == [str(rank) for rank in range(16)]
        assert [numbers[x] for x, sign in enumerate(signs) if sign == "●"] == [
            *"0123456789",
            *"012345",
        ]
        assert nodes.split() == [
            word for n in range(1, 5) for word in ("─", f"node{n:02}", nodes.split()[2])
        ]
        await pilot.click("#strip", offset=(signs.index("●", 20), 1))
        chosen = signs[: signs.index("●", 20)].count("●")
        await until(pilot, lambda: app.screen.now.rank == chosen, "not chosen")


async def test_ranks_that_do_not_fit_with_their_numbers_stand_in_blocks() -> None:
    async with console(scenes.hanging(200, 64, 8), (200, 50)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "━ ▲ 200 node26 silent")

        assert "●●●●●●●●●● ●●●●●●●●●●" in text_of(app)


async def test_a_long_line_is_wrapped_in_a_pane_that_has_empty_rows() -> None:
    stage = scenes.training(1, 1, steps=2)
    text = " ".join(f"word{n}" for n in range(60))
    stage.write(JOB, 0, text + "\n")
    async with console(stage, (80, 24)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "word59")

        assert "…" not in text_of(app)
        assert "word0 " in text_of(app)
        stage.write(JOB, 0, f"{text}\n" * 40)
        await shows(app, pilot, "…")


async def test_a_pane_whose_lines_are_old_says_how_many_seconds_it_is_behind() -> None:
    stage = scenes.training(1, 2)
    begun = stage.jobs.job(JOB).created
    stage.jobs.apply(Tail(JOB, "node01", 1, "out", 1 << 20, 9000, "newest", begun + 80))
    async with console(stage, (80, 24)) as (app, pilot):
        app.open_job(JOB)
        await shows(app, pilot, "1 node01 running  18 s behind")
        assert text_of(app).count(" behind") == 1
        await pilot.press("tab", "enter")
        await shows(app, pilot, "1 node01 running  18 s behind")
        await lacks(app, pilot, "0 node01")
        await pilot.press("M")
        await shows(app, pilot, "ranks 0-1 by time  rank 1 is 18 s behind")
        stage.jobs.apply(Tail(JOB, "node01", 0, "out", 1 << 20, 9000, "newest", begun + 90))
        await shows(app, pilot, "2 ranks up to 28 s behind")


def test_how_sure_it_is_stands_beside_who_failed_first() -> None:
    job = failed()
    first = job.first_failure

    assert first is not None
    assert first.sure is not None
    assert f"{share_words(first.sure)} sure" in words_of(head_lines(job, UNICODE, Size(200, 50)))


def test_where_it_is_undecided_the_job_says_between_whom_and_what_would_decide_it() -> None:
    stage = scenes.training()
    begun = stage.jobs.job(JOB).created
    for rank, node in ((0, "node01"), (5, "node02")):
        stage.tell(JOB, node, "exited", begun + 70.2, rank=rank, code=4, signal=None)
    head = words_of(head_lines(stage.jobs.job(JOB), UNICODE, Size(200, 50)), 200)

    assert "undecided between rank 0 on node01 and rank 5 on node02, each exit 4: nobody" in head
    assert "it could be decided by clocks" in head


def test_where_every_rank_fails_alike_the_job_says_so_and_not_how_sure_that_is() -> None:
    stage = scenes.training()
    job = stage.jobs.job(JOB)
    for rank in job.ranks:
        at = job.created + 70.2
        stage.tell(JOB, rank.node, "exited", at, rank=rank.rank, code=127, signal=None)
    head = words_of(head_lines(stage.jobs.job(JOB), UNICODE, Size(200, 50)), 200)

    assert "every rank, each exit 127: nobody is accused" in head
    assert "sure" not in head
    assert "the program was not found" in head
