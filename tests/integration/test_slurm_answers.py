"""What the agent makes of a Slurm that answers nonsense, of another cluster, or not at all: the job
ends or is refused with a sentence, in a few lines.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.matrix.steering import planted
from tests.support.slurm import KINDS, lying_slurm

from rankdeck import plugins
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import JobSpec
from rankdeck.remote.bundle import build_bundle
from rankdeck.values import value_table
from rankdeck_agent.schedulers.slurm.job_reports import COLUMNS
from rankdeck_agent.schedulers.slurm.sinfo import NODE_COLUMNS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.left_out]
SAYS = {
    "refused": "Slurm refused the job: ",
    "id": "sbatch told no number of a job",
    "queue": "Slurm no longer knows the job",
}


def plan(**environment: str) -> bytes:
    """What the console sends for a job on a cluster with this `environment:`."""
    options = {"login": "login", "rpcs_per_minute": "600"}
    cluster = Cluster(
        name="c", backend="slurm", nodes=(Node(name="login"),), options=options,
        environment=environment,
    )  # fmt: skip
    spec = JobSpec(name="t", launch="mpi", command=("true",), nodes=1, ranks_per_node=1)
    planned = plugins.find_plugin("backends", "slurm")(None).plan(cluster, spec, "t-1")
    return json.dumps(value_table(planned.nodes[0])).encode()


class Login:
    """A login node with this Slurm: its agent, and its state folder."""

    def __init__(self, folder: Path, path: str) -> None:
        self.state = folder / "state"
        self._agent = folder / "agent.pyz"
        self._agent.write_bytes(build_bundle().data)
        self._env = {**os.environ, "PATH": path, "RANKDECK_STATE": str(self.state)}

    def submit(self, sent: bytes = b"", **login: str) -> dict[str, Any]:
        """Submit a job (else the usual one) with these further variables of the login."""
        env = {**self._env, **login}
        done = subprocess.run(
            [sys.executable, str(self._agent), "slurm", "submit"], env=env, input=sent or plan(),
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        assert b"Traceback" not in done.stderr, done.stderr[-2000:]
        return json.loads(done.stdout)

    def listed(self, **settings: object) -> list[dict[str, Any]]:
        """The rows of `slurm list`, as a console asks for them."""
        done = subprocess.run(
            [sys.executable, str(self._agent), "slurm", "list"], env=self._env,
            input=json.dumps(settings).encode() + b"\n", capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        assert b"Traceback" not in done.stderr, done.stderr[-2000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    def cancel(self) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, str(self._agent), "job", "cancel", "t-1", "login", "--grace", "1", "--by", "user"],
            env=self._env, capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        return json.loads(done.stdout)

    def events(self) -> list[dict[str, Any]]:
        (file,) = self.state.glob("jobs/t-1/*/events")
        return [json.loads(line) for line in file.read_text().splitlines()]

    def keeper(self) -> int:
        """The pid of the keeper that the submit started."""
        file = self.state / "slurm" / "keeper"
        return int(json.loads(file.read_text())["pid"]) if file.exists() else 0

    def end(self) -> None:
        """Kill what runs of the agent, also a keeper that has not written its pid yet."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.fsencode(self._agent) in (folder / "cmdline").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)


@pytest.fixture
def login(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Login]:
    login = Login(tmp_path, lying_slurm(tmp_path / "bin", request.param, planted()))
    yield login
    login.end()


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Login]:
    """A login node whose Slurm are scripts of `answer`; `scancel` notes what it was asked."""
    (tmp_path / "bin").mkdir()
    login = Login(tmp_path, f"{tmp_path / 'bin'}:/usr/bin:/bin")
    answer(tmp_path, "scancel", f'echo "$@" >>{tmp_path}/cancelled')
    answer(
        tmp_path, "sacct", "echo 'sacct: error: Slurm accounting storage is disabled' >&2; exit 1"
    )
    answer(tmp_path, "squeue", "exit 0")
    answer(tmp_path, "scontrol", UNKNOWN)
    yield login
    login.end()


UNKNOWN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


def answer(folder: Path, name: str, text: str) -> None:
    """Have this command of Slurm run this shell script from now on."""
    fresh = folder / "bin" / f".{name}"
    fresh.write_text(f"#!/bin/sh\n{text}\n")
    fresh.chmod(0o755)
    fresh.replace(folder / "bin" / name)


