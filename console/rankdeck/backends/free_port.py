"""The token of a free TCP port in a plan: finds it, fills it in, or quotes it for a shell.

No I/O.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankdeck.backends.shell_words import shell_word
from rankdeck.model.job import Plan
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
    return any(_PORT.search(text) for node in nodes for text in _texts(node))


def _texts(node: NodePlan) -> list[str]:
    texts = list(node.env.values())
    for process in node.processes:
        texts += (*process.argv, *process.env.values())
    return texts


def with_port(plan: Plan, port: int) -> Plan:
    """The plan with the port that was found on `port_on` filled in."""
    nodes = tuple(_filled(node, port) for node in plan.nodes)
    return replace(plan, nodes=nodes, text=_fill(plan.text, port), port_on="")


def _fill(text: str, port: int) -> str:
    return _PORT.sub(lambda match: str(port + int(match[1] or 0)), text)


def _fill_table(table: Mapping[str, str], port: int) -> dict[str, str]:
    return {key: _fill(value, port) for key, value in table.items()}


def _filled(node: NodePlan, port: int) -> NodePlan:
    processes = tuple(
        replace(
            process,
            argv=tuple(_fill(word, port) for word in process.argv),
            env=_fill_table(process.env, port),
        )
        for process in node.processes
    )
    return replace(node, processes=processes, env=_fill_table(node.env, port))


def word_with_port(word: str) -> str:
    """`word` quoted for sh; the run folder and the port become variables that sh expands."""
    parts: list[str] = []
    end = 0
    for mark in _PORT.finditer(word):
        offset = f"$((RANKDECK_PORT + {mark[1]}))" if mark[1] else "$RANKDECK_PORT"
        parts += [word[end : mark.start()], offset]
        end = mark.end()
    if not parts:
        return shell_word(word)
    quoted = [shell_word(text) if text else "" for text in (*parts[::2], word[end:])]
    ports = [f'"{text}"' for text in (*parts[1::2], "")]
    return "".join(text + port for text, port in zip(quoted, ports, strict=True)).removesuffix('""')
