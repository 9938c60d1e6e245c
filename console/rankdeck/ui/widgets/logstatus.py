"""What stands over a log on the right: filter, search, whether it follows."""

from rankdeck.logs.filter import Wanted
from rankdeck.logs.search import Search
from rankdeck.ui import actions
from rankdeck.ui.widgets.canvas import Run, Runs, cut, length
from rankdeck.ui.widgets.text import pressed

LEAST_TITLE = 14
"""Columns that say what one reads, whatever else there is to say."""


def filtered(wanted: Wanted, left: int, of: int) -> list[Run]:
    """`&loss !nan  12 of 300 lines`."""
    if not wanted:
        return []
    return [(f"  {cut(str(wanted), 24)}  {left:,} of {of:,} lines", "key")]


def searched(search: Search | None, match: int | None) -> list[Run]:
    """`/error 2/15`."""
    if search is None:
        return []
    count = search.count(match)
    found = "no match" if count == "0" else count
    return [("  ", "text"), (f" /{cut(search.text, 20)} {found} ", "match")]


def followed(*, follow: bool, fresh: int) -> list[Run]:
    """Whether the newest line is shown, else how many came since."""
    if follow:
        return [("  following ", "ok")]
    new: list[Run] = [(f"  +{fresh:,} new", "warn")] if fresh else []
    return [*new, (f"  stopped, {actions.key('follow')} follows ", "dim")]


def room_for(status: Runs, width: int, more: str) -> Runs:
    """The status without the parts that leave no room for the title, the last first."""
    most = max(width - LEAST_TITLE, 0)
    return pressed(status, most, more) if length(status) > most else status
