"""What `make house` prints is true: the functions of the walks are there, and call each other."""

import ast
import functools
from pathlib import Path

import pytest
from benchmarks.house import WALKS, figures, in_circles, place


@functools.cache
def parsed(path: Path) -> ast.AST:
    return ast.parse(path.read_text())


def function(path: Path, name: str) -> ast.AST:
    """The function of this name, such as `Class.method`; raises LookupError."""
    inside = parsed(path)
    for part in name.split("."):
        found = [one for one in ast.iter_child_nodes(inside) if getattr(one, "name", "") == part]
        if not found:
            raise LookupError(f"{path.name} has no {name}")
        inside = found[0]
    return inside


def names_in(tree: ast.AST) -> set[str]:
    """Every name and attribute that is read there."""
    nodes = list(ast.walk(tree))
    plain = {node.id for node in nodes if isinstance(node, ast.Name)}
    return plain | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.mark.long
@pytest.mark.parametrize("walk", WALKS)
def test_each_function_of_a_walk_is_called_by_one_before_it(walk: str) -> None:
    uncalled: list[str] = []
    mentioned: set[str] = set()
    for stretch in WALKS[walk]:
        for number, hop in enumerate(stretch):
            path, name = place(hop)
            if number and name.rpartition(".")[2] not in mentioned:
                uncalled.append(hop)
            mentioned |= names_in(function(path, name))

    assert uncalled == []


def test_a_circle_is_found_and_a_tree_is_none() -> None:
    assert in_circles({"a": {"b"}, "b": {"c"}, "c": set()}) == set()
    assert in_circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set()}) == {"a", "b", "c"}


@pytest.mark.long
def test_nothing_imports_itself_by_way_of_others() -> None:
    assert figures()["modules in a circle of imports"] == "0"
