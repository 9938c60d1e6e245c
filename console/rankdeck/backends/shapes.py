"""What each event of a supervisor may hold: see the table at the end of wire.py."""

from collections.abc import Mapping
from typing import Any

from rankdeck.model.border import (
    Check,
    Table,
    fitting,
    flag,
    integer,
    number,
    or_null,
    rows,
    stamp,
    text,
)

_LINES = rows(text(20_000), 1000)
_CODES: Mapping[str, Check] = {"code": or_null(integer), "signal": or_null(integer)}
_NUMBERED: Mapping[str, Check] = {"seq": integer, "at": stamp, "kind": text(20)}


def _scalar(value: object) -> bool:
    return isinstance(value, str) or number(value)


_EVENTS: Mapping[str, Mapping[str, Check]] = {
    "ready": {"pid": integer, "boot": text(200), "addresses": rows(text(300), 1000)},
    "started": {"rank": integer, "pid": integer, "host": text(300)},
    "exited": {
        **_CODES,
        "rank": integer,
        "said": _LINES,
        "kernel": _LINES,
        "activity": rows(_scalar, 8),
    },
    "process": {"name": text(300), "pid": integer},
    "ended": {**_CODES, "name": text(300), "said": _LINES},
    "spawn": {"id": text(100), "host": text(300), "command": text(1 << 18)},
    "answered": {"id": text(100), "ok": flag, "text": text(20_000)},
    "trouble": {
        "text": text(20_000),
        "gone": or_null(stamp),
        "running": rows(integer, 1 << 20),
    },
    "cancel": {"grace": number, "by": text(20)},
    "closed": {},
}


def event_of(head: Mapping[str, Any]) -> Table | None:
    """The fields of an event that make sense; None where it is no event of a supervisor."""
    shape = _EVENTS.get(head["kind"])
    seq = head.get("seq")
    if shape is None or not integer(seq) or seq < 0:
        return None
    return fitting(head, {**_NUMBERED, **shape})
