"""Commands to Slurm: submits, follows, inspects and cancels jobs; drains and resumes nodes.

`slurm service` takes one line of JSON on stdin: {"do": "drain" | "resume", "nodes": […], "why": …,
"anyway": …, "agreed": …, "environment": {…}}. Without `agreed` it only answers which command it
would run. With it the command is run, if it is still the same.

No login to the nodes is needed. A step takes no resources from the ranks (`--overlap --mem=0`). To
inspect ranks, the step writes one file per node into the run folder, which all nodes share;
telemetry comes through srun's stdout.
"""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, cast

from rankdeck_agent import DRAIN_PREFIX as OURS
from rankdeck_agent.config import AgentConfigError, Config, from_mapping
from rankdeck_agent.files import leave_no_core, make_private_folder, replace_private, wait_readable
from rankdeck_agent.job import inspect as looking
from rankdeck_agent.job import processes
from rankdeck_agent.job.daily_clean import clean_daily
from rankdeck_agent.job.folder import (
    FolderError,
    FolderThereError,
    Journal,
    RunFolder,
    all_events,
    find_run_folder,
    is_closed,
    post_mortem,
    wait_until,
)
from rankdeck_agent.job.ranks import make_run_folder, process_environment, unlink_links
from rankdeck_agent.machine import local_addresses
from rankdeck_agent.older_python import is_ascii, without_prefix
from rankdeck_agent.slurm.array import covers_task
from rankdeck_agent.slurm.commands import Slurm, SlurmReply, run_slurm_command, slurm_in
from rankdeck_agent.slurm.environment import login_environment, submit_environment
from rankdeck_agent.slurm.folder import (
    ASKED,
    MARKS,
    SEEN,
    KeeperWatch,
    attached_settings,
    is_from,
    later_job,
    read_id,
    read_job_settings,
    register_job,
    slurm_of,
    start_keeper,
    unregister_job,
    write_id,
)
from rankdeck_agent.slurm.job_reports import (
    CLOCKS,
    SQUEUE,
    SlurmJobRow,
    queue_rows,
    shown_job,
    shown_jobs,
    these_jobs,
)
from rankdeck_agent.slurm.keeper import ask_for_job, is_unknown
from rankdeck_agent.slurm.queue import Row
from rankdeck_agent.slurm.run import restore_track
from rankdeck_agent.slurm.sinfo import SINFO, node_rows
from rankdeck_agent.slurm.values import parse_number_ranges
from rankdeck_agent.slurm.verdict import FINAL
from rankdeck_agent.text import parse_json_table, plain_line, print_json_line, shown_line
from rankdeck_agent.wire import NO_JOBS, NodePlan, WireError, node_plan
from rankdeck_agent.wire.job_events import JobEvent, SupervisorReady, Trouble

