"""The JSON that commands print, made from the values of the model; docs/cli.md describes it."""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from rankdeck.config.user import Use
from rankdeck.errors import NodeError, Problem
from rankdeck.model.cancel_report import CancelReport, NodeProof
from rankdeck.model.cluster import Node
from rankdeck.model.first_failure import FirstFailure
from rankdeck.model.job import Job, NodeNote, Progress, RankState
from rankdeck.model.leftovers import Cleaned, CleanOrder, CleanReport, total_leftovers
from rankdeck.model.plan import Plan
from rankdeck.model.process import RankUse
from rankdeck.model.queue import QueueJob, QueueStatus
from rankdeck.model.scheduler_node import SchedulerNode
from rankdeck.model.stall import Explained, Stall
from rankdeck.schedulers.slurm.settings import granted_instead
from rankdeck.values import value_table
from rankdeck_agent.rules.levels import Health

if TYPE_CHECKING:  # each loads much that most commands do without
    from rankdeck.images.bring import ImageAt
    from rankdeck.preflight.findings import Finding

Shape = dict[str, Any]


def job_shape(job: Job) -> Shape:
    """One job as it is now; `run` and `jobs` print it."""
    from rankdeck.rules.progress import job_phases  # loads the patterns of users, and statistics

    return {
        "job": job.id,
        "name": job.name,
        "owner": job.plan.owner,
        "state": job.state.value,
        "exit_code": job.exit_code,
        "nodes": list(job.nodes),
        "ranks": [rank_shape(rank) for rank in job.ranks],
        "first_failure": _failure_shape(job.first_failure),
        "kept": job.kept,
        "created": job.created,
        "ended": job.ended,
        "troubles": list(job.troubles),
        "proofs": {node: _proof_shape(proof) for node, proof in job.proofs.items()},
        "refused": dict(job.refused),
        "explained": explained_shape(job.explained),
        "stalled": [stall_shape(stall) for stall in job.stalled],
        "waits": job.waits,
        "progress": _progress_shape(job.progress),
        "phases": [value_table(phase) for phase in job_phases(job)],
        "slurm": _followed_shape(job),
        "nodes_said": [note_shape(note, job) for note in job.node_notes],
        "part_of": job.plan.part_of,
    }


def _proof_shape(proof: NodeProof) -> Shape:
    """What a cancel found on one node."""
    left = [{"pid": one.pid, "command": one.command} for one in proof.left]
    return {"state": proof.state.value, "left": left, "why": proof.why}


def slurm_shape(status: QueueStatus | None) -> Shape | None:
    """What Slurm says about a job; `left` is the seconds until its time limit."""
    if status is None:
        return None
    return {**value_table(status), "waits": status.waits, "left": status.left(time.time())}


def _followed_shape(job: Job) -> Shape | None:
    """`slurm_shape` of a job that this console follows; `instead`: what Slurm
    granted and the job file did not ask.
    """
    shape = slurm_shape(job.in_scheduler)
    if shape is None or job.in_scheduler is None:
        return None
    return {
        **shape,
        "instead": [value_table(one) for one in granted_instead(job.plan, job.in_scheduler)],
    }


def listed_shape(job: QueueJob) -> Shape:
    """A job that this console does not follow; `ours` is its id if Rankdeck started it."""
    shape = value_table(cast("Any", job))
    for key in ("place", "status", "spec", "label"):
        shape.pop(key, None)
    status = {"slurm": slurm_shape(job.status)} if job.status else {}
    return {**shape, "job": job.place, "state": job.state, **status}


def queued_shape(job: QueueJob | None) -> Shape | None:
    """What Slurm's queue says of a job that this console follows;
    null if it is not in the queue.
    """
    if job is None or job.status is None:
        return None
    shape = value_table(cast("Any", job))
    kept = ("user", "cpus", "count", "gpus", "memory", "priority", "components")
    return {
        **{key: shape[key] for key in kept},
        **{key: getattr(job.status, key) for key in ("account", "qos")},
    }


def note_shape(note: NodeNote, job: Job) -> Shape:
    """What happened on a node; `seconds` is the time since the
    first failure, negative before it.
    """
    failed = job.first_failure
    known = failed is not None and not note.before
    return {
        **value_table(note),
        "level": note.level.word,
        "seconds": round(note.at - failed.at, 3) if failed and known else None,
    }


def rank_shape(rank: RankState) -> Shape:
    """One rank of a job; times are epoch seconds on the console's clock."""
    return {
        "rank": rank.rank,
        "node": rank.node,
        "state": rank.state.value,
        "exit_code": rank.exit_code,
        "signal": rank.signal,
        "started": rank.started,
        # A clock that was set back meanwhile does not make a rank end before it began.
        "ended": rank.ended and max(rank.ended, rank.started or 0.0),
        "pid": rank.pid,
        "lines": rank.lines,
        "heard": rank.heard,
        "activity": None if rank.activity is None else value_table(rank.activity),
    }


def rank_use_shape(one: RankUse) -> Shape:
    """What one rank uses: CPU, memory, GPUs."""
    return {
        "rank": one.rank,
        "node": one.node,
        "pid": one.pid,
        "state": one.state,
        "cpu": one.cpu,
        "rss": one.rss,
        "gpus": list(one.gpus),
        "gpu_memory": one.gpu_memory,
        "io": one.traffic,
        "pids": [process.pid for process in one.processes],
    }


