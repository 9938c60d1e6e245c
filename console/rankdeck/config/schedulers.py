"""The sections of cluster and job files that belong to a scheduler: `slurm:`, `kubernetes:`.

Each scheduler reads its own (`schedulers/*/options.py`); options are stored as words, lists and
tables as JSON.
"""

from collections.abc import Callable
from typing import Protocol

from rankdeck import plugins
from rankdeck.config.document import Entry


class SectionReader(Protocol):
    """Reads the section of one scheduler."""

    def __call__(self, entry: Entry, *, job: bool) -> dict[str, str]:
        """Name -> value of each option; mistakes are in `entry.problems`.

        `job`: of a job file, which may not have all options of a cluster file.
        """
        ...


def section_names() -> tuple[str, ...]:
    """The names of all such sections."""
    return tuple(plugins.SECTIONS)


def section_reader(name: str) -> SectionReader:
    """What reads the section of this name, one of `section_names`."""
    reader: SectionReader = plugins.find_plugin("sections", name)
    return reader


def count_reader(least: int, most: int) -> Callable[[Entry], str]:
    """A reader of a whole number between two limits, which is stored as a word."""
    return lambda entry: str(entry.integer(least, least=least, most=most))
