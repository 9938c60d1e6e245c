"""The image, started once on each node: does it start there, and is the program in it?"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rankdeck.model.health import Level
from rankdeck.model.job import Abort, Container, JobSpec, Launch
from rankdeck.preflight.case import Case, group, own_files, programs_of
from rankdeck.preflight.facts import NodeFacts
from rankdeck.preflight.findings import Finding, found
from rankdeck.preflight.trial import LIMIT, Heard, last_words

_MARK = "rankdeck-inside"
_LOOK = (
    f"echo {_MARK} begin; for name; do "
    'command -v "$name" >/dev/null 2>&1 || [ -f "$name" ] || '
    f'echo "{_MARK} without $name"; done; echo {_MARK} end'
)


def inside_spec(case: Case, tried: Iterable[str]) -> JobSpec | None:
    """A container on every node that can start one, but for those where it is `tried`."""
    box = case.spec.container
    if box is None or box.runtime == "none":
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
    """What must be in the image: torchrun where it starts the ranks, the program, its script."""
    launcher = [spec.torch.path] if spec.launch is Launch.TORCHRUN else []
    return [*launcher, *own_files(spec)]


def _can_start(case: Case, facts: NodeFacts, box: Container) -> bool:
    """What is missing there was told already."""
    runtime = facts.programs.get(box.runtime)
    there = facts.image is None or facts.image.kind not in ("missing", "failed")
    outside = runtime is None or bool(runtime.path)
    return there and outside and facts.base_there and box.runtime in programs_of(case.spec)


def judge_inside(case: Case, heard: Heard) -> list[Finding]:
    """Nodes where the image does not start, and what is not in it."""
    box = case.spec.container
    if box is None:
        return []
    if heard.complaint:
        return [
            found(Level.BAD, "container", "", f"the image could not be tried: {heard.complaint}")
        ]
    nodes = {rank: node.node for node in heard.plan.nodes for rank in node.ranks}
    said = [(nodes[rank], _said(heard, rank)) for rank in nodes]
    findings = [
        found(Level.BAD, "container", where, f"`{box.image}` does not start: {why}", f"start it by hand there: `{_by_hand(box)}`")
        for why, where in group((node, why or None) for node, (_, why) in said).items()
    ]  # fmt: skip
    for name in needed_inside(case.spec):
        lacking = group((n, name if name in without else None) for n, (without, _) in said)
        findings += [
            found(Level.BAD, "program", where, f"no `{name}` in the image `{box.image}`",
                  "correct `command`, mount it with `container.mounts`, or rebuild the image")
            for where in lacking.values()
        ]  # fmt: skip
    if findings:
        return findings
    count = len(nodes)
    text = f"the image starts on {count} node{'s' * (count != 1)} and has the program"
    return [found(Level.OK, "container", "", text)]


def _by_hand(box: Container) -> str:
    """The shortest command that starts the image."""
    verb = {"podman": "run --rm", "docker": "run --rm", "enroot": "start"}
    return f"{box.runtime} {verb.get(box.runtime, 'exec')} {box.image} true"


def _said(heard: Heard, rank: int) -> tuple[Sequence[str], str]:
    """What one node's image lacks, and why it did not start or ""."""
    words = heard.words_of(rank)
    lines = [
        line.partition(_MARK)[2].strip()
        for text in words.values()
        for line in text.splitlines()
        if _MARK in line
    ]
    if "end" in lines:
        return [line.removeprefix("without ") for line in lines], ""
    if heard.late:
        return (), f"it was not up within {LIMIT:.0f} s"
    return (), last_words(words, _MARK)
