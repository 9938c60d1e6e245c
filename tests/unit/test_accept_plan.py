"""Before a run: who takes part, with which recipes, what it will do;
and what one node says of itself.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rankdeck.acceptance.gate import (
    PROGRAM,
    Admitted,
    Identity,
    Network,
    OutsideFacts,
    admit_nodes,
    job_address,
    kept_by_scheduler,
    read_identity,
)
from rankdeck.acceptance.planning import (
    LEAF,
    Participants,
    choose_recipes,
    fabric_of,
    plan_run,
    rails_of,
)
from rankdeck.acceptance.recipe import Endpoints, HardwareFacts
from rankdeck.acceptance.recipes import node_program_text
from rankdeck.acceptance.recipes.facts import cpu_heat, nccl
from rankdeck.acceptance.run import Request, RunPlan, acceptance_plan_json, read_plan
from rankdeck.acceptance.schedule import next_groups
from rankdeck.acceptance.values import Answer, Outcome, Result, Stage
from rankdeck.acceptance.view import judge_results
from rankdeck.acceptance.work import (
    FILE,
    MARK,
    Setup,
    Step,
    Work,
    by_side,
    command_lines,
    find_recipe,
    known_of,
    never_began,
    pair_script,
    results_of,
    spec_of,
    step_outputs,
)
from rankdeck.backends.launchers import choose_nodes, exclude_nodes, place_job
from rankdeck.errors import LaunchError, RankdeckError
from rankdeck.model.cluster import Access, Cluster, Node
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.schedulers.slurm.node import SlurmNode
from rankdeck.values import replace

NODES = ("n1", "n2", "n3", "n4")
CLUSTER = Cluster(
    name="c",
    nodes=tuple(Node(name=name, address=f"10.0.0.{place}") for place, name in enumerate(NODES, 1)),
)
TCP = frozenset({"iperf3", "mpirun", "module:mpi4py", "stress-ng"})


def node(name: str, **more: object) -> Identity:
    values = {
        "hostname": name,
        "machine": f"m-{name}",
        "boot": f"b-{name}",
        "busy": 0.1,
        "has": TCP,
        **more,
    }
    return Identity(**values)  # type: ignore[arg-type]


SAID = {name: node(name) for name in NODES}


def admitted(
    said: dict[str, Identity], around: OutsideFacts | None = None, include: tuple[str, ...] = ()
) -> Admitted:
    return admit_nodes(CLUSTER, NODES, said, around or OutsideFacts(), include)


def test_what_a_node_says_of_itself_is_read() -> None:
    question = json.dumps(
        {"programs": ["sh", "no-such-program"], "modules": ["json"], "mpirun": "no-mpirun"}
    )
    done = subprocess.run(
        [sys.executable, "-c", node_program_text(PROGRAM), question],
        capture_output=True,
        timeout=30,
        check=True,
    )

    one = read_identity(b"welcome\n" + done.stdout)

    assert one is not None
    assert one.has == {"sh", "module:json"}
    assert one.facts["kernel"]
    assert one.busy is not None
    assert read_identity(b"#rankdeck-facts [1]") is None
    assert read_identity(b'#rankdeck-facts {"gpu": 7, "networks": [], "busy": "x"}') is not None


@pytest.mark.parametrize(
    ("changed", "around", "why"),
    [
        ({"busy": 0.9}, OutsideFacts(), "busy: 90 % of its cores are in use"),
        ({"gpu_pids": ("12", "13")}, OutsideFacts(), "busy: 2 processes on its GPUs (pid 12, 13)"),
        ({}, OutsideFacts(jobs={"n2": "himeno-1"}), "busy: himeno-1 runs there"),
        ({}, OutsideFacts(bad={"n2": "a GPU is gone"}), "bad: a GPU is gone; mend it, or acknowledge it"),
        ({}, OutsideFacts(away={"n2": "no answer: timed out"}), "no answer: timed out"),
        ({"heat": ("GPU 3 at 91 °C",)}, OutsideFacts(), "too hot: GPU 3 at 91 °C; it would be slow now: let it cool, look at fans and inlet air"),
        ({"machine": "m-n1"}, OutsideFacts(), "it is the same machine as n1 (it says it is n2): one of the two names leads to the wrong address"),
    ],
)  # fmt: skip
def test_who_takes_no_part_is_named_with_the_reason(changed, around, why) -> None:
    found = admitted({**SAID, "n2": node("n2", **changed)}, around)

    assert found.left_out == {"n2": why}
    assert found.nodes == ("n1", "n3", "n4")


def test_a_busy_node_takes_part_if_it_is_named_and_load_of_a_scheduler_is_ours() -> None:
    busy = {**SAID, "n2": node("n2", busy=0.9)}

    assert admitted(busy, include=("n2",)).nodes == NODES
    assert admitted(busy, OutsideFacts(scheduled=True)).nodes == NODES


def test_a_hot_node_takes_part_if_it_is_named_and_is_left_out_also_where_a_scheduler_gives_it() -> (
    None
):
    hot = {**SAID, "n2": node("n2", heat=("CPU at 97 °C",))}

    assert admitted(hot, include=("n2",)).nodes == NODES
    assert list(admitted(hot, OutsideFacts(scheduled=True)).left_out) == ["n2"]


SLURM = {
    "n1": SlurmNode(state="idle"),
    "n2": SlurmNode(state="drained", reason="bad cable", by="root"),
    "n3": SlurmNode(state="down", also=("not responding",)),
    "n4": SlurmNode(state="allocated", jobs=("4711 alice",)),
    "n5": SlurmNode(state="idle", also=("not responding",)),
    "n6": SlurmNode(state=""),
    "n7": SlurmNode(state="mixed"),
    "n8": SlurmNode(state="drng", jobs=("4712 bob",)),
    "n9": SlurmNode(state="maint"),
    "n10": SlurmNode(state="reboot", also=("rebooting",)),
}


def test_nodes_that_slurm_would_not_give_us_are_left_out_by_name() -> None:
    assert kept_by_scheduler(SLURM) == {
        "n2": "drained in Slurm: bad cable, by root",
        "n3": "down, not responding in Slurm",
        "n4": "busy: allocated in Slurm (4711 alice)",
        "n5": "idle, not responding in Slurm: its slurmd does not answer",
        "n6": "Slurm has no such node",
        "n7": "busy: mixed in Slurm",
        "n8": "drng in Slurm",
        "n9": "busy: maint in Slurm",
        "n10": "reboot, rebooting in Slurm: it gets no jobs for now",
    }
    # Our jobs may wait for a node that is used; for one that is drained they would wait for ever.
    assert set(SLURM) - set(kept_by_scheduler(SLURM, tuple(SLURM))) == {
        "n1",
        "n4",
        "n7",
        "n9",
        "n10",
    }


def test_an_excluded_node_is_measured_and_that_is_said() -> None:
    found = admitted(SAID, OutsideFacts(excluded={"n3": "excluded until tomorrow: its cable"}))

    assert found.nodes == NODES
    assert found.notes == ("n3 is excluded until tomorrow: its cable",)


def chosen(has: frozenset[str], **more: object) -> dict[Stage, list[str]]:
    said = {name: node(name, has=has) for name in NODES}
    found: dict[Stage, list[str]] = {}
    for one in choose_recipes(NODES, said, **{"virtual": False, "gbps": 1.0, **more}):  # type: ignore[arg-type]
        found.setdefault(one.stage, []).append(one.recipe)
    return found


def test_recipes_are_what_every_node_has() -> None:
    assert chosen(TCP) == {
        Stage.SINGLE: ["stress-ng"],
        Stage.PAIRS: ["iperf3"],
        Stage.GROUPS: ["mpi4py.bench"],
    }
    assert chosen(TCP, gbps=100.0)[Stage.PAIRS] == ["mpi4py.bench"]
    assert chosen(TCP, virtual=True) == {
        Stage.SINGLE: [""],
        Stage.PAIRS: ["mpi4py.bench"],
        Stage.GROUPS: ["mpi4py.bench"],
    }
    gpus = TCP | {"gpu:nvidia", "all_reduce_perf", "rdma", "ib_write_bw", "dcgmi"}
    assert chosen(gpus) == {
        Stage.SINGLE: ["dcgmi", "stress-ng"], Stage.PAIRS: ["ib_write_bw", "nccl-tests"], Stage.GROUPS: ["nccl-tests"],
    }  # fmt: skip
    assert chosen(TCP | {"stream_c.exe"})[Stage.SINGLE] == ["stress-ng", "stream"]
    assert chosen(gpus, gpus=8, virtual=True)[Stage.SINGLE] == ["dcgmi", ""]
    assert chosen(gpus, gpus=8)[Stage.SINGLE] == ["dcgmi", "nccl-tests", "stress-ng"]


EIGHT_GPUS = {
    name: node(
        name, has=TCP | {"gpu:nvidia", "all_reduce_perf"}, gpu="nvidia", gpus=8, facts={"gpu name": "NVIDIA A100-SXM4-80GB"},
        rdma={f"mlx5_{port}": 200.0 for port in range(8)} | {"mlx5_8": 100.0},
    )
    for name in NODES
}  # fmt: skip


def gpu_plan(slots: int) -> RunPlan:
    nodes = tuple(replace(one, slots=slots) for one in CLUSTER.nodes)
    setup = Setup(cluster=replace(CLUSTER, nodes=nodes), gpus=dict.fromkeys(NODES, 8), rdma_gbps=200.0)  # fmt: skip
    parts = Participants(admitted=admitted(EIGHT_GPUS), identities=EIGHT_GPUS, setup=setup, leaves={}, seed=5)  # fmt: skip
    return plan_run(Request(), parts)


def test_gpus_of_a_node_are_measured_with_each_other_before_the_pairs() -> None:
    plan = gpu_plan(8)

    alone = [one.recipe for one in plan.stages if one.stage is Stage.SINGLE]
    assert alone == ["nccl-tests", "stress-ng"]
    assert (plan.gpu, plan.gpus, plan.node_gbps) == ("NVIDIA A100-SXM4-80GB", 8, 1600.0)
    work = Work(stage=Stage.SINGLE, recipe="nccl-tests", nodes=("n1",), runs=(("n1", "", 0, 0),))
    like = JobSpec(name="train", command=("train",), launch=Launch.MPI, ranks_per_node=2)
    nodes = tuple(replace(one, slots=8) for one in CLUSTER.nodes)
    setup = Setup(cluster=replace(CLUSTER, nodes=nodes), gpus={"n1": 8}, like=like)
    assert spec_of(work, setup).ranks_per_node == 8
    assert ", GPUs full for about " in plan.notes[-1]
    assert read_plan(acceptance_plan_json(plan)) == plan


def test_gpus_for_which_the_cluster_file_has_no_slots_are_named() -> None:
    plan = gpu_plan(1)

    assert "n[1-4]: 1 of 8 GPUs take part, because `slots:` of the cluster file is 1" in plan.notes
    assert [one.recipe for one in plan.stages if one.stage is Stage.SINGLE] == ["stress-ng"]


def of_gpus(stage: Stage, value: float, sender: str, receiver: str = "") -> Result:
    return Result(
        stage=stage, recipe="nccl-tests", sender=sender, receiver=receiver, outcome=Outcome.MEASURED, value=value, unit="GB/s",
    )  # fmt: skip


def test_gpus_that_are_slow_on_every_node_alike_are_slow() -> None:
    results = [of_gpus(Stage.SINGLE, 120.0, name) for name in NODES]

    found = judge_results(gpu_plan(8), results, {}, {})

    assert found.answers == dict.fromkeys(NODES, Answer.SLOW)
    assert found.verdicts[0].sentence.startswith(
        "n1 alone reaches 120 GB/s of nccl-tests (one direction of NVLink carries 300): look at NVLink"
    )
    fine = judge_results(
        gpu_plan(8), [of_gpus(Stage.SINGLE, 231.0, name) for name in NODES], {}, {}
    )
    assert fine.verdicts == ()


def test_one_node_whose_gpus_are_slower_with_each_other_is_named() -> None:
    results = [of_gpus(Stage.SINGLE, 180.0 if name == "n3" else 235.0, name) for name in NODES]

    (verdict,) = judge_results(gpu_plan(8), results, {}, {}).verdicts

    assert verdict.sentence == (
        "n3 alone reaches 180 GB/s of nccl-tests (others 235): the links between its GPUs, their clocks or their power"
    )


@pytest.mark.parametrize(
    ("value", "gbps", "said"),
    [
        (180.0, 1600.0, ""),
        (60.0, 1600.0, "32 % of the 185 that OCI asks of A100 across nodes"),
        (38.0, 400.0, ""),
        (20.0, 400.0, "40 % of the 50 that the ports of a node carry (400 Gb/s together)"),
    ],
)
def test_collectives_that_are_slow_everywhere_are_configuration(
    value: float, gbps: float, said: str
) -> None:
    plan = replace(gpu_plan(8), node_gbps=gbps)
    pairs = [(a, b) for a in NODES for b in NODES if a < b]

    found = judge_results(plan, [of_gpus(Stage.PAIRS, value, a, b) for a, b in pairs], {}, {})

    assert [said in one.sentence for one in found.verdicts] == ([True] if said else [])


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize(
    ("value", "said"),
    [(40.0, "43 % of the 92.56 that a 100 Gb/s link carries even at MTU 1024"), (92.0, "")],
)
def test_rdma_that_is_slow_everywhere_is_configuration(count: int, value: float, said: str) -> None:
    """Nodes do not say the MTU of an RDMA path, and each of these has one GPU behind its port."""
    names = NODES[:count]
    kinds = TCP | {"rdma", "ib_write_bw", "gpu:nvidia"}
    nodes = {name: node(name, has=kinds, gpus=1, rdma={"mlx5_0": 100.0}) for name in names}
    setup = Setup(cluster=CLUSTER, gpus=dict.fromkeys(names, 1), rdma_gbps=100.0)
    parts = Participants(admitted=admitted(nodes), identities=nodes, setup=setup, leaves={}, seed=5)
    results = [
        replace(of_gpus(Stage.PAIRS, value, a, b), recipe="ib_write_bw", unit="Gb/s")
        for a in names for b in names if a != b
    ]  # fmt: skip

    plan = plan_run(Request(), parts)
    found = judge_results(plan, results, {}, {})

    assert plan.gpus == 1
    assert [said in one.sentence for one in found.verdicts] == ([True] if said else [])


def test_where_nothing_can_be_run_the_plan_says_who_lacks_what() -> None:
    said = {**SAID, "n3": node("n3", has=frozenset())}

    (why,) = [
        one.why
        for one in choose_recipes(NODES, said, virtual=False, gbps=1.0)
        if one.stage is Stage.PAIRS
    ]

    assert why == "no recipe that every node can run: n3 lacks iperf3"


def test_a_recipe_that_was_asked_for_and_is_not_everywhere_is_said_by_node() -> None:
    said = {name: node(name, has=frozenset({"mpirun", "hpcc"})) for name in NODES}
    said |= {name: node(name, has=frozenset({"mpirun"})) for name in ("n2", "n3")}
    parts = Participants(
        admitted=admitted(said), identities=said, setup=Setup(cluster=CLUSTER), leaves={}, seed=5
    )

    plan = plan_run(Request(recipes=("hpcc", "imb")), parts)

    assert [one for one in plan.notes if "lack" in one] == [
        "n[2-3] lack hpcc: not measured there",
        "n[1-4] lack IMB-MPI1 for imb: not measured there",
    ]


def test_a_measurement_takes_the_mpi_that_is_there() -> None:
    work = Work(stage=Stage.SINGLE, recipe="hpcc", nodes=("n1",), runs=(("n1", "", 0, 0),))

    assert spec_of(work, Setup(cluster=CLUSTER)).mpi.detect


def test_the_plan_says_rounds_minutes_bytes_and_commands_and_comes_back_from_disk() -> None:
    setup = Setup(cluster=CLUSTER, known=HardwareFacts(link_gbps=1.0), addresses={"n2": "10.9.0.2"})
    plan = plan_run(
        Request(),
        Participants(admitted=admitted(SAID), identities=SAID, setup=setup, leaves={}, seed=5),
    )

    pairs = next(one for one in plan.stages if one.stage is Stage.PAIRS)
    assert (pairs.recipe, pairs.rounds, pairs.tests, pairs.bytes) == (
        "iperf3",
        3,
        24,
        12_000_000_000,
    )
    assert any("iperf3 -c" in line for line in pairs.commands)
    assert plan.notes[-1].startswith("4 of 4 nodes, 5 rounds, about ")
    assert plan.notes[-1].endswith("; nothing is written to disks")
    assert read_plan(acceptance_plan_json(plan)) == plan


def test_only_and_from_leave_stages_out() -> None:
    participants = Participants(
        admitted=admitted(SAID), identities=SAID, setup=Setup(cluster=CLUSTER), leaves={}, seed=5
    )

    def stages(request: Request) -> list[Stage]:
        return [one.stage for one in plan_run(request, participants).stages][2:]

    assert stages(Request(only=(Stage.PAIRS,))) == [Stage.PAIRS]
    assert stages(Request(begin=Stage.GROUPS)) == [Stage.GROUPS]
    assert Stage.SOAK not in stages(Request())
    assert stages(Request(soak=60.0))[-1] is Stage.SOAK


def test_a_run_that_measures_nothing_says_why() -> None:
    nodes, cluster = NODES[:3], replace(CLUSTER, nodes=CLUSTER.nodes[:3])
    said = {name: SAID[name] for name in nodes}
    parts = Participants(
        admitted=admit_nodes(cluster, nodes, said, OutsideFacts(), ()),
        identities=said, setup=Setup(cluster=cluster), leaves={}, seed=5,
    )  # fmt: skip

    def notes(request: Request) -> tuple[str, ...]:
        return judge_results(plan_run(request, parts), [], {}, {}).notes

    assert notes(Request(begin=Stage.GROUPS)) == (
        "groups not measured: fewer than four nodes: the pairs are all there is",
    )
    assert not any("groups not measured" in note for note in notes(Request()))
    needs = "not measured: it needs pairs of the same run: ask for `pairs` too"
    assert notes(Request(only=LEAF)) == (f"inside {needs}",)
    assert notes(Request(only=(Stage.CONFIRM,))) == (f"confirm {needs}",)
    assert notes(Request(begin=Stage.INSIDE)) == (
        "groups not measured: fewer than four nodes: the pairs are all there is",
        f"inside {needs}",
    )


@pytest.mark.parametrize(
    ("request_", "count", "leaf"),
    [
        (Request(only=(Stage.PAIRS, *LEAF)), 3, "fewer than 4 nodes: no leaf stands out"),
        (Request(), 3, None),
        (Request(only=(Stage.PAIRS, *LEAF)), 4, "where leaves are known, or the pairs show them"),
        (Request(only=(Stage.SINGLE, *LEAF)), 4, "it needs pairs of the same run"),
    ],
)
def test_a_plan_says_of_leaves_that_it_cannot_measure_why(request_, count, leaf) -> None:
    nodes, cluster = NODES[:count], replace(CLUSTER, nodes=CLUSTER.nodes[:count])
    said = {name: SAID[name] for name in nodes}
    parts = Participants(
        admitted=admit_nodes(cluster, nodes, said, OutsideFacts(), ()),
        identities=said, setup=Setup(cluster=cluster), leaves={}, seed=5,
    )  # fmt: skip

    found = [one.note for one in plan_run(request_, parts).stages if one.stage is Stage.INSIDE]

    assert [one.startswith(leaf or "") for one in found] == ([True] if leaf else [])


def test_the_address_is_that_of_the_job_network() -> None:
    one = node(
        "n1",
        networks={
            "eth0": Network(addresses=("10.0.0.1",), gbps=1, mtu="1500"),
            "ib0": Network(addresses=("10.1.0.1",), gbps=100, mtu="4092"),
        },
    )

    assert job_address(replace(CLUSTER, network="10.1.0.0/24"), CLUSTER.nodes[0], one) == "10.1.0.1"
    assert job_address(CLUSTER, replace(CLUSTER.nodes[0], interface="ib0"), one) == "10.1.0.1"
    assert job_address(CLUSTER, CLUSTER.nodes[1], None) == "10.0.0.2"


def test_both_ranks_of_a_pair_run_one_script_and_take_turns(tmp_path) -> None:
    steps = [
        Step(0, 0, ("echo", "a b"), ("true",), 5),
        Step(1, 1, ("sh", "-c", "exit 3"), ("true",), 5),
    ]
    file = tmp_path / "steps.sh"
    file.write_text(pair_script(steps, ["unable to connect"]))

    outputs = [
        subprocess.run(["sh", str(file)], env={"RANK": str(rank), "PATH": "/usr/bin:/bin"}, capture_output=True, timeout=30, check=True).stdout
        for rank in (0, 1)
    ]  # fmt: skip

    assert [
        (one.number, one.output.strip(), one.exit_code) for one in step_outputs(outputs[0])
    ] == [(0, b"a b", 0)]
    assert [
        (one.number, one.output.strip(), one.exit_code) for one in step_outputs(outputs[1])
    ] == [(1, b"", 3)]


def test_each_rank_takes_the_side_of_its_node_whatever_its_number(tmp_path) -> None:
    steps = [Step(0, 0, ("echo", "to", "rankdeck-peer"), ("true",), 5)]
    file = tmp_path / "steps.sh"
    file.write_text(pair_script(steps, [], ("n10", "n2"), pods=True))

    def output(node: str, rank: str) -> bytes:
        env = {"RANKDECK_NODE": node, "JOB_COMPLETION_INDEX": rank, "RANKDECK_SERVICE": "job-7"}
        return subprocess.run(
            ["sh", str(file)], env={**env, "PATH": "/usr/bin:/bin"}, capture_output=True, timeout=30, check=True
        ).stdout  # fmt: skip

    sender, receiver = output("n10", "1"), output("n2", "0")

    assert by_side({0: receiver, 1: sender}) == {0: sender, 1: receiver}
    assert [one.output.strip() for one in step_outputs(sender)] == [b"to job-7-0.job-7"]
    assert list(step_outputs(receiver)) == []


def test_what_a_rank_sent_counts_for_its_node() -> None:
    work = Work(
        stage=Stage.PAIRS, recipe="iperf3", nodes=("n10", "n2"),
        runs=(("n10", "n2", 0, 0), ("n2", "n10", 0, 0)),
    )  # fmt: skip
    value = {"sum_received": {"bits_per_second": 5e8}, "sum_sent": {"retransmits": 0}}
    text = json.dumps({"start": {"connected": []}, "intervals": [{}], "end": value})

    def by(side: int, step: int) -> bytes:
        return f"{MARK} side {side}\n{MARK} begin {step}\n{text}\n{MARK} end {step} 0 1.0 2.0\n".encode()

    # Rank 0 was placed on the second node, and wrote of step 1 only.
    found = [one for one, _ in results_of(work, Setup(cluster=CLUSTER), {0: by(1, 1), 1: b""}, 0)]

    assert [(one.sender, one.outcome) for one in found] == [
        ("n10", Outcome.NOT_MEASURED),
        ("n2", Outcome.MEASURED),
    ]


def test_of_a_server_that_did_not_start_its_own_words_are_told() -> None:
    """Real words of iperf3 3.12 where the port is taken."""
    work = Work(stage=Stage.PAIRS, recipe="iperf3", nodes=("n1", "n2"), runs=(("n1", "n2", 0, 0),))
    refused = '{"start": {"connected": []}, "intervals": [], "end": {}, "error": "unable to connect to server: Connection refused"}'
    client = f"{MARK} side 0\n{MARK} begin 0\n{refused}\n{MARK} end 0 0 1.0 2.0\n".encode()
    words = (
        "iperf3: error - unable to start listener for connections: Address already in use\n"
        "iperf3: exiting\n"
    )

    def text(server: str, code: int) -> str:
        output = f"{MARK} side 1\n{MARK} begin 0\n{server}\n{MARK} end 0 {code} 1.0 1.0\n"
        ((one, _),) = results_of(work, Setup(cluster=CLUSTER), {0: client, 1: output.encode()}, 0)
        assert never_began(one)
        return one.text

    alone = "it never began: `unable to connect to server: Connection refused`"
    assert text(words, 1) == (
        f"{alone}; n2 says `iperf3: error - unable to start listener for connections: Address already in use`"
    )
    assert text("", 1) == text(words, 124) == alone


def test_one_cancellation_blames_the_measurement_that_ran_and_not_those_after_it() -> None:
    runs = (("n1", "n2", 0, 0), ("n2", "n1", 0, 0))
    work = Work(stage=Stage.PAIRS, recipe="iperf3", nodes=("n1", "n2"), runs=runs)
    output = {0: f"{MARK} side 0\n{MARK} begin 0\n".encode(), 1: f"{MARK} side 1\n".encode()}

    found = results_of(work, Setup(cluster=CLUSTER), output, None, "n2 was restarted")

    (first, _), (second, _) = found
    assert (first.outcome, first.text) == (Outcome.FAILED, "n2 was restarted")
    assert second.outcome is Outcome.NOT_MEASURED
    assert second.text == "its turn did not come: n2 was restarted"
    assert not never_began(second)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{MARK} end 0 0 1 2\n",
        f"{MARK} begin 0\nhalf",
        f"{MARK} begin 0\n{MARK} end 0 999 1.2.3 x\n",
    ],
)
def test_what_is_no_whole_step_has_no_end(text: str) -> None:
    assert [one.exit_code for one in step_outputs(text.encode())] in ([], [None])


def grouped(slow: str) -> list[str]:
    """The sentences of the stage of groups over 16 nodes, one of which
    spoils each group that it is in.
    """
    nodes = tuple(f"n{number}" for number in range(16))
    results: list[Result] = []
    for _ in range(30):
        step = next_groups(nodes, results, 0.07)
        if not step.groups:
            return [one.sentence for one in step.verdicts]
        for group in step.groups:
            value = 40.0 if slow in group else 100.0
            results.append(
                Result(stage=Stage.GROUPS, recipe="nccl-tests", sender=group[0], group=group, outcome=Outcome.MEASURED, value=value, unit="GB/s")
            )  # fmt: skip
    raise AssertionError("no end")


def test_who_spoils_groups_is_found_by_halving() -> None:
    assert grouped("nobody") == []
    (sentence,) = grouped("n6")
    assert sentence.startswith("n6 makes every group slow that it is in")


def test_groups_that_all_fail_are_said_to_fail() -> None:
    group = tuple(f"n{number}" for number in range(4))
    broke = Result(
        stage=Stage.GROUPS, recipe="nccl-tests", sender="n0", group=group, outcome=Outcome.FAILED, text="n0: Test NCCL failure",
    )  # fmt: skip

    (verdict,) = next_groups(group, [broke], 0.07).verdicts

    assert verdict.sentence == "the group n[0-3] fails: n0: Test NCCL failure"
    assert not verdict.answer.accepted


def test_jobs_pass_over_excluded_nodes_and_refuse_them_by_name() -> None:
    spec = JobSpec(name="j", launch=Launch.PLAIN, command=("true",), nodes=2)
    excluded = {"n1": "excluded until tomorrow: slow"}

    assert exclude_nodes(CLUSTER, spec, excluded).on == ("n2", "n3")
    assert exclude_nodes(CLUSTER, spec, {}) == spec
    for backend in ("slurm", "kubernetes"):
        cluster, key = replace(CLUSTER, backend=backend), f"{backend}.exclude"
        assert exclude_nodes(cluster, spec, excluded).options == {key: "n1"}
        own = replace(spec, options={key: "n3"})
        assert exclude_nodes(cluster, own, excluded).options == {key: "n3,n1"}
    with pytest.raises(
        LaunchError, match="`n1` is excluded until tomorrow: slow; take it back with"
    ):
        exclude_nodes(CLUSTER, replace(spec, on=("n1", "n2")), excluded)
    with pytest.raises(LaunchError, match="wants 4 nodes, 3 are left: n1 excluded"):
        exclude_nodes(CLUSTER, replace(spec, nodes=4), excluded)


def test_a_bad_node_is_passed_over_as_long_as_a_good_one_is_free() -> None:
    spec = JobSpec(name="j", launch=Launch.PLAIN, command=("true",), nodes=2)
    none, bad = frozenset[str](), frozenset({"n1"})

    def chosen(
        spec: JobSpec, bad: frozenset[str], busy: frozenset[str], *excluded: str
    ) -> list[str]:
        placed_spec = place_job(CLUSTER, spec, dict.fromkeys(excluded, "slow"), bad, busy)
        return [node.name for node in choose_nodes(CLUSTER, placed_spec)]

    assert place_job(CLUSTER, spec, {}, none, none) == spec
    assert chosen(spec, bad, none) == ["n3", "n2"]
    assert chosen(spec, bad, frozenset({"n3"})) == ["n4", "n2"]
    assert chosen(spec, bad, frozenset({"n3", "n4"})) == ["n1", "n2"]
    assert chosen(spec, bad, none, "n3") == ["n4", "n2"]
    assert chosen(spec, frozenset({"n2"}), none, "n1") == ["n4", "n3"]
    assert chosen(replace(spec, on=("n1", "n2")), bad, none) == ["n1", "n2"]


SMI = """#!/bin/sh
case $1 in
*name,driver*) printf 'A100, 570.12, 4, 16, 400.00 W\\nA100, 570.12, 4, 16, 300.00 W\\n' ;;
*index,temp*) printf '0, 91, 0x0\\n1, 40, 0x0000000000000040\\n2, 84, 0x0000000000000080\\n3, [N/A], [N/A]\\n' ;;
*index,power*) printf '0, 400.00, 400.00, 0x0000000000000081\\n1, 300.00, 400.00, 0x0000000000000001\\n2, [N/A], [N/A], [N/A]\\n' ;;
esac
"""


def test_the_version_of_nccl_is_that_of_its_file(tmp_path: Path) -> None:
    assert nccl((tmp_path,)) == ""

    folder = tmp_path / "x86_64-linux-gnu"
    folder.mkdir()
    for name in ("libnccl.so", "libnccl.so.2", "libnccl.so.2.21.5"):
        (folder / name).touch()

    assert nccl((tmp_path,)) == "2.21.5"


def test_gpus_that_are_held_down_are_named_before_anything_runs(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    (tmp_path / "facts.py").write_text(node_program_text(PROGRAM))
    done = subprocess.run(
        [sys.executable, tmp_path / "facts.py", '{"programs": [], "modules": [], "mpirun": "mpirun"}'],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, timeout=30, check=True,
    )  # fmt: skip
    one = read_identity(done.stdout)
    assert one is not None
    cluster = Cluster(name="c", nodes=(Node(name="n1"),))
    admitted = admit_nodes(cluster, ("n1",), {"n1": one}, OutsideFacts(), ("n1",))

    held = "held by the power brake: GPU 0; limited to 300 of 400 W: GPU 1"
    assert one.facts["gpu limits"] == held
    assert f"n1: its GPUs are {held}" in admitted.notes
    assert one.heat == ("GPU 0 at 91 °C", "GPU 1 at 40 °C")


@pytest.mark.parametrize(
    ("millidegrees", "critical", "heat"),
    [
        ("84000", "100000", []),
        ("86000", "100000", ["CPU at 86 °C"]),
        ("76000", "80000", ["CPU at 76 °C"]),
        ("84000", "", []),
        ("-5000", "0", []),
    ],
)
def test_a_cpu_is_hot_by_itself_or_near_its_own_limit(
    millidegrees: str, critical: str, heat: list[str], tmp_path: Path
) -> None:
    for number, name in enumerate(("nvme", "coretemp")):
        chip = tmp_path / f"hwmon{number}"
        chip.mkdir()
        (chip / "name").write_text(name)
    (tmp_path / "hwmon0/temp1_input").write_text("99000")
    (chip / "temp1_input").write_text(millidegrees)
    (chip / "temp1_crit").write_text(critical)

    assert cpu_heat(tmp_path) == heat


ONE_RAIL = {"mlx5_0": 400.0, "mlx5_1": 400.0, "mlx5_10": 400.0, "mlx5_bond": 25.0}


def test_rails_are_the_fastest_ports_of_equal_index() -> None:
    said = {
        **SAID,
        "n1": node("n1", rdma=ONE_RAIL),
        "n2": node("n2", rdma={**ONE_RAIL, "mlx5_9": 400.0}),
    }
    two = ("n1", "n2")

    assert rails_of(two, said, ()) == {
        "n1": ("mlx5_0", "mlx5_1", "mlx5_10"),
        "n2": ("mlx5_0", "mlx5_1", "mlx5_9"),
    }
    assert rails_of(NODES, said, ()) == {}, "n3 has no RDMA"
    asked = rails_of(two, said, ("mlx5_bond",))
    assert (asked["n1"], fabric_of(asked, said)) == (("mlx5_bond",), "rdma")
    with pytest.raises(RankdeckError, match="n1 has no active mlx5_9; it has mlx5_0"):
        rails_of(two, said, ("mlx5_9",))


def test_active_ports_are_read_from_what_a_node_says() -> None:
    ports = {
        "mlx5_0/1": {"rate": "400 Gb/sec (4X NDR)", "state": "4: ACTIVE"},
        "mlx5_0/2": {"rate": "100 Gb/sec (4X EDR)", "state": "4: ACTIVE"},
        "mlx5_1/1": {"rate": "400 Gb/sec (4X NDR)", "state": "1: DOWN"},
        "mlx5_2/1": {"rate": "?", "state": "4: ACTIVE"},
        "mlx5_3/1": 7,
    }

    one = read_identity(b"#rankdeck-facts " + json.dumps({"rdma": ports}).encode())

    assert one is not None
    assert one.rdma == {"mlx5_0": 400.0, "mlx5_0:2": 100.0}


def test_each_rail_has_its_own_devices_ports_and_rate() -> None:
    rails = {"n1": ("mlx5_0", "mlx5_1:2"), "n2": ("mlx5_0", "mlx5_4")}
    setup = Setup(
        cluster=CLUSTER, addresses={"n1": "10.0.0.1", "n2": "10.0.0.2"}, known=HardwareFacts(link_gbps=1.0), rdma_gbps=400.0,
        rails={"ib_write_bw": rails},
    )  # fmt: skip
    work = Work(
        stage=Stage.PAIRS, recipe="ib_write_bw", nodes=("n1", "n2"), runs=(("n1", "n2", 0, 1), ("n2", "n1", 0, 1)), place=1,
    )  # fmt: skip

    lines = command_lines(work, setup)

    assert ["-d mlx5_1 -i 2" in line for line in lines] == [True, False, False, True]
    assert ["-d mlx5_4" in line for line in lines] == [False, True, True, False]
    assert {one.rail for one in work.pending()} == {1}
    assert known_of(find_recipe("ib_write_bw"), 1.0, 400.0).link_gbps == 400.0
    assert known_of(find_recipe("iperf3"), 1.0, 400.0).link_gbps == 1.0


def test_the_script_of_a_pair_waits_as_long_as_the_cluster_file_says() -> None:
    work = Work(stage=Stage.PAIRS, recipe="rping", nodes=("n1", "n2"), runs=(("n1", "n2", 0, 0),))

    def script(patience: float) -> str:
        cluster = replace(CLUSTER, access=Access(waits=patience))
        return spec_of(work, Setup(cluster=cluster)).files[FILE]

    limits = [
        float(re.search(r"^    ask 0 (\d+)", script(n), re.MULTILINE)[1]) for n in (1.0, 10.0)
    ]
    tries = [int(re.search(r"first\)\) -lt (\d+)", script(n))[1]) for n in (1.0, 10.0)]
    assert limits[1] == 10 * limits[0] > 0
    assert tries[1] == 10 * tries[0] > 0


def test_perftest_gives_a_slow_node_longer_for_an_acknowledgement() -> None:
    recipe = find_recipe("ib_write_bw")

    def options(patience: float) -> list[tuple[str, ...]]:
        commands = recipe.commands(Endpoints(nodes=("n1", "n2"), patience=patience))
        return [
            words[at : at + 2]
            for words in (commands.argv, commands.server)
            for at, word in enumerate(words)
            if word == "-u"
        ]

    assert options(1.0) == []
    assert options(10.0) == [("-u", "18")] * 2


def test_a_latency_is_measured_as_long_as_it_is_asked_for() -> None:
    def words(seconds: int) -> tuple[str, ...]:
        where = Endpoints(nodes=("n1", "n2"), seconds=seconds)
        return find_recipe("ib_read_lat").commands(where).argv[:3]

    assert words(0) == ("ib_read_lat", "-n", "5000")
    assert words(7) == ("ib_read_lat", "-D", "7")
