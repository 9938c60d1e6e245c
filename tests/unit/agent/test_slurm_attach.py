"""Output of Slurm jobs that Rankdeck did not submit: where it is,
whose each line is, every byte once.
"""

import json
import os

import pytest

from rankdeck_agent import LAUNCHER
from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.schedulers.slurm import attach, job_cancel
from rankdeck_agent.schedulers.slurm.attach import OutputCopy, is_labelled, rank_of, read_at
from rankdeck_agent.schedulers.slurm.folder import write_id
from rankdeck_agent.schedulers.slurm.job_reports import output_files, shown_job

SHOWN = (
    "JobId=7 JobName={name} UserId=lab(3000) JobState=RUNNING Reason=None ExitCode=0:0 NodeList=n[1-2] NumNodes=2 NumCPUs=4 "
    "NumTasks=4 CPUs/Task=1 Command=/home/lab/a.sh WorkDir=/home/lab {middle}StdErr=/out/a b.err StdIn=/dev/null StdOut={out} "
    "Power= TresPerNode=gpu:1"
)


def shown(name: str = "x", middle: str = "", out: str = "/out/a=b.txt") -> str:
    return SHOWN.format(name=name, middle=middle, out=out) + "\n"


def test_files_and_tasks_are_told_by_scontrol() -> None:
    seen = shown_job(shown())

    assert seen is not None
    assert (seen.tasks, seen.user, seen.name) == (4, "lab", "x")
    assert output_files(shown()) == ("/out/a=b.txt", "/out/a b.err")


@pytest.mark.parametrize("out", ["/dev/null", "/out/%N.txt", "relative", "(null)", "/a\x1b[2J"])
def test_what_is_no_path_here_is_none(out: str) -> None:
    assert output_files(shown(out=out))[0] == ""


def test_a_name_does_not_name_other_files() -> None:
    lie = "x StdErr=/home/me/key StdIn=/dev/null StdOut=/home/me/key"

    assert output_files(shown(name=lie, middle=f"Comment={lie} ")) == (
        "/out/a=b.txt",
        "/out/a b.err",
    )


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"0: a", (0, b"a")),
        (b" 3: b: c", (3, b"b: c")),
        (b"4: no such rank", (LAUNCHER, b"4: no such rank")),
        (b"3:", (3, b"")),
        (b"step 3: x", (LAUNCHER, b"step 3: x")),
    ],
)
def test_a_label_is_a_rank_that_there_is(line: bytes, found: tuple[int, bytes]) -> None:
    assert rank_of(line, 4) == found


@pytest.mark.parametrize(
    ("head", "is_so"),
    [
        (b"0: a\n1: b\nx\n", True),
        (b"a\nb\n0: c\n", False),
        (b"0: a", False),
        (b"", False),
        (b"12: 1\n13: 2\n", False),
    ],
)
def test_output_is_split_where_half_of_the_lines_are_labelled(head: bytes, is_so: bool) -> None:
    assert is_labelled(head, 4) is is_so


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "run", "job", "login")
    for name in ("launcher", "rank.0", "rank.1"):
        (made.path / name).mkdir(parents=True)
    return made


def output(folder, file) -> OutputCopy:
    return OutputCopy(folder, {"attached": "7", "out": str(file), "err": str(file)})


def told(folder, rank: int) -> bytes:
    log = folder.place(rank) / "out"
    return log.read_bytes() if log.exists() else b""


def test_each_rank_gets_its_lines_once_also_from_the_next_keeper(folder, tmp_path) -> None:
    file = tmp_path / "o.txt"
    file.write_bytes(b"batch\n0: a\n1: b\n0: half")
    first = output(folder, file)
    assert first.look(runs=True) == []
    assert (told(folder, 0), told(folder, 1), told(folder, LAUNCHER)) == (
        b"a\n",
        b"b\n",
        b"batch\n",
    )

    with (folder.place(0) / "out").open("ab") as log:
        log.write(b"was copied, but not noted")
    with file.open("ab") as more:
        more.write(b" line\n1: end")
    second = output(folder, file)
    second.look(runs=True)
    assert (told(folder, 0), told(folder, 1)) == (b"a\nhalf line\n", b"b\n")

    second.finish()
    assert told(folder, 1) == b"b\nend"
    assert not (folder.place(0) / "err").exists()


def test_a_file_that_cannot_be_read_is_told_once_and_not_before_the_job_runs(
    folder, tmp_path
) -> None:
    reading = output(folder, tmp_path / "no.txt")

    assert reading.look(runs=False) == []
    (said,) = reading.look(runs=True)
    assert said == f"its output cannot be read here: {tmp_path}/no.txt: No such file or directory"
    assert reading.look(runs=True) == []


def test_a_pipe_in_the_place_of_a_file_holds_nobody(folder, tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OSError, match="no plain file"):
        read_at(str(tmp_path / "pipe"), 0, 1)
    assert "no plain file" in output(folder, tmp_path / "pipe").look(runs=True)[0]


def test_of_a_huge_file_the_first_part_is_copied_and_that_is_said(
    folder, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(attach, "MOST", 10)
    file = tmp_path / "o.txt"
    file.write_bytes(b"0: abc\n1: defghi\n")
    reading = output(folder, file)

    said = reading.look(runs=True) + reading.finish()
    assert len(said) == 1
    assert "has all" in said[0]
    assert told(folder, 0) + told(folder, 1) == b"abc\n"


def test_a_note_that_is_none_is_not_believed(folder, tmp_path) -> None:
    (folder / "copied.json").write_text(json.dumps({"at": {"out": "x", "no": 7}, "sizes": []}))
    file = tmp_path / "o.txt"
    file.write_bytes(b"0: a\n")
    output(folder, file).look(runs=True)

    assert told(folder, 0) == b"a\n"


@pytest.mark.parametrize("end", ["removed", "a folder"])
def test_output_that_can_no_longer_be_read_is_named_once_and_its_job_ends(
    folder, tmp_path, end: str
) -> None:
    file = tmp_path / "o.txt"
    file.write_bytes(b"0: a\n")
    copy = output(folder, file)
    copy.look(runs=True)
    file.unlink()
    if end == "a folder":
        file.mkdir()

    (said,) = copy.finish()

    assert said.startswith(f"its output cannot be read here: {file}: ")
    assert told(folder, 0) == b"a\n"


def attached_job(folder: RunFolder, path, scancel: str) -> None:
    """A job of somebody else, and a `scancel` that is this shell script."""
    (folder / "slurm.json").write_text('{"attached": "7"}')
    (folder / "events").touch()
    program = path / "scancel"
    program.write_text(f"#!/bin/sh\n{scancel}\n")
    program.chmod(0o755)
    write_id(folder, "7", f"{path}:/usr/bin:/bin")


def test_a_job_of_somebody_else_that_slurm_does_not_end_for_us_says_so_in_a_field(
    folder, tmp_path
) -> None:
    attached_job(folder, tmp_path, "echo 'scancel: error: Access/permission denied' >&2; exit 1")

    answer = job_cancel.cancel_slurm_job(folder, 1.0, "user")
    (left,) = answer["left"]
    assert left["refused"] is True
    assert left["command"].startswith("Slurm ends job 7 for its owner")


def test_only_an_operator_ends_a_job_of_somebody_else(folder, tmp_path) -> None:
    attached_job(folder, tmp_path, "exit 0")

    (left,) = job_cancel.cancel_slurm_job(folder, 1.0, "abort")["left"]
    assert left["refused"] is True
    assert "was not submitted here" in left["command"]
