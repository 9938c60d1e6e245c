"""The JSON of every verb and the words for people, from values of the model."""

import json

import pytest

from rankdeck.cli import shapes
from rankdeck.cli.jobs import cancel_proof, job_summary
from rankdeck.cli.output import _safe
from rankdeck.cli.run import job_exit_code
from rankdeck.model.cancel_report import CancelReport, RemainingProcess
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Job, RankState
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State, how_it_ended
from rankdeck.state.job_snapshot import run_exit_code
from rankdeck_agent.wire import NodePlan, ProcessPlan

PLAN = Plan(
    job="himeno-1",
    name="himeno",
    cluster="two",
    backend="ssh",
    nodes=(
        NodePlan("himeno-1", "n1", (0, 1), (ProcessPlan("mpirun", ("mpirun", "bmt")),)),
        NodePlan("himeno-1", "n2", (2, 3)),
    ),
)
FAILURE = FirstFailure(rank=2, node="n2", exit_code=3, signal=None, at=12.5, lines=("boom",))


def job(state: State = State.FAILED, failure: FirstFailure | None = FAILURE, **more: object) -> Job:
    ranks = tuple(RankState(rank=r, node="n1" if r < 2 else "n2", state=state) for r in range(4))
    values = {
        "id": "himeno-1",
        "name": "himeno",
        "cluster": "two",
        "created": 10.0,
    } | more
    return Job(plan=PLAN, state=state, ranks=ranks, first_failure=failure, **values)  # type: ignore[arg-type]


def test_a_job_has_the_documented_shape() -> None:
    shape = json.loads(json.dumps(shapes.job_shape(job())))

    assert shape["job"] == "himeno-1"
    assert shape["state"] == "failed"
    assert shape["nodes"] == ["n1", "n2"]
    assert shape["ranks"][2].keys() == {
        "rank", "node", "state", "exit_code", "signal", "started", "ended", "pid", "lines", "heard", "activity",
    }  # fmt: skip
    assert shape["first_failure"] == {
        "rank": 2, "node": "n2", "exit_code": 3, "signal": None, "at": 12.5, "lines": ["boom"], "tied": [],
        "uncertainty": 0.0, "victims": [], "explained": [],
        "what": "rank", "name": "", "evidence": [], "others": [], "settled": True, "sure": None,
        "between": [], "decides": "",
    }  # fmt: skip


def test_a_report_has_the_documented_shape() -> None:
    report = CancelReport(
        "himeno-1", State.CANCELLED, (RemainingProcess("n1", 7, "bmt"),), {"n2": "no answer"}
    )
    shape = json.loads(json.dumps(shapes.report_shape(report)))

    assert shape == {
        "job": "himeno-1",
        "state": "cancelled",
        "left": [{"node": "n1", "pid": 7, "command": "bmt"}],
        "unverified": {"n2": "no answer"},
    }
    assert "left on n1: 7 bmt" in cancel_proof(report)


def test_a_plan_is_json_with_every_command() -> None:
    shape = json.loads(json.dumps(shapes.plan_shape(PLAN)))

    assert shape["nodes"][0]["processes"][0]["argv"] == ["mpirun", "bmt"]


@pytest.mark.parametrize(
    ("state", "failure", "code"),
    [
        (State.DONE, None, 0),
        (State.FAILED, FAILURE, 3),
        (
            State.FAILED,
            FirstFailure(rank=1, node="n1", exit_code=None, signal=9, at=1.0),
            137,
        ),
        (State.FAILED, None, 1),
        # A rank that left with exit 0, and a node that went away: the job failed all the same.
        (
            State.FAILED,
            FirstFailure(rank=1, node="n1", exit_code=0, signal=None, at=1.0),
            1,
        ),
        (
            State.FAILED,
            FirstFailure(what="node", rank=None, node="n1", exit_code=None, signal=None, at=1.0),
            1,
        ),
        (State.CANCELLED, None, 130),
        (State.LOST, None, 1),
    ],
)
def test_the_exit_code_is_that_of_the_first_failure(
    state: State, failure: FirstFailure | None, code: int
) -> None:
    ended = job(state, failure, exit_code=run_exit_code(state, failure))

    assert job_exit_code(ended) == code


def test_the_summary_names_the_rank_that_failed_first() -> None:
    text = job_summary(job())

    assert "first failure: rank 2 on n2, exit 3" in text
    assert "  | boom" in text


def test_a_signal_has_its_name() -> None:
    assert how_it_ended(None, 9) == "signal 9 (SIGKILL)"


@pytest.mark.parametrize(
    "hostile",
    ["\x1b]0;title\x07", "\x1b[2J", "\x1bPq\x1b\\", "\x9b", "\r", "\x07", "\u202e"],
)
def test_nothing_a_terminal_obeys_gets_through(hostile: str) -> None:
    said = _safe(f"a{hostile}b\x1b[31mred", terminal=True, colours=True)
    seen = "<U+202E>" if hostile == "\u202e" else ""

    assert said == f"a{seen}b\x1b[31mred\x1b[0m"
    assert "\x1b" not in _safe(said, terminal=True)
