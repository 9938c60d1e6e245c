"""What a hostile node could send, as hypothesis strategies: frames, events, samples and answers."""

import json

from hypothesis import strategies as st

from rankdeck_agent.rules.levels import SUMMARY

odd_text = st.text(st.characters(), max_size=300) | st.sampled_from(
    ["", "\x1b[2J", "\x9b31m", "\u202e", "\ud800", "a" * 5000, "[bold]", "n1", "0", "../x"]
)  # fmt: skip
"""Text with terminal control codes, or that is too long or cannot be encoded."""
numbers = (
    st.integers()
    | st.floats()
    | st.sampled_from([0, 1, -1, 1 << 31, 1 << 53, 1 << 63, 1 << 70, 10**30, 1e308, 1e13, -(1 << 64), 10**400])
)  # fmt: skip
"""Numbers beyond any range, NaN and infinities among them."""
deep = st.integers(1, 2000).map(
    lambda depth: json.loads("[" * min(depth, 900) + "]" * min(depth, 900))
)
anything = st.recursive(
    st.none() | st.booleans() | numbers | odd_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(odd_text, inner, max_size=4),
    max_leaves=8,
) | deep  # fmt: skip
"""Any value that JSON, as Python writes it, can hold."""


def table_with(*keys, **known):
    """A JSON object with some of these keys, each mostly with a wrong
    value; of `known` also right ones.
    """
    wrong = dict.fromkeys(keys, anything)
    return st.fixed_dictionaries({}, optional=wrong | {k: v | anything for k, v in known.items()})


EVENT_KINDS = (
    "ready",
    "started",
    "exited",
    "process",
    "ended",
    "spawn",
    "answered",
    "trouble",
    "cancel",
    "closed",
)
FRAME_KINDS = (*EVENT_KINDS, "data", "tail", "activity", "now", "from")
small = st.integers(-1, 5)
frames = st.builds(
    lambda kind, rest: {"kind": kind, **rest},
    st.sampled_from(FRAME_KINDS) | anything,
    table_with(
        "pid", "boot", "addresses", "code", "signal", "said", "kernel", "activity", "name", "id", "command",
        "ok", "text", "gone", "running", "grace", "by", "lines", "last", "rows", "closing", "watch",
        seq=st.integers(0, 50), at=st.floats(0, 2e9), rank=small, r=small, s=st.sampled_from(["out", "err"]),
        o=st.integers(0, 1000), n=st.integers(0, 50), host=st.sampled_from(["n1", "n2", "zz"]),
    ),
)  # fmt: skip
"""One head of `job follow`; a data frame's bytes are whatever follows."""
checks = (
    st.sampled_from(["disk.full", "gpu.held", "node.silent", "node.more", "kernel.xid"]) | odd_text
)
reasons = st.tuples(
    checks, st.integers(1, 3), st.sampled_from(["", "0", "/"]) | odd_text, st.none() | numbers,
    odd_text | st.just("/ is 99% full \u00b7 jobs fail when they write \u00b7 free space"),
).map(list)  # fmt: skip
metrics = st.sampled_from(sorted(SUMMARY)) | odd_text
tables = st.dictionaries(metrics, numbers, max_size=6)
healths = table_with(
    "more", "failed", "expect", "limits", "grown",
    at=st.floats(-1e10, 1e10), level=st.integers(0, 3), heartbeat=st.floats(0.1, 100),
    applies=st.integers(0, 1 << 53), judged=st.integers(0, 1 << 53),
    reasons=st.lists(reasons, max_size=5), numbers=tables, failed=st.lists(metrics, max_size=4),
    grown=st.dictionaries(odd_text, tables, max_size=3), expect=odd_text, limits=odd_text, more=small,
)  # fmt: skip
samples = table_with("seq", "at", "values", "absent", "failed", "more", report=healths)
hellos = table_with(
    "node",
    "up",
    "at",
    "boot",
    "agent",
    "period",
    "inventory",
    "simulated",
    "installed",
    "heartbeat",
)
events = table_with("at", "level", "check", "text", "device")
"""Bodies of telemetry messages."""
answers = table_with(
    "ok", "error", "left", "ended", "ranks", "spy", "ras", "rows", "why", "notes", "offset", "pid",
    left=st.lists(table_with("pid", "command"), max_size=3),
    ranks=st.lists(table_with("rank", "pid", "state", "cpu", "threads", "stacks", "kernel", rank=small), max_size=3),
    rows=st.lists(table_with("kind", "path", "digest", "size", "free", "mount", "error"), max_size=3),
)  # fmt: skip
"""The one line of JSON with which a verb of the agent answers."""
facts = table_with(
    "base", "programs", "versions", "images", "names", "own", "gpus", "machine", "cores", "memlock",
    "interfaces", "spaces", "userns", "fuse", "port", "at", "listen",
    interfaces=st.lists(table_with("name", "up", "mtu", "address"), max_size=3),
    gpus=table_with("error", "rows", "users"),
    images=st.lists(table_with("kind", "path", "digest", "size", "free"), max_size=2),
)  # fmt: skip
"""Answers of `agent.pyz preflight`."""
NODE_FIELDS = (
    "state", "also", "reason", "by", "since", "partitions", "features", "gres", "gres_used", "cpus", "cpus_used", "memory",
    "memory_used", "jobs", "conditions", "taints", "devices", "unschedulable", "address", "kubelet",
)  # fmt: skip
JOB_FIELDS = (
    "kind", "uid", "label", "owner", "created", "state", "why", "pods", "ranks", "parts", "ours", "spec", "shown", "user", "cpus",
    "count", "start", "end", "submitted", "limit", "reason", "text", "stuck", "nodes", "do", "partition", "account", "qos",
    "gpus", "memory", "priority", "components",
)  # fmt: skip
"""Rows about nodes and jobs in which the agent passes on a scheduler's answers."""
_cells = odd_text | st.sampled_from(
    ["", "1", "4711", "4711_[0-9]", "4711_3", "3/1/0/4", "n1", "n[1-2]", "idle*", "RUNNING", "PENDING", "FAILED", "7:0",
     "NONE", "1795371818", "1-02:03:04", "gpu:a100:4", "\u00b2", "\u0663", "0-9:0", "9" * 30]
)  # fmt: skip


