"""The stream of `job follow` is cut rightly however it arrives, and junk does no harm."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.backends.frames import LONGEST_DATA, LONGEST_HEAD, FrameError, FrameParser
from rankdeck.backends.node_link import NodeLink
from rankdeck.backends.node_stream import NodeStream
from rankdeck.state.lines import JobPositions
from rankdeck_agent.wire import NodePlan, ProcessPlan


def head(**fields):
    return json.dumps(fields).encode() + b"\n"


def data(offset, text, rank=0):
    return head(kind="data", r=rank, s="out", o=offset, n=len(text), at=1.0) + text


def stream(launcher=False):
    process = ProcessPlan("mpirun", ("mpirun",))
    plan = NodePlan("j", "n1", (0, 1), (process,) if launcher else ())
    return NodeStream(plan, -1, JobPositions().of, "ssh")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=50))
def test_the_cuts_do_not_matter(cuts):
    whole = head(kind="now", at=1) + data(0, b'{"kind":"x"}\n\n') + head(kind="closed", seq=1, at=2)
    parser, frames, at, i = FrameParser(), [], 0, 0
    while at < len(whole):
        frames += parser.feed(whole[at : at + cuts[i % len(cuts)]])
        at, i = at + cuts[i % len(cuts)], i + 1

    assert frames == FrameParser().feed(whole)
    assert [frame[0]["kind"] for frame in frames] == ["now", "data", "closed"]
    assert frames[1][1] == b'{"kind":"x"}\n\n'


def test_what_a_login_prints_first_is_skipped():
    frames = FrameParser().feed(b"Welcome to n1!\n[1, 2]\n\xff\xfe\n" + head(kind="now", at=1))

    assert [frame[0]["kind"] for frame in frames] == ["now"]


@pytest.mark.parametrize("length", [-1, LONGEST_DATA + 1, 1.5, "9", None, True])
def test_a_length_that_cannot_be_is_refused(length):
    with pytest.raises(FrameError):
        FrameParser().feed(head(kind="data", n=length))


def test_a_line_without_an_end_is_refused():
    with pytest.raises(FrameError):
        FrameParser().feed(b"x" * (LONGEST_HEAD + 1))


@given(st.binary(max_size=300))
def test_any_bytes_are_frames_or_a_frame_error(junk):
    try:
        stream().feed(junk)
    except FrameError:
        return


class Reader:
    """A node's stream, and the positions that it asks."""

    def __init__(self):
        self.read = JobPositions()
        self.stream = NodeStream(NodePlan("j", "n1", (0, 1)), -1, self.read.of, "ssh")

    def feed(self, data):
        new = [self.read.take(item) for item in self.stream.feed(data)]
        return [(one.offset, one.data) for one in new if one]

    def asked(self):
        return json.loads(self.stream.watch_line())["watch"]


def test_a_watch_that_goes_back_ignores_what_is_still_under_way():
    one = Reader()
    one.stream.watch((0,), 100)
    one.feed(data(100, b"new"))
    one.stream.watch((0,), None)

    assert one.asked()["0"]["out"] == 0
    assert one.feed(data(103, b"late")) == []
    assert one.feed(data(0, b"first")) == [(0, b"first")]


def test_a_resumed_stream_gives_each_byte_once():
    one = Reader()
    one.stream.watch((0,), None)
    one.feed(data(0, b"abc"))
    one.stream.reconnected()

    assert one.feed(data(0, b"abcdef")) == [(3, b"def")]
    assert one.asked()["0"]["out"] == 6


def test_a_watch_that_asks_for_nothing_else_is_not_sent_again():
    one = Reader()
    one.stream.watch((0,), 1000)
    one.asked()
    one.feed(data(7000, bytes(1000)))
    one.stream.watch((0,), 1000)
    same = one.stream.fresh_watch
    one.stream.watch((0, 1), 1000)

    assert (same, one.stream.fresh_watch) == (False, True)


def test_output_of_ranks_that_are_not_watched_is_left_out():
    one = Reader()
    one.stream.watch((0,), None)

    assert one.feed(data(0, b"abc", rank=1)) == []


def test_a_rank_that_failed_unwatched_is_fetched():
    one = Reader()
    one.feed(head(kind="tail", r=1, s="out", o=100_000, lines=9, last="x", at=1))
    one.feed(head(kind="exited", seq=0, rank=1, code=3, signal=None, at=1))

    assert one.asked()["1"] == {"out": -(16 << 10), "err": -(16 << 10)}


def test_an_end_that_only_the_node_knows_is_where_the_output_begins():
    one = Reader()
    one.stream.watch((0,), 10)
    assert one.asked()["0"] == {"out": -10, "err": -10}

    assert one.feed(data(90, b"the end")) == [(90, b"the end")]
    assert one.asked()["0"] == {"out": 97, "err": -10}


def test_an_end_that_was_asked_for_twice_leaves_no_hole():
    one = Reader()
    one.stream.watch((0,), 10)
    one.asked()
    one.stream.watch((0, 1), 10)

    assert one.feed(data(90, b"early ")) == [(90, b"early ")]
    assert one.feed(data(95, b" newest")) == [(96, b"newest")]


def test_a_request_answered_long_ago_is_not_carried_out_again():
    one = stream(launcher=True)
    one.feed(head(kind="spawn", seq=0, id="a", host="n2", command="x", at=1))
    before = one.take_spawns()
    one.feed(head(kind="answered", seq=1, id="a", ok=True, at=1))
    one.feed(head(kind="spawn", seq=2, id="b", host="n2", command="y", at=1))
    one.feed(head(kind="now", at=1))

    assert before == []
    assert [request.id for request in one.take_spawns()] == ["b"]
    assert one.take_spawns() == []


@pytest.mark.parametrize("at", ["1", None, float("nan"), float("inf"), 10**400, [1]])
def test_a_stamp_that_no_clock_gives_is_left_out(at):
    one = stream()
    found = one.feed(head(kind="ready", seq=0, at=at) * 2)

    assert [(event.kind, one.seen) for event in found] in ([], [("refused", -1)])


def test_a_new_channel_does_not_end_the_silence_of_its_node():
    link = NodeLink(stream())
    link.opened(None)
    link.look()
    never = link.silence, link.channel_silence
    link.heard()
    link.look()
    link.opened(None)
    link.look()

    assert never == (0.0, 1.0)
    assert (link.silence, link.channel_silence) == (2.0, 1.0)
