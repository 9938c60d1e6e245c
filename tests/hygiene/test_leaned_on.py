"""What Rankdeck takes from others beyond their documented interface is on one
list, with its reason and the releases seen.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from tests.support.install import LOCK
from tests.support.leaned_on import Row, rows, shown
from tests.support.lock import LAYERS, blocks

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Leaned:
    """Names that one file takes from a project."""

    path: str
    names: Sequence[str]
    project: str
    """As in the lock; or CPython."""
    reason: str
    seen: Sequence[str]
    """The releases with which it worked; of CPython the minor ones."""


TEXTUAL = ("8.2.8",)
CPYTHON = ("3.11", "3.12", "3.13", "3.14")
LEANED = (
    Leaned(
        "agents/rankdeck_agent/images/file_transfer.py", ("hashlib._Hash",), "CPython",
        "only for the types: the class of digests has no other name", CPYTHON,
    ),
    Leaned(
        "agents/rankdeck_agent/needed_texts.py", ("re._parser",), "CPython",
        "the parts of a pattern, to know which texts it needs; before 3.11 the documented module sre_parse has them", CPYTHON,
    ),
    Leaned(
        "agents/rankdeck_agent/telemetry.py", ("sys.modules =", "client.ssl ="), "paho-mqtt",
        "loads paho without OpenSSL, a fifth of the agent's memory, and then lends paho the errors of `ssl` that it names", ("2.1.0", "2.2.0"),
    ),
    Leaned(
        "benchmarks/paint_app.py", ("events.Handle._run =", "_callback"), "CPython",
        "measures each call of the event loop; a benchmark only", CPYTHON,
    ),
    Leaned(
        "console/rankdeck/remote/liboqs.py", ("ctypes.util.find_library =",), "CPython",
        "asyncssh has compiler and linker look for liboqs whenever it is imported, a fifth of its time", CPYTHON,
    ),
    Leaned(
        "console/rankdeck/cli/parser.py", ("_Parser._option_string_actions",), "CPython",
        "the options that argparse knows, to propose the nearest", CPYTHON,
    ),
    Leaned(
        "console/rankdeck/ui/app.py", ("RankdeckApp._driver", "_disable_mouse_support", "_enable_mouse_support"), "textual",
        "leaves the mouse to the terminal while the user selects text; does nothing where the methods are missing", TEXTUAL,
    ),
    Leaned(
        "console/rankdeck/ui/garbage_collection.py", ("Strip.divide =",), "textual",
        "a whole strip keeps a reference to itself, which only a full garbage collection frees", TEXTUAL,
    ),
    Leaned(
        "console/rankdeck/ui/terminal.py",
        ("FrameDiff._batch_count", "FrameDiff._begin_update", "FrameDiff._closed", "FrameDiff._display", "FrameDiff._driver", "FrameDiff._end_update",
         "FrameDiff._running", "textual._compositor.ChopsUpdate", "textual._compositor.LayoutUpdate"), "textual",
        "sends only the characters that changed; without an attribute it sends whole lines, as Textual does", TEXTUAL,
    ),
    Leaned(
        "console/rankdeck/ui/terminal.py", ("_writer_thread", "_queue"), "textual",
        "the number of frames that the terminal has not taken yet; counts none where there is no such thread", TEXTUAL,
    ),
    Leaned(
        "console/rankdeck/ui/terminal.py", ("TerminalDriver._app", "TerminalDriver._file", "TerminalDriver._loop", "_parent"), "textual",
        "ends within seconds when the terminal is gone, and follows the widget that has the focus", TEXTUAL,
    ),
    Leaned(
        "console/rankdeck/ui/widgets/canvas.py",
        ("Canvas._styles_cache", "LineCache._cache", "LineCache._dirty_lines", "LineCache._width", "textual._styles_cache.StylesCache"), "textual",
        "a canvas has neither border nor padding: handling them costs more than painting", TEXTUAL,
    ),
    Leaned(
        "tests/support/commands.py", ("_shutdown", "_run_exitfuncs", "sys.argv ="), "CPython",
        "ends a fork as an interpreter ends, without freeing the modules", CPYTHON,
    ),
    Leaned(
        "tests/support/liar.py", ("sys.stdin =",), "CPython", "reads the login that the console sends, and puts it back", CPYTHON,
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def found() -> set[Row]:
    return rows()


def test_all_that_we_lean_on_is_listed_and_all_that_is_listed_is_there(found: set[Row]) -> None:
    listed = {(one.path, name) for one in LEANED for name in one.names}

    assert not found - listed, f"not listed:\n{shown(found - listed)}"
    assert not listed - found, f"listed, and not in the code:\n{shown(listed - found)}"


def test_each_was_seen_with_the_release_that_is_used_here() -> None:
    layers = [blocks((LOCK / f"{layer}.txt").read_text()) for layer in LAYERS]
    used = {name: row.split()[0].split("==")[1] for rows in layers for name, row in rows.items()}
    used["CPython"] = ".".join(map(str, sys.version_info[:2]))

    unseen = [f"{one.path}: {one.project} {used[one.project]}" for one in LEANED]
    seen = [f"{one.path}: {one.project} {release}" for one in LEANED for release in one.seen]
    assert not set(unseen) - set(seen)
