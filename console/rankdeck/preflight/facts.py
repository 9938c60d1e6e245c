"""Facts that nodes report about themselves, fully checked, and the
findings that checks derive from them.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network, ip_address, ip_network
from pathlib import Path
from typing import Any, TypeVar

import yaml

from rankdeck.backends.launchers import Placement, RankPlace
from rankdeck.config.document import compose_document, parse_document, read_text, write_on_one_line
from rankdeck.images.bring import ImageAt, image_rows
from rankdeck.model.health import Health, Level
from rankdeck.model.job import JobSpec, Launch
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import clean_line
from rankdeck.model.text import as_list, as_table, as_tables, is_table
from rankdeck.runtimes import find_runtime
from rankdeck_agent.wire import RUN_TOKEN

TellFinding = Callable[["Finding"], None]
"""Called with each finding as it is made."""
Step = Callable[[int, int, str], None]
"""Called with the number of steps done, the number of all steps, and what is being done."""


def tell_nobody(_: "Finding") -> None:
    """Do nothing: for callers that wait for all findings."""


def no_step(_done: int, _of: int, _doing: str) -> None:
    """Do nothing: for callers that show no progress."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the job file, such as `mpi.flavour` -> openmpi4; None removes the key."""

    key: str
    value: str | int | list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a check. BAD: the job would fail; UNKNOWN: it could not be checked."""

    check: str
    level: Level
    text: str
    node: str = ""
    """A node set; "" if the finding concerns the whole job."""
    fix: str = ""
    """What to do, as a sentence."""
    patch: tuple[Change, ...] = ()
    """`fix` as changes of the job file, if it can be done there."""


def make_finding(
    level: Level, check: str, node: str, text: str, fix: str = "", *patch: Change
) -> Finding:
    """Make a finding, written in one line."""
    return Finding(check=check, level=level, text=text, node=node, fix=fix, patch=patch)


def patch_job_file(file: Path, findings: Iterable[Finding]) -> str:
    """The text of the job file with all changes of these findings; raises ConfigError."""
    text = read_text(file)
    parse_document(file, text)  # it may have changed since the job was read
    for finding in findings:
        for change in finding.patch:
            text = apply_change(text, change)
    return text


def apply_change(text: str, change: Change) -> str:
    """The text with one change; missing tables and lists on the path are created."""
    root = compose_document(text)
    if not isinstance(root, yaml.MappingNode):
        return text
    *way, last = change.key.split(".")
    table = root
    for index, key in enumerate(way):
        _, value = _entry(table, key)
        if not isinstance(value, yaml.MappingNode):
            return _built(text, table, [*way[index:], last], change, value)
        table = value
    name, value = _entry(table, last)
    if name is not None and value is not None and change.value is None:
        return _without(text, table, name, value)
    return _built(text, table, [last], change, value)


def _entry(table: yaml.MappingNode, key: str) -> tuple[yaml.Node, yaml.Node] | tuple[None, None]:
    for name, value in table.value:
        if name.value == key:
            return name, value
    return None, None


def _built(
    text: str, table: yaml.MappingNode, keys: list[str], change: Change, value: yaml.Node | None
) -> str:
    """The text with the value in place of the old one, or as a new
    entry at the end of the table.
    """
    if change.value is None:
        return text
    written = write_on_one_line(change.value)
    for key in reversed(keys[1:]):
        written = f"{{{key}: {written}}}"
    if value is not None:
        end = _end(text, value)
        return text[: value.start_mark.index] + written + text[end:]
    if table.flow_style:
        end = table.end_mark.index - 1
        comma = ", " if table.value else ""
        return f"{text[:end].rstrip()}{comma}{keys[0]}: {written}{text[end:]}"
    end = _end(text, table)
    indent = " " * table.start_mark.column
    return f"{text[:end]}\n{indent}{keys[0]}: {written}{text[end:]}"


def _without(text: str, table: yaml.MappingNode, name: yaml.Node, value: yaml.Node) -> str:
    start, end = name.start_mark.index, _end(text, value)
    if table.flow_style:
        rest = re.sub(r"\A\s*,\s*", "", text[end:])
        before = text[:start]
        return (before if rest != text[end:] else before.rstrip().removesuffix(",")) + rest
    begin = text.rfind("\n", 0, start) + 1
    after = text.find("\n", end)
    return text[:begin] + (text[after + 1 :] if after >= 0 else "")


def _end(text: str, node: yaml.Node) -> int:
    """Where the text of a YAML node ends: the end mark of a block is at
    the next token, after blank lines.
    """
    end = node.end_mark.index
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        lines = text[node.start_mark.index : end].split("\n")
        while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
            lines.pop()
        return node.start_mark.index + len("\n".join(lines).rstrip())
    return end


Raw = Mapping[str, Any]
_MOST = 4096


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface and its IPv4 address."""

    name: str
    up: bool
    mtu: int
    address: IPv4Interface | None