def cancelled(folder: Path) -> str:
    """What scancel was asked."""
    file = folder / "cancelled"
    return file.read_text() if file.exists() else ""


def closed(login: Login) -> list[dict[str, Any]]:
    """All events, once the job is over."""
    until(lambda: login.events()[-1]["kind"] == "closed")
    return login.events()


def until(condition: Callable[[], bool]) -> None:
    """Wait for it, for a while."""
    deadline = time.monotonic() + 240
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)


@pytest.mark.parametrize(("login", "kind"), [(kind, kind) for kind in KINDS], indirect=["login"])
def test_a_slurm_that_answers_nonsense_ends_the_job_with_a_sentence(
    login: Login, kind: str
) -> None:
    answer = login.submit()

    says = SAYS[kind.partition("-")[0]]
    events = closed(login)
    told = [event["text"] for event in events if event["kind"] == "trouble"]
    assert answer["ok"] is kind.startswith("queue"), answer
    assert any(says in text for text in told), told
    assert all(text.isprintable() and len(text) < 1000 for text in told)
    assert sum(len(json.dumps(event)) for event in events) < 20_000


def test_a_job_that_sbatch_gave_to_another_cluster_is_taken_back(
    scripted: Login, tmp_path: Path
) -> None:
    answer(tmp_path, "sbatch", "echo '4711;c2'")

    told = scripted.submit()

    assert told["ok"] is False
    assert (
        "to the cluster c2, which is not that of this login node: it was taken back"
        in told["error"]
    )
    assert cancelled(tmp_path) == "--clusters=c2 4711\n"
    assert scripted.events()[-1]["kind"] == "closed"


def test_a_job_that_cannot_be_taken_back_from_another_cluster_is_named(
    scripted: Login, tmp_path: Path
) -> None:
    answer(tmp_path, "sbatch", "echo '4711;c2'")
    answer(tmp_path, "scancel", "echo 'scancel: error: No cluster c2' >&2; exit 1")

    assert "`scancel --clusters=c2 4711`" in scripted.submit()["error"]


@pytest.mark.kept
def test_a_job_of_this_cluster_is_followed_though_sbatch_names_the_cluster(
    scripted: Login, tmp_path: Path
) -> None:
    answer(tmp_path, "sbatch", "echo \"$PWD\" >$0.dir; echo '4711;here'")
    answer(
        tmp_path, "scontrol",
        'echo "JobId=4711 JobState=RUNNING SubmitTime=$(date +%s) WorkDir=$(cat "${0%/*}/sbatch.dir")"',
    )  # fmt: skip

    assert scripted.submit() == {"ok": True, "id": "4711"}
    assert cancelled(tmp_path) == ""


def test_what_a_login_wishes_for_other_jobs_and_an_allocation_around_us_do_not_change_the_job(
    scripted: Login, tmp_path: Path
) -> None:
    answer(tmp_path, "sbatch", f'env >{tmp_path}/env; echo "$@" >{tmp_path}/words; echo 4711')
    sticky = {"SBATCH_ARRAY_INX": "0-2", "SBATCH_WAIT": "1", "SBATCH_ACCOUNT": "mine"}
    around = {"SLURM_JOB_ID": "9", "SLURM_NTASKS": "64", "SLURM_CONF": "/etc/a.conf"}

    assert scripted.submit(**sticky, **around)["ok"]

    seen = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    slurms = {name: text for name, text in seen.items() if name.startswith(("SLURM_", "SBATCH_"))}
    assert slurms == {"SBATCH_ACCOUNT": "mine", "SLURM_CONF": "/etc/a.conf"}
    words = (tmp_path / "words").read_text().split()
    assert {"--parsable", "--nodes=1", "--ntasks-per-node=1", "--job-name=t"} <= {*words}


def test_the_environment_of_the_cluster_file_holds_for_every_command(
    scripted: Login, tmp_path: Path
) -> None:
    asks = f'echo "$(basename $0) $SLURM_CONF" >>{tmp_path}/asked'
    answer(tmp_path, "sbatch", f"{asks}; echo 4711")
    answer(tmp_path, "scancel", asks)
    answer(tmp_path, "scontrol", f"{asks}; {UNKNOWN}")

    assert scripted.submit(plan(SLURM_CONF="/site/a.conf"), SLURM_CONF="/etc/b.conf")["ok"]
    scripted.cancel()

    asked = [line.split() for line in (tmp_path / "asked").read_text().splitlines()]
    # A job that Slurm does not know may be over before it is cancelled.
    assert {"sbatch", "scontrol"} <= {name for name, _ in asked}
    assert {conf for _, conf in asked} == {"/site/a.conf"}


