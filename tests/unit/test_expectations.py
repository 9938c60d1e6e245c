"""What is expected of nodes: learnt from most of them, kept in
the cluster file, and who differs.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankdeck.config.clusters import expect_block, read_cluster, with_block, write_block
from rankdeck.errors import ConfigError
from rankdeck.rules.expectations import NodeSight, learn_expectations
from rankdeck.rules.peers import Peers


def seen(
    name: str,
    *,
    gpus: int = 2,
    driver: str = "550.1",
    rate: float = 100e9,
    simulated=(),
) -> NodeSight:
    return NodeSight(
        name,
        {"gpu.driver": driver, **{f"gpu.{n}.model": "A100" for n in range(gpus)}},
        {
            "gpu.mem_total": {str(n): 80 for n in range(gpus)},
            "rdma.up": {"mlx5_0/1": 1, "mlx5_1/1": 0},
            "rdma.rate": {"mlx5_0/1": rate, "mlx5_1/1": 10e9},
            "disk.mounted": {"/home": 1, "/scratch": 1},
        },
        simulated,
    )


def test_what_most_nodes_have_is_expected_and_who_differs_is_named() -> None:
    learnt = learn_expectations([seen("n1"), seen("n2"), seen("n3", gpus=1, driver="535.2")])

    assert learnt.values == {
        "gpu_count": 2, "gpu_model": "A100", "gpu_driver": "550.1", "rdma_count": 2,
        "rdma_rate_gbps": 100, "mounts": "/home, /scratch",
    }  # fmt: skip
    assert learnt.notes == {"gpu_count": "not so on n3", "gpu_driver": "not so on n3"}


def test_where_nodes_are_halved_nothing_is_expected() -> None:
    learnt = learn_expectations([seen("n1"), seen("n2", driver="535.2")])

    assert "gpu_driver" not in learnt.values
    assert learnt.notes["gpu_driver"] == "nodes differ: 550.1 on n1; 535.2 on n2"


def test_what_is_simulated_is_not_learnt() -> None:
    assert not [
        key for key in learn_expectations([seen("n1", simulated=("gpu",))]).values if "gpu" in key
    ]


FILE = """# our cluster
cluster: lab   # its name
nodes: [n1, n2]
# what we bought
expect:
  gpu_model: V100   # old
  kernel: "6.1"

