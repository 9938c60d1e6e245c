"""Text that our own code made is never read again: only the words of other
programs are, where a row here says whose.
"""

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONSOLE, AGENT = "console/rankdeck/", "agents/rankdeck_agent/"
READERS: Mapping[str, str] = {
    "agents/rankdeck_agent/collectors/base.py": "the kernel's /proc/meminfo",
    "agents/rankdeck_agent/collectors/cpu.py": "the kernel's /proc",
    "agents/rankdeck_agent/collectors/memory.py": "the kernel's /proc",
    "agents/rankdeck_agent/collectors/kernel_tables.py": "the kernel's /proc/meminfo and /proc/vmstat",
    "agents/rankdeck_agent/collectors/raid.py": "the kernel's md in /proc/mdstat and /sys",
    "agents/rankdeck_agent/collectors/rdma.py": "the kernel's RDMA drivers in /sys",
    "agents/rankdeck_agent/collectors/rdma_inventory.py": "the kernel's RDMA drivers in /sys",
    "agents/rankdeck_agent/collectors/sensors.py": "the firmware's name of the board",
    "agents/rankdeck_agent/job/activity.py": "the kernel's control groups and /proc",
    "agents/rankdeck_agent/job/evidence.py": "what a shell says of a program that a signal ended",
    "agents/rankdeck_agent/job/kernel_evidence.py": "the kernel log",
    "agents/rankdeck_agent/job/kill_counters.py": "control groups",
    "agents/rankdeck_agent/job/last_words.py": "programs' stack traces",
    "agents/rankdeck_agent/job/cgroups.py": "the kernel's control groups",
    "agents/rankdeck_agent/kernel_lines.py": "the kernel log",
    "agents/rankdeck_agent/kernel_records.py": "the kernel log",
    "agents/rankdeck_agent/xids.py": "the NVIDIA driver",
    "agents/rankdeck_agent/schedulers/kubernetes/kubectl_errors.py": "kubectl",
    "agents/rankdeck_agent/schedulers/kubernetes/kubectl_proxy.py": "kubectl",
    "agents/rankdeck_agent/schedulers/kubernetes/job_snapshot.py": "container runtimes, in a container's message; the controller of Jobs",
    "agents/rankdeck_agent/schedulers/kubernetes/objects.py": "mpirun's tags, our pod shim's tags (a format, beside all that a program prints), times, controllers' events",
    "agents/rankdeck_agent/schedulers/kubernetes/target.py": "the API server",
    "agents/rankdeck_agent/machine.py": "the kernel's /proc",
    "agents/rankdeck_agent/rules/mpi_daemon.py": "mpirun's command line of a daemon",
    "agents/rankdeck_agent/schedulers/slurm/attach.py": "srun's labels",
    "agents/rankdeck_agent/schedulers/slurm/ended_jobs.py": "Slurm's commands",
    "agents/rankdeck_agent/schedulers/slurm/commands.py": "Slurm's commands",
    "agents/rankdeck_agent/schedulers/slurm/submit.py": "sbatch",
    "agents/rankdeck_agent/schedulers/slurm/keeper.py": "Slurm's commands",
    "agents/rankdeck_agent/schedulers/slurm/verdict.py": "slurmstepd and srun",
    "agents/rankdeck_agent/text.py": "terminal escape sequences",
    "console/rankdeck/acceptance/gate.py": "the kernel's rate of a port, through the agent",
    "console/rankdeck/acceptance/output_text.py": "measuring programs, their launchers; what starts a rank prints on the same stream",
    "console/rankdeck/acceptance/recipes/fio.py": "fio",
    "console/rankdeck/acceptance/recipes/mpi.py": "OSU, IMB, HPCG, NPB",
    "console/rankdeck/acceptance/recipes/nccl.py": "nccl-tests",
    "console/rankdeck/acceptance/recipes/network.py": "iperf3, perftest, rping",
    "console/rankdeck/acceptance/recipes/node.py": "himeno, HPL, STREAM, sysbench, stress-ng, DCGM",
    "console/rankdeck/cli/parser.py": "argparse",
    "console/rankdeck/schedulers/slurm/allocations.py": "scontrol",
    "console/rankdeck/config/foreign_files.py": "files of other programs",
    "console/rankdeck/logs/search.py": "the lines of programs",
    "console/rankdeck/model/safe_text.py": "terminal escape sequences",
    "console/rankdeck/preflight/checks.py": "mpirun --version",
    "console/rankdeck/remote/identities.py": "key files",
    "console/rankdeck/remote/login_errors.py": "the program ssh",
    "console/rankdeck/remote/questions.py": "a server's question for a password",
    "console/rankdeck/remote/openssh.py": "the program ssh",
    "console/rankdeck/remote/ssh_questions.py": "questions of the program ssh",
    "console/rankdeck/remote/ssh_config.py": "`ssh -v -G`",
    "console/rankdeck/rules/arrivals.py": "the frames of Python's stacks",
    "console/rankdeck/rules/nccl_ras.py": "NCCL's RAS",
    "console/rankdeck/rules/ends.py": "the last lines of ranks and launchers",
    "console/rankdeck/rules/messages.py": "the lines of programs",
    "console/rankdeck/rules/secrets.py": "whatever may hold a secret",
    "console/rankdeck/rules/unhandled_exceptions.py": "the lines of programs",
    "console/rankdeck/telemetry/site_client.py": "paho-mqtt",
    "console/rankdeck/ui/screens/processes.py": "no text: the names of the screen's columns, compared with one another",
}
"""Module -> whose text it reads."""
OWN: Mapping[tuple[str, str], str] = {
    (
        "agents/rankdeck_agent/service.py",
        "__version__ = ",
    ): "the archive of another agent: it may be older than any field",
    ("agents/rankdeck_agent/service.py", '("password": )'): "a file that it shows, not decides by",
    (
        "console/rankdeck/acceptance/work.py",
        " side ",
    ): "marks between the outputs of programs on one stream",
    ("console/rankdeck/acceptance/work.py", " begin "): "the same",
    ("console/rankdeck/acceptance/work.py", " end "): "the same",
    (
        "console/rankdeck/rules/job_news.py",
        "(?<!Xid )",
    ): "events of the kernel log: which differ only in their device",
    # Not mended yet: each needs a value on the wire, in the history or in acceptance.db.
    (
        "console/rankdeck/acceptance/work.py",
        "it never began",
    ): "a kept measurement has a text and no kind of its failure",
    (
        "console/rankdeck/acceptance/values.py",
        "\\b(\\d{1,12}) retransmits",
    ): "a kept measurement has no count of them",
    (
        "console/rankdeck/ui/node_page.py",
        "GPU {}",
    ): "a reason's sentence begins with its device, which the row has already",
}
"""(module, how the sentence begins) -> why it reads what our own code wrote."""
METHODS = ("startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix", "split", "rsplit", "find", "index")  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """A place where a program looks for a sentence in a text."""

    module: str
    line: int
    sentence: str


