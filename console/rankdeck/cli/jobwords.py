"""Jobs in words, for people."""

from collections.abc import Iterable

from rankdeck.model.blame import failure, who
from rankdeck.model.insight import Explained
from rankdeck.model.job import CancelReport, FirstFailure, Job, State
from rankdeck.model.nodeset import fold
from rankdeck.rules.nodenotes import told, when

COMING = "output still coming"


def sentence(job: Job) -> str:
    """What a job is now, in one line."""
    counts = {state: sum(1 for rank in job.ranks if rank.state is state) for state in State}
    parts = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    coming = f"; {COMING}" if job.output_coming and job.state.final else ""
    return f"{job.id}: {job.state}{coming} on {fold(job.nodes)}; ranks: {parts or 'none yet'}"


def summary(job: Job) -> str:
    """How a job ended: its state, the first failure with its last lines, what was odd."""
    lines = [sentence(job), *job.troubles]
    if job.first_failure is not None:
        lines += _failure_lines(job.first_failure)
    lines += _meaning(job.explained)
    lines += [f"on its nodes: {told(one)} · {when(one, job)}" for one in job.node_notes]
    return "\n".join(lines)


def _failure_lines(first: FirstFailure) -> list[str]:
    return [
        f"first failure: {failure(first)}",
        *(f"  because: {sentence}" for sentence in first.evidence),
        *(f"  | {line}" for line in first.lines),
        *_meaning(first.explained),
        *(f"  also: {who(other)}: {other.why}" for other in first.others),
    ]


def _meaning(explained: Iterable[Explained]) -> list[str]:
    return [f"  means: {one.means}\n    try: {one.remedy}" for one in explained]


def proof(report: CancelReport) -> str:
    """What cancel found when it looked again."""
    left = [f"  left on {one.node}: {one.pid} {one.command}" for one in report.left]
    unknown = [f"  {node} could not be asked: {why}" for node, why in report.unverified.items()]
    verdict = "some of it is left or not known" if left or unknown else "nothing of it is left"
    return "\n".join((f"{report.job}: {report.state}; {verdict}", *left, *unknown))


def clean_report(report: CancelReport) -> bool:
    """Whether it is proven that nothing is left."""
    return not report.left and not report.unverified
