"""The tokens of a plan that a launch fills in: a free port, and what nodes have in the job
network. Finds them, fills them in, or quotes them for a shell. No I/O.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from rankdeck.backends.shell_words import shell_word
from rankdeck.model.plan import Plan
from rankdeck.values import replace
from rankdeck_agent.wire import NodePlan

_TOKEN = re.compile(
    r"\$\{(RANKDECK_(?:PORT|ADDRESS(?:_\d{1,6})?|INTERFACE|DEVICES))(?:\+(\d{1,4}))?\}"
)
Fill = Callable[[str], str]


def plan_texts(nodes: Sequence[NodePlan]) -> list[str]:
    """The commands and the values of variables of these nodes, where tokens may stand."""
    return [text for node in nodes for text in _texts(node)]


def _texts(node: NodePlan) -> list[str]:
    texts = list(node.env.values())
    for process in node.processes:
        texts += (*process.argv, *process.env.values())
    return texts


def fill_plan(plan: Plan, fill: Fill) -> Plan:
    """The plan with `fill` done to all these texts and to its document."""
    nodes = tuple(_filled(node, fill) for node in plan.nodes)
    return replace(plan, nodes=nodes, text=fill(plan.text))


def _fill_table(table: Mapping[str, str], fill: Fill) -> dict[str, str]:
    return {key: fill(value) for key, value in table.items()}


def _filled(node: NodePlan, fill: Fill) -> NodePlan:
    processes = tuple(
        replace(
            process,
            argv=tuple(map(fill, process.argv)),
            env=_fill_table(process.env, fill),
        )
        for process in node.processes
    )
    return replace(node, processes=processes, env=_fill_table(node.env, fill))


def word_with_tokens(word: str) -> str:
    """`word` quoted for sh; the run folder and the tokens become variables that sh expands."""
    parts: list[str] = []
    end = 0
    for mark in _TOKEN.finditer(word):
        value = f"$(({mark[1]} + {mark[2]}))" if mark[2] else f"${mark[1]}"
        parts += [word[end : mark.start()], value]
        end = mark.end()
    if not parts:
        return shell_word(word)
    quoted = [shell_word(text) if text else "" for text in (*parts[::2], word[end:])]
    values = [f'"{text}"' for text in (*parts[1::2], "")]
    return "".join(text + value for text, value in zip(quoted, values, strict=True)).removesuffix(
        '""'
    )