def test_what_plug_ins_say_of_a_job_that_was_taken_is_noted_whole(
    scripted: Login, tmp_path: Path
) -> None:
    says = 'echo "welcome"; echo 4711; echo "sbatch: lua: 3 h left" >&2; echo "bye" >&2'
    answer(tmp_path, "sbatch", says)
    answer(tmp_path, "scontrol", f"echo JobId=4711 JobState=PENDING SubmitTime={time.time():.0f}")

    assert scripted.submit() == {"ok": True, "id": "4711"}

    told = [event["text"] for event in scripted.events() if event["kind"] == "trouble"]
    assert told[:3] == ["sbatch: lua: 3 h left", "bye", "welcome"]


QUEUE = "7|7|N/A|RUNNING|ann|debug|1|1|0|0|0|1:00|None|n1|(null)|(null)|1|cpu=1,mem=1G|N/A|N/A|N/A|1|N/A|N/A|a|"
"""A row of squeue whose cells end with the mark that each `--Format` names."""
NODE = {
    "NodeHost": "n1", "PartitionName": "debug", "Partition": "debug*", "StateLong": "idle", "CPUsState": "0/4/0/4",
    "Available": "up", "Reason": "none",
}  # fmt: skip


def answers_after(folder: Path, seconds: float) -> None:
    """Have squeue and sinfo answer, but not before so many seconds."""
    row = QUEUE.replace("|", "${mark}")
    find = "for word; do case $word in --Format=*) mark=${word#*:0}; mark=${mark%%,*} ;; esac; done"
    answer(folder, "squeue", f'sleep {seconds}\n{find}\necho "{row}"')
    node = "".join(NODE.get(name, "").ljust(width) for name, width in NODE_COLUMNS.items())
    answer(folder, "sinfo", f"sleep {seconds}\necho '{node}'")


def kinds(rows: list[dict[str, Any]]) -> list[str]:
    return [next(iter(row)) for row in rows]


def test_a_controller_that_needs_16_s_for_each_command_is_waited_for(
    scripted: Login, tmp_path: Path
) -> None:
    answers_after(tmp_path, 16)

    rows = scripted.listed(rpcs_per_minute=60)

    assert kinds(rows) == ["about", "partition", "node", "job", "queue_age"]


def test_a_queue_that_is_known_is_listed_though_the_nodes_are_not_told(
    scripted: Login, tmp_path: Path
) -> None:
    answers_after(tmp_path, 0)
    answer(tmp_path, "sinfo", "echo 'sinfo: error: Zero Bytes were transmitted or received' >&2; exit 1")  # fmt: skip

    rows = scripted.listed(rpcs_per_minute=60)

    assert kinds(rows) == ["about", "job", "queue_age", "trouble"]
    assert "Zero Bytes were transmitted" in rows[-1]["trouble"]


def test_what_slurm_told_long_ago_is_listed_with_its_age_if_it_is_silent_now(
    scripted: Login, tmp_path: Path
) -> None:
    answers_after(tmp_path, 0)
    scripted.listed(rpcs_per_minute=60)
    for file in (scripted.state / "slurm").glob("cluster.*"):
        head, _, text = file.read_text().partition("\n")
        row = json.loads(head)
        file.write_text(json.dumps({**row, "at": row["at"] - 900, "told": row["told"] - 900}) + f"\n{text}")  # fmt: skip
    for name in ("squeue", "sinfo"):
        answer(tmp_path, name, f"echo '{name}: error: Unable to contact slurm controller' >&2; exit 1")  # fmt: skip

    rows = scripted.listed(rpcs_per_minute=60)

    told = {next(iter(row)): next(iter(row.values())) for row in rows}
    assert told["job"]["id"] == "7"
    assert 899 < told["queue_age"] < 1000
    assert "Unable to contact slurm controller" in told["trouble"]


_LOST = "echo 'sbatch: error: Batch job submission failed: {}' >&2; exit 1"


