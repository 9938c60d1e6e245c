"""Whatever a node answers over SSH: nothing but our own errors comes
out, and nothing grows without end.
"""

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankdeck.backends.frames import FrameError
from rankdeck.backends.node_stream import NodeStream
from rankdeck.backends.remote_log import _found
from rankdeck.backends.ssh import UNKNOWN_LEFT, _concluded, _port, _take_those_inside, left_there
from rankdeck.errors import AgentError, UnreachableError
from rankdeck.images.bring import image_rows
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.json_tables import DEEPEST, parse_table
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.preflight.facts import node_facts
from rankdeck.preflight.mpi_trial import MARK, _rank_answers
from rankdeck.remote.agent import Agents
from rankdeck.remote.node_python import check_python, parse_found_python
from rankdeck.remote.shell import ProgramResult
from rankdeck.state.fleet import Fleet
from rankdeck.state.history_thread import open_history
from rankdeck.state.job_recorder import JobRecorder
from rankdeck.state.jobs import Jobs
from rankdeck_agent.wire import NodePlan
from tests.support import hostile
from tests.support.effort import effort

# Values of every kind are slow to make, most of all on a busy machine: `python
# -m benchmarks fuzz` makes more of them.
pytestmark = pytest.mark.timeout(400)
LAX = settings(deadline=None, suppress_health_check=list(HealthCheck))
PLAN = Plan(
    job="j", name="t", cluster="c", backend="ssh",
    nodes=(NodePlan("j", "n1", (0, 1)), NodePlan("j", "n2", (2, 3))), grace=1.0,
)  # fmt: skip
CLUSTER = Cluster(name="c", nodes=(Node(name="n1"), Node(name="n2")))


async def hear(*lines):
    """The record and the history of a job whose first node sent
    these lines, at once written down.
    """
    jobs = Jobs()
    jobs.add(PLAN, 1000.0)
    stream = NodeStream(PLAN.nodes[0], -1, jobs.positions_of("j"), "ssh")
    stream.watch(range(2), None)
    async with open_history(Path(":memory:")) as history:
        chronicle = JobRecorder(history, Fleet(CLUSTER), "c")
        chronicle.save(jobs.job("j"), 1000.0)
        for line in lines:
            try:
                found = stream.feed(line)
            except FrameError:
                break
            for event in found:
                jobs.apply(event)
                chronicle.take(event)
            chronicle.save(jobs.job("j"), 1000.0)
            await history.write()
        await history.write()
        kept, stored = await history.ask(lambda one: (one.events("j", PLAN), one.load("c")))
    return jobs.job("j"), kept, stored


def heard(*lines):
    """As `hear`."""
    return asyncio.run(hear(*lines))


@pytest.mark.long
@LAX
@given(st.lists(hostile.frames, max_size=12))
def test_whatever_frames_a_node_sends_the_job_is_shown_and_written_down(frames):
    job, kept, stored = heard(*(hostile.line(frame) for frame in frames))

    assert [one.id for one in stored] == ["j"]
    assert {rank.node for rank in job.ranks[2:]} == {"n2"}
    assert all(event.seq is not None and 0 <= event.seq < 1 << 53 for event in kept)


@pytest.mark.parametrize(
    "frame",
    [
        {"kind": "started", "seq": 10**30, "rank": 0, "pid": 1, "at": 1.0},
        {"kind": "started", "seq": 1 << 63, "rank": 0, "pid": 1, "at": 1.0},
        {"kind": "started", "seq": 0, "rank": 0, "host": "elsewhere", "at": 1.0},
        {"kind": "started", "seq": 0, "rank": 0, "host": ["n2"], "at": 1.0},
        {"kind": "data", "r": [1], "s": "out", "o": 0, "n": 0, "at": 1.0},
        {"kind": "tail", "r": {}, "s": [], "o": 0, "lines": 1, "last": "", "at": 1.0},
        {"kind": "\ud800", "seq": 0, "at": 1.0},
        {"kind": "trouble", "seq": 0, "text": "\ud800", "at": 1.0},
        {"kind": "ready", "seq": 0, "at": 9e11},
        {"kind": "exited", "seq": 0, "rank": 0, "code": 10**40, "at": 1.0},
    ],
)
def test_one_odd_frame_costs_nothing_but_itself(frame):
    well = {"kind": "exited", "seq": 7, "rank": 1, "code": 0, "signal": None, "at": 2.0}
    job, *_ = heard(hostile.line(frame), hostile.line(well))

    assert job.ranks[1].state is State.DONE


def test_a_node_that_sends_nonsense_is_named_once():
    odd = hostile.line({"kind": "started", "seq": "x", "rank": 0, "at": 1.0})
    job, *_ = heard(odd, odd, odd)

    assert job.troubles == ("n1: sent an event without a number: left out",)


def depth(value):
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0) if isinstance(value, dict | list) else 0


@LAX
@given(hostile.anything)
def test_what_comes_through_the_border_can_be_written_anywhere(value):
    found = parse_table(hostile.line(value))

    assert found is None or depth(found) <= DEEPEST
    json.dumps(found, ensure_ascii=False, allow_nan=False).encode()


