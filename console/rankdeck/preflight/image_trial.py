"""The trial of an image: it is started once on each node, and says what it lacks."""

from collections.abc import Iterable, Sequence

from rankdeck.model.job_spec import Abort, Container, JobSpec, Launch
from rankdeck.preflight.facts import NodeFacts
from rankdeck.preflight.findings import Finding, group_nodes, make_finding
from rankdeck.preflight.job_context import JobContext
from rankdeck.preflight.job_needs import own_files, programs_of
from rankdeck.preflight.trial_run import Complaint, TrialOutput, marked_lines, read_complaint
from rankdeck.runtimes import container_mounts, find_runtime
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level

_MARK = "rankdeck-inside"
_UNMOUNTED, _WITHOUT = "unmounted ", "without "
_LOOK = (
    f"echo {_MARK} begin; "
    f'while [ "$1" != -- ]; do [ -e "$1" ] || echo "{_MARK} {_UNMOUNTED}$1"; shift; done; shift; '
    "for name; do "
    'command -v "$name" >/dev/null 2>&1 || [ -f "$name" ] || '
    f'echo "{_MARK} {_WITHOUT}$name"; done; echo {_MARK} end'
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
        command=("sh", "-c", _LOOK, "sh", *_mounted(box), "--", *needed_inside(case.spec)),
        on=nodes,
        nodes=len(nodes),
        ranks_per_node=1,
        abort=Abort(enabled=False),
        tty=False,
    )


def _mounted(box: Container) -> list[str]:
    """The paths inside the image at which the mounts of every rank are."""
    mounts = (mount.split(":") for mount in container_mounts(box, Launch.PLAIN))
    return [parts[1] if len(parts) > 1 else parts[0] for parts in mounts]


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
    answers = _answers_of(output)
    findings = [
        _not_started(box, where, why, output.late)
        for why, where in group_nodes((node, why) for node, (_, why) in answers).items()
    ]
    unmounted = ((n, " ".join(_after(_UNMOUNTED, said)) or None) for n, (said, _) in answers)
    findings += [_not_mounted(where, paths) for paths, where in group_nodes(unmounted).items()]
    for name in needed_inside(case.spec):
        lacking = group_nodes(
            (n, name if name in _after(_WITHOUT, said) else None) for n, (said, _) in answers
        )
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
    count = len(answers)
    text = f"the image starts on {count} node{'s' * (count != 1)} and has the program"
    return [make_finding(Level.OK, "container", "", text)]


def settled_nodes(output: TrialOutput) -> frozenset[str]:
    """The nodes of which the trial has shown that the image starts, or why it does not."""
    answers = _answers_of(output)
    return frozenset(node for node, (_, why) in answers if why is None or why.remedy)


def _not_mounted(where: str, paths: str) -> Finding:
    """The finding for nodes whose runtime starts the image without its mounts."""
    text = f"the image starts without what is mounted at {paths}"
    fix = (
        "the configuration of the runtime there may forbid mounts (`user bind control`): ask its"
        " administrators, or use what it mounts by itself (home, /tmp)"
    )
    return make_finding(Level.BAD, "container", where, text, fix)


def _not_started(box: Container, where: str, why: Complaint, late: float) -> Finding:
    """The finding for nodes on which the image did not start. One that was late may only be large
    or unpacked at each start: the operator decides.
    """
    by_hand = f"start it by hand there: `{find_runtime(box.runtime).trial(box.image)}`"
    if late and not why.remedy:
        text = f"`{box.image}` was not up within {late:.0f} s"
        return make_finding(Level.WARN, "container", where, text, by_hand)
    text = f"`{box.image}` does not start: {why.text}"
    fix = f"{why.remedy}; to see it, {by_hand}" if why.remedy else by_hand
    return make_finding(Level.BAD, "container", where, text, fix)


Answer = tuple[Sequence[str], Complaint | None]
"""(what the image said of one node, why it did not start there; None if it did)."""


def _answers_of(output: TrialOutput) -> list[tuple[str, Answer]]:
    nodes = {rank: node.node for node in output.plan.nodes for rank in node.ranks}
    return [(node, _answer_of(output, rank)) for rank, node in nodes.items()]


def _answer_of(output: TrialOutput, rank: int) -> Answer:
    words = {key: text for key, text in output.texts.items() if key[0] == rank}
    lines = marked_lines(words, _MARK)
    return (lines, None) if "end" in lines else ((), read_complaint(words, _MARK))


def _after(word: str, lines: Iterable[str]) -> list[str]:
    """What follows `word` in those of the lines that begin with it."""
    return [line.removeprefix(word) for line in lines if line.startswith(word)]
