"""The commands `slurm submit` and `slurm keep` of the agent."""

import sys

from rankdeck_agent.files import keep_private

_USAGE = "rankdeck-agent: slurm takes one of: submit, keep"


def main(argv: list[str]) -> int:
    """Run one command; returns its exit status."""
    keep_private()
    if argv == ["submit"]:
        from rankdeck_agent.slurm.submit import submit

        return submit()
    if argv == ["keep"]:
        from rankdeck_agent.slurm.keeper import keep

        return keep()
    print(_USAGE, file=sys.stderr)
    return 2
