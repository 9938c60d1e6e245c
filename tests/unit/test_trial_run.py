"""What is made of images that were started on every node, and of those that were not."""

import pytest

from rankdeck.model.job_spec import Container, Launch
from rankdeck.model.plan import Plan
from rankdeck.preflight.checks import check_runtime
from rankdeck.preflight.image_trial import inside_spec, judge_inside, settled_nodes
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
        (heard(WELL, WELL, late=20.0), [("warn", "container", "n3")]),
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


NOISE = "INFO:    Converting SIF file to temporary sandbox...\nWARNING: no nv files\n"


@pytest.mark.parametrize(
    ("line", "text", "fix"),
    [
        ("FATAL:   container creation failed: configuration disallows users from running sandbox based containers", "the site does not allow", "ask its administrators"),
        ("FATAL:   container creation failed: configuration disallows users from mounting squashFS in setuid mode, try --userns", "rights of root", "add `--userns`"),
        ("FATAL:   could not open image /a.sif: the image's architecture (arm64) could not run on the host's (amd64)", "another kind of CPU", "for that architecture"),
        ("Error: statfs /lustre: no such file or directory", "`container.mounts` is not on that node", "correct `container.mounts`"),
        ("docker: permission denied while trying to connect to the Docker daemon socket", "may not use Docker", "group `docker`"),
        ("FATAL: nobody knows this one", "FATAL: nobody knows", "start it by hand"),
    ],
)  # fmt: skip
def test_a_refused_image_says_why_and_what_to_do(line, text, fix):
    trial = heard(WELL, "", WELL)
    said = {**trial.texts, (1, "err"): f"{NOISE}{line}\n"}
    (finding,) = judge_inside(boxed(), replace(trial, texts=said))

    assert (finding.level.word, finding.node) == ("bad", "n2")
    assert text in finding.text
    assert line[-30:] in finding.text
    assert "Converting" not in finding.text
    assert fix in finding.fix


def test_a_mount_that_the_runtime_left_out_is_reported():
    spec = replace(SPEC, container=Container(image="a.sif", mounts=("/lustre:/data:ro", "/sw")))
    trial = inside_spec(boxed(spec), ())
    lacking = f"rankdeck-inside unmounted /data\n{WELL}"
    (finding,) = judge_inside(boxed(spec), heard(WELL, lacking, WELL))

    assert trial is not None
    assert trial.command[5:8] == ("/data", "/sw", "--")
    assert (finding.level.word, finding.node) == ("bad", "n2")
    assert "/data" in finding.text


def test_an_image_that_started_needs_no_user_namespaces():
    failed = heard(WELL, "FATAL: no idea", "fuse: device not found, try 'modprobe fuse' first")
    context = boxed()
    warned = [(f.level.word, f.node) for f in check_runtime(context, settled_nodes(failed))]

    assert settled_nodes(failed) == {"n1", "n3"}
    assert warned == [("warn", "n2")] * 2