def sentences(node: ast.expr, known: Mapping[str, str]) -> Iterator[str]:
    """The sentences in an expression: literals, and constants that
    are sentences or tables of them.
    """
    text = text_of(node)
    if " " in text.strip() and re.search("[A-Za-z]", text):
        yield text
    match node:
        case ast.Tuple(elts=some) | ast.List(elts=some) | ast.Set(elts=some):
            yield from (text for one in some for text in sentences(one, known))
        case ast.BinOp(left=left, right=right):
            yield from (text for one in (left, right) for text in sentences(one, known))
        case (
            ast.Subscript(value=inner) | ast.Call(func=ast.Attribute(value=inner, attr="partition"))
        ):
            yield from sentences(inner, known)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="values")):
            yield from filter(None, [known.get(f"{name}.values")])
        case ast.Name(id=name) if name in known:
            yield known[name]
        case _:
            return


def text_of(node: ast.expr) -> str:
    """The text of a literal, with {} for what an f-string fills in; "" for anything else."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Constant(value=bytes() as raw):
            return raw.decode("latin1")
        case ast.JoinedStr(values=parts):
            return "".join(text_of(one) or "{}" for one in parts)
        case _:
            return ""


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def path_of(module: str) -> Path | None:
    """The file of one of our modules."""
    below = ROOT / ("agents" if module.startswith("rankdeck_agent") else "console")
    found = below / module.replace(".", "/")
    return next((p for p in (found.with_suffix(".py"), found / "__init__.py") if p.is_file()), None)


@functools.cache
def known_in(path: Path, steps: int = 2) -> dict[str, str]:
    """The sentences that have a name in this module: name -> the first; its own,
    and what it imports, over so many steps.
    """
    known: dict[str, str] = {}
    for node in tree_of(path).body:
        if steps and isinstance(node, ast.ImportFrom) and (source := path_of(node.module or "")):
            theirs = known_in(source, steps - 1)
            for one in node.names:
                for end in ("", ".values"):
                    if f"{one.name}{end}" in theirs:
                        known[f"{one.asname or one.name}{end}"] = theirs[f"{one.name}{end}"]
        for name, value in assigned(node):
            table = isinstance(value, ast.Dict)
            texts = [
                text for v in (value.values if table else [value]) for text in sentences(v, known)
            ]
            if texts:
                known[f"{name}.values" if table else name] = texts[0]
    return known


def assigned(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The names that a statement gives values, each with its value."""
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield target.id, node.value
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            names = [one.id for one in target.elts if isinstance(one, ast.Name)]
            yield from zip(names, node.value.elts, strict=False)


