"""What one command wrote on many nodes; equal output is kept once, however many nodes wrote it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rankdeck.model.process import CommandEnd, OutputGroup

_Step = tuple[int, str, str]
"""The output before, a stream, the line that it wrote next."""


class _Outputs:
    """Every output that some node has written so far, each as one line more than another one."""

    def __init__(self) -> None:
        self._steps: list[_Step] = [(0, "", "")]
        self._known: dict[_Step, int] = {}

    def longer(self, before: int, stream: str, line: str) -> int:
        """The output that is `before` and this line."""
        step = (before, stream, line)
        found = self._known.get(step)
        if found is None:
            found = self._known[step] = len(self._steps)
            self._steps.append(step)
        return found

    def lines(self, output: int) -> tuple[tuple[str, str], ...]:
        """All lines of it, with their streams."""
        found: list[tuple[str, str]] = []
        while output:
            output, stream, line = self._steps[output]
            found.append((stream, line))
        return tuple(reversed(found))


class CommandState:
    """How far a command is on each node; the only writer is the one that runs it."""

    def __init__(self, command: str, nodes: Sequence[str]) -> None:
        self.command, self.nodes = command, tuple(nodes)
        self.changes = 0
        """Grows with whatever is new."""
        self.ends: dict[str, CommandEnd] = {}
        self._outputs = _Outputs()
        self._wrote: dict[str, int] = dict.fromkeys(nodes, 0)
        self._begun: set[str] = set()

    def began(self, node: str) -> None:
        """It is being started there."""
        self._begun.add(node)
        self.changes += 1

    def wrote(self, node: str, stream: str, lines: Iterable[str]) -> None:
        """It wrote these lines; `stream` is out or err."""
        for line in lines:
            self._wrote[node] = self._outputs.longer(self._wrote[node], stream, line)
        self.changes += 1

    def ended(self, node: str, end: CommandEnd) -> None:
        """It is over there, or cannot be told any more."""
        self.ends[node] = end
        self.changes += 1

    @property
    def over(self) -> bool:
        """Whether it has ended everywhere."""
        return len(self.ends) == len(self.nodes)

    @property
    def waited_for(self) -> tuple[str, ...]:
        """Nodes on which it has not ended."""
        return tuple(node for node in self.nodes if node not in self.ends)

    @property
    def status(self) -> int:
        """The largest exit status of a node, as `clush -S` has it."""
        return max((end.status for end in self.ends.values()), default=0)

    def lines(self, node: str) -> tuple[tuple[str, str], ...]:
        """What it wrote there: stream and text."""
        return self._outputs.lines(self._wrote[node])

    def groups(self) -> tuple[OutputGroup, ...]:
        """Who wrote the same and ended alike: the largest group first, then by the order of nodes."""
        found: dict[tuple[object, ...], list[str]] = {}
        for node in self.nodes:
            end = self.ends.get(node)
            alike = replace(end, seconds=0.0) if end else None
            found.setdefault((self._wrote[node], alike, node in self._begun), []).append(node)
        groups = [self._group(names) for names in found.values()]
        return tuple(sorted(groups, key=lambda group: -len(group.nodes)))

    def _group(self, nodes: Sequence[str]) -> OutputGroup:
        first = nodes[0]
        return OutputGroup(
            tuple(nodes), self.lines(first), self.ends.get(first), first in self._begun
        )

    def not_proven(self) -> Mapping[str, CommandEnd]:
        """Nodes on which something of it is left, or of which nobody knows."""
        return {n: e for n, e in self.ends.items() if e.left or not e.told}
