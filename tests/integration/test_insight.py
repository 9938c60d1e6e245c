"""Stuck ranks, explained failures, reports and scripts: through the
command line, on the embedded cluster.
"""

import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_main_path import Console, demo_console, left_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]

STILL = "job: still\nlaunch: plain\nranks_per_node: 1\ncommand: [sleep, '300']\n"
SECRET = """
job: secretive
launch: plain
nodes: 2
ranks_per_node: 1
command: [sh, -c, 'echo "my token is $HUB_TOKEN"; echo "step 3 of 4 loss 2.5"; ls /nowhere; exit 3', --, --api-key, hunter2hunter2]
env: {HUB_TOKEN: hf_donottell, LEVEL: debug}
"""
MISSING = """
job: missing
launch: mpi
nodes: 2
ranks_per_node: 1
command: [no-such-program-anywhere]
"""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with demo_console(tmp_path_factory.mktemp("insight")) as console:
        yield console


def need_mpi() -> None:
    if not Path(sys.executable).with_name("mpirun").exists():
        pytest.skip("needs mpirun (pip install rankdeck[mpi])")


def test_the_lens_names_the_rank_that_hangs(console: Console) -> None:
    need_mpi()
    if not shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"):
        pytest.skip("needs py-spy (pip install py-spy)")
    (started,) = console.objects("run", "hang-rank2", "--detach", "--set", "env.HANG_AFTER=2")
    deadline = time.monotonic() + 60
    while True:
        (found,) = console.objects("inspect", started["job"])
        if any("ptrace" in note for note in found["notes"]):
            pytest.skip(f"needs ptrace: {found['notes']}")
        lines = [look["last"] for group in found["groups"] for look in group["looks"]]
        if found["odd"] == [2] and "rank falls silent here" in lines:
            break
        assert time.monotonic() < deadline, found
    console.run("cancel", started["job"], "--grace", "1")

    assert re.fullmatch(
        r"5 in <module> \(hang.py:\d+\), 1 in <module> \(hang.py:21\): rank 2 on sakura",
        found["answer"],
    )
    assert found["missing"] == {}


def test_a_running_job_tells_what_each_rank_takes_when_asked(console: Console) -> None:
    job = console.file("still.yaml", STILL)
    (started,) = console.objects("run", job, "--detach")

    (told,) = (one for one in console.objects("jobs", "--live") if one["job"] == started["job"])
    (plain,) = (one for one in console.objects("jobs") if one["job"] == started["job"])
    console.run("cancel", started["job"], "--grace", "1")

    assert "live" not in plain
    assert [(one["rank"], one["node"]) for one in told["live"]] == [
        (one["rank"], one["node"]) for one in told["ranks"]
    ]
    assert all(one["pid"] and one["rss"] > 0 and one["cpu"] is not None for one in told["live"])
    assert "live" not in next(
        one for one in console.objects("jobs", "--live") if one["job"] == started["job"]
    )


@pytest.mark.kept
def test_a_failure_is_explained_and_a_report_holds_all_but_secrets(
    console: Console,
) -> None:
    job = console.file("secretive.yaml", SECRET)
    (ended,) = console.objects("run", job)
    archive = console.folder / "ticket.tar.gz"

    (said,) = console.objects("report", ended["job"], "--output", str(archive))

    assert said["missing"] == {}
    assert ended["progress"]["step"] == 3
    assert [phase["name"] for phase in ended["phases"]][-1] == "running"
    with tarfile.open(archive) as opened:
        texts = {
            member.name.split("/", 1)[1]: opened.extractfile(member).read().decode()
            for member in opened
        }
    assert {
        "README.txt",
        "job.json",
        "plan.json",
        "plan.txt",
        "events.jsonl",
        "health.json",
        "versions.json",
        "report.html",
    } <= texts.keys()
    assert "my token is ********" in texts["logs/rank.0.out"]
    assert "/nowhere" in texts["logs/rank.1.err"]
    kinds = collections.Counter(
        json.loads(line)["kind"] for line in texts["events.jsonl"].splitlines()
    )
    assert kinds["started"] == kinds["exited"] == 2
    for name, text in texts.items():
        assert "hf_donottell" not in text, name
        assert "hunter2" not in text, name
    assert json.loads(texts["plan.json"])["spec"]["env"] == {
        "HUB_TOKEN": "********",
        "LEVEL": "debug",
    }
    assert archive.stat().st_mode & 0o077 == 0
    page = console.folder / "ticket.html"
    (said,) = console.objects("report", ended["job"], "--html", str(page))
    assert said["file"] == str(page)
    assert "First failure: every rank, each exit 3" in page.read_text()
    assert "hunter2" not in page.read_text()
    assert page.stat().st_mode & 0o077 == 0
    assert "--html" in console.run("report", ended["job"], "--html", "--full").stderr


