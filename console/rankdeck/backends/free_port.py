"""The token of a free TCP port in a plan: finds it, or fills it in. No I/O."""

import re
from collections.abc import Sequence

from rankdeck.backends.plan_tokens import fill_plan, plan_texts
from rankdeck.model.plan import Plan
from rankdeck.values import replace
from rankdeck_agent.wire import NodePlan

PORT_TOKEN = "${RANKDECK_PORT}"
_PORT = re.compile(r"\$\{RANKDECK_PORT(?:\+(\d{1,4}))?\}")


def port_token(offset: int = 0) -> str:
    """`${RANKDECK_PORT}`, or the port `offset` above it."""
    return f"${{RANKDECK_PORT+{offset}}}" if offset else PORT_TOKEN


def needs_port(nodes: Sequence[NodePlan]) -> bool:
    """True if a command or an environment variable of the plan
    contains the token of the free port.
    """
    return any(_PORT.search(text) for text in plan_texts(nodes))


def with_port(plan: Plan, port: int) -> Plan:
    """The plan with the port that was found on `port_on` filled in."""

    def fill(text: str) -> str:
        return _PORT.sub(lambda match: str(port + int(match[1] or 0)), text)

    return replace(fill_plan(plan, fill), port_on="")
