from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.telemetry.broker import packets
from rankdeck.telemetry.broker.packets import Framer, MalformedError, Publish
from rankdeck.telemetry.broker.session import matches, valid_filter, valid_topic

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


@given(
    TEXT,
    st.binary(max_size=400),
    st.sampled_from([0, 1]),
    st.booleans(),
    st.lists(st.integers(1, 50)),
)
def test_a_message_survives_any_cutting_of_its_bytes(topic, payload, qos, retain, cuts) -> None:
    message = Publish(topic, payload, qos, retain, 7 if qos else 0)
    raw = packets.publish(message) * 2
    framer, got, at = Framer(1 << 16), [], 0
    for cut in (*cuts, len(raw)):
        got += framer.feed(raw[at : at + cut])
        at += cut

    assert [packets.read_publish(*one) for one in got] == [message, message]


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_malformed(data) -> None:
    readers = (
        packets.read_connect,
        packets.read_publish,
        lambda first, body: packets.read_filters(first, body, with_qos=True),
        lambda first, body: packets.read_filters(first, body, with_qos=False),
        lambda first, body: packets.packet_id(body),
    )
    with suppress(MalformedError):
        for first, body in Framer(1 << 16).feed(data):
            for read in readers:
                with suppress(MalformedError):
                    read(first, body)
    for read in readers:
        with suppress(MalformedError):
            read(data[0] if data else 0, data[1:])


@given(st.binary(max_size=60), st.integers(0, 255))
def test_no_connect_raises_anything_but_malformed(tail, flags) -> None:
    with suppress(MalformedError):
        packets.read_connect(0x10, packets.string("MQTT") + bytes((4, flags, 0, 9)) + tail)


def test_a_connect_is_read_as_it_was_written() -> None:
    ((first, body),) = Framer(1000).feed(packets.connect("me", 9, "user", b"secret"))

    hello = packets.read_connect(first, body)
    assert hello == packets.Connect("me", 9, True, "user", b"secret", None)


@pytest.mark.parametrize(
    ("topic_filter", "topic", "taken"),
    [
        ("a/b", "a/b", True), ("a/b", "a/b/c", False), ("a/+", "a/b", True), ("a/+", "a/b/c", False),
        ("a/+", "a", False), ("+/+", "/b", True), ("a/#", "a", True), ("a/#", "a/b/c", True), ("#", "a/b", True),
        ("#", "$SYS/x", False), ("+/x", "$SYS/x", False), ("$SYS/#", "$SYS/x", True), ("a/+/c", "a//c", True),
    ],
)  # fmt: skip
def test_filters_take_what_the_standard_says(topic_filter, topic, taken) -> None:
    assert matches(topic_filter, topic) is taken


@pytest.mark.parametrize("bad", ["", "a#", "a/#/b", "a+/b", "#a", "x" * 2000])
def test_filters_that_are_not_filters(bad) -> None:
    assert not valid_filter(bad)


@pytest.mark.parametrize("bad", ["", "a/+", "#"])
def test_topics_that_are_not_topics(bad) -> None:
    assert not valid_topic(bad)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60), st.integers(0, 1))
def test_a_message_that_is_too_long_is_passed_over_however_it_arrives(cuts, qos):
    small = packets.publish(packets.Publish("t/small", b"x", 0))
    long = packets.publish(packets.Publish("t/long", b"y" * 5000, qos, packet_id=7))
    stream = small + long + small + long + long + small
    told, got, at, turn = [], [], 0, 0
    framer = Framer(1000, lambda message, size: told.append((message, size)))
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        got += [body for _, body in framer.feed(stream[at : at + size])]
        at, turn = at + size, turn + 1

    assert got == [packets.string("t/small") + b"x"] * 3
    assert [(m.topic, m.qos, m.packet_id, size > 5000) for m, size in told] == [
        ("t/long", qos, 7 if qos else 0, True)
    ] * 3
