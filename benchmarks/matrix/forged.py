"""Rows in which a rank or a node says what it may not: of the ranks of
others, as a scheduler, as the console.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from benchmarks.fault_plants import processes
from benchmarks.fault_sites import DemoSite
from benchmarks.matrix.lying import Ended, clean_up, job_file, lying, on_terminal, rankdeck
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.sites import Sites

MESSAGES = (
    "again sakura: was asked again: nothing of the job is left there",
    "exited 0 0", "exited 2 0", "started 0 1 1", "cancel 5 user", "trouble n: not verified: x", "answer 1 ok",
)  # fmt: skip
"""What rank 1 on sakura writes to the FIFO of its supervisor."""
FRAMES: Sequence[Mapping[str, Any]] = (
    {"kind": "again", "text": "x"},
    {"kind": "slurm", "state": "TIMEOUT", "over": True, "text": "its time limit was over"},
    {"kind": "attempt", "number": 1, "text": "x"},
    {"kind": "exited", "rank": 0, "code": 0},
    {"kind": "started", "rank": 1, "pid": 1},
)
"""What the node of rank 2 sends between its own frames."""
FAILS, CODE = 2, 5
"""The rank that fails, and its exit code."""


def script(forges: Sequence[str]) -> str:
    """Rank 1 writes these messages, then rank 2 fails; the others end
    later, with a code that nobody forges.
    """
    writes = "; ".join(f'echo "{one}" > $RANKDECK_RUN/control' for one in forges) or ":"
    return (
        f'[ "$RANKDECK_RANK" != 1 ] || {{ sleep 1; {writes}; }}; '
        f'[ "$RANKDECK_RANK" != {FAILS} ] || {{ sleep 4; exit {CODE}; }}; sleep 10; exit 3'
    )


def wrong(ended: Ended, who: str) -> Iterator[str]:
    """What `run --json` says that is not true of the job."""
    jobs = [one for one in ended.objects() if "first_failure" in one]
    if not jobs:
        yield "`run` printed no job"
        return
    job = jobs[-1]
    first: dict[str, Any] = job["first_failure"] or {}
    told = (job["state"], first.get("rank"), first.get("node"), first.get("exit_code"))
    if told != ("failed", FAILS, "koishi", CODE):
        yield f"first failure {told}"
    for rank in job["ranks"]:
        if rank["rank"] != FAILS and (rank["state"], rank["exit_code"]) != ("failed", 3):
            yield f"rank {rank['rank']} is {rank['state']} with exit code {rank['exit_code']}"
    if not job["refused"].get(who):
        yield f"nothing of what {who} forged was counted"


def played(
    site: DemoSite, forges: Sequence[str], lie: AbstractContextManager[None], who: str
) -> Tally:
    """The job, run to its end while somebody forges."""
    file = job_file(site, "forged", script(forges))
    with lie:
        argv = rankdeck(site, "run", file, "--no-preflight", "--json")
        ended = on_terminal(argv, site.environment(), cwd=str(site.place()))
    said = [*ended.faults(), *wrong(ended, who)]
    job = next((str(one["job"]) for one in ended.objects() if "job" in one), "")
    left = [one.name for one in processes(job)] if job else []
    if job:
        clean_up(site, job)
    return Tally(left=len(left), wrong=said, memory=ended.memory, inputs=len(forges) or len(FRAMES))


def by_a_rank(sites: Sites) -> Tally:
    """Rank 1 writes to its supervisor's FIFO."""
    return played(sites.demo, MESSAGES, nullcontext(), "sakura")


def by_a_node(sites: Sites) -> Tally:
    """The node of rank 2 sends frames of others."""
    lie = lying(sites.demo, "frames", ("job", "follow"), frames=[dict(one) for one in FRAMES])
    return played(sites.demo, (), lie, "koishi")


ROWS: tuple[Row, ...] = (
    Row(
        name="forged-by-rank",
        group=Group.NODES,
        does="a rank tells its supervisor that others began, ended, were cancelled",
        run=by_a_rank,
        short=True,
    ),
    Row(
        name="forged-by-node",
        group=Group.NODES,
        does="a node sends what only Slurm's keeper, Kubernetes' keeper or another node may say",
        run=by_a_node,
        short=True,
    ),
)
