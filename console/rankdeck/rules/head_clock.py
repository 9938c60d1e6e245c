"""Whether it is this machine's clock that is wrong: where most nodes
agree on another time, they are right.
"""

from collections.abc import Iterable

from rankdeck_agent.rules.units import write_duration

_LEAST = 3
"""Fewer nodes prove nothing: two may share a wrong time server."""
_SHARE = 0.75
"""Share of the nodes that must agree."""
REMEDY = "check chrony or ntp on this machine"
_ALIKE = 1.0
"""Seconds by which clocks that agree may differ; a smaller error of
this machine's is not told either.
"""


def seconds_behind(aheads: Iterable[float]) -> float:
    """Seconds by which this machine's clock is behind its nodes' (negative:
    ahead of them); 0.0 if it is not wrong.

    `aheads`: of each node whose clock is known, by how many seconds it is ahead of this machine's.
    """
    known = sorted(aheads)
    if len(known) < _LEAST:
        return 0.0
    middle = known[len(known) // 2]
    agreeing = sum(abs(ahead - middle) <= _ALIKE for ahead in known)
    return middle if abs(middle) > _ALIKE and agreeing >= _SHARE * len(known) else 0.0


def describe_head_clock(behind: float) -> str:
    """One sentence on this machine's clock; "" if it is right."""
    if not behind:
        return ""
    side = "behind" if behind > 0 else "ahead of"
    return f"the clock of this machine is {write_duration(abs(behind))} {side} its nodes'"