@pytest.mark.parametrize("says", [
    "echo thank you", _LOST.format("Zero Bytes were transmitted or received"),
    _LOST.format("Unable to contact slurm controller (receive failure)"),
])  # fmt: skip
def test_a_job_whose_number_nobody_told_is_found_by_its_folder(
    scripted: Login, tmp_path: Path, says: str
) -> None:
    answer(tmp_path, "sbatch", f"pwd -P >{tmp_path}/folder; {says}")
    cells = "".join(
        f"{{{name}:{width}}}" if name == "WorkDir" else {"JobID": "4711", "State": "PENDING"}.get(name, "").ljust(width)
        for name, width in COLUMNS.items()
    )  # fmt: skip
    line = cells.replace(f"{{WorkDir:{COLUMNS['WorkDir']}}}", f"$(cat {tmp_path}/folder)")
    answer(tmp_path, "squeue", f'echo "{line}"')

    assert scripted.submit() == {"ok": True, "id": "4711"}


def test_a_refusal_is_told_with_all_that_was_said_of_it(scripted: Login, tmp_path: Path) -> None:
    says = 'echo "ask helpdesk@site" ; echo "sbatch: error: no budget" >&2; echo "project x" >&2'
    answer(tmp_path, "sbatch", f"{says}; exit 1")

    why = "Slurm refused the job: no budget; project x; ask helpdesk@site"
    assert scripted.submit() == {"ok": False, "error": why}


def test_a_controller_that_cannot_be_reached_has_refused_nothing(
    scripted: Login, tmp_path: Path
) -> None:
    why = "Batch job submission failed: Unable to contact slurm controller (connect failure)"
    answer(tmp_path, "sbatch", f"echo 'sbatch: error: {why}' >&2; exit 1")

    told = scripted.submit()

    assert told == {"ok": False, "error": f"Slurm has not taken the job: {why}"}


def test_a_number_that_belongs_to_a_later_job_ends_ours_and_is_not_cancelled(
    scripted: Login, tmp_path: Path
) -> None:
    answer(tmp_path, "sbatch", "echo 7")
    row = f"JobId=7 JobState=RUNNING SubmitTime={time.time() + 86_400:.0f} WorkDir=/home/other"
    answer(tmp_path, "scontrol", f"echo '{row}'")
    assert scripted.submit()["ok"]
    asked = scripted.cancel()

    told = [event.get("text", "") for event in closed(scripted)]

    assert asked["left"] == []
    assert cancelled(tmp_path) == ""
    assert any("Slurm has given its number 7 to a later job" in text for text in told), told


def test_a_job_waits_for_accounting_that_does_not_answer(scripted: Login, tmp_path: Path) -> None:
    answer(tmp_path, "sbatch", "echo 7")
    why = "Problem talking to the database: Connection refused"
    answer(tmp_path, "sacct", f"echo 'sacct: error: {why}' >&2; exit 1")
    assert scripted.submit()["ok"]
    until(lambda: any(why in str(event.get("text")) for event in scripted.events()))
    before = scripted.events()[-1]["kind"]
    now = int(time.time())
    answer(tmp_path, "sacct", f"echo '7|7|COMPLETED|0:0|None|{now}|{now}|{now}|n1|debug'")

    events = closed(scripted)

    assert before != "closed"
    assert [event["code"] for event in events if event["kind"] == "ended"] == [0]


@pytest.mark.kept
def test_accounting_that_has_yet_to_hear_of_an_end_is_asked_again(
    scripted: Login, tmp_path: Path
) -> None:
    answer(tmp_path, "sbatch", "echo 7")
    now = int(time.time())
    answer(tmp_path, "sacct", f"echo '7|7|RUNNING|0:0|None|{now}|{now}|Unknown|n1|debug'")
    assert scripted.submit()["ok"]
    why = "accounting still calls job 7 RUNNING"
    until(lambda: any(why in str(event.get("text")) for event in scripted.events()))
    time.sleep(6)  # one look more than a job that accounting does not know gets
    before = scripted.events()[-1]["kind"]
    answer(tmp_path, "sacct", f"echo '7|7|TIMEOUT|0:0|None|{now}|{now}|{now}|n1|debug'")

    events = closed(scripted)

    assert before != "closed"
    assert [e["state"] for e in events if e["kind"] == "slurm" and e.get("over")] == ["TIMEOUT"]
