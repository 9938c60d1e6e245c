"""`rankdeck trust`: agree to what files would run and read."""

import argparse
from pathlib import Path

from rankdeck.cli import codes, output
from rankdeck.config.files import look_at
from rankdeck.config.trust import allow


def trust(options: argparse.Namespace, _open_console: object) -> int:
    """Agree to all that these files would run and read, and say what that is."""
    for name in options.files:
        _, uses = look_at(Path(name))
        for use in uses:
            output.say(str(use))
        allow(uses)
        output.say(f"{name}: {len(uses) or 'nothing'} to agree to")
    return codes.OK
