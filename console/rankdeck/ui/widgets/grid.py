"""The grid of all screens: where lines begin, and how the heading of a section looks.

Column 0 belongs to the cursor of a list and to edges. Lines, headings and tables begin in column 1,
what stands below a heading in column 3. An empty line stands before a heading.
"""

from collections.abc import Iterable

from rankdeck.ui.widgets.canvas import Run, Runs

INDENT = "   "
"""Before a row below a heading."""


def section_head(title: str, *notes: str | Run) -> list[Run]:
    """The heading of a section: its title, and notes in their own role, else dim; "" for none."""
    runs: list[Run] = [(f" {title}", "title")]
    for note in notes:
        text, role = (note, "dim") if isinstance(note, str) else note
        runs += [(f"  {text}", role)] if text else []
    return runs


def indent_rows(rows: Iterable[Runs]) -> list[Runs]:
    """The rows of a section, below its heading."""
    return [[(INDENT, "dim"), *row] if row else row for row in rows]
