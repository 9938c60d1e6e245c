"""Rows with a real Slurm, in the root lab: what is killed, slow or says too little in
mid-job, and cancels that must hit what they name and nothing else.
"""

import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from tests.support.lab.root import console_on_nodes, missing
from tests.support.lab.root.people import Operator
from tests.support.lab.rootless import REPOSITORY

from benchmarks.fault_run import wait
from benchmarks.matrix.model import Group, Row, Tally
from benchmarks.matrix.scene import END_LIMIT, START_LIMIT, elapsed
from benchmarks.matrix.sites import Sites, SlurmSite
from rankdeck.config.document import write_documents

RANKS, LINES = 4, 150
FIRST_LINES = 10
WRITES = f"for n in $(seq {LINES}); do echo line $n; sleep 0.1; done"
LOGIN, CONTROLLER = "n4", "n3"
FINAL = ("done", "failed", "cancelled")
Harm = Callable[[SlurmSite, str], Sequence[str]]
"""Done to a site while the job of this id runs; returns what was shown wrong meanwhile."""


def written(lines: Sequence[dict[str, Any]]) -> Counter[tuple[int, str]]:
    """How often each rank's lines were shown."""
    return Counter((line["rank"], line["text"]) for line in lines if line["stream"] == "out")


def missed_lines(shown: Counter[tuple[int, str]]) -> tuple[int, int]:
    """Bytes that the ranks wrote and were not shown, and that were shown twice."""
    wanted = {(rank, f"line {n}") for rank in range(RANKS) for n in range(1, LINES + 1)}
    lost = sum(len(text) + 1 for rank, text in wanted if not shown[rank, text])
    return lost, sum((n - 1) * (len(text) + 1) for (_, text), n in shown.items() if n > 1)


def least_lines(user: Operator, job: str) -> int:
    """How many lines the rank has that was shown the fewest of."""
    shown = Counter(rank for rank, _ in written(user.objects("logs", job)))
    return min(shown[rank] for rank in range(RANKS))


def harmed(harm: Harm, sites: Sites, *, state: str = "done") -> Tally:
    """A job of Slurm that is harmed after its first lines: it ends as if nothing had been."""
    site = sites.slurm
    user = site.user
    job = user.run(
        "--detach", "--no-preflight", launch="plain", command=["sh", "-c", WRITES], slurm={"mem": "200M"}
    )["job"]  # fmt: skip
    if not wait(lambda: least_lines(user, job) >= FIRST_LINES, START_LIMIT):
        raise RuntimeError(f"the ranks do not write: {user.job(job)}")
    wrong = [*harm(site, job)]
    seconds = elapsed(lambda: user.job(job)["state"] in FINAL, END_LIMIT)
    lost, doubled = missed_lines(written(user.objects("logs", job)))
    found = user.job(job)
    wrong += [f"stalled: {found['stalled']}"] if found["stalled"] else []
    wrong += [] if seconds is not None else ["no end was shown"]
    return Tally(
        lost=lost, doubled=doubled, left=user.left(job), state=found["state"],
        right=found["state"] == state, wrong=wrong,
    )  # fmt: skip


def kill_keeper(site: SlurmSite, _: str) -> Sequence[str]:
    site.user.on(LOGIN, "pkill -KILL -f 'slurm [k]eep'")
    return ()


def stop_controller(site: SlurmSite, _: str) -> Sequence[str]:
    """The controller answers nobody for 25 s."""
    site.root.on(CONTROLLER, "pkill -STOP slurmctld; sleep 25; pkill -CONT slurmctld", 60)
    return ()


def restart_controller(site: SlurmSite, _: str) -> Sequence[str]:
    site.root.on(CONTROLLER, "pkill -KILL slurmctld; sleep 3; rm -f /run/slurmctld.pid; slurmctld")
    return ()


def suspend(site: SlurmSite, job: str) -> Sequence[str]:
    """An operator suspends the job for 40 s: longer than a stall."""
    number = site.user.job(job)["slurm"]["id"]
    site.root.on(CONTROLLER, f"scontrol suspend {number}; sleep 40", 60)
    found = site.user.job(job)
    site.root.on(CONTROLLER, f"scontrol resume {number}")
    said = [f"suspended, but stalled: {found['stalled']}"] if found["stalled"] else []
    return [*said, *([f"suspended, but {found['state']}"] if found["state"] in FINAL else [])]


# ---- cancels


def running(site: SlurmSite) -> set[str]:
    """What Slurm runs and has waiting, as `12_3 RUNNING`."""
    said = site.root.on(CONTROLLER, "squeue --noheader --array --format='%i %T'")
    return set(said.splitlines())


def submitted(site: SlurmSite, script: str, *options: str) -> str:
    """The number of a job that the user gives to sbatch, without Rankdeck."""
    file = site.user.lab.shared / "matrix.sh"
    file.write_text(f"#!/bin/sh\n{script}\n")
    words = shlex.join(("sbatch", "--parsable", "--output=/dev/null", *options, str(file)))
    return site.user.on(LOGIN, f"cd {site.user.lab.shared} && {words}").strip().split(";")[0]


