"""The witness inside a rank: it answers from a thread, and leaves the program as it was."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.witness import ANSWER_LIMIT, WitnessQuestion, list_witnesses
from rankdeck_agent.wire.inside_rank import INSIDE_FILE, INSIDE_RANK
from rankdeck_agent.wire.run_folder import INSIDE
from tests.support.pythons import AbsentError, python_of

PROGRAM = """
import sys, threading
print("own" in sys.modules, "sitecustomize" in sys.modules, flush=True)
import torch.distributed.distributed_c10d
def load_batch():
    print("waits", flush=True)
    threading.Event().wait(600)
load_batch()
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run folder whose path is longer than the address of a socket may be."""
    place = tmp_path / ("x" * 120)
    (place / INSIDE).mkdir(parents=True)
    (place / INSIDE / INSIDE_FILE).write_text(INSIDE_RANK)
    return RunFolder(place, "j", "n1")


class Rank(NamedTuple):
    """A rank that runs, with its first lines."""

    pid: int
    said: list[str]


def asked(folder: RunFolder) -> dict[int, dict]:
    """Rank -> what its witness says, of all that ever began."""
    with WitnessQuestion(list_witnesses(folder)) as question:
        return question.collect(ANSWER_LIMIT)


@contextmanager
def rank(folder: RunFolder, number: int, home: Path, **env: str) -> Iterator[Rank]:
    """A rank that has imported torch.distributed (of empty files), and waits; its first lines."""
    library = home / "library/torch/distributed"
    library.mkdir(parents=True, exist_ok=True)
    for path in (
        library.parent / "__init__.py",
        library / "__init__.py",
        library / "distributed_c10d.py",
    ):
        path.touch()
    (home / "library/own.py").touch()
    (home / "library/sitecustomize.py").write_text("import own")
    (home / "program.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, "-S" if env.pop("bare", "") else "-B", home / "program.py"],
        stdout=subprocess.PIPE, text=True,
        env={
            "PATH": os.environ["PATH"], "PYTHONPATH": f"{folder / INSIDE}:{home / 'library'}",
            "RANKDECK_WITNESS": str(folder / INSIDE / str(number)), **env,
        },
    )  # fmt: skip
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline().strip(), process.stdout.readline().strip()]
        yield Rank(process.pid, lines)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_it_says_where_the_program_is(folder: RunFolder, tmp_path: Path) -> None:
    with rank(folder, 3, tmp_path) as one:
        assert one.said[1] == "waits"
        said = asked(folder)

    assert said.keys() == {3}
    places = [(name, file) for name, file, _ in said[3]["stack"]]
    assert ("load_batch", str(tmp_path / "program.py")) in places


def test_the_sitecustomize_of_the_user_runs_all_the_same(folder: RunFolder, tmp_path: Path) -> None:
    with rank(folder, 3, tmp_path) as one:
        assert one.said[0] == "True True"


def test_a_rank_that_was_killed_or_never_began_says_nothing(
    folder: RunFolder, tmp_path: Path
) -> None:
    with rank(folder, 3, tmp_path):
        pass

    assert [*list_witnesses(folder)] == [3]
    assert asked(folder) == {}


def test_another_rank_takes_the_place_of_one_that_was_killed(
    folder: RunFolder, tmp_path: Path
) -> None:
    for _ in range(2):
        with rank(folder, 3, tmp_path):
            assert asked(folder).keys() == {3}


def test_a_stopped_rank_costs_the_others_no_answer(folder: RunFolder, tmp_path: Path) -> None:
    with rank(folder, 3, tmp_path), rank(folder, 4, tmp_path) as stopped:
        os.kill(stopped.pid, signal.SIGSTOP)
        os.waitpid(stopped.pid, os.WUNTRACED)
        said = asked(folder)
        os.kill(stopped.pid, signal.SIGCONT)

    assert said.keys() == {3}


def test_where_python_reads_no_sitecustomize_nobody_answers(
    folder: RunFolder, tmp_path: Path
) -> None:
    with rank(folder, 3, tmp_path, bare="yes") as one:
        assert one.said[0] == "False False"
        assert asked(folder) == {}


def test_the_thread_of_the_witness_has_ended_when_python_ends_which_could_crash_otherwise(
    folder: RunFolder, tmp_path: Path
) -> None:
    library = tmp_path / "library/mpi4py"
    library.mkdir(parents=True)
    (library / "__init__.py").touch()
    (library / "MPI.py").touch()
    program = """
