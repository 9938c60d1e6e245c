"""Loads the agent's modules in Python 3.6 to 3.8, without the types
that these versions cannot evaluate.

Annotations such as `list[int]`, which nobody reads at run time, are taken out when a module is
compiled; elsewhere `dict[str, int]` becomes `dict`. Lines keep their numbers. Everything else in
the agent is written as Python 3.6 has it (tests/hygiene/test_oldest_python.py), and this module
entirely so.
"""

import ast
import sys
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Optional, Sequence
from zipimport import ZipImportError, zipimporter

_GENERIC = ("collections", "collections.abc")
"""Modules whose classes take no `[...]` before Python 3.9."""
_OURS = ("rankdeck_agent", "rankdeck_simulator", "paho", "pynvml")


def compile_module(source: bytes, path: str) -> CodeType:
    """The code of a module, for the Python that runs now. Raises SyntaxError."""
    if sys.version_info >= (3, 9):
        return compile(source, path, "exec", dont_inherit=True)
    return compile(without_types(source, path), path, "exec", dont_inherit=True)


def without_types(source: bytes, path: str) -> ast.Module:
    """The module's syntax tree, as Python 3.6 can compile and run it. Raises SyntaxError."""
    tree = _TypeRemover().visit(ast.parse(source, path))
    return ast.fix_missing_locations(tree)


class _TypeRemover(ast.NodeTransformer):
    """Takes the types out of one module."""

    def __init__(self) -> None:
        self._classes: set[str] = {"dict", "frozenset", "list", "set", "tuple", "type"}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Optional[ast.AST]:
        if node.module in _GENERIC:
            self._classes.update(one.asname or one.name for one in node.names)
        if node.module == "__future__":
            # It has the effect that we have here, and Python 3.6 does not know it.
            node.names = [one for one in node.names if one.name != "annotations"]
        return node if node.names else None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        # Values and named tuples ask that there is one.
        node.annotation = ast.copy_location(ast.Name("object", ast.Load()), node.annotation)
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        is_class = isinstance(node.value, ast.Name) and node.value.id in self._classes
        return node.value if is_class else node


class _Loader(ExecutionLoader):
    """Loads one module from the agent file; used where its modules
    could not be compiled beside it.
    """

    def __init__(self, found: zipimporter, path: str) -> None:
        self._found, self._path = found, path

    def get_source(self, fullname: str) -> Optional[str]:
        return self._found.get_source(fullname)

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_code(self, fullname: str) -> CodeType:
        return compile_module((self.get_source(fullname) or "").encode(), self._path)


class OlderSourceFinder(MetaPathFinder):
    """Finds our modules in the agent file; for `sys.meta_path`."""

    def __init__(self, agent: str) -> None:
        self._agent = agent

    def find_spec(
        self, fullname: str, path: "Optional[Sequence[str]]", target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        if fullname.partition(".")[0] not in _OURS:
            return None
        place = path[0] if path else self._agent
        try:
            found = zipimporter(place)
            is_package = found.is_package(fullname)
        except ZipImportError:
            return None
        # Not asked of the importer: in Python 3.6 that compiles the module.
        module = f"{place}/{fullname.rpartition('.')[2]}"
        where = f"{module}/__init__.py" if is_package else f"{module}.py"
        spec = ModuleSpec(fullname, _Loader(found, where), origin=where, is_package=is_package)
        spec.submodule_search_locations = [module] if is_package else None
        spec.has_location = True
        return spec
