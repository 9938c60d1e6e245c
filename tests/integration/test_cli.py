"""The command line as a user has it: a process, its output and its exit code."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.commands import COMMANDS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "cluster: two\nnodes:\n  - {name: 'n[1-2]', slots: 2}\n"
JOB = "job: hello\nlaunch: plain\nnodes: 2\ncommand: [echo, hi]\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "two.yaml").write_text(CLUSTER)
    (tmp_path / "hello.yaml").write_text(JOB)
    return tmp_path


def rankdeck(
    home: Path, *arguments: str, stdout: int = subprocess.PIPE, **more: str
) -> subprocess.CompletedProcess[str]:
    env = {
        "PYTHONPATH": f"{ROOT}/console:{ROOT}/agents",
        "HOME": str(home),
        "PATH": os.defpath,
    }
    if stdout == subprocess.PIPE:
        return COMMANDS.run(arguments, env | more, 50, home)
    return subprocess.run(
        [sys.executable, "-m", "rankdeck", *arguments],
        cwd=home,
        env=env | more,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )


def test_check_says_what_each_file_is(home: Path) -> None:
    done = rankdeck(home, "check", "two.yaml", "hello.yaml")

    assert done.returncode == 0
    assert done.stdout == "two.yaml: cluster ok\nhello.yaml: job ok\n"


def test_how_to_let_jobs_back_to_a_node_works_as_pasted_in_another_folder(home: Path) -> None:
    (home / "hello.yaml").write_text(JOB + "on: [n1, n2]\n")
    run = ("run", "-c", "two.yaml", "hello.yaml", "--dry-run")
    rankdeck(home, "accept", "-c", "two.yaml", "--exclude", "n1", "--why", "slow")
    refused = rankdeck(home, *run).stderr
    hint = re.findall("`(rankdeck [^`]+)`", refused)[-1]
    (home / "other").mkdir()

    back = rankdeck(home / "other", *shlex.split(hint)[1:], HOME=str(home))

    assert back.returncode == 0, back.stderr
    assert rankdeck(home, *run).returncode == 0


def test_check_names_every_mistake_and_its_place(home: Path) -> None:
    (home / "bad.yaml").write_text("cluster: x\nnods: []\nnodes: 7\n")
    done = rankdeck(home, "check", "--json", "bad.yaml", "two.yaml")
    bad, good = json.loads(done.stdout)["files"]

    assert done.returncode == 2
    assert [problem["line"] for problem in bad["problems"]] == [2, 3]
    assert "did you mean `nodes`" in bad["problems"][0]["text"]
    assert good == {
        "file": "two.yaml", "kind": "cluster", "ok": True, "problems": [], "uses": [],
    }  # fmt: skip


def test_an_unknown_option_is_bad_input(home: Path) -> None:
    done = rankdeck(home, "status", "--jsn")

    assert done.returncode == 2
    assert "--jsn" in done.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["rnu"], "no verb `rnu`; did you mean `run`?"),
        (["stop", "x"], "no verb `stop`; see `rankdeck --help`"),
        (["run"], "JOB is missing; write `rankdeck run JOB`, see `rankdeck run --help`"),
        (["-c", "two.yaml", "run", "helo.yaml"], "no file `helo.yaml`; did you mean `hello.yaml`?"),
        (["-c", "two.yaml", "cancel"], "name the job (`rankdeck cancel JOB …`), or `--all`"),
        (["-c", "two.yaml", "cancel", "x", "--all"], "--all ends every job: name none beside it"),
        (["-c", "two.yaml", "sh", "x*", "true"], "no node matches `x*`"),
        (["-c", "two.yaml", "run", "hello.yaml", "--on", "all!n*"], "no node is left"),
        (["-c", "two", "nodes"], "no cluster `two`"),
        (["status", "--jsno"], "no option or word `--jsno` here; did you mean `--json`?\n"),
        (["cancel", "x", "--grace", "abc"], "--grace: `abc` is not a number; see `"),
        (["demo", "--nodes", "1.5"], "--nodes: `1.5` is not a whole number; see `"),
        (["logs", "x", "--stream", "foo"], "--stream: no `foo`; choose from 'out', 'err'; see"),
        (["logs", "x", "--rank"], "--rank needs a value; see `rankdeck logs --help`"),
        (["status", "--json=yes"], "--json takes no value; see `rankdeck status --help`"),
        (["-c", "two.yaml", "run", "hello.yaml", "--on", "n9", "--dry-run"], "no node `n9`"),
        (["-c", "two.yaml", "run", "hello.yaml", "--set", "nodes=9", "--dry-run"], "wants 9 nodes"),
        (["-c", "two.yaml", "cp", ".", "n1"], ".: a folder; only files are copied"),
        (["run", "x", "--zebra"], "`--zebra` here; see `rankdeck run --help`"),
        (["demo", "--fault", "gpu:hott"], "no such fault; did you mean `gpu:hot`?"),
        (["demo", "--fault", "gpu:hot@n9"], "no node `n9`; there are sakuya, "),
        (["-c", "two.yaml"], "the console needs a terminal, and this is none"),
        (["-c", "two.yaml", "ack", "n1", "disk.ful"], "did you mean `disk.full`?"),
        (["-c", "two.yaml", "health", "n9"], "no node `n9` in cluster `two`"),
    ],
)
def test_a_wrong_word_is_one_sentence(home: Path, given: list[str], said: str) -> None:
    done = rankdeck(home, *given)

    assert done.returncode == (3 if "health" in given else 2)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(("given", "begin"), [
    (["help"], "usage: rankdeck [-h]"), (["help", "cancel"], "usage: rankdeck cancel"),
    (["version"], "rankdeck "), (["-V"], "rankdeck "),
])  # fmt: skip
def test_help_and_version_are_found_by_their_words_too(home: Path, given, begin) -> None:
    done = rankdeck(home, *given)

    assert done.returncode == 0
    assert done.stdout.startswith(begin)


def test_any_file_that_is_there_is_read_whatever_its_name(home: Path) -> None:
    (home / "note").write_text("jbo: x\n")

    done = rankdeck(home, "-c", "two.yaml", "run", "note", "--dry-run")

    assert done.returncode == 2
    assert "note:1:1" in done.stderr


def test_a_full_disk_behind_stdout_is_one_sentence(home: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = rankdeck(home, "nodes", "-c", "two.yaml", stdout=full.fileno())

    assert done.returncode == 1
    assert done.stderr == "rankdeck: stdout cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    "given",
    [
        ["sh", "", "--", "reboot"],
        ["cp", "hello.yaml", ""],
        ["silence", ""],
        ["accept", "--exclude", ""],
        ["accept", "--exclude="],
        ["run", "hello.yaml", "--on", "", "--dry-run"],
    ],
)
def test_a_variable_that_is_not_set_never_means_all_nodes(home: Path, given: list[str]) -> None:
    done = rankdeck(home, "-c", "two.yaml", *given)

    assert done.returncode == 2
    assert "is empty: is a shell variable not set?" in done.stderr


def test_an_answer_that_has_nowhere_to_go_is_told(home: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m rankdeck -c two.yaml nodes >&- <&-"],
        cwd=home,
        env={"PYTHONPATH": f"{ROOT}/console:{ROOT}/agents", "HOME": str(home), "PATH": os.defpath},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr == "rankdeck: stdout is closed: the answer has nowhere to go\n"


def test_without_a_cluster_it_says_how_to_name_one(home: Path) -> None:
    done = rankdeck(home, "nodes")

    assert done.returncode == 2
    assert "rankdeck demo" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_demo_is_named_when_it_does_not_run(home: Path) -> None:
    done = rankdeck(home, "-c", "demo", "nodes")

    assert done.returncode == 2
    assert "rankdeck demo up" in done.stderr


def test_nodes_come_from_the_file_alone(home: Path) -> None:
    done = rankdeck(home, "nodes", "-c", "two.yaml", "--json")
    said = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    assert said["cluster"] == "two"
    assert [(node["name"], node["slots"]) for node in said["nodes"]] == [
        ("n1", 2),
        ("n2", 2),
    ]


def test_the_cluster_may_come_from_the_environment(home: Path) -> None:
    done = rankdeck(home, "nodes", RANKDECK_CLUSTER="two.yaml")

    assert done.returncode == 0, done.stderr
    assert "n1" in done.stdout


def test_the_only_cluster_file_is_meant(home: Path) -> None:
    folder = home / ".config" / "rankdeck" / "clusters"
    folder.mkdir(parents=True)
    (folder / "two.yaml").write_text(CLUSTER)

    assert "n2" in rankdeck(home, "nodes").stdout


@pytest.mark.parametrize(
    ("backend", "missing"), [("slurm", "slurm: {login: HOST}"), ("kubernetes", "kubectl")]
)  # fmt: skip
def test_a_scheduler_gets_a_document_and_a_launch_says_what_is_missing(
    home: Path, backend: str, missing: str
) -> None:
    (home / "site.yaml").write_text(
        f"cluster: site\nbackend: {backend}\nnodes: [{{name: 'n[1-2]', slots: 2}}]\n"
    )
    with (home / "hello.yaml").open("a") as file:
        file.write("container: {image: app:1}\n")
    run = ("run", "hello.yaml", "-c", "site.yaml")
    document = rankdeck(home, *run, "--dry-run")
    refused = rankdeck(home, *run, "--no-preflight")

    assert document.returncode == 0, document.stderr
    assert document.stdout.startswith(("#!/bin/bash\n#SBATCH", "apiVersion: "))
    assert refused.returncode != 0
    assert missing in refused.stderr


def test_a_dry_run_prints_every_command_and_starts_nothing(home: Path) -> None:
    done = rankdeck(home, "run", "hello.yaml", "-c", "two.yaml", "--dry-run", "--set", "env.A=b")
    shaped = rankdeck(
        home, "run", "hello.yaml", "-c", "two.yaml", "--dry-run", "--json", "--on", "n2"
    )
    plan = json.loads(shaped.stdout)

    assert done.returncode == 0, done.stderr
    assert "echo hi" in done.stdout
    assert "A=b" in done.stdout
    assert [node["node"] for node in plan["nodes"]] == ["n2"]


@pytest.mark.parametrize("change", ["nodes", "nodes=x", "colour=red", "on=n1", "grace=-1"])
def test_a_change_that_cannot_be_is_bad_input(home: Path, change: str) -> None:
    done = rankdeck(home, "run", "hello.yaml", "-c", "two.yaml", "--dry-run", "--set", change)

    assert done.returncode == 2
    assert change in done.stderr


def test_a_job_that_is_not_there_is_bad_input(home: Path) -> None:
    done = rankdeck(home, "logs", "nothing", "-c", "two.yaml")

    assert done.returncode == 2
    assert "no job `nothing`" in done.stderr


def test_no_jobs_is_an_empty_answer(home: Path) -> None:
    done = rankdeck(home, "jobs", "-c", "two.yaml", "--json")

    assert (done.returncode, done.stdout) == (0, "")


def test_a_reader_that_goes_away_is_no_trouble(home: Path) -> None:
    lines = "\n".join(f"  - {{name: n{number}}}" for number in range(20_000))
    (home / "many.yaml").write_text(f"cluster: many\nnodes:\n{lines}\n")
    command = f"{sys.executable} -m rankdeck nodes -c many.yaml | head -n 1"
    env = {
        "PYTHONPATH": f"{ROOT}/console:{ROOT}/agents",
        "HOME": str(home),
        "PATH": os.defpath,
    }
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=home,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.startswith("NAME")
    assert done.stderr == ""


def test_the_agent_is_passed_through(home: Path) -> None:
    done = rankdeck(home, "agent", "--version")

    assert done.returncode == 0, done.stderr
    assert "0.1" in done.stdout
