"""Slurm: an sbatch script with per-rank files, through srun, Pyxis and torchrun."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rankdeck.backends.layout import find_runtime
from rankdeck.backends.submitted import (
    Submitted,
    document_plan,
    gpus_per_node,
    options,
    ranks_per_node,
)
from rankdeck.backends.tokens import file_lines, shell_line, shell_word
from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job import JobSpec, Launch, Plan
from rankdeck_agent.wire import RUN_TOKEN, NodeFile

RUN = '"$RANKDECK_RUN"'
DIRECTIVES = (
    "partition",
    "account",
    "qos",
    "time",
    "constraint",
    "reservation",
    "exclusive",
    "mem",
)
"""Options that become #SBATCH lines as they are."""
KNOWN = (*DIRECTIVES, "mpi", "gpus", "login")
PYXIS = ("enroot", "pyxis")
_HEAD_NODE = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
_PORT = "$((SLURM_JOB_ID % 4536 + 61000))"
"""Above the ports that Linux gives out by itself."""


class SlurmBackend(Submitted):
    """Writes the script; submitting it is the user's."""

    name: ClassVar[str] = "slurm"

    def plan(self, cluster: Cluster, spec: JobSpec, job: str) -> Plan:
        """The sbatch script as the plan's text."""
        names = [f"{job}-node{i}" for i in range(spec.nodes)]
        return document_plan(cluster, spec, job, names, script(cluster, spec, job))


def script(cluster: Cluster, spec: JobSpec, job: str) -> str:
    """The whole script; raises LaunchError."""
    chosen = options(cluster, spec, "slurm")
    unknown = [key for key in chosen if key not in KNOWN]
    if unknown:
        raise LaunchError(
            "plan", f"no Slurm option `{unknown[0]}`; there are: {', '.join(KNOWN)}"
        )
    lines = ["#!/bin/bash", *_directives(cluster, spec, job, chosen), "set -eu"]
    lines += _environment(cluster, spec, job)
    lines += [line for name, text in spec.files.items() for line in _file(name, text)]
    lines += _STEPS[spec.launch](cluster, spec, chosen)
    return "\n".join(lines) + "\n"


def _directives(
    cluster: Cluster, spec: JobSpec, job: str, chosen: Mapping[str, str]
) -> list[str]:
    one_task = spec.launch in (Launch.TORCHRUN, Launch.TENSORFLOW)
    values = {
        "job-name": spec.name,
        "nodes": str(spec.nodes),
        "ntasks-per-node": "1" if one_task else str(ranks_per_node(cluster, spec)),
        "output": f"rankdeck-{job}.out",
        "open-mode": "append",
    }
    gpus = gpus_per_node(cluster, spec, chosen.get("gpus", ""))
    if gpus:
        values["gpus-per-node"] = str(gpus)
    values |= {key: chosen[key] for key in DIRECTIVES if key in chosen}
    if spec.on:
        values["nodelist"] = ",".join(spec.on)
    return [
        f"#SBATCH --{key}" + (f"={value}" if value else "")
        for key, value in values.items()
    ]


def _environment(cluster: Cluster, spec: JobSpec, job: str) -> list[str]:
    env = {"PYTHONUNBUFFERED": "1", **cluster.environment, **spec.env}
    return [
        f"export RANKDECK_JOB={shell_word(job)}",
        f'export RANKDECK_RUN="$SLURM_SUBMIT_DIR"/{shell_word(f"rankdeck-{job}")}',
        f"mkdir -p {RUN}",
        *(f"export {shell_line([f'{key}={value}'])}" for key, value in env.items()),
    ]


def _file(name: str, text: str) -> list[str]:
    return file_lines(NodeFile(f"{RUN_TOKEN}/{name}", text))


def _srun(spec: JobSpec, *extra: str) -> list[str]:
    """The srun line up to the command, with a file per task and stream."""
    words = [
        "srun --kill-on-bad-exit=1 --wait=60",
        *extra,
        f"--output={RUN}/%t.out --error={RUN}/%t.err --open-mode=append",
    ]
    words += [f"--chdir={shell_word(spec.workdir)}"] if spec.workdir else []
    return words + _pyxis(spec)