@pytest.mark.kept
def test_a_launcher_that_fails_before_any_rank_is_explained(console: Console) -> None:
    need_mpi()
    (ended,) = console.objects("run", console.file("missing.yaml", MISSING), "--no-preflight")

    assert ended["state"] == "failed"
    failure = ended["first_failure"]
    assert failure["explained"], failure
    assert failure["explained"][0]["try"]


def exported(console: Console, job: str, *options: str) -> tuple[int, list[str]]:
    """Exit status and sorted lines of the job as a script without Rankdeck."""
    script = console.folder / "script.sh"
    console.run("run", job, "--export", str(script), *options)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", str(script)], capture_output=True, text=True, timeout=100, check=False,
        env={"PATH": path, "HOME": str(console.folder)},
    )  # fmt: skip
    assert "rankdeck " not in done.stdout, done.stderr
    return done.returncode, sorted(done.stdout.splitlines())


def launched(console: Console, job: str, *options: str) -> tuple[int, list[str]]:
    done = console.run("run", job, *options)
    return done.returncode, sorted(
        re.sub(r"^\[\d+\] ", "", line) for line in done.stdout.splitlines()
    )


def test_the_exported_script_of_an_mpi_job_gives_the_same(console: Console, need) -> None:
    need("ssh")
    need_mpi()

    assert exported(console, "mpi-hello") == launched(console, "mpi-hello")


def test_the_exported_script_of_plain_ranks_gives_the_same_and_fails_the_same(
    console: Console, need
) -> None:
    need("ssh")
    job = console.file(
        "plain.yaml",
        'job: plain\nlaunch: plain\nnodes: 3\nranks_per_node: 2\nfiles: {"sub/say.sh": "echo rank $RANK of $WORLD_SIZE, \'quoted\'"}\n'
        'command: [sh, -c, ". ${RANKDECK_RUN}/sub/say.sh; [ $RANKDECK_RANK != 3 ] || exit 7"]\nabort: false\n',
    )

    assert exported(console, job) == launched(console, job)
    assert exported(console, job)[0] == 7


def test_an_exported_script_that_is_interrupted_leaves_nothing(console: Console, need) -> None:
    need("ssh")
    job = console.file(
        "long.yaml",
        "job: long\nlaunch: plain\nnodes: 2\nranks_per_node: 2\ncommand: [sh, -c, 'echo here; sleep 300']\n",
    )
    script = console.folder / "long.sh"
    console.run("export-script", job, "--output", str(script))
    (mark,) = set(re.findall(r"RANKDECK_JOB=(long-\S+) ", script.read_text()))

    with subprocess.Popen(["sh", str(script)], stdout=subprocess.PIPE, text=True) as process:
        for _ in range(4):
            assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130

    deadline = time.monotonic() + 20
    while left := left_of(mark):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_a_replay_tells_the_same_story_again(console: Console) -> None:
    need_mpi()
    (ended,) = console.objects("run", "fail-rank2", "--set", "env.FAIL_AFTER=1.5")

    (again,) = console.objects("replay", ended["job"], "--speed", "50")

    for key in ("name", "state", "exit_code", "nodes", "created"):
        assert again[key] == ended[key]
    first, before = again["first_failure"], ended["first_failure"]
    # The clocks of the nodes were measured anew: the moment differs by as much as that.
    assert first["at"] == pytest.approx(before["at"], abs=1.0)
    moved = {"at", "uncertainty"}
    assert {k: v for k, v in first.items() if k not in moved} == {
        k: v for k, v in before.items() if k not in moved
    }
    assert [r["state"] for r in again["ranks"]] == [r["state"] for r in ended["ranks"]]
    assert ended["job"] in {job["job"] for job in console.objects("jobs")}
    assert again["job"] not in {job["job"] for job in console.objects("jobs")}