import atexit, threading
atexit.register(lambda: print([one.name for one in threading.enumerate()]))
import mpi4py.MPI
print([one.name for one in threading.enumerate()])
"""
    env = {
        "PYTHONPATH": f"{folder / INSIDE}:{library.parent}",
        "RANKDECK_WITNESS": str(folder / INSIDE / "0"),
    }

    ran = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["['MainThread', 'rankdeck']", "['MainThread']"]


def test_a_run_folder_of_an_older_agent_has_no_witnesses(tmp_path: Path) -> None:
    assert asked(RunFolder(tmp_path, "j", "n1")) == {}


@pytest.mark.parametrize(
    ("version", "size"),
    [("2.7.1+cu126", "300"), ("2.8.0", None), ("2.13.0+cpu", None), ("odd", None)],
)
def test_only_an_old_pytorch_is_told_the_old_name_of_its_recorder_of_which_new_ones_warn(
    folder: RunFolder, tmp_path: Path, version: str, size: str | None
) -> None:
    library = tmp_path / "library/torch/distributed"
    library.mkdir(parents=True)
    (library.parent / "__init__.py").write_text(f"__version__ = {version!r}\n")
    (library / "__init__.py").touch()
    (library / "distributed_c10d.py").touch()
    program = "import os, torch.distributed.distributed_c10d; print(os.environ.get('TORCH_NCCL_TRACE_BUFFER_SIZE'))"
    paths = f"{folder / INSIDE}:{tmp_path / 'library'}"
    env = {
        "PYTHONPATH": paths,
        "RANKDECK_WITNESS": str(folder / INSIDE / "0"),
        "TORCH_FR_BUFFER_SIZE": "300",
    }

    ran = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)

    assert (ran.returncode, ran.stdout.strip()) == (0, str(size)), ran.stderr


def test_a_program_that_loads_mpi4py_first_is_told_that_name_all_the_same(
    folder: RunFolder, tmp_path: Path
) -> None:
    library = tmp_path / "library"
    for name in (
        "mpi4py/__init__",
        "mpi4py/MPI",
        "torch/distributed/__init__",
        "torch/distributed/distributed_c10d",
    ):
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / f"{name}.py").touch()
    (library / "torch/__init__.py").write_text("__version__ = '2.4.0'\n")
    program = "import os, sys, mpi4py.MPI, torch.distributed.distributed_c10d\nprint(os.environ['TORCH_NCCL_TRACE_BUFFER_SIZE'])"
    paths = f"{folder / INSIDE}:{library}"
    env = {
        "PYTHONPATH": paths,
        "RANKDECK_WITNESS": str(folder / INSIDE / "0"),
        "TORCH_FR_BUFFER_SIZE": "300",
    }

    ran = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )

    assert ran.stdout.strip() == "300"


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.8", "3.13"])
def test_programs_in_any_python_run_as_without_a_witness(
    folder: RunFolder, tmp_path: Path, version: str
) -> None:
    try:
        python = python_of(version)
    except AbsentError as error:
        pytest.skip(str(error))
    library = tmp_path / "library/mpi4py"
    library.mkdir(parents=True)
    (library / "__init__.py").touch()
    (library / "MPI.py").touch()
    env = {
        "PYTHONPATH": f"{folder / INSIDE}:{library.parent}",
        "RANKDECK_WITNESS": str(folder / INSIDE / "0"),
    }
    program = "import mpi4py.MPI, atexit, errno, json; print(errno.errorcode[2])"

    ran = subprocess.run([python, "-c", program], env=env, capture_output=True, text=True)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ENOENT\n", "")
