"""An interface that goes down is bad only if something uses it: a route, a
bond, an RDMA device, the cluster file.
"""

from pathlib import Path

import pytest

from rankdeck_agent.collectors.net import NetCollector, routed_interfaces
from rankdeck_agent.collectors.rdma import RdmaCollector
from rankdeck_agent.rules.levels import Expected
from rankdeck_agent.sampler import NodeJudge, Sampler
from rankdeck_agent.seen_devices import SeenDevices
from rankdeck_agent.system_files import Tree
from tests.unit.agent.machines import write

NET = "sys/class/net"
HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
CARD = "device/vendor"


def route(interface: str, destination: str = "0000A8C0") -> str:
    return f"{interface}\t{destination}\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"


class Machine:
    """A made tree whose interfaces a test adds, connects and unplugs."""

    def __init__(self, root: Path) -> None:
        self.root, self.names = root, list[str]()
        self.now = 1000.0
        self.judge = NodeJudge(Expected(), SeenDevices("b"), 10.0, clock=lambda: self.now)
        self.sampler = Sampler([NetCollector(str(root))], clock=lambda: self.now)
        write(root, "proc/self/net/route", HEAD)

    def add(self, name: str, *files: str, up: bool = True) -> None:
        self.names.append(name)
        write(self.root, f"{NET}/{name}/ifindex", "7\n")
        for file in files:
            write(self.root, f"{NET}/{name}/{file}", "x\n")
        self.link(name, up=up)
        rows = "".join(f"{n}: {'0 ' * 16}\n" for n in self.names)
        write(self.root, "proc/self/net/dev", f"a|\nb|\n{rows}")

    def link(self, name: str, *, up: bool) -> None:
        write(self.root, f"{NET}/{name}/operstate", "up\n" if up else "down\n")

    def route(self, *interfaces: str) -> None:
        write(self.root, "proc/self/net/route", HEAD + "".join(map(route, interfaces)))

    def enslave(self, bond: str, **legs: str) -> None:
        """`legs`: interface -> its aggregator."""
        write(self.root, f"{NET}/{bond}/bonding/ad_aggregator", "1\n")
        for leg, aggregator in legs.items():
            write(self.root, f"{NET}/{leg}/bonding_slave/mii_status", "up\n")
            write(self.root, f"{NET}/{leg}/bonding_slave/ad_aggregator_id", f"{aggregator}\n")
            (self.root / NET / leg / "master").symlink_to(f"../{bond}")

    def beats(self, monkeypatch: pytest.MonkeyPatch) -> "set[tuple[str, str]]":
        """What is bad after some minutes."""
        for _ in range(4):
            self.now += 61.0
            monkeypatch.setattr("time.monotonic", lambda: self.now)
            collected = self.sampler.take(limit=20)
            report = self.judge.judge(collected.sample, (), collected.inventory)
        return {(check, device) for check, level, device, *_ in report.reasons if level == 3}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("name", "files", "routed", "bad"),
    [
        ("eno1", [CARD], True, True),
        ("eno2", [CARD], False, False),
        ("ens1f0np0", [CARD, "device/infiniband/mlx5_0/x"], False, True),
        ("wlan0", [CARD, "phy80211/x"], True, False),
        ("wlp2s0", [CARD, "phy80211/x"], True, False),
        ("lan9", [CARD, "phy80211/x"], True, False),
        ("tailscale0", [], True, False),
        ("wg0", [], True, False),
        ("ppp0", [], True, False),
        ("azv12", [], True, False),
        ("eth4", [CARD, "device/physfn/x"], True, False),
    ],
)
def test_what_uses_an_interface_decides(machine, monkeypatch, name, files, routed, bad) -> None:
    machine.add("eno9", CARD)
    machine.add(name, *files)
    machine.route("eno9", *([name] if routed else []))
    before = machine.beats(monkeypatch)
    machine.link(name, up=False)
    machine.route("eno9")
    after = machine.beats(monkeypatch)

    assert before == set()
    assert after == ({("net.link", name)} if bad else set())


def test_a_card_below_a_bridge_or_a_vlan_is_needed(machine, monkeypatch) -> None:
    machine.add("eno1", CARD, "upper_br0/x")
    machine.add("eno2", CARD, "upper_eno2.7/x")
    machine.add("br0", "bridge/x")
    machine.add("eno2.7", "upper_top/x")
    machine.add("top")
    machine.route("br0", "top")
    machine.beats(monkeypatch)
    machine.link("eno1", up=False)
    machine.link("eno2", up=False)
    machine.route()

    assert machine.beats(monkeypatch) == {("net.link", "eno1"), ("net.link", "eno2")}


def test_a_leg_that_its_bond_does_not_use_is_bad_right_after_the_start(
    machine, monkeypatch
) -> None:
    machine.add("bond0")
    for leg in ("a0", "a1", "a2", "a3"):
        machine.add(leg, CARD)
    machine.enslave("bond0", a0="1", a1="1", a2="2")
    machine.enslave("bond0", a3="1")
    write(machine.root, f"{NET}/a1/bonding_slave/mii_status", "down\n")
    machine.link("a1", up=False)

    assert machine.beats(monkeypatch) == {("net.link", "a1"), ("net.link", "a2")}


def test_the_backup_leg_of_a_bond_is_well(machine, monkeypatch) -> None:
    machine.add("bond0")
    machine.add("a0", CARD)
    write(machine.root, f"{NET}/a0/bonding_slave/state", "backup\n")
    write(machine.root, f"{NET}/a0/bonding_slave/mii_status", "up\n")
    (machine.root / NET / "a0/master").symlink_to("../bond0")

    assert machine.beats(monkeypatch) == set()


def test_routes_that_an_interface_has_by_itself_do_not_count(tmp_path) -> None:
    far = "20010db8000000000000000000000000 40 " + "0" * 32 + " 00 " + "0" * 32
    tail = " 00000400 00000001 00000000 00000001"
    local = far.replace("20010db8", "fe800000")
    write(tmp_path, "proc/net/ipv6_route", f"{far}{tail} eno1\n{local}{tail} eno2\n")
    write(tmp_path, "proc/net/route", HEAD + route("eno3", "0000FEA9") + route("ib0"))

    assert routed_interfaces(Tree(str(tmp_path))) == {"eno1", "ib0"}
    assert routed_interfaces(Tree(str(tmp_path / "nothing"))) is None


@pytest.mark.parametrize(
    ("guid", "ports"), [("0000:0000:0000:0000", 1), ("0011:2233:4455:6677", 2)]
)
def test_a_virtual_function_without_a_guid_has_no_port(tmp_path, guid, ports) -> None:
    for device, its in (("mlx5_0", "1111:2233:4455:6677"), ("mlx5_1", guid)):
        base = f"sys/class/infiniband/{device}"
        write(tmp_path, f"{base}/node_guid", f"{its}\n")
        write(tmp_path, f"{base}/ports/1/state", "1: DOWN\n")
        write(tmp_path, f"{base}/ports/1/phys_state", "5: LinkUp\n")
        write(tmp_path, f"{base}/ports/1/link_layer", "InfiniBand\n")
    write(tmp_path, "sys/class/infiniband/mlx5_1/device/physfn/x", "x\n")
    reading = RdmaCollector(str(tmp_path)).collect(0.0)

    assert len(reading.values["rdma.up"]) == ports
