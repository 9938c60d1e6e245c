"""Gives Slurm something to run: `slurm submit` and `attach` a job, which the keeper then keeps; `slurm beside` a step of the agent beside its ranks.

No login to the nodes is needed. The step takes nothing from the ranks (`--overlap --mem=0`). Who looks at the ranks
leaves an answer of each node as a file in the run folder, which all of them share; telemetry comes through
srun, in lines that it leaves whole.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from rankdeck_agent.config import AgentConfigError, Config, from_mapping
from rankdeck_agent.files import leave_no_core, private_folder, readable, write_private
from rankdeck_agent.job import inspect as looking
from rankdeck_agent.job import processes
from rankdeck_agent.job.folder import (
    FolderError,
    FolderThereError,
    Journal,
    RunFolder,
    all_events,
    existing,
    post_mortem,
)
from rankdeck_agent.job.ranks import environment, make, unlink_links
from rankdeck_agent.machine import local_addresses
from rankdeck_agent.slurm import commands
from rankdeck_agent.slurm.commands import login_environment, run, shown_job
from rankdeck_agent.slurm.folder import (
    MARKS,
    attached,
    later_job,
    read_id,
    register_job,
    settings,
    start_keeper,
    unregister_job,
    write_id,
)
from rankdeck_agent.slurm.keeper import ask_for_job
from rankdeck_agent.slurm.run import restored
from rankdeck_agent.text import plain, say, table
from rankdeck_agent.wire import NodePlan, WireError, node_plan

_STEP_LIMIT = 35.0
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
        reply = run(argv, login_environment(os.environ, read_id(folder)[1]), limit=_STEP_LIMIT)
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
        os.execvpe(argv[0], argv, login_environment(os.environ, read_id(folder)[1]))
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


SCRIPT = "job.sbatch"
_LIMIT = 80.0
"""Seconds for sbatch: it tries again by itself while the controller is busy."""
_SLACK = 5.0
_LONGEST_PLAN = 64 << 20
_NOBODY = "Unable to contact slurm controller"
_CLUSTER = re.compile(r"[^A-Za-z0-9_.-]")


def submit() -> int:
    """Submit the job whose plan is on stdin; print one line of JSON: `ok`, and `id` or `error`."""
    try:
        plan = _plan(sys.stdin.buffer.read(_LONGEST_PLAN))
        folder = make(plan)
        _prepare(folder)
        if settings(folder).get("preflight"):
            shared_agent(folder)
    except (WireError, FolderError, OSError) as error:
        return say({"ok": False, "error": str(error)})
    return say(_apart(plan, folder))


def attach() -> int:
    """Follow the job whose plan is on stdin, which somebody else submitted; one that is followed already stays so."""
    try:
        plan = _plan(sys.stdin.buffer.read(_LONGEST_PLAN))
        folder = make(plan)
        number = str((attached(folder) or {}).get("attached", ""))
        if not number.isdecimal():
            raise FolderError("no id of a job")
        _prepare(folder)
        write_id(folder, number, plan.env.get("PATH") or os.environ.get("PATH", os.defpath))
    except FolderThereError:
        pass
    except (WireError, FolderError, OSError) as error:
        return say({"ok": False, "error": str(error)})
    start_keeper()
    return say({"ok": True})


def _plan(data: bytes) -> NodePlan:
    raw = table(data.decode("utf-8", "replace"))
    if raw is None:
        raise WireError("bad plan: not a JSON object")
    return node_plan(raw)


def _prepare(folder: RunFolder) -> None:
    """Make of the folder one whose ranks are elsewhere: no pipe, no links, a place for their marks."""
    (folder / "control").unlink()
    unlink_links(folder)
    private_folder(folder / MARKS)
    journal = Journal(folder / "events")
    journal.add("ready", pid=os.getpid(), boot=processes.boot(), addresses=local_addresses())
    journal.close()
    register_job(folder)


def _apart(plan: NodePlan, folder: RunFolder) -> dict[str, Any]:
    """Have a process of its own submit it: what sbatch was told may not be forgotten where SSH ends."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(reading)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        status = 1
        try:
            told = json.dumps(_submit(plan, folder)).encode()
            os.write(writing, told)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    ready = readable([reading], _LIMIT + _SLACK)
    said = os.read(reading, 65536) if ready else b""
    os.close(reading)
    return table(said.decode("utf-8", "replace")) or {
        "ok": False,
        "error": "sbatch did not answer; the job may be in the queue all the same: `squeue --me`",
    }


def _submit(plan: NodePlan, folder: RunFolder) -> dict[str, Any]:
    env = environment(plan, folder, {})
    reply = commands.run(
        ("sbatch", "--parsable", "--export=ALL", SCRIPT), env, limit=_LIMIT, cwd=str(folder.path)
    )
    number, cluster = job_number(reply.out)
    slurm = commands.Slurm(env.get("PATH", os.defpath))
    if number and cluster and not _is_here(folder, ask_for_job(slurm, number)):
        return _refused(folder, _taken_back(slurm, number, cluster))
    if number:
        write_id(folder, number, env.get("PATH", os.defpath))
        start_keeper()
        return {"ok": True, "id": number}
    if "did not answer" in reply.error or "timed out" in reply.error:
        start_keeper()  # which looks for the job in the queue
        return {"ok": True, "id": ""}
    if _NOBODY in reply.error:
        return _refused(folder, f"Slurm has not taken the job: {reply.error}")
    why = reply.error or f"sbatch told no number of a job: {plain(reply.out, 200)!r}"
    return _refused(folder, f"Slurm refused the job: {why}")


def _refused(folder: RunFolder, why: str) -> dict[str, Any]:
    """Close the folder of a job that Slurm does not have."""
    post_mortem(folder / "events", [{"kind": "trouble", "text": why}])
    unregister_job(folder)
    return {"ok": False, "error": why}


def _is_here(folder: RunFolder, reply: commands.SlurmReply) -> bool:
    """Whether the cluster of this login node has the job."""
    seen = shown_job(reply.out) if reply.well else None
    return seen is not None and not later_job(folder, seen)


def _taken_back(slurm: commands.Slurm, number: str, cluster: str) -> str:
    """End a job that went to another cluster, which nobody could follow from here; returns a sentence about it."""
    ended = slurm.ask("scancel", f"--clusters={cluster}", number)
    what = f"sbatch gave the job to the cluster {cluster}, which is not that of this login node"
    if not ended.well:
        return f"{what}, and it could not be taken back ({ended.error}): `scancel --clusters={cluster} {number}`"
    return f"{what}: it was taken back; a cluster file with a login node of {cluster} starts jobs there"


def job_number(text: str) -> tuple[str, str]:
    """The id in what `sbatch --parsable` wrote, `4711` or `4711;cluster`, and that cluster; "" if there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    word, _, cluster = lines[-1].partition(";") if lines else ("", "", "")
    good = word.isdecimal() and word.isascii() and len(word) < 12
    return (word, _CLUSTER.sub("", cluster)[:40]) if good else ("", "")
