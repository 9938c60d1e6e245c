"""Who may say what of a job: every kind of event from every origin, and
sequences that a hostile node sends.
"""

import json
import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankdeck.backends.frames import FrameError
from rankdeck.backends.node_stream import NodeStream
from rankdeck.model.cancel_report import CancelReport
from rankdeck.model.job import Job
from rankdeck.model.plan import Plan
from rankdeck.model.rank import State
from rankdeck.state.jobs import Jobs
from rankdeck.values import replace
from rankdeck_agent import values
from rankdeck_agent.values import list_fields
from rankdeck_agent.wire import NodePlan, ProcessPlan
from rankdeck_agent.wire.job_events import (
    CLASS_OF,
    MAY_SAY,
    EventError,
    Origin,
    Part,
    ProgramEnd,
    RankExited,
    as_row,
    may_say,
    origin_of,
    parse_event,
)

NODES = ("n0", "n1", "n2")
PLAN = Plan(
    job="j-1",
    name="j",
    cluster="c",
    backend="ssh",
    nodes=tuple(
        NodePlan(
            "j-1",
            node,
            (2 * at, 2 * at + 1),
            tuple(ProcessPlan(f"rank {rank}", ("a",), rank=rank) for rank in (2 * at, 2 * at + 1)),
        )
        for at, node in enumerate(NODES)
    ),
)
RANKS = tuple(rank for node in PLAN.nodes for rank in node.ranks)

SUPERVISOR = {"ready", "started", "exited", "process", "ended", "trouble", "space", "gone", "refused", "cancel", "closed",
              "activity", "now", "unknown", "data", "tail"}  # fmt: skip
ORIGINS = {
    (Part.SUPERVISOR, "ssh"): SUPERVISOR | {"spawn", "answered"},
    (Part.SUPERVISOR, "slurm"): SUPERVISOR | {"spawn", "answered"},
    (Part.KEEPER, "slurm"): SUPERVISOR | {"slurm", "attempt", "task"},
    (Part.KEEPER, "kubernetes"): SUPERVISOR | {"again", "waiting"},
    (Part.KEEPER, "ssh"): SUPERVISOR,
    (Part.KEEPER, "a-plugin"): SUPERVISOR,
    (Part.RANK, "ssh"): {"started", "exited", "spawn"},
    (Part.RANK, "slurm"): {"started", "exited", "spawn"},
    (Part.BROWSE, "ssh"): {"data"},
    (Part.BROWSE, "kubernetes"): {"data"},
}
"""(part, backend) -> what it may say: written here by hand, not read from the code."""
NEEDED = {"rank": 1, "id": "7", "number": 1}
"""Fields without which there is no event of a kind."""


def row(kind, **more):
    made = CLASS_OF[kind]
    needed = {
        name: NEEDED[name]
        for name, one in list_fields(made).items()
        if one.default is values.NEEDED
    }
    return {"seq": 3, "at": 5.0, "kind": kind, **needed, **more}


@pytest.mark.parametrize(("part", "backend"), ORIGINS)
@pytest.mark.parametrize("kind", sorted(CLASS_OF))
def test_each_kind_is_taken_from_those_who_may_say_it_and_from_nobody_else(kind, part, backend):
    origin = Origin("n0", part, backend, (0, 1))

    assert may_say(part, backend, kind) is (kind in ORIGINS[part, backend])
    if kind in ORIGINS[part, backend]:
        event = parse_event(row(kind), origin)
        assert kind == event.body.KIND
        assert parse_event({"seq": 3, "at": 5.0, **as_row(event.body)}, origin) == event
    else:
        with pytest.raises(EventError, match=f"`{kind}`, which the {part.value} of a job on"):
            parse_event(row(kind), origin)


def test_every_kind_has_somebody_who_may_say_it():
    said = frozenset[str]().union(*MAY_SAY.values())

    assert CLASS_OF.keys() <= said


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in CLASS_OF
        if kind in ("activity", "gone") or "rank" in list_fields(CLASS_OF[kind])
    ],
)
def test_nobody_speaks_of_ranks_that_are_not_his(kind):
    origins = [Origin("n0", part, backend, (0, 1)) for part, backend in ORIGINS]
    for origin in origins:
        if not may_say(origin.part, origin.backend, kind):
            continue
        if kind == "activity":
            rows = [[rank, "R", "", 1.0, None] for rank in (1, 2)]
            assert [one.rank for one in parse_event(row(kind, rows=rows), origin).body.rows] == [1]
            continue
        foreign = {"running": [1, 2]} if kind == "gone" else {"rank": 2}
        with pytest.raises(EventError, match=f"`{kind}` of rank 2, which does not run there"):
            parse_event(row(kind, **foreign), origin)


