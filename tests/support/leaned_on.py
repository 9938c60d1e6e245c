"""What our code takes from others beyond their documented interface: found in the
sources, and in classes that extend theirs.

`rows` gives the place and the name of each.
tests/hygiene/test_leaned_on.py has the list of those that we know.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parents[2]
_OWN = ("rankdeck", "rankdeck_agent", "rankdeck_simulator", "benchmarks", "tests")
_FOLDERS = ("console", "agents", "benchmarks", "tests/support")
_PRODUCT = ("console", "agents")
"""Others may use the private names of these: tests and benchmarks look inside."""
_DOCUMENTED = frozenset({"_asdict", "_replace", "_exit", "_fields", "_fields_", "_pack_"})
"""Public although they begin with an underscore."""
Row = tuple[str, str]
"""The path of a file below the root, and what it leans on."""


def rows() -> set[Row]:
    """All that is found in console, agents, benchmarks and the support of the tests."""
    found: set[Row] = set()
    ours: set[str] = set()
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.parent.name == "for_older_python":
                continue  # written by others
            name = str(path.relative_to(ROOT))
            source = _Source(ast.parse(path.read_text()))
            product = folder in _PRODUCT
            found |= {(name, one) for one in source.found() if product or one not in ours}
            if product:
                ours |= source.own
                found |= {(name, one) for one in _inherited(path, folder)}
    return found


def _private(name: str) -> bool:
    return (
        name.startswith("_")
        and not name.startswith("__")
        and name not in _DOCUMENTED
        and name != "_"
    )


def _foreign(module: str) -> bool:
    return module.partition(".")[0] not in _OWN


class _Source:
    """One module of ours."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._nodes = list(ast.walk(tree))
        self.own = set(_defined(self._nodes))
        self._ours = set(_imports(tree, foreign=False))

    def found(self) -> Iterator[str]:
        """The name of each thing that it leans on."""
        yield from self._imported()
        yield from self._reached()
        if any(_is_changed(node) or _by_text(node, "setattr") for node in self._nodes):
            yield from self._patched(self._tree, frozenset())
        yield from self._paused()

    def _imported(self) -> Iterator[str]:
        """Private modules, and private names of modules, of others."""
        for node in self._nodes:
            if isinstance(node, ast.ImportFrom) and node.module and _foreign(node.module):
                for one in node.names:
                    whole = f"{node.module}.{one.name}"
                    if any(map(_private, whole.split("."))):
                        yield whole
            elif isinstance(node, ast.Import):
                for one in node.names:
                    if _foreign(one.name) and any(map(_private, one.name.split("."))):
                        yield one.name

    def _reached(self) -> Iterator[str]:
        """Private attributes of objects of others, by a dot or by a text
        in a function that reaches by text.
        """
        reaches = any(map(_by_text, self._nodes))
        for node in self._nodes:
            if isinstance(node, ast.Attribute) and not _is_self(node.value):
                names = {node.attr} if _root(node) not in self._ours else set[str]()
            elif (
                reaches and isinstance(node, ast.FunctionDef) and any(map(_by_text, ast.walk(node)))
            ):
                names = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
            else:
                continue
            for name in names - self.own:
                if _private(str(name)) and str(name).isidentifier() and str(name).islower():
                    yield str(name)

    def _patched(self, scope: ast.AST, outer: frozenset[str]) -> Iterator[str]:
        """Changes of imported modules and classes."""
        known = outer | set(_imports(scope))
        for node in _here(scope):
            if _is_changed(node) and _root(node) in known:
                yield f"{ast.unparse(node)} ="
            elif _by_text(node, "setattr") and _root(node.args[0]) in known:
                yield f"{ast.unparse(node.args[0])}.{ast.literal_eval(node.args[1])} ="
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from self._patched(node, known)

    def _paused(self) -> Iterator[str]:
        """A transport that is paused as soon as it is there: not every
        release of Python starts it paused.
        """
        for node in self._nodes:
            if isinstance(node, ast.FunctionDef) and node.name == "connection_made":
                for one in ast.walk(node):
                    if isinstance(one, ast.Attribute) and one.attr in (
                        "pause_reading",
                        "resume_reading",
                    ):
                        yield f"{one.attr} in connection_made"


def _is_self(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _is_changed(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether it is an attribute that is assigned, or `sys.modules`, which
    only loads of modules should change.
    """
    if not isinstance(node, ast.Attribute):
        return False
    return isinstance(node.ctx, ast.Store) or (node.attr == "modules" and _root(node) == "sys")


def _by_text(node: ast.AST, *names: str) -> TypeGuard[ast.Call]:
    """Whether it is a call that reaches an attribute by a text."""
    reaching = names or ("getattr", "setattr", "hasattr", "delattr")
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in reaching
    )


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _here(scope: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a scope, and the scopes in it, but nothing of those."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _imports(scope: ast.AST, *, foreign: bool = True) -> Iterator[str]:
    """The names that a scope imports from others, or from us."""
    for node in _here(scope):
        if isinstance(node, ast.Import):
            names = [one for one in node.names if _foreign(one.name) == foreign]
        elif isinstance(node, ast.ImportFrom) and _foreign(node.module or "") == foreign:
            names = node.names
        else:
            continue
        yield from ((one.asname or one.name).partition(".")[0] for one in names)


def _defined(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names that a module of ours defines or takes from another of ours."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif _is_stored(node):
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and not _foreign(node.module or ""):
            yield from (one.name for one in node.names)


def _inherited(path: Path, folder: str) -> Iterator[str]:
    """Private names of a class of others that a class of ours, which
    extends it, uses or defines again.
    """
    tree = ast.parse(path.read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.bases]
    if not classes:
        return
    dotted = ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
    module = import_module(dotted.removesuffix(".__init__"))
    for node in classes:
        made = getattr(module, node.name)
        bases = [base for base in made.__mro__ if _foreign(base.__module__)]
        theirs = {name for base in bases for name in _names_of(base)}
        yield from sorted(f"{made.__name__}.{name}" for name in _used(node) & theirs)


@cache
def _names_of(base: type) -> frozenset[str]:
    """The private names of one class of others: of the class, and of its objects."""
    stored = _stored(base.__module__).get(base.__name__, set[str]())
    return frozenset(filter(_private, {*vars(base), *stored}))


@cache
def _stored(module: str) -> Mapping[str, set[str]]:
    """Class -> the attributes that its methods give its objects, for a module
    of others; empty if it is written in C.
    """
    file = getattr(import_module(module), "__file__", None) or ""
    if not file.endswith(".py"):
        return {}
    tree = ast.parse(Path(file).read_text())
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {one.name: {node.attr for node in ast.walk(one) if _is_stored(node)} for one in classes}


def _is_stored(node: ast.AST) -> TypeGuard[ast.Attribute]:
    stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    return stored and _is_self(node.value)


def _used(node: ast.AST) -> set[str]:
    """What a class uses of itself, and what it defines."""
    names: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and _is_self(one.value):
            names.add(one.attr)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(one.name)
    return {name for name in names if _private(name)}


def shown(found: Iterable[Row]) -> str:
    """Rows as text, one a line."""
    return "\n".join(f"{path}: {name}" for path, name in sorted(found))


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "console"), str(ROOT / "agents")]
    print(shown(rows()))
