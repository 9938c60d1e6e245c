"""The Slurm backend: an sbatch script with srun, Pyxis and torchrun,
submitted by the agent on the login node.

On the login node one keeper follows all jobs of the user and asks Slurm for their states. The ranks
write output and marks to the run folder, in a file system shared by the nodes and the login node.
The exported script does not need Rankdeck: srun writes the output files.
"""

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import ClassVar

from rankdeck.backends.base import SchedulerWord, Tell, say_nothing
from rankdeck.backends.job_network import SOCKETS, is_loopback, network_lines
from rankdeck.backends.launchers import TORCHRUN_ENDS, jax_variables, refuse_claims, script_command
from rankdeck.backends.node_stream import STREAMS
from rankdeck.backends.plan_options import (
    backend_options,
    document_plan,
    gpus_per_node,
    planned_ranks_per_node,
)
from rankdeck.backends.plan_text import export_lines, exports_part, file_parts, parts_text
from rankdeck.backends.shell_words import SHIM, shell_line, shell_word, whole_file
from rankdeck.backends.ssh import CANCEL_LIMIT, START_LIMIT, SshBackend, left_there
from rankdeck.errors import AgentError, LaunchError, NodeError, RankdeckError, suggest_or_list
from rankdeck.model.cancel_report import CancelReport
from rankdeck.model.capabilities import Capabilities, capabilities_of
from rankdeck.model.cluster import Cluster
from rankdeck.model.field_checks import is_integer
from rankdeck.model.job import Job
from rankdeck.model.job_spec import Abort, JobSpec, Launch
from rankdeck.model.json_tables import as_table, is_list
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.plan import Plan
from rankdeck.model.plan_part import LineKind, PlanPart
from rankdeck.model.queue import LogRun
from rankdeck.model.rank import State
from rankdeck.plugins import plugin_names
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import run_program
from rankdeck.runtimes import Runtime, find_runtime
from rankdeck.schedulers.slurm.options import OFF, slurm_keeper_settings
from rankdeck.schedulers.slurm.settings import ASKED, GRANTED, is_attached
from rankdeck.values import Value, replace
from rankdeck_agent.wire import LAUNCHER, RUN_TOKEN, NodeFile, NodePlan, ProcessPlan
from rankdeck_agent.wire.schedulers.job_files import (
    SLURM_EXPECTATIONS,
    SLURM_SCRIPT,
    SLURM_SETTINGS,
)

RUN = '"$RANKDECK_RUN"'
PLAIN = (
    "partition", "account", "qos", "time", "constraint", "reservation", "mem", "mem-per-cpu", "mem-per-gpu",
    "cpus-per-gpu", "gres", "licenses", "nodelist", "exclude", "dependency", "array", "signal", "begin", "deadline",
    "nice", "hint", "comment", "exclusive",
)  # fmt: skip
"""Options that become #SBATCH lines unchanged."""
SWITCHES = {"requeue": ("requeue", "no-requeue")}
"""Option -> (#SBATCH option if it is on, if it is off)."""
KNOWN = (*PLAIN, *SWITCHES, "args", "cpus-per-task", "mpi", "gpus", "login", "preflight", "rpcs_per_minute")  # fmt: skip
_HEAD_NODE = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
_PORT = "$((SLURM_JOB_ID % 4536 + 61000))"
"""A port above Linux's range of ephemeral ports."""
_MOST_TASKS, _MOST_RUNS = 4096, 1000
_NEVER = 1 << 62
"""Start offset of a run that a task did not have: beyond any output."""
SUBMIT_LIMIT = 95.0
"""Seconds that sbatch may take: it tries again by itself for over a
minute while the controller is busy.
"""
SBATCH = "sbatch"
_MARKS = """\
attempt=${SLURM_RESTART_COUNT:-0}
mark() { : >"$RANKDECK_RUN/marks/$attempt.batch.$1" || :; }
trap 'status=$?; mark "ended.$status"' EXIT
[ "$attempt" = 0 ] || (cd "$RANKDECK_RUN" && stat -c '%n %s' launcher/out rank.*/out rank.*/err >"attempt.$attempt" 2>/dev/null) || :
mark "began.${SLURMD_NODENAME:-$(uname -n)}"
"""
"""Shell lines that tell the keeper when the script begins and ends, and
where the output of this attempt begins.
"""
_TASK = """\
attempt=${SLURM_RESTART_COUNT:-0}
export RANKDECK_RANK="$SLURM_ARRAY_TASK_ID"
[ "$attempt" = 0 ] || (cd "$RANKDECK_RUN/rank.$RANKDECK_RANK" && stat -c '%n %s' out err >"attempt.$attempt" 2>/dev/null) || :
"""
"""The same for a task of an array: its rank has the task's number, and
stands for all processes of the task.
"""