@pytest.mark.parametrize(
    "odd",
    [{"kind": "x"}, {"kind": None}, {"kind": ["ready"]}, {"at": "1"}, {"at": True}, {"at": -1}, {"at": 1e12},
     {"at": float("nan")}, {"seq": None}, {"seq": -1}, {"seq": 1.0}, {"seq": True}, {"seq": 1 << 60}],
)  # fmt: skip
def test_a_row_that_is_no_event_is_refused(odd):
    with pytest.raises(EventError):
        parse_event({**row("ready"), **odd}, origin_of(PLAN.nodes[0], "ssh"))


def test_a_field_that_cannot_be_has_its_default_and_long_text_is_cut():
    odd = row("exited", code="7", signal=1 << 40, said=["x" * 5000, 5, "a\x1b[2Jb"], activity=[1])

    body = parse_event(odd, origin_of(PLAN.nodes[0], "ssh")).body

    assert (body.code, body.signal, body.activity) == (None, None, None)
    assert body.said == ("x" * 500, "ab")


def test_the_end_of_a_program_inside_a_rank_is_read_as_it_was_written_or_left_out():
    origin = origin_of(PLAN.nodes[0], "ssh")
    inside = ProgramEnd("python3 prog.py", None, 11)
    said = {**as_row(RankExited(0, 0, inside=inside)), "at": 5.0, "seq": 3}
    told = parse_event(said, origin)
    odd = parse_event(row("exited", code=0, inside=["x" * 5000, "3", -1]), origin)

    assert told.body.inside == inside
    assert odd.body.inside is None


def test_a_look_of_an_older_agent_says_nothing_of_quotas_and_moves():
    origin = origin_of(PLAN.nodes[0], "ssh")
    rows = [[0, "R", "", 1.0, 0.1], [0, "R", "", 1.0, 0.1, 0.5, 7], [0, "R", "", 1.0, 0.1, 2.0, 7]]

    looks = parse_event(row("activity", rows=rows), origin).body.rows

    assert [(look.throttled, look.moves) for look in looks] == [(None, None), (0.5, 7)]


# ---- a hostile node ------------------------------------------------------------------------

NUMBERS = st.one_of(st.integers(-1, 7), st.none(), st.booleans(), st.floats(0, 9), st.integers())
TEXTS = st.sampled_from(
    ["", "n1", "n2", "user", "TIMEOUT", "CANCELLED", "FAILED", "rank 2", "was asked again: nothing of the job is left there",
     "n2: was asked again: nothing of the job is left there", "sakura: not verified: x", "no space left for /home"]
)  # fmt: skip
NAMES = sorted({name for made in CLASS_OF.values() for name in list_fields(made)} | {"gone"})
VALUES = st.one_of(NUMBERS, TEXTS, st.lists(st.one_of(NUMBERS, TEXTS), max_size=4))
ROWS = st.builds(
    lambda kind, seq, at, more: {**more, "kind": kind, "seq": seq, "at": at},
    st.sampled_from([*CLASS_OF, "data", "tail", "lost", "connected", "closing", "x"]),
    st.integers(-1, 40),
    st.floats(0, 100),
    st.dictionaries(
        st.sampled_from([*NAMES, "r", "s", "o", "n", "lines", "last"]), VALUES, max_size=6
    ),
)


def running() -> tuple[Jobs, list[NodeStream]]:
    """A job whose six ranks run, after a cancel that did not reach n1."""
    jobs = Jobs()
    jobs.add(PLAN, 1.0)
    streams = [NodeStream(node, -1, jobs.positions_of("j-1"), "ssh") for node in PLAN.nodes]
    for stream, node in zip(streams, PLAN.nodes, strict=True):
        for seq, rank in enumerate(node.ranks):
            feed(jobs, stream, {"kind": "started", "seq": seq, "at": 2.0, "rank": rank, "pid": 9})
    return jobs, streams


def feed(jobs, stream, one):
    data = json.dumps(one).encode() + b"\n"
    if one["kind"] == "data" and type(one.get("n")) is int and 0 < one["n"] < 10:
        data += b"x" * one["n"]
    try:
        found = stream.feed(data)
    except FrameError:
        return
    for event in found:
        jobs.apply(event)


