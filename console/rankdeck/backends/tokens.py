"""Placeholders in plans (run folder, port) for what is known only on the node, and quoting for sh."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankdeck.model.job import Plan
from rankdeck_agent.wire import RUN_TOKEN, RUN_VARIABLE, NodeFile, NodePlan, ProcessPlan

SHIM = f"{RUN_TOKEN}/rank-shim"
PORT_TOKEN = "${RANKDECK_PORT}"
_PORT = re.compile(r"\$\{RANKDECK_PORT(?:\+(\d{1,4}))?\}")


def port_token(offset: int = 0) -> str:
    """`${RANKDECK_PORT}`, or the port `offset` above it."""
    return f"${{RANKDECK_PORT+{offset}}}" if offset else PORT_TOKEN


def needs_port(nodes: Sequence[NodePlan]) -> bool:
    """True where a command or a variable of the plan waits for the free port."""
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


def shell_word(word: str) -> str:
    """`word` quoted for sh, but for the run folder, which sh fills in."""
    parts = word.split(RUN_TOKEN)
    quoted = [shlex.quote(part) if part else "" for part in parts]
    return f'"${RUN_VARIABLE}"'.join(quoted) if len(parts) > 1 else shlex.quote(word)


def shell_line(words: Sequence[str]) -> str:
    """A command in a form that can be pasted into a shell."""
    return " ".join(shell_word(word) for word in words)


def folder_word(path: str) -> str:
    """A folder quoted for sh; `~` is the home folder, as the supervisor takes it."""
    home, slash, rest = path.partition("/")
    if home != "~":
        return shell_word(path)
    return '"$HOME"' + (shell_word(slash + rest) if rest else "")


def at_run_time(argv: Sequence[str]) -> tuple[str, ...]:
    """A command that finds the run folder where it runs: it differs from node to node."""
    if not any(RUN_TOKEN in word for word in argv):
        return tuple(argv)
    return ("sh", "-c", f"exec {shell_line(argv)}")


def process_line(process: ProcessPlan) -> str:
    """The command of a process with its variables, its folder and, for a rank, the shim."""
    variables = [f"{key}={value}" for key, value in process.env.items()]
    shim = [] if process.rank is None else [SHIM]
    words = [*(["env", *variables] if variables else []), *shim, *process.argv]
    line = " ".join(_with_port_variable(word) for word in words)
    return f"cd {folder_word(process.cwd)} && {line}" if process.cwd else line


def _with_port_variable(word: str) -> str:
    """`word` quoted for sh, but for the run folder and the port."""
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


def file_lines(file: NodeFile) -> list[str]:
    """Shell lines that write a file; the run folder in its text is filled in by sed."""
    # Only a line feed ends a line of sh: all else is part of the text.
    rows = file.text.removesuffix("\n").split("\n") if file.text else []
    end = "EOF"
    while end in rows:
        end += "_"
    path = shell_word(file.path)
    fill = f'sed "s|\\{RUN_TOKEN}|${RUN_VARIABLE}|g"'
    write = f"{fill if RUN_TOKEN in file.text else 'cat'} > {path} <<'{end}'"
    mode = [f"chmod {file.mode:o} {path}"] if file.mode != 0o644 else []
    return [write, *rows, end, *mode]


def whole_file(file: NodeFile) -> list[str]:
    """Shell lines that write a file byte for byte: text without an end of line gets none."""
    lines = file_lines(file)
    if not file.text or file.text.endswith("\n"):
        return lines
    path, part = shell_word(file.path), shell_word(f"{file.path}.new")
    trim = f'printf %s "$(cat {path})" > {part} && mv {part} {path}'
    mode = [f"chmod {file.mode:o} {path}"] if file.mode != 0o644 else []
    return [*lines, trim, *mode]
