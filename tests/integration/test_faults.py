"""Faults planted for real on the embedded cluster: who is blamed,
and that every console says the same.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.fault_list import FAULTS, SHORT
from benchmarks.fault_model import Fault
from benchmarks.fault_run import Run, Watching, watching
from benchmarks.fault_sites import XDG, DemoSite, demo_site
from benchmarks.faults import prepare
from tests.support.polling import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.left_out]
ROWS = [fault for fault in FAULTS if fault.name in SHORT]

Place = tuple[DemoSite, Watching]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """One cluster and one console that looks on, for all faults."""
    with demo_site() as site, watching(site) as watch:
        prepare(site, [fault for fault in ROWS if not fault.lacking()])
        yield site, watch


@pytest.mark.kept("openmpi.raise")
@pytest.mark.parametrize("fault", ROWS, ids=lambda fault: fault.name)
def test_the_culprit_is_named_and_explained(place: Place, fault: Fault) -> None:
    if why := fault.lacking():
        pytest.skip(why)

    outcome = Run(fault, *place).go()

    assert (outcome.verdict, outcome.explained, outcome.same, outcome.note) == (
        "right",
        True,
        True,
        "",
    ), outcome


def test_a_cluster_is_mended_where_it_is(place: Place, own_folders: Path) -> None:
    place[0].mend()

    assert not list(own_folders.rglob("running.json"))


@pytest.mark.kept
def test_a_cluster_ends_also_where_the_folders_of_the_user_were_put_back(
    monkeypatch: pytest.MonkeyPatch, own_folders: Path
) -> None:
    with demo_site() as site:
        nodes = [Path("/proc", str(site.first_process(node))) for node in site.nodes()]
        for name in XDG:
            monkeypatch.setenv(name, str(own_folders))

    wait_until(lambda: not any(node.exists() for node in nodes), 60, "the end of the nodes")
