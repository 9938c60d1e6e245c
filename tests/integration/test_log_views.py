"""Whole logs read and searched on their nodes over real SSH, from
the screen and the command line.
"""

import collections
import time
from collections.abc import Iterator
from functools import partial

import pytest
from tests.integration.test_main_path import Console, demo_console
from tests.ui.test_screens import shows, type_in

from rankdeck.config.clusters import read_cluster
from rankdeck.config.user import UiSettings
from rankdeck.demo.cluster import demo_status
from rankdeck.opening import open_cluster_session
from rankdeck.ui.app import RankdeckApp

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]

LINES = 60_000
"""Of each rank: more than a rank on the screen fetches, and more than the ring keeps."""
LONG = """
job: long
launch: plain
nodes: 3
ranks_per_node: 2
command:
  - awk
  - >-
    BEGIN {{ r = ENVIRON["RANKDECK_RANK"];
    for (i = 0; i < {lines}; i++) print (i == 77 ? "the needle is here" : "step " i " of rank " r " loss 2." i);
    if (r == 3) print "OSError: shard 3"; else print "barrier reached" }}
"""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with demo_console(tmp_path_factory.mktemp("views")) as console:
        yield console


@pytest.fixture(scope="module")
def job(console: Console) -> str:
    file = console.file("long.yaml", LONG.format(lines=LINES))
    (ended,) = console.objects("run", file, "--no-preflight")
    assert ended["state"] == "done"
    return ended["job"]


@pytest.mark.kept
def test_equal_lines_of_all_ranks_are_one_row_and_the_odd_one_is_named(
    console: Console, job: str
) -> None:
    rows = {row["text"]: row for row in console.objects("logs", job, "--collapse")}

    assert rows["the needle is here"]["ranks"] == "0-5"
    assert rows["OSError: shard 3"]["ranks"] == "3"
    assert rows["barrier reached"]["missing"] == "3"
    (steps,) = [row for text, row in rows.items() if text.startswith("step ")]
    assert steps["lines"] == 6 * (LINES - 1)


def test_the_merged_log_has_every_line_of_every_rank_in_its_order(
    console: Console, job: str
) -> None:
    seen: dict[str, list[int]] = collections.defaultdict(list)
    for row in console.objects("logs", job, "--merge"):
        if row["text"].startswith("step "):
            _, number, _, _, rank, *_ = row["text"].split()
            seen[rank].append(int(number))

    expected = [n for n in range(LINES) if n != 77]
    assert {rank: numbers == expected for rank, numbers in seen.items()} == dict.fromkeys(
        "012345", True
    )


def test_the_difference_is_where_it_is(console: Console) -> None:
    file = console.file("short.yaml", LONG.format(lines=100))
    (ended,) = console.objects("run", file, "--no-preflight")
    job = ended["job"]

    odd, like = console.objects("logs", job, "--diff")
    assert (odd["ranks"], like["ranks"], like["first"]) == ("3", "0-2,4-5", None)
    assert odd["first"]["same_lines"] == 100
    assert odd["first"]["left"] == "OSError: shard 3"
    assert odd["first"]["right"] == "barrier reached"
    (pair,) = console.objects("logs", job, "--diff=0,3")
    assert pair["only_left"] == ["barrier reached"]
    assert pair["only_right"] == ["OSError: shard 3"]
    for given, said in (("1", "name two ranks"), ("1,99", "there is no rank 99"), ("3-1", "first")):
        done = console.run("logs", job, f"--diff={given}")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert f"--diff {given}: " in done.stderr
        assert said in done.stderr
    done = console.run("logs", job, "--rank=1", "--diff=0,3")
    assert (done.returncode, done.stderr) == (
        2,
        "rankdeck: --diff 0,3: --rank leaves out one of them\n",
    )
    assert f"{job} has ended (done)" in console.run("ps", "--job", job).stdout


@pytest.mark.kept
async def test_the_screen_reads_and_searches_the_whole_log_on_its_node(
    console: Console, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, console.env[name])
    monkeypatch.delenv("RANKDECK_STATE", raising=False)
    cluster = read_cluster(demo_status().file)
    app = RankdeckApp(cluster, UiSettings(theme_folders=()))
    app.open_with(partial(open_cluster_session, cluster))
    async with app.run_test(size=(120, 40)) as pilot:
        deadline = time.monotonic() + 60
        while app.session is None or not app.session.jobs.knows(job):
            assert time.monotonic() < deadline
            await pilot.pause(0.1)
        app.open_job(job)
        await shows(app, pilot, "barrier reached")
        app.screen.zoom(4)
        await shows(app, pilot, f"step {LINES - 1} of rank 4")
        await pilot.press("g")
        await shows(app, pilot, "step 0 of rank 4")
        await shows(app, pilot, "out, 0% of")
        await pilot.press("G")
        await shows(app, pilot, f"step {LINES - 1} of rank 4")
        await pilot.press("slash")
        await type_in(pilot, "needle")
        await pilot.press("enter")
        await shows(app, pilot, "match 1 of 1 in all of out")
        await shows(app, pilot, "the needle is here")
        await shows(app, pilot, "step 78 of rank 4")
