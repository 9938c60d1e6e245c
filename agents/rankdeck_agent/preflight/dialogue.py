"""`agent.pyz preflight`: a dialogue of JSON lines, one process per node and preflight.

In: the request (see facts.gather), with `token` and `seconds`. Out: the facts, and `listen`, our
port. In: `{"connect": [[name, host, port], …]}`. Out: `{"connected": {name: …}}`. Then it answers
the others until its input ends; after `seconds` it ends in any case.
"""

import json
import signal
import sys
from typing import Any, cast

from rankdeck_agent.job.text import table
from rankdeck_agent.preflight.facts import gather
from rankdeck_agent.preflight.network import Listener, connect, side_by_side

_LONGEST = 4 << 20
_MOST_SECONDS = 60
_ROUND_LIMIT = 8.0


def main() -> int:
    """Hold the dialogue; the exit status."""
    request = _hear()
    if request is None:
        print("rankdeck: preflight needs a request as JSON on stdin", file=sys.stderr)
        return 2
    # Nobody may have to look for us: without a console we are gone soon.
    signal.alarm(max(1, min(int(request.get("seconds") or 20), _MOST_SECONDS)))
    token = str(request.get("token") or "")
    listen = Listener(token).port if len(token) >= 16 else 0
    _say({**gather(request), "listen": listen})
    order = _hear()
    if order is not None:
        _say({"connected": _connect(token, order.get("connect"))})
        sys.stdin.buffer.read(1)
    return 0


def _hear() -> Any:  # noqa: ANN401 - decoded JSON
    line = sys.stdin.buffer.readline(_LONGEST)
    return table(line.decode("utf-8", "replace")) if line else None


def _say(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


def _connect(token: str, targets: object) -> dict[str, Any]:
    rows = cast("list[Any]", targets) if isinstance(targets, list) else []
    asked = [(str(name), str(host), int(port)) for name, host, port in rows]
    found = side_by_side(lambda row: connect(token, row[1], row[2]), asked, _ROUND_LIMIT)
    late = {
        "error": f"no answer within {_ROUND_LIMIT:g} s",
        "local": "",
        "stage": "connect",
    }
    return {row[0]: answer or late for row, answer in zip(asked, found)}
