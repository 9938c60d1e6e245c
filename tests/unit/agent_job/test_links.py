"""The links in /tmp of a job whose nodes are one machine: they share
the folder, and either may end first.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.layout import make_run_folder, unlink_links
from rankdeck_agent.wire import NodePlan


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RANKDECK_STATE", str(tmp_path))
    return


def made(job: str, node: str) -> RunFolder:
    return make_run_folder(NodePlan(job=job, node=node, ranks=()))


def test_a_node_that_ends_takes_no_link_of_one_that_begins(state: None, tmp_path: Path) -> None:
    job, over = f"links-{tmp_path.name[-12:]}", threading.Event()
    short = made(job, "n1")

    def end_all_the_time() -> None:
        while not over.is_set():
            unlink_links(short)

    ending = threading.Thread(target=end_all_the_time)
    ending.start()
    try:
        for number in range(60):
            begun = made(job, f"m{number}")
            assert (begun.links / begun.node).resolve() == begun.path.resolve()
            assert (begun.links / "rank").exists()
            unlink_links(begun)
    finally:
        over.set()
        ending.join()
    unlink_links(short)
    assert not short.links.exists()
