"""What preflight says of an index of GIDs that a job sets."""

from pathlib import Path

import pytest

from rankdeck.backends.launchers import lay_out
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.preflight.check_rdma import check_gids
from rankdeck.preflight.facts import node_facts
from rankdeck.preflight.job_context import JobContext
from rankdeck.values import replace
from rankdeck_agent.rdma_gids import list_rdma_ports
from rankdeck_agent.rules.levels import Level

CLUSTER = Cluster(
    name="c",
    nodes=tuple(Node(name=f"n{i}", slots=1, rdma=1, interface="eth1") for i in (1, 2)),
    network="10.9.0.0/24",
)
SPEC = JobSpec(name="j", launch=Launch.PLAIN, command=("app",), nodes=2)
LOCAL = "fe80:0000:0000:0000:5054:00ff:fe00:0202"


def mapped(last: str) -> str:
    return f"0000:0000:0000:0000:0000:ffff:{last}"


def node(*gids: tuple[int, str, str], device: str = "eth1", **more: object) -> dict:
    rows = [[number, gid, kind, device] for number, gid, kind in gids]
    port = {"name": "rxe0/1", "active": True, "link": "Ethernet", "gids": rows, **more}
    interface = {"name": "eth1", "up": True, "mtu": 1500, "address": "10.9.0.1/24"}
    return {"rdma": [port], "interfaces": [interface]}


WELL = node((0, LOCAL, "RoCE v2"), (1, mapped("0a09:0001"), "RoCE v2"))
OLD = node((0, LOCAL, "RoCE v2"), (1, mapped("0a09:0002"), "IB/RoCE v1"))
ELSEWHERE = node((1, mapped("0a08:0002"), "RoCE v2"), (2, mapped("0a09:0002"), "RoCE v2"))
BARE = node((0, LOCAL, "RoCE v2"))
OTHER_PORT = node((1, mapped("0a08:0002"), "RoCE v2"), device="eth7")


def judged(second: object, index: str = "1") -> list:
    raw = {"n1": WELL, "n2": second}
    facts = {name: node_facts(one, 0.0, 1.0) for name, one in raw.items()}
    spec = replace(SPEC, env={"NCCL_IB_GID_INDEX": index})
    return list(check_gids(JobContext(layout=lay_out(CLUSTER, spec, "j"), facts=facts, health={})))


@pytest.mark.parametrize(
    ("second", "where", "said"),
    [
        (BARE, "n2", "rxe0/1 has no GID 1; it has 0 (RoCE v2 fe80::5054:ff:fe00:202)"),
        (ELSEWHERE, "n2", "is RoCE v2 10.8.0.2, outside the job network 10.9.0.0/24; GID 2 is"),
        (OLD, "n[1-2]", "RoCE v2 over IPv4 on n1, IB/RoCE v1 over IPv4 on n2"),
    ],
)
def test_an_index_that_means_another_gid_on_a_node_is_bad_with_what_to_do(
    second: dict, where: str, said: str
) -> None:
    (finding,) = judged(second)

    assert (finding.level, finding.check, finding.node) == (Level.BAD, "gid", where)
    assert said in finding.text
    assert "NCCL_IB_GID_INDEX" in finding.fix


@pytest.mark.parametrize("index", ["-1", "auto", "", "²"])
def test_a_program_that_looks_for_the_gid_itself_needs_no_index(index: str) -> None:
    assert judged(BARE, index) == []


@pytest.mark.parametrize("second", [WELL, {}, {"rdma": [{"gids": [[1], None, [1, 7, 7, 7]]}]}])
def test_nothing_is_said_of_equal_nodes_and_of_nodes_whose_ports_are_not_known(
    second: dict,
) -> None:
    assert judged(second) == []


def test_ports_of_other_interfaces_do_not_count() -> None:
    both = {**WELL, "rdma": [*WELL["rdma"], *OTHER_PORT["rdma"]]}

    assert judged(both) == []


def test_the_agent_lists_the_gids_that_are_set(tmp_path: Path) -> None:
    port = tmp_path / "class/infiniband/rxe0/ports/1"
    (port / "gids").mkdir(parents=True)
    for name, text in (("state", "4: ACTIVE"), ("link_layer", "Ethernet")):
        (port / name).write_text(f"{text}\n")
    for what in ("types", "ndevs"):
        (port / "gid_attrs" / what).mkdir(parents=True)
    for number, gid in enumerate([mapped("0000:0000").replace("ffff", "0000"), LOCAL]):
        (port / "gids" / str(number)).write_text(f"{gid}\n")
    (port / "gid_attrs/types/1").write_text("RoCE v2\n")
    (port / "gid_attrs/ndevs/1").write_text("eth1\n")

    assert list_rdma_ports(tmp_path) == [
        {
            "name": "rxe0/1",
            "active": True,
            "link": "Ethernet",
            "gids": [[1, LOCAL, "RoCE v2", "eth1"]],
        }
    ]