_SLACK = 20.0
"""Seconds after the grace period in which the job must end."""
_PAUSES = (0.7, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Seconds between two questions to Slurm: short at first, because most jobs end at once."""
_ID_LIMIT, _ASK = 10.0, 5.0
_RECORDED = 3.0
"""Seconds for the keeper to record that the job is over."""


def cancel_slurm_job(folder: RunFolder, grace: float, by: str, tasks: str = "") -> dict[str, Any]:
    """End the job, or only these tasks of an array (`3,5-7`); returns
    `left`, what did not end, and `ended`.

    Of an array that somebody else submitted only the tasks are ended that the console follows, if
    it says which. An entry of `left` has `refused` if nothing was done, because this user is not
    allowed to cancel the job. `grace`: seconds until SIGKILL. `by`: one of wire.job_events.ASKERS.
    """
    if is_closed(folder / "events"):
        return {"left": [], "ended": 0}
    if attached_settings(folder):
        refused = _refused(folder, by)
        if refused:
            return {"left": [{**_left(refused), "refused": True}], "ended": 0}
    for end in [f".{task}" for task in parse_number_ranges(tasks)] or [""]:
        _note(folder, f"{ASKED}.{by}.{round(grace)}{end}")
    wait_until(lambda: read_id(folder)[0] or is_closed(folder / "events"), _ID_LIMIT)
    number, _ = read_id(folder)
    if not number:
        closed = is_closed(folder / "events")
        left = [] if closed else [_left("sbatch has not told the id of the job yet")]
        return {"left": left, "ended": 0}
    KeeperWatch().ensure()
    number = _followed_tasks(folder) or (f"{number}_[{tasks}]" if tasks else number)
    why = _end(folder, slurm_of(folder), number, grace)
    if not why and not tasks:
        wait_until(lambda: is_closed(folder / "events"), _RECORDED)
    return {"left": [_left(f"Slurm job {number}: {why}")] if why else [], "ended": _count(folder)}


DENIED = ("Access/permission denied", "Invalid user id", "Unauthorized")
"""Errors of scancel and scontrol that mean: this user is not permitted."""


def _refused(folder: RunFolder, by: str) -> str:
    """Ask Slurm to end a job that somebody else submitted; returns why
    that is refused, "" if it is not.
    """
    number, _ = read_id(folder)
    if by != "user":
        return f"Slurm job {number} was not submitted here: nothing but an operator ends it"
    asked = slurm_of(folder).ask("scancel", _followed_tasks(folder) or number)
    if not any(word in asked.error for word in DENIED):
        return ""
    return f"Slurm ends job {number} for its owner or an operator of Slurm only ({asked.error})"


_TASKS = re.compile(r"[0-9]{1,11}_(?:[0-9]{1,9}|\[[0-9,:-]{1,4096}\])\Z")


def _followed_tasks(folder: RunFolder) -> str:
    """The tasks of an array of somebody else that this job stands for,
    `48_[2-5]`; "" for all that has its number.
    """
    tasks = (attached_settings(folder) or {}).get("tasks")
    return tasks if isinstance(tasks, str) and _TASKS.match(tasks) else ""


def _left(text: str) -> dict[str, Any]:
    return {"pid": 0, "command": text}


def _note(folder: RunFolder, name: str, text: str = "") -> None:
    """Leave a mark for the keeper."""
    if not (folder / MARKS).is_dir():
        return
    fresh = folder / f".{name}"
    fresh.write_text(text)
    fresh.replace(folder / MARKS / name)
    register_job(folder)


def _end(folder: RunFolder, slurm: Slurm, number: str, grace: float) -> str:
    """Have Slurm end the job `number` (or `ID_[TASKS]`); returns "" once it is gone,
    or its state if it does not end in time.
    """
    job, _, tasks = number.partition("_")
    if not attached_settings(folder) and _is_reused(folder, ask_for_job(slurm, job, _ASK)):
        return ""
    asked = slurm.ask("scancel", number)
    began, forced, looks = time.monotonic(), False, 0
    while True:
        time.sleep(_PAUSES[min(looks, len(_PAUSES) - 1)])
        looks += 1
        reply, rows = _asked(folder, slurm, job)
        state = state_of(reply, rows, parse_number_ranges(tasks.strip("[]")))
        if not state:
            _note(folder, f"{SEEN}.{looks}", reply.out)
            return ""
        late = time.monotonic() - began
        if late > grace + _SLACK:
            return f"{state}; scancel says: {asked.error}" if asked.error else state
        if late >= grace and (not forced or state == "RUNNING"):
            forced = True
            asked = slurm.ask("scancel", "--signal=KILL", "--full", number)
            slurm.ask("scancel", number)


def _is_reused(folder: RunFolder, reply: SlurmReply) -> bool:
    """Whether the number belongs to a later job by now, which must not be ended."""
    rows = list(shown_jobs(reply.out)) if reply.well else []
    return bool(rows) and all(later_job(folder, row) for row in rows)


def _asked(folder: RunFolder, slurm: Slurm, job: str) -> tuple[SlurmReply, list[SlurmJobRow]]:
    """What Slurm reports about the job now.

    Somebody else's job is asked for without its name, which may imitate a state.
    """
    if attached_settings(folder):
        reply = slurm.ask(*these_jobs([job]))
        return reply, list(queue_rows(reply.out))
    reply = ask_for_job(slurm, job)
    return reply, list(shown_jobs(reply.out))


def state_of(reply: SlurmReply, rows: Sequence[SlurmJobRow], tasks: Sequence[int] = ()) -> str:
    """The state of the job, or of one of these tasks; why it is not
    known; or "" once all have ended.
    """
    if is_unknown(reply):
        return ""
    if reply.error:
        return reply.error
    if not rows:
        return "Slurm gives no answer about it"
    meant = [row for row in rows if not tasks or any(covers_task(row, task) for task in tasks)]
    return next((row.state for row in meant if row.state not in FINAL), "")


def _count(folder: RunFolder) -> int:
    """The number of ranks that have ended."""
    return sum(1 for event in all_events(folder / "events") if event["kind"] == "exited")


DRAIN, RESUME = "drain", "resume"
_NO_WHY = "taken out of service by hand"
_LONGEST_WHY, _MOST_NODES, _LONGEST = 160, 5000, 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}\Z")


class Order(NamedTuple):
    """A request of an operator to drain or resume nodes."""

    do: str
    """DRAIN or RESUME."""
    nodes: tuple[str, ...]
    why: str = ""
    """The reason for a drain."""
    anyway: bool = False
    """Also resume nodes that others have drained."""
    agreed: str = ""
    """The command line that the operator agreed to; "": only show it."""


def parse_node_order(row: Mapping[str, Any]) -> Optional[Order]:
    """The Order in a line of stdin; None if it is not valid."""
    found, do = row.get("nodes"), row.get("do")
    given: list[object] = list(cast("list[object]", found)) if isinstance(found, list) else []
    names = [name for name in given if isinstance(name, str) and _NAME.match(name)]
    if do not in (DRAIN, RESUME) or not 0 < len(given) <= _MOST_NODES or len(names) < len(given):
        return None
    words = (row.get("why"), row.get("agreed"))
    why, agreed = (word if isinstance(word, str) else "" for word in words)
    return Order(do, tuple(dict.fromkeys(names)), why, row.get("anyway") is True, agreed)


def refused_node_change(asked: Order, row: Optional[Row]) -> str:
    """Why this node must not be changed; "" if it may be.

    `row`: the node in Slurm, None if there is none.
    """
    if row is None:
        return "Slurm has no node of this name"
    out, ours = row["state"].startswith(NO_JOBS), row["reason"].startswith(OURS)
    whose = (
        f"{row['state']} by {row['by'] or 'somebody else'} ({row['reason'] or 'no reason given'})"
    )
    if asked.do == DRAIN:
        return whose if out and row["reason"] and not ours else ""
    if not out:
        return f"it is in service: {row['state']}"
    return "" if ours or asked.anyway else whose


def node_change_command(asked: Order, names: str) -> tuple[str, ...]:
    """The scontrol command for these nodes; `names` as a Slurm host list."""
    if asked.do == RESUME:
        return ("scontrol", "update", f"nodename={names}", "state=resume")
    return (
        "scontrol",
        "update",
        f"nodename={names}",
        "state=drain",
        f"reason={drain_reason(asked.why)}",
    )


def drain_reason(why: str) -> str:
    """The drain reason for Slurm: with our prefix, short, without
    characters that are special to a shell.
    """
    safe = "".join(c if (is_ascii(c) and c.isalnum()) or c in " .,:-_/()+=" else " " for c in why)
    words = " ".join(without_prefix(safe, OURS).split())
    return f"{OURS}{words[:_LONGEST_WHY].strip() or _NO_WHY}"


def typed_command(argv: Sequence[str]) -> str:
    """The command as typed in a shell; only the reason has blanks."""
    *words, last = argv
    key, equals, value = last.partition("=")
    return " ".join((*words, f'{key}{equals}"{value}"' if key == "reason" else last))


def node_change_complaint(asked: Order, error: str) -> str:
    """A sentence for an error with which Slurm refused the command."""
    if any(word in error for word in DENIED):
        verb = "take nodes out of service" if asked.do == DRAIN else "give nodes back"
        return f"you may not {verb}: that takes an operator or administrator of Slurm ({error})"
    return f"Slurm refused it: {error}"


def change_nodes() -> int:
    """Answer the order on stdin with one line of JSON; returns the exit code."""
    row = parse_json_table(sys.stdin.readline(_LONGEST)) or {}
    asked = parse_node_order(row)
    if asked is None:
        answer: Row = {"error": "this order makes no sense"}
    else:
        answer = _serve(asked, slurm_in(row))
    return print_json_line(answer)


def _serve(asked: Order, slurm: Slurm) -> Row:
    rows, error = _look(asked, slurm)
    if error:
        return {"error": f"Slurm does not answer: {error}"}
    reasons = {name: refused_node_change(asked, rows.get(name)) for name in asked.nodes}
    left = {name: why for name, why in reasons.items() if why}
    nodes = [name for name in asked.nodes if name not in left]
    answer: Row = {"nodes": nodes, "left": left, "line": "", "done": False, "error": ""}
    if not nodes:
        return answer
    folded = slurm.ask("scontrol", "show", "hostlist", ",".join(nodes))
    argv = node_change_command(asked, folded.out.strip() if folded.well else ",".join(nodes))
    answer["line"] = typed_command(argv)
    if not asked.agreed:
        return answer
    if asked.agreed != answer["line"]:
        return {**answer, "error": "Slurm says something else of these nodes by now: look again"}
    return {**answer, **_carry_out(asked._replace(nodes=tuple(nodes)), slurm, argv)}


def _carry_out(asked: Order, slurm: Slurm, argv: tuple[str, ...]) -> Row:
    result = slurm.ask(*argv)
    if not result.well:
        return {"error": node_change_complaint(asked, result.error)}
    rows, _ = _look(asked, slurm)
    return {"done": True, "said": plain_line(result.out.strip(), 400), "now": list(rows.values())}


def _look(asked: Order, slurm: Slurm) -> tuple[dict[str, Row], str]:
    """(node name -> its row in Slurm now, why Slurm did not answer or "")."""
    reply = slurm.ask(*SINFO, f"--nodes={','.join(asked.nodes)}")
    found, _ = node_rows(reply.out)
    return {row["name"]: row for row in found}, "" if reply.well else reply.error


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
    track = restore_track(all_events(folder / "events"))
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
    program = ("python3", str(_shared_agent(folder)), "slurm", *command)
    return ("srun", *where, *STEP, *options, *program)


def _shared_agent(folder: RunFolder) -> Path:
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


# ---- telemetry


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


SCRIPT = "job.sbatch"
_LIMIT = 80.0
"""Seconds for sbatch, which tries again by itself while the controller is busy."""
_SBATCH_SLACK = 5.0
_LONGEST_PLAN = 64 << 20
_TIMED_OUT = "timed out"
"""Part of an error of sbatch: the controller may have the job all the same."""
_NOBODY = "Unable to contact slurm controller"
_TAKEN = re.compile(
    r"(?:.*\bSubmitted batch job )?([0-9]{1,11})(?:(?:;| on cluster )([A-Za-z0-9_.-]{1,40}))?\Z"
)
"""A line in which sbatch tells the number of a job: `4711`, `4711;cluster`,
`Submitted batch job 4711 on cluster c`.
"""
_LOOKS_IN_QUEUE = (0.0, 1.0, 3.0)
"""Seconds before each look for a job whose number sbatch has not told."""
_NO_NUMBER = "sbatch told no number of a job, and the queue has none from this folder; it said: {}"
_MOST_NUMBERS, _MOST_SAID, _LONGEST_SAID = 5, 20, 400


def submit_job() -> int:
    """Submit the job whose plan is on stdin; print one line of JSON: `ok`,
    and `id` ("" if not known) or `error`.

    What sbatch and the plug-ins of the site say of a job that is accepted goes to its events.
    """
    try:
        plan = _plan()
        folder = make_run_folder(plan)
        _prepare(folder)
        if read_job_settings(folder).get("preflight"):
            _shared_agent(folder)
    except (WireError, FolderError, OSError) as error:
        return print_json_line({"ok": False, "error": str(error)})
    status = print_json_line(_apart(plan, folder))
    clean_daily()
    return status


def attach_slurm_job() -> int:
    """Follow a job that somebody else submitted; its plan is on stdin.

    Prints `ok` (also if it is followed already) or `error`.
    """
    try:
        plan = _plan()
        folder = make_run_folder(plan)
        number = str((attached_settings(folder) or {}).get("attached", ""))
        if not number.isdecimal():
            raise FolderError("no id of a job")
        _prepare(folder)
        write_id(folder, number, plan.env.get("PATH") or os.environ.get("PATH", os.defpath))
    except FolderThereError:
        pass
    except (WireError, FolderError, OSError) as error:
        return print_json_line({"ok": False, "error": str(error)})
    start_keeper()
    return print_json_line({"ok": True})


def _plan() -> NodePlan:
    return node_plan(
        parse_json_table(sys.stdin.buffer.read(_LONGEST_PLAN).decode("utf-8", "replace"))
    )


def _prepare(folder: RunFolder) -> None:
    """Adapt the run folder to ranks on other machines: no control FIFO, no links,
    but a folder for marks; register the job.
    """
    (folder / "control").unlink()
    unlink_links(folder)
    make_private_folder(folder / MARKS)
    journal = Journal(folder / "events")
    journal.add(SupervisorReady(os.getpid(), processes.read_boot_id(), tuple(local_addresses())))
    journal.close()
    register_job(folder)


def _apart(plan: NodePlan, folder: RunFolder) -> dict[str, Any]:
    """Submit in a process of its own: the job's id must be recorded
    even if the SSH connection ends.
    """
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(reading)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        status = 1
        try:
            answer = json.dumps(_submit(plan, folder)).encode()
            os.write(writing, answer)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    ready = wait_readable([reading], _LIMIT + _SBATCH_SLACK)
    answer = os.read(reading, 65536) if ready else b""
    os.close(reading)
    return parse_json_table(answer.decode("utf-8", "replace")) or {
        "ok": False,
        "error": "sbatch did not answer; the job may be in the queue all the same: `squeue --me`",
    }


def _submit(plan: NodePlan, folder: RunFolder) -> dict[str, Any]:
    inherited = process_environment(plan, folder, {})
    env = submit_environment(inherited, {name: inherited[name] for name in plan.env})
    path = env.get("PATH", os.defpath)
    argv = tuple(folder.plan_text(word) for word in plan.processes[0].argv)
    reply = run_slurm_command(argv, env, limit=_LIMIT, cwd=str(folder.path))
    slurm = slurm_of(folder)._replace(variables={**slurm_of(folder).variables, "PATH": path})
    taken = _taken(folder, slurm, reply)
    if taken is None and reply.well:
        taken, answered = _find_in_queue(folder, slurm)
        if taken is None and answered:
            return _not_submitted(folder, _NO_NUMBER.format("; ".join(said_by(reply)) or "nothing"))
    if (
        taken is not None
        and taken.cluster
        and not _is_here(folder, ask_for_job(slurm, taken.number))
    ):
        return _not_submitted(folder, _taken_back(slurm, *taken))
    if taken is not None:
        _note_said(folder, reply)
        write_id(folder, taken.number, path)
        start_keeper()
        return {"ok": True, "id": taken.number}
    if reply.well or reply.late or _TIMED_OUT in reply.error:
        _note_said(folder, reply)
        start_keeper()  # which looks for the job in the queue
        return {"ok": True, "id": ""}
    why = "; ".join(said_by(reply)) or reply.error
    if _NOBODY in reply.error:
        return _not_submitted(folder, f"Slurm has not taken the job: {why}")
    return _not_submitted(folder, f"Slurm refused the job: {why}")


class TakenJob(NamedTuple):
    """A job that sbatch says it has submitted."""

    number: str
    cluster: str
    """"" for the cluster of this login node."""


def job_numbers(text: str) -> list[TakenJob]:
    """The jobs that lines of sbatch's output may tell, whatever a site's
    wrapper prints before and behind them.
    """
    lines = (_TAKEN.match(shown_line(line, _LONGEST_SAID).strip()) for line in text.splitlines())
    found = (TakenJob(hit[1], hit[2] or "") for hit in lines if hit)
    return list(dict.fromkeys(found))[:_MOST_NUMBERS]


def _taken(folder: RunFolder, slurm: Slurm, reply: SlurmReply) -> Optional[TakenJob]:
    """The job that Slurm has taken; None if it took none, or if that is not known.

    Where sbatch failed, or wrote more than a number, Slurm is asked: it is the job from the run
    folder, or if a site gives jobs another folder, one that was submitted just now.
    """
    found = job_numbers(reply.out) or job_numbers(reply.said)
    if reply.well and len(found) == 1 and len(reply.out.split()) == 1:
        return found[0]
    rows = {one: shown_job(ask_for_job(slurm, one.number).out) for one in found}
    here = [one for one, seen in rows.items() if seen is not None and is_from(folder, seen)]
    late = [one for one, seen in rows.items() if reply.well and seen and _is_new(seen)]
    return next(iter(here or late), None)


def _find_in_queue(folder: RunFolder, slurm: Slurm) -> "tuple[Optional[TakenJob], bool]":
    """(the job in the queue that has the run folder as working directory,
    or None; whether Slurm has answered).
    """
    for pause in _LOOKS_IN_QUEUE:
        time.sleep(pause)
        reply = slurm.ask(*SQUEUE)
        if not reply.well:
            return None, False
        found = next((seen.job for seen in queue_rows(reply.out) if is_from(folder, seen)), "")
        if found:
            return TakenJob(found, ""), True
    return None, True


def _is_new(seen: SlurmJobRow) -> bool:
    return seen.submitted is not None and abs(time.time() - seen.submitted) < CLOCKS


def said_by(reply: SlurmReply) -> list[str]:
    """All that sbatch, and plug-ins and wrappers of the site, wrote, but for
    the number of the job: a line each.
    """
    lines = (
        shown_line(line, _LONGEST_SAID).strip()
        for line in f"{reply.said}\n{reply.out}".splitlines()
    )
    words = (line.partition(": error: ")[2] or line for line in lines)
    said = [line for line in dict.fromkeys(words) if line and not _TAKEN.match(line)]
    more = len(said) - _MOST_SAID
    return [*said[:_MOST_SAID], *([f"and {more} more lines"] if more > 0 else [])]


def _note_said(folder: RunFolder, reply: SlurmReply) -> None:
    journal = Journal(folder / "events")
    for line in said_by(reply):
        journal.add(Trouble(line))
    journal.close()


def _not_submitted(folder: RunFolder, why: str) -> dict[str, Any]:
    """Close the run folder of a job that Slurm does not have; returns the answer."""
    post_mortem(folder / "events", [JobEvent(time.time(), Trouble(why))])
    unregister_job(folder)
    return {"ok": False, "error": why}


def _is_here(folder: RunFolder, reply: SlurmReply) -> bool:
    """Whether the cluster of this login node has the job."""
    seen = shown_job(reply.out) if reply.well else None
    return seen is not None and not later_job(folder, seen)


def _taken_back(slurm: Slurm, number: str, cluster: str) -> str:
    """End a job that sbatch sent to another cluster, where we cannot
    follow it; returns a sentence about it.
    """
    ended = slurm.ask("scancel", f"--clusters={cluster}", number)
    what = f"sbatch gave the job to the cluster {cluster}, which is not that of this login node"
    if not ended.well:
        return f"{what}, and it could not be taken back ({ended.error}): `scancel --clusters={cluster} {number}`"
    return f"{what}: it was taken back; a cluster file with a login node of {cluster} starts jobs there"
