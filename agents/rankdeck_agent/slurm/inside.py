"""The agent beside the ranks of a Slurm job: a step of its own in the job's allocation runs it on each node.

No login to the nodes is needed. The step takes nothing from the ranks (`--overlap --mem=0`). Who looks at the ranks
leaves an answer of each node as a file in the run folder, which all of them share; telemetry comes through
srun, in lines that it leaves whole.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from rankdeck_agent.config import AgentConfigError, Config, from_mapping
from rankdeck_agent.files import leave_no_core, private_folder, write_private
from rankdeck_agent.job import inspect as looking
from rankdeck_agent.job.folder import FolderError, RunFolder, all_events, existing
from rankdeck_agent.slurm.commands import environment, run
from rankdeck_agent.slurm.folder import read_id, settings
from rankdeck_agent.slurm.run import restored
from rankdeck_agent.text import plain, table

_LIMIT = 35.0
"""Seconds for the step; a controller that is busy takes its time."""
_MOST_BYTES = 8 << 20
STEP = (
    "--overlap", "--mem=0", "--gres=none", "--ntasks-per-node=1", "--cpus-per-task=1", "--mpi=none",
    "--kill-on-bad-exit=0", "--immediate=20", "--job-name=rankdeck",
)  # fmt: skip
"""Options of srun for a step beside the ranks."""
_SILENT = ("--input=none", "--output=none")
_SPOKEN = ("--input=all", "--output=all", "--wait=0")


def inspect(folder: RunFolder) -> dict[str, Any]:
    """What `job inspect` finds on each node with running ranks: `inside`, a row a node, and `missing`, node -> why not."""
    hosts = running_hosts(folder)
    place = folder / f"inspect.{os.getpid()}"
    private_folder(place)
    try:
        argv = _step(folder, hosts, *_SILENT, command=("beside", str(place)))
        reply = run(argv, environment(os.environ, read_id(folder)[1]), limit=_LIMIT)
        found = {host: _answer(place / f"{host}.json") for host in hosts}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    why = plain(reply.error or "the step left no answer there")
    return {
        "inside": [{**row, "host": host} for host, row in found.items() if row],
        "missing": {host: why for host, row in found.items() if not row},
    }


def running_hosts(folder: RunFolder) -> list[str]:
    """The nodes on which ranks of the present run are that have not ended; raises FolderError where there is none."""
    if settings(folder).get("array"):
        raise FolderError("the tasks of an array are not looked at: each is a job of its own")
    track = restored(all_events(folder / "events"))
    hosts = {host for rank, host in track.hosts.items() if rank not in track.ended and host}
    if not hosts:
        raise FolderError("no rank of the job runs")
    return sorted(hosts)


def _step(
    folder: RunFolder, hosts: list[str], *options: str, command: tuple[str, ...]
) -> tuple[str, ...]:
    """The srun that runs a command of the agent once on each of these nodes."""
    where = (f"--jobid={read_id(folder)[0]}", f"--nodes={len(hosts)}", f"--nodelist={','.join(hosts)}")  # fmt: skip
    program = ("python3", str(shared_agent(folder)), "slurm", *command)
    return ("srun", *where, *STEP, *options, *program)


def shared_agent(folder: RunFolder) -> Path:
    """This very program, where the nodes can read it."""
    own = Path(sys.argv[0]).absolute()
    copy = folder / own.name
    if not copy.exists():  # its name has the digest, and it is put there whole
        fresh = folder / f"{own.name}.{os.getpid()}"
        shutil.copyfile(own, fresh)
        fresh.replace(copy)
    return copy


def _answer(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return table(file.read(_MOST_BYTES).decode("utf-8", "replace")) or {}
    except OSError:
        return {}


def beside(folder_of_answers: str) -> int:
    """On a node of the job: look, and leave the answer in that folder of the run folder."""
    host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    place = Path(folder_of_answers)
    path = place.parent
    folder = RunFolder(path, path.parent.name, path.name)
    answer = json.dumps(looking.inspect(folder, host)).encode()
    write_private(place / f"{host}.new", answer)
    (place / f"{host}.new").replace(place / f"{host}.json")
    return 0


# ---- telemetry


def hear(job: str, node: str) -> int:
    """Become the srun whose tasks tell how the nodes of the job are, until stdin or the job ends.

    The first line on stdin is {"of": {node: number}, "configs": […]}; later ones are those of `telemetry`.
    """
    try:
        folder = existing(job, node)
        argv = _step(folder, running_hosts(folder), *_SPOKEN, command=("tell",))
        os.execvpe(argv[0], argv, environment(os.environ, read_id(folder)[1]))
    except (FolderError, OSError) as error:
        print(f"rankdeck-agent: {plain(str(error))}", file=sys.stderr)
    return 2


def tell() -> int:
    """On a node of the job: what `telemetry` says, as lines on stdout."""
    from rankdeck_agent import telemetry  # who looks at ranks does without an MQTT client

    leave_no_core()
    try:
        config = own_config(telemetry.read_line(0), os.environ.get("SLURMD_NODENAME", ""))
    except AgentConfigError as error:
        print(f"rankdeck-agent: {plain(str(error))}", file=sys.stderr)
        return 2
    lines = telemetry.StdoutPublisher(telemetry.hello(config))
    try:
        lines.announce()
        telemetry.publish(config, telemetry.Lease(stdin=True, samples=config.samples), lines)
        lines.stop()
    except BrokenPipeError:
        pass  # srun is gone
    return 0


def own_config(line: bytes, node: str) -> Config:
    """The configuration of this node in one line for all; raises AgentConfigError."""
    raw = table(line.decode("utf-8", "replace")) or {}
    try:
        return from_mapping({**raw["configs"][raw["of"][node]], "node": node, "host": "srun"})
    except (LookupError, TypeError) as error:
        raise AgentConfigError(f"no configuration for node {node}: {error!r}") from error
