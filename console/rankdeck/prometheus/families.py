"""Families of series, and both ways to write them: text and OpenMetrics."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Number = int | float
Labels = Mapping[str, str]
TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(slots=True)
class Family:
    """All series of one name."""

    name: str
    kind: str
    help: str
    series: dict[str, Number] = field(default_factory=dict[str, Number])
    """Labels as written -> value."""


class Families:
    """Collects series by name; of two series with the same labels the first stays."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def put(self, family: tuple[str, str, str], labels: Labels, value: Number) -> None:
        """Add one series; `family` is name, kind (gauge, counter, untyped) and help."""
        name, kind, text = family
        kept = self._families.setdefault(name, Family(name, kind, text))
        kept.series.setdefault(_written(labels), value)

    def names(self) -> frozenset[str]:
        return frozenset(self._families)

    def text(self) -> str:
        """The format that every Prometheus reads."""
        return "".join(line for f in self._sorted() for line in _as_text(f))

    def openmetrics(self) -> str:
        """OpenMetrics 1.0."""
        lines = [line for f in self._sorted() for line in _as_openmetrics(f)]
        return "".join(lines) + "# EOF\n"

    def _sorted(self) -> list[Family]:
        return sorted(self._families.values(), key=lambda family: family.name)


def _as_text(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {_escaped(family.help)}\n"
    yield f"# TYPE {family.name} {family.kind}\n"
    yield from _samples(family)


def _as_openmetrics(family: Family) -> Iterator[str]:
    kind, name = family.kind, family.name
    if kind == "counter" and name.endswith("_total"):
        name = name.removesuffix("_total")
    elif kind != "gauge":
        # Names of others that OpenMetrics does not allow a counter to have.
        kind = "unknown"
    yield f"# HELP {name} {_escaped(family.help, quotes=True)}\n"
    yield f"# TYPE {name} {kind}\n"
    yield from _samples(family)


def _samples(family: Family) -> Iterator[str]:
    for labels, value in family.series.items():
        yield f"{family.name}{labels} {value!r}\n"


def _written(labels: Labels) -> str:
    pairs = ",".join(f'{key}="{_escaped(value, quotes=True)}"' for key, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(text: str, *, quotes: bool = False) -> str:
    safe = text.replace("\\", "\\\\").replace("\n", "\\n")
    return safe.replace('"', '\\"') if quotes else safe