def operands(node: ast.AST) -> list[ast.expr]:
    """What is looked for: the first argument of a method or of a
    function of `re`, or what is compared.
    """
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        return node.args[:1] if of_re or node.func.attr in METHODS else []
    if isinstance(node, ast.Compare):
        looks = isinstance(node.ops[0], ast.In | ast.NotIn | ast.Eq | ast.NotEq)
        return [node.left, *node.comparators] if looks else []
    return []


@functools.cache
def readings() -> tuple[Reading, ...]:
    found: list[Reading] = []
    for path in sorted(p for part in (CONSOLE, AGENT) for p in (ROOT / part).rglob("*.py")):
        known = known_in(path)
        for node in ast.walk(tree_of(path)):
            found += [
                Reading(str(path.relative_to(ROOT)), getattr(node, "lineno", 0), text)
                for operand in operands(node)
                for text in sentences(operand, known)
            ]
    return tuple(found)


def own_row(one: Reading) -> tuple[str, str] | None:
    """The row of OWN for this place."""
    return next((row for row in OWN if row[0] == one.module and one.sentence.startswith(row[1])), None)  # fmt: skip


def test_no_text_of_our_own_is_read_outside_of_the_rows_above() -> None:
    unlisted = [one for one in readings() if one.module not in READERS and own_row(one) is None]

    assert not unlisted, "a value with a kind decides, no sentence: " + "\n".join(
        map(str, unlisted)
    )


def test_every_row_is_still_of_use() -> None:
    modules = {one.module for one in readings()}
    used = {own_row(one) for one in readings()}

    assert READERS.keys() <= modules
    assert OWN.keys() <= used
    assert not READERS.keys() & {module for module, _ in OWN}


def test_a_sentence_is_seen_however_it_is_looked_for() -> None:
    known = {"GONE": "it is gone", "WHY.values": "nobody knows it"}
    seen = ("'it is gone' in a", "a.startswith(GONE)", "a == f'{n} is gone'", "re.search('is gone', a)",
            "a in WHY.values()", "a.partition(': is gone')", "a.startswith(('x', GONE))")  # fmt: skip
    not_seen = ("'gone' in a", "a == Kind.GONE", "a in WHY", "a.startswith('--')", "' ' in a")

    def found(text: str) -> bool:
        node = ast.parse(text, mode="eval").body
        return any(s for operand in operands(node) for s in sentences(operand, known))

    assert [text for text in seen if not found(text)] == []
    assert [text for text in not_seen if found(text)] == []
