"""`rankdeck scale` on the embedded cluster: a real MPI program on real nodes, a run that fails, one
that hangs, a study that is interrupted, one whose console is killed.
"""

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.support.polling import wait_until
from tests.support.spine import Person, demo_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    start = [sys.executable, "-m", "rankdeck"]
    with demo_of(start, {}, tmp_path_factory.mktemp("scale")) as one:
        yield one


def job_file(person: Person, name: str, script: str) -> str:
    path = person.folder / f"{name}.yaml"
    command = json.dumps(["sh", "-c", script])
    path.write_text(
        f"job: {name}\nlaunch: plain\ncommand: {command}\nenv: {{WAY: well}}\ngrace: 1\n"
    )
    return str(path)


def started(person: Person, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*person.start, "-c", "demo", "scale", *words], env=person.env, cwd=person.folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def running(person: Person) -> list[str]:
    said = person.run("-c", "demo", "jobs", "--parts", "--json").stdout.splitlines()
    return [job["job"] for job in map(json.loads, said) if job["state"] == "running"]


def test_an_mpi_program_is_measured_with_more_ranks_and_its_report_is_written(
    person: Person,
) -> None:
    options = ("--ranks", "1,2,4", "--repeat", "2", "--set", "env.STENCIL_SECONDS=1", "--yes")
    (study,) = person.objects("scale", "stencil", *options, "--report", "out")

    assert (study["progress"], study["number"], len(study["runs"])) == ("done", "mflops", 6)
    (curve,) = study["curves"]
    assert [point["ranks"] for point in curve["points"]] == [1, 2, 4]
    assert [point["nodes"] for point in curve["points"]] == [1, 1, 2]
    assert all(point["efficiency"] > 0 for point in curve["points"])
    assert study["fixed"] == {"env.STENCIL_SECONDS": "1"}
    rows = list(csv.DictReader((person.folder / "out" / "runs.csv").open()))
    assert [row["ranks"] for row in rows] == ["1", "2", "4", "4", "2", "1"]
    assert (
        json.loads((person.folder / "out" / "report.json").read_text())["study"] == study["study"]
    )
    page = (person.folder / "out" / "report.html").read_text()
    assert page.count("<svg") == 3
    assert "<script" not in page
    (shown,) = person.objects("scale", "--show", study["study"], "--number", "wall")
    assert (shown["number"], shown["lower_is_better"]) == ("wall", True)
    assert running(person) == []


def test_a_run_that_fails_and_one_that_hangs_are_told_and_the_others_count(person: Person) -> None:
    script = 'case $WAY in bad) echo boom; exit 3;; hang) sleep 600;; esac; echo "rate=7"'
    file = job_file(person, "moody", script)
    options = ("--ranks", "1,2", "--set", "env.WAY=well,bad,hang", "--repeat", "1", "--limit", "6s")
    done = person.run("-c", "demo", "scale", file, *options, "--yes", "--json", "--no-preflight")

    study = json.loads(done.stdout)
    assert done.returncode == 1
    outcomes = {(run["values"]["env.WAY"], run["outcome"]) for run in study["runs"]}
    assert outcomes == {("well", "measured"), ("bad", "failed"), ("hang", "hung")}
    assert {one["kind"] for one in study["verdicts"]} >= {"failed", "pays"} or len(
        study["verdicts"]
    )
    assert any("exit 3" in one["text"] for one in study["verdicts"])
    assert running(person) == []


def test_an_interrupted_study_leaves_nothing_and_goes_on_where_it_was(person: Person) -> None:
    file = job_file(person, "slow", "sleep 4; echo done")
    process = started(person, file, "--ranks", "1,2", "--repeat", "2", "--yes", "--no-preflight")
    # The next run must be on its way: between two there is nothing to cancel.
    wait_until(lambda: study_of(person, "slow")["runs"] and running(person), 60)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)

    assert process.returncode == 130, said
    assert "cancelled: nothing is left on any node" in said
    assert running(person) == []
    stopped = study_of(person, "slow")
    assert stopped["progress"] == "stopped"
    done = person.run("-c", "demo", "scale", "--resume", stopped["study"], "--json")
    study = json.loads(done.stdout)
    assert (study["progress"], len(study["runs"])) == ("done", 4)
    before = {(run["block"], run["ranks"], run["job"]) for run in stopped["runs"]}
    assert before <= {(run["block"], run["ranks"], run["job"]) for run in study["runs"]}


def study_of(person: Person, job: str) -> dict:
    done = person.run("-c", "demo", "scale", "--list", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return next((one for one in found if one["job"] == job), {"runs": []})


def test_what_a_killed_console_left_running_is_ended_before_the_study_goes_on(
    person: Person,
) -> None:
    script = "[ -e ~/was-here ] || { touch ~/was-here; sleep 90; }"
    file = job_file(person, "killed", script)
    process = started(person, file, "--ranks", "1,2", "--repeat", "1", "--yes", "--no-preflight")
    wait_until(lambda: len(running(person)) == 1, 60)
    process.kill()
    process.communicate()
    (left,) = running(person)

    done = person.run(
        "-c", "demo", "scale", "--resume", study_of(person, "killed")["study"], "--json"
    )

    study = json.loads(done.stdout)
    assert [run["outcome"] for run in study["runs"]] == ["measured"] * 2, done.stderr
    assert left not in {run["job"] for run in study["runs"]}
    assert running(person) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stencil", "--ranks", "64"), "--ranks 64: `demo` has 3 nodes"),
        (("stencil", "--ranks", "1,x"), "--ranks: `x` is not a number"),
        (("stencil", "--ranks", "1,2", "--set", "size=1,2"), "`size` cannot be set here"),
        (("stencil", "--ranks", "1", "--on", "nobody"), "no node `nobody`"),
        (("stencil",), "nothing to compare"),
        (("nothing.yaml", "--ranks", "1"), "nothing.yaml"),
        ((), "name a job file"),
        (("--show", "s9"), "no study `s9`"),
    ],
)
def test_wrong_input_has_one_clear_error(person: Person, words: tuple[str, ...], said: str) -> None:
    done = person.run("-c", "demo", "scale", *words)

    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_dry_run_shows_the_points_and_starts_nothing(person: Person) -> None:
    done = person.run("-c", "demo", "scale", "stencil", "--ranks", "1,8", "--weak", "command=a {24*ranks}", "--dry-run")  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "1 rank on 1 node" in done.stdout
    assert "8 ranks need 4 on each node; the job file says 2" in done.stdout
    assert running(person) == []
