"""What is made of images that were started on every node, and of those that were not."""

import pytest

from rankdeck.model.job_spec import Container, Launch
from rankdeck.model.plan import Plan
from rankdeck.preflight.image_trial import inside_spec, judge_inside
from rankdeck.preflight.trial_run import TrialOutput
from rankdeck.values import replace
from rankdeck_agent.wire import NodePlan
from tests.unit.test_preflight import GOOD, SPEC, case

BOXED = replace(SPEC, container=Container(image="a.sif"))
RUNTIME = {"apptainer": {"path": "/usr/bin/apptainer"}}
THERE = {
    "programs": RUNTIME,
    "images": [{"kind": "file", "size": 9, "digest": "d", "path": "/a.sif"}],
}
WELL = "rankdeck-inside begin\r\nrankdeck-inside end\r\n"


def boxed(spec=BOXED, **changes):
    nodes = {name: {**THERE, **changes.get(name, {})} for name in ("n1", "n2", "n3")}
    return case(spec, **nodes)


def heard(*texts, **more):
    nodes = tuple(NodePlan(job="p", node=f"n{r + 1}", ranks=(r,)) for r in range(3))
    plan = Plan(job="p", name="p", cluster="c", backend="ssh", nodes=nodes)
    said = {(rank, "out"): text for rank, text in enumerate(texts)}
    return TrialOutput(plan, said, **more)


def told(spec, what):
    return [(f.level.word, f.check, f.node) for f in judge_inside(boxed(spec), what)]


def test_the_image_starts_where_it_can_and_was_not_yet():
    missing = {"images": [{"kind": "missing"}]}
    spec = inside_spec(boxed(n3=missing), ("n1",))

    assert spec is not None
    assert (spec.on, spec.launch, spec.ranks_per_node) == (("n2",), Launch.PLAIN, 1)
    assert spec.container == BOXED.container
    assert inside_spec(boxed(n2={"programs": {"apptainer": {"path": ""}}}), ("n1", "n3")) is None
    assert inside_spec(case(SPEC, n1=GOOD), ()) is None


def test_torchrun_and_the_script_must_be_in_the_image():
    torch = replace(BOXED, launch=Launch.TORCHRUN, command=("/opt/train.py", "--x"))
    spec = inside_spec(boxed(torch), ())

    assert spec is not None
    assert spec.command[-2:] == ("torchrun", "/opt/train.py")


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (heard(WELL, WELL, WELL), [("ok", "container", "")]),
        (heard(WELL, "FATAL: no userns", WELL), [("bad", "container", "n2")]),
        (heard(WELL, WELL, late=True), [("bad", "container", "n3")]),
        (heard(complaint="no agent"), [("bad", "container", "")]),
        (heard(*[f"rankdeck-inside without app\n{WELL}"] * 3), [("bad", "program", "n[1-3]")]),
        (heard(WELL, WELL, f"rankdeck-inside without app\n{WELL}"), [("bad", "program", "n3")]),
        (heard(WELL, WELL, f"rankdeck-inside without other\n{WELL}"), [("ok", "container", "")]),
    ],
)  # fmt: skip
def test_what_the_images_said_is_put_into_findings(what, expected):
    assert told(BOXED, what) == expected


@pytest.mark.parametrize(
    ("runtime", "command"),
    [
        ("apptainer", "`apptainer exec a.sif true`"),
        ("podman", "`podman run --rm a.sif true`"),
        ("enroot", "`enroot start a.sif true`"),
    ],
)
def test_an_image_that_does_not_start_comes_with_the_command_to_try(runtime, command):
    spec = replace(SPEC, container=Container(image="a.sif", runtime=runtime))
    (finding,) = judge_inside(boxed(spec), heard("FATAL", "FATAL", "FATAL"))

    assert command in finding.fix