@dataclass(frozen=True, slots=True)
class Program:
    """A command on a node; `path` is "" if it is missing, `digest` is "" if it was not read."""

    path: str
    size: int = 0
    digest: str = ""
    refused: str = ""
    """The path of a file that is there, but that this user may not run (a Python file: read)."""


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """A file system as this user sees it, in bytes; `free` is None if it could not be read."""

    path: str
    total: int | None
    free: int | None
    inodes: int | None
    writable: bool


@dataclass(frozen=True, slots=True)
class Name:
    """What a host name resolves to on a node; `error` is "" if it resolves."""

    addresses: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that the driver shows: their number, uncorrected errors
    of each, processes that use them.
    """

    error: str = ""
    names: tuple[str, ...] = ()
    uncorrected: tuple[int | None, ...] = ()
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The facts of one node."""

    base: str
    base_there: bool
    programs: Mapping[str, Program]
    modules: Mapping[str, bool]
    """`PYTHON MODULE` -> whether the module is there, as far as known."""
    versions: Mapping[str, str]
    image: ImageAt | None
    names: Mapping[str, Name]
    own: Name
    own_name: str
    gpus: Gpus | None
    machine: str
    cores: int
    memlock: int | None
    """Limit on locked memory in bytes; None: unlimited."""
    interfaces: tuple[Interface, ...]
    spaces: Mapping[str, DiskSpace]
    userns: bool
    fuse: bool
    logout: bool
    """Whether processes are ended with the login in which they were started."""
    port_trouble: str
    skew: float
    """Seconds by which the clock is certainly off; 0 if the difference
    may be due to the time of asking.
    """
    listen: int

    def has(self, program: str) -> bool | None:
        """Whether the node has this command; None if it was not asked."""
        return bool(self.programs[program].path) if program in self.programs else None


def node_facts(raw: Raw, asked: float, answered: float) -> NodeFacts:
    """The facts in an answer; `asked` and `heard` are when it was
    requested and received, in epoch seconds.
    """
    images = image_rows(raw.get("images"))
    own, base = _table(raw, "own"), _table(raw, "base")
    return NodeFacts(
        base=clean_line(base.get("path"), 400),
        base_there=base.get("there") is True,
        programs={k: _program(v) for k, v in _tables(raw, "programs")},
        modules={k: v is True for k, v in list(_table(raw, "modules").items())[:_MOST]},
        versions={clean_line(k): clean_line(v) for k, v in _table(raw, "versions").items()},
        image=images[0] if images else None,
        names={k: _name(v) for k, v in _tables(raw, "names")},
        own=_name(own),
        own_name=clean_line(own.get("name"), 64),
        gpus=_gpus(_table(raw, "gpus")) if "gpus" in raw else None,
        machine=clean_line(raw.get("machine"), 32),
        cores=_count(raw.get("cores")) or 0,
        memlock=_count(raw.get("memlock")),
        interfaces=tuple(_interface(row) for row in _rows(raw, "interfaces")),
        spaces={k: _space(v) for k, v in _tables(raw, "spaces")},
        userns=raw.get("userns") == "yes",
        fuse=raw.get("fuse") is True,
        logout=raw.get("logout") is True,
        port_trouble=clean_line(raw.get("port")),
        skew=_skew(raw.get("at"), asked, answered),
        listen=_count(raw.get("listen")) or 0,
    )


def _table(raw: Raw, key: str) -> Raw:
    return as_table(raw.get(key))


def _tables(raw: Raw, key: str) -> list[tuple[str, Raw]]:
    rows = list(_table(raw, key).items())[:_MOST]
    return [(name, row) for name, row in rows if is_table(row)]


def _rows(raw: Raw, key: str) -> Sequence[Raw]:
    return as_tables(raw.get(key), _MOST)


def _count(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:18])
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def _program(raw: Raw) -> Program:
    size = _count(raw.get("size")) or 0
    refused = clean_line(raw.get("refused"), 400)
    return Program(
        clean_line(raw.get("path"), 400), size, clean_line(raw.get("digest"), 80), refused
    )


def _name(raw: Raw) -> Name:
    addresses = as_list(raw.get("addresses"), 8)
    return Name(tuple(clean_line(one, 64) for one in addresses), clean_line(raw.get("error")))


def _space(raw: Raw) -> DiskSpace:
    total, free, inodes = (_count(raw.get(key)) for key in ("total", "free", "inodes"))
    path, writable = clean_line(raw.get("path"), 400), raw.get("writable") is True
    return DiskSpace(path, total, free, inodes, writable)


def _interface(raw: Raw) -> Interface:
    address = raw.get("address")
    try:
        found = IPv4Interface(str(address)[:40]) if address else None
    except ValueError:
        found = None
    mtu = _count(raw.get("mtu")) or 0
    return Interface(clean_line(raw.get("name"), 32), raw.get("up") is True, mtu, found)


def _gpus(raw: Raw) -> Gpus:
    rows, users = _rows(raw, "rows"), _rows(raw, "users")
    errors = (row.get("ecc.errors.uncorrected.volatile.total") for row in rows)
    return Gpus(
        error=clean_line(raw.get("error")),
        names=tuple(clean_line(row.get("name"), 64) for row in rows),
        uncorrected=tuple(_count(clean_line(error).strip()) for error in errors),
        users=tuple(
            f"pid {clean_line(u.get('pid'), 12)} {clean_line(u.get('process_name'), 60)}"
            for u in users[:64]
        ),
    )


