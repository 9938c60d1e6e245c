"""The judgement of one node: what the rules remember, what operators said, and the health that follows."""

from typing import TYPE_CHECKING

from rankdeck.model.health import Health, Level, Reason
from rankdeck.model.notice import Ack
from rankdeck.rules.mute import mute
from rankdeck_agent.rules.coverage import cover
from rankdeck_agent.rules.derive import derive
from rankdeck_agent.rules.explain import Finding, explain
from rankdeck_agent.rules.facts import Expected, Facts, Memory
from rankdeck_agent.rules.judge import as_lasting, assess
from rankdeck_agent.wire import Event

if TYPE_CHECKING:
    from rankdeck.state.node import NodeState

WAITING = 100
"""Events that wait to be judged; of more, the oldest are only listed."""


class Judgement:
    """Written by Fleet through the node that it belongs to."""

    def __init__(self, expected: Expected) -> None:
        self.health = Health(Level.UNKNOWN)
        self.acks: tuple[Ack, ...] = ()
        self.drift: tuple[Reason, ...] | None = None
        self.busy = False
        self._expected = expected
        self._memory = Memory()
        self._events: tuple[Event, ...] = ()

    def hear(self, event: Event) -> None:
        """Judge this the next time."""
        self._events = (*self._events[-WAITING + 1 :], event)

    def judge(self, node: "NodeState", now: float, wall: float) -> Health:
        """Health now: `now` is the clock of silence, `wall` that of acknowledgements."""
        health, self._memory = assess(self._facts(node, now), self._memory)
        self._events = ()
        self.health = mute(health, self.acks, wall)
        return self.health

    def take_as_lasting(self) -> None:
        """What held at two looks is judged as if it had been watched for a minute."""
        self._memory = as_lasting(self._memory)

    def findings(self, node: "NodeState", now: float) -> tuple[Finding, ...]:
        """The 25 checks with their evidence."""
        facts = self._facts(node, now)
        covered = cover(facts, self._memory.settled)
        if node.silent:
            covered = cover(Facts(now=now, absent=facts.absent), settled=False)
        return explain(facts, derive(facts), self._memory, covered, self.health.reasons)

    def _facts(self, node: "NodeState", now: float) -> Facts:
        hello = node.hello
        heard = node.heard_s()
        return Facts(
            now=now,
            at=node.at,
            up=node.up,
            heard_s=heard,
            patience=node.patience,
            attach=node.attach if node.failed_to_attach or heard is None else "",
            values=node.values,
            absent=node.absent,
            failed=node.failed,
            inventory=hello.inventory if hello else {},
            boot=hello.boot if hello else "",
            uptime=node.uptime,
            events=self._events,
            seen_up=node.seen_up,
            skew=node.skew,
            expected=self._expected,
            busy=self.busy,
            drift=self.drift,
        )
