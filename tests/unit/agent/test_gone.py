"""What was there in this boot and has gone is judged like what is down; what may go is not."""

import shutil
from pathlib import Path

import pytest

from rankdeck_agent.collectors import make_collectors
from rankdeck_agent.collectors.base import BootMemory
from rankdeck_agent.collectors.disk import automatic_mounts, find_unmounted
from rankdeck_agent.rules.levels import Expected
from rankdeck_agent.sampler import NodeJudge, Sampler
from rankdeck_agent.seen_devices import SeenDevices
from rankdeck_agent.wire import Sample
from tests.support.cases import each
from tests.unit.agent.machines import MOUNTINFO, NET_DEV, STAT, make_machine, write

IB = "sys/class/infiniband"
BAD = 3
SCRATCH = "60 21 8:33 / /scratch rw - xfs /dev/sdc1 rw\n"


class Node:
    """A node whose samples a test makes."""

    def __init__(self, inventory=(), memory=None, **expected):
        seen = SeenDevices("b", memory)
        self._judge = NodeJudge(Expected(**expected), seen, 10.0, clock=lambda: self.now)
        self._inventory = dict(inventory)
        self.now = 1000.0

    def told(self, values, absent=(), failed=(), seconds=60):
        """(check, device, level) of the reasons after these numbers held for a minute."""
        for _ in range(2):
            self.now += seconds / 2
            sample = Sample(0, 2e9 + self.now, values, tuple(absent), dict(failed))
            report = self._judge.judge(sample, (), self._inventory)
        return {(check, device, level) for check, level, device, *_ in report.reasons}


def of(metric, devices, number=1):
    return {metric: dict.fromkeys(devices.split(), number), "cpu.load1": {"": 1}}


GONE = (
    ("rdma.up", "a/1 b/1 c/1 d/1", "a/1 c/1 d/1", ("rdma.link", "b/1", BAD)),
    ("rdma.up", "a/1", "", ("rdma.link", "a/1", BAD)),
    ("net.up", "ens1f0 ens1f1", "ens1f0", ("net.link", "ens1f1", BAD)),
    ("net.up", "bond0 eno1", "eno1", ("net.link", "bond0", BAD)),
    ("nvme.live", "nvme0 nvme1", "nvme1", ("disk.nvme", "nvme0", BAD)),
    ("gpu.used", "0 1 2 3 4 5 6 7", "0 1 2 3 4 5 6", ("gpu.lost", "7", BAD)),
    ("disk.mounted", "/home /lustre", "/lustre", ("disk.mounted", "/home", BAD)),
    ("disk.mounted", "/home", "", ("disk.mounted", "/home", BAD)),
    ("disk.readonly", "/ /scratch", "/", ("disk.mounted", "/scratch", BAD)),
)


@each(GONE)
def test_what_has_gone_is_judged_like_what_is_down(metric, before, after, reason) -> None:
    node = Node()
    first = node.told(of(metric, before))
    now = of(metric, after) if after else {"cpu.load1": {"": 1}}
    gone = node.told(now, absent=() if after else (metric,))
    back = node.told(of(metric, before), seconds=600)

    assert reason[:2] not in {one[:2] for one in first}
    assert reason in gone
    assert reason[:2] not in {one[:2] for one in back}


@each((*row[:3], how) for row in GONE for how in ("failed", "unread", "late"))
def test_what_cannot_be_read_has_not_gone(metric, before, after, how) -> None:
    node = Node()
    node.told(of(metric, before))
    gone = sorted({*before.split()} - {*after.split()})
    if how == "failed":
        rest = of(metric, after) if after else {"cpu.load1": {"": 1}}
        told = node.told(rest, failed={f"{metric}/{device}": "x" for device in gone})
    elif how == "unread":
        told = node.told({"cpu.load1": {"": 1}}, failed={metric: "x"})
    else:
        told = node.told({"cpu.load1": {"": 1}})

    assert BAD not in {level for *_, level in told}


@each(
    (
        ("net.up", "wlan0 wlp2s0 tailscale0 wg0 ppp0 veth1a usb0", {}),
        ("net.up", "eth5", {"net.eth5.kind": "vf"}),
        ("net.up", "cali9", {"net.cali9.kind": "virtual"}),
        ("rdma.up", "mlx5_9/1", {"rdma.mlx5_9/1.kind": "vf"}),
        ("nvme.live", "nvme7", {"nvme.nvme7.kind": "fabric"}),
        ("disk.mounted", "/run/user/5/x /var/lib/kubelet/pods/1/v /media/stick", {}),
    )
)
def test_what_may_go_goes_without_a_word(metric, devices, inventory) -> None:
    node = Node(inventory)
    node.told(of(metric, devices))

    assert node.told({"cpu.load1": {"": 1}}, absent=(metric,)) == set()


def test_an_interface_that_was_never_up_may_go() -> None:
    node = Node()
    node.told(of("net.up", "eno9", 0))

    assert node.told({"cpu.load1": {"": 1}}, absent=("net.up",)) == set()


def test_cpus_and_memory_do_not_shrink() -> None:
    node = Node()
    load = {"cpu.load1": {"": 1}}
    assert node.told({"cpu.cores": {"": 16}, "mem.total": {"": 1 << 38}, **load}) == set()

    told = node.told({"cpu.cores": {"": 8}, "mem.total": {"": 3 << 36}, **load})

    assert told == {("cpu.count", "", BAD), ("mem.size", "", BAD)}


