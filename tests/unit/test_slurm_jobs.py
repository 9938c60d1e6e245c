"""Jobs of Slurm in the console: what a job file asks for, and what
becomes of the state when Slurm speaks.
"""

import json
import subprocess
from pathlib import Path
from typing import cast

import pytest

from rankdeck.config.jobs import read_job
from rankdeck.errors import ConfigError, LaunchError
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import Abort, Container, JobSpec, Launch
from rankdeck.model.plan import Plan
from rankdeck.model.queue import QueueStatus, queue_words
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import ProgramResult
from rankdeck.schedulers.slurm.attach import slurm_attach_plan
from rankdeck.schedulers.slurm.backend import SlurmBackend, batch_script
from rankdeck.schedulers.slurm.settings import granted_instead
from rankdeck.schedulers.slurm.values import SlurmLook
from rankdeck.state.jobs import Jobs
from rankdeck_agent.wire import NodePlan
from rankdeck_agent.wire.job_events import EventError
from tests.support.node_events import node_event, planned_event

CLUSTER = Cluster(
    name="c", backend="slurm", nodes=(Node(name="n[1-2]", slots=2, gpus=2),), options={"login": "login"},
    environment={"SITE": "1"},
)  # fmt: skip


def asked(tmp_path: Path, slurm: str, launch: str = "plain") -> str:
    """The script of a job file with this `slurm:` section."""
    file = tmp_path / "job.yaml"
    file.write_text(f"job: x\nlaunch: {launch}\ncommand: [a]\nranks_per_node: 2\nslurm: {slurm}\n")
    return batch_script(CLUSTER, read_job(file), "x-1", watched=True)


@pytest.mark.parametrize(("slurm", "lines"), [
    ("{exclusive: true}", ["--exclusive"]),
    ("{exclusive: user}", ["--exclusive=user"]),
    ("{gpus: 'a100:8'}", ["--gpus-per-node=a100:8"]),
    ("{gpus: 4}", ["--gpus-per-node=4"]),
    ("{cpus-per-task: 6, mem-per-cpu: 4G}", ["--cpus-per-task=6", "--mem-per-cpu=4G"]),
    ("{requeue: true}", ["--requeue"]),
    ("{requeue: false}", ["--no-requeue"]),
    ("{exclude: 'n[1-2]', dependency: 'afterok:7', signal: 'USR1@120'}",
        ["--exclude=n[1-2]", "--dependency=afterok:7", "--signal=USR1@120"]),
    ("{args: ['--gpu-bind=closest', '--hold']}", ["--gpu-bind=closest", "--hold"]),
])  # fmt: skip
def test_options_are_written_as_sbatch_has_them(tmp_path, slurm: str, lines: list[str]) -> None:
    told = asked(tmp_path, slurm).splitlines()

    assert [line for line in lines if f"#SBATCH {line}" not in told] == []


def test_a_switch_that_is_off_is_left_out(tmp_path) -> None:
    assert "--exclusive" not in asked(tmp_path, "{exclusive: false}")


def test_srun_is_told_of_the_cpus_and_a_torchrun_has_one_for_each_rank(tmp_path) -> None:
    assert "srun --kill-on-bad-exit=1 --wait=60 --cpus-per-task=6 " in asked(
        tmp_path, "{cpus-per-task: 6}"
    )
    assert "#SBATCH --cpus-per-task=2\n" in asked(tmp_path, "{}", "torchrun")


def test_pyxis_is_another_name_of_enroot(tmp_path) -> None:
    said = []
    for name in ("pyxis", "enroot"):
        file = tmp_path / f"{name}.yaml"
        box = f"{{runtime: {name}, image: 'nvcr.io#nvidia/pytorch:24.06-py3'}}"
        file.write_text(
            f"job: x\nlaunch: plain\ncommand: [a]\nranks_per_node: 2\ncontainer: {box}\n"
        )
        said.append(batch_script(CLUSTER, read_job(file), "x-1"))

    assert said[0] == said[1]
    assert "--container-image=nvcr.io#nvidia/pytorch:24.06-py3" in said[0]


