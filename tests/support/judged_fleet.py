"""A fleet whose nodes have agents: the agent's own code judges each
sample before the console takes it.
"""

from collections.abc import Callable, Mapping

from rankdeck.model.cluster import Node
from rankdeck.state.fleet import Fleet
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Expected
from rankdeck_agent.sampler import NodeJudge
from rankdeck_agent.seen_devices import SeenDevices
from rankdeck_agent.wire import Event, Hello, Message, Sample

HEARTBEAT = 10.0


class JudgedFleet(Fleet):
    """Takes messages as an agent has them before it judges, and completes them as the agent does.

    `brief`: as in the agent's `Config`.
    """

    def __init__(self, *args, brief: bool = False, **more) -> None:
        super().__init__(*args, **more)
        self._brief = brief
        self._agents: dict[str, _Agent] = {}

    def apply(self, node: str, message: Message, *, retained: bool = False) -> None:
        agent = self._agent(node)
        if isinstance(message, Hello) and message.up:
            agent.begin(message)
        elif isinstance(message, Event):
            agent.events += (message,)
        elif isinstance(message, Sample) and message.report is None:
            message = agent.judged(message)
        super().apply(node, message, retained=retained)
        if isinstance(message, Event) and agent.newest and not retained:
            # An agent judges once a second: it soon sends a report with the event.
            super().apply(node, agent.judged(agent.newest).report)

    def _agent(self, name: str) -> "_Agent":
        if name not in self._agents:
            cluster = self._cluster
            node = cluster.node(name) if cluster.has(name) else Node(name=name)
            expected = Expected(node.gpus, node.rdma, node.interface, cluster.expect)
            self._agents[name] = _Agent(
                lambda boot: NodeJudge(
                    expected, SeenDevices(boot), HEARTBEAT, brief=self._brief, clock=self._clock
                )
            )
        return self._agents[name]


class _Agent:
    def __init__(self, judge_of: Callable[[str], NodeJudge]) -> None:
        """`judge_of` makes the judge of an agent that began after this boot."""
        self._judge_of, self._judge = judge_of, judge_of("")
        self._boot = ""
        self._inventory: Mapping[str, str] = {}
        self.events: tuple[Event, ...] = ()
        """Those since the last judgement."""
        self.newest: Sample | None = None

    def begin(self, hello: Hello) -> None:
        """A new agent begins after each boot."""
        if hello.boot != self._boot:
            self._judge = self._judge_of(hello.boot)
        self._boot, self._inventory = hello.boot, hello.inventory

    def judged(self, sample: Sample) -> Sample:
        report = self._judge.judge(sample, self.events, self._inventory)
        self.events, self.newest = (), sample
        return replace(sample, report=report)
