"""The pages a newcomer reads: short, and every link leads somewhere."""

import re
from pathlib import Path

import pytest

from rankdeck.cli.parser import VERBS

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "docs/cli.md",
)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    targets = LINK.findall(path.read_text())
    local = [target for target in targets if "://" not in target]

    assert [target for target in local if not (path.parent / target).exists()] == []


def test_every_verb_is_described() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()

    assert [verb.name for verb in VERBS if f"`{verb.name}" not in text] == []