@contextmanager
def idle_again(site: SlurmSite) -> Generator[None]:
    """All that the user has in Slurm is ended after the block."""
    try:
        yield
    finally:
        site.root.on(CONTROLLER, "scancel --user=lab; scancel --user=root")
        wait(lambda: not running(site), START_LIMIT)


def cancelled(site: SlurmSite, name: str, hit: set[str], spared: set[str], *words: str) -> Tally:
    """Cancel `name`: `hit` is gone from the queue, `spared` is as it was."""
    if not wait(lambda: hit | spared <= running(site), START_LIMIT):
        raise RuntimeError(f"not queued as meant: {running(site)}")
    done = site.user.lab.rankdeck(
        "-c", site.user.file, "cancel", name, "--yes", "--grace", "1", *words, limit=150
    )
    still = running(site)
    wrong = [f"hit by mistake: {one}" for one in sorted(spared - still)]
    wrong += [f"not ended: {one}" for one in sorted(hit & still)]
    wrong += [] if done.returncode == 0 else [f"exit code {done.returncode}: {done.stderr[-300:]}"]
    return Tally(left=len(hit & still), wrong=wrong)


def cancel_waiting_tasks(sites: Sites) -> Tally:
    """The row of tasks that wait, of an array of which others run."""
    site = sites.slurm
    with idle_again(site):
        number = submitted(site, "sleep 600", "--array=0-5%2", "--mem=100M")
        waits = {f"{number}_{n} PENDING" for n in range(2, 6)}
        runs = {f"{number}_{n} RUNNING" for n in range(2)}
        return cancelled(site, f"{number}_[2-5%2]", waits, runs)


def cancel_one_task(sites: Sites) -> Tally:
    """One task of an array that we submitted."""
    site = sites.slurm
    with idle_again(site):
        job = site.user.run(
            "--detach", "--no-preflight", launch="plain", nodes=1, ranks_per_node=1,
            command=["sleep", "600"], slurm={"array": "0-3", "mem": "100M"},
        )["job"]  # fmt: skip
        if not wait(lambda: site.user.job(job)["slurm"], START_LIMIT):
            raise RuntimeError("the array has no number")
        number = site.user.job(job)["slurm"]["id"]
        others = {f"{number}_{n} RUNNING" for n in (0, 2, 3)}
        return cancelled(site, job, {f"{number}_1 RUNNING"}, others, "--task", "1")


def cancel_het_job(sites: Sites) -> Tally:
    """All components of a het job, and not the user's other job."""
    site = sites.slurm
    with idle_again(site):
        other = submitted(site, "sleep 600", "--mem=100M")
        script = "#SBATCH --mem=100M\n#SBATCH hetjob\n#SBATCH --mem=100M\nsleep 600"
        number = submitted(site, script)
        parts = {f"{number}+{n} RUNNING" for n in range(2)}
        return cancelled(site, number, parts, {f"{other} RUNNING"})


_MUTE = """#!/bin/sh
[ "${0##*/}" = sbatch ] || exec /usr/bin/"${0##*/}" "$@"
/usr/bin/sbatch "$@" >/dev/null 2>&1
"""


def submit_without_number(sites: Sites) -> Tally:
    """sbatch takes the job and prints nothing: it is found, runs once, and a cancel ends it."""
    site = sites.slurm
    file = Path(site.user.file)
    before = file.read_text()
    mute = site.user.lab.shared / "mute"
    mute.mkdir(exist_ok=True)
    (mute / "sbatch").write_text(_MUTE)
    (mute / "sbatch").chmod(0o755)
    content = yaml.safe_load(before) | {"environment": {"PATH": f"{mute}:/usr/bin:/bin"}}
    with idle_again(site):
        try:
            file.write_text(write_documents([content]))
            job = site.user.run(
                "--detach", "--no-preflight", launch="plain", nodes=1, ranks_per_node=1,
                command=["sleep", "600"], slurm={"mem": "100M"},
            )["job"]  # fmt: skip
            if not wait(lambda: running(site), START_LIMIT):
                return Tally(wrong=["the job is not in the queue"])
            queued = running(site)
            tally = cancelled(site, job, queued, set())
        finally:
            file.write_text(before)
    more = [f"submitted {len(queued)} times"] if len(queued) != 1 else []
    return Tally(left=tally.left, wrong=[*tally.wrong, *more])


# ---- within an allocation


