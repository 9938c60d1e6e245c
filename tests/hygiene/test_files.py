"""Files are read and written in one place, `config/files.py`: other code that
opens a file has a row here with its reason.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONSOLE = ROOT / "console/rankdeck"
THE_ONE_PLACE = "config/files.py"
ALONE = ("open", "safe_load", "NamedTemporaryFile", "mkstemp")
"""Functions that open a file, under whatever module."""
METHODS = (
    "read_text", "read_bytes", "write_text", "write_bytes", "touch", "safe_load", "safe_load_all", "NamedTemporaryFile",
    "mkstemp", "copyfile", "copyfileobj", "read_private_key",
)  # fmt: skip
"""Methods that open the file of a path, or functions of a module that
open the file that they are given.
"""
OF_MODULES = (
    ("os", "open"),
    ("json", "load"),
    ("yaml", "load"),
    ("yaml", "compose"),
    ("tarfile", "open"),
    ("io", "open"),
)
MODES = frozenset("rwxabt+")
ALLOWED: Mapping[tuple[str, str], str] = {
    ("acceptance/recipes/__init__.py", "read_text"): "a file of our own package",
    ("cli/output.py", "os.open"): "/dev/null",
    ("demo/cluster.py", "open"): "lock and log in the user's private state folder",
    ("demo/cluster.py", "read_bytes"): "/proc",
    ("demo/cluster.py", "read_text"): "/proc, our own keys and logs in the private state folder",
    ("demo/node.py", "open"): "a descriptor",
    ("demo/node.py", "write_text"): "/proc, and /tmp of a namespace of our own",
    ("remote/bundle.py", "read_bytes"): "our own modules, and paho's",
    ("reports/job.py", "open"): "logs in a temporary folder of our own",
    ("reports/job.py", "tarfile.open"): "writes into what `replacing` opened",
    ("reports/job.py", "write_text"): "texts in a temporary folder of our own",
    ("state/database.py", "os.open"): "a lock in the user's private state folder",
    (
        "state/launch_lock.py",
        "os.open",
    ): "locks in the user's private state folder: with O_RDWR a pipe does not block",
    ("ui/terminal.py", "os.open"): "/dev/null",
}
"""(module, call) -> why this is no file of a user, or none that others could lay there."""


def calls(tree: ast.AST) -> Iterator[str]:
    """The calls that open a file, in words such as `read_text` and `os.open`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in ALONE:
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)) if (
                module,
                name,
            ) in OF_MODULES:
                yield f"{module}.{name}"
            case ast.Call(
                func=ast.Attribute(attr="open"), args=[ast.Constant(value=str() as mode), *_]
            ) if set(mode) <= MODES:
                yield "open"
            case ast.Call(func=ast.Attribute(attr="touch"), args=[_, *_]):
                continue  # a table's
            case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS:
                yield name
            case _:
                continue


def found() -> set[tuple[str, str]]:
    """(module, call) of all that opens files, outside of the one place."""
    modules = {path.relative_to(CONSOLE).as_posix(): path for path in CONSOLE.rglob("*.py")}
    return {
        (name, call)
        for name, path in modules.items()
        if name != THE_ONE_PLACE
        for call in calls(ast.parse(path.read_text()))
    }


def test_a_file_is_opened_in_one_place_or_a_row_says_why_not() -> None:
    unlisted = sorted(found() - ALLOWED.keys())

    assert not unlisted, (
        f"read_regular, open_regular, replacing and append_lines of {THE_ONE_PLACE}: {unlisted}"
    )


def test_every_row_of_the_list_is_still_of_use() -> None:
    assert ALLOWED.keys() <= found()


def test_what_opens_a_file_is_seen() -> None:
    text = "open(p)\np.open('rb')\np.read_text()\nos.open(p, 0)\nyaml.safe_load(t)\njson.load(f)\nt.touch(row)\np.touch(mode=1)\nchannel.open()\n"

    assert list(calls(ast.parse(text))) == [
        "open",
        "open",
        "read_text",
        "os.open",
        "safe_load",
        "json.load",
        "touch",
    ]
