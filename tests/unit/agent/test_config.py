"""What the agent is told, and how it says that it cannot be used."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck_agent.config import AgentConfigError, Config, from_file, from_line, from_mapping
from rankdeck_agent.values import list_fields

GOOD = {"cluster": "c", "host": "h"}


def test_a_line_of_json_gives_every_key():
    given_ = {**GOOD, "node": "n", "port": 8883, "username": "u", "password": "p", "tls": True, "ca_file": "/ca",
              "keepalive": 5, "period": 0.5, "simulate": ["gpu", "rdma"], "root": "/r"}  # fmt: skip

    config = from_line(json.dumps(given_).encode())

    assert config == Config(**{**given_, "simulate": ("gpu", "rdma")})


def test_the_node_is_this_host_where_none_is_named():
    assert from_mapping(GOOD).node


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hots": "x"}, "did you mean 'host'"),
        ({"port": "eighty"}, "port must be a number from 1 to 65535"),
        ({"port": 1.5}, "whole number"),
        ({"port": True}, "port must be"),
        ({"period": 0}, "period must be a number"),
        ({"period": float("nan")}, "period must be a number"),
        ({"tls": "maybe"}, "tls must be true or false"),
        ({"simulate": ["cpu"]}, "cannot make up 'cpu'"),
        ({"simulate": 3}, "simulate must be a list"),
        ({"node": "a/b"}, "cannot be part of an MQTT topic"),
        ({"node": "a\n"}, "cannot be part of an MQTT topic"),
        ({"cluster": "+"}, "cannot be part of an MQTT topic"),
        ({"host": " "}, "host is empty"),
        ({"password": 5}, "password must be a text"),
    ],
)
def test_a_bad_value_is_named_in_one_sentence(change, words):
    with pytest.raises(AgentConfigError, match=words) as caught:
        from_mapping({**GOOD, **change})

    assert "\n" not in str(caught.value)


@given(st.binary(max_size=200))
def test_no_line_is_anything_but_a_configuration_or_a_complaint(line):
    with pytest.raises(AgentConfigError):
        from_line(line)


@given(
    st.dictionaries(
        st.sampled_from(list(list_fields(Config))),
        st.none() | st.text() | st.integers() | st.floats() | st.lists(st.text()),
    )
)
def test_no_value_is_anything_but_used_or_complained_of(values):
    try:
        config = from_mapping({**GOOD, **values})
    except AgentConfigError:
        return
    assert 1 <= config.port <= 65535


@pytest.mark.parametrize(
    "text",
    [
        'cluster = c\nhost = h\nport = 1884\npassword = 12345\nsimulate = gpu, rdma\ntls = no\n',
        '# TOML\ncluster = "c"\nhost = "h"\nport = 1884\npassword = "12345"\nsimulate = ["gpu", "rdma"]\ntls = false\n',
        '[agent]\ncluster = c\nhost = h\nport = 1884\npassword = 12345\nsimulate = gpu rdma\n',
        '{"cluster": "c", "host": "h", "port": 1884, "password": "12345", "simulate": ["gpu", "rdma"]}',
    ],
)  # fmt: skip
def test_a_file_may_be_lines_or_json(text, tmp_path):
    path = tmp_path / "agent.conf"
    path.write_text(text)

    config = from_file(str(path))

    assert (config.cluster, config.host, config.port) == ("c", "h", 1884)
    assert config.password == "12345"
    assert config.simulate == ("gpu", "rdma")
    assert config.tls is False


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe",
        b"just words\n",
        b"",
        b"[a]\nx=1\n[b]\ny=2\n",
        b"{",
        b"cluster = c\ncluster = d\n",
    ],
)
def test_a_bad_file_is_named_in_one_line(data, tmp_path):
    path = tmp_path / "agent.conf"
    path.write_bytes(data)

    with pytest.raises(AgentConfigError) as caught:
        from_file(str(path))

    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(AgentConfigError, match="No such file"):
        from_file(str(tmp_path / "none"))
