"""An allocation of Slurm as a cluster, and what the steps that lead to its nodes write."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.config.clusters import read_cluster
from rankdeck.config.node_sources import SourceError
from rankdeck.errors import ConfigError
from rankdeck.model.cluster import Access, Cluster, Node, Transport
from rankdeck.remote.srun import StepOutput, step_command, why_no_step
from rankdeck.schedulers.slurm.allocations import Allocation, held_cluster, parse_allocation

SAID = (
    "JobId=4711 JobName=interactive UserId=ann(1000) JobState=RUNNING Reason=None "
    "NodeList=n[1-3],gpu9 NumNodes=4 TresPerNode=gres/gpu:a100:2   JOB_GRES=gpu:a100:7    "
    "Nodes=n[1-2] CPU_IDs=0-3,8-11 Mem=900 GRES=gpu:a100:2(IDX:0-1)     "
    "Nodes=n3 CPU_IDs=5 Mem=900 GRES=     "
    "Nodes=gpu9 CPU_IDs=0-127 Mem=0 GRES=gpu:a100:2(IDX:0,3),gpu:h100:1(IDX:4),shard:8(0/8) "
    "MinMemoryNode=900M Features=(null) Command=(null) WorkDir=/home/ann Nodes=x"
)


def test_slots_and_gpus_are_those_that_are_held_and_not_those_of_the_node() -> None:
    held = parse_allocation(SAID, "4711")

    assert held.number == "4711"
    assert held.folded == "gpu9,n[1-3]"
    assert {node.name: (node.slots, node.gpus) for node in held.nodes} == {
        "n1": (8, 2),
        "n2": (8, 2),
        "n3": (1, 0),
        "gpu9": (128, 3),
    }


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("JobId=4711 JobState=PENDING Reason=Resources", r"does not run \(PENDING\)"),
        ("", r"does not run \(unknown to Slurm\)"),
        ("JobId=4711 JobState=RUNNING NodeList=n1", "does not say which nodes"),
    ],
)
def test_what_holds_no_nodes_is_no_allocation(said: str, why: str) -> None:
    with pytest.raises(SourceError, match=why):
        parse_allocation(said, "4711")


def test_the_cluster_of_an_allocation_keeps_what_its_file_says_of_nodes() -> None:
    slurm = Cluster(
        name="a100",
        nodes=(Node(name="n1", slots=64, gpus=8, interface="ib0", address="10.0.0.1"),),
        backend="slurm",
        options={"login": "l1", "partition": "p"},
        access=Access(user="ann"),
        network="10.0.0.0/24",
    )

    held = held_cluster(slurm, Allocation("4711", (Node(name="n1", slots=4), Node(name="n2"))))

    assert held.name == "a100-4711"
    assert (held.backend, held.options, held.network) == ("ssh", {}, "10.0.0.0/24")
    assert held.nodes[0] == Node(name="n1", slots=4, gpus=0, interface="ib0", address="10.0.0.1")
    assert held.nodes[1] == Node(name="n2")
    assert held.access == Access(user="ann", transport=Transport.SRUN, allocation="4711")


def test_a_long_name_leaves_room_for_the_number() -> None:
    cluster = Cluster(name="c" * 63, nodes=(), backend="slurm")

    assert held_cluster(cluster, Allocation("4711", ())).name == f"{'c' * 58}-4711"


def test_a_cluster_file_may_say_srun_for_the_nodes_of_an_allocation_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("cluster: c\nnodes: [{name: n1}]\nssh: {transport: srun}\n")

    with pytest.raises(ConfigError, match=r"`transport: srun` needs `nodes: \{from: allocation\}`"):
        read_cluster(file)


# ---- steps

MARK = "rankdeck-0123"


@given(
    st.lists(
        st.sampled_from([b"out\n", b"\0", b"\0rankdeck-", b"\0rankdeck-0123", b"\xff\n", b""])
    ),
    st.integers(0, 255),
    st.integers(1, 7),
)
def test_every_byte_before_the_mark_is_the_programs_however_it_arrives(
    pieces: list[bytes], code: int, size: int
) -> None:
    wrote = b"".join(pieces)
    sent = wrote + b"\0%s %d\r\n" % (MARK.encode(), code)
    stream, got = StepOutput(MARK), b""

    for at in range(0, len(sent), size):
        got += stream.feed(sent[at : at + size])

    assert got == wrote
    assert stream.code == code
    assert stream.feed(b"srun: later\n") == b""


def test_a_line_that_only_begins_like_the_mark_is_passed_on_at_once() -> None:
    stream = StepOutput(MARK)

    assert stream.feed(b"\0rankdeck-9\n") == b"\0rankdeck-9\n"
    assert stream.code is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("srun: error: Slurm job 4711 has expired", "the allocation has ended"),
        ("srun: error: Unable to confirm allocation for job 9: Invalid job id specified", "the allocation has ended"),
        ("srun: error: Unable to create step for job 9: Requested node configuration is not available", "srun started nothing there: Unable"),
        ("", "the step was lost"),
    ],
)  # fmt: skip
def test_a_step_that_does_not_start_is_told_in_words(said: str, why: str) -> None:
    assert why_no_step(said).startswith(why)


def test_a_step_shares_what_the_allocation_has_and_no_word_is_split() -> None:
    words = step_command("4711", "n1", ("python3",), MARK, ("sh", "-c", "echo 'a  b'"))

    assert words[:2] == ("setsid", "--fork")
    assert {"--overlap", "--jobid=4711", "--nodelist=n1", "--cpu-bind=none"} <= set(words)
    assert not any(word.startswith("--gres") for word in words)
    assert words[-3:] == ("sh", "-c", "echo 'a  b'")
