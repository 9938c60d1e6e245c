"""The keeper of a Kubernetes job: the one process that its plan starts, on the control host."""

from collections.abc import Mapping
from typing import Any

from rankdeck.model.cluster import Cluster
from rankdeck.model.json_tables import read_table
from rankdeck.model.plan import Plan
from rankdeck.model.safe_text import clean_line
from rankdeck.remote.shell import control_host
from rankdeck_agent.wire import AGENT_TOKEN, NodeFile, NodePlan, ProcessPlan
from rankdeck_agent.wire.schedulers.job_files import KUBERNETES_SETTINGS

THE_JOB = "the job"
"""Name of the keeper's process in sentences about what ended if no rank did."""


def plan_keeper(
    cluster: Cluster, job: str, ranks: int, files: tuple[NodeFile, ...], grace: float
) -> NodePlan:
    """The plan of the control host: a supervisor whose launcher is the
    keeper, which ends when the job ends.
    """
    host = control_host(cluster)
    return NodePlan(
        job=job,
        node=host,
        ranks=tuple(range(ranks)),
        processes=(ProcessPlan(THE_JOB, (AGENT_TOKEN, "kubernetes", "keep", job, host)),),
        files=files,
        env=cluster.environment,
        tty=False,
        grace=grace,
        elsewhere=True,
    )


def place_of(plan: Plan) -> str:
    """`mpijob/pi` for a job on Kubernetes; "" for others."""
    asked = kubernetes_keeper_settings(plan)
    kind, name = (clean_line(asked.get(key), 253) for key in ("kind", "name"))
    return f"{kind.lower()}/{name}" if kind and name else ""


def kubernetes_keeper_settings(plan: Plan) -> Mapping[str, Any]:
    """What the keeper of a job is told (the agent's
    `target.Target`); empty for a job that has none.
    """
    files = [
        file for node in plan.nodes[:1] for file in node.files if file.path == KUBERNETES_SETTINGS
    ]
    try:
        return read_table(files[0].text.encode()) if files else {}
    except ValueError:  # a plan that was read back from a host
        return {}