HONEST = (
    (1, {"kind": "ready", "seq": 2, "at": 3.0, "addresses": ["10.0.0.1"]}),
    (2, {"kind": "exited", "seq": 2, "at": 50.0, "rank": 4, "code": 7, "said": ["boom"]}),
    (1, {"kind": "exited", "seq": 3, "at": 50.5, "rank": 2, "code": 0}),
    (1, {"kind": "exited", "seq": 4, "at": 50.6, "rank": 3, "signal": 15}),
    (2, {"kind": "exited", "seq": 3, "at": 50.7, "rank": 5, "code": 0}),
    (1, {"kind": "closed", "seq": 5, "at": 51.0}),
    (2, {"kind": "closed", "seq": 4, "at": 51.0}),
)
"""What the two honest nodes say: (number of the node, row)."""


def played(rows: list[tuple[int, dict[str, object]]]) -> Job:
    """The job after the honest rows, and these of n0, each before
    the honest row with that number.
    """
    jobs, streams = running()
    jobs.cancelling("j-1", 1.0, abort=False)
    jobs.cancelled("j-1", CancelReport("j-1", State.LOST, (), {"n1": "no answer"}), 1.5)
    jobs._records["j-1"].asked_at, jobs._records["j-1"].cancelled = None, False
    for number, (node, row) in enumerate((*HONEST, (0, {"kind": "now", "at": 99.0}))):
        for place, one in rows:
            if place == number:
                feed(jobs, streams[0], one)
        feed(jobs, streams[node], row)
    return jobs.job("j-1")


ENDED = {"kind": "ended", "seq": 2, "at": 0.0, "signal": 0}
"""Of a launcher that the node makes up."""
PLACED = st.lists(st.tuples(st.integers(0, len(HONEST)), ROWS), max_size=12)


@pytest.mark.long
@settings(max_examples=10_000 if os.environ.get("RANKDECK_ALL_SEQUENCES") else 300, deadline=None)
@given(PLACED)
@example([(0, {"kind": "ready", "seq": 0, "at": 0.0}), (0, ENDED)])
def test_a_node_changes_nothing_of_what_is_known_of_others(rows):
    job, truth = played(rows), played([])

    assert job.ranks[2:] == truth.ranks[2:]
    assert job.unproven == truth.unproven == ("n1",)
    assert job.in_scheduler is None
    assert job.mute == {}
    first = job.first_failure
    assert first is not None
    # What it says of itself may make that undecided, between it and the one that failed.
    assert all((one.rank, one.node) == (4, "n2") or one.node == "n0" for one in first.suspects)
    assert {rank.rank for rank in job.ranks} == set(RANKS)


def test_one_frame_again_or_slurm_of_a_node_of_an_ssh_job_is_refused_counted_and_named_once():
    jobs, streams = running()
    feed(jobs, streams[2], {"kind": "exited", "seq": 2, "at": 3.0, "rank": 4, "code": 7})
    told = jobs.job("j-1").first_failure
    for number in range(12):
        feed(jobs, streams[0], {"kind": "again", "seq": 3 + number, "at": 4.0, "text": "x"})
    over = {"kind": "slurm", "seq": 90, "at": 5.0, "state": "TIMEOUT", "over": True, "text": "x"}
    feed(jobs, streams[0], over)

    job = jobs.job("j-1")

    assert job.first_failure == told
    assert (told.rank, told.node, told.exit_code) == (4, "n2", 7)
    assert [rank.state for rank in job.ranks] == [*[State.RUNNING] * 4, State.FAILED, State.RUNNING]
    named = "n0: sent `again`, which the supervisor of a job on ssh may not say: left out"
    assert job.troubles == (named,)
    assert job.refused == {"n0": 10}


def test_a_thousand_nodes_that_were_not_verified_are_all_named():
    nodes = tuple(NodePlan("j-1", f"n{at}", (at,)) for at in range(1000))
    jobs = Jobs()
    jobs.add(replace(PLAN, nodes=nodes), 1.0)
    for number in range(300):
        jobs.note("j-1", f"sentence {number}")
    jobs.cancelling("j-1", 2.0, abort=False)
    silent = {f"n{at}": "no answer" for at in range(1000)}

    jobs.cancelled("j-1", CancelReport("j-1", State.LOST, (), silent), 3.0)

    job = jobs.job("j-1")
    assert job.unproven == tuple(silent)
    assert sum("not verified" in text for text in job.troubles) == 1000
    assert "there were more sentences: left out" in job.troubles
