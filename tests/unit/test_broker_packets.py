from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.telemetry.mqtt_packets import (
    CONNECT_BYTE,
    Connect,
    Framer,
    MalformedError,
    Publish,
    packet_id,
    read_connect,
    read_publish,
    valid_topic,
)
from tests.support import mqtt

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
    raw = mqtt.publish(message) * 2
    framer, got, at = Framer(1 << 16), [], 0
    for cut in (*cuts, len(raw)):
        got += framer.feed(raw[at : at + cut])
        at += cut

    assert [read_publish(*one) for one in got] == [message, message]


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_malformed(data) -> None:
    readers = (
        read_connect,
        read_publish,
        lambda first, body: packet_id(body),
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
        read_connect(0x10, mqtt.string("MQTT") + bytes((4, flags, 0, 9)) + tail)


def test_a_connect_is_read_as_it_was_written() -> None:
    ((first, body),) = Framer(1000).feed(mqtt.connect("me", 9, "user", b"secret"))

    hello = read_connect(first, body)
    assert hello == Connect("me", 9, True, "user", b"secret", None)


@pytest.mark.parametrize("bad", ["", "a/+", "#"])
def test_topics_that_are_not_topics(bad) -> None:
    assert not valid_topic(bad)


def test_what_does_not_begin_as_mqtt_is_refused_at_its_first_byte() -> None:
    raw = mqtt.connect("me", 9, "user", b"secret")
    framer = Framer(1000, CONNECT_BYTE)

    assert [*framer.feed(raw[:1]), *framer.feed(raw[1:])] == [*Framer(1000).feed(raw)]
    with pytest.raises(MalformedError, match="the first bytes are not MQTT"):
        list(Framer(1000, CONNECT_BYTE).feed(b"GET / HTTP/1.1"))
