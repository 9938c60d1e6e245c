"""What the head remembers is removed, damaged or locked: it is said, the nodes are
not accused, and what they know comes back.
"""

import json
import random
from pathlib import Path

import pytest
from tests.integration import test_main_path
from tests.integration.test_main_path import Console
from tests.support.locked_file import locked

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
console = test_main_path.console
SHORT = """
job: {name}
launch: plain
nodes: 3
ranks_per_node: 1
command: [sh, -c, 'echo here; exit {code}']
"""


def history(console: Console) -> Path:
    (path,) = (console.folder / "state").glob("**/history.db")
    return path


def run(console: Console, name: str, code: int = 0) -> None:
    file = console.file(f"{name}.yaml", SHORT.format(name=name, code=code))
    assert console.run("run", file, "--no-preflight").returncode == code


def listed(console: Console, *words: str) -> dict[str, dict]:
    """Name -> job, of `jobs`."""
    return {job["name"]: job for job in console.objects("jobs", *words)}


def may_be_first(job: dict) -> set[int]:
    """The rank that failed first, and those that may have instead."""
    failure = job["first_failure"]
    return {failure["rank"], *failure["tied"]}


def test_jobs_whose_history_was_removed_are_read_back_from_their_nodes(console: Console) -> None:
    run(console, "well")
    run(console, "ill", 3)
    before = listed(console)
    for file in history(console).parent.glob("history.db*"):
        file.unlink()

    assert not listed(console).keys() & {"well", "ill"}
    done = console.run("jobs", "--from-nodes", "--json")
    back = {job["name"]: job for job in map(json.loads, done.stdout.splitlines())}

    # A node that is late is named, and what it has is not here.
    assert "not asked" not in done.stderr
    for name in ("well", "ill"):
        assert back[name]["state"] == before[name]["state"]
        assert back[name]["exit_code"] == before[name]["exit_code"]
        assert [r["exit_code"] for r in back[name]["ranks"]] == [
            r["exit_code"] for r in before[name]["ranks"]
        ]
    # All three fail in the same moment: which was first is only as sure
    # as the clocks, measured each time.
    assert before["ill"]["first_failure"]["rank"] in may_be_first(back["ill"])
    assert listed(console).keys() >= {"well", "ill"}
    assert console.run("logs", back["well"]["job"]).stdout.count("here") == 3


def test_a_damaged_history_is_said_and_the_nodes_are_offered(console: Console) -> None:
    run(console, "kept")
    path = history(console)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(3).randbytes(path.stat().st_size - 4096))

    done = console.run("jobs")

    assert "was not usable" in done.stderr
    assert "jobs --from-nodes" in done.stderr
    assert path.with_name("history.db.old1").exists()
    assert "kept" in listed(console, "--from-nodes")


def test_a_locked_history_is_said_and_no_node_is_accused(console: Console) -> None:
    run(console, "locked")
    path = history(console)
    with locked(path):
        done = console.run("jobs")

    assert done.returncode == 1
    assert "locked" in done.stderr
    # On a busy machine a node may be late, but a console that stands still misses all three.
    assert done.stderr.count("not asked what runs there") < 3
    assert "locked" in listed(console)