def _skew(at: object, asked: float, answered: float) -> float:
    """How many seconds the node's time is outside of the interval in which it was asked."""
    if not isinstance(at, int | float) or not 0 <= at < 1e12:
        return 0.0
    return max(0.0, float(at) - answered) + min(0.0, float(at) - asked)


K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """One job on its nodes. Nodes that did not answer are not in `facts`."""

    layout: Placement
    facts: Mapping[str, NodeFacts]
    health: Mapping[str, Health]
    """Health from telemetry; a node that is missing was not judged."""
    image_here: int | None = None
    """Size of the image on the console's machine in bytes; None: it is not there."""
    programs_here: frozenset[str] = frozenset()
    """Those of the job's programs that are files on the console's machine."""

    @property
    def spec(self) -> JobSpec:
        return self.layout.spec

    @property
    def answered(self) -> tuple[tuple[RankPlace, NodeFacts], ...]:
        """The places of ranks whose nodes answered, with the facts, in rank order."""
        places = self.layout.places
        return tuple((p, self.facts[p.node.name]) for p in places if p.node.name in self.facts)

    @property
    def network(self) -> IPv4Network | None:
        """The job network of the cluster file."""
        text = self.layout.cluster.network
        net = ip_network(text, strict=False) if text else None
        return net if isinstance(net, IPv4Network) else None


def group_nodes(pairs: Iterable[tuple[str, K | None]]) -> dict[K, str]:
    """Value -> node set with this value, from (node, value); None values are left out."""
    groups: dict[K, list[str]] = {}
    for node, value in pairs:
        if value is not None:
            groups.setdefault(value, []).append(node)
    return {value: fold_nodes(nodes) for value, nodes in groups.items()}


def findings_for_each(
    case: JobContext,
    level: Level,
    check: str,
    tell: Callable[[RankPlace, NodeFacts], str | None],
    fix: str = "",
    *patch: Change,
) -> Iterable[Finding]:
    """A finding for each sentence that `tell` returns (None: nothing); nodes
    with the same sentence share a finding.
    """
    sentences = group_nodes((p.node.name, tell(p, facts)) for p, facts in case.answered)
    return [
        make_finding(level, check, nodes, text, fix, *patch) for text, nodes in sentences.items()
    ]


def programs_of(spec: JobSpec) -> tuple[str, ...]:
    """Commands that must be on every node: the launcher, and the
    program if it is not in an image.
    """
    launcher = {Launch.MPI: spec.mpi.path, Launch.TORCHRUN: spec.torch.path}
    # If there is an image, torchrun is in it.
    outside = spec.launch is Launch.MPI or spec.container is None
    names = [launcher.get(spec.launch, "") if outside else ""]
    names += (
        own_files(spec)
        if spec.container is None
        else [find_runtime(spec.container.runtime).program]
    )
    return tuple(name for name in dict.fromkeys(names) if name)


def modules_of(spec: JobSpec) -> tuple[str, ...]:
    """`python3 numpy`: top-level modules that the job's own Python programs
    import, if they do not run in an image.
    """
    python = spec.command[0]
    boxed = spec.container is not None
    if boxed or not python.rpartition("/")[2].startswith("python") or "PYTHONPATH" in spec.env:
        return ()
    own = {name.removesuffix(".py") for name in spec.files}
    used = {
        name for file, text in spec.files.items() if file.endswith(".py") for name in _imports(text)
    }
    return tuple(f"{python} {name}" for name in sorted(used - own - sys.stdlib_module_names))


def _imports(text: str) -> Iterable[str]:
    """Top-level modules that this program needs; none if it is not Python."""
    try:
        lines = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for line in lines:
        if isinstance(line, ast.Import):
            yield from (one.name.partition(".")[0] for one in line.names)
        elif isinstance(line, ast.ImportFrom) and line.module and not line.level:
            yield line.module.partition(".")[0]


def own_files(spec: JobSpec) -> list[str]:
    """The program, and the script after an interpreter, unless the job brings them along."""
    words = [spec.command[0]]
    words += [word for word in spec.command[1:3] if word.endswith(".py")][:1]
    return [word for word in words if RUN_TOKEN not in word]


def needs_names(spec: JobSpec) -> bool:
    """Whether ranks find other nodes by the host names of the cluster file."""
    return spec.launch in (Launch.TORCHRUN, Launch.TENSORFLOW)


def is_address(host: str) -> bool:
    """Whether a host is an IP address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def job_interface(case: JobContext, place: RankPlace, facts: NodeFacts) -> Interface | None:
    """The interface that the job will use on this node: by name, or
    else by network, or else by address.
    """
    named = place.node.interface
    for interface in facts.interfaces:
        address = interface.address
        if named:
            if interface.name == named:
                return interface
        elif address is not None:
            if case.network is not None and address.ip in case.network:
                return interface
            if case.network is None and str(address.ip) == place.node.host:
                return interface
    return None