HELP_LIMIT = 30.0
_OTHER_RUNTIME = "ask its administrators, or use `runtime: apptainer` or `podman`"
_PREFLIGHT = f"""\
set -- "$RANKDECK_RUN"/agent-*.pyz
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --mpi=none --input=none --kill-on-bad-exit=0 \\
  sh -c 'said=$(python3 "$0" health --expect "$RANKDECK_RUN/{SLURM_EXPECTATIONS}" 2>&1); [ $? != 2 ] || {{ echo "$said"; exit 1; }}' "$1" || {{
  echo "rankdeck: preflight: not every node is fit for the job: no rank was started" >&2
  exit 1
}}
"""
"""The first step of a job with `preflight`: the agent judges each node,
and no rank starts if any node is bad.
"""
_CHECKED = PlanPart(LineKind.COMMAND, _PREFLIGHT.removesuffix("\n"))
_NOT_CHECKED = PlanPart(LineKind.NOTE, "# the preflight needs Rankdeck: it is left out")


class SlurmBackend(SshBackend):
    """Submits jobs through a supervisor on the login node, which is
    followed and cancelled like any other.
    """

    name: ClassVar[str] = "slurm"
    can: ClassVar[Capabilities] = capabilities_of("slurm")

    def plan(self, cluster: Cluster, spec: JobSpec, job: str) -> Plan:
        """One node, the login node, with all ranks; `text` is the script to submit by hand.

        If the cluster file names no login node, the plan can only be shown and exported.
        """
        login = cluster.options.get("login", "")
        chosen = backend_options(cluster, spec, "slurm")
        array, checks = chosen.get("array", ""), _checks(chosen)
        plan = document_plan(cluster, spec, job, script_parts(cluster, spec, job))
        if not login:
            return plan
        asked: dict[str, object] = {
            **slurm_keeper_settings(cluster),
            ASKED: {key: chosen[key] for key in GRANTED if chosen.get(key, OFF) != OFF},
        }
        ranks = tuple(range(plan.world_size))
        if array:
            asked["array"], ranks = array, _tasks(array)
        asked |= {"preflight": 1} if checks else {}
        expected = (NodeFile(SLURM_EXPECTATIONS, _expected(cluster, spec)),) if checks else ()
        submitter = NodePlan(
            job=job,
            node=login,
            ranks=ranks,
            processes=(ProcessPlan(SBATCH, _submission(cluster, spec, job), cwd=RUN_TOKEN),),
            files=(
                *(NodeFile(name, text) for name, text in spec.files.items()),
                NodeFile(SLURM_SCRIPT, batch_script(cluster, spec, job, watched=True)),
                NodeFile(SLURM_SETTINGS, json.dumps(asked)),
                *expected,
            ),
            env=cluster.environment,
            tty=False,
            grace=spec.grace,
            elsewhere=True,
        )
        # Tasks fail independently; srun ends all processes of a failed task.
        abort = Abort(enabled=False) if array else plan.abort
        # The script to submit by hand is not what is shown: its parts
        # would only be kept beside its text.
        return replace(plan, nodes=(submitter,), abort=abort, parts=())

    async def check(self, plan: Plan) -> SchedulerWord:
        """Whether srun on the login node has the options of Pyxis, if the job needs them."""
        host, box = plan.nodes[0], plan.spec.container if plan.spec else None
        if box is None or box.runtime != "enroot" or not host.processes:
            return SchedulerWord()
        variables = (f"{name}={value}" for name, value in host.env.items())
        argv = ("env", *variables, "srun", "--help")
        limit = HELP_LIMIT * self._agents.patience
        said = await run_program(self._agents.shell, host.node, argv, limit=limit)
        if said.code or b"--container-image" in said.out:
            return SchedulerWord()
        remark = f"srun on {host.node} has no --container-image: Pyxis, which opens the image, is not there"
        return SchedulerWord(remark=remark, fix=_OTHER_RUNTIME)

    async def launch(self, plan: Plan, tell: Tell = say_nothing) -> Plan:
        """Submit the job; returns once Slurm has accepted it. Raises
        LaunchError, also if no login node is named.

        A job of somebody else (see `is_attached`) is only followed, not touched.
        """
        if is_attached(plan):
            return await self._attach(plan)
        if not plan.nodes[0].processes:
            raise LaunchError(
                "start",
                f"where is sbatch? Name the login node in the file of `{plan.cluster}`: `slurm: {{login: HOST}}`",
            )
        return await super().launch(plan, tell)

    async def _attach(self, plan: Plan) -> Plan:
        try:
            await self._hand_over(plan.nodes[0], ("slurm", "attach"), START_LIMIT)
        except NodeError as error:
            raise LaunchError("start", str(error)) from error
        return plan

    async def cancel(self, plan: Plan, grace: float, *, by: str = "user") -> CancelReport:
        """See `base.Backend.cancel`; Slurm may refuse to cancel a job that
        somebody else submitted (`refused`).
        """
        report = await super().cancel(plan, grace, by=by)
        return replace(report, refused=next((o.command for o in report.left if o.refused), ""))

    async def _prepare(self, node: NodePlan) -> None:
        await self._hand_over(node, ("slurm", "submit"), SUBMIT_LIMIT)

    async def cancel_tasks(self, job: Job, tasks: Sequence[int], grace: float) -> CancelReport:
        """End these tasks of an array."""
        if job.in_scheduler is None or not job.in_scheduler.array:
            return await super().cancel_tasks(job, tasks, grace)
        login = job.plan.nodes[0].node
        which = ("--grace", f"{grace:g}", "--tasks", fold_ranks(tasks))
        answer = await self._agents.call(
            login, ("job", "cancel", job.id, login, *which), limit=grace + CANCEL_LIMIT
        )
        left = left_there(login, answer)
        return CancelReport(job.id, State.RUNNING if left else State.CANCELLED, tuple(left))

    async def find_run(self, job: Job, number: int) -> LogRun:
        """Where the logs of this run begin and end, as the login node noted it."""
        plan = job.plan
        starts = await ask_log_starts(self._agents, plan)
        if not 0 <= number < len(starts):
            last = len(starts) - 1
            have = f"the runs 0 to {last}" if last else "one run, 0"
            raise RankdeckError(f"{plan.job} has {have}: there is no run {number}")
        begins = starts[number]
        if number and job.unit == "task":  # a task that was not queued again did not have this run
            begun = {rank for rank, _ in begins}
            never = {(r, s): _NEVER for r in plan.nodes[0].ranks for s in STREAMS if r not in begun}
            begins = {**never, **begins}
        return LogRun(begins, starts[number + 1] if number + 1 < len(starts) else {})