def test_a_preflight_is_the_first_step_and_knows_the_gpus_of_the_job(tmp_path) -> None:
    file = tmp_path / "job.yaml"
    slurm = "{preflight: true, gpus: 'a100:2,h100:1'}"
    file.write_text(f"job: x\nlaunch: plain\ncommand: [a]\nranks_per_node: 2\nslurm: {slurm}\n")
    spec = read_job(file)

    files = {
        one.path: one.text for one in SlurmBackend(None).plan(CLUSTER, spec, "x-1").nodes[0].files
    }  # type: ignore[arg-type]
    steps = [line for line in files["job.sbatch"].splitlines() if line.startswith("srun")]

    assert len(steps) == 2
    assert "--ntasks-per-node=1" in steps[0]
    assert json.loads(files["expect.json"]) == {"gpu_count": 3}
    assert json.loads(files["slurm.json"])["preflight"]
    assert "health" not in asked(tmp_path, "{preflight: false}")
    assert "left out" in batch_script(CLUSTER, spec, "x-1")


@pytest.mark.parametrize(("slurm", "why"), [
    ("{partiton: a}", "did you mean `partition`"),
    ("{ntasks-per-node: 4}", "ranks_per_node"),
    ("{hetjob: 1}", "not supported"),
    ("{container: /images/bundle}", "not supported: its bundle"),
    ("{args: ['--container=/images/bundle']}", "not supported: its bundle"),
    ("{args: ['--output=x']}", "is set by Rankdeck"),
    ("{args: [hold]}", "is no option of sbatch"),
    ("{mem: much}", "is not an amount of memory"),
    ("{time: soon}", "is not a time"),
    ("{login: here}", "belongs into the cluster file"),
])  # fmt: skip
def test_what_is_wrong_is_named_by_its_place(tmp_path, slurm: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        asked(tmp_path, slurm)


def array(tasks: str, **more: object) -> JobSpec:
    """An array of one process each."""
    spec = {
        "name": "x",
        "launch": Launch.PLAIN,
        "command": ("a",),
        "ranks_per_node": 1,
        "abort": Abort(enabled=False),
    }
    return JobSpec(**{**spec, "options": {"slurm.array": tasks}, **more})  # type: ignore[arg-type]


def test_the_ranks_of_an_array_are_its_tasks() -> None:
    (node,) = SlurmBackend(None).plan(CLUSTER, array("1,4-9:2%3"), "x-1").nodes
    (told,) = [file.text for file in node.files if file.path == "job.sbatch"]

    assert node.ranks == (1, 4, 6, 8)
    assert "#SBATCH --array=1,4-9:2%3\n" in told
    assert "#SBATCH --ntasks-per-node=1\n" in told
    assert 'export RANKDECK_RANK="$SLURM_ARRAY_TASK_ID"\n' in told
    assert (
        json.loads(next(f.text for f in node.files if f.path == "slurm.json"))["array"]
        == "1,4-9:2%3"
    )


@pytest.mark.parametrize(("spec", "why"), [
    (array("0-9999999"), "1 to 4096 can be followed"),
    (array("9-3"), "has no tasks"),
])  # fmt: skip
def test_arrays_that_cannot_be_followed_are_refused(spec: JobSpec, why: str) -> None:
    with pytest.raises(LaunchError, match=why):
        SlurmBackend(None).plan(CLUSTER, spec, "x-1")


@pytest.mark.parametrize(("more", "line"), [
    ({"nodes": 2}, 'srun --label --kill-on-bad-exit=1 --wait=60 a'),
    ({"ranks_per_node": 2}, 'srun --label --kill-on-bad-exit=1 --wait=60 a'),
    ({"launch": Launch.MPI}, 'srun --label --kill-on-bad-exit=1 --wait=60 --mpi=pmix a'),
    ({"launch": Launch.TORCHRUN, "nodes": 2, "ranks_per_node": 2}, "--max-restarts=0 --no-python -- a"),
    ({"launch": Launch.TENSORFLOW, "nodes": 2}, "exec a"),
])  # fmt: skip
def test_the_processes_of_one_task_of_an_array_are_one_rank(more, line: str) -> None:
    plan = SlurmBackend(None).plan(CLUSTER, array("0-3", abort=Abort(), **more), "x-1")
    (node,) = plan.nodes
    assert not plan.abort.enabled  # one task fails alone
    (told,) = [file.text for file in node.files if file.path == "job.sbatch"]
    *_, step = told.splitlines()

    assert node.ranks == (0, 1, 2, 3)
    assert step.count("rank-shim") == 1
    assert step.startswith('"$RANKDECK_RUN"/rank-shim srun --label')
    assert line in step


def test_an_array_submitted_by_hand_writes_a_file_for_each_task() -> None:
    assert '--output="$RANKDECK_RUN"/%a.out' in batch_script(CLUSTER, array("0-3"), "x-1")
    assert '--output="$RANKDECK_RUN"/%a.%t.out' in batch_script(
        CLUSTER, array("0-3", ranks_per_node=2), "x-1"
    )
    assert "/%a.%t.out" in batch_script(CLUSTER, array("0-3", nodes=2), "x-1")


def test_pyxis_gets_what_gpus_and_pmix_need_and_our_variables_win() -> None:
    image = Container(
        image="reg#a/b:1", runtime="enroot", gpu="nvidia", args=("--container-name=work:exec",)
    )
    spec = JobSpec(
        name="x",
        launch=Launch.MPI,
        command=("a",),
        ranks_per_node=1,
        container=image,
        env={"A": "1"},
    )

    told = batch_script(CLUSTER, spec, "x-1", watched=True)
    other = batch_script(CLUSTER, JobSpec(name="x", launch=Launch.MPI, command=("a",), ranks_per_node=1,
                                    container=Container(image="reg#a/b:2", runtime="enroot", args=image.args)), "x-1")  # fmt: skip

    names = "RANKDECK_JOB,RANKDECK_RUN,NVIDIA_VISIBLE_DEVICES,NVIDIA_DRIVER_CAPABILITIES,PMIX_MCA_gds,SITE,A"
    told_names = next(word for word in told.split() if word.startswith("--container-env="))
    assert told_names.partition("=")[2] == names
    assert "export NVIDIA_DRIVER_CAPABILITIES=compute,utility\n" in told
    name = next(word for word in told.split() if word.startswith("--container-name="))
    assert name.endswith(":exec")
    assert name not in other


@pytest.mark.parametrize("words", [("--container-name=work:no_exec",), ("--container-name", "work:no_exec")])  # fmt: skip
def test_an_image_file_made_anew_in_its_place_gets_a_new_container(tmp_path, words) -> None:
    file = tmp_path / "an image.sqsh"
    box = Container(image=str(file), runtime="enroot", args=words)
    told = batch_script(CLUSTER, JobSpec(name="x", launch=Launch.PLAIN, command=("a",), container=box), "x-1")  # fmt: skip
    (line,) = [line for line in told.splitlines() if line.startswith("srun")]

    def name() -> str:
        said = subprocess.run(["sh", "-euc", f"RANKDECK_RUN=/run; printf '%s\\n' {line}"], capture_output=True, text=True, timeout=300, check=True)  # fmt: skip
        assert not said.stderr
        return next(word for word in said.stdout.splitlines() if "work-" in word)

    names = [name()]
    for text in ("first", "second one"):
        file.write_text(text)
        names += [name(), name()]

    assert [one.endswith(":no_exec") for one in names] == [True] * 5
    assert names[1] == names[2] != names[3] == names[4]


# ---- state


def jobs() -> Jobs:
    spec = JobSpec(name="x", launch="plain", command=("a",), nodes=2, ranks_per_node=1)
    state = Jobs()
    state.add(SlurmBackend(None).plan(CLUSTER, spec, "x-1"), 100.0)
    return state


def told(state: Jobs, *events: dict[str, object]) -> None:
    """Have the keeper say these, a second apart."""
    for number, event in enumerate(events):
        at = 101.0 + number
        fields = {"seq": number, **event}
        kind = str(fields.pop("kind"))
        state.apply(node_event("x-1", "login", kind, at, **fields))


BEGAN = [
    {"kind": "ready"},
    *({"kind": "started", "rank": r, "host": f"n{r + 1}", "pid": 7} for r in (0, 1)),
]
TERMED = [{"kind": "exited", "rank": r, "code": None, "signal": 15} for r in (0, 1)]
CLOSED = [{"kind": "ended", "name": "sbatch", "code": None, "signal": 15}, {"kind": "closed"}]


def test_a_time_limit_blames_no_rank() -> None:
    state = jobs()
    over = {
        "kind": "slurm",
        "state": "TIMEOUT",
        "over": True,
        "text": "its time limit was over",
        "do": "more",
    }
    told(state, *BEGAN, *TERMED, over, *CLOSED)

    job = state.job("x-1")

    assert (job.state, [rank.state for rank in job.ranks]) == ("failed", ["cancelled"] * 2)
    assert job.first_failure is not None
    assert (job.first_failure.what, job.first_failure.rank) == ("scheduler", None)
    assert job.first_failure.victims == (0, 1)
    assert "(how sure: not calibrated)" in job.first_failure.sentence


def test_a_rank_that_fails_by_itself_is_told_with_how_sure_that_is() -> None:
    state = jobs()
    own = {"kind": "exited", "rank": 1, "code": 3, "signal": None, "last": ["KeyError: 'x'"]}
    killed = {"kind": "exited", "rank": 0, "code": None, "signal": 9}
    over = {"kind": "slurm", "state": "FAILED", "over": True, "text": "a task failed"}
    ended = {"kind": "ended", "name": "sbatch", "code": 3, "signal": None}
    told(state, *BEGAN, own, killed, over, ended, {"kind": "closed"})

    first = state.job("x-1").first_failure

    assert first is not None
    assert (first.what, first.rank) == ("rank", 1)
    assert first.sure is not None
    assert first.sure >= 0.9


def test_a_rank_that_was_killed_and_has_no_rival_is_told_without_a_share() -> None:
    state = jobs()
    own = {"kind": "exited", "rank": 1, "code": None, "signal": 9}
    other = {"kind": "exited", "rank": 0, "code": None, "signal": 15}
    over = {"kind": "slurm", "state": "FAILED", "over": True, "text": "a task failed"}
    ended = {"kind": "ended", "name": "sbatch", "code": None, "signal": 9}
    said = {**ended, "last": ["srun: error: n2: task 1: Killed"]}
    told(state, *BEGAN, own, other, over, said, {"kind": "closed"})

    first = state.job("x-1").first_failure

    assert first is not None
    assert (first.what, first.rank, first.between, first.sure) == ("rank", 1, (), None)
    assert "how sure: not calibrated" in first.sentence


def test_a_job_that_others_cancelled_has_no_failure() -> None:
    state = jobs()
    over = {
        "kind": "slurm",
        "state": "CANCELLED",
        "over": True,
        "text": "cancelled by alice",
        "by": "alice",
    }
    told(state, *BEGAN, *TERMED, over, *CLOSED)

    job = state.job("x-1")

    assert (job.state, job.first_failure) == ("cancelled", None)


@pytest.mark.parametrize(
    ("word", "state", "before"),
    [
        ("CANCELLED", "cancelled", [{"kind": "ready"}]),
        ("CANCELLED", "cancelled", [*BEGAN, *TERMED, {"kind": "attempt", "number": 1}]),
        ("DEADLINE", "failed", [{"kind": "ready"}]),
    ],
)
def test_a_job_that_slurm_ends_in_the_queue_has_no_rank_that_failed(
    word: str, state: str, before: list[dict[str, object]]
) -> None:
    known = jobs()
    told(known, *before, {"kind": "slurm", "state": word, "over": True, "text": "why"}, *CLOSED)

    job = known.job("x-1")

    assert (job.state, [rank.state for rank in job.ranks]) == (state, ["cancelled"] * 2)
    assert job.first_failure is None or job.first_failure.victims == ()


def test_a_run_that_was_preempted_is_kept_and_the_next_one_counts() -> None:
    state = jobs()
    again = [{"kind": "started", "rank": r, "host": "n9", "attempt": 1} for r in (0, 1)]
    well = [{"kind": "exited", "rank": r, "code": 0, "signal": None} for r in (0, 1)]
    over = {"kind": "slurm", "state": "COMPLETED", "over": True, "attempt": 1}
    end = [{"kind": "ended", "name": "sbatch", "code": 0, "signal": None}, {"kind": "closed"}]
    told(
        state,
        *BEGAN,
        *TERMED,
        {"kind": "attempt", "number": 1, "text": "preempted"},
        *again,
        *well,
        over,
        *end,
    )

    job = state.job("x-1")

    assert (job.state, job.exit_code, job.first_failure) == ("done", 0, None)
    assert job.in_scheduler is not None
    (run,) = job.in_scheduler.attempts
    assert (run.nodes, run.failed, run.exit_code, run.text) == (
        ("n1", "n2"),
        (0, 1),
        143,
        "preempted",
    )


def test_what_a_node_says_of_slurm_is_checked() -> None:
    state = jobs()
    told(
        state,
        {
            "kind": "slurm",
            "state": "\x1b[2JX" * 1000,
            "text": 7,
            "position": -4,
            "limit": "x",
            "start": None,
        },
    )

    status = state.job("x-1").in_scheduler

    assert status is not None
    assert status.state.isprintable()
    assert (status.text, status.position, status.limit, status.start) == ("", None, None, None)


def test_what_it_waits_for_is_one_line() -> None:
    waits = QueueStatus(
        id="7",
        state="PENDING",
        reason="Priority",
        text="waits behind others",
        position=3,
        waiting=12,
        start=2000.0,
    )

    assert (
        queue_words(waits, 800.0)
        == "waits behind others (Priority), place 3 of 12, may start in 20 min"
    )
    assert queue_words(QueueStatus(state="RUNNING", ends=100.0), 40.0) == "60 s left"
    assert queue_words(QueueStatus(state="TIMEOUT", over=True), 40.0) == ""


def test_a_task_that_slurm_ended_is_told_so_and_blames_no_other() -> None:
    state = jobs()
    word = {"kind": "slurm", "id": "10", "array": "0-1", "state": "RUNNING"}
    limit = {
        "kind": "task",
        "rank": 0,
        "id": "11",
        "state": "TIMEOUT",
        "over": True,
        "text": "its time limit was over",
        "do": "more",
    }
    gone = {
        "kind": "task",
        "rank": 1,
        "id": "10",
        "state": "CANCELLED",
        "over": True,
        "text": "cancelled by alice",
    }
    over = {
        "kind": "slurm",
        "id": "10",
        "array": "0-1",
        "state": "FAILED",
        "over": True,
        "text": "2 of 2 tasks did not end well",
    }
    told(state, *BEGAN, word, *TERMED, limit, gone, over, *CLOSED)

    job = state.job("x-1")

    assert (job.unit, job.state, [rank.state for rank in job.ranks]) == (
        "task",
        "failed",
        ["failed", "cancelled"],
    )
    assert job.first_failure is not None
    assert (job.first_failure.what, job.first_failure.rank, job.first_failure.victims) == (
        "scheduler",
        0,
        (),
    )
    assert job.first_failure.explained[0].means == "its time limit was over"
    assert job.in_scheduler is not None
    assert [(task.number, task.id, task.state) for task in job.in_scheduler.tasks] == [
        (0, "11", "TIMEOUT"),
        (1, "10", "CANCELLED"),
    ]
    assert Jobs().restore(job).in_scheduler == job.in_scheduler


def test_a_task_that_was_queued_again_keeps_its_run_and_the_others_go_on() -> None:
    state = jobs()
    word = {"kind": "slurm", "id": "10", "array": "0-1", "state": "RUNNING"}
    again = {"kind": "task", "rank": 1, "attempt": 1, "text": "n2 failed"}
    told(state, *BEGAN, word, again)

    job = state.job("x-1")

    assert [rank.state for rank in job.ranks] == ["running", "pending"]
    assert job.in_scheduler is not None
    (task,) = job.in_scheduler.tasks
    assert (task.number, task.attempt, task.attempts[0].text, task.attempts[0].nodes) == (
        1,
        1,
        "n2 failed",
        ("n2",),
    )


def test_a_node_that_no_slurm_runs_ends_no_rank_of_another_by_such_a_word() -> None:
    nodes = tuple(NodePlan(job="x-1", node=f"n{at}", ranks=(at,)) for at in (1, 2))
    state = Jobs()
    state.add(Plan(job="x-1", name="x", cluster="c", backend="ssh", nodes=nodes), 100.0)
    for rank in (1, 2):
        word = {"rank": rank, "state": "FAILED", "over": True, "nodes": "elsewhere"}
        with pytest.raises(EventError, match="`task`, which the supervisor"):
            planned_event(state.job("x-1").plan, "n1", "task", 101.0, seq=rank, **word)

    assert [(rank.node, rank.state) for rank in state.job("x-1").ranks] == [
        ("n1", "pending"),
        ("n2", "pending"),
    ]


class RefusingAgents:
    """A login node whose Slurm does not end the job: its agent answers with this row."""

    def __init__(self, left: dict[str, object]) -> None:
        self.answer = json.dumps({"left": [left], "ended": 0}).encode()

    async def call(
        self, node: str, command: tuple[str, ...], stdin: bytes = b"", *, limit: float
    ) -> ProgramResult:
        return ProgramResult(0, self.answer, b"")


@pytest.mark.parametrize(
    ("left", "refused"),
    [
        ({"pid": 0, "command": "Slurm ends it for its owner only", "refused": True}, "Slurm ends it for its owner only"),
        ({"pid": 0, "command": "refused: is only the name of a program"}, ""),
    ],
)  # fmt: skip
async def test_a_cancel_is_refused_by_a_field_of_the_answer_and_by_no_text(left, refused) -> None:
    backend = SlurmBackend(cast("Agents", RefusingAgents(left)))
    plan = backend.plan(CLUSTER, array("0"), "t-1")

    report = await backend.cancel(plan, 0.0)
    assert report.refused == refused
    assert [one.command for one in report.left] == [left["command"]]


def test_the_options_are_words_of_the_command_line_too(tmp_path) -> None:
    """Variables of the login (`SBATCH_PARTITION`) win over `#SBATCH`
    lines, not over the command line.
    """
    file = tmp_path / "job.yaml"
    file.write_text(
        "job: x\nlaunch: plain\ncommand: [a]\nslurm: {partition: gpu, args: ['--comment=a b']}\n"
    )
    (node,) = SlurmBackend(None).plan(CLUSTER, read_job(file), "x-1").nodes
    words = node.processes[0].argv

    assert (words[0], words[-1]) == ("sbatch", "job.sbatch")
    assert {"--partition=gpu", "--comment=a b", "--output=${RANKDECK_RUN}/launcher/out"} <= {*words}


@pytest.mark.parametrize(("asked", "given", "instead"), [
    ("{partition: gpu}", {"partition": "debug"}, [("partition", "gpu", "debug")]),
    ("{partition: 'gpu,debug'}", {"partition": "debug"}, []),
    ("{account: Mine, qos: low}", {"account": "mine", "qos": "high"}, [("qos", "low", "high")]),
    ("{time: '1-12'}", {"limit": 36 * 3600.0}, []),
    ("{time: '90'}", {"limit": 3600.0}, [("time", "90", "1 h 00 min")]),
    ("{time: '0:30:20'}", {"limit": 1860.0}, []),
    ("{}", {"partition": "debug", "account": "other"}, []),
])  # fmt: skip
def test_what_slurm_granted_instead_is_told(tmp_path, asked: str, given, instead) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"job: x\nlaunch: plain\ncommand: [a]\nslurm: {asked}\n")
    plan = SlurmBackend(None).plan(CLUSTER, read_job(file), "x-1")

    found = granted_instead(plan, QueueStatus(**given))

    assert [(one.option, one.asked, one.granted) for one in found] == instead


