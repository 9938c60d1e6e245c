"""The parts of which a plan is shown: lines with a kind, and what
stands for them where they are folded.
"""

from enum import StrEnum

from rankdeck.values import Value


class LineKind(StrEnum):
    """What a line of a plan is for."""

    NODE = "node"
    """The headline of a node."""
    NOTE = "note"
    """A comment, or an empty line."""
    SETUP = "setup"
    """Prepares the commands: folders, variables, the line that writes a file."""
    FILE = "file"
    """The text of a file."""
    FIELD = "field"
    """The first line of a field at the top of a manifest."""
    COMMAND = "command"
    """Starts something, or tells the scheduler what to start."""


class PlanLine(Value):
    """A line of a plan and its kind."""

    text: str
    kind: LineKind


class PlanPart(Value):
    """Lines of a plan that belong together: a command, a comment, a
    file with its head, some variables.
    """

    kind: LineKind
    """The kind of the lines in `text`."""
    text: str
    """One line or more; the last has no line feed."""
    head: str = ""
    """The line above `text` that writes it to a file; "" if `text` is no file."""
    folded: str = ""
    """The one line that stands for all of it where the plan is
    folded; "": it is always shown whole.
    """

    @property
    def lines(self) -> tuple[PlanLine, ...]:
        """All lines, the head first. Only a line feed ends a line, as in sh."""
        head = (PlanLine(self.head, LineKind.SETUP),) if self.head else ()
        return (*head, *(PlanLine(line, self.kind) for line in self.text.split("\n")))

    @property
    def folded_lines(self) -> tuple[PlanLine, ...]:
        """The lines that are shown where the plan is folded."""
        return (PlanLine(self.folded, LineKind.SETUP),) if self.folded else self.lines
