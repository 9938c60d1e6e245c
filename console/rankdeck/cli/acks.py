"""`rankdeck ack` and `rankdeck silence`: say that a trouble is known."""

import argparse
import getpass
import time

from rankdeck.cli import choose, codes, output
from rankdeck.config.document import suggest
from rankdeck.config.paths import state_folder
from rankdeck.model.notice import Ack, seconds_of
from rankdeck.model.text import clean
from rankdeck.state.history import History
from rankdeck_agent.rules.explain import check_names, is_check

WORDS = 200


def ack(options: argparse.Namespace, _open_console: object) -> int:
    """List a reason without counting it, until it gets worse or the time is over."""
    if not is_check(options.check) and not options.off:
        hint = suggest(options.check, check_names())
        raise codes.UsageError(
            f"no check `{options.check}`{hint or '; `rankdeck health` names them'}"
        )
    return _keep(options, options.check, options.device)


def silence(options: argparse.Namespace, _open_console: object) -> int:
    """Count no reason of these nodes until the time is over."""
    return _keep(options, "", "")


def _keep(options: argparse.Namespace, check: str, device: str) -> int:
    cluster = choose.cluster(options.cluster)
    nodes = choose.nodes(cluster, options.nodes)
    now = time.time()
    until = 0.0 if options.off else now + _seconds(options.limit)
    who, why = getpass.getuser(), clean(options.why, WORDS)
    made = [Ack(node, check, until, who, why, device) for node in nodes]
    with History(state_folder() / "history.db") as history:
        log = history.nodes_of(cluster.name)
        for one in made:
            log.acknowledge(one)
        kept = log.acks(now)
    if options.json:
        output.say_object({"cluster": cluster.name, "acknowledged": [_shape(one) for one in kept]})
    elif not kept:
        output.say("nothing is acknowledged")
    for one in kept if not options.json else ():
        what = one.check + (f" {one.device}" if one.device else "") or "everything"
        said = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.until))
        output.say(f"{one.node}: {what} until {said}, {one.words}")
    return codes.OK


def _shape(one: Ack) -> dict[str, object]:
    return {
        "node": one.node, "check": one.check, "device": one.device, "until": one.until,
        "who": one.who, "why": one.why,
    }  # fmt: skip


def _seconds(text: str) -> float:
    try:
        return seconds_of(text)
    except ValueError as error:
        raise codes.UsageError(f"--for: {error}") from error
