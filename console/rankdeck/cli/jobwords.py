"""Jobs in words, for people."""

import signal
from collections.abc import Iterable

from rankdeck.model.insight import Explained
from rankdeck.model.job import CancelReport, FirstFailure, Job, State
from rankdeck.model.nodeset import fold, fold_ranks


def sentence(job: Job) -> str:
    """What a job is now, in one line."""
    counts = {
        state: sum(1 for rank in job.ranks if rank.state is state) for state in State
    }
    parts = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"{job.id}: {job.state} on {fold(job.nodes)}; ranks: {parts or 'none yet'}"


def summary(job: Job) -> str:
    """How a job ended: its state, the first failure with its last lines, what was odd."""
    lines = [sentence(job), *job.troubles]
    if job.first_failure is not None:
        lines.append(f"first failure: {failure(job.first_failure)}")
        lines += [f"  | {line}" for line in job.first_failure.lines]
        lines += _meaning(job.first_failure.explained)
    lines += _meaning(job.explained)
    return "\n".join(lines)


def _meaning(explained: Iterable[Explained]) -> list[str]:
    return [f"  means: {one.means}\n    try: {one.remedy}" for one in explained]


def failure(first: FirstFailure) -> str:
    """Who failed first and how."""
    who = "the launcher" if first.rank is None else f"rank {first.rank}"
    tied = f"; too close to tell from {fold_ranks(first.tied)}" if first.tied else ""
    after = (
        f"; {len(first.victims)} pulled down by it: {fold_ranks(first.victims)}"
        if first.victims
        else ""
    )
    how = how_it_ended(first.exit_code, first.signal)
    return f"{who} on {first.node}, {how}{tied}{after}"


def how_it_ended(exit_code: int | None, number: int | None) -> str:
    """`exit 3`, `signal 9 (SIGKILL)`."""
    if number:
        known = number in signal.Signals.__members__.values()
        return f"signal {number}" + (
            f" ({signal.Signals(number).name})" if known else ""
        )
    return "ended, nobody knows how" if exit_code is None else f"exit {exit_code}"


def proof(report: CancelReport) -> str:
    """What cancel found when it looked again."""
    left = [f"  left on {one.node}: {one.pid} {one.command}" for one in report.left]
    unknown = [
        f"  {node} could not be asked: {why}" for node, why in report.unverified.items()
    ]
    verdict = (
        "some of it is left or not known"
        if left or unknown
        else "nothing of it is left"
    )
    return "\n".join((f"{report.job}: {report.state}; {verdict}", *left, *unknown))


def clean_report(report: CancelReport) -> bool:
    """Whether it is proven that nothing is left."""
    return not report.left and not report.unverified
