"""Names that both sides know, apart from what is costly to load."""

JOB_VARIABLE = "RANKDECK_JOB"
"""In the environment of every process of a job: how cancel finds them."""
NODE_VARIABLE = "RANKDECK_NODE"
RUN_VARIABLE = "RANKDECK_RUN"
"""The run folder of this job on this node; `${RANKDECK_RUN}` in a plan stands for it."""
RUN_TOKEN = "${RANKDECK_RUN}"
LAUNCHER = -1
"""The rank number under which the launcher's own output travels."""
