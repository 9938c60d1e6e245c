"""Health with what an operator has acknowledged: still listed, no longer counted."""

from collections.abc import Sequence
from dataclasses import replace

from rankdeck.model.health import Health, Reason, worst_of
from rankdeck.model.notice import Ack


def mute(health: Health, acks: Sequence[Ack], now: float) -> Health:
    """The same reasons, the acknowledged ones marked and last; `now` is epoch seconds."""
    if not acks or not health.reasons:
        return health
    marked = tuple(_marked(reason, acks, now) for reason in health.reasons)
    ordered = tuple(sorted(marked, key=lambda r: r.acknowledged_until is not None))
    return replace(health, level=worst_of(ordered), reasons=ordered)


def _marked(reason: Reason, acks: Sequence[Ack], now: float) -> Reason:
    covering = [ack for ack in acks if ack.covers(reason.check, reason.device, reason.level, now)]
    if not covering:
        return reason
    last = max(covering, key=lambda ack: ack.until)
    return replace(reason, acknowledged_until=last.until, acknowledged_by=last.words)
