"""The trial of an image: it is started once on each node, and says what it lacks."""

from collections.abc import Iterable, Sequence

from rankdeck.model.job_spec import Abort, Container, JobSpec, Launch
from rankdeck.preflight.facts import NodeFacts
from rankdeck.preflight.findings import Finding, group_nodes, make_finding
from rankdeck.preflight.job_context import JobContext
from rankdeck.preflight.job_needs import own_files, programs_of
from rankdeck.preflight.trial_run import TrialOutput, first_words, marked_lines
from rankdeck.runtimes import find_runtime
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level

_MARK = "rankdeck-inside"
_LOOK = (
    f"echo {_MARK} begin; for name; do "
    'command -v "$name" >/dev/null 2>&1 || [ -f "$name" ] || '
    f'echo "{_MARK} without $name"; done; echo {_MARK} end'
)


def inside_spec(case: JobContext, tried: Iterable[str]) -> JobSpec | None:
    """A job that starts the container on every node that can, except those
    in `tried`; None if there are none.
    """
    box = case.spec.container
    if box is None:
        return None
    left_out = set(tried)
    nodes = tuple(
        place.node.name
        for place, facts in case.answered
        if place.node.name not in left_out and _can_start(case, facts, box)
    )
    if not nodes:
        return None
    return replace(
        case.spec,
        name="probe",
        launch=Launch.PLAIN,
        command=("sh", "-c", _LOOK, "sh", *needed_inside(case.spec)),
        on=nodes,
        nodes=len(nodes),
        ranks_per_node=1,
        abort=Abort(enabled=False),
        tty=False,
    )


def needed_inside(spec: JobSpec) -> list[str]:
    """What must be in the image: torchrun if it starts the ranks, the program, its script."""
    launcher = [spec.torch.path] if spec.launch is Launch.TORCHRUN else []
    return [*launcher, *own_files(spec)]


def _can_start(case: JobContext, facts: NodeFacts, box: Container) -> bool:
    """Whether the node has all that the container needs; if not,
    another check has reported that.
    """
    there = facts.image is None or facts.image.kind not in ("missing", "failed")
    program = find_runtime(box.runtime).program
    outside = facts.has(program) is not False
    return there and outside and facts.base_there and program in programs_of(case.spec)


def judge_inside(case: JobContext, output: TrialOutput) -> list[Finding]:
    """Findings for nodes where the image does not start, and for what is missing in it."""
    box = case.spec.container
    if box is None:
        return []
    if output.complaint:
        return [
            make_finding(
                Level.BAD, "container", "", f"the image could not be tried: {output.complaint}"
            )
        ]
    nodes = {rank: node.node for node in output.plan.nodes for rank in node.ranks}
    by_hand = find_runtime(box.runtime).trial(box.image)
    answers = [(nodes[rank], _answer_of(output, rank)) for rank in nodes]
    findings = [
        make_finding(
            Level.BAD,
            "container",
            where,
            f"`{box.image}` does not start: {why}",
            f"start it by hand there: `{by_hand}`",
        )
        for why, where in group_nodes((node, why or None) for node, (_, why) in answers).items()
    ]
    for name in needed_inside(case.spec):
        lacking = group_nodes((n, name if name in without else None) for n, (without, _) in answers)
        findings += [
            make_finding(
                Level.BAD,
                "program",
                where,
                f"no `{name}` in the image `{box.image}`",
                "correct `command`, mount it with `container.mounts`, or rebuild the image",
            )
            for where in lacking.values()
        ]
    if findings:
        return findings
    count = len(nodes)
    text = f"the image starts on {count} node{'s' * (count != 1)} and has the program"
    return [make_finding(Level.OK, "container", "", text)]


def _answer_of(output: TrialOutput, rank: int) -> tuple[Sequence[str], str]:
    """(what is missing in the image on one node, why the image did not start or "")."""
    words = {key: text for key, text in output.texts.items() if key[0] == rank}
    lines = marked_lines(words, _MARK)
    if "end" in lines:
        return [line.removeprefix("without ") for line in lines], ""
    if output.late:
        return (), f"it was not up within {output.late:.0f} s"
    return (), first_words(words, _MARK)
