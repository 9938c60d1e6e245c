"""ARCHITECTURE.md is short, and every file and module that the pages name exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONSOLE = ROOT / "console" / "rankdeck"
AGENT = ROOT / "agents" / "rankdeck_agent"
BASES = (ROOT, ROOT / "docs", CONSOLE, AGENT, ROOT / "tests" / "integration")
"""Folders from which a page may name a file."""
PAGES = (
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"),
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
)
WORD_LIMIT = 1500
FILE = re.compile(r"[\w./-]*\w\.py\b")
SOURCE = re.compile(r"`((?:console|agents|tests|benchmarks)/[\w./-]*)`")
MODULE = re.compile(r"`(rankdeck(?:_agent)?(?:\.\w+)+)`")


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def is_there(path: str) -> bool:
    return any((base / path).exists() for base in BASES)


def test_the_architecture_is_read_in_ten_minutes() -> None:
    assert len(text_of("ARCHITECTURE.md").split()) <= WORD_LIMIT


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    named = {*FILE.findall(text_of(page)), *SOURCE.findall(text_of(page))}

    assert [path for path in sorted(named) if not is_there(path)] == []


def test_every_module_that_the_architecture_names_is_there() -> None:
    named = MODULE.findall(text_of("ARCHITECTURE.md"))
    paths = {name: name.replace(".", "/") for name in named}
    folders = (CONSOLE.parent, AGENT.parent)
    there = {
        p for p in paths.values() for f in folders if (f / p).is_dir() or (f / f"{p}.py").exists()
    }

    assert named
    assert [name for name, path in paths.items() if path not in there] == []


def test_every_package_of_the_agent_has_its_words_in_the_architecture() -> None:
    after = text_of("ARCHITECTURE.md").partition("In `agents/rankdeck_agent`:")[2]
    words = after.partition("\n## ")[0]
    folders = {path.parent.name for path in AGENT.glob("*/__init__.py")}

    assert folders
    assert [name for name in sorted(folders) if f"`{name}`" not in words] == []
