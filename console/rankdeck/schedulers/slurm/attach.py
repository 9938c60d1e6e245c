"""Slurm jobs that Rankdeck did not submit: how they are named,
and the plan to follow one of them.
"""

import hashlib
import json
import re
import time

from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import Abort
from rankdeck.model.plan import Plan
from rankdeck.schedulers.slurm.options import slurm_keeper_settings
from rankdeck.schedulers.slurm.settings import ATTACHED
from rankdeck.schedulers.slurm.values import SlurmLook, slurm_owner
from rankdeck_agent.wire import NodeFile, NodePlan, ProcessPlan
from rankdeck_agent.wire.schedulers.job_files import SLURM_SETTINGS

_GRACE = 30.0
"""Seconds from SIGTERM to SIGKILL: the default of Slurm's KillWait."""
_ROW_OF_TASKS = re.compile(r"(\d{1,11})_(?:(\d{1,9})|\[([\d,:-]+)(?:%\d+)?\])\Z")
"""A task of an array, or the row of those that wait together: `48_3`, `48_[2-5%2]`."""


def slurm_attach_plan(cluster: Cluster, found: SlurmLook, place: str = "") -> Plan:
    """The plan to follow a job that somebody else submitted: the login node
    copies its output into a run folder.

    `place`: its row in the queue; if that is only some tasks of an array (`48_[2-5%2]`), a cancel
    ends only these. Raises LaunchError if Slurm has cut the list of the tasks.
    """
    made = time.strftime("%Y%m%d-%H%M%S", time.gmtime(found.submitted or 0.0))
    name = re.sub(r"[^A-Za-z0-9._-]", "-", found.name).lstrip("._-")[:60] or "job"
    tasks = _tasks_in_row(place)
    part = hashlib.sha256(tasks.encode()).hexdigest()[:6] if "[" in tasks else tasks
    job = f"{name}-{made}-{part.replace('_', '.') or found.id}"
    settings = {
        ATTACHED: found.id,
        "tasks": tasks,
        "out": found.out,
        "err": found.err,
        **slurm_keeper_settings(cluster),
    }
    reader = NodePlan(
        job=job,
        node=cluster.options.get("login", ""),
        ranks=tuple(range(found.ranks)),
        processes=(ProcessPlan("sbatch", ("scontrol", "show", "job", found.id)),),
        files=(NodeFile(SLURM_SETTINGS, json.dumps(settings)),),
        env=cluster.environment,
        tty=False,
        grace=_GRACE,
        elsewhere=True,
    )
    return Plan(
        job=job,
        name=found.name or name,
        cluster=cluster.name,
        backend=cluster.backend,
        nodes=(reader,),
        grace=_GRACE,
        abort=Abort(enabled=False),
        text=" and ".join(dict.fromkeys(filter(None, (found.out, found.err)))),
        owner=slurm_owner(found.user, found.components, 1 if tasks else found.tasks),
    )


def job_named(text: str) -> tuple[str, str]:
    """(what to ask Slurm about, row) of a job that is named by `4711`, `48_3` or
    `48_[2-5%2]`; two "" for other names.
    """
    if text.isdigit() and text.isascii():
        return text, ""
    found = _ROW_OF_TASKS.match(text)
    if found is None:
        return "", ""
    return (f"{found[1]}_{found[2]}" if found[2] else found[1]), text


def _tasks_in_row(place: str) -> str:
    """`48_[2-5]` of the row `48_[2-5%2]`, `48_3` of a running
    task; "" for a job that is no array.
    """
    if "_" not in place:
        return ""
    found = _ROW_OF_TASKS.match(place)
    if found is None:
        array = place.partition("_")[0]
        why = f"Slurm cuts the list of its tasks ({place})"
        raise LaunchError("start", f"{why}: follow one of them (`{array}_0`), or all of {array}")
    return f"{found[1]}_{found[2] or f'[{found[3]}]'}"
