"""Rows with a Slurm whose commands answer with controls, with megabytes, or with what is no answer."""

import json
from pathlib import Path

import yaml
from tests.support.slurm import KINDS, lying_slurm

from benchmarks.fault_plants import processes
from benchmarks.fault_sites import DemoSite
from benchmarks.matrix.lying import on_terminal, rankdeck
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.sites import Sites
from benchmarks.matrix.steering import planted, reached

LOGIN = "sakuya"
LIMIT = 90.0


def lie(sites: Sites) -> Tally:
    """Each kind of answer to each command: a launch, its log, a cancel."""
    wrong: list[str] = []
    memory = 0.0
    for kind in KINDS:
        cluster = _cluster(sites.demo, kind)
        found, most = _tried(sites.demo, cluster)
        wrong += [f"{kind}: {one}" for one in found]
        memory = max(memory, most)
    return Tally(wrong=wrong, memory=memory, inputs=len(KINDS) * 3)


def _tried(site: DemoSite, cluster: str) -> tuple[list[str], float]:
    run = on_terminal(
        _words(site, cluster, "run", _job_file(site), "--no-preflight"), site.environment(), LIMIT
    )
    wrong = [*run.faults(), *reached(run.written, screen=False)]
    listed = on_terminal(_words(site, cluster, "jobs", "--json"), site.environment(), LIMIT)
    found = listed.objects()
    if not found:
        return [*wrong, "no job was kept"], run.memory
    job, memory = found[0]["job"], run.memory
    if found[0]["state"] != "failed":
        wrong.append(f"`jobs` says {found[0]['state']}, not failed")
    for words in (("logs", job, "--launcher"), ("cancel", job, "--grace", "1")):
        done = on_terminal(_words(site, cluster, *words), site.environment(), LIMIT)
        wrong += [
            f"{words[0]}: {x}" for x in (*done.faults(), *reached(done.written, screen=False))
        ]
        memory = max(memory, done.memory)
    left = [one.name for one in processes(job)]
    return [*wrong, *([f"left: {left}"] if left else [])], memory


def _words(site: DemoSite, cluster: str, *words: str) -> list[str]:
    """The command line of a verb, with this cluster file."""
    return [cluster if word == site.cluster else word for word in rankdeck(site, *words)]


def _cluster(site: DemoSite, kind: str) -> str:
    """The cluster file of the same nodes with a Slurm that answers so."""
    path = lying_slurm(site.place() / f"slurm-{kind}", kind, planted())
    content = yaml.safe_load(Path(site.cluster).read_text())
    content["backend"] = "slurm"
    content["slurm"] = {"login": LOGIN, "rpcs_per_minute": 600}
    content["environment"] = {"PATH": path}
    file = Path(site.cluster).with_name(f"slurm-{kind}.yaml")
    file.write_text(yaml.safe_dump(content))
    return str(file)


def _job_file(site: DemoSite) -> str:
    file = site.place() / "slurmed.yaml"
    file.write_text(
        json.dumps(
            {
                "job": "slurmed",
                "launch": "mpi",
                "nodes": 1,
                "ranks_per_node": 1,
                "command": ["true"],
            }
        )
    )
    return str(file)


ROWS = (
    Row(
        name="slurm",
        group=Group.NODES,
        does="sbatch, squeue and scontrol answer with controls, 10 MB and nonsense",
        run=lie,
    ),
)
