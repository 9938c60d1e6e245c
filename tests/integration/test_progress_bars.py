"""A program that draws a progress bar, under a real job: one live line
on every view, as it came on disk.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.integration.test_main_path import Console, demo_console, left_of
from tests.ui.test_screens import lacks, shows, text_of

from rankdeck.config.clusters import read_cluster
from rankdeck.config.user import UiSettings
from rankdeck.demo.cluster import demo_status
from rankdeck.opening import open_cluster_session
from rankdeck.ui.app import RankdeckApp

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOB = r"""
job: bars
launch: plain
nodes: 3
ranks_per_node: 2
command:
  - python3
  - -c
  - |
    import os, signal, sys, time
    rank, go = int(os.environ["RANKDECK_RANK"]), []
    signal.signal(signal.SIGUSR1, lambda *_: go.append(1))
    print("rank", rank, "begins", flush=True)
    for step in range(101):
        sys.stderr.write(f"\repoch 1: {step:3d}%|{'#' * (step // 10):10}| {step}/100 [00:01<00:01]")
        sys.stderr.flush()
        while step == 50 + rank and not go:
            time.sleep(0.05)
    sys.stderr.write("\n")
    print("all read", flush=True)
"""
"""Draws as tqdm does; rank r stops at 50 + r percent until it gets a signal."""


def let_go(job: str) -> None:
    """Let the ranks of the job go on."""
    for pid in left_of(job):
        with contextlib.suppress(OSError):
            if (
                Path(f"/proc/{pid}/cmdline")
                .read_bytes()
                .startswith(b"python3\0-c\0import os, signal")
            ):
                os.kill(pid, signal.SIGUSR1)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with demo_console(tmp_path_factory.mktemp("bars")) as console:
        yield console


async def test_a_bar_is_one_live_line_in_every_view_and_as_it_came_on_disk(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_file = Path(console.file("bars.yaml", JOB))
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, console.env[name])
    monkeypatch.delenv("RANKDECK_STATE", raising=False)
    cluster = read_cluster(demo_status().file)
    app = RankdeckApp(cluster, UiSettings(theme_folders=()))
    app.open_with(partial(open_cluster_session, cluster))
    async with app.run_test(size=(160, 44)) as pilot:
        deadline = time.monotonic() + 60
        while app.session is None:
            assert time.monotonic() < deadline
            await pilot.pause(0.1)
        job = await app.session.control.launch(app.session.control.read_job(job_file))
        app.open_job(job)
        for rank in range(6):
            await shows(app, pilot, f"epoch 1:  {50 + rank}%|#####")
        assert "epoch 1:  10%" not in text_of(app)

        await pilot.press("c")
        await shows(app, pilot, "6 of 6  epoch 1  50 to 55%")
        for rank in range(6):
            await shows(app, pilot, f"{50 + rank}% {rank}")
        await pilot.press("M")
        await shows(
            app, pilot, "epoch 1:  50%|#####     | 50/100 [00:01<00:01]  (6 ranks: 50 to 55%)"
        )
        app.screen.zoom(4)
        await pilot.press("G")

        let_go(job)
        await lacks(app, pilot, "epoch 1:  54%")
        await app.session.following.finished(job)
        ends = [
            rank.read.ends()["err"] for rank in map(partial(app.session.jobs.log, job), range(6))
        ]

    drawn = "".join(f"\repoch 1: {n:3d}%|{'#' * (n // 10):10}| {n}/100 [00:01<00:01]" for n in range(101))  # fmt: skip
    # A terminal turns the end of a line into two bytes.
    assert set(ends) <= {len(drawn) + 1, len(drawn) + 2}
    lines = [row["text"] for row in console.objects("logs", job, "--rank", "3")]
    assert sorted(lines) == [
        "all read",
        f"epoch 1: 100%|{'#' * 10}| 100/100 [00:01<00:01]",
        "rank 3 begins",
    ]
