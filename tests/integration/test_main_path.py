"""The user's whole sentence, through the command line, on the embedded cluster.

Real SSH, the real agent from the real zipapp, real MQTT, real Open MPI. One cluster for the
whole module: bringing it up is not what is tested here.
"""

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from tests.support.agent_file import put_agent_in_demo
from tests.support.commands import COMMANDS
from tests.support.polling import seen_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
LIMIT = 100


class Console:
    """The command line of a person with folders of their own."""

    def __init__(self, folder: Path, cluster: str = "demo") -> None:
        self.folder, self.cluster = folder, cluster
        self.env = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        self.env.pop("RANKDECK_STATE", None)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "rankdeck", "-c", self.cluster, *arguments],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            done = COMMANDS.run(("-c", self.cluster, *arguments), self.env, LIMIT, Path.cwd())
        except subprocess.TimeoutExpired as late:
            pytest.fail(
                f"rankdeck {arguments} did not end:\n{late.stdout[-3000:]}\n{late.stderr[-3000:]}"
            )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run(*arguments, "--json").stdout.splitlines()]

    def job(self, job_id: str) -> dict[str, Any]:
        (found,) = [job for job in self.objects("jobs") if job["job"] == job_id]
        return found

    def told(self, job_id: str) -> str:
        """The next that `attach` says of a job beside its output; ""
        where it is over, or nothing comes.
        """
        with self.start("attach", job_id) as process:
            end = Timer(LIMIT, process.kill)
            end.start()
            assert process.stderr is not None
            line = process.stderr.readline()
            end.cancel()
            process.kill()
        return line

    def newest(self) -> str:
        return self.objects("jobs")[0]["job"]

    def wait_for(self, job_id: str, state: str) -> dict[str, Any]:
        return self.until(job_id, lambda job: job["state"] == state)

    def until(self, job_id: str, true: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The job as `jobs` says it once this is true of it."""
        return seen_until(lambda: self.job(job_id), true, LIMIT)

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)


@contextmanager
def demo_console(folder: Path) -> Iterator[Console]:
    """The command line in this folder, with an embedded cluster of its own; down at the end."""
    console = Console(folder)
    bare = [sys.executable, "-m", "rankdeck", "demo"]
    options = {"env": console.env, "check": True, "capture_output": True, "timeout": 90}
    put_agent_in_demo(folder / "state/rankdeck/console/demo")
    subprocess.run([*bare, "up"], **options)
    try:
        yield console
    finally:
        subprocess.run([*bare, "down"], **options)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with demo_console(tmp_path_factory.mktemp("main")) as console:
        yield console


def left_of(job_id: str) -> list[int]:
    """Processes of this machine that still carry the marker of the job."""
    wanted = f"RANKDECK_JOB={job_id}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def lines_of(console: Console, job_id: str) -> dict[int, list[str]]:
    by_rank: dict[int, list[str]] = {}
    for line in console.objects("logs", job_id):
        if line["stream"] == "out":
            by_rank.setdefault(line["rank"], []).append(line["text"])
    return by_rank


PLAIN = """
job: counting
launch: plain
nodes: 3
ranks_per_node: 2
command: [sh, -c, 'i=0; while [ $i -lt {count} ]; do echo "line $i"; i=$((i+1)); {pause}; done; {end}']
grace: 1
"""


@pytest.mark.kept
def test_status_hears_every_node(console: Console) -> None:
    (status,) = console.objects("status", "--wait", "60")

    assert status["cluster"] == "demo"
    assert [node["name"] for node in status["nodes"]] == ["sakuya", "sakura", "koishi"]
    for node in status["nodes"]:
        assert node["heard_s"] is not None, node
        assert node["level"] in ("ok", "warn", "bad")
        assert node["values"]["mem.total"][""] > 0


@pytest.mark.kept
def test_an_mpi_job_runs_across_the_nodes(console: Console) -> None:
    (job,) = console.objects("run", "mpi-hello")[-1:]

    assert job["state"] == "done", job
    assert job["exit_code"] == 0
    assert [rank["node"] for rank in job["ranks"]] == [
        "sakuya",
        "sakuya",
        "sakura",
        "sakura",
    ]
    text = lines_of(console, job["job"])
    assert sorted(text) == [0, 1, 2, 3]
    assert any("2" in line and "sakura" in line for line in text[2])
    assert not left_of(job["job"])


@pytest.mark.kept
def test_the_first_failure_is_the_rank_that_failed(console: Console) -> None:
    result = console.run("run", "fail-rank2", "--set", "env.FAIL_AFTER=1", "--json")
    job = json.loads(result.stdout.splitlines()[-1])

    assert result.returncode == 3
    assert job["state"] == "failed"
    failure = job["first_failure"]
    assert (failure["rank"], failure["node"], failure["exit_code"]) == (2, "sakura", 3)
    assert "loss is NaN" in "\n".join(failure["lines"])
    assert not left_of(job["job"])

    # Only a job that was queued again has several runs.
    other = console.run("logs", job["job"], "--attempt", "1")
    assert other.returncode == 2
    assert f"--attempt: {job['job']} has one run" in other.stderr


@pytest.mark.kept
def test_a_job_outlives_its_console_and_no_line_is_lost(console: Console) -> None:
    file = console.file("count.yaml", PLAIN.format(count=60, pause="sleep 0.1", end="exit 0"))
    with console.start("run", file, "--json") as watcher:
        assert watcher.stdout is not None
        first = json.loads(watcher.stdout.readline())
        watcher.send_signal(signal.SIGKILL)
    job_id = next(job["job"] for job in console.objects("jobs") if job["name"] == "counting")

    assert first
    console.run("attach", job_id)
    job = console.job(job_id)
    assert (job["state"], job["exit_code"]) == ("done", 0)
    by_rank = lines_of(console, job_id)
    assert sorted(by_rank) == list(range(6))
    for lines in by_rank.values():
        assert lines == [f"line {n}" for n in range(60)]


@pytest.mark.kept
def test_cancel_leaves_nothing_of_ranks_that_ignore_it(console: Console) -> None:
    stubborn = """
job: stubborn
launch: plain
nodes: 2
ranks_per_node: 2
command: [sh, -c, 'trap "" TERM INT HUP; setsid sleep 600 & while :; do sleep 1; done']
grace: 1
"""
    started = console.objects("run", console.file("s.yaml", stubborn), "--detach")[-1]
    assert left_of(started["job"])

    (report,) = console.objects("cancel", started["job"])

    assert report["left"] == []
    assert report["state"] == "cancelled"
    assert not left_of(started["job"])


def test_cancel_all_asks_first_and_ends_every_running_job(console: Console) -> None:
    text = "job: {}\nlaunch: plain\nnodes: 1\nranks_per_node: 1\ncommand: [sleep, '300']\n"
    for name in ("one", "two"):
        file = console.file(f"{name}.yaml", text.format(name))
        console.run("run", file, "--no-preflight", "--detach")

    asked = console.run("cancel", "--all")
    reports = console.objects("cancel", "--all", "--yes")
    again = console.run("cancel", "--all", "--yes")

    assert asked.returncode == 2
    assert "nothing was ended: `cancel --all --yes` ends two-" in asked.stderr
    assert {report["job"][:3]: report["state"] for report in reports} == {
        "one": "cancelled",
        "two": "cancelled",
    }
    assert (again.returncode, again.stdout) == (0, "")
    assert "no job of yours runs on " in again.stderr


def test_a_job_that_saves_its_state_and_exits_with_0_was_cancelled(console: Console) -> None:
    saves = """
job: saves
launch: plain
nodes: 2
ranks_per_node: 1
command: [sh, -c, 'trap "exit 0" TERM; echo up; while :; do sleep 0.1; done']
grace: 5
"""
    with console.start("run", console.file("saves.yaml", saves), "--no-preflight") as run:
        assert run.stdout is not None
        assert "up" in run.stdout.readline() + run.stdout.readline()
        (report,) = console.objects("cancel", "saves")
        run.wait(60)

    (job,) = (job for job in console.objects("jobs") if job["name"] == "saves")
    assert (report["state"], job["state"], run.returncode) == ("cancelled", "cancelled", 130)
    assert [rank["exit_code"] for rank in job["ranks"]] == [0, 0]


def test_cancel_ends_an_mpi_job_whose_launcher_was_killed(console: Console) -> None:
    started = console.objects("run", "hang-rank2", "--detach", "--set", "grace=1")[-1]
    console.wait_for(started["job"], "running")
    for pid in left_of(started["job"]):
        with contextlib.suppress(OSError):
            if "mpirun" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]:
                os.kill(pid, signal.SIGKILL)

    (report,) = console.objects("cancel", started["job"])

    assert report["left"] == []
    assert not left_of(started["job"])


def test_one_failed_rank_stops_the_others(console: Console) -> None:
    lonely = """
job: lonely
launch: plain
nodes: 2
ranks_per_node: 1
command: [sh, -c, 'if [ $RANK = 1 ]; then sleep 1; exit 7; fi; sleep 600']
grace: 1
abort: {enabled: true, countdown: 1}
"""
    result = console.run("run", console.file("l.yaml", lonely), "--json")
    job = json.loads(result.stdout.splitlines()[-1])

    assert result.returncode == 7
    assert job["first_failure"]["rank"] == 1
    assert job["ranks"][0]["state"] == "cancelled"
    assert not left_of(job["job"])
    files = list(console.folder.rglob(f"jobs/{job['job']}/*/events"))
    events = [json.loads(row) for file in files for row in file.read_text().splitlines()]
    assert {event["by"] for event in events if event["kind"] == "cancel"} == {"abort"}


def test_the_end_of_a_job_with_much_output_is_known_at_once(console: Console) -> None:
    wordy = "job: wordy\nlaunch: plain\nnodes: 2\nranks_per_node: 3\ncommand: [seq, '200000']\n"
    started = console.objects("run", console.file("w.yaml", wordy), "--detach")[-1]

    done = console.wait_for(started["job"], "done")

    assert {rank["state"] for rank in done["ranks"]} == {"done"}


@pytest.mark.parametrize(("options", "code"), [((), 2), (("--no-preflight",), 127)])
def test_a_missing_program_is_one_sentence(
    console: Console, options: tuple[str, ...], code: int
) -> None:
    missing = "job: gone\nlaunch: plain\nnodes: 1\nranks_per_node: 1\ncommand: [no-such-program]\n"
    result = console.run("run", console.file("g.yaml", missing), *options)

    assert result.returncode == code
    assert "no-such-program" in result.stderr + result.stdout


@pytest.mark.kept
def test_acceptance_measures_all_pairs_of_the_demo_and_blames_nobody(console: Console) -> None:
    for pause in (0, 5, 10, 20, 30):
        time.sleep(pause)
        done = console.run("accept", "--yes", "--json")
        run = json.loads(done.stdout)
        # Beside other tests the ranks wait for a processor: then it says so and has no value.
        if not any("the nodes were busy" in one["text"] for one in run["results"]):
            break

    assert (done.returncode, run["accepted"], run["verdicts"]) == (0, True, []), done.stderr[-3000:]
    pairs = [one for one in run["results"] if one["stage"] == "pairs"]
    assert len(pairs) == len({frozenset((one["sender"], one["receiver"])) for one in pairs}) == 3
    assert all(one["unit"] == "MB/s" and one["value"] > 0 for one in pairs)
    assert all(one["seconds"] > 0 for one in pairs)


@pytest.mark.skipif(shutil.which("stream_c.exe") is not None, reason="STREAM is installed")
def test_acceptance_says_which_program_is_not_there(console: Console) -> None:
    done = console.run("accept", "--recipe", "stream", "--yes", "--json")

    run = json.loads(done.stdout)
    assert (done.returncode, run["accepted"]) == (2, False)
    assert "lack stream_c.exe for stream: not measured there" in done.stderr
    for one in run["results"]:
        assert one["text"].startswith("it did not run: `")
        assert f"no program stream_c.exe on {one['sender']}" in one["text"]


def test_garbage_and_escapes_never_reach_the_terminal(console: Console) -> None:
    nasty = r"""
job: nasty
launch: plain
nodes: 1
ranks_per_node: 1
command: [printf, 'a\033]0;owned\007b\033[2J\200\377c\n\000d\n']
"""
    started = console.objects("run", console.file("n.yaml", nasty))[-1]
    result = console.run("logs", started["job"])

    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    assert "\x00" not in result.stdout
    assert "b" in result.stdout


QUIET = """
job: quiet
launch: plain
nodes: 3
command: [sleep, '300']
grace: 1
"""
LEAVING = 60.0
"""Seconds in which a verb ends whose reader has gone."""


@pytest.fixture
def quiet_job(console: Console) -> Iterator[str]:
    """A job that runs and writes nothing."""
    file = console.file("quiet.yaml", QUIET)
    (job,) = console.objects("run", file, "--detach")
    try:
        yield job["job"]
    finally:
        console.run("cancel", job["job"])


@pytest.mark.kept("verb1")
@pytest.mark.parametrize("verb", [["attach"], ["logs", "--follow"], ["logs", "--follow", "--json"]])
def test_a_verb_whose_reader_has_gone_ends_and_the_job_goes_on(
    console: Console, quiet_job: str, verb: list[str]
) -> None:
    with console.start(*verb, quiet_job) as watcher:
        assert watcher.stdout is not None
        watcher.stdout.close()

        assert watcher.wait(LEAVING) == 141

    assert console.job(quiet_job)["state"] == "running"


def test_run_ends_with_its_terminal_where_nobody_heeds_sighup_and_the_job_goes_on(
    console: Console,
) -> None:
    file = console.file("quiet.yaml", QUIET)
    master, slave = pty.openpty()
    watcher = subprocess.Popen(
        [sys.executable, "-m", "rankdeck", "-c", "demo", "run", file],
        env=console.env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    os.close(slave)
    seen = b""
    while b"ranks:" not in seen:
        assert select.select((master,), (), (), LIMIT)[0], seen
        seen += os.read(master, 1 << 16)
    job_id = console.newest()
    console.wait_for(job_id, "running")

    os.close(master)

    assert watcher.wait(LEAVING) == 141
    assert console.job(job_id)["state"] == "running"
    console.run("cancel", job_id)
