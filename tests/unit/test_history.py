"""Jobs are remembered, whatever happens to the file or the process."""

import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.health import Ack, Occurrence
from rankdeck.model.job import Job, Progress, RankState
from rankdeck.model.job_spec import Abort, Container, JobSpec, Launch, MpiOptions
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.model.stall import Explained
from rankdeck.state.history import History
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import NodeFile, NodePlan, ProcessPlan
from tests.support.node_events import node_event

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
    ranks=(RankState(rank=0, node="n1", state=State.FAILED, exit_code=3, started=1.0, ended=2.0),),
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
    notes=("n1: a sentence",),
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
    assert "the old one is history.db.old1" in caplog.text


def test_a_file_of_a_newer_rankdeck_is_read_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with History(path) as history:
        history.save(JOB)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with History(path) as history:
        history.save(replace(JOB, id="j-2", plan=replace(PLAN, job="j-2")))

        assert history.load("c") == (JOB,)
        assert "a newer Rankdeck has written it, version 99" in history.state.trouble
    assert not (tmp_path / "history.db.old1").exists()


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
        assert history.state.unread == "1 jobs in the history cannot be read: j-2"


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


def test_what_was_concluded_and_the_job_file_come_back(tmp_path: Path) -> None:
    spec = JobSpec(
        name="j",
        launch=Launch.MPI,
        command=("a", "b c"),
        on=("n1",),
        env={"A": "1"},
        container=Container(image="x.sif", mounts=("/a:/b",)),
        mpi=MpiOptions(args=("--x",)),
        progress={"step": r"s=(\d+)"},
    )
    progress = Progress(
        step=3,
        steps=9,
        values={"loss": 2.5},
        series={"loss": (3.0, 2.5)},
        rank=0,
        at=2.0,
    )
    first = replace(
        JOB.first_failure,
        explained=(Explained("a", "b", "c"),),
        victims=(1,),
        uncertainty=0.01,
    )
    job = replace(
        JOB,
        plan=replace(PLAN, spec=spec),
        progress=progress,
        first_failure=first,
        marks={"ready": 11.0},
    )
    with History(tmp_path / "history.db") as history:
        history.save(job)
    with History(tmp_path / "history.db") as history:
        assert history.load("c") == (job,)


def test_events_and_health_are_kept_each_once_and_by_time(tmp_path: Path) -> None:
    two = replace(PLAN, nodes=(NODE, replace(NODE, node="n2", ranks=(1,))))
    late = node_event("j-1", "n1", "exited", 5.0, seq=1, rank=0)
    early = node_event("j-1", "n2", "ready", 4.0, seq=0)
    with History(tmp_path / "history.db") as history:
        history.add_events([late, early])
        history.add_events([late])
        history.add_health("j-1", 6.0, {"nodes": {"n1": {"level": "ok"}}})
    with History(tmp_path / "history.db") as history:
        assert history.events("j-1", two) == (early, late)
        assert history.health("j-1") == ({"at": 6.0, "nodes": {"n1": {"level": "ok"}}},)
        assert history.events("j-2", two) == ()


def test_jobs_that_ended_long_ago_are_forgotten_with_all_of_theirs(tmp_path, monkeypatch):
    monkeypatch.setattr("rankdeck.state.history.KEEP", 3)
    event = node_event("", "n1", "ready", 1.0, seq=0)
    with History(tmp_path / "h") as history:
        for number in range(6):
            state = State.RUNNING if number == 0 else State.DONE
            name = f"j-{number}"
            plan = replace(PLAN, job=name)
            history.add_events([replace(event, job=name)])
            history.save(replace(JOB, id=name, plan=plan, state=state, created=float(number)))
            history.add_health(name, 1.0, {"turn": "x"})

        history.prune("c")

        left = [name for name in map("j-{}".format, range(6)) if history.events(name, PLAN)]
        health = [name for name in map("j-{}".format, range(6)) if history.health(name)]
    assert left == health == ["j-0", "j-3", "j-4", "j-5"]