# how to log in
ssh: {user: ann}
"""


def test_only_the_block_is_replaced_and_comments_stay(tmp_path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(FILE)
    path.chmod(0o640)
    write_block(path, {"gpu_model": "A100", "gpu_count": 2}, {"gpu_count": "not so on n2"})
    text = path.read_text()

    assert text.replace(
        expect_block(read_cluster(path).expect, {"gpu_count": "not so on n2"}), "@"
    ) == (FILE.replace('expect:\n  gpu_model: V100   # old\n  kernel: "6.1"\n', "@"))
    assert read_cluster(path).expect == {
        "gpu_model": "A100",
        "kernel": "6.1",
        "gpu_count": 2,
    }
    assert path.stat().st_mode & 0o777 == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["lab.yaml"]


def test_a_file_that_is_wrong_is_left_alone(tmp_path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("cluster: lab\nnods: [n1]\n")

    with pytest.raises(ConfigError, match="nods"):
        write_block(path, {"gpu_count": 2}, {})
    assert path.read_text() == "cluster: lab\nnods: [n1]\n"


@pytest.mark.parametrize(
    "before",
    [
        "cluster: lab\nnodes: [n1]",
        "cluster: lab\nexpect: {a: 1}\nnodes: [n1]\n",
        "expect:\n  a: 1\n# end",
    ],
)
def test_a_block_is_added_or_replaced_wherever_it_is(before: str) -> None:
    text = with_block(before, expect_block({"gpu_count": 8}, {}))

    assert text.count("expect:") == 1
    assert "  gpu_count: 8\n" in text
    assert "a: 1" not in text
    assert ("# end" in text) is ("# end" in before)


WORDS = st.text("a0 :#'\"{[-,.x", min_size=1, max_size=12)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(st.text("abc_", min_size=1, max_size=4), st.integers(0, 9) | WORDS, max_size=4)
)
def test_whatever_was_learnt_is_read_back(tmp_path_factory, values) -> None:
    path = tmp_path_factory.mktemp("c") / "lab.yaml"
    path.write_text("cluster: lab\nnodes: [n1]\n")
    write_block(path, values, {})

    assert read_cluster(path).expect == values


# ---- peers


Told = tuple[tuple[str, dict[str, str]], ...]


def peers(*drivers: str) -> Told:
    return tuple((f"n{n}", {"gpu.driver": d, "uuid": str(n)}) for n, d in enumerate(drivers))


def drift(told: Told):
    known = Peers()
    for name, inventory in told:
        known.take(name, inventory)
    return known.drift()


def test_the_odd_node_is_told_in_what_it_differs() -> None:
    found = drift(peers("550", "550", "550", "535"))

    assert [reason.device for reason in found["n3"]] == ["gpu.driver"]
    assert found["n3"][0].text.startswith("gpu.driver is 535, 3 of 4 nodes have 550 · ")
    assert list(found) == ["n3"]


@pytest.mark.parametrize("drivers", [("550", "535"), ("550", "550", "535", "535"), ("1", "2", "3")])
def test_without_a_majority_nobody_is_odd(drivers: tuple[str, ...]) -> None:
    assert drift(peers(*drivers)) == {}


@settings(suppress_health_check=list(HealthCheck))
@given(st.permutations(peers("550", "550", "550", "535", "550")))
def test_the_order_of_nodes_makes_no_difference(order) -> None:
    assert drift(tuple(order)) == drift(peers("550", "550", "550", "535", "550"))


def test_a_node_that_reports_something_else_now_is_counted_once_and_alike_nodes_are_one() -> None:
    known = Peers()
    for name, inventory in peers("550", "550", "550", "535"):
        assert known.take(name, inventory)
    assert not known.take("n0", {"gpu.driver": "550", "uuid": "another"})
    assert known.take("n3", {"gpu.driver": "550"})

    assert (known.drift(), known.enough, "n3" in known) == ({}, True, True)
    assert known.take("n3", {})
    assert "n3" not in known


def devices(kind: str, count: int, **more: str) -> dict[str, str]:
    return {**{f"{kind}.{n}.model": "X" for n in range(count)}, "kernel": "6", **more}


@pytest.mark.parametrize("kind", ["gpu", "rdma", "nvme"])
@pytest.mark.parametrize("left", [7, 3, 1])
def test_a_node_with_fewer_devices_than_its_peers_is_odd(kind: str, left: int) -> None:
    fleet = tuple((f"n{n}", devices(kind, 8 if n else left)) for n in range(5))

    found = drift(fleet)

    assert list(found) == ["n0"]
    assert [reason.device for reason in found["n0"]] == [f"{kind}.count"]
    assert found["n0"][0].text.startswith(f"{kind}.count is {left}, 4 of 5 nodes have 8 · ")


def test_a_node_without_any_device_of_its_peers_is_odd() -> None:
    fleet = tuple((f"n{n}", devices("gpu", 8 if n else 0, **{"cpu.model": "A"})) for n in range(5))

    found = drift(fleet)

    assert [(name, one.device) for name, rs in found.items() for one in rs] == [("n0", "gpu.count")]


def test_a_key_that_only_one_node_lacks_is_missed() -> None:
    fleet = tuple((f"n{n}", {"kernel": "6", **({"ofed": "24"} if n else {})}) for n in range(5))

    assert [reason.device for reason in drift(fleet)["n0"]] == ["ofed"]


def test_a_machine_of_another_kind_lacks_nothing() -> None:
    head = ("head", devices("gpu", 0, **{"cpu.model": "small"}))
    fleet = tuple((f"n{n}", devices("gpu", 8, **{"cpu.model": "big"})) for n in range(4))

    assert [r.device for r in drift((head, *fleet)).get("head", ())] == ["cpu.model"]


def test_an_agent_that_has_just_started_lacks_nothing_yet() -> None:
    known = Peers()
    for n in range(5):
        known.take(f"n{n}", devices("gpu", 8 if n else 0), at=100.0 if n else 190.0)

    assert known.drift(before=170.0) == {}
    assert list(known.drift(before=200.0)) == ["n0"]
