"""Functions on the native stack of a rank, with the names that people know. No I/O."""

import re
from collections.abc import Sequence

from rankdeck.model.json_tables import as_list
from rankdeck.model.safe_text import clean_line

NativeFrame = tuple[str, str]
"""(function, file of the program or library)."""
_MOST = 60
_LIBRARY = re.compile(r"\.so(?:\.|$)|^\[|^ld-")
_PYTHON = re.compile(r"python[\d.]*$")


def read_native_frames(raw: object) -> tuple[NativeFrame, ...]:
    """The frames in a node's (untrusted) answer, innermost first."""
    rows = (as_list(one) for one in as_list(raw, _MOST))
    pairs = ((*one, "", "")[:2] for one in rows)
    return tuple((_readable(clean_line(n, 200)), clean_line(f, 100)) for n, f in pairs)


def name_mpi_function(raw: object) -> str:
    """`MPI_Allreduce`, of `PMPI_Allreduce`, `mpi_allreduce_`, `MPI_ALLREDUCE`, `…_f08_` and
    `ompi_mpi_…`.
    """
    name = clean_line(raw, 60)
    bare = re.sub(r"(?:_f08|_f90|_f)?(?:ts)?_*$", "", name, flags=re.IGNORECASE)
    rest = re.sub(r"^(?:ompi_|p)?mpi_", "", bare, flags=re.IGNORECASE)
    return f"MPI_{rest.capitalize()}" if rest else ""


def _readable(name: str) -> str:
    """`solver::step`, of C++'s `_ZN6solver4stepEv`; another name as it is."""
    match = re.match(r"_ZN?K?(?=\d)", name)
    parts: list[str] = []
    at = match.end() if match else len(name)
    while found := re.match(r"\d{1,3}", name[at:]):
        begin = at + found.end()
        at = begin + int(found[0])
        parts.append(name[begin:at])
    return "::".join(parts) or name


def ways_in(entered: str, frames: Sequence[NativeFrame]) -> tuple[str, str]:
    """(the function that the program called last: `MPI_Allreduce` or `read`, the innermost function
    of the program itself); each "" if it is not known.
    """
    program = frames[-1][1] if frames else ""
    if _LIBRARY.search(program) or _PYTHON.search(program):
        return entered, ""
    at = next((i for i, (_, file) in enumerate(frames) if file == program), len(frames))
    own = frames[at][0] if at < len(frames) else ""
    own = f"{program}{own}" if own.startswith("+") else "" if own == "_start" else own
    leaf = entered or (frames[at - 1][0] if at else "")
    return "" if leaf.startswith("+") else leaf, own