def slurm_line(cells):
    """The cells as `sacct` parts them, as `squeue` and `sinfo` pad
    them, or as `scontrol` names them.
    """
    names = (
        "JobId",
        "ArrayJobId",
        "ArrayTaskId",
        "JobState",
        "Reason",
        "ExitCode",
        "NumTasks",
        "StdErr",
        "StdIn",
        "StdOut",
    )
    widths = (20, 20, 80, 24, 100, 12, 8, 24, 24, 24)
    return st.sampled_from([
        "|".join(cells),
        "\t".join([*cells, *["4711"] * 25][:25]),
        "".join(cell.ljust(width)[:width] for cell, width in zip(cells, widths, strict=False)),
        " ".join(f"{name}={cell}" for name, cell in zip(names, cells, strict=False)),
    ])  # fmt: skip


slurm_answers = st.lists(
    st.lists(_cells, min_size=1, max_size=25).flatmap(slurm_line), min_size=1, max_size=4
).map(lambda lines: "\n".join(lines).encode("utf-8", "replace"))
"""Output of a Slurm command."""
_conditions = st.lists(
    table_with("reason", "message", type=st.sampled_from(["Failed", "Complete", "Suspended"]), status=st.just("True")),
    max_size=2,
)  # fmt: skip
_boxes = st.lists(
    table_with(
        "state", "containerID", name=st.just("rank"), state=st.dictionaries(st.sampled_from(["terminated", "waiting"]), anything)
    ),
    max_size=2,
)  # fmt: skip
_limits = st.dictionaries(st.sampled_from(["nvidia.com/gpu", "a/b", "cpu"]), anything, max_size=3)
_specs = table_with(
    "taints", "parallelism", "completions", "mpiReplicaSpecs", "replicatedJobs", "slotsPerWorker", "unschedulable",
    nodeName=st.just("n1"),
    containers=st.lists(
        table_with("image", name=st.just("rank"), resources=table_with("requests", limits=_limits)), max_size=2
    ),
)  # fmt: skip
objects = table_with(
    type=st.sampled_from(["ADDED", "MODIFIED", "DELETED", "LISTED"]),
    object=table_with(
        "items", "involvedObject", "reason", "message",
        metadata=table_with(
            "creationTimestamp", "ownerReferences", "annotations", "managedFields", "deletionTimestamp",
            labels=st.dictionaries(
                st.sampled_from(["batch.kubernetes.io/job-completion-index", "rankdeck/role", "rankdeck/job"]), odd_text | anything
            ),
            name=st.sampled_from(["j", "n1", "j-0"]), namespace=st.just("s"), uid=st.sampled_from(["u", "v"]),
        ),
        spec=_specs,
        status=table_with(
            "capacity", "allocatable", "addresses", "active", "jobsStatus", "phase", "nodeInfo",
            conditions=_conditions, containerStatuses=_boxes,
        ),
    ),
)  # fmt: skip
"""An event as a watch of Kubernetes' API sends it."""


def line(value):
    """The value as a node would send it: one line of what Python calls JSON."""
    return json.dumps(value).encode() + b"\n"
