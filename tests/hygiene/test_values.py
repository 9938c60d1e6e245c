"""Frozen values are `rankdeck.values.Value` in the console and `rankdeck_agent.values.Value` in
the agent: both are cheap to define.
"""

import ast
from collections.abc import Iterator

from tests.hygiene.test_style import ROOT, sources

DATACLASSES = {
    "Problem": "loaded by `rankdeck --help`, which loads no msgspec",
    "Use": "a Problem",
    "Entry": "a field that is not shown",
    "Alike": "a field that is not compared",
    "Cluster": "a field that is computed from the others",
    "Palette": "a field that is computed from the others",
    "_Seen": "keeps what it has computed",
}
"""Frozen dataclasses of the console -> what a msgspec.Struct cannot do for them."""


def classes() -> Iterator[tuple[str, ast.Module, ast.ClassDef]]:
    for path in sources("console"):
        module = ast.parse(path.read_text())
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                yield str(path.relative_to(ROOT)), module, node


def is_frozen_dataclass(made: ast.ClassDef) -> bool:
    return any(
        ast.unparse(one).startswith("dataclass(") and "frozen=True" in ast.unparse(one)
        for one in made.decorator_list
    )


def imported(module: ast.Module, name: str) -> str:
    """The module that a name comes from."""
    return next(
        (
            one.module or ""
            for one in ast.walk(module)
            if isinstance(one, ast.ImportFrom) and name in [alias.name for alias in one.names]
        ),
        "",
    )


def test_a_frozen_value_is_a_dataclass_only_for_a_reason() -> None:
    found = {made.name for _, _, made in classes() if is_frozen_dataclass(made)}

    assert found == DATACLASSES.keys()


def test_a_value_gets_its_defaults_from_msgspec() -> None:
    """`dataclasses.field()` would itself be the default, and nothing would complain."""
    wrong = [
        f"{path}:{made.name}"
        for path, module, made in classes()
        if not any("dataclass" in ast.unparse(one) for one in made.decorator_list)
        for call in ast.walk(made)
        if isinstance(call, ast.Call)
        and (
            ast.unparse(call.func) == "dataclasses.field"
            or (ast.unparse(call.func) == "field" and imported(module, "field") == "dataclasses")
        )
    ]

    assert wrong == []


def test_replace_is_that_of_the_values() -> None:
    """The one of dataclasses refuses our values, and pyright does not say so."""
    wrong = {path for path, module, _ in classes() if imported(module, "replace") == "dataclasses"}

    assert wrong == set()


def test_the_agent_has_no_dataclasses() -> None:
    """They were a third of its start; Python 3.6 has none."""
    modules = ((path, ast.parse(path.read_text())) for path in sources("agents"))
    wrong = {
        str(path.relative_to(ROOT))
        for path, module in modules
        for one in ast.walk(module)
        if (isinstance(one, ast.ImportFrom) and one.module == "dataclasses")
        or (isinstance(one, ast.Import) and "dataclasses" in {name.name for name in one.names})
    }

    assert wrong == set()
