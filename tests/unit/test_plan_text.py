"""What a plan says: its lines and their kinds, folded, and beside another plan."""

from typing import cast

import pytest

from rankdeck.backends.plan_text import (
    DiffKind,
    parts_text,
    plan_difference,
    write_plan,
    write_plan_lines,
)
from rankdeck.config.document import write_documents
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import Container, JobSpec, Launch
from rankdeck.model.plan import Plan
from rankdeck.model.plan_part import LineKind, PlanLine
from rankdeck.remote.agent import Agents
from rankdeck.schedulers.kubernetes.backend import KubernetesBackend
from rankdeck.schedulers.kubernetes.manifest import job_objects, manifest_parts
from rankdeck.schedulers.slurm.backend import SlurmBackend
from rankdeck.values import replace
from rankdeck_agent.wire import NodeFile, NodePlan, ProcessPlan

NODE, NOTE, SETUP, FILE, FIELD, COMMAND = LineKind
AGENTS = cast("Agents", None)


def plan(job: str = "a-1", *, argv: tuple[str, ...] = ("mpirun", "-np", "4"), **more) -> Plan:
    node = NodePlan(
        job=job,
        node="n1",
        ranks=(0,),
        processes=(ProcessPlan("mpirun", argv, cwd="/work"),),
        files=(NodeFile("run.py", "one\ntwo\n", 0o755), NodeFile("hosts", "EOF\n")),
        env={"A": "1"},
    )
    return Plan(job=job, name="a", cluster="lab", backend="ssh", nodes=(node,), **more)


def rows(plan: Plan, *, folded: bool) -> list[tuple[str, str]]:
    return [(str(line.kind), line.text) for line in write_plan_lines(plan, folded=folded)]


def test_files_and_variables_fold_into_a_line_each_and_commands_are_told_from_the_rest() -> None:
    assert rows(plan(), folded=True) == [
        ("note", "# job a-1: 1 rank on 1 node (n1), cluster lab, backend ssh"),
        ("note", ""),
        ("node", "# ---- n1: ranks 0"),
        ("setup", 'mkdir -p "$RANKDECK_RUN" && cd "$RANKDECK_RUN"'),
        ("setup", "cat > run.py  # 2 lines"),
        ("setup", "chmod 755 run.py"),
        ("setup", "cat > hosts  # 1 line"),
        ("setup", "export  # 2 variables"),
        ("setup", "cd ~"),
        ("command", "cd /work && mpirun -np 4"),
    ]


def test_whole_it_has_every_line_of_the_text() -> None:
    whole = rows(plan(), folded=False)

    assert "".join(f"{text}\n" for _, text in whole) == write_plan(plan())
    head = whole.index(("setup", "cat > hosts <<'EOF_'"))
    assert whole[head : head + 3] == [
        ("setup", "cat > hosts <<'EOF_'"),
        ("file", "EOF"),
        ("file", "EOF_"),
    ]


def test_a_program_of_several_lines_is_a_command_whatever_its_lines_look_like() -> None:
    program = "# first\ncat > x <<EOF\nexport A=1\nEOF\ncd /tmp && app\n"
    whole = rows(plan(argv=("sh", "-c", program)), folded=True)

    assert [text for kind, text in whole if kind == "command"] == [
        "cd /work && sh -c '# first",
        *program.splitlines()[1:],
        "'",
    ]


def test_only_what_differs_is_said_and_not_the_id() -> None:
    assert plan_difference(plan(), plan("a-2")) == ()
    changed = plan_difference(plan(), plan("a-2", argv=("mpirun", "-np", "8")))
    assert [(line.kind, line.text) for line in changed if line.kind in ("old", "new")] == [
        (DiffKind.OLD, "-cd /work && mpirun -np 4"),
        (DiffKind.NEW, "+cd /work && mpirun -np 8"),
    ]
    assert changed[0].kind is DiffKind.PLACE


def test_a_line_that_looks_like_a_header_of_diff_is_shown_as_any_other() -> None:
    def with_file(text: str) -> Plan:
        made = plan()
        return replace(made, nodes=(replace(made.nodes[0], files=(NodeFile("f", text),)),))

    lines = plan_difference(with_file("-- a\n"), with_file("++ a\n"))

    assert [line.text for line in lines if line.kind in ("old", "new")] == ["--- a", "+++ a"]


CLUSTER = Cluster(name="c", nodes=(Node(name="n1", slots=2, gpus=0),))
SPEC = JobSpec(
    name="t",
    launch=Launch.TORCHRUN,
    command=("app.py", "x"),
    nodes=1,
    files={"app.py": "# a program\nmkdir /x", "in/data": "1\n"},
    container=Container(image="i:1", runtime="enroot"),
)


def test_a_script_to_submit_by_hand_is_told_apart_and_folded() -> None:
    made = SlurmBackend(AGENTS).plan(replace(CLUSTER, backend="slurm"), SPEC, "t-1")

    assert write_plan(made) == made.text
    folded = rows(made, folded=True)
    assert folded[:2] == [("note", "#!/bin/bash"), ("command", "#SBATCH --job-name=t")]
    assert ("setup", 'cat > "$RANKDECK_RUN"/app.py  # 2 lines') in folded
    assert ("setup", "export  # 2 variables") in folded
    assert folded[-1][0] == "command"
    assert [kind for kind, text in folded if text.startswith("srun ")] == ["command"]
    assert [kind for kind, text in folded if text.startswith("MASTER_PORT=")] == ["setup"]


@pytest.mark.parametrize("launch", Launch)
def test_a_manifest_shows_the_fields_of_each_object_and_what_is_in_them(launch: Launch) -> None:
    cluster, spec = replace(CLUSTER, backend="kubernetes"), replace(SPEC, launch=launch)
    made = job_objects(cluster, spec, "t-1")
    parts = manifest_parts(made)

    assert parts_text(parts) == write_documents(made)
    plan = KubernetesBackend(AGENTS).plan(cluster, spec, "t-1")
    lines = write_plan_lines(plan, folded=True)
    assert write_plan(plan) == plan.text == write_documents(made)
    assert lines.count(PlanLine("---", NOTE)) == len(made) - 1
    assert [line.text for line in lines if line.kind is FIELD][:3] == ["apiVersion: v1", "kind: ConfigMap", "metadata:"]  # fmt: skip
    assert PlanLine("  app.py: |-", FILE) in lines


def test_a_document_of_an_older_history_has_lines_of_one_kind() -> None:
    old = plan(text="#!/bin/bash\nsrun a\n")
    old = replace(old, backend="slurm", nodes=(replace(old.nodes[0], processes=()),))

    assert write_plan(old) == old.text
    assert rows(old, folded=True) == [("file", "#!/bin/bash"), ("file", "srun a")]
