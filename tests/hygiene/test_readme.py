"""The pages a newcomer reads: short, and every link leads somewhere."""

import re
from pathlib import Path

import pytest

from rankdeck.cli.verbs import AGENT_VERBS, VERBS

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "docs/cli.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/examples").glob("*.md")),
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


def test_every_option_is_described_and_every_described_one_exists() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    known = {name for verb in (*VERBS, *AGENT_VERBS) for name in verb.arguments}
    options = {name for name in known if name.startswith("--")}
    described = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))

    assert sorted(options - described) == []
    assert (
        sorted(described - options - {"--allocation", "--json", "--namespace", "--version"}) == []
    )


def test_every_package_of_the_console_has_a_place_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("## Packages")[2].partition("\n## ")[0]
    folder = ROOT / "console" / "rankdeck"
    there = {path.parent.name for path in folder.glob("*/__init__.py")}
    there |= {path.stem for path in folder.glob("[a-z]*.py")}

    assert [name for name in sorted(there) if f"`{name}`" not in table] == []
