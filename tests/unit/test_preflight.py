"""What preflight makes of facts, hostile ones too, and of job files; no node is needed."""

import ast
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rankdeck import preflight
from rankdeck.backends.launchers import lay_out
from rankdeck.images import bring
from rankdeck.images.bring import ImageAt, describe_versions, image_rows
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import Container, JobSpec, Launch, MpiOptions
from rankdeck.preflight import check_network, checks
from rankdeck.preflight.checks import flavour_of
from rankdeck.preflight.facts import node_facts
from rankdeck.preflight.findings import Change
from rankdeck.preflight.job_context import JobContext
from rankdeck.preflight.job_file_patch import apply_change
from rankdeck.preflight.job_needs import programs_of
from rankdeck.preflight.mpi_trial import ProbeOutcome, RankAnswer, judge_probe
from rankdeck.preflight.run import judge_case
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Health, Level, Reason

NODES = tuple(Node(name=f"n{i}", address=f"10.0.0.{i}", slots=2) for i in (1, 2, 3))
CLUSTER = Cluster(name="c", nodes=NODES)
SPEC = JobSpec(name="j", launch=Launch.PLAIN, command=("app",), nodes=3)
MPI = replace(SPEC, launch=Launch.MPI)
GOOD = {
    "base": {"path": "/home/u", "there": True},
    "cores": 8,
    "machine": "x86_64",
    "memlock": None,
    "spaces": {
        name: {"path": f"/{name}", "total": 1 << 40, "free": 1 << 39, "inodes": 999, "writable": True}
        for name in ("run", "tmp", "shm")
    },
    "programs": {"app": {"path": "/bin/app", "size": 9, "digest": "a" * 64}},
    "at": 100.0,
    "listen": 4000,
}  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
KEYS = st.sampled_from([*GOOD, "interfaces", "gpus", "names", "own", "images", "versions", "port"])


def case(spec=SPEC, cluster=CLUSTER, health=None, **changes):
    """Three good nodes; `n2={...}` changes what one of them tells."""
    facts = {
        node.name: node_facts({**GOOD, **changes.get(node.name, {})}, 99.9, 100.1)
        for node in cluster.nodes
    }
    return JobContext(layout=lay_out(cluster, spec, "j"), facts=facts, health=health or {})


def found(judged):
    return [(f.level.word, f.check, f.node) for f in judged if f.level is not Level.OK]


def test_good_facts_have_nothing_against_them():
    assert found(judge_case(case())) == []


def test_a_node_that_ends_processes_with_the_login_is_named():
    assert found(judge_case(case(n2={"logout": True}))) == [("warn", "logout", "n2")]


@given(st.dictionaries(KEYS, ANYTHING, max_size=6))
def test_whatever_a_node_tells_is_judged_and_fit_to_show(raw):
    looked = case(n2=raw)
    findings = [*judge_case(looked), *check_network.check_interfaces(looked)]

    assert all(f.text.isprintable() for f in findings)
    assert check_network.connection_targets(looked)["n1"]


@pytest.mark.parametrize(
    ("at", "expected"),
    [(100.0, []), (101.9, []), (3700.0, ["n2"]), (40.0, ["n2"])],
)
def test_a_clock_is_off_only_where_it_is_certain(at, expected):
    judged = judge_case(case(n2={"at": at}))

    assert [node for _, check, node in found(judged) if check == "clock"] == expected


def test_health_is_told_and_stops_nothing():
    health = {"n1": Health(Level.BAD, (Reason("gpu", Level.BAD, "GPU 3 fell off"),))}

    assert ("warn", "health", "n1") in found(judge_case(case(health=health)))


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ({"rows": [{"name": "H100"}] * 2}, []),
        ({"rows": [{"name": "H100"}]}, ["bad"]),
        ({"error": "Driver/library version mismatch"}, ["bad"]),
        ({"rows": [{"name": "H100"}] * 2, "users": [{"pid": "7", "process_name": "py"}]}, ["warn"]),
        ({"rows": [{"name": "H100", "ecc.errors.uncorrected.volatile.total": "3"}] * 2}, ["warn", "warn"]),
        ({"rows": [{"name": "H100", "ecc.errors.uncorrected.volatile.total": "[N/A]"}] * 2}, []),
    ],
)  # fmt: skip
def test_gpus_that_lack_ail_or_work_for_others_are_told(gpus, expected):
    nodes = tuple(replace(node, gpus=2) for node in NODES)
    good = {"gpus": {"rows": [{"name": "H100"}] * 2}}
    told = case(cluster=replace(CLUSTER, nodes=nodes), n1=good, n2={"gpus": gpus}, n3=good)

    assert [level for level, check, _ in found(judge_case(told)) if check == "gpu"] == expected


