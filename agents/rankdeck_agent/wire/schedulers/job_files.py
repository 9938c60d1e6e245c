"""The files with which the console describes a job to the agent that gives it to a scheduler; all
in the job's run folder.
"""

SLURM_SETTINGS, KUBERNETES_SETTINGS = "slurm.json", "kubernetes.json"
"""The console's settings for the job, as JSON; which of them is there says what runs the job."""
SLURM_SCRIPT, SLURM_EXPECTATIONS = "job.sbatch", "expect.json"
"""The batch script; what the agent expects of a node before the ranks start."""
MANIFEST = "manifest.json"
"""The objects that the keeper creates in Kubernetes, in their order."""
CREATED = "kubernetes.created"
"""Empty: the objects exist already, because somebody else created them."""

RESERVED_FILES = frozenset(
    {SLURM_SETTINGS, SLURM_SCRIPT, SLURM_EXPECTATIONS, KUBERNETES_SETTINGS, CREATED}
)
"""Those whose names no other file in the run folder may have."""