def _submission(cluster: Cluster, spec: JobSpec, job: str) -> tuple[str, ...]:
    """The command that submits the script.

    The options of the script are said once more here: variables of the login, such as
    `SBATCH_PARTITION`, win over `#SBATCH` lines, but not over the command line.
    """
    step = _Step(cluster, spec, backend_options(cluster, spec, "slurm"), watched=True)
    return (SBATCH, "--parsable", "--export=ALL", *sbatch_options(step, job), SLURM_SCRIPT)


def _tasks(array: str) -> tuple[int, ...]:
    """The task numbers in an array specification such as `0-9:3%2`; raises LaunchError."""
    found: set[int] = set()
    for part in array.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        numbers = range(int(first), int(last or first) + 1, max(int(step or 1), 1))
        found.update(numbers[: _MOST_TASKS + 1])
    if not 0 < len(found) <= _MOST_TASKS:
        raise LaunchError(
            "plan",
            f"`array: {array}` has {len(found) or 'no'} tasks; 1 to {_MOST_TASKS} can be followed",
        )
    return tuple(sorted(found))


async def ask_log_starts(agents: Agents, plan: Plan) -> tuple[Mapping[tuple[int, str], int], ...]:
    """For each run of a job: (rank, stream) -> byte offset where the run's
    output begins; 0 for logs without an entry.

    Raises NodeError.
    """
    node = plan.nodes[0]
    answer = await agents.call(
        node.node, ("job", "attempts", plan.job, node.node), limit=START_LIMIT
    )
    raw = answer.row.get("starts")
    if not is_list(raw):
        raise AgentError(node.node, answer.complaint)
    rows = [as_table(one) for one in raw[:_MOST_RUNS]]
    places = {f"rank.{rank}/{stream}": (rank, stream) for rank in node.ranks for stream in STREAMS}
    places |= {f"launcher/{stream}": (LAUNCHER, stream) for stream in STREAMS}
    return tuple(
        {places[name]: at for name, at in row.items() if name in places and is_integer(at)}
        for row in rows
    )


