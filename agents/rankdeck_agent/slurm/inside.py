"""Looks at the ranks of a Slurm job from beside them: a step of its own in the job's allocation runs the agent on each node.

No login to the nodes is needed. The step takes nothing from the ranks (`--overlap --mem=0`), and each node
leaves its answer as a file in the run folder, which all of them share.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from rankdeck_agent.files import private_folder, write_private
from rankdeck_agent.job import inspect as looking
from rankdeck_agent.job.folder import FolderError, RunFolder, all_events, plain, table
from rankdeck_agent.slurm.commands import environment, run
from rankdeck_agent.slurm.run import read_id, restored, settings

_LIMIT = 35.0
"""Seconds for the step; a controller that is busy takes its time."""
_MOST_BYTES = 8 << 20
STEP = (
    "--overlap", "--mem=0", "--gres=none", "--ntasks-per-node=1", "--cpus-per-task=1", "--mpi=none",
    "--input=none", "--output=none", "--kill-on-bad-exit=0", "--immediate=20", "--job-name=rankdeck",
)  # fmt: skip
"""Options of srun for a step beside the ranks."""


def inspect(folder: RunFolder) -> dict[str, Any]:
    """What `job inspect` finds on each node with running ranks: `inside`, a row a node, and `missing`, node -> why not."""
    if settings(folder).get("array"):
        raise FolderError("the tasks of an array are not looked at: each is a job of its own")
    hosts = running_hosts(folder)
    if not hosts:
        raise FolderError("no rank of the job runs")
    number, path = read_id(folder)
    place = folder / f"inspect.{os.getpid()}"
    private_folder(place)
    try:
        argv = (
            "srun",
            f"--jobid={number}",
            f"--nodes={len(hosts)}",
            f"--nodelist={','.join(hosts)}",
            *STEP,
        )
        program = ("python3", str(_agent(folder)), "slurm", "beside", str(place))
        reply = run((*argv, *program), environment(os.environ, path), limit=_LIMIT)
        found = {host: _answer(place / f"{host}.json") for host in hosts}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    why = plain(reply.error or "the step left no answer there")
    return {
        "inside": [{**row, "host": host} for host, row in found.items() if row],
        "missing": {host: why for host, row in found.items() if not row},
    }


def running_hosts(folder: RunFolder) -> list[str]:
    """The nodes on which ranks of the present run are that have not ended."""
    track = restored(all_events(folder / "events"))
    return sorted({host for rank, host in track.hosts.items() if rank not in track.ended and host})


def _agent(folder: RunFolder) -> Path:
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