def _failure_shape(failure: FirstFailure | None) -> Shape | None:
    if failure is None:
        return None
    return {**value_table(failure), "explained": explained_shape(failure.explained)}


def explained_shape(explained: Iterable[Explained]) -> list[Shape]:
    """What messages mean and what to try."""
    return [
        {"means": one.means, "try": one.remedy, "line": one.line, "sure": one.sure}
        for one in explained
    ]


def stall_shape(stall: Stall) -> Shape:
    """Ranks that are stalled or slow."""
    return {
        "kind": stall.kind,
        "node": stall.node,
        "ranks": list(stall.ranks),
        "first": list(stall.first),
        "odd": list(stall.odd),
        "since": stall.since,
        "text": stall.text,
        "explained": explained_shape(stall.explained),
        "price": value_table(stall.price) if stall.price else None,
        "sure": stall.sure,
        "between": list(stall.between),
    }


def _progress_shape(progress: Progress | None) -> Shape | None:
    if progress is None:
        return None
    return {
        "step": progress.step,
        "steps": progress.steps,
        "share": progress.share,
        "values": dict(progress.values),
        "rank": progress.rank,
        "at": progress.at,
    }


def plan_shape(plan: Plan) -> Shape:
    """Every file and every command of a launch; `run --dry-run` prints it."""
    return {
        "job": plan.job,
        "name": plan.name,
        "cluster": plan.cluster,
        "backend": plan.backend,
        "nodes": [value_table(node) for node in plan.nodes],
        "text": plan.text,
    }


def report_shape(report: CancelReport) -> Shape:
    """What cancel has verified."""
    return {
        "job": report.job,
        "state": report.state.value,
        "left": [{"node": o.node, "pid": o.pid, "command": o.command} for o in report.left],
        "unverified": dict(report.unverified),
    }


def health_shape(health: Health) -> Shape:
    """The health of one node: its level and the reasons."""
    return {
        "level": health.level.word,
        "reasons": [
            {
                "check": reason.check,
                "level": reason.level.word,
                "text": reason.text,
                "device": reason.device,
                "acknowledged_until": reason.acknowledged_until,
                "acknowledged_by": reason.acknowledged_by,
            }
            for reason in health.reasons
        ],
        "evaluated": health.evaluated,
        "checks": health.checks,
        "limits": health.limits,
    }


def finding_shape(finding: "Finding") -> Shape:
    """One finding of preflight; `patch` is key path -> new value, null removes the key."""
    return {
        "check": finding.check,
        "level": finding.level.word,
        "node": finding.node,
        "text": finding.text,
        "fix": finding.fix,
        "patch": {change.key: change.value for change in finding.patch},
    }


def image_shape(row: "ImageAt | NodeError") -> Shape:
    """Whether and how an image is on one node; `error` says why that is not known."""
    if isinstance(row, NodeError):
        return {"kind": "unknown", "path": "", "digest": "", "size": None, "error": row.why}
    size = row.size if row.there else None
    return {
        "kind": row.kind,
        "path": row.path,
        "digest": row.digest,
        "size": size,
        "error": row.error,
    }


def node_shape(node: Node, inventory: Mapping[str, str] | None = None) -> Shape:
    """One node as in the cluster file; `inventory` is what the node reports about itself."""
    return {
        "name": node.name,
        "address": node.host,
        "port": node.port,
        "slots": node.slots,
        "gpus": node.gpus,
        "rdma": node.rdma,
        "inventory": None if inventory is None else dict(inventory),
    }


def scheduler_shapes(view: SchedulerNode | None) -> Shape:
    """`kubernetes` and `slurm`: what each says about a node, null if nothing.

    `asked` null: this user may not see pods.
    """
    said = {} if view is None else {view.scheduler: value_table(cast("Any", view))}
    return {"kubernetes": None, "slurm": None, **said}


def _use_shape(use: Use) -> Shape:
    shape = value_table(use)
    del shape["digest"]
    return shape


def file_shape(file: str, kind: str, problems: tuple[Problem, ...], uses: tuple[Use, ...]) -> Shape:
    """One checked file; `kind` is cluster, job, manifest (of Kubernetes) or ""."""
    return {
        "file": file,
        "kind": kind,
        "ok": not problems,
        "problems": [value_table(problem) for problem in problems],
        "uses": [_use_shape(use) for use in uses],
    }


def clean_shape(cluster: str, order: CleanOrder, report: CleanReport) -> Shape:
    """`clean --json`; without a place, which only tells machines with a shared folder."""
    count, size = total_leftovers(report.machines, dry=order.dry)
    return {
        "cluster": cluster,
        "dry_run": order.dry,
        "days": order.days,
        "size": order.size,
        "nodes": {node: _cleaned_shape(one) for node, one in report.nodes.items()},
        "here": _cleaned_shape(report.here),
        "missing": dict(report.missing),
        "total": {"count": count, "bytes": size},
    }


def _cleaned_shape(one: Cleaned) -> Shape:
    return {
        "groups": [
            {
                "kind": group.kind,
                "goes": group.goes,
                "ground": group.ground.value,
                "count": group.count,
                "bytes": group.bytes,
                "names": list(group.names),
            }
            for group in one.groups
        ],
        "failed": dict(one.failed),
        "clock": value_table(one.doubt) if one.doubt else None,
    }
