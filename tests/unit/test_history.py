"""Jobs are remembered, whatever happens to the file or the process."""

import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rankdeck.model.job import Abort, FirstFailure, Job, Plan, RankState, State
from rankdeck.state.history import History
from rankdeck_agent.wire import NodeFile, NodePlan, ProcessPlan

NODE = NodePlan(
    "j-1",
    "n1",
    (0,),
    processes=(ProcessPlan("rank 0", ("a", "b c"), {"K": "v"}, "/w", 0),),
    files=(NodeFile("f", "text\n", 0o755),),
)
PLAN = Plan(
    job="j-1",
    name="j",
    cluster="c",
    backend="ssh",
    nodes=(NODE,),
    abort=Abort(countdown=3),
)
JOB = Job(
    id="j-1",
    name="j",
    cluster="c",
    plan=PLAN,
    state=State.FAILED,
    ranks=(
        RankState(
            rank=0, node="n1", state=State.FAILED, exit_code=3, started=1.0, ended=2.0
        ),
    ),
    created=10.0,
    ended=2.0,
    exit_code=3,
    first_failure=FirstFailure(
        rank=0,
        node="n1",
        exit_code=3,
        signal=None,
        at=2.0,
        lines=("last", "words"),
    ),
    troubles=("n1: a sentence",),
)


def test_a_job_comes_back_as_it_was(tmp_path: Path) -> None:
    with History(tmp_path / "history.db") as history:
        history.save(JOB)
    with History(tmp_path / "history.db") as history:
        assert history.load("c") == (JOB,)
        assert history.load("other") == ()


def test_the_newest_state_wins_and_the_newest_job_is_first(tmp_path: Path) -> None:
    later = replace(JOB, id="j-2", plan=replace(PLAN, job="j-2"), created=20.0)
    with History(tmp_path / "history.db") as history:
        history.save(replace(JOB, state=State.RUNNING))
        history.save(later)
        history.save(JOB)

        assert history.load("c") == (later, JOB)


def test_a_broken_file_is_set_aside_not_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"this is no database" * 100)
    with History(path) as history:
        history.save(JOB)

        assert history.load("c") == (JOB,)
    assert (tmp_path / "history.db.old1").read_bytes().startswith(b"this is no")
    assert "moved to history.db.old1" in caplog.text


def test_a_file_of_a_later_version_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with History(path) as history:
        assert history.load("c") == ()
    assert (tmp_path / "history.db.old1").exists()


def test_a_row_that_makes_no_sense_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with History(path) as history:
        history.save(JOB)
        history.save(replace(JOB, id="j-2", plan=replace(PLAN, job="j-2")))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE job SET record = '{\"ranks\": 7}' WHERE id = 'j-2'")
    database.close()
    with History(path) as history:
        assert [job.id for job in history.load("c")] == ["j-1"]


def test_what_was_saved_survives_a_kill(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; sys.path[:0] = sys.argv[2:];"
        "from rankdeck.state.history import History;"
        "from tests.unit.test_history import JOB;"
        "History(Path(sys.argv[1])).save(JOB); os.kill(os.getpid(), 9)"
    )
    path = tmp_path / "history.db"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            str(path),
            *(p for p in sys.path if p),
            str(Path.cwd()),
        ],
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    with History(path) as history:
        assert history.load("c") == (JOB,)