@pytest.mark.parametrize(
    ("line", "flavour"),
    [
        ("mpirun (Open MPI) 4.1.4", "openmpi4"),
        ("mpirun (Open MPI) 5.0.11", "openmpi5"),
        ("HYDRA build details:", "mpich"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.17", "mpich"),
        ("anything", ""),
    ],
)
def test_an_mpi_is_known_by_its_first_line(line, flavour):
    assert flavour_of(line) == flavour


def test_the_arguments_that_place_ranks_again_are_taken_out():
    spec = replace(MPI, mpi=MpiOptions(args=("-np", "4", "--mca", "pml", "ob1", "-host", "a,b")))
    (finding,) = checks.check_job_file(spec)

    assert finding.level is Level.BAD
    assert finding.patch == (Change("mpi.args", ["--mca", "pml", "ob1"]),)


def test_mapping_by_slot_is_what_the_plan_does_in_either_spelling():
    args = ("-bind-to", "core", "-map-by", "slot", "--map-by=slot")
    assert [*checks.check_job_file(replace(MPI, mpi=MpiOptions(args=args)))] == []

    (finding,) = checks.check_job_file(replace(MPI, mpi=MpiOptions(args=("-map-by", "node"))))
    assert finding.patch == (Change("mpi.args", []),)


def test_a_clean_environment_is_refused_under_mpi():
    box = Container(image="a.sif", args=("--cleanenv", "--nv"))
    (finding,) = checks.check_job_file(replace(MPI, container=box))

    assert "rank 0 of 1" in finding.text
    assert finding.patch == (Change("container.args", ["--nv"]),)
    assert checks.check_job_file(replace(SPEC, container=box)) == []


def test_words_of_an_older_mpi_and_debugging_left_on_are_told():
    args = ("--mca", "btl_vader_single_copy_mechanism", "none", "-v")
    spec = replace(MPI, mpi=MpiOptions(args=args), env={"NCCL_DEBUG": "TRACE"})
    vader, noise = checks.check_job_file(spec)

    assert vader.patch == (Change("mpi.args", ["--mca", "smsc", "^cma", "-v"]),)
    assert noise.patch == (Change("env.NCCL_DEBUG", "WARN"),)


def test_of_a_program_that_the_job_brings_along_it_is_told_where_it_lies():
    spec = replace(SPEC, command=("python3", "train.py"), files={"train.py": "print()"})
    missing = {"programs": {**GOOD["programs"], "train.py": {}}}
    (finding,) = checks.check_programs(case(spec, n1=missing, n2=missing, n3=missing))

    assert "write `${RANKDECK_RUN}/train.py`" in finding.fix


def said(rank, size, version="Open MPI v4.1.4", none="", program=True):
    return RankAnswer(rank, size, version, none, program)


@pytest.mark.parametrize(
    ("rows", "more", "level", "text"),
    [
        ([said(0, 2), said(1, 2)], {}, "ok", "found each other"),
        ([said(0, 1), said(0, 1)], {}, "bad", "every rank is rank 0 of 1"),
        ([said(0, 2)], {"complaint": "no daemon"}, "bad", "no daemon"),
        ([], {"late": True}, "bad", "did not find each other"),
        ([said(-1, -1, none="no python3", program=False)], {}, "bad", "no `app`"),
        ([said(-1, -1, none="not linked")] * 2, {}, "ok", "not tried"),
    ],
)
def test_what_two_ranks_said_is_put_into_a_sentence(rows, more, level, text):
    outcome = ProbeOutcome("probe-1", tuple(rows), 2, **more)
    (finding,) = judge_probe(case(MPI), replace(MPI, on=("n1", "n2")), outcome)

    assert finding.level.word == level
    assert text in finding.text


def test_versions_that_differ_are_told_although_they_work():
    spec = replace(MPI, container=Container(image="a.sif"))
    told = {"versions": {"mpirun": "mpirun (Open MPI) 4.1.6"}}
    outcome = ProbeOutcome("probe-1", (said(0, 2), said(1, 2)), 2)
    (finding,) = judge_probe(case(spec, n1=told), replace(spec, on=("n1", "n2")), outcome)

    assert finding.level is Level.WARN


def test_everybody_tries_everybody_up_to_a_limit_and_evenly_beyond():
    nodes = tuple(Node(name=f"m{i}", address=f"10.0.{i // 200}.{i % 200}") for i in range(200))
    few = check_network.connection_targets(case())
    many = check_network.connection_targets(
        case(replace(SPEC, nodes=200), replace(CLUSTER, nodes=nodes))
    )

    assert {a: {t[0] for t in row} for a, row in few.items()}["n1"] == {"n2", "n3"}
    assert {len({t[0] for t in row} - {a}) for a, row in many.items()} == {64}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (("a", "a", "a"), ""),
        (("a", "b", "a"), "different versions: a on n[1,3], b on n2"),
        (("a", "", "a"), ""),
        (("a", None, "b"), "different versions: a on n1, b on n3"),
    ],
)
def test_two_versions_of_an_image_are_one_sentence(rows, expected):
    found_rows = {
        f"n{i}": ImageAt(kind="missing" if d is None else "file", digest=d or "", size=7)
        for i, d in enumerate(rows, 1)
    }

    assert describe_versions(found_rows) == expected


