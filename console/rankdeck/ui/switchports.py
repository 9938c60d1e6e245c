"""The switch ports at the other end of a node's RDMA cables, as lines of its page."""

from collections.abc import Sequence

from rankdeck.model.health import Level
from rankdeck.model.text import printable
from rankdeck.state.switches import SwitchPort
from rankdeck.ui import words
from rankdeck.ui.glyphs import Glyphs
from rankdeck.ui.widgets.canvas import Run, Runs, fit

_LEVELS = {True: Level.OK, False: Level.BAD, None: Level.UNKNOWN}
_STATES = {True: "up", False: "down", None: "not heard"}


def switch_lines(ports: Sequence[SwitchPort], glyphs: Glyphs) -> list[Runs]:
    """A title and a row for each port; nothing where no switch is known."""
    if not ports:
        return []
    title: Runs = [(" Switch ports", "title"), ("  in: what the node sends", "dim")]
    return [[], title, *(_row(port, glyphs) for port in ports)]


def _row(port: SwitchPort, glyphs: Glyphs) -> Runs:
    mark = glyphs.level(_LEVELS[port.up])
    runs: list[Run] = [
        (f"   {mark.glyph} ", mark.role),
        (fit(printable(port.device), 14, glyphs.more), "text"),
        (f" {fit(printable(f'{port.switch} {port.port}'), 22, glyphs.more)}", "text"),
        (f" {_STATES[port.up]:<9}", mark.role if not port.up else "dim"),
    ]
    for label, counter in (("in", "in-octets"), ("out", "out-octets")):
        rate = words.rate(port.rates.get(counter)) or words.NOTHING
        runs += [(f" {label}", "dim"), (rate.rjust(9), "text")]
    for what in ("errors", "discards"):
        count = _sum(port, what)
        shown = words.NOTHING if count is None else str(count)
        runs += [(f"  {what} ", "dim"), (shown, "warn" if count else "text")]
    return runs


def _sum(port: SwitchPort, what: str) -> int | None:
    """Both directions of a counter; None where the switch gave neither."""
    found = [port.values[k] for k in (f"in-{what}", f"out-{what}") if k in port.values]
    return sum(found) if found else None
