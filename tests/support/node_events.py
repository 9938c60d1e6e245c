"""Events of a job for tests, from fields as nodes send them or followers notice them."""

from typing import Any

from rankdeck.model.job_events import (
    ClockSet,
    Closing,
    Connected,
    Disconnected,
    Lost,
    NodeEvent,
    NotStarted,
)
from rankdeck.model.plan import Plan
from rankdeck_agent.wire.job_events import CLASS_OF, Origin, Part, origin_of, parse_event

_NOTICED = {one.KIND: one for one in (ClockSet, Closing, Connected, Disconnected, Lost, NotStarted)}
ANY_RANK = range(1 << 20)


def node_event(
    job: str, node: str, kind: str, at: float, *, origin: Origin | None = None, **fields: Any
) -> NodeEvent:
    """The event of this kind, parsed as one that came from a node; raises EventError.

    `seq` in `fields` is its number. Without `origin`, the sender may say anything.
    """
    if kind in _NOTICED:
        return NodeEvent(job, node, at, _NOTICED[kind](**fields))
    if origin is None:
        origin = Origin(node, *_who_may_say(kind), ANY_RANK)
    row = {"seq": 0, **fields, "kind": kind, "at": at}
    event = parse_event(row, origin)
    return NodeEvent(job, node, at, event.body, fields.get("seq"))


def planned_event(plan: Plan, node: str, kind: str, at: float, **fields: Any) -> NodeEvent:
    """As `node_event`, from a sender that may say only what this
    plan lets it; raises EventError.
    """
    (part,) = (part for part in plan.nodes if part.node == node)
    origin = origin_of(part, plan.backend)
    return node_event(plan.job, node, kind, at, origin=origin, **fields)


def _who_may_say(kind: str) -> tuple[Part, str]:
    assert kind in CLASS_OF, f"no kind {kind}"
    slurm, kubernetes = ("slurm", "attempt", "task"), ("again",)
    if kind in slurm:
        return Part.KEEPER, "slurm"
    return (Part.KEEPER, "kubernetes") if kind in kubernetes else (Part.SUPERVISOR, "ssh")