def batch_script(cluster: Cluster, spec: JobSpec, job: str, *, watched: bool = False) -> str:
    """The text of `script_parts`."""
    return parts_text(script_parts(cluster, spec, job, watched=watched))


def script_parts(
    cluster: Cluster, spec: JobSpec, job: str, *, watched: bool = False
) -> list[PlanPart]:
    """The whole sbatch script: to submit by hand, or with `watched` for
    the supervisor; raises LaunchError.
    """
    chosen = backend_options(cluster, spec, "slurm")
    unknown = [key for key in chosen if key not in KNOWN]
    if unknown:
        hint = suggest_or_list(unknown[0], KNOWN)
        raise LaunchError("plan", f"no Slurm option `{unknown[0]}`{hint}")
    refuse_claims(spec.container)
    step = _Step(cluster, spec, chosen, watched)
    parts = [PlanPart(LineKind.NOTE, "#!/bin/bash")]
    words = sbatch_options(step, job)
    parts += [PlanPart(LineKind.COMMAND, f"#SBATCH {_escaped(word)}") for word in words]
    parts += [PlanPart(LineKind.SETUP, "set -eu"), *_environment(step, job)]
    if not watched:
        parts += [part for n, text in spec.files.items() for part in _file_parts(n, text)]
    if _checks(chosen):
        parts.append(_CHECKED if watched else _NOT_CHECKED)
    *before, srun = (*_look_up_network(step), *_STEPS[spec.launch](step))
    parts += [PlanPart(LineKind.SETUP, line) for line in before]
    return [*parts, PlanPart(LineKind.COMMAND, srun)]


def _expected(cluster: Cluster, spec: JobSpec) -> str:
    """The `expect:` values for the preflight, as JSON: the cluster file's,
    but only as many GPUs as the job gets.
    """
    asked = backend_options(cluster, spec, "slurm").get("gpus", "")
    kinds = [int(part.rpartition(":")[2]) for part in asked.split(",") if part]
    count = sum(kinds) or gpus_per_node(cluster, spec, "")
    return json.dumps({**cluster.expect, **({"gpu_count": count} if count else {})})


def _checks(chosen: Mapping[str, str]) -> bool:
    """Whether the nodes are checked before the ranks start."""
    return chosen.get("preflight", OFF) != OFF


