"""A trial before a job: a short job is run, its output collected and read."""

import asyncio
from collections.abc import Mapping
from secrets import token_hex

from rankdeck.backends.base import Backend
from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import JobSpec
from rankdeck.model.plan import Plan
from rankdeck.model.safe_text import clean_line
from rankdeck.rules.messages import explain_end, is_warning
from rankdeck.state.lines import JobPositions
from rankdeck.values import Value
from rankdeck_agent.wire import LAUNCHER

LIMIT = 20.0
"""Seconds to wait for output that is still missing."""
_MOST_OUTPUT = 1 << 20
Texts = Mapping[tuple[int, str], str]


class TrialOutput(Value):
    """The result of a trial job; `late`: seconds after which it was cancelled, 0 if it ended."""

    plan: Plan
    texts: Texts
    """(rank, stream) -> text that it wrote."""
    complaint: str = ""
    """Why the job could not be started; "" if it was."""
    late: float = 0.0


async def collect_output(backend: Backend, cluster: Cluster, spec: JobSpec) -> TrialOutput:
    """Launch the job, collect its output and end it; leaves no process behind."""
    plan = backend.plan(cluster, spec, f"probe-{token_hex(4)}")
    output: dict[tuple[int, str], bytes] = {}
    late, complaint, limit = 0.0, "", LIMIT * cluster.access.patience
    try:
        plan = await backend.launch(plan)
        async with asyncio.timeout(limit):
            await _listen(backend, plan, output)
    except TimeoutError:
        late = limit
        await backend.cancel(plan, 0.0)
    except RankdeckError as error:
        complaint = str(error)
    texts = {key: data.decode("utf-8", "replace") for key, data in output.items()}
    return TrialOutput(plan, texts, complaint, late)


async def _listen(backend: Backend, plan: Plan, output: dict[tuple[int, str], bytes]) -> None:
    read = JobPositions()
    follower = backend.follow(plan, {}, read.of)
    follower.watch([rank for node in plan.nodes for rank in node.ranks], None)
    async for event in follower:
        if new := read.take(event):
            key = (new.rank, new.stream)
            output[key] = (output.get(key, b"") + new.data)[-_MOST_OUTPUT:]


class Complaint(Value):
    """Why a trial job did not start: words of its launcher or of a rank, and
    what to do; `remedy` is "" if that is not known.
    """

    text: str
    remedy: str = ""


def read_complaint(texts: Texts, without: str) -> Complaint:
    """The line that tells why, with its meaning, or else the first three lines that are no
    warnings, of the launcher, or else of a rank, with stderr first; lines with `without` are
    skipped.
    """
    for key in sorted(texts, key=lambda key: (key[0] != LAUNCHER, key[1] != "err")):
        lines = [line.strip(" -*\t\r") for line in texts[key].splitlines()]
        lines = [line for line in lines if len(line) > 8 and without not in line]
        if lines:
            return _complaint_of(lines)
    return Complaint("it said nothing")


def _complaint_of(lines: list[str]) -> Complaint:
    # A runtime says the cause first, then what followed from it.
    told = next((one for one in explain_end(lines[::-1]) if not is_warning(one.line)), None)
    if told is not None:
        return Complaint(clean_line(f"{told.means}: {told.line}", 400), told.remedy)
    firm = [line for line in lines if not is_warning(line)] or lines
    return Complaint(clean_line(" ".join(firm[:3]), 300))


def marked_lines(texts: Texts, mark: str) -> list[str]:
    """What follows `mark` in each line that has it."""
    lines = (line for text in texts.values() for line in text.splitlines())
    return [line.partition(mark)[2].strip() for line in lines if mark in line]
