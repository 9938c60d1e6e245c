"""The job network on a node: its place there, RDMA ports, and what is filled into a plan."""

from pathlib import Path

import pytest

from rankdeck_agent.job.network import NetworkError, fill_network, find_network_place, own_addresses
from rankdeck_agent.wire import NodePlan, ProcessPlan

VARIABLES = {"GLOO_SOCKET_IFNAME": "${RANKDECK_INTERFACE}", "A": "1"}


def own() -> tuple[str, str]:
    """An interface of this machine that others can reach, and its address."""
    found = next((one for one in own_addresses() if one.interface != "lo"), None)
    if found is None:
        pytest.skip("needs an address besides loopback's")
    return found.interface, str(found.address)


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


def test_the_place_is_found_by_the_network_or_by_the_interface(tmp_path: Path) -> None:
    interface, address = own()

    by_network = find_network_place(address, "", tmp_path)
    assert (by_network.address, by_network.interface) == (address, interface)
    assert find_network_place("", interface, tmp_path).devices == interface


def test_rdma_ports_of_the_interface_and_infiniband_are_for_ucx(tmp_path: Path) -> None:
    interface, address = own()
    tree = tmp_path / "class/infiniband"
    put(tree / "mlx5_0/ports/1/link_layer", "Ethernet")
    put(tree / "mlx5_0/ports/1/gid_attrs/ndevs/0", interface)
    put(tree / "mlx5_1/ports/1/link_layer", "Ethernet")
    put(tree / "mlx5_1/ports/1/gid_attrs/ndevs/0", "office0")
    put(tree / "mlx5_2/ports/2/link_layer", "InfiniBand")

    assert find_network_place(address, "", tmp_path).devices == f"mlx5_0:1,mlx5_2:2,{interface}"


def test_a_node_outside_says_what_it_has() -> None:
    interface, address = own()

    with pytest.raises(NetworkError, match=r"job network 203\.0\.113") as caught:
        find_network_place("203.0.113.0/30", "")
    assert f"{interface} {address}" in str(caught.value)
    with pytest.raises(NetworkError, match="no address in interface none0"):
        find_network_place("", "none0")


def test_tokens_are_filled_in_commands_and_variables() -> None:
    interface, address = own()
    process = ProcessPlan("torchrun", ("torchrun", "--local-addr=${RANKDECK_ADDRESS}"))
    plan = NodePlan("j", "n", (0,), (process,), env=VARIABLES, network=address)
    filled, warning = fill_network(plan)

    assert filled.processes[0].argv[1] == f"--local-addr={address}"
    assert filled.env == {"GLOO_SOCKET_IFNAME": interface, "A": "1"}
    assert warning == ""


def test_a_variable_without_a_value_is_left_out_and_told_but_a_command_needs_its_own() -> None:
    plan = NodePlan("j", "n", (0,), env=VARIABLES, network="203.0.113.0/30")
    filled, warning = fill_network(plan)

    assert filled.env == {"A": "1"}
    assert warning.endswith("GLOO_SOCKET_IFNAME are not set")
    process = ProcessPlan("torchrun", ("torchrun", "--local-addr=${RANKDECK_ADDRESS}"))
    with pytest.raises(NetworkError):
        fill_network(NodePlan("j", "n", (0,), (process,), network="203.0.113.0/30"))
