"""Steps of srun beside the ranks of a job: they inspect the ranks, ask what silent ones wait for,
and tell telemetry.

No login to the nodes is needed. A step takes no resources from the ranks (`--overlap --mem=0`). To
inspect ranks, the step writes one file per node into the run folder, which all nodes share;
telemetry comes through srun's stdout.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Callable

from rankdeck_agent.config import AgentConfigError, Config, from_mapping
from rankdeck_agent.job import inspect as looking
from rankdeck_agent.job.folder import FolderError, RunFolder, all_events, find_run_folder
from rankdeck_agent.private_files import leave_no_core, make_private_folder, replace_private
from rankdeck_agent.schedulers.slurm.environment import login_environment
from rankdeck_agent.schedulers.slurm.folder import read_id, read_job_settings, slurm_of
from rankdeck_agent.schedulers.slurm.run import restore_track
from rankdeck_agent.text import parse_json_table, plain_line

_STEP_LIMIT = 35.0
"""Seconds for the step; a busy controller may take long."""
_MOST_BYTES = 8 << 20
STEP = (
    "--overlap", "--mem=0", "--gres=none", "--ntasks-per-node=1", "--cpus-per-task=1", "--mpi=none",
    "--kill-on-bad-exit=0", "--immediate=20", "--job-name=rankdeck",
)  # fmt: skip
"""Options of srun for a step beside the ranks."""
_SILENT = ("--input=none", "--output=none")
_SPOKEN = ("--input=all", "--output=all", "--wait=0")


def inspect_slurm_ranks(folder: RunFolder) -> dict[str, Any]:
    """Run `job inspect` on each node with running ranks: {"inside": one row
    per node, "missing": node -> why not}.

    Raises FolderError, OSError.
    """
    return _ask_beside_ranks(folder, "beside")


def ask_slurm_witnesses(folder: RunFolder) -> dict[str, Any]:
    """The same of `job witness`. Raises FolderError, OSError."""
    return _ask_beside_ranks(folder, "standing")


def keep_standing_ranks(job: str, node: str) -> int:
    """Ask the ranks of this job where they stand, and freeze its black box with their answers.

    Returns the exit code.
    """
    from rankdeck_agent.job.black_box import QUESTIONS, Ring

    try:
        folder = find_run_folder(job, node)
        ring = Ring(folder)
        for _ in range(QUESTIONS):
            answer = ask_slurm_witnesses(folder)
            # The step may have waited for the controller: it is the time of the answer that counts.
            ring.note_standing(round(time.time(), 3), answer)
        ring.freeze_silence(folder.ranks()[1:])
    except (FolderError, OSError) as error:
        print(f"{job}: its ranks are not asked: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _ask_beside_ranks(folder: RunFolder, command: str) -> dict[str, Any]:
    hosts = _running_hosts(folder)
    place = folder / f"inspect.{os.getpid()}"
    make_private_folder(place)
    try:
        argv = _step(folder, hosts, *_SILENT, command=(command, str(place)))
        reply = slurm_of(folder).ask(*argv, limit=_STEP_LIMIT)
        found = {host: _answer(place / f"{host}.json") for host in hosts}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    why = plain_line(reply.error or "the step left no answer there")
    return {
        "inside": [{**row, "host": host} for host, row in found.items() if row],
        "missing": {host: why for host, row in found.items() if not row},
    }


def _running_hosts(folder: RunFolder) -> list[str]:
    """The nodes with running ranks; raises FolderError if there are none, or for a job array."""
    if read_job_settings(folder).get("array"):
        raise FolderError("the tasks of an array are not looked at: each is a job of its own")
    track = restore_track(all_events(folder.events))
    hosts = {host for rank, host in track.hosts.items() if rank not in track.ended and host}
    if not hosts:
        raise FolderError("no rank of the job runs")
    return sorted(hosts)


def _step(
    folder: RunFolder, hosts: list[str], *options: str, command: tuple[str, ...]
) -> tuple[str, ...]:
    """The srun command that runs a command of the agent once on each of these nodes."""
    where = (
        f"--jobid={read_id(folder)[0]}",
        f"--nodes={len(hosts)}",
        f"--nodelist={','.join(hosts)}",
    )
    program = ("python3", str(share_agent(folder)), "slurm", *command)
    return ("srun", *where, *STEP, *options, *program)


def share_agent(folder: RunFolder) -> Path:
    """A copy of this program in the run folder, where the nodes can read it."""
    own = Path(sys.argv[0]).absolute()
    copy = folder / own.name
    if not copy.exists():  # its name has a digest, and it is only ever complete
        fresh = folder / f"{own.name}.{os.getpid()}"
        shutil.copyfile(own, fresh)
        fresh.replace(copy)
    return copy


def _answer(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return parse_json_table(file.read(_MOST_BYTES).decode("utf-8", "replace")) or {}
    except OSError:
        return {}


def inspect_beside_ranks(folder_of_answers: str) -> int:
    """On a node of the job: inspect its ranks and write the answer to
    this folder inside the run folder.
    """
    return _answer_beside_ranks(Path(folder_of_answers), looking.inspect_node_ranks)


def look_beside_ranks(folder_of_answers: str) -> int:
    """The same for `job witness`."""
    from rankdeck_agent.job.standstill import look_at_standing_ranks

    return _answer_beside_ranks(Path(folder_of_answers), look_at_standing_ranks)


def _answer_beside_ranks(place: Path, look: "Callable[[RunFolder, str], dict[str, Any]]") -> int:
    host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    path = place.parent
    folder = RunFolder(path, path.parent.name, path.name)
    replace_private(place / f"{host}.json", json.dumps(look(folder, host)).encode())
    return 0


def hear_job_nodes(job: str, node: str) -> int:
    """Replace this process by the srun whose tasks send telemetry of the
    job's nodes, until stdin or the job ends.

    The first line on stdin is {"of": {node: index in configs}, "configs": […]}; later lines are as
    for `telemetry`. Returns an exit code only if srun cannot be started.
    """
    try:
        folder = find_run_folder(job, node)
        argv = _step(folder, _running_hosts(folder), *_SPOKEN, command=("tell",))
        os.execvpe(argv[0], argv, login_environment(os.environ, slurm_of(folder).variables))
    except (FolderError, OSError) as error:
        print(f"rankdeck-agent: {plain_line(str(error))}", file=sys.stderr)
    return 2


def tell_telemetry() -> int:
    """On a node of the job: run `telemetry`, but write to stdout (StdoutPublisher).

    Returns the exit code.
    """
    from rankdeck_agent import telemetry  # here: it loads the collectors, which others do not need

    leave_no_core()
    try:
        config = own_config(telemetry.read_line(0), os.environ.get("SLURMD_NODENAME", ""))
    except AgentConfigError as error:
        print(f"rankdeck-agent: {plain_line(str(error))}", file=sys.stderr)
        return 2
    lines = telemetry.StdoutPublisher(telemetry.make_hello(config))
    try:
        lines.announce()
        telemetry.publish_samples(
            config, telemetry.Lease(stdin=True, samples=config.samples), lines
        )
        lines.stop()
    except BrokenPipeError:
        pass  # srun is gone
    return 0


def own_config(line: bytes, node: str) -> Config:
    """The configuration of this node, from the line for all nodes; raises AgentConfigError."""
    raw = parse_json_table(line.decode("utf-8", "replace")) or {}
    try:
        return from_mapping({**raw["configs"][raw["of"][node]], "node": node, "host": "srun"})
    except (LookupError, TypeError) as error:
        raise AgentConfigError(f"no configuration for node {node}: {error!r}") from error
