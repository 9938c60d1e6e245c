"""The rootless lab itself: what the other slow tests stand on."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from tests.support import processes
from tests.support.lab import Lab, missing
from tests.support.lab.rootless import REPOSITORY
from tests.support.polling import eventually

pytestmark = pytest.mark.slow


def test_every_node_has_its_own_name_and_the_same_user(lab: Lab) -> None:
    answers = [lab.ssh(node, "hostname; id -un; echo $HOME") for node in lab.nodes]

    assert [answer.stdout.split() for answer in answers] == [
        [node, "lab", "/run/home"] for node in lab.nodes
    ]


def test_the_head_is_an_ordinary_user_on_the_lab_network(lab: Lab) -> None:
    said = lab.enter(["sh", "-c", "id -un; hostname; ip -br addr show br0"]).stdout

    assert said.split()[:2] == ["lab", "head"]
    assert "10.78.0.1/24" in said


def test_tmp_and_home_belong_to_one_node_and_shared_to_all(lab: Lab) -> None:
    lab.ssh("n1", f"touch /tmp/mine ~/mine {lab.shared}/ours")

    there = lab.ssh("n2", f"ls /tmp/mine ~/mine {lab.shared}/ours").stdout.split()
    assert there == [f"{lab.shared}/ours"]


def test_nodes_see_the_interpreter_of_the_tests(lab: Lab) -> None:
    said = lab.ssh("n1", f"{sys.executable} -c 'import yaml; print(42)'")

    assert said.stdout == "42\n", said.stderr


def test_what_runs_on_the_head_ends_with_what_entered_it(lab: Lab) -> None:
    mark = f"60.{time.time_ns() % 10**9:09}"
    entered = subprocess.Popen(
        lab.command(["sh", "-c", f"trap '' TERM; echo up; sleep {mark}; :"]),
        env=lab.environment(),
        stdout=subprocess.PIPE,
    )
    assert entered.stdout
    assert entered.stdout.readline() == b"up\n"
    (inside,) = processes.children(entered.pid)

    entered.kill()
    entered.wait(60)

    assert eventually(lambda: not processes.exists(inside))


def test_processes_are_counted_per_node_and_by_marker(lab: Lab) -> None:
    lab.ssh("n1", "RANKDECK_JOB=counted setsid sleep 60 >/dev/null 2>&1 </dev/null &")

    assert lab.processes("n1", "RANKDECK_JOB=counted") == 1
    assert lab.processes("n2", "RANKDECK_JOB=counted") == 0
    lab.ssh("n1", "pkill sleep")
    assert eventually(lambda: lab.processes("n1", "RANKDECK_JOB=counted") == 0)


def test_a_cut_node_is_silent_until_it_is_mended(lab: Lab) -> None:
    lab.cut("n2")

    assert lab.ssh("n2", "true").returncode == 255
    assert lab.ssh("n3", "true").returncode == 0
    lab.mend("n2")
    assert eventually(lambda: lab.ssh("n2", "true").returncode == 0)


def test_a_crashed_node_loses_its_processes_and_boots_again(lab: Lab) -> None:
    lab.ssh("n3", "touch ~/kept; MARK=crash setsid sleep 60 >/dev/null 2>&1 </dev/null &")
    assert lab.processes("n3", "MARK=crash") == 1

    lab.crash("n3")

    assert lab.processes("n3", "MARK=crash") == 0
    assert "refused" in lab.ssh("n3", "true").stderr
    lab.boot("n3")
    assert lab.ssh("n3", "ls ~").stdout == "kept\n"


def test_the_cluster_file_names_every_node(lab: Lab) -> None:
    content = yaml.safe_load(lab.cluster_file(slots=3, simulate=["gpu"]).read_text())

    assert [(node["name"], node["slots"]) for node in content["nodes"]] == [
        ("n1", 3),
        ("n2", 3),
        ("n3", 3),
    ]
    assert content["simulate"] == ["gpu"]
    assert Path(content["ssh"]["identity"]).exists()


def test_our_command_line_runs_on_the_head(lab: Lab) -> None:
    said = lab.rankdeck("--help")

    assert said.returncode == 0, said.stderr
    assert "rankdeck" in said.stdout


def test_mpirun_crosses_the_nodes_over_real_ssh(lab: Lab) -> None:
    mpirun = "/usr/bin/mpirun"
    if not Path(mpirun).exists():
        pytest.skip("needs mpirun (openmpi-bin)")
    rsh = f"--mca plm_rsh_args '-F {lab.ssh_config}'"
    only = "--mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0"

    said = lab.ssh("n1", f"{mpirun} {rsh} {only} --host n1:1,n2:1 hostname", limit=50)

    assert sorted(said.stdout.split()) == ["n1", "n2"], said.stderr


def test_a_lab_comes_and_goes_without_a_trace(tmp_path: Path) -> None:
    why = missing()
    if why:
        pytest.skip(why)
    one = Lab(tmp_path, count=2)
    one.up()

    one.down()

    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(tmp_path) not in running.stdout


def test_a_lab_ends_with_a_tester_that_is_killed(tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(why)
    program = (
        "import sys; from pathlib import Path; from tests.support.lab import Lab\n"
        "lab = Lab(Path(sys.argv[1])); lab.up()\n"
        "print(*(lab.first_process(n) for n in lab.nodes), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY,
    ) as tester:  # fmt: skip
        assert tester.stdout is not None
        first = [int(pid) for pid in tester.stdout.readline().split()]
        assert len(first) == 3
        assert all(processes.exists(pid) for pid in first)
        tester.kill()

    assert eventually(lambda: not any(processes.exists(pid) for pid in first))
