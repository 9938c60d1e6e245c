"""`job follow` sends what quiet ranks say at once, however much others have written."""

import json
import os
import time

import pytest

from rankdeck_agent.job.follow import NodeFollower, Window
from rankdeck_agent.job.layout import make_run_folder, unlink_links
from rankdeck_agent.wire import NodePlan

FLOOD = 8 << 20
PLENTY = 1 << 30


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A job of two ranks that runs; the first has written much, the second one line."""
    monkeypatch.setenv("RANKDECK_STATE", str(tmp_path))
    made = make_run_folder(NodePlan(f"flood-{os.getpid()}", "n1", (0, 1)))
    (made.place(0) / "out").write_bytes(b"x" * 99 + b"\n" + bytes(FLOOD - 109) + b"\nthe end\n")
    (made.place(1) / "out").write_bytes(b"quiet\n")
    yield made
    unlink_links(made)


def follower(folder, **line):
    one = NodeFollower(folder, -1)
    streams = {"out": 0, "err": 0}
    one.take(json.dumps({"watch": {"0": streams, "1": streams}, "number": 1, **line}).encode())
    return one


def told(frames, kind):
    heads = [json.loads(frame) for frame in frames if frame.startswith(b'{"kind"')]
    return [head for head in heads if head["kind"] == kind]


def sent(frames, rank=0):
    return sum(head["n"] for head in told(frames, "data") if head["r"] == rank)


def test_no_more_is_under_way_than_a_console_that_counts_has_room_for(folder):
    one = follower(folder, taken=0)
    first = one.round(time.monotonic())
    again = one.round(time.monotonic())

    assert 0 < sent(first) <= 256 << 10
    assert sent(again) == 0
    one.take(json.dumps({"taken": sent(first)}).encode())
    assert sent(one.round(time.monotonic())) > 0


def test_a_console_that_does_not_count_gets_all_of_it(folder):
    one, got = follower(folder), 0
    while one.behind:
        got += sent(one.round(time.monotonic()))

    assert got == FLOOD


def test_a_quiet_rank_goes_before_the_flood_that_waits(folder):
    one = follower(folder, taken=0)
    total = sent(frames := one.round(time.monotonic())) + sent(frames, 1)
    assert told(frames, "data")[0]["r"] == 1
    with (folder.place(1) / "out").open("ab") as file:
        file.write(b"and more\n")
    one.take(json.dumps({"taken": total}).encode())

    assert told(one.round(time.monotonic()), "data")[0]["r"] == 1


def test_ranks_that_all_flood_take_turns(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKDECK_STATE", str(tmp_path))
    ranks = tuple(range(100))
    made = make_run_folder(NodePlan(f"floods-{os.getpid()}", "n1", ranks))
    for rank in ranks:
        (made.place(rank) / "out").write_bytes(bytes(50_000))
    one = NodeFollower(made, -1)
    asked = {str(rank): {"out": 0} for rank in ranks}
    one.take(json.dumps({"watch": asked, "number": 1, "taken": 0}).encode())
    turns: list[int] = []
    taken = 0
    # How much is sent at once depends on how fast the last was taken; whose turn it is does not.
    while len(turns) < len(ranks):
        frames = told(one.round(time.monotonic()), "data")
        turns += [head["r"] for head in frames]
        taken += sum(head["n"] for head in frames)
        one.take(json.dumps({"taken": taken}).encode())
        assert frames
    unlink_links(made)

    assert sorted(turns[: len(ranks)]) == list(ranks)


def test_of_output_that_waits_the_end_is_told(folder):
    one = follower(folder, taken=0)
    (tail,) = told(one.round(time.monotonic()), "tail")

    assert (tail["r"], tail["o"], tail["last"]) == (0, FLOOD, "the end")


@pytest.mark.parametrize(("seconds", "grows"), [(0.01, True), (0.2, None), (1.0, False)])
def test_a_quick_console_has_more_under_way_and_a_slow_one_less(seconds, grows):
    window = Window()
    window.take(0, 0.0)
    before = window.room
    window.sent(before, True, 1.0)
    window.take(before, 1.0 + seconds)

    assert (None if window.room == before else window.room > before) is grows


@pytest.mark.parametrize("total", [-1, 1.5, "9", None, True, PLENTY])
def test_what_cannot_have_been_taken_makes_no_room(total):
    window = Window()
    window.take(0, 0.0)
    window.sent(window.room, True, 0.0)
    window.take(total, 0.1)

    assert window.room == 0


@pytest.mark.parametrize("kept", [b"", b'{"seq":0,"at":1.0,"kind":"starti', bytes(300)])
def test_a_console_hears_of_a_crash_that_took_events_which_it_has_already(folder, kept):
    (folder / "starter.pid").unlink()
    (folder / "events").write_bytes(kept)

    for _ in range(2):  # who closes the job for the node, and who comes later
        one, rows = NodeFollower(folder, 7), []
        one.take(b'{"watch": {}}')
        while not one.done:
            frames = one.round(time.monotonic())
            rows += [json.loads(frame) for frame in frames if b'"seq"' in frame]
        assert [row["kind"] for row in rows] == ["gone", "closed"]
        assert all(row["seq"] > 7 for row in rows)
