"""A public function is a verb and its object, and no other module has one of the same name."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.hygiene.test_style import name_of, sources

SHARED = {
    "main": "what a command or a program runs",
    "replace": "as in dataclasses and in copy",
    "field": "as in dataclasses and in msgspec",
}
"""Names that several modules may have, each with its reason."""
PROGRAMS = {"facts.py", "torch_all_reduce.py"}
"""Files that are copied to nodes and run there by themselves: nobody imports from them."""


def public_functions() -> dict[str, list[str]]:
    """Name -> the modules of console and agent that have such a function."""
    owners: dict[str, list[str]] = defaultdict(list)
    for path in sources("console", "agents"):
        if path.name in PROGRAMS and path.parent.name == "recipes":
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                owners[node.name].append(name_of(Path(path)))
    return {name: found for name, found in owners.items() if not name.startswith("_")}


def test_no_two_modules_have_a_public_function_of_the_same_name() -> None:
    several = {name: found for name, found in public_functions().items() if len(found) > 1}

    assert {name: found for name, found in several.items() if name not in SHARED} == {}


def test_the_name_of_a_public_function_has_two_words_or_more() -> None:
    short = {name: found for name, found in public_functions().items() if "_" not in name}

    assert {name: found for name, found in short.items() if name not in SHARED} == {}
