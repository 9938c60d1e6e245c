"""The environment variables for Slurm's commands, and those that a cluster file adds."""

import re
from collections.abc import Mapping
from typing import Any, cast

_UNWANTED = ("SQUEUE_", "SINFO_", "SACCT_", "SBATCH_DEBUG", "SLURM_BITSTR_LEN", "SLURM_DEBUG")
"""Environment variables (beginnings of names) that would change what the commands print."""
_OF_SITE = ("SLURM_CONF", "SLURM_CLUSTERS")
"""Beginnings of the names of Slurm's variables that do not belong to an allocation."""
_DEFAULTS = frozenset(
    {
        "SBATCH_ACCOUNT", "SBATCH_CONSTRAINT", "SBATCH_PARTITION", "SBATCH_QOS", "SBATCH_RESERVATION",
        "SBATCH_TIMELIMIT", "SBATCH_WCKEY",
    }
)  # fmt: skip
"""Variables of sbatch by which a site says what holds where a job file says
nothing; the others change what is run.
"""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def variables_in(row: Mapping[str, Any]) -> dict[str, str]:
    """The variables that a question, or the settings of a job, has under
    `environment`; what is no text is left out.
    """
    given = row.get("environment")
    pairs = cast("dict[Any, Any]", given).items() if isinstance(given, dict) else ()
    return {
        name: value
        for name, value in pairs
        if isinstance(name, str) and isinstance(value, str) and _VARIABLE.match(name)
    }


def login_environment(own: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """The environment for a command of Slurm: prints times as epoch seconds,
    and nothing else changes its output.
    """
    kept = {**outside_allocation(own), **variables}
    wanted = {name: value for name, value in kept.items() if not name.startswith(_UNWANTED)}
    return {**wanted, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


def submit_environment(own: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """The environment for sbatch, which a job inherits: a login's own
    wishes for other jobs are left out.
    """
    kept = outside_allocation(own)
    wanted = {n: v for n, v in kept.items() if not n.startswith("SBATCH_") or n in _DEFAULTS}
    return {**wanted, **variables}


def outside_allocation(own: Mapping[str, str]) -> dict[str, str]:
    """These variables without those of the allocation in which we happen to
    run (`salloc`), which srun would obey.
    """
    if "SLURM_JOB_ID" not in own:
        return dict(own)
    return {n: v for n, v in own.items() if not n.startswith("SLURM_") or n.startswith(_OF_SITE)}
