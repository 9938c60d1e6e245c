"""The commands `slurm submit`, `keep`, `watch`, `list`, `service`, `look`, `attach`, `beside`, `hear`, `tell` and `ended` of the agent."""

import sys
from importlib import import_module

from rankdeck_agent.files import keep_private

_VERBS = {
    "submit": "submit",
    "keep": "keeper",
    "watch": "cluster_watch",
    "list": "cluster_watch",
    "service": "service",
    "attach": "submit",
    "look": "attach",
    "beside": "inside",
    "hear": "inside",
    "tell": "inside",
    "ended": "cluster_watch",
}
"""Command -> the module that has it, which is loaded only then: the keeper must stay small."""
_ARGUMENTS = {"beside": 1, "hear": 2}
_NAMES = {"list": "list_all"}
"""What a command is called there, where that is another word."""


def main(argv: list[str]) -> int:
    """Run one command; returns its exit status."""
    keep_private()
    verb, arguments = argv[0] if argv else "", argv[1:]
    if verb not in _VERBS or len(arguments) != _ARGUMENTS.get(verb, 0):
        print(f"rankdeck-agent: slurm takes one of: {', '.join(_VERBS)}", file=sys.stderr)
        return 2
    module = import_module(f"rankdeck_agent.slurm.{_VERBS[verb]}")
    return int(getattr(module, _NAMES.get(verb, verb))(*arguments))
