"""One command on many nodes: folded output, a limited fan-out, cancel, nodes that lie."""

import asyncio
import json
from collections.abc import Callable

import pytest

from rankdeck.errors import AgentError, UnreachableError
from rankdeck.model.process import CommandEnd
from rankdeck.remote.agent import Agents
from rankdeck.remote.bundle import build_bundle
from rankdeck.remote.command import CommandRun, CommandState
from rankdeck.remote.shell import ClockOffset, OnData, Way

DONE = {"end": {"code": 0, "why": "", "left": [], "behind": 0, "cut": 0, "seconds": 0.1}}


class Channel:
    """A node's `sh`, as far as the console sees it."""

    complaint = ""

    def __init__(self, nodes: "Nodes", node: str, on_data: OnData) -> None:
        self._nodes, self._node, self._on_data = nodes, node, on_data
        self._ended = asyncio.Event()
        self._error: Exception | None = None

    def write(self, data: bytes) -> None:
        self._nodes.asked[self._node] = json.loads(data)
        self._nodes.at_once += 1
        if len(self._nodes.asked) == 2:
            self._nodes.busy.set()
        self._nodes.most_at_once = max(self._nodes.most_at_once, self._nodes.at_once)
        asyncio.get_running_loop().call_soon(self._answer)

    def _answer(self) -> None:
        try:
            for row in self._nodes.answers(self._node):
                self._on_data(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n")
                if isinstance(row, dict) and "end" in row:
                    self._ended.set()
        except AgentError as error:
            self._error = error
            self._ended.set()

    def end(self) -> None:
        if not self._ended.is_set():
            why = {**DONE["end"], "code": 143, "why": "cancelled"}
            self._on_data(json.dumps({"end": why}).encode() + b"\n")
            self._ended.set()

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    async def drain(self) -> None: ...

    async def wait(self) -> int:
        await self._ended.wait()
        self._nodes.at_once -= 1
        if self._error:
            raise self._error
        return 0

    async def close(self) -> None: ...


class Nodes:
    """A Shell on which the agent is there, and `sh` answers what the test says."""

    def __init__(self, answers: Callable[[str], list]) -> None:
        self.answers = answers
        self.asked: dict[str, dict] = {}
        self.at_once = self.most_at_once = 0
        self.busy = asyncio.Event()
        """Two of them have been asked."""

    async def open(self, node: str, argv, on_data: OnData) -> Channel:
        if node.startswith("dead"):
            raise UnreachableError(node, "does not answer; is the node up?")
        on_data(f"rankdeck|3.11|{build_bundle().digest}|python3|||0|/a.pyz\n".encode())
        assert argv[-1] == "sh"
        return Channel(self, node, on_data)

    async def reverse_tunnel(self, node: str, host: str, port: int) -> int:
        raise NotImplementedError

    def way(self, node: str) -> Way:
        del node
        return Way()

    async def clock(self, node: str) -> ClockOffset:
        raise NotImplementedError


async def ran(nodes: Nodes, names: list[str], fan_out: int = 64) -> CommandState:
    state = CommandState("uname", names)
    await CommandRun(Agents(nodes), state, 10.0, fan_out).run()
    return state


async def test_a_thousand_nodes_are_served_a_few_at_a_time_and_folded() -> None:
    def answers(node: str) -> list:
        odd = node in ("n0007", "n0500")
        return [{"out": ["Linux"]}, {"out": ["odd" if odd else "same"]}, DONE]

    names = [f"n{number:04}" for number in range(1000)]
    nodes = Nodes(answers)
    state = await ran(nodes, names, fan_out=50)

    many, few = state.groups()
    assert (len(many.nodes), many.text) == (998, ("Linux", "same"))
    assert (few.nodes, few.text) == (("n0007", "n0500"), ("Linux", "odd"))
    assert nodes.most_at_once == 50
    assert state.over
    assert state.status == 0


async def test_all_nodes_together_may_not_fill_the_memory() -> None:
    nodes = Nodes(lambda _: [DONE])
    await ran(nodes, [f"n{number:04}" for number in range(1000)])

    assert nodes.asked["n0001"]["most"] * 1000 <= 300 << 20


async def test_a_node_that_cannot_be_reached_is_named_and_holds_up_no_other() -> None:
    state = await ran(Nodes(lambda _: [{"out": ["hi"]}, DONE]), ["n1", "dead1"])

    assert state.ends["n1"].well
    assert state.ends["dead1"].words == "does not answer; is the node up?"
    assert state.status == 255
    assert list(state.not_proven()) == ["dead1"]


async def test_a_cancel_ends_it_where_it_runs_and_starts_it_nowhere_else() -> None:
    nodes = Nodes(lambda _: [{"out": ["up"]}])
    state = CommandState("sleep", ["n1", "n2", "n3"])
    run = CommandRun(Agents(nodes), state, 10.0, 2)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run.run())
        await nodes.busy.wait()
        run.cancel()

    assert {node: end.why for node, end in state.ends.items()} == dict.fromkeys(
        state.nodes, "cancelled"
    )
    assert len(nodes.asked) == 2
    assert state.not_proven() == {}


LIES = [
    ([{"out": "no list"}, {"out": [3, None, "kept"]}, DONE], ("kept",)),
    ([b"Welcome to n1!\n", {"err": ["\x1b]0;title\x07bad\x1b[2J"]}, DONE], ("bad",)),
    ([{"end": {"code": "0", "why": {}, "left": [3, {"pid": "x"}], "cut": -1}}], ()),
    ([b'{"out": ["' + b"x" * (2 << 20)], ()),
]


@pytest.mark.parametrize(("answers", "lines"), LIES)
async def test_what_a_node_sends_is_checked(answers: list, lines: tuple[str, ...]) -> None:
    state = await ran(Nodes(lambda _: answers), ["n1"])

    assert tuple(text for _, text in state.lines("n1")) == lines
    assert state.over


def test_the_same_lines_on_other_streams_are_another_output() -> None:
    state = CommandState("x", ["a", "b", "c"])
    state.wrote("a", "out", ["x"])
    state.wrote("b", "err", ["x"])
    state.wrote("c", "out", ["x"])

    assert [group.nodes for group in state.groups()] == [("a", "c"), ("b",)]


ENDS = [
    (CommandEnd(0), "exit 0", 0),
    (CommandEnd(3), "exit 3", 3),
    (CommandEnd(137), "exit 137: SIGKILL", 137),
    (CommandEnd(143, why="limit"), "ended at the time limit", 124),
    (CommandEnd(0, behind=1), "exit 0, 1 process left running in the background", 0),
    (CommandEnd(0, cut=9), "exit 0, the rest of its output is left out", 0),
]


@pytest.mark.parametrize(("end", "words", "status"), ENDS)
def test_an_end_is_said_in_few_words(end: CommandEnd, words: str, status: int) -> None:
    assert (end.words, end.status) == (words, status)
