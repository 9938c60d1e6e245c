"""The pages of docs/examples: short, complete, and each run by a test.

What a page shows of the two servers with RoCE that needs no node is run here.
"""

import re
import subprocess
from pathlib import Path

import pytest
from tests.support.commands import COMMANDS
from tests.support.example_pages import FOLDER, Desk, Page

TESTS = Path(__file__).resolve().parents[1]
CORPUS = TESTS / "corpus/accept"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "README")
RUN = re.compile(r"""(?:Page|read_page)\("([\w-]+)\"""")
RECORDED = {"write-bw": "ib_write_bw", "rping-client": "rping", "nccl-2x1": "nccl-tests"}


def test_every_page_is_run_by_a_test_and_is_in_the_list() -> None:
    run = {name for path in TESTS.rglob("test_*.py") for name in RUN.findall(path.read_text())}

    assert sorted(run) == PAGES
    assert all(f"({name}.md)" in (FOLDER / "README.md").read_text() for name in PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_short_and_says_what_is_done_by_hand(name: str) -> None:
    page = Page(name)
    by_hand = re.findall(r"^```sh\n(.*?)^```$", page.path.read_text(), re.DOTALL | re.MULTILINE)

    assert len(page.rows) <= 120
    assert page.lines()
    assert by_hand
    for text in by_hand:
        subprocess.run(["bash", "-n", "-c", text], check=True)


@pytest.mark.long
def test_what_needs_no_node_on_the_page_of_two_roce_servers_is_true(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "RANKDECK_MQTT": "secret"}
    desk = Desk("roce-pair", home, {})
    for name, recipe in RECORDED.items():
        text = (CORPUS / name).read_text().partition("\n")[2]
        (desk.folder / f"{recipe}.txt").write_text(text)
    run = lambda argv, together: COMMANDS.run(argv, home, 60, desk.folder, together=together)  # noqa: E731
    Page("roce-pair").run_lines(run, desk.folder, desk.hide)
