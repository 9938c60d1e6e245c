"""`rankdeck swap` on the embedded cluster: a fault of the program, one of a node, one that is
interrupted, jobs for which there is none.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.spine import Person, demo_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
PROGRAM = """\
import os, sys, time
rank, bad = int(os.environ["RANKDECK_RANK"]), os.path.exists(os.path.expanduser("~/broken"))
print("begun", flush=True)
time.sleep(0.3)
if "%s" == "rank" and rank == 3 or "%s" == "node" and bad:
    sys.exit("no sample 17")
time.sleep(1)
"""


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    start = [sys.executable, "-m", "rankdeck"]
    with demo_of(start, {}, tmp_path_factory.mktemp("swap")) as one:
        yield one


def failed(person: Person, fault: str) -> str:
    """The id of a job in which that went wrong."""
    text = PROGRAM % (fault, fault)
    file = person.folder / f"by-{fault}.yaml"
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    file.write_text(
        f"job: by-{fault}\nlaunch: plain\nnodes: 3\nranks_per_node: 2\ngrace: 1\nfiles:\n  p.py: |\n"
        f'{lines}command: [python3, "${{RANKDECK_RUN}}/p.py"]\n'
    )
    job = person.job(str(file), "--no-preflight")["job"]
    file.unlink()  # the history has what the job needs
    return job


def swapped(person: Person, job: str) -> tuple[int, dict[str, Any]]:
    done = person.run("-c", "demo", "swap", job, "--yes", "--json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def running(person: Person) -> list[str]:
    return [one["job"] for one in person.objects("jobs", "--parts") if one["state"] == "running"]


def test_a_fault_of_a_rank_stays_with_it_on_whichever_node(person: Person) -> None:
    code, found = swapped(person, failed(person, "rank"))

    assert (code, found["verdict"]["blame"], found["verdict"]["rank"]) == (0, "program", 3), found
    nodes = {one["outcome"]: one["places"] for one in found["runs"]}
    assert set(nodes) == {"the same fault"}
    assert all(one["fault"]["ranks"] == [3] and not one["left"] for one in found["runs"])
    assert running(person) == []


def test_a_fault_of_a_node_goes_with_it_whichever_rank_runs_there(person: Person) -> None:
    (broken,) = Path(person.env["XDG_STATE_HOME"]).glob("**/nodes/koishi/home")
    (broken / "broken").touch()
    code, found = swapped(person, failed(person, "node"))
    (broken / "broken").unlink()

    assert (code, found["verdict"]["blame"], found["verdict"]["node"]) == (0, "node", "koishi"), (
        found
    )
    ways = [(one["way"], one["outcome"]) for one in found["runs"]]
    assert ways[:2] == [("moved", "the same fault"), ("without", "no fault")]
    assert "went well in run 2 (without koishi)" in found["verdict"]["sentence"]


def test_one_that_is_interrupted_leaves_nothing(person: Person) -> None:
    job = failed(person, "rank")
    process = subprocess.Popen(
        [*person.start, "-c", "demo", "swap", job],
        env=person.env, cwd=person.folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert any(line.startswith("run 1 (ranks moved): rank 3 failed") for line in process.stderr)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)

    assert process.returncode == 130, said
    assert "cancelled: nothing is left on any node" in said
    assert running(person) == []


def test_a_dry_run_starts_nothing_and_a_job_without_a_fault_is_refused(person: Person) -> None:
    job = failed(person, "rank")
    (plan,) = person.objects("swap", job, "--dry-run")
    assert (plan["suspects"], plan["runs"], len(plan["planned"])) == (["sakura"], [], 4)

    done = person.run("-c", "demo", "swap", failed(person, "nobody"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "ended well: there is no fault to look for" in done.stderr
    assert person.run("-c", "demo", "swap", "never-was").returncode == 2