@pytest.mark.parametrize(
    ("image", "fix"),
    [("torch", "enroot create --name torch"), ("/images/torch.sqsh", "images push")],
)
def test_a_missing_container_of_enroot_says_what_makes_it(image, fix):
    spec = replace(SPEC, container=Container(image=image, runtime="enroot"))
    nowhere = {"images": [{"kind": "missing", "path": image}]}
    judged = judge_case(case(spec, n1=nowhere, n2=nowhere, n3=nowhere))
    (finding,) = [one for one in judged if one.check == "image"]

    assert (finding.level, finding.node) == (Level.BAD, "n[1-3]")
    assert fix in finding.fix


@given(ANYTHING)
def test_rows_of_images_may_hold_anything(raw):
    assert all(
        row.kind and row.size >= 0
        for row in image_rows([raw, {"kind": raw, "size": raw, "free": raw}])
    )


def test_images_that_differ_with_the_cpu_are_not_to_be_copied():
    spec = replace(SPEC, container=Container(image="a:1", runtime="podman"))
    there = {"images": [{"kind": "store", "digest": "sha256:a", "size": 1}]}
    other = {"machine": "aarch64", "images": [{"kind": "store", "digest": "sha256:b", "size": 1}]}
    judged = judge_case(case(spec, n1=there, n2=there, n3=other))
    (finding,) = [one for one in judged if one.check == "image"]

    assert "x86_64 on n[1-2], aarch64 on n3" in finding.fix
    assert "images push" not in finding.fix


def test_a_store_that_cannot_be_asked_says_what_to_do():
    spec = replace(SPEC, container=Container(image="a:1", runtime="docker"))
    why = "permission denied while trying to connect to the Docker daemon socket"
    judged = judge_case(case(spec, n1={"images": [{"kind": "failed", "error": why}]}))
    (finding,) = [one for one in judged if one.check == "image"]

    assert (finding.level, finding.node) == (Level.BAD, "n1")
    assert "group `docker`" in finding.fix


JOB = """\
job: x  # its name
launch: mpi
# how
mpi:
  flavour: openmpi5  # ours
  args: [-np, '4']

torch: {port: 29500, path: a}
command: [a]
# end
"""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mpi.flavour", "openmpi4"),
        ("mpi.args", []),
        ("mpi.args", ["--mca", "a: b", "#c"]),
        ("mpi.path", "/usr/bin/mpirun"),
        ("mpi.args", None),
        ("torch.port", None),
        ("torch.path", None),
        ("torch.args", ["x y"]),
        ("env.NCCL_DEBUG", "WARN"),
        ("container.runtime", "singularity"),
        ("nowhere.at.all", None),
    ],
)
def test_a_change_of_a_job_file_changes_that_alone(key, value):
    text = apply_change(JOB, Change(key, value))
    expected = yaml.safe_load(JOB)
    *way, last = key.split(".")
    table = expected
    if value is not None or key.split(".")[0] in expected:
        for part in way:
            table = table.setdefault(part, {})
        if value is None:
            del table[last]
        else:
            table[last] = value

    assert yaml.safe_load(text) == expected
    assert "# its name" in text
    assert "# end" in text