def _pyxis(spec: JobSpec) -> list[str]:
    container = spec.container
    if container is None or container.runtime not in PYXIS:
        return []
    mounts = ",".join([f"{RUN_TOKEN}:{RUN_TOKEN}", *container.mounts])
    words = [f"--container-image={container.image}", f"--container-mounts={mounts}"]
    words += [f"--container-workdir={container.workdir}"] if container.workdir else []
    names = ",".join(["RANKDECK_JOB", "RANKDECK_RUN", *spec.env])
    return [shell_line([*words, f"--container-env={names}", *container.args])]


def _command(spec: JobSpec, argv: Sequence[str]) -> tuple[str, ...]:
    """The command in its container, where Slurm does not open it itself."""
    container = spec.container
    if container is None or container.runtime in PYXIS:
        return tuple(argv)
    if container.runtime == "docker":
        raise LaunchError(
            "plan",
            "docker leaves the Slurm job's cgroup; use enroot, apptainer or podman",
        )
    return find_runtime(container).wrap(argv, container, spec.env, spec.launch)


def _mpi(cluster: Cluster, spec: JobSpec, chosen: Mapping[str, str]) -> list[str]:
    usual = "pmi2" if spec.mpi.flavour == "mpich" else "pmix"
    words = _srun(spec, f"--mpi={shell_word(chosen.get('mpi', usual))}")
    return [" ".join([*words, shell_line(_command(spec, spec.command))])]


def _plain(cluster: Cluster, spec: JobSpec, chosen: Mapping[str, str]) -> list[str]:
    return [" ".join([*_srun(spec), shell_line(_command(spec, spec.command))])]


def _torchrun(cluster: Cluster, spec: JobSpec, chosen: Mapping[str, str]) -> list[str]:
    """One torchrun per node; the head node is found on the batch host, where scontrol is."""
    port = str(spec.torch.port) if spec.torch.port else _PORT
    words = [
        spec.torch.path,
        f"--nnodes={spec.nodes}",
        f"--nproc-per-node={ranks_per_node(cluster, spec)}",
    ]
    late = '--node-rank="$SLURM_NODEID" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT"'
    logs = f'--max-restarts=0 --log-dir={RUN}/torch."$SLURM_NODEID" -r 3 -t 3'
    script = (
        spec.command
        if spec.command[0].endswith(".py")
        else ("--no-python", *spec.command)
    )
    line = (
        f"{shell_line(words)} {late} {logs} {shell_line([*spec.torch.args, *script])}"
    )
    return [
        _HEAD_NODE,
        f"MASTER_PORT={port}",
        "export MASTER_ADDR MASTER_PORT",
        " ".join([*_srun(spec), _in_bash(spec, f"exec {line}")]),
    ]


def _tensorflow(
    cluster: Cluster, spec: JobSpec, chosen: Mapping[str, str]
) -> list[str]:
    quoted = f"sed 's/.*/\"&:'\"{_PORT}\"'\"/'"
    inside = (
        'export TF_CONFIG="{\\"cluster\\":{\\"worker\\":[$RANKDECK_WORKERS]},'
        '\\"task\\":{\\"type\\":\\"worker\\",\\"index\\":$SLURM_NODEID}}"; '
        f"exec {shell_line(spec.command)}"
    )
    return [
        f'RANKDECK_WORKERS=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | {quoted} | paste -sd,)',
        "export RANKDECK_WORKERS",
        " ".join([*_srun(spec), _in_bash(spec, inside)]),
    ]


def _in_bash(spec: JobSpec, line: str) -> str:
    """A line whose variables are each task's own, in the container where there is one."""
    return shell_line(_command(spec, ("bash", "-c", line)))


_STEPS = {
    Launch.MPI: _mpi,
    Launch.PLAIN: _plain,
    Launch.TORCHRUN: _torchrun,
    Launch.TENSORFLOW: _tensorflow,
}
