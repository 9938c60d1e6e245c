"""Every job comes out of the history as it went in, whatever is in
it and whichever version wrote it.
"""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankdeck.model.job import Countdown, Job, Progress, RankState
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.model.stall import Explained
from rankdeck.state.history import History
from rankdeck.state.jobs import Jobs
from rankdeck.values import field_names, replace
from rankdeck_agent.wire import NodeFile, NodePlan, ProcessPlan
from tests.unit.test_history import JOB, PLAN

NUMBERS = st.floats(allow_nan=False)
st.register_type_strategy(float, NUMBERS)
UNSAVED = {"countdown", "clock"}
"""True of one console at one moment only."""


def some(each: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(each, max_size=3).map(tuple)


WORDS = st.text(max_size=9)
PROCESSES = st.builds(
    ProcessPlan, name=WORDS, argv=some(WORDS), env=st.dictionaries(WORDS, WORDS, max_size=2),
    rank=st.none() | st.integers(0, 9),
)  # fmt: skip
FILES = st.builds(NodeFile, path=WORDS, text=WORDS, mode=st.integers(0, 0o777))


def plans(job: str):
    nodes = st.builds(
        NodePlan, job=st.just(job), node=st.just("n1"), ranks=some(st.integers(0, 9)),
        processes=some(PROCESSES), files=some(FILES), grace=NUMBERS, elsewhere=st.booleans(),
    )  # fmt: skip
    spec = st.none() | st.builds(JobSpec)
    return st.builds(
        Plan,
        job=st.just(job),
        cluster=st.just("c"),
        nodes=st.tuples(nodes),
        spec=spec,
    )


JOBS = plans("j-1").flatmap(
    lambda plan: st.builds(
        Job,
        id=st.just(plan.job),
        cluster=st.just("c"),
        plan=st.just(plan),
        countdown=st.none(),
        clock=st.none(),
        progress=st.none() | st.builds(Progress),
        ranks=st.lists(
            st.builds(RankState, node=st.just("n1")), unique_by=lambda rank: rank.rank
        ).map(lambda ranks: tuple(sorted(ranks, key=lambda rank: rank.rank))),
    )
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(job=JOBS)
def test_every_field_of_a_job_survives_the_history(job: Job) -> None:
    with History(Path(":memory:")) as history:
        history.save(job)

        assert history.load("c") == (job,)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(job=JOBS.filter(lambda job: job.state.final))
def test_a_job_that_has_ended_is_shown_after_reopening_as_it_was_kept(job: Job) -> None:
    jobs = Jobs()

    assert jobs.restore(job) == job


def test_only_what_belongs_to_the_moment_is_not_kept(tmp_path: Path) -> None:
    job = replace(JOB, countdown=Countdown(why="why", deadline=5.0), clock=7.0)
    with History(tmp_path / "history.db") as history:
        history.save(job)
        (kept,) = history.load("c")

    differing = {f for f in field_names(Job) if getattr(job, f) != getattr(kept, f)}
    assert differing == UNSAVED


def rewrite(path: Path, change) -> None:
    """Change the plan and the record of j-1 as another version would have written them."""
    with sqlite3.connect(path) as database:
        plan, record = database.execute("SELECT plan, record FROM job").fetchone()
        plan, record = json.loads(plan), json.loads(record)
        change(plan, record)
        database.execute(
            "UPDATE job SET plan = ?, record = ?",
            (json.dumps(plan), json.dumps(record)),
        )
    database.close()


def add_everywhere(plan: dict[str, Any], record: dict[str, Any]) -> None:
    """Put a field nobody knows into every value of the model."""
    first, node = record["first_failure"], plan["nodes"][0]
    values = [plan, plan["abort"], node, *node["processes"], *node["files"]]
    values += [record, first, *first["explained"], *record["ranks"]]
    for value in values:
        value["of_a_later_version"] = [1, {"a": None}]


def test_fields_of_a_later_version_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    first = replace(JOB.first_failure, explained=(Explained("a", "b", "c"),))
    job = replace(JOB, first_failure=first)
    with History(path) as history:
        history.save(job)
    rewrite(path, add_everywhere)
    with History(path) as history:
        assert history.load("c") == (job,)


def test_fields_that_an_older_version_did_not_know_have_their_defaults(
    tmp_path: Path,
) -> None:
    path = tmp_path / "history.db"
    with History(path) as history:
        history.save(JOB)

    def age(plan: dict[str, Any], record: dict[str, Any]) -> None:
        for name in ("explained", "stalled", "progress", "marks", "node_notes"):
            record.pop(name)
        for name in ("uncertainty", "victims", "explained"):
            record["first_failure"].pop(name)
        for name in ("heard", "lines"):
            record["ranks"][0].pop(name)
        plan.pop("spec")

    rewrite(path, age)
    with History(path) as history:
        assert history.load("c") == (JOB,)


@pytest.mark.parametrize(
    "record",
    [
        "nothing",
        "[]",
        "{}",
        '{"name": 7}',
        "[" * 100_000,
        '{"name": "j", "state": "asleep", "ranks": []}',
        '{"name": "j", "state": "done", "ranks": [{"rank": 0, "node": "elsewhere"}]}',
    ],
)
def test_a_bad_row_is_left_out_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, record: str
) -> None:
    path = tmp_path / "history.db"
    with History(path) as history:
        history.save(JOB)
        history.save(replace(JOB, id="j-2", plan=replace(PLAN, job="j-2")))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE job SET record = ? WHERE id = 'j-2'", (record,))
    database.close()
    with History(path) as history:
        found = [[job.id for job in history.load("c")] for _ in range(2)]

    assert found == [["j-1"], ["j-1"]]
    assert [r.getMessage()[:30] for r in caplog.records] == ["job j-2 in the history cannot "]


@pytest.mark.timeout(400)
def test_a_saved_job_whose_pattern_backtracks_is_shown_as_any_other(
    tmp_path: Path,
) -> None:
    spec = JobSpec(name="x", launch=Launch.PLAIN, command=("a",), progress={"loss": r"(a+)+\1$"})
    running = replace(JOB, state=State.RUNNING, ended=None)
    with History(tmp_path / "h") as history:
        history.save(replace(running, plan=replace(PLAN, spec=spec)))
        (saved,) = history.load("c")
    jobs = Jobs()

    jobs.restore(saved)
    jobs.restore(saved)

    said = [text for text in jobs.job(saved.id).troubles if "pattern" in text]
    assert [text[:48] for text in said] == ["progress.loss is ignored: its pattern refers bac"]
