"""Numbers as people read them, in the spelling that console and agent share."""

from rankdeck_agent.rules.units import (
    MISSING,
    bits,
    celsius,
    count,
    duration,
    hertz,
    percent,
    size,
    speed,
    written,
)

__all__ = [
    "MISSING",
    "bits",
    "celsius",
    "count",
    "duration",
    "hertz",
    "percent",
    "size",
    "speed",
    "written",
]
