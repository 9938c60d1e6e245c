"""The page about Slurm, Enroot and Pyxis in docs/examples, on a real Slurm."""

from pathlib import Path

import pytest
import yaml
from tests.support.example_pages import Desk, Page
from tests.support.lab.root.people import LIMIT, Operator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.left_out]
CORPUS = Path(__file__).resolve().parents[2] / "corpus/accept"


def test_the_page_of_slurm_and_pyxis_is_true(user: Operator) -> None:
    """What has no image or GPU here is planned, not run: the page says so."""
    lab = user.lab
    told = yaml.safe_load(Path(user.file).read_text())
    nodes = [{**node, "gpus": 4} if node["name"] != "login" else node for node in told["nodes"]]
    options = {**told["slurm"], "account": "research", "time": "04:00:00"}
    desk = Desk(
        "slurm-a100", lab.environment(), {"nodes": nodes, "ssh": told["ssh"], "slurm": options}
    )
    recorded = (CORPUS / "nccl-2x8").read_text().partition("\n")[2]
    (desk.folder / "nccl-2x8.txt").write_text(recorded)
    run = lambda argv, together: lab.rankdeck(  # noqa: E731
        *argv, limit=LIMIT, cwd=desk.folder, together=together
    )
    page = Page("slurm-pyxis")
    page.write_jobs(desk.folder / "jobs")
    page.run_lines(run, desk.folder, desk.hide)