class _Step(Value):
    """What the lines of a script are made from."""

    cluster: Cluster
    spec: JobSpec
    chosen: Mapping[str, str]
    watched: bool

    @property
    def gang(self) -> bool:
        """Whether each task of an array has several processes, which together are one rank."""
        one = self.spec.nodes == 1 and _one_task(self) and self.spec.launch is Launch.PLAIN
        return self.watched and "array" in self.chosen and not one

    @property
    def network(self) -> str:
        """The job network (CIDR) if the ranks talk over one; each node looks up its part."""
        cluster = self.cluster
        wanted = self.spec.nodes > 1 and not is_loopback(cluster.network)
        return cluster.network if wanted else ""

    @property
    def shimmed(self) -> bool:
        """Whether each process is a rank with its own output files."""
        return self.watched and not self.gang


_NETWORK_FILE = '"$RANKDECK_RUN/network.$SLURM_JOB_ID"'
_FIELDS = "RANKDECK_INTERFACE RANKDECK_ADDRESS RANKDECK_DEVICES"
_OF_NETWORK = {
    "NCCL_SOCKET_IFNAME": "=$RANKDECK_INTERFACE",
    **dict.fromkeys(SOCKETS, "$RANKDECK_INTERFACE"),
    "UCX_NET_DEVICES": "$RANKDECK_DEVICES",
}


def _look_up_network(step: _Step) -> list[str]:
    """Shell lines that write each node's part of the job network to a file of the run folder,
    which its tasks read: before a container, which may not have `ip`.
    """
    if not step.network:
        return []
    values = " ".join(f"${name}" for name in _FIELDS.split())
    look = f'{network_lines(step.network, "")}; echo "$SLURM_NODEID {values}"'
    srun = 'srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --mpi=none --input=none'
    return [f"{srun} sh -c {shlex.quote(look)} >{_NETWORK_FILE} || exit 1"]


def _over_network(step: _Step, argv: Sequence[str]) -> tuple[str, ...]:
    """The command of a task, told by variables which part its node has in the job network;
    what the job itself sets wins.
    """
    if not step.network:
        return tuple(argv)
    read = (
        f'while read -r id {_FIELDS}; do [ "$id" != "$SLURM_NODEID" ] || break; done'
        f" <{_NETWORK_FILE}; export {_FIELDS}"
    )
    told = " ".join(f'{name}="${{{name}-{value}}}"' for name, value in _OF_NETWORK.items())
    return ("sh", "-c", f'{read}; export {told}; exec "$@"', "network", *argv)


def sbatch_options(step: _Step, job: str) -> list[str]:
    """The options of sbatch for a job: what its file, the cluster file and the launcher ask for."""
    cluster, spec, chosen = step.cluster, step.spec, step.chosen
    values = {
        "job-name": spec.name,
        "nodes": str(spec.nodes),
        "ntasks-per-node": str(1 if _one_task(step) else planned_ranks_per_node(cluster, spec)),
        "output": f"{RUN_TOKEN}/launcher/out" if step.watched else f"rankdeck-{job}.out",
        "open-mode": "append",
    }
    if gpus := _gpus(step):
        values["gpus-per-node"] = gpus
    if cpus := _cpus_per_task(step):
        values["cpus-per-task"] = cpus
    values |= {key: chosen[key] for key in PLAIN if key in chosen and chosen[key] != OFF}
    for key, (on, off) in SWITCHES.items():
        if key in chosen:
            values[off if chosen[key] == OFF else on] = ""
    if spec.on:
        values["nodelist"] = ",".join(spec.on)
    words = [f"--{key}" + (f"={value}" if value else "") for key, value in values.items()]
    return [*words, *json.loads(chosen.get("args", "[]"))]


def _escaped(line: str) -> str:
    """An option escaped for an `#SBATCH` line, where `#` begins a
    comment and spaces separate words.
    """
    safe = line.replace("\\", "\\\\") if "\\" in line else line
    safe = safe.replace("#", "\\#")
    return f'"{safe}"' if " " in safe and RUN_TOKEN not in safe else safe


