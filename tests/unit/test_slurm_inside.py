"""What the agents beside the ranks of a Slurm job say, from the node to the console."""

import base64
import io
import json
import sys
import zlib
from collections.abc import Iterator

import pytest

from rankdeck.schedulers.slurm.hearing import MessageParts
from rankdeck_agent.config import AgentConfigError
from rankdeck_agent.sampler import Reporter
from rankdeck_agent.schedulers.slurm.beside_ranks import own_config
from rankdeck_agent.telemetry import StdoutPublisher
from rankdeck_agent.wire import Hello, Sample, encode_message

LARGE = Sample(1, 1.0, {f"gpu.{n}": {str(g): n * g / 7 for g in range(8)} for n in range(200)})  # fmt: skip


def rows(monkeypatch: pytest.MonkeyPatch, node: str) -> list[dict[str, object]]:
    """The lines in which a node says hello and a large sample."""
    said = io.StringIO()
    monkeypatch.setattr(sys, "stdout", said)
    lines = StdoutPublisher(Hello(node, True, boot="boot"))
    lines.announce()
    lines.publish(Reporter(10.0), LARGE, 0.0, whole=True)
    assert all(len(line) < 1024 for line in said.getvalue().splitlines())
    return [json.loads(line)["beside"] for line in said.getvalue().splitlines()]


class Heard(list[tuple[str, str, bytes]]):
    def give(self, node: str, kind: str, payload: bytes) -> None:
        self.append((node, kind, payload))


def test_what_two_nodes_say_at_once_comes_whole(monkeypatch) -> None:
    heard, messages = Heard(), MessageParts(["n1", "n2"])
    first, second = rows(monkeypatch, "n1"), rows(monkeypatch, "n2")
    assert len(first) > 3

    for pair in zip(first, second, strict=True):
        for row in pair:
            messages.take(row, heard.give)

    assert [(node, kind) for node, kind, _ in heard] == [
        ("n1", "hello"), ("n2", "hello"), ("n1", "sample"), ("n2", "sample"),
    ]  # fmt: skip
    assert heard[-1][2] == encode_message(LARGE)


def bad(row: dict[str, object]) -> Iterator[dict[str, object]]:
    for change in ({"node": "n9"}, {"part": 7}, {"part": -1}, {"of": 1 << 40}, {"of": True}, {"data": "!"}, {"data": 7}, {"data": "A" * 5000}):  # fmt: skip
        yield {**row, **change}
    yield {}


def test_what_does_not_fit_is_left_out_and_the_next_message_comes(monkeypatch) -> None:
    heard, messages = Heard(), MessageParts(["n1"])
    hello, *_ = rows(monkeypatch, "n1")

    for row in bad(hello):
        messages.take(row, heard.give)
    assert heard == []

    messages.take(hello, heard.give)
    assert [kind for _, kind, _ in heard] == ["hello"]


@pytest.mark.long
def test_a_message_that_unpacks_without_end_is_left_out() -> None:
    bomb = base64.b64encode(zlib.compress(bytes(64 << 20), 9)).decode()
    heard, messages = Heard(), MessageParts(["n1"])
    parts = [bomb[at : at + 700] for at in range(0, len(bomb), 700)]
    for number, part in enumerate(parts):
        messages.take({"node": "n1", "kind": "sample", "part": number, "of": len(parts), "data": part}, heard.give)  # fmt: skip

    assert heard == []


def test_each_node_finds_its_own_configuration_in_the_line_for_all() -> None:
    configs = [{"cluster": "c"}, {"cluster": "c", "expect": {"gpus": 8}}]
    line = json.dumps({"of": {"n1": 0, "n2": 1}, "configs": configs}).encode()

    assert own_config(line, "n1").node == "n1"
    assert own_config(line, "n2").expect.gpus == 8
    for wrong in (b"", b"7", b'{"of": {}}', b'{"of": {"n3": 9}, "configs": []}', b'{"of": {"n3": "x"}, "configs": []}'):  # fmt: skip
        with pytest.raises(AgentConfigError):
            own_config(wrong, "n3")
