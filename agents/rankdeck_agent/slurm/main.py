"""The commands `slurm submit`, `keep`, `watch`, `list`, `service`, `look`, `attach` and `ended` of the agent."""

import sys

from rankdeck_agent.files import keep_private

_USAGE = (
    "rankdeck-agent: slurm takes one of: submit, keep, watch, list, service, look, attach, ended"
)


def main(argv: list[str]) -> int:
    """Run one command; returns its exit status."""
    keep_private()
    if argv == ["submit"]:
        from rankdeck_agent.slurm.submit import submit

        return submit()
    if argv == ["keep"]:
        from rankdeck_agent.slurm.keeper import keep

        return keep()
    if argv in (["watch"], ["list"]):
        from rankdeck_agent.slurm.cluster_watch import list_all, watch

        return watch() if argv == ["watch"] else list_all()
    if argv == ["service"]:
        from rankdeck_agent.slurm.service import service

        return service()
    if argv == ["attach"]:
        from rankdeck_agent.slurm.submit import attach

        return attach()
    if argv == ["look"]:
        from rankdeck_agent.slurm.attach import look

        return look()
    if argv == ["ended"]:
        from rankdeck_agent.slurm.history import ended

        return ended()
    print(_USAGE, file=sys.stderr)
    return 2
