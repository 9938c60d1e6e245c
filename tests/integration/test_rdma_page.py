"""The page about two servers with RoCE in docs/examples: what needs RDMA, in the RDMA lab."""

from collections.abc import Sequence

import pytest
import yaml
from tests.support.commands import COMMANDS
from tests.support.example_pages import Desk, Page, Result
from tests.support.rdma_lab import RdmaLab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.left_out]
LIMIT = 1200.0


def test_the_page_of_two_roce_servers_is_true_where_there_is_rdma(rdma_lab: RdmaLab) -> None:
    told = yaml.safe_load(rdma_lab.cluster_file().read_text())
    lab = {key: told[key] for key in ("nodes", "ssh", "network")}
    not_here = dict.fromkeys(("broker", "environment", "expect"))
    desk = Desk("roce-pair", rdma_lab.environment(), {**lab, **not_here})

    def run(argv: Sequence[str], together: bool) -> Result:
        # An emulated node always looks busy.
        more = ["--include-busy", "rxe[1-2]"] if "accept" in argv else []
        words = [*argv, *more]
        return COMMANDS.run(words, rdma_lab.environment(), LIMIT, desk.folder, together=together)

    Page("roce-pair").run_lines(run, desk.folder, desk.hide, "rdma")
