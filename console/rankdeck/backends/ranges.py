"""Parts of a rank's output that lie on its node, read and searched there."""

from rankdeck.backends.follow import last_json
from rankdeck.backends.frames import FrameError, FrameParser
from rankdeck.errors import AgentError
from rankdeck.model.job import Chunk, FoundLine, Job, LogPart, LogPlace
from rankdeck.remote.attach import Agents
from rankdeck.remote.shell import Result, Shell

LIMIT = 20.0
"""Seconds that a node may take."""


class Ranges:
    """What one rank, or the launcher, wrote, by offset; every failure is a NodeError."""

    def __init__(self, shell: Shell, agents: Agents, job: Job, rank: int) -> None:
        self._shell, self._agents, self._job = shell, agents, job.id
        nodes = (one.node for one in job.ranks if one.rank == rank)
        self._node = next(nodes, job.nodes[0])

    async def read(self, place: LogPlace, size: int) -> LogPart:
        """Whole lines from about that offset on; a negative one counts from the end."""
        where = (str(place.rank), place.stream, "--", str(place.offset), str(size))
        result = await self._ask("read", *where)
        clock = await self._shell.clock(self._node)
        try:
            frames = FrameParser().feed(result.out)
        except FrameError as error:
            why = f"the agent sends nonsense: {error}"
            raise AgentError(self._node, why) from error
        chunks: list[Chunk] = []
        end = -1
        for head, data in frames:
            at, start = head.get("at"), head.get("o")
            if type(start) is not int or start < 0:
                continue
            if head["kind"] == "end":
                end = start
            elif head["kind"] == "data" and isinstance(at, int | float):
                chunks.append(self._chunk(place, start, float(at) - clock.offset, data))
        if end < 0:
            raise AgentError(self._node, f"reading gave no answer: {_why(result)}")
        return LogPart(place.stream, tuple(chunks), end)

    def _chunk(self, place: LogPlace, offset: int, at: float, data: bytes) -> Chunk:
        return Chunk(self._job, self._node, place.rank, place.stream, offset, at, data)

    async def find(self, place: LogPlace, text: str, *, back: bool) -> FoundLine:
        """The next line with `text`, or the one before; capitals make it exact."""
        flags = ("--back",) if back else ()
        where = (*flags, str(place.rank), place.stream, str(place.offset), "--", text)
        result = await self._ask("find", *where)
        answer = last_json(result.out)
        at, counts = answer.get("at"), (answer.get("before"), answer.get("count"))
        before, count = (n if type(n) is int and n >= 0 else -1 for n in counts)
        if not (at is None or (type(at) is int and at >= 0)) or min(before, count) < 0:
            raise AgentError(self._node, f"searching gave no answer: {_why(result)}")
        return FoundLine(at, before, count, answer.get("whole") is True)

    async def _ask(self, verb: str, *words: str) -> Result:
        agent = await self._agents.agent_path(self._node)
        argv = (*agent, "job", verb, self._job, self._node, *words)
        return await self._shell.run(self._node, argv, limit=LIMIT)


def _why(result: Result) -> str:
    said = result.err.decode("utf-8", "replace").strip().splitlines()
    last = said[-1].removeprefix("rankdeck: ") if said else ""
    return (last or f"exit status {result.code}")[:300]