@given(st.text(max_size=30), st.integers(-(1 << 62), 1 << 62), st.floats(-1e300, 1e300))
def test_what_an_agent_sends_comes_through_unchanged(text, whole, part):
    row = {
        "text": text.encode("utf-8", "replace").decode(),
        "n": [whole, part],
        "t": {"[": None},
    }

    assert parse_table(json.dumps(row).encode()) == row


@pytest.mark.parametrize(
    "line",
    [
        b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1e999}', b'{"a": 1' + b"0" * 30 + b"}", b"[1]", b"", b"null",
        b'{"a":' * 50 + b"1" + b"}" * 50, b"\xff", b'{"a": "\xff"}', b'{"a": "' + b"x" * (9 << 20) + b'"}',
        b"[" * 5_000_000, b'{"a":' * 1_000_000,
    ],
    ids=range(13),
)  # fmt: skip
def test_what_no_agent_sends_is_no_table(line):
    assert parse_table(line) is None


def test_ten_megabytes_in_one_string_are_refused_quickly():
    line = b'{"left": "' + b"\\u0041" * 1_700_000 + b'"}'
    result = ProgramResult(0, line, b"")

    assert effort(lambda: result.row) < 60
    assert result.row == {}


@pytest.mark.long
@LAX
@given(hostile.answers)
def test_whatever_a_verb_answers_is_an_answer_or_our_own_error(answer):
    out = hostile.line(answer)
    inspected = ProgramResult(0, out, b"").row
    try:
        left = left_there("n1", ProgramResult(0, out, b""))
    except AgentError:
        left = []

    assert all(0 <= one.pid < 1 << 31 and len(one.command) <= 500 for one in left)
    assert all(one.size >= 0 for one in image_rows(inspected.get("rows")))
    job = heard()[0]
    if isinstance(inspected.get("ranks"), list):
        assert _concluded(job, {"n1": inspected}, {}).job == "j"
    answers: dict = {}
    _take_those_inside(
        {"inside": [{**inspected, "host": "n2"}, answer, None], "missing": answer}, answers, {}
    )
    assert _concluded(job, answers, {}).job == "j"
    _found(inspected)


def test_a_node_that_names_processes_of_nobody_has_proven_nothing():
    row = {"left": [], "unknown": [{"pid": 18423, "command": "sleep 9"}, {"pid": 7}, 3]}
    answer = ProgramResult(0, json.dumps(row).encode(), b"")

    with pytest.raises(AgentError) as refused:
        left_there("n1", answer)

    assert refused.value.why == f"{UNKNOWN_LEFT}: look at 18423 `sleep 9`, 7 ``"


@LAX
@given(hostile.facts)
def test_whatever_preflight_hears_of_a_node_is_facts(facts):
    told = node_facts(parse_table(hostile.line(facts)) or {}, 1.0, 2.0)

    assert told.listen >= 0
    assert told.cores >= 0


@LAX
@given(hostile.anything)
def test_whatever_a_probe_prints_is_a_row_or_none(value):
    rows = _rank_answers({(0, "out"): MARK + hostile.line(value).decode()})

    assert all(abs(row.rank) < 1 << 53 for row in rows)


@pytest.mark.parametrize("said", [b"", b"x", b"-1", b"0", b"65536", b"9" * 5000, b"\xb2"])
def test_a_port_that_is_none_is_refused(said):
    with pytest.raises(ValueError, match="no port"):
        _port(ProgramResult(0, said, b""))


@pytest.mark.parametrize(
    "version",
    ["3.", ".", "three.nine", "3.9.1", "\u00b3.\u00b2", "9" * 5000 + ".1", "-3.9"],
)
def test_a_version_that_is_none_is_said_of_the_node(version):
    said = f"rankdeck|{version}|0|python3|||0|/x\n".encode()
    with pytest.raises(AgentError, match="version"):
        check_python("n1", parse_found_python("n1", said, b""), ())


@pytest.mark.parametrize(
    "said",
    ["rankdeck|3.11|0|python3|/x", "rankdeck|", "3.11||/x", ""],
)
def test_an_answer_without_a_path_is_said_of_the_node(said):
    with pytest.raises(AgentError, match="no usable answer"):
        parse_found_python("n1", said.encode(), b"")


def test_the_answer_is_found_among_what_the_login_prints():
    out = b'Welcome {\n{"job": "a"}\nmotd\n{"job": "b"}\n[1]\n29500\nbye 4711\n'
    answer = ProgramResult(3, out, b"motd\nrankdeck: no such job\n\n")

    assert [row["job"] for row in answer.rows] == ["a", "b"]
    assert answer.row == {"job": "b"}
    assert answer.word == "4711"
    assert answer.complaint == "no such job"
    assert ProgramResult(3, b"", b"").complaint == "exit status 3"


async def test_the_limit_of_a_call_includes_bringing_the_agent_there():
    class Deaf:
        async def open(self, *_):
            await asyncio.Event().wait()

    with pytest.raises(UnreachableError, match="n1: no answer within 0"):
        await Agents(Deaf()).call("n1", ("job", "list"), limit=0.01)
