"""The agent needs nothing that Python 3.6 lacks, in what it imports, calls and writes."""

import ast
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from tests.support.cases import each

from rankdeck.remote.bundle import build_bundle
from rankdeck_agent.older_source import without_types

FILE = zipfile.ZipFile(BytesIO(build_bundle(simulating=True).data))
MODULES = [name for name in FILE.namelist() if name.endswith(".py")]
ALLOWED = {
    "os.posix_spawn": "only from 3.8 on (collectors/network_mounts.py)",
    "os.POSIX_SPAWN_DUP2": "with it",
    "os.POSIX_SPAWN_OPEN": "with it",
    "signal.set_wakeup_fd(warn_on_full_buffer)": "only from 3.7 on (job/supervisor.py)",
    "str.decode": "vermin takes bytes for a text (collectors/net.py)",
    "typing.Literal": "paho: under TYPE_CHECKING, or with another way beside it, as the next ones",
    "typing.NotRequired": "",
    "typing.Protocol": "",
    "typing.Required": "",
    "typing.TypedDict": "",
}
"""What newer Pythons have, and why it does no harm where the agent file has it."""


@each(MODULES)
def test_a_module_of_the_agent_file_has_the_syntax_of_python_3_6(name: str) -> None:
    ast.parse(FILE.read(name), name, feature_version=(3, 6))


@pytest.mark.long
def test_the_agent_file_needs_nothing_that_python_3_6_lacks(tmp_path: Path) -> None:
    for name in MODULES:
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(ast.unparse(without_types(FILE.read(name), name)))
    excluded = [word for one in ALLOWED for word in ("--exclude", one)]
    options = ("--no-tips", "--no-config-file", "--violations", "-vvv", "--target=3.6-")

    done = subprocess.run(
        [
            Path(sys.executable).with_name("vermin"),
            *options,
            *excluded,
            tmp_path,
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout


def test_types_are_taken_out_and_lines_keep_their_numbers() -> None:
    source = b'''"""Says what it is."""
from __future__ import annotations
from collections.abc import Mapping
Row = Mapping[str, dict[str, int]]
class Place:
    KIND: ClassVar[str] = "place"
    rows: list[
        int
    ] = make(list[int])
def look(at: list[int], *rest: Row | None) -> Row:
    found: dict[str, int] = dict[str, int]()
    return found["x"]
'''

    tree = without_types(source, "place.py")

    assert ast.unparse(tree).splitlines() == [
        '"""Says what it is."""',
        "from collections.abc import Mapping",
        "Row = Mapping",
        "",
        "class Place:",
        "    KIND: object = 'place'",
        "    rows: object = make(list)",
        "",
        "def look(at, *rest):",
        "    found: object = dict()",
        "    return found['x']",
    ]
    assert [one.lineno for one in tree.body] == [1, 3, 4, 5, 10]
