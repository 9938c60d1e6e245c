"""Plans: which ranks go where, what is refused, and what waits for the node."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.backends.free_port import with_port
from rankdeck.backends.launchers import plan_job
from rankdeck.backends.plan_text import write_plan
from rankdeck.backends.shell_words import at_run_time, shell_line
from rankdeck.errors import LaunchError
from rankdeck.model.cluster import Access, Cluster, Node
from rankdeck.model.job_spec import JobSpec, Launch, MpiOptions, TorchOptions
from rankdeck.values import replace

CLUSTER = Cluster(
    name="lab",
    nodes=(
        Node(name="a", slots=4, address="10.0.0.1", interface="eth0"),
        Node(name="b", slots=2),
    ),
)
SPEC = JobSpec(name="t", launch=Launch.MPI, command=("app",), nodes=2)


def refusal(spec: JobSpec, cluster: Cluster = CLUSTER) -> str:
    with pytest.raises(LaunchError) as caught:
        plan_job(cluster, spec, "t-1")
    assert caught.value.stage == "plan"
    return str(caught.value)


def test_ranks_are_numbered_node_by_node() -> None:
    plan = plan_job(CLUSTER, SPEC, "t-1")

    assert [(n.node, n.ranks) for n in plan.nodes] == [
        ("a", (0, 1, 2, 3)),
        ("b", (4, 5)),
    ]
    assert plan.world_size == 6
    assert "--map-by slot" in " ".join(plan.nodes[0].processes[0].argv)


def test_named_nodes_are_used_in_the_order_given() -> None:
    plan = plan_job(CLUSTER, replace(SPEC, on=("b", "a"), ranks_per_node=2), "t-1")

    assert [n.node for n in plan.nodes] == ["b", "a"]


def test_too_many_ranks_are_refused_with_numbers() -> None:
    assert refusal(replace(SPEC, ranks_per_node=3)).startswith(
        "3 ranks do not fit on `b`: it has 2 slots"
    )


def test_too_many_nodes_are_refused_with_numbers() -> None:
    text = refusal(replace(SPEC, nodes=3))

    assert text == "job `t` wants 3 nodes; cluster `lab` has 2 (a,b)"


def test_an_unknown_node_is_named_with_a_guess() -> None:
    cluster = Cluster(name="lab", nodes=(Node(name="sakura"),))

    assert "did you mean `sakura`?" in refusal(replace(SPEC, on=("sakra",)), cluster)


def test_classic_ssh_is_refused_where_nodes_share_an_address() -> None:
    nodes = (Node(name="a", address="127.0.0.1"), Node(name="b", address="127.0.0.1"))
    spec = replace(SPEC, mpi=MpiOptions(launcher="ssh"))

    assert "both are at 127.0.0.1" in refusal(spec, Cluster(name="c", nodes=nodes))


def test_classic_ssh_uses_the_port_and_the_user() -> None:
    nodes = (Node(name="a", port=2222), Node(name="b", port=2222))
    cluster = Cluster(name="c", nodes=nodes, access=Access(user="op"))
    argv = plan_job(cluster, replace(SPEC, mpi=MpiOptions(launcher="ssh")), "t-1").nodes[0]

    assert "ssh -o BatchMode=yes -p 2222 -l op" in argv.processes[0].argv


def test_variables_that_name_the_run_folder_stay_each_nodes_own() -> None:
    spec = replace(SPEC, env={"A": "1", "HERE": "${RANKDECK_RUN}/x"})
    argv = plan_job(CLUSTER, spec, "t-1").nodes[0].processes[0].argv
    forwarded = [argv[i + 1] for i, word in enumerate(argv) if word == "-x"]

    assert "A" in forwarded
    assert not {"HERE", "RANKDECK_RUN", "RANKDECK_NODE"} & set(forwarded)


def test_a_folder_that_moves_is_entered_by_the_rank() -> None:
    argv = plan_job(CLUSTER, replace(SPEC, workdir="~/x y"), "t-1").nodes[0].processes[0].argv

    assert argv[-1] == """cd "$HOME"'/x y' && exec app"""
    assert "-wdir" not in argv


@pytest.mark.parametrize("home", ["~", "~/"])
def test_the_home_folder_itself_is_entered_by_the_rank(home: str) -> None:
    plan = plan_job(CLUSTER, replace(SPEC, workdir=home), "t-1")

    assert plan.nodes[0].processes[0].argv[-1] == """cd "$HOME" && exec app"""


def test_a_free_port_is_asked_for_only_where_one_is_needed() -> None:
    torch = replace(SPEC, launch=Launch.TORCHRUN)

    assert plan_job(CLUSTER, torch, "t-1").port_on == "a"
    assert plan_job(CLUSTER, replace(torch, torch=TorchOptions(port=29500)), "t-1").port_on == ""
    assert plan_job(CLUSTER, SPEC, "t-1").port_on == ""


def test_the_port_is_filled_in_everywhere() -> None:
    plan = with_port(plan_job(CLUSTER, replace(SPEC, launch=Launch.TORCHRUN), "t-1"), 4711)

    assert "RANKDECK_PORT" not in write_plan(plan)
    assert all("--master-port=4711" in node.processes[0].argv for node in plan.nodes)


def test_workers_at_one_address_get_ports_of_their_own() -> None:
    nodes = (Node(name="a", address="127.0.0.1"), Node(name="b", address="127.0.0.1"))
    spec = replace(SPEC, launch=Launch.TENSORFLOW)
    plan = with_port(plan_job(Cluster(name="c", nodes=nodes), spec, "t-1"), 5000)

    assert '"127.0.0.1:5000", "127.0.0.1:5001"' in plan.nodes[1].processes[0].env["TF_CONFIG"]


def test_only_a_nodes_own_interface_is_given_to_it() -> None:
    first, second = plan_job(CLUSTER, replace(SPEC, launch=Launch.TORCHRUN), "t-1").nodes

    assert first.env["GLOO_SOCKET_IFNAME"] == "eth0"
    assert "GLOO_SOCKET_IFNAME" not in second.env


def test_plain_ranks_know_their_numbers() -> None:
    plan = plan_job(CLUSTER, replace(SPEC, launch=Launch.PLAIN), "t-1")
    env = plan.nodes[1].processes[1].env

    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"]) == ("5", "6", "1")


def test_a_python_script_is_started_unbuffered_by_torchrun() -> None:
    spec = replace(SPEC, launch=Launch.TORCHRUN, command=("train.py", "--x"))
    argv = plan_job(CLUSTER, spec, "t-1").nodes[0].processes[0].argv

    assert argv[-7:] == (
        "--no-python",
        "--",
        "${RANKDECK_RUN}/rank-shim",
        "python3",
        "-u",
        "train.py",
        "--x",
    )


WORDS = st.lists(st.text(st.characters(exclude_characters="\0\n\r", codec="utf-8")), max_size=4)


@given(WORDS)
def test_a_rendered_command_is_read_back_by_sh_word_for_word(words: list[str]) -> None:
    line = "printf '%s\\n' " + shell_line(["begin", *words])
    out = subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout

    assert out.decode().split("\n")[1:-1] == words


@given(WORDS)
def test_the_run_folder_is_found_where_the_rank_runs(words: list[str]) -> None:
    argv = at_run_time(["printf", "%s\\n", "${RANKDECK_RUN}/x", *words])
    env = {"RANKDECK_RUN": "/a b'c", "PATH": "/usr/bin:/bin"}
    out = subprocess.run(argv, env=env, capture_output=True, check=True).stdout

    assert out.decode().split("\n")[:-1] == ["/a b'c/x", *words]


def test_the_text_of_a_plan_is_a_script() -> None:
    for launch in Launch:
        spec = replace(SPEC, launch=launch, files={"f": "EOF\n$x ${RANKDECK_RUN}\n"})
        text = write_plan(plan_job(CLUSTER, spec, "t-1"))
        assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
