"""The question for how long, and why, a trouble is known; the same on every screen that has one."""

import getpass
import time
from collections.abc import Sequence

from rankdeck.errors import HistoryError
from rankdeck.model.health import Level
from rankdeck.model.notice import Ack, seconds_of
from rankdeck.model.text import printable
from rankdeck.ui.screens.base import DeckScreen

MODE = "acknowledge"
USUAL = "4h "


def ask(screen: DeckScreen) -> None:
    """Begin to ask; the answer comes to `answered`."""
    screen.prompt.ask(MODE, USUAL)
    screen.say("how long, and why: 4h cable is ordered", "dim")


def answer(screen: DeckScreen, text: str, reasons: Sequence[tuple[str, str, str]]) -> None:
    """Acknowledge these (node, check, device) as `4h cable is ordered` says."""
    span, _, why = text.strip().partition(" ")
    try:
        until = time.time() + seconds_of(span)
    except ValueError as error:
        screen.say(str(error), "warn")
        return
    session = screen.deck.session
    for node, check, device in reasons:
        found = [
            r.level
            for r in session.fleet.node(node).health.reasons
            if (r.check, r.device) == (check, device)
        ]
        level = max(found, default=Level.BAD)
        who = getpass.getuser()
        ack = Ack(node, check, until, who, printable(why.strip()), device, level)
        try:
            session.acknowledge(ack)
        except HistoryError as error:
            screen.say(printable(str(error)), "bad")
            return
    what = ", ".join(dict.fromkeys(printable(check) for _, check, _ in reasons))
    screen.say(f"{what}: known for {span}", "ok")
