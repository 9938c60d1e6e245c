"""A place in a log to go to, as a person types it: a line, a time, a share."""

from datetime import datetime, time, timedelta

from rankdeck.model.health import parse_duration
from rankdeck.model.safe_text import printable_line
from rankdeck.values import Value

GOALS = "a line (1200), a time (14:30:05), five minutes ago (-5m), half way (50%)"
"""What `goal_of` understands, for messages."""


class Goal(Value):
    """A place in a log to go to: a time (epoch seconds), a line
    number from 1, or a share from 0 to 1.
    """

    at: float | None = None
    line: int | None = None
    share: float | None = None

    def row(self, count: int) -> int:
        """The index of the line, from 0, in a log with `count` lines;
        only if the goal is not a time.
        """
        wanted = self.line - 1 if self.line is not None else round((self.share or 0.0) * count)
        return min(max(wanted, 0), max(count - 1, 0))


def goal_of(text: str, now: float) -> Goal:
    """The goal that a text means; a time of day is the last one before `now` (epoch seconds).

    Raises ValueError.
    """
    text = text.strip()
    if not text:
        raise ValueError(f"write {GOALS}")
    try:
        if text.startswith("-"):
            return Goal(at=now - parse_duration(text[1:]))
        if text.endswith("%"):
            return Goal(share=min(max(float(text[:-1]) / 100, 0.0), 1.0))
        if text.isdigit():
            return Goal(line=int(text))
        if ":" in text:
            return Goal(at=_moment(text, now))
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"not understood: {printable_line(text)}; write {GOALS}")


def _moment(text: str, now: float) -> float:
    """Epoch seconds of a time of day, or of a date and time, in this machine's time zone."""
    if "-" in text:
        return datetime.fromisoformat(text).timestamp()
    of_day = time.fromisoformat(text if text[1:2] != ":" else f"0{text}")
    moment = datetime.combine(datetime.fromtimestamp(now), of_day)
    return (moment if moment.timestamp() <= now else moment - timedelta(days=1)).timestamp()
