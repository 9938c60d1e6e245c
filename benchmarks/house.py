"""The size of the code, and the functions through which a line of output, a
sample and a cancel pass: `make house`.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "rankdeck": ROOT / "console" / "rankdeck",
    "rankdeck_agent": ROOT / "agents" / "rankdeck_agent",
    "benchmarks": ROOT / "benchmarks",
}
Walk = Sequence[Sequence[str]]
"""Stretches, each of which ends at a disk, a queue, a wire, a clock or a table of functions.

A stretch is a list of functions, "file:name" below `console/rankdeck` or `agents/rankdeck_agent`;
each but the first is called by one before it, also of an earlier stretch.
"""
LINE: Walk = (
    (
        "agent/job/supervisor.py:Supervisor._copy_output",
        "agent/job/supervisor.py:Supervisor._pump",
        "agent/job/logs.py:Stream.pump",
        "agent/job/logs.py:Stream._write",
    ),
    (
        "agent/job/follow.py:stream_frames",
        "agent/job/follow.py:NodeFollower.round",
        "agent/job/follow.py:NodeFollower._data",
        "agent/job/logs.py:LogReader.read",
        "agent/job/logs.py:data_frame",
        "agent/job/logs.py:write_to_stdout",
    ),
    ("console/remote/shell.py:Receiver.data_received",),
    (
        "console/backends/follow.py:SshFollower._feed",
        "console/backends/node_stream.py:NodeStream.feed",
        "console/backends/frames.py:FrameParser.feed",
        "console/backends/node_stream.py:NodeStream._read",
        "console/backends/node_stream.py:NodeStream._chunk",
    ),
    ("console/backends/follow.py:SshFollower._events",),
    (
        "console/following.py:Following._pump",
        "console/state/jobs.py:Jobs.apply",
        "console/state/lines.py:RankLog.add",
        "console/state/lines.py:ReadPositions.take",
        "console/state/lines.py:RankLog._split",
    ),
    (
        "console/ui/screens/job.py:JobScreen.tick",
        "console/ui/views/wall.py:WallView.show",
        "console/ui/views/wall.py:LogWall.show",
        "console/ui/views/wall.py:newest_lines",
    ),
    (
        "console/ui/widgets/canvas.py:Canvas.painted",
        "console/ui/views/wall.py:LogWall.line",
        "console/ui/views/wall.py:LogWall._pane_line",
    ),
)
SAMPLE: Walk = (
    (
        "agent/sampler.py:Worker._run",
        "agent/collectors/cpu.py:CpuCollector.collect",
        "agent/collectors/cpu.py:CpuCollector._stat",
        "agent/collectors/base.py:Reading.put",
    ),
    (
        "agent/telemetry.py:publish_samples",
        "agent/sampler.py:Sampler.take",
        "agent/sampler.py:Sampler._join",
        "agent/sampler.py:NodeJudge.judge",
        "agent/rules/judge.py:assess_node",
        "agent/rules/thresholds.py:apply_rules",
        "agent/telemetry.py:Publisher.publish",
        "agent/wire/__init__.py:encode_message",
    ),
    ("console/telemetry/client_sockets.py:SocketReader._read",),
    (
        "console/telemetry/private_broker.py:Connection.read",
        "console/telemetry/private_broker.py:Connection._handle",
        "console/telemetry/private_broker.py:Connection._on_publish",
    ),
    (
        "console/telemetry/fleet_updater.py:FleetUpdater.take",
        "agent/wire/__init__.py:decode_message",
        "console/state/fleet.py:Fleet.apply",
        "console/state/node.py:NodeState.take_sample",
        "console/state/node.py:NodeState._take_numbers",
        "console/state/sanitize.py:are_sane",
        "console/state/metric_values.py:MetricValues.take",
    ),
    (
        "console/session.py:Session._keep_time",
        "console/state/fleet.py:Fleet.take_changes",
        "console/state/node.py:NodeState.judge",
        "console/state/judgement.py:NodeJudgement.judge",
        "agent/rules/judge.py:combine_health",
    ),
    ("console/ui/screens/fleet.py:FleetScreen.tick", "console/ui/widgets/vtable.py:VTable.touch"),
    ("console/ui/widgets/vtable.py:VTable.line",),
    ("console/ui/snapshots.py:PresentFleet.cell",),
)
CANCEL: Walk = (
    (
        "console/ui/screens/job.py:JobScreen.action_cancel",
        "console/ui/operations.py:ask_cancel",
        "console/job_control.py:JobControl.cancel",
        "console/state/jobs.py:Jobs.cancelling",
        "console/backends/ssh.py:SshBackend.cancel",
        "console/remote/shell.py:on_each",
        "console/backends/ssh.py:SshBackend._cancel_node",
        "console/remote/agent.py:Agents.call",
        "console/remote/shell.py:run_program",
        "console/remote/ssh.py:Connections.open",
    ),
    ("agent/job/control_cli.py:main",),
    (
        "agent/job/cancel.py:end_node_processes",
        "agent/job/cancel.py:_end",
        "agent/job/cancel.py:_Search.look",
        "agent/job/processes.py:find_job_processes",
        "agent/job/processes.py:signal_processes",
        "agent/job/cancel.py:_Search.wait",
        "agent/job/cancel.py:_force",
        "agent/job/cancel.py:_Search.answer",
        "agent/job/processes.py:describe_left_process",
    ),
    (
        "console/backends/ssh.py:left_there",
        "console/state/jobs.py:Jobs.cancelled",
        "console/state/job_recorder.py:JobRecorder.save",
        "console/state/history.py:History.save",
    ),
)
WALKS: Mapping[str, Walk] = {"a line": LINE, "a sample": SAMPLE, "a cancel": CANCEL}


def place(hop: str) -> tuple[Path, str]:
    """The file and the name of a function of a walk."""
    where, _, name = hop.partition(":")
    program, _, path = where.partition("/")
    return PACKAGES["rankdeck" if program == "console" else "rankdeck_agent"] / path, name


def modules() -> dict[str, Path]:
    """Every module of console, agent and benchmarks by its name."""
    found: dict[str, Path] = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


def imports(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Our modules that this one imports, also those for types only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [one if one in known else node.module for one in inside]
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        else:
            continue
        yield from (one for one in found if one in known and one != name)


def in_circles(arrows: Mapping[str, set[str]]) -> set[str]:
    """The modules in import cycles, and those that import a module of a cycle."""
    left = {name: set(targets) for name, targets in arrows.items()}
    while ends := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in ends:
            del left[name]
    return set(left)


def figures() -> dict[str, str]:
    """Name -> printed figure."""
    known = modules()
    lines = {name: len(path.read_text().splitlines()) for name, path in known.items()}
    of = defaultdict[str, list[int]](list)
    for name, count in lines.items():
        of[name.partition(".")[0]].append(count)
    circle = in_circles({name: set(imports(name, path, known)) for name, path in known.items()})
    made = {
        f"{package}: modules, lines, median": f"{len(all_of)}, {sum(all_of):,}, {median(all_of):.0f}"
        for package, all_of in of.items()
    }
    made["all: modules, lines"] = f"{len(lines)}, {sum(lines.values()):,}"
    made["modules in a circle of imports"] = str(len(circle))
    words = len((ROOT / "ARCHITECTURE.md").read_text().split())
    made["words of ARCHITECTURE.md"] = f"{words:,}"
    for name, walk in WALKS.items():
        hops = [hop for stretch in walk for hop in stretch]
        made[f"{name}: functions, files"] = f"{len(hops)}, {len({place(hop)[0] for hop in hops})}"
    return made


def main(_: Sequence[str] = ()) -> int:
    """Print all figures, one per line."""
    for name, value in figures().items():
        print(f"{name:<44} {value}")
    return 0
