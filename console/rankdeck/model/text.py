"""Numbers, names and days as people read them."""

import time
from collections.abc import Sequence

from rankdeck.model.field_checks import LATEST


def significant_figures(value: float, digits: int = 4) -> str:
    """A number with `digits` significant digits, or rounded to an integer:
    `9.573`, `12346`, not `1.235e+04`.
    """
    return f"{value:.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}"


def list_names(names: Sequence[str], most: int = 6) -> str:
    """`n1, n2 and 4 more`: at most `most` of these names."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def day_time(at: float) -> str:
    """Epoch seconds as `2026-11-22 14:03` in this machine's time zone;
    "" if they are not a valid time.
    """
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if 0 < at < LATEST else ""


def csv_cell(value: object) -> object:
    """The value of a cell, changed so that no spreadsheet takes a text for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
