"""Every word of a job reaches its program as one argument, whatever a shell would make of it."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from rankdeck import plugins
from rankdeck.backends.export import write_export
from rankdeck.backends.launchers import plan_job
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import Container, JobSpec, Launch, MpiOptions
from rankdeck.remote.shell import login_line
from rankdeck.schedulers.kubernetes.manifest import FOLDER, POD_SHIM, job_objects
from rankdeck.values import replace
from tests.integration.test_main_path import left_of
from tests.support.kubernetes.processes import expanded

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]
HOST = socket.gethostname()
"""The host name that mpirun recognizes as this machine, for which it starts no daemon."""
CLUSTER = Cluster(name="c", nodes=(Node(name=HOST, slots=1, address="127.0.0.1"),))
NASTY = (
    "$(touch X)", "`touch X`", "-rf", "--", "; touch X", "& touch X", "| cat", "> X", "a b", "", "'", '"', "it's",
    "\n", "l1\nl2\n", "\r\n", "\t", "\\", "\\n", "*", "~", "$HOME", "${HOME}", "%s", "#", "!", "é漢字😀", "EOF", "ON_n1",
    "=", "A=b", "--np", "-x", "@file", "{a,b}", "(", "\x0b", "\u2028", "\x1b[31m",
)  # fmt: skip
WORDS = st.sampled_from(NASTY) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=12
).filter(lambda text: "${RANKDECK" not in text and text != ":")
LIKE_ENDS = "Eé\nEOF\naé\nOù\nON_n1\n"
"""Lines that begin as a here-document of ours ends: dash loses a byte of their second character."""
RECORD = """#!/bin/sh
{ printf '%s\\0' "$@"; printf 'V=%s\\0' "$V"; } >"$0.said"
"""
SSH = """#!/bin/sh
# sshd gives the command line to the login shell of the user.
while [ "$1" != 127.0.0.1 ]; do shift; done
shift
exec sh -c "$*"
"""
ONE_NODE_IS_FULL = """#!/bin/sh
case "$*" in *127.0.0.2*) echo "mkdir: No space left on device" >&2; exit 1 ;; esac
while [ "$1" != 127.0.0.1 ]; do shift; done
shift
exec sh -c "$*"
"""
BOUNDED = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
REAL = settings(BOUNDED, max_examples=6, phases=(Phase.explicit, Phase.generate))


def spec_of(launch: Launch, command: Sequence[str], **more: object) -> JobSpec:
    spec = JobSpec(name="t", launch=launch, command=tuple(command), nodes=1)
    return replace(spec, ranks_per_node=0 if launch is Launch.TENSORFLOW else 1, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("flavour", ["openmpi5", "openmpi4", "mpich"])
@pytest.mark.parametrize("launch", Launch)
@BOUNDED
@given(words=st.lists(WORDS, max_size=5), value=WORDS)
def test_a_plan_has_the_command_word_for_word(
    launch: Launch, flavour: str, words: list[str], value: str
) -> None:
    spec = spec_of(launch, ["app", *words], env={"V": value})
    if launch is Launch.MPI:
        spec = replace(spec, mpi=MpiOptions(flavour=flavour))

    (node,) = plan_job(CLUSTER, spec, "t-1").nodes

    assert [p.argv[-1 - len(words) :] for p in node.processes] == [("app", *words)]
    assert node.env["V"] == value


def runs(folder: Path, script: str, tools: Mapping[str, str]) -> None:
    """Run a generated script with these programs first on PATH."""
    for name, text in tools.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-s"],
        input=script.encode(),
        env={**os.environ, "PATH": f"{folder}:{BIN}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(folder),
             "SLURM_JOB_ID": "1", "SLURM_NODEID": "0", "SLURM_JOB_NODELIST": "n1"},
        cwd=folder,
        capture_output=True,
        timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-2000:]


def heard(folder: Path) -> list[str]:
    """The arguments that the recording program got."""
    said = (folder / "record.said").read_bytes()
    return said.decode().split("\0")


@pytest.mark.left_out("plain", "torchrun")
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("launch", [Launch.PLAIN, Launch.MPI, Launch.TORCHRUN])
@REAL
@example(words=["x", "--log", "--n", "--"], value="v", text=LIKE_ENDS)
@given(words=st.lists(WORDS, min_size=1, max_size=12), value=WORDS, text=WORDS)
def test_a_real_launcher_gives_its_rank_every_byte(
    tmp_path: Path, launch: Launch, words: list[str], value: str, text: str
) -> None:
    program = {Launch.MPI: "mpirun", Launch.TORCHRUN: "torchrun"}.get(launch, "")
    if not (BIN / program).exists():
        pytest.skip(f"no {program} here")
    record = tmp_path / "record"
    spec = spec_of(launch, [str(record), *words], env={"V": value}, files={"its file": text})
    (tmp_path / "kept").mkdir(exist_ok=True)
    job = f"t-{tmp_path.name}"
    keep = 'cp "$RANKDECK_RUN/its file" "${0%/*}/kept/file"\n'

    runs(
        tmp_path,
        write_export(plan_job(CLUSTER, spec, job), CLUSTER),
        {"record": RECORD + keep, "ssh": SSH},
    )

    assert heard(tmp_path) == [*words, f"V={value}", ""]
    assert (tmp_path / "kept" / "file").read_bytes() == text.encode()
    assert not (tmp_path / "X").exists()


SRUN = """#!/bin/sh
# srun: leave out its options; the rest is the command.
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
"""


@pytest.mark.long
@pytest.mark.parametrize("launch", [Launch.PLAIN, Launch.MPI])
@BOUNDED
@example(words=["x"], value="v", text=LIKE_ENDS)
@given(words=st.lists(WORDS, min_size=1, max_size=8), value=WORDS, text=WORDS)
def test_a_batch_script_gives_its_command_every_byte(
    tmp_path: Path, launch: Launch, words: list[str], value: str, text: str
) -> None:
    cluster = replace(CLUSTER, backend="slurm")
    command = [str(tmp_path / "record"), *words]
    spec = spec_of(launch, command, env={"V": value}, files={"a folder/f": text})
    plan = plugins.find_plugin("backends", "slurm")(None).plan(cluster, spec, "t-1")

    runs(tmp_path, plan.text, {"record": RECORD, "srun": SRUN})

    assert heard(tmp_path) == [*words, f"V={value}", ""]
    laid = tmp_path / "rankdeck-t-1" / "a folder" / "f"
    assert laid.read_bytes() == text.encode()
    assert not (tmp_path / "X").exists()


@pytest.mark.long
@pytest.mark.parametrize("launch", Launch)
@pytest.mark.parametrize("name", [n for n in plugins.plugin_names("runtimes") if n != "none"])
@settings(BOUNDED, max_examples=8)
@given(words=st.lists(WORDS, max_size=4), value=WORDS, place=WORDS)
def test_a_container_runtime_gets_every_byte(
    tmp_path: Path, name: str, launch: Launch, words: list[str], value: str, place: str
) -> None:
    mount, workdir = f"/data{place}:/data", f"/w{place}"
    container = Container(
        image="img", runtime=name, mounts=(mount,), workdir=workdir, args=(place or "-",)
    )  # fmt: skip
    argv = plugins.find_plugin("runtimes", name)().wrap(
        ("app", *words), container, {"V": value}, launch
    )
    record = tmp_path / name
    record.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" >{tmp_path}/record.said\n")
    record.chmod(0o755)

    subprocess.run(
        argv,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "RANKDECK_RUN": str(tmp_path)},
        cwd=tmp_path,
        timeout=300,
        check=True,
    )

    said = heard(tmp_path)[:-1]
    assert said[len(said) - len(words) - 1 :] == ["app", *words]
    assert "img" in said
    assert any(word.endswith(mount) for word in said)
    assert any(word.endswith(workdir) for word in said)
    assert not (tmp_path / "X").exists()


SHELLS = [found for name in ("sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh")
          if (found := shutil.which(name))]  # fmt: skip
WORDS_ALONE = [
    "a\\b",
    "\\\\",
    "x\\",
    "\\'",
    "it's!",
    "a!b",
    "!!",
    "l1\nl2\n",
    "$HOME",
    "`id`",
    "%s",
    "\\0041",
    "",
]


@pytest.mark.long
@pytest.mark.parametrize("shell", SHELLS, ids=lambda path: Path(path).name)
@settings(BOUNDED, max_examples=15)
@given(words=st.lists(st.sampled_from(WORDS_ALONE) | WORDS, min_size=1, max_size=6))
def test_a_login_shell_gives_a_program_every_byte(shell: str, words: list[str]) -> None:
    line = login_line(["printf", "%s\\0", *words])

    done = subprocess.run([shell, "-c", line], capture_output=True, timeout=300, check=True)

    assert done.stdout.decode().split("\0") == [*words, ""]


def test_an_exported_script_says_which_node_takes_nothing_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    two = replace(CLUSTER, nodes=(*CLUSTER.nodes, Node(name="far", slots=1, address="127.0.0.2")))
    job = f"t-{tmp_path.name}"
    spec = replace(spec_of(Launch.PLAIN, ["true"]), nodes=2)
    script = tmp_path / "job.sh"
    script.write_text(write_export(plan_job(two, spec, job), two))
    (tmp_path / "ssh").write_text(ONE_NODE_IS_FULL)
    (tmp_path / "ssh").chmod(0o755)

    done = subprocess.run(
        ["sh", str(script)], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, timeout=300,
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert f"far: the folder /tmp/rankdeck.{job} could not be made" in done.stderr
    assert not Path(f"/tmp/rankdeck.{job}").exists()


def test_what_mpirun_asks_for_waits_until_the_exported_script_reads_it(tmp_path: Path) -> None:
    two = replace(CLUSTER, nodes=(*CLUSTER.nodes, Node(name="far", slots=1, address="127.0.0.2")))
    spec = replace(spec_of(Launch.MPI, ["true"]), nodes=2)
    text = write_export(plan_job(two, spec, "t-1"), two)
    agent = tmp_path / "launch-agent"
    said = text.partition("cat > launch-agent <<'EOF'\n")[2].partition("\nEOF\n")[0]
    agent.write_text(said.replace("/tmp/rankdeck.t-1", str(tmp_path)))
    os.mkfifo(tmp_path / "spawn")

    with subprocess.Popen(["sh", agent, "-x", "root@far", "prted", "--leave"]) as asks:
        with pytest.raises(subprocess.TimeoutExpired):
            asks.wait(0.3)
        line = (tmp_path / "spawn").read_text()

    assert (line, asks.returncode) == ("far prted --leave\n", 0)


WAITS = "echo here; sleep 300"
STARTS_ANOTHER = "trap 'setsid sleep 300 & exit' TERM; echo here; while :; do sleep 0.2; done"
TAKES_NO_TERM = "trap '' TERM; echo here; sleep 300"
ENDED = [
    *((shell, WAITS) for shell in SHELLS),
    (SHELLS[0], STARTS_ANOTHER),
    (SHELLS[0], TAKES_NO_TERM),
]


@pytest.mark.left_out("/usr/bin/bash-*", "/usr/bin/sh-*")
@pytest.mark.long
@pytest.mark.parametrize(("shell", "program"), ENDED)
def test_an_exported_script_starts_and_ends_its_ranks_through_any_login_shell(
    tmp_path: Path, shell: str, program: str
) -> None:
    job = f"t-{tmp_path.name}"
    spec = spec_of(Launch.PLAIN, ["sh", "-c", program], env={"V": "it's!"})
    script = tmp_path / "job.sh"
    script.write_text(write_export(plan_job(CLUSTER, spec, job), CLUSTER))
    (tmp_path / "ssh").write_text(SSH.replace("exec sh", f"exec {shell}"))
    (tmp_path / "ssh").chmod(0o755)

    with subprocess.Popen(
        ["sh", str(script)], env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.terminate()
        # It looks through all processes in a shell, which takes long on a busy machine.
        assert process.wait(180) == 130

    assert left_of(job) == []
    assert not Path(f"/tmp/rankdeck.{job}").exists()


# ---- Kubernetes -------------------------------------------------------------------------


def workload(launch: Launch, words: Sequence[str], value: str) -> dict[str, Any]:
    """The Job or MPIJob of one rank."""
    image = Container(image="i:1")
    spec = spec_of(launch, words, env={"V": value}, container=image)
    return job_objects(replace(CLUSTER, backend="kubernetes"), spec, "t-1")[-1]


def container_env(container: Mapping[str, Any]) -> dict[str, str]:
    """The variables, each filled in from those before it."""
    env: dict[str, str] = {}
    for row in container["env"]:
        if "value" in row:  # the kubelet sets the others
            env[row["name"]] = expanded(row["value"], env)
    return env


@settings(deadline=None)
@given(words=st.lists(WORDS | st.sampled_from(["$(V)", "$$(V)", "$$"]), max_size=5), value=WORDS)
def test_an_mpi_rank_gets_every_word(words: list[str], value: str) -> None:
    job = workload(Launch.MPI, ["app", *words], value)
    (launcher,) = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    env = container_env(launcher)

    assert [expanded(word, env) for word in launcher["command"]][-1 - len(words) :] == [
        "app",
        *words,
    ]
    assert env["V"] == value


@pytest.mark.long
@pytest.mark.parametrize("launch", [Launch.PLAIN, Launch.TENSORFLOW, Launch.TORCHRUN])
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    words=st.lists(WORDS | st.sampled_from([*NASTY, "$(V)", "$$"]), min_size=1, max_size=8),
    value=WORDS,
)
def test_a_rank_of_an_indexed_job_gets_every_word(
    tmp_path: Path, launch: Launch, words: list[str], value: str
) -> None:
    record = tmp_path / "record"
    job = workload(launch, [str(record), *words], value)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    env = container_env(container)
    torchrun = '#!/bin/sh\nwhile [ "$1" != sh ]; do shift; done\nexec "$@"\n'
    for name, text in (("record", RECORD), ("torchrun", torchrun), ("rank-shim", POD_SHIM)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    subprocess.run(
        [expanded(word, env).replace(FOLDER, str(tmp_path)) for word in container["command"]],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", **env, "JOB_COMPLETION_INDEX": "0"},
        timeout=300,
        check=True,
    )

    assert heard(tmp_path) == [*words, f"V={value}", ""]
