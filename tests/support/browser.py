"""A real headless browser that opens the pages of Rankdeck; tests
are skipped, and say so, without one.
"""

import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def rendered(page: Path) -> str:
    """The HTML of the document after the browser has loaded the page."""
    program = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(_NAMES)} on PATH")
    # The browser's helper processes may still write into the folder:
    # ignore errors when it is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = (
            *("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"),
            *("--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND"),
        )
        done = subprocess.run(
            [program, *options, "--dump-dom", page.absolute().as_uri()],
            capture_output=True, text=True, timeout=90, check=True,
        )  # fmt: skip
    return done.stdout


def parsed(page: str) -> ET.Element:
    """The page, read by a strict XML parser; raises ParseError if it is not well formed."""
    assert page.startswith("<!DOCTYPE html>\n")
    return ET.fromstring(page.partition("\n")[2])


def assert_self_contained(page: str) -> None:
    """The page has no scripts and loads nothing."""
    for one in parsed(page).iter():
        assert one.tag not in ("script", "iframe", "link", "img", "object", "embed", "base", "form")
        names = {name.lower() for name in one.attrib}
        assert not {name for name in names if name.startswith("on")}
        assert not names & {"src", "href", "xlink:href", "srcset", "action"}
        assert "url(" not in one.get("style", "")
    style = parsed(page).find("head/style")
    assert style is not None
    assert "url(" not in (style.text or "")
    assert "@import" not in (style.text or "")
