"""`rankdeck clean` on the embedded cluster: what it says, what it removes,
and what a removed job says of itself.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_main_path import PLAIN, Console, demo_console
from tests.support.polling import seen_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
NODES = ("sakuya", "sakura", "koishi")


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    folder = tmp_path_factory.mktemp("clean")
    with demo_console(folder) as console:
        console.env["HOME"] = str(
            folder
        )  # so that the cache of whoever runs the tests is left alone
        yield console


def run_folder(console: Console, job: str, node: str) -> Path:
    demo = console.folder / "state/rankdeck/console/demo"
    return demo / "nodes" / node / "state" / "jobs" / job / node


def ended(console: Console, days: float) -> str:
    """A job that ended so many days ago."""
    file = console.file("count.yaml", PLAIN.format(count=3, pause=":", end="exit 0"))
    (job,) = console.objects("run", file, "--no-preflight")[-1:]
    assert job["state"] == "done"
    at = time.time() - days * 86400
    for node in NODES:
        os.utime(run_folder(console, job["job"], node) / "events", (at, at))
    return job["job"]


def runs(answer: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Node -> ground -> names of run folders."""
    return {
        node: {one["ground"]: one["names"] for one in said["groups"] if one["kind"] == "runs"}
        for node, said in answer["nodes"].items()
    }


@pytest.fixture
def lasting(console: Console) -> Iterator[str]:
    """The id of a job that runs until the test is over."""
    file = console.file("long.yaml", PLAIN.format(count=9999, pause="sleep 0.1", end="exit 0"))
    (running,) = console.objects("run", file, "--detach", "--no-preflight")[-1:]
    yield running["job"]
    console.run("cancel", running["job"])


def test_a_dry_run_says_what_goes_and_yes_removes_it_but_no_running_job(
    console: Console, lasting: str
) -> None:
    old, new = ended(console, 31), ended(console, 1)
    # The supervisors of what has ended may take a moment to be gone.
    said = seen_until(
        lambda: console.objects("clean", "--dry-run")[0],
        lambda seen: all(runs(seen)[node]["runs"] == [f"{lasting}/{node}"] for node in NODES),
    )
    table = console.run("clean", "--dry-run")
    asked = console.run("clean")

    for node in NODES:
        found = runs(said)[node]
        assert (found["old"], found["runs"]) == ([f"{old}/{node}"], [f"{lasting}/{node}"])
        assert f"{new}/{node}" in found["recent"]
    assert (said["dry_run"], said["missing"]) == (True, {})
    # The nodes share /tmp with all that is tested on this machine: links of other jobs may go, too.
    assert said["total"]["count"] >= 3
    assert said["total"]["bytes"] > 3 * 4096
    assert table.returncode == 0
    assert [line.split()[:4] for line in table.stdout.splitlines()[1:4]] == [
        [node, "1", "run", "folder"] for node in NODES
    ]
    assert re.match(r"[3-9]\d* things \(", table.stdout.splitlines()[-1])
    assert asked.returncode == 2
    assert re.search(r"nothing was removed: [3-9]\d* things", asked.stderr)
    assert run_folder(console, old, "sakuya").exists()

    (did,) = console.objects("clean", "--yes")

    assert [runs(did)[node]["old"] for node in NODES] == [[f"{old}/{node}"] for node in NODES]
    assert not any(run_folder(console, old, node).exists() for node in NODES)
    assert all(run_folder(console, new, node).exists() for node in NODES)
    assert console.job(lasting)["state"] == "running"


def test_the_logs_of_a_removed_job_say_that_they_are_gone_and_the_job_stays_as_it_ended(
    console: Console,
) -> None:
    old = ended(console, 31)
    before = console.job(old)
    console.run("clean", "--yes")
    logs = console.run("logs", old)
    after = console.job(old)

    assert logs.stdout == ""
    assert logs.stderr.splitlines() == [
        f"{old}: its run folder on koishi,sakura,sakuya is gone (`rankdeck clean` or somebody removed it,"
        " or its file system is not mounted): what its ranks wrote there cannot be shown"
    ]
    assert (after["state"], after["exit_code"]) == ("done", 0)
    assert after["ranks"] == before["ranks"]


def test_a_node_that_cannot_be_asked_is_named_and_others_are_cleaned(console: Console) -> None:
    old = ended(console, 31)
    (demo,) = (console.folder / "state/rankdeck/console/demo").glob("*.yaml")
    text = demo.read_text()
    try:
        demo.write_text(re.sub(r"(name: sakuya\b.*?port: )\d+", r"\g<1>1", text, flags=re.DOTALL))
        done = console.run("clean", "--yes", "--json")
    finally:
        demo.write_text(text)
    answer = json.loads(done.stdout)

    assert done.returncode == 1
    assert answer["missing"].keys() == {"sakuya"}
    assert runs(answer)["sakura"]["old"] == [f"{old}/sakura"]
    assert run_folder(console, old, "sakuya").exists()
    assert not run_folder(console, old, "sakura").exists()


def test_only_the_named_nodes_are_cleaned(console: Console) -> None:
    old = ended(console, 31)
    (answer,) = console.objects("clean", "--yes", "--nodes", "koishi")

    assert runs(answer).keys() == {"koishi"}
    assert run_folder(console, old, "sakura").exists()
    assert not run_folder(console, old, "koishi").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--size", "much"), "--size much: write a number and a unit"),
        (("--days", "-1"), "--days: from 0 to 36500"),
        (("--nodes", "nobody"), "no node `nobody`"),
    ],
)
def test_a_wrong_option_is_one_sentence(console: Console, words: tuple[str, ...], why: str) -> None:
    done = console.run("clean", *words)

    assert done.returncode == 2
    assert why in done.stderr


def test_a_start_of_a_job_has_its_nodes_cleaned_with_the_agent_that_the_console_put_there(
    console: Console,
) -> None:
    old = ended(console, 31)
    stamps = [
        one for node in NODES for one in run_folder(console, old, node).parents[2].glob("cleaned.*")
    ]
    assert len(stamps) == len(NODES)
    for stamp in stamps:
        at = time.time() - 2 * 86400
        os.utime(stamp, (at, at))
    new = ended(console, 0)
    seen_until(
        lambda: [run_folder(console, old, node).exists() for node in NODES],
        lambda there: not any(there),
        60,
    )

    assert all(run_folder(console, new, node).exists() for node in NODES)
    assert all(json.loads(stamp.read_text())["failed"] == [] for stamp in stamps)
