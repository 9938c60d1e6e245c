"""The settings of a Slurm job, a file beside its script: what was asked of
Slurm, and what Slurm granted instead.
"""

import json
import re
from collections.abc import Mapping
from math import ceil

from rankdeck.model.json_tables import as_table
from rankdeck.model.plan import Plan
from rankdeck.model.queue import QueueStatus
from rankdeck.values import Value
from rankdeck_agent.rules.units import write_duration
from rankdeck_agent.wire.schedulers.job_files import SLURM_SETTINGS

GRANTED = ("partition", "account", "qos", "time")
"""Options for which Slurm, or a plug-in of the site, may grant something else than was asked."""
ASKED = "asked"
"""Key in the settings of a job; its value is what the job file asked of `GRANTED`."""
ATTACHED = "attached"
"""Key in the settings of a job that somebody else submitted; its value is Slurm's id of the job."""
_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?\Z")


def settings_of(plan: Plan) -> Mapping[str, object]:
    """The settings of the job of this plan; empty if it has none."""
    files = plan.nodes[0].files
    text = next((file.text for file in files if file.path == SLURM_SETTINGS), "{}")
    return as_table(json.loads(text))


def is_attached(plan: Plan) -> bool:
    """Whether somebody else submitted this job."""
    return ATTACHED in settings_of(plan)


class GrantedInstead(Value):
    """An option of a job for which Slurm granted something else."""

    option: str
    asked: str
    granted: str


def granted_instead(plan: Plan, status: QueueStatus) -> tuple[GrantedInstead, ...]:
    """What Slurm granted where it differs from what the job file asked."""
    settings = settings_of(plan)
    asked = {key: str(value) for key, value in as_table(settings.get(ASKED)).items()}
    limit = time_limit(asked.get("time", ""))
    same = {
        "partition": status.partition in (asked.get("partition"), *asked.get("partition", "").split(",")),
        "account": status.account.lower() == asked.get("account", "").lower(),
        "qos": status.qos == asked.get("qos"),
        "time": limit is None or status.limit is None or ceil(limit / 60) == ceil(status.limit / 60),
    }  # fmt: skip
    granted = {
        "partition": status.partition,
        "account": status.account,
        "qos": status.qos,
        "time": write_duration(status.limit or 0.0),
    }
    return tuple(
        GrantedInstead(key, asked[key], granted[key])
        for key in GRANTED
        if key in asked and granted[key] and not same[key]
    )


def time_limit(text: str) -> float | None:
    """Seconds in a time limit as sbatch takes it: `90` (minutes), `30:00`,
    `1:30:00`, `2-12`, `2-12:30`; else None.
    """
    found = _TIME.match(text)
    if found is None:
        return None
    days, *rest = found.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is None and len(parts) < 3:
        parts.insert(0, 0)
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)
