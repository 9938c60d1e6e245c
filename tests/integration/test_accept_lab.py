"""`rankdeck accept` with real iperf3 between namespace nodes of 100 Mbit/s: what is planted is named, and nothing else."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.lab import missing, running
from tests.support.polling import wait_until
from tests.support.shaped_lab import ShapedLab, planted

pytestmark = pytest.mark.slow
NODES = ("n1", "n2", "n3", "n4")
LIMIT = 240


@pytest.fixture(scope="module")
def shaped() -> Iterator[ShapedLab]:
    if why := missing():
        pytest.skip(why)
    for program in ("iperf3", "tc"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    with running(ShapedLab, NODES) as lab:
        yield lab


def accept(lab: ShapedLab, *words: str) -> tuple[int, dict]:
    """The exit code and the object of a run."""
    file = lab.cluster_file()
    asked = ("--recipe", "iperf3", "--seconds", "1", "--json")
    done = lab.rankdeck("-c", str(file), "accept", *asked, *words, limit=LIMIT)
    assert done.stdout, done.stderr[-2000:]
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("fault", "bad", "words"),
    [
        ((), [], []),
        (
            (("sends", "n3", "65mbit"),),
            ["n3"],
            ["n3 sends at", "with 3 of 3 partners", "receives at full speed"],
        ),
        (
            (("sends", "n2", "50mbit"), ("receives", "n2", "50mbit")),
            ["n2"],
            ["n2 reaches", "with 3 of 3 partners", "its NIC, slot, CPU or clocks"],
        ),
        ((("path", "n1", "n4", "40mbit"),), [], ["n1→n4 at", "twice", "one path between them"]),
    ],
    ids=["healthy", "sends", "half", "path"],
)
def test_what_is_planted_is_named_and_nothing_else(shaped: ShapedLab, fault, bad, words) -> None:
    with planted(shaped, *fault):
        code, run = accept(shaped)

    sentences = [one["sentence"] for one in run["verdicts"]]
    assert len(sentences) == bool(fault), sentences
    assert all(word in sentences[0] for word in words), sentences
    assert (code, run["bad"]) == (int(bool(fault)), bad)
    assert all(Path(one["raw"]).is_file() for one in run["results"] if one["outcome"] == "measured")


def test_another_mtu_and_a_host_that_answers_twice_are_seen_before_anything_runs(
    shaped: ShapedLab,
) -> None:
    file = shaped.cluster_file()
    content = yaml.safe_load(file.read_text())
    content["nodes"].append(
        {**content["nodes"][3], "name": "n5", "address": content["nodes"][3]["address"]}
    )
    file.write_text(yaml.safe_dump(content))
    shaped.as_root(["ip", "-n", "n2", "link", "set", "eth0", "mtu", "1400"])
    try:
        done = shaped.rankdeck(
            "-c", str(file), "accept", "--dry-run", "--json", "--recipe", "iperf3", limit=LIMIT
        )
    finally:
        shaped.as_root(["ip", "-n", "n2", "link", "set", "eth0", "mtu", "1500"])

    run = json.loads(done.stdout)
    assert run["differing"] == {"n2": "its mtu is 1400, 4 of 5 have 1500"}
    assert list(run["left_out"]) == ["n5"]
    assert "the same machine as n4" in run["left_out"]["n5"]
    assert run["results"] == []


def test_a_killed_console_goes_on_and_measures_nothing_twice(shaped: ShapedLab) -> None:
    file = shaped.cluster_file()
    words = ["-c", str(file), "accept", "--recipe", "iperf3", "--seconds", "1"]
    told = shaped.folder / "told"
    with told.open("wb") as log:
        first = subprocess.Popen(
            shaped.command([sys.executable, "-m", "rankdeck", *words]),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=shaped.environment(),
        )  # fmt: skip
        wait_until(lambda: "pairs iperf3 1 of 3" in told.read_text(), LIMIT)
        first.send_signal(signal.SIGKILL)
        first.wait(10)
    run = told.read_text().split("acceptance ")[1].split()[0]
    before = shown(shaped, run)
    done = shaped.rankdeck("-c", str(file), "accept", "--resume", run, limit=LIMIT)

    assert done.returncode == 0, done.stderr[-2000:]
    assert before["progress"] == "stopped"
    after = shown(shaped, run)
    assert after["accepted"]
    assert len(after["results"]) == 24
    kept = [one for one in before["results"] if one["outcome"] == "measured"]
    assert len(kept) >= 8
    assert [one for one in kept if one not in after["results"]] == []


def shown(lab: ShapedLab, run: str) -> dict:
    done = lab.rankdeck(
        "-c", str(lab.cluster_file()), "accept", "--show", run, "--json", limit=LIMIT
    )
    return json.loads(done.stdout)