@pytest.mark.parametrize(("place", "tasks"), [
    ("48", ""), ("48_3", "48_3"), ("48_[2-5%2]", "48_[2-5]"), ("48_[0,7-9:2]", "48_[0,7-9:2]"),
])  # fmt: skip
def test_a_row_of_an_array_stands_for_its_own_tasks(place: str, tasks: str) -> None:
    (node,) = slurm_attach_plan(CLUSTER, SlurmLook(id="48", name="a"), place).nodes

    assert json.loads(node.files[0].text)["tasks"] == tasks


@pytest.mark.parametrize(("place", "parts", "tasks", "owner"), [
    ("", 0, 6, "Slurm job of ann, 6 tasks"), ("48_[2-5]", 0, 4, "Slurm job of ann"), ("", 2, 2, "Slurm job of ann, 2 components"),
    ("", 0, 1, "Slurm job of ann"),
])  # fmt: skip
def test_the_owner_of_a_job_comes_with_how_many_end_with_it(
    place: str, parts: int, tasks: int, owner: str
) -> None:
    seen = SlurmLook(id="48", user="ann", components=parts, tasks=tasks)

    assert slurm_attach_plan(CLUSTER, seen, place).owner == owner


def test_a_row_whose_tasks_slurm_has_cut_is_refused() -> None:
    with pytest.raises(LaunchError, match="Slurm cuts the list of its tasks"):
        slurm_attach_plan(CLUSTER, SlurmLook(id="48"), "48_[2-5,7,9,11,...]")


@pytest.mark.parametrize(
    ("own", "inside", "word"),
    [("/w", "", "--container-workdir=/w"), ("/w", "/in", "--container-workdir=/in"), ("", "", "")],
)
def test_a_jobs_folder_is_that_of_its_container_too(
    tmp_path, own: str, inside: str, word: str
) -> None:
    file = tmp_path / "job.yaml"
    rows = [f"workdir: {own}"] if own else []
    box = f"{{runtime: enroot, image: a.sqsh{f', workdir: {inside}' if inside else ''}}}"
    file.write_text("\n".join(["job: x", "launch: plain", "command: [a]", f"container: {box}", *rows]))  # fmt: skip
    plan = SlurmBackend(None).plan(CLUSTER, read_job(file), "x-1")

    (line,) = [one for one in plan.text.splitlines() if one.startswith("srun")]
    found = [part for part in line.split() if part.startswith("--container-workdir")]
    assert found == ([word] if word else [])
