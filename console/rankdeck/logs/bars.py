"""Progress bars of programs: which ranks draw the same one, and how far each is."""

import re
from collections.abc import Iterable

from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.safe_text import printable_line, strip_controls
from rankdeck.state.lines import Line
from rankdeck.values import Value

_PERCENT = re.compile(r"(\d{1,3}(?:\.\d+)?)\s?%")
_OF = re.compile(r"(\d+(?:\.\d+)?)\s?/\s?(\d+(?:\.\d+)?)")
_DRAWN = re.compile(r"[\s:|\[\](<=>#.\-\u2500-\u259f]+$")
"""What programs draw before the number, after the label."""
_FULL = 100.0


class Bar(Value):
    """A line that one rank rewrites: its label, how far it is in percent
    (None: it does not say), the whole line.
    """

    rank: int
    label: str
    percent: float | None
    line: Line


class BarGroup(Value):
    """The bars of several ranks that have the same label, the slowest first."""

    label: str
    bars: tuple[Bar, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(one.rank for one in self.bars))

    @property
    def range_words(self) -> str:
        """`58 to 62%`; "" if none of them says how far it is."""
        known = [one.percent for one in self.bars if one.percent is not None]
        if not known:
            return ""
        least, most = f"{min(known):.0f}", f"{max(known):.0f}"
        return f"{most}%" if least == most else f"{least} to {most}%"

    def by_percent(self) -> list[tuple[str, str]]:
        """(how far, ranks) from the slowest on: `("58%", "5")`, `("62%", "0-4,6-15")`."""
        found: dict[str, list[int]] = {}
        for one in self.bars:
            said = "?" if one.percent is None else f"{one.percent:.0f}%"
            found.setdefault(said, []).append(one.rank)
        return [(said, fold_ranks(ranks)) for said, ranks in found.items()]


def read_bar(line: Line) -> Bar:
    """The bar on this line: its percentage, or its `5/20`; its label is what stands before that."""
    text = printable_line(strip_controls(line.text))
    if hit := _PERCENT.search(text):
        percent: float | None = min(float(hit[1]), _FULL)
    elif (hit := _OF.search(text)) and float(hit[2]) > 0:
        percent = min(float(hit[1]) / float(hit[2]) * _FULL, _FULL)
    else:
        return Bar(line.rank, text.strip(), None, line)
    return Bar(line.rank, _DRAWN.sub("", text[: hit.start()]).strip(), percent, line)


def group_bars(lines: Iterable[Line]) -> list[BarGroup]:
    """The bars on these lines by label, those of most ranks first."""
    found: dict[str, list[Bar]] = {}
    for bar in map(read_bar, lines):
        found.setdefault(bar.label, []).append(bar)
    groups = [
        BarGroup(label, tuple(sorted(bars, key=lambda one: (one.percent or 0.0, one.rank))))
        for label, bars in found.items()
    ]
    return sorted(groups, key=lambda one: (-len(one.bars), one.label))