def _one_task(step: _Step) -> bool:
    """Whether a node has only one Slurm task, which starts the ranks itself or is the only rank."""
    plain = step.spec.launch is Launch.PLAIN and step.spec.ranks_per_node in (0, 1)
    alone = "array" in step.chosen and plain
    return alone or step.spec.launch in (Launch.TORCHRUN, Launch.TENSORFLOW)


def _cpus_per_task(step: _Step) -> str:
    """CPUs per task: as requested, else for torchrun one for each rank
    that it starts; "" leaves it to Slurm.
    """
    asked = step.chosen.get("cpus-per-task", "")
    each = planned_ranks_per_node(step.cluster, step.spec)
    default = str(each) if step.spec.launch is Launch.TORCHRUN and each > 1 else ""
    shares = "cpus-per-gpu" in step.chosen or "exclusive" in step.chosen
    return asked or ("" if shares else default)


def _gpus(step: _Step) -> str:
    """GPUs of each node: `8`, or with their type `a100:8`."""
    asked = step.chosen.get("gpus", "")
    if asked and not asked.isdigit():
        return asked
    count = gpus_per_node(step.cluster, step.spec, asked)
    return str(count) if count else ""


def _environment(step: _Step, job: str) -> list[PlanPart]:
    first = _marking(step) if step.watched else _by_hand(job)
    env = {"PYTHONUNBUFFERED": "1", **_variables(step)}
    return [*first, exports_part(export_lines(env))]


def _marking(step: _Step) -> list[PlanPart]:
    """Shell lines that write marks for the keeper."""
    text = _TASK if "array" in step.chosen else _MARKS
    return [PlanPart(LineKind.SETUP, text.removesuffix("\n"))]


def _by_hand(job: str) -> list[PlanPart]:
    """Shell lines that make the run folder of a job without a keeper."""
    exports = [
        f"export RANKDECK_JOB={shell_word(job)}",
        f'export RANKDECK_RUN="$SLURM_SUBMIT_DIR"/{shell_word(f"rankdeck-{job}")}',
    ]
    return [exports_part(exports), PlanPart(LineKind.SETUP, f"mkdir -p {RUN}")]


def _file_parts(name: str, text: str) -> Iterator[PlanPart]:
    path = f"{RUN_TOKEN}/{name}"
    if "/" in name:
        yield PlanPart(LineKind.SETUP, f"mkdir -p {shell_word(path.rpartition('/')[0])}")
    yield from file_parts(whole_file(NodeFile(path, text)))


def _srun(step: _Step, argv: Sequence[str], *extra: str) -> str:
    """The srun line; each task writes its own output files, through the shim or by srun."""
    spec = step.spec
    lone = _one_task(step) and spec.nodes == 1
    name = "%t" if "array" not in step.chosen else "%a" if lone else "%a.%t"
    by_hand = f"--output={RUN}/{name}.out --error={RUN}/{name}.err --open-mode=append"
    words = [f"{shell_word(SHIM)} srun --label" if step.gang else "srun"]
    words += ["--kill-on-bad-exit=1 --wait=60", *extra]
    words += [] if step.watched else [by_hand]
    cpus = _cpus_per_task(step)
    # Since Slurm 22.05, srun does not inherit this from sbatch.
    words += [f"--cpus-per-task={cpus}"] if cpus else []
    words += [f"--chdir={shell_word(spec.workdir)}"] if spec.workdir else []
    return " ".join([*words, *_pyxis(step), shell_line(_over_network(step, argv))])


