"""Findings of preflight: level, sentence, what to do, and a change to the job file."""

from dataclasses import dataclass

from rankdeck.model.health import Level


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the job file: `mpi.flavour` -> openmpi4; None takes the key out."""

    key: str
    value: str | int | list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check and what came of it. BAD: the job would fail; UNKNOWN: could not be tried."""

    check: str
    level: Level
    text: str
    node: str = ""
    """A node set; "" where it is about the whole job."""
    fix: str = ""
    """What to do, as a sentence."""
    patch: tuple[Change, ...] = ()
    """The same as a change of the job file, where it is one."""


def found(level: Level, check: str, node: str, text: str, fix: str = "", *patch: Change) -> Finding:
    """A finding in one line; the tables of checks are full of them."""
    return Finding(check=check, level=level, text=text, node=node, fix=fix, patch=patch)