class Held:
    """Rankdeck on the login node, within an allocation of both workers."""

    def __init__(self, site: SlurmSite) -> None:
        said = site.user.on(LOGIN, "salloc --no-shell -N2 --exclusive --mem=900")
        self.site, self.number = site, next(word for word in said.split() if word.isdigit())
        site.root.on(LOGIN, "chmod o+x /root")

    def objects(self, *words: str) -> list[dict[str, Any]]:
        """What `rankdeck … --json` prints there."""
        code = f"PYTHONPATH={REPOSITORY / 'console'}:{REPOSITORY / 'agents'}"
        line = shlex.join(
            (sys.executable, "-m", "rankdeck", "-c", self.site.user.file, "--allocation",
             self.number, *words, "--json")
        )  # fmt: skip
        said = self.site.user.on(LOGIN, f"{code} {line}", 150)
        return [json.loads(row) for row in said.splitlines() if row.startswith("{")]

    def job(self, job: str) -> dict[str, Any]:
        return next(one for one in self.objects("jobs") if one["job"] == job)

    def begun(self, then: str) -> str:
        """A job of four ranks whose first lines were shown; `then`: what they do after the last."""
        file = Path(self.site.user.lab.folder) / "held.json"
        content = {
            "job": "held", "launch": "plain", "nodes": 2, "ranks_per_node": 2, "grace": 1,
            "command": ["sh", "-c", f"{WRITES}; {then}"],
        }  # fmt: skip
        file.write_text(json.dumps(content))
        job: str = self.objects("run", str(file), "--detach", "--no-preflight")[-1]["job"]
        if not wait(lambda: self._least(job) >= FIRST_LINES, START_LIMIT):
            raise RuntimeError(f"the ranks do not write: {self.job(job)}")
        return job

    def _least(self, job: str) -> int:
        shown = Counter(rank for rank, _ in written(self.objects("logs", job)))
        return min(shown[rank] for rank in range(RANKS))


def hold(harm: Callable[[Held, str], object], state: str, sites: Sites) -> Tally:
    """A job within an allocation, harmed: it ends in this state, and no process is left.

    Of a job that ends early, the lines that were written are those on disk.
    """
    site = sites.slurm
    with idle_again(site):
        held = Held(site)
        job = held.begun("true" if state == "done" else "sleep 600")
        harm(held, job)
        seconds = elapsed(lambda: held.job(job)["state"] in FINAL, END_LIMIT)
        found, shown = held.job(job), written(held.objects("logs", job))
        lost, doubled = missed_lines(shown)
        steps = site.user.on(LOGIN, f"squeue --steps -h -j {held.number} -o %j").split()
    wrong = [] if seconds is not None else ["no end was shown"]
    wrong += ["a step is left"] if "rankdeck" in steps else []
    return Tally(
        lost=lost if state == "done" else None, doubled=doubled, left=site.user.left(job),
        state=found["state"], right=found["state"] == state, wrong=wrong,
    )  # fmt: skip


def kill_sruns(held: Held, _: str) -> None:
    held.site.user.on(LOGIN, "pkill -KILL -x -P 1 srun")


def kill_supervisors(held: Held, _: str) -> None:
    for node in ("n1", "n2"):
        held.site.user.on(node, "pkill -KILL -f 'agent-.*job [r]un'")


def stop_controller_of(held: Held, job: str) -> None:
    stop_controller(held.site, job)


def cancel_held(held: Held, job: str) -> None:
    held.objects("cancel", job, "--yes", "--grace", "1")


def _needs_lab() -> str:
    return missing()


def _needs_console() -> str:
    return missing() or ("" if console_on_nodes() else "the console's Python is /usr's")


def _row(name: str, does: str, run: Callable[[Sites], Tally]) -> Row:
    return Row(name=f"slurm.{name}", group=Group.NODES, does=does, run=run, lacking=_needs_lab)


def _held(name: str, does: str, harm: Callable[[Held, str], object], state: str) -> Row:
    run = partial(hold, harm, state)
    return Row(name=f"held.{name}", group=Group.NODES, does=does, run=run, lacking=_needs_console)


ROWS = (
    _row("keeper", "kill -9 of the keeper of Slurm jobs in mid-job", partial(harmed, kill_keeper)),
    _row("slow", "SIGSTOP of slurmctld for 25 s", partial(harmed, stop_controller)),
    _row(
        "restart", "kill -9 of slurmctld, up again after 3 s", partial(harmed, restart_controller)
    ),
    _row("suspend", "the job is suspended for 40 s and resumed", partial(harmed, suspend)),
    _row("waiting", "cancel of an array's tasks that wait, while others run", cancel_waiting_tasks),
    _row("task", "cancel of one task of four", cancel_one_task),
    _row("het", "cancel of a het job beside another job", cancel_het_job),
    _row("mute", "sbatch takes the job and prints no number; cancel", submit_without_number),
    _held("srun", "in an allocation: kill -9 of every srun", kill_sruns, "failed"),
    _held("supervisor", "in an allocation: kill -9 of the supervisors", kill_supervisors, "failed"),
    _held("slow", "in an allocation: SIGSTOP of slurmctld for 25 s", stop_controller_of, "done"),
    _held("cancel", "in an allocation: cancel by another console", cancel_held, "cancelled"),
)