_GPU_VARIABLES = {
    "nvidia": {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
}
"""Enroot's hook provides no GPUs if the first is not set, and no CUDA
with the second's default, `utility`.
"""
_PMIX_VARIABLES = {"PMIX_MCA_gds": "hash"}
"""Ranks in an image cannot map the shared memory of the host's PMIx."""


def _variables(step: _Step) -> dict[str, str]:
    """The variables of the job's ranks: those that the runtime needs,
    overridden by the cluster's and the job's own.
    """
    spec, container = step.spec, step.spec.container
    own = {**_tcp_network(step), **step.cluster.environment, **spec.env}
    if container is None:
        return own
    runtime = find_runtime(container.runtime)
    if not runtime.in_srun:
        return {**_mca(runtime, spec), **own, **runtime.variables(spec.env)}
    needed = dict(_GPU_VARIABLES.get(container.gpu, {}))
    if spec.launch is Launch.MPI:
        needed |= _PMIX_VARIABLES
    return {**needed, **own}


def _tcp_network(step: _Step) -> dict[str, str]:
    """Open MPI's parameter for its TCP as a variable: srun starts the ranks without mpirun."""
    spec = step.spec
    wanted = step.network and spec.launch is Launch.MPI and spec.mpi.flavour != "mpich"
    return {"OMPI_MCA_btl_tcp_if_include": step.network} if wanted else {}


def _mca(runtime: Runtime, spec: JobSpec) -> dict[str, str]:
    """The runtime's `--mca NAME VALUE` options as variables, because
    srun starts the ranks without mpirun.
    """
    if spec.launch is not Launch.MPI:
        return {}
    words = runtime.launcher_args(spec.mpi.flavour)
    return {f"OMPI_MCA_{words[at + 1]}": words[at + 2] for at in range(0, len(words), 3)}


def _pyxis(step: _Step) -> list[str]:
    """The srun options for an image that Pyxis opens; the job's
    variables override those of the image.
    """
    container = step.spec.container
    if container is None or not find_runtime(container.runtime).in_srun:
        return []
    mounts = ",".join([f"{RUN_TOKEN}:{RUN_TOKEN}", *container.mounts])
    words = [f"--container-image={container.image}", f"--container-mounts={mounts}"]
    workdir = container.workdir or step.spec.workdir
    words += [f"--container-workdir={workdir}"] if workdir else []
    names = ",".join(["RANKDECK_JOB", "RANKDECK_RUN", *_variables(step)])
    args = [
        _named(word, container.image) if before == _NAME or word.startswith(f"{_NAME}=") else shell_word(word)
        for before, word in pairwise(("", *container.args))
    ]  # fmt: skip
    return [shell_line([*words, f"--container-env={names}"]), *args]


_NAME = "--container-name"


def _named(word: str, image: str) -> str:
    """A container name, for sh, with a mark of the image: Pyxis reuses a
    container of that name whatever its image.

    An image file may be replaced, so the mark includes its time and
    size as the job's first node sees them.
    """
    name, colon, flags = word.partition(":")
    mark = hashlib.sha256(image.encode()).hexdigest()[:8]
    built = f'-"$(stat -Lc %Y-%s {shell_word(image)} 2>/dev/null)"' if image[:1] == "/" else ""
    return shell_word(f"{name}-{mark}") + built + (shell_word(colon + flags) if colon else "")


def _boxed(spec: JobSpec, argv: Sequence[str]) -> tuple[str, ...]:
    """The command wrapped in its container, unless Pyxis opens it; raises LaunchError."""
    container = spec.container
    if container is None:
        return tuple(argv)
    runtime = find_runtime(container.runtime)
    if runtime.in_srun:
        return tuple(argv)
    if runtime.has_server:
        others = (find_runtime(name) for name in plugin_names("runtimes"))
        kept = ", ".join(one.name for one in others if one.program and not one.has_server)
        raise LaunchError(
            "plan", f"{runtime.name} leaves the Slurm job's cgroup; use one of {kept}"
        )
    return runtime.wrap(argv, container, spec.env, spec.launch)


def _rank(step: _Step, argv: Sequence[str]) -> tuple[str, ...]:
    """The command of a task that is one rank, with the shim if a supervisor follows the job."""
    shim = (SHIM,) if step.shimmed else ()
    return (*shim, *_boxed(step.spec, argv))


def _mpi(step: _Step) -> list[str]:
    usual = "pmi2" if step.spec.mpi.flavour == "mpich" else "pmix"
    mpi = f"--mpi={shell_word(step.chosen.get('mpi', usual))}"
    return [_srun(step, _rank(step, step.spec.command), mpi)]


def _plain(step: _Step) -> list[str]:
    return [_srun(step, _rank(step, step.spec.command))]


def _head_node(step: _Step) -> str:
    """The line that finds the address of the first node."""
    of_network = f"MASTER_ADDR=$(sed -n 's/^0 [^ ]* \\([^ ]*\\) .*/\\1/p' {_NETWORK_FILE})"
    return of_network if step.network else _HEAD_NODE


def _torchrun(step: _Step) -> list[str]:
    """One torchrun per node; the head node is determined on the batch host, which has scontrol."""
    spec = step.spec
    port = str(spec.torch.port) if spec.torch.port else _PORT
    words = [
        spec.torch.path,
        f"--nnodes={spec.nodes}",
        f"--nproc-per-node={planned_ranks_per_node(step.cluster, spec)}",
    ]
    late = '--node-rank="$SLURM_NODEID" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT"'
    late += ' --local-addr="$RANKDECK_ADDRESS"' if step.network else ""
    line = f"exec {shell_line(words)} {late} --max-restarts=0 {_trainer(step)}"
    return [
        _head_node(step),
        f"MASTER_PORT={port}",
        "export MASTER_ADDR MASTER_PORT",
        _srun(step, _boxed(spec, ("bash", "-c", line))),
    ]


def _trainer(step: _Step) -> str:
    """The last words of the torchrun line: what it starts, and
    where the output of each rank goes.
    """
    spec = step.spec
    if step.shimmed:
        argv = (*TORCHRUN_ENDS, SHIM, *script_command(spec.command))
        return shell_line([*spec.torch.args, *argv])
    plain = ("--",) if spec.command[0].endswith(".py") else TORCHRUN_ENDS
    if step.gang:
        return shell_line([*spec.torch.args, *plain, *spec.command])
    logs = f'--log-dir={RUN}/torch."$SLURM_NODEID" -r 3 -t 3'
    return f"{logs} {shell_line([*spec.torch.args, *plain, *spec.command])}"


def _tensorflow(step: _Step) -> list[str]:
    quoted = f"sed 's/.*/\"&:'\"{_PORT}\"'\"/'"
    hosts = 'scontrol show hostnames "$SLURM_JOB_NODELIST"'
    if step.network:
        hosts = f"sort -n {_NETWORK_FILE} | cut -d ' ' -f 3"
    inside = (
        'export TF_CONFIG="{\\"cluster\\":{\\"worker\\":[$RANKDECK_WORKERS]},'
        '\\"task\\":{\\"type\\":\\"worker\\",\\"index\\":$SLURM_NODEID}}"; '
        f"exec {shell_line(step.spec.command)}"
    )
    return [
        f"RANKDECK_WORKERS=$({hosts} | {quoted} | paste -sd,)",
        "export RANKDECK_WORKERS",
        _srun(step, _rank(step, ("bash", "-c", inside))),
    ]


def _jax(step: _Step) -> list[str]:
    """One process per rank; the first node's listens as the coordinator."""
    several = planned_ranks_per_node(step.cluster, step.spec) > 1
    numbers = jax_variables(
        "", "$SLURM_STEP_NUM_TASKS", "$SLURM_PROCID", "$SLURM_LOCALID" if several else ""
    )
    told = " ".join(f'{name}="{value}"' for name, value in numbers.items() if value)
    inside = f"export {told}; exec {shell_line(step.spec.command)}"
    return [
        _head_node(step),
        f'export JAX_COORDINATOR_ADDRESS="$MASTER_ADDR:{_PORT}"',
        _srun(step, _rank(step, ("bash", "-c", inside))),
    ]


_STEPS = {
    Launch.MPI: _mpi,
    Launch.PLAIN: _plain,
    Launch.TORCHRUN: _torchrun,
    Launch.TENSORFLOW: _tensorflow,
    Launch.JAX: _jax,
}
"""Launcher -> makes the lines that start the ranks: the last is srun's, those before prepare it."""