@each((({"net.up": {"eno1": 1}}, ()), ({"cpu.load1": {"": 1}}, ("net.up",))))
def test_the_interface_that_the_cluster_file_names_must_be_there(values, absent) -> None:
    assert ("net.link", "ib0", BAD) in Node(interface="ib0").told(values, absent)
    assert Node(interface="br-ex").told(values, absent) == set()


FSTAB = """# /etc/fstab
UUID=1 / ext4 defaults 0 1
UUID=2 none swap sw 0 0
server:/h /home nfs defaults,_netdev 0 0
/dev/sdc1 /scratch xfs defaults 0 2
/dev/sdd1 /spare xfs noauto 0 2
/dev/sde1 /usb ext4 nofail 0 2
"""


def test_what_fstab_mounts_is_mounted_or_missed() -> None:
    assert find_unmounted(FSTAB, MOUNTINFO.encode()) == ("/home", "/scratch")
    assert find_unmounted(FSTAB, (MOUNTINFO + SCRATCH).encode()) == ("/home",)
    assert find_unmounted("nonsense\n# x y z w", b"") == ()


def test_mounts_below_an_automatic_one_come_and_go() -> None:
    below = MOUNTINFO + "70 35 0:77 / /auto/anna rw - nfs4 server:/anna rw\n"

    assert automatic_mounts(below.encode()) == ("/auto/anna",)


def _take_out(root: Path, what: str) -> None:
    if what == "rdma":
        shutil.rmtree(root / IB / "mlx5_0")
    elif what == "nvme":
        shutil.rmtree(root / "sys/class/nvme/nvme0")
    elif what == "net":
        shutil.rmtree(root / "sys/class/net/eth0")
        write(root, "proc/self/net/dev", "\n".join(NET_DEV.splitlines()[:3]) + "\n")
    elif what == "cpu":
        write(root, "proc/stat", STAT.replace("cpu1 50 0 50 400 0 0 0 0 0 0\n", ""))
    elif what == "gpu":
        shutil.rmtree(root / "sys/class/drm/card0")
    else:
        write(root, "proc/self/mountinfo", MOUNTINFO.splitlines()[0] + "\n")


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("rdma", ("rdma.link", "mlx5_0/1")),
        ("nvme", ("disk.nvme", "nvme0")),
        ("net", ("net.link", "eth0")),
        ("cpu", ("cpu.count", "")),
        ("gpu", ("gpu.lost", "0")),
        ("mount", ("disk.mounted", "/nfs")),
    ],
)
def test_a_machine_that_loses_a_part_is_not_well(tmp_path, monkeypatch, what, reason) -> None:
    root = make_machine(tmp_path)
    made = make_collectors(str(root))
    for collector in made:
        monkeypatch.setattr(collector, "period", 0.0)
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    judge = NodeJudge(Expected(), SeenDevices("b"), 10.0, clock=lambda: now[0])
    sampler = Sampler(made, clock=lambda: now[0])

    def beats(count):
        for _ in range(count):
            now[0] += 70.0
            collected = sampler.take(limit=20)
            report = judge.judge(collected.sample, (), collected.inventory)
        return {(check, device) for check, level, device, *_ in report.reasons if level == BAD}

    before = beats(3)
    _take_out(root, what)
    after = beats(4)

    assert reason not in before
    assert reason in after


@pytest.mark.parametrize(("metric", "before", "after", "reason"), GONE)
def test_an_agent_that_starts_again_knows_what_was_there(
    tmp_path, metric, before, after, reason
) -> None:
    Node(memory=BootMemory(tmp_path / "seen", "boot-1")).told(of(metric, before))
    now = of(metric, after) if after else {"cpu.load1": {"": 1}}
    absent = () if after else (metric,)

    again = Node(memory=BootMemory(tmp_path / "seen", "boot-1")).told(now, absent)
    rebooted = Node(memory=BootMemory(tmp_path / "seen", "boot-2")).told(now, absent)

    assert reason in again
    assert reason[:2] not in {one[:2] for one in rebooted}


def test_an_agent_that_starts_again_knows_how_many_processors_there_were(tmp_path) -> None:
    Node(memory=BootMemory(tmp_path / "seen", "b")).told({"cpu.cores": {"": 16}})

    again = Node(memory=BootMemory(tmp_path / "seen", "b")).told({"cpu.cores": {"": 8}})

    assert ("cpu.count", "", BAD) in again


def test_a_device_that_the_settings_leave_out_has_not_gone(tmp_path) -> None:
    Node(memory=BootMemory(tmp_path / "seen", "b")).told(of("rdma.up", "mlx5_0/1 mlx5_1/1"))
    inventory = {"rdma.mlx5_1.excluded": "by the agent's configuration"}

    again = Node(inventory, BootMemory(tmp_path / "seen", "b")).told(of("rdma.up", "mlx5_0/1"))

    assert again == set()


@pytest.mark.parametrize("content", ["", "[]", '{"boot": "b"}', '{"boot": "b", "devices": 7}', '{"boot": "b", "devices": {"net.up": 1, "x/y": "up"}, "sizes": {"cpu.cores": "many", "y": "8"}}'])  # fmt: skip
def test_a_memory_that_was_damaged_costs_only_the_memory(tmp_path, content) -> None:
    (tmp_path / "seen").write_text(content)
    node = Node(memory=BootMemory(tmp_path / "seen", "b"))

    assert node.told({"net.up": {"eth0": 1}, "cpu.cores": {"": 8}}) == set()
