"""`rankdeck drill` on the embedded cluster: real faults in real jobs, a drill that is interrupted,
faults that cannot be planted, wrong input. Cut links in the namespace lab.
"""

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.lab import Lab
from tests.support.polling import wait_until
from tests.support.spine import Person, demo_of

from rankdeck.drill.values import Way

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LIMIT = 500
"""Seconds for a drill: each of its faults is a job."""


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    start = [sys.executable, "-m", "rankdeck"]
    with demo_of(start, {}, tmp_path_factory.mktemp("drill")) as one:
        yield one


def drill(person: Person, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the object of a drill."""
    done = subprocess.run(
        [*person.start, "-c", "demo", "drill", "--yes", "--json", *words],
        env=person.env, cwd=person.folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def running(person: Person) -> list[str]:
    said = person.run("-c", "demo", "jobs", "--parts", "--json").stdout.splitlines()
    return [job["job"] for job in map(json.loads, said) if job["state"] == "running"]


def right(found: dict[str, Any]) -> None:
    """Every fault was planted, its victim was named, and nothing is left."""
    assert found["results"]
    for one in found["results"]:
        assert one["verdict"] == "right", one
        of_node = Way(one["fault"]).of_node
        assert one["named"] == (f"node {one['node']}" if of_node else f"rank {one['victim']}"), one
        assert one["left"] == {}
        assert one["seconds"] < found["limit"]


def test_a_killed_and_a_stopped_rank_are_named_with_mpi_and_alone(person: Person) -> None:
    code, found = drill(person, "--only", "killed,stopped", "--launch", "plain,mpi")

    right(found)
    assert (code, found["trusted"], len(found["results"])) == (0, True, 4)
    assert {one["victim"] for one in found["results"]} != {found["results"][0]["victim"]}
    assert running(person) == []


def test_the_node_of_a_frozen_agent_is_named_and_its_agent_is_ended(person: Person) -> None:
    code, found = drill(person, "--only", "frozen", "--launch", "plain")

    right(found)
    assert code == 0
    assert "stands still" in found["results"][0]["sentence"]
    assert running(person) == []


WAYS = {
    "plain": ("silent",),
    "mpi": ("silent", "slow", "collective"),
    # A slow rank of torchrun is not named within two minutes on a busy machine.
    "torchrun": ("killed", "silent"),
}
"""What the tests above do not plant."""


@pytest.mark.left_out
@pytest.mark.parametrize("launch", WAYS)
def test_the_other_faults_that_need_no_lab_are_named(person: Person, launch: str) -> None:
    if launch == "torchrun":
        pytest.importorskip("torch")
    for way in WAYS[launch]:
        _, found = drill(person, "--only", way, "--launch", launch)
        (one,) = found["results"]
        assert one["verdict"] == "right", one
    assert running(person) == []


def test_a_drill_that_is_interrupted_leaves_nothing_and_shows_what_it_has(person: Person) -> None:
    process = subprocess.Popen(
        [*person.start, "-c", "demo", "drill", "--only", "killed,silent", "--launch", "plain", "--yes"],
        env=person.env, cwd=person.folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert any(line.startswith("1 of 2: ") for line in process.stderr)
    wait_until(lambda: running(person), 120)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=120)

    assert process.returncode == 130, said
    assert "cancelled: nothing is left on any node" in said
    assert "1 of 1 right" in out
    assert running(person) == []


def test_what_a_node_lacks_is_not_planted_and_counts_as_no_success(person: Person) -> None:
    like = person.folder / "elsewhere.yaml"
    like.write_text("job: e\nlaunch: mpi\ncommand: [x]\nmpi: {path: /opt/nowhere/mpirun}\n")
    code, found = drill(person, "--only", "killed", "--launch", "mpi", "--like", str(like))

    (one,) = found["results"]
    assert (code, one["verdict"], found["trusted"]) == (1, "not planted", False)
    assert "/opt/nowhere/mpirun" in one["sentence"]


def test_a_dry_run_starts_nothing(person: Person) -> None:
    done = person.run("-c", "demo", "drill", "--dry-run", "--json")

    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert len(found["planned"]) == 19
    assert found["results"] == []
    cut = [one for one in found["planned"] if one["fault"] == "cut"]
    assert all("--cut and --mend" in one["unplanted"] for one in cut)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "kiled"), "did you mean `killed`"),
        (("--launch", "slurm"), "no launcher `slurm`"),
        (("--on", "nobody"), "no node `nobody`"),
        (("--nodes", "9"), "--nodes 9: `demo` has 3 nodes"),
        (("--nodes", "-1"), "not below 0"),
        (("--launch", "plain", "--only", "slow"), "do not work together"),
        (("--cut", "down {node}"), "--cut needs --mend"),
        (("--like", "nothing.yaml"), "nothing.yaml"),
        (("--limit", "soon"), "soon"),
    ],
)
def test_wrong_input_has_one_clear_error(person: Person, words: tuple[str, ...], said: str) -> None:
    done = person.run("-c", "demo", "drill", "--yes", *words)

    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert running(person) == []


# ---- links


ASKS = """#!/bin/sh
# Asks the test, which may change the links of the lab, and waits until it has.
touch "$0.asked.$1"
until rm "$0.done.$1" 2>/dev/null; do sleep 0.1; done
"""


@contextmanager
def link_programs(lab: Lab) -> Iterator[tuple[Path, Path]]:
    """The programs that cut and mend the link of a node of the lab."""
    folder = lab.folder / "links"
    folder.mkdir()
    folder.chmod(0o777)
    over = threading.Event()
    acts = {"cut": lab.cut, "mend": lab.mend}

    def serve() -> None:
        while not over.wait(0.1):
            for asked in folder.glob("*.asked.*"):
                word, _, node = asked.name.split(".")
                asked.unlink()
                acts[word](node)
                (folder / f"{word}.done.{node}").touch(0o666)

    for word in acts:
        (folder / word).write_text(ASKS)
        (folder / word).chmod(0o755)
    server = threading.Thread(target=serve)
    server.start()
    try:
        yield folder / "cut", folder / "mend"
    finally:
        over.set()
        server.join(30)
        shutil.rmtree(folder)


def test_a_cut_link_names_its_node_and_is_mended(lab: Lab) -> None:
    file = lab.cluster_file(slots=2)
    with link_programs(lab) as (cut, mend):
        words = ("--cut", f"{cut} {{node}}", "--mend", f"{mend} {{node}}")
        options = ("--yes", "--json", "--only", "cut", "--launch", "plain", *words)
        done = lab.rankdeck("-c", str(file), "drill", *options, limit=300)

    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    right(found)
    assert done.returncode == 0
    assert "answer" in found["results"][0]["sentence"]
    node = found["results"][0]["node"]
    assert lab.processes(node, found["results"][0]["job"]) == 0
    assert lab.ssh(node, "true").returncode == 0