def test_the_oldest_jobs_lose_their_events_first_but_never_the_newest(tmp_path, monkeypatch):
    monkeypatch.setattr("rankdeck.state.history.KEEP_EVENTS", 5)
    with History(tmp_path / "h") as history:
        for number in range(3):
            name = f"j-{number}"
            rows = [node_event(name, "n1", "ready", 1.0, seq=i) for i in range(4)]
            history.add_events(rows)
            history.save(replace(JOB, id=name, plan=replace(PLAN, job=name), created=float(number)))

        history.prune("c")

        assert [len(history.events(f"j-{n}", PLAN)) for n in range(3)] == [0, 0, 4]


def test_pictures_of_health_are_bounded_the_newest_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("rankdeck.state.history.KEEP_HEALTH", 5)
    with History(tmp_path / "h") as history:
        for at in range(12):
            history.add_health("j-1", float(at), {})

        assert [one["at"] for one in history.health("j-1")] == [
            7.0,
            8.0,
            9.0,
            10.0,
            11.0,
        ]


def test_what_happened_on_nodes_is_bounded_by_count(tmp_path, monkeypatch):
    monkeypatch.setattr("rankdeck.state.node_event_log.KEEP", 10)
    now = time.time()
    with History(tmp_path / "h") as history:
        log = history.nodes_of("c")
        log.add([Occurrence(now + i, "n", "event", Level.BAD, "a", str(i), "x") for i in range(30)])

        assert [one.device for one in log.recent(99)] == [str(i) for i in range(20, 30)]


@pytest.mark.parametrize("days", [-400, -1, 1, 400])
def test_a_wrong_clock_deletes_nothing(tmp_path, days):
    now = time.time()
    wrong = now + days * 86400.0
    with History(tmp_path / "h") as history:
        log = history.nodes_of("c")
        log.add([Occurrence(now - 5, "n", "event", Level.BAD, "a", "", "before")])
        log.acknowledge(Ack("n", "a", now + 100 * 86400, "me", "why", "", Level.BAD))

        log.forget_old_acks()
        assert bool(log.acks(wrong)) == (days < 100)
        log.add([Occurrence(wrong, "n", "event", Level.BAD, "a", "", "meanwhile")])
        log.add([Occurrence(now + 5, "n", "event", Level.BAD, "a", "", "after")])

        assert [one.text for one in log.recent(9)] == ["before", "meanwhile", "after"]
        assert [ack.node for ack in log.acks(now)] == ["n"]


def test_a_node_that_floods_has_a_share_and_the_newest_of_it_stay(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("rankdeck.state.history.FIRST_BYTES", 2000)
    monkeypatch.setattr("rankdeck.state.history.NEWEST_EVENTS", 5)
    flood = [node_event("j-1", "n1", "trouble", 1.0, seq=i, text="x" * 50) for i in range(1000)]
    with History(tmp_path / "h") as history:
        history.save(replace(JOB, state=State.RUNNING))
        for begin in range(0, 1000, 10):
            assert history.add_events(flood[begin : begin + 10])
        running = [event.seq for event in history.events("j-1", PLAN)]
        history.save(JOB)
        ended = [event.seq for event in history.events("j-1", PLAN)]

    assert running == list(range(len(running)))
    assert 10 < len(running) < 100
    assert ended == [*running, *range(995, 1000)]
    assert caplog.text.count("sends more events than are kept") == 1


def test_a_file_of_which_most_is_not_used_becomes_small_again(tmp_path, monkeypatch):
    monkeypatch.setattr("rankdeck.state.history._LOOSE_BYTES", 1 << 16)
    monkeypatch.setattr("rankdeck.state.history.MOST_BYTES", 1 << 20)
    path = tmp_path / "h"
    with History(path) as history:
        for number in range(40):
            name = f"j-{number}"
            text = "x" * 900
            history.add_events(
                [node_event(name, "n1", "trouble", 1.0, seq=i, text=text) for i in range(100)]
            )
            history.save(replace(JOB, id=name, plan=replace(PLAN, job=name), created=float(number)))
    before = path.stat().st_size
    with History(path) as history:
        history.prune("c")
        kept = [job.id for job in history.load("c")]
    after = path.stat().st_size

    assert kept[0] == "j-39"
    assert 1 < len(kept) < 40
    assert after < 2 * (1 << 20) < before