def test_torchrun_is_looked_for_outside_only_where_there_is_no_image():
    bare = JobSpec(name="t", launch=Launch.TORCHRUN, command=("train.py",))
    boxed = replace(bare, container=Container(image="a.sif"))

    assert programs_of(bare)[0] == "torchrun"
    assert programs_of(boxed) == ("apptainer",)


TEMPLATES = re.compile(r"\b(?:FILE|NODES?|NODESET|JOB|IMAGE|FOLDER|INTERFACE|NAME)\b|…")
SPOKEN = [
    *Path(preflight.__file__).parent.glob("*.py"),
    *(Path(m.__file__) for m in (bring,)),
]


@pytest.mark.parametrize("file", SPOKEN, ids=lambda file: file.stem)
def test_no_advice_leaves_a_word_to_fill_in(file):
    tree = ast.parse(file.read_text())
    texts = [
        n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    docs = {
        n.value.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
    }

    assert [t for t in texts if t not in docs and TEMPLATES.search(t)] == []


@pytest.mark.parametrize(
    ("box", "rows", "fix"),
    [
        (Container(image="a.sif"), ("a", "b", "a"), "`rankdeck images push --replace a.sif 'n[1-3]' --to /home/u/a.sif`"),
        (Container(image="a.sif"), (None, None, None), "`rankdeck images push a.sif 'n[1-3]' --to /home/u/a.sif`"),
        (Container(image="lab/app:2", runtime="podman"), (None, None, None), "`podman save -o app.tar lab/app:2`, then `rankdeck images push --runtime podman app.tar 'n[1-3]'`"),
    ],
)  # fmt: skip
def test_the_command_that_brings_an_image_is_complete(box, rows, fix):
    told = {
        f"n{i}": {"images": [{"kind": "file" if d else "missing", "digest": d or "", "path": "/home/u/a.sif", "size": 7}]}
        for i, d in enumerate(rows, 1)
    }  # fmt: skip
    judged = judge_case(case(replace(SPEC, container=box), **told))

    assert [f.fix for f in judged if f.check == "image" and fix in f.fix]


def test_an_image_of_a_registry_is_pulled_by_a_complete_command():
    box = Container(image="docker://nvcr.io/nvidia/pytorch:24.01")
    told = {f"n{i}": {"images": [{"kind": "remote", "path": box.image}]} for i in (1, 2, 3)}
    judged = judge_case(case(replace(SPEC, container=box), **told))

    assert [f.fix for f in judged if f.check == "image"] == [
        "pull it once, `apptainer pull pytorch-24.01.sif docker://nvcr.io/nvidia/pytorch:24.01`, and name that file"
    ]


def test_an_interface_that_is_down_or_differs_is_named_in_the_command():
    def row(name, mtu, up=True):
        return {"name": name, "up": up, "mtu": mtu, "address": "10.0.0.1/24"}

    nodes = tuple(
        replace(n, interface=i) for n, i in zip(NODES, ("ib0", "ib0", "eth1"), strict=True)
    )
    told = {
        "n1": {"interfaces": [row("ib0", 9000)]},
        "n2": {"interfaces": [row("ib0", 1500, up=False)]},
        "n3": {"interfaces": [row("eth1", 9000)]},
    }
    fixes = [
        f.fix
        for f in check_network.check_interfaces(case(cluster=replace(CLUSTER, nodes=nodes), **told))
    ]

    assert fixes[0].startswith("`ip link set ib0 up` there")
    assert "`ip link set dev ib0 mtu 1500` on n1, `ip link set dev eth1 mtu 1500` on n3" in fixes[1]


def test_two_ranks_that_do_not_meet_get_advice_for_their_own_mpi():
    for flavour, word in (("openmpi5", "--mca"), ("mpich", "`interface`")):
        spec = replace(MPI, on=("n1", "n2"), mpi=MpiOptions(flavour=flavour))
        (finding,) = judge_probe(case(spec), spec, ProbeOutcome("j", (), 2, late=True))

        assert word in finding.fix
