"""Numbers that follow from those of a sample: what is missing, down, gone
or unlike its peers within the node.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Union

from rankdeck_agent.rules.facts import Facts, Number, Table
from rankdeck_agent.rules.units import write_duration, write_number
from rankdeck_agent.values import Record, Value, field, replace
from rankdeck_agent.wire import Event

RECOVERY = {
    1: (2, "a reset"),
    2: (2, "a reboot of the node"),
    3: (1, "its peer traffic to be drained"),
    4: (2, "a drain and a reset"),
}
"""NVML's recovery action -> value of `gpu.action` (1 warn, 2 bad), and words."""
FABRIC_FAULTS = (
    (0, 3, {1}, 1, "it runs at reduced bandwidth"),
    (2, 3, {1}, 1, "routes are being recovered"),
    (4, 3, {1}, 2, "a route is unhealthy"),
    (6, 3, {1}, 1, "it recovers from an access timeout"),
    (8, 15, {2, 3, 4, 5, 6, 7, 8}, 2, "its configuration is incorrect"),
)
"""NVML's fabric health mask: shift, mask, values that are faults, value of
`gpu.fabric_fault` (1 warn, 2 bad), words.
"""
_BRIDGED = re.compile(r"PCI|\bNVL\b|RTX|Quadro|TITAN|GeForce|\bA[1-4]0\b", re.IGNORECASE)
"""Matches the model names of boards whose NVLinks are connectors for optional bridges."""
_BRAKE, _HEAT_OR_POWER = 0x80, 0x48
_HELD = (
    (_BRAKE, "gpu.throttle_brake", "gpu.brake_now"),
    (_HEAT_OR_POWER, "gpu.throttle_thermal", "gpu.slowed_now"),
)
"""Bits of NVML's clock event reasons, the counter that is used instead
if there is one, the derived metric.
"""
DISABLED, LINK_UP = 3, 5
"""Physical states of an RDMA port."""
_NO_MANAGER = "; its link is up, but no subnet manager has set it up"
PEERS, SHARE = 3, 0.75
"""How many devices of one machine must agree, and which share of
all, before another one counts as odd.
"""
GPUS = ("gpu.mem_total", "gpu.used")
_MOUNTS = ("disk.mounted", "disk.used", "disk.readonly", "disk.stuck")
_SEEN_AS = ("disk.mounted", "disk.readonly")
"""The metrics of mounts that do not go away while a mount hangs."""
_TOGETHER = ((*GPUS, "gpu.lost"), _MOUNTS)
"""Metrics of one kind of device: it is there if one of them has it."""
KEPT = (*GPUS, "rdma.up", "net.up", "nvme.live", *_SEEN_AS)
"""Metrics whose devices are remembered: one that goes is judged like one that is down."""
SIZES = ("cpu.cores", "mem.total")
"""Metrics of the machine's size, which does not shrink while it runs."""
PACES = ("rdma.rate", "net.speed")
"""Metrics of links that do not get slower while nothing is wrong."""
_SHRUNK = 0.98
"""Share of the largest size from which on nothing is missing: a
kernel may keep back a little more.
"""
UNWATCHED = re.compile(
    r"(?:lo|veth.*|docker.*|br-.*|cni.*|cali.*|flannel.*|virbr.*|vnet.*|ifb.*|tap.*|tun.*|dummy.*|sit\d*"
    r"|ip6?tnl.*|ip6?gre.*|gre.*|erspan.*|ip_vti.*|ip6_vti.*|kube-.*|nodelocaldns|vxlan.*|lxc.*|podman.*)"
)
"""Names of purely virtual interfaces: they come and go with what uses them."""
_PASSING = re.compile(
    r"(?:wl|wwan|wg|ppp|tailscale|zt|usb|nebula|utun|vpn|nordlynx|ipsec|macvlan|ipvlan).*"
)
"""Names of interfaces that go down while nothing is wrong with the node."""
_PASSING_KINDS = frozenset({"wifi", "vf", "usb", "virtual", "fabric"})
"""Kinds in the inventory of devices that may go while nothing is wrong:
moved into a container, or unplugged.
"""
_PASSING_MOUNT = re.compile(
    r"/(?:run|tmp|media|snap|proc|sys|dev|var/(?:run|snap|tmp|lib/(?:kubelet|docker|containers?|containerd|rancher|lxd|lxc|machines)))(?:/|$)"
)
"""Where containers, users and the system mount for a while."""
SPEEDS = {
    "rdma_rate_gbps": ("rdma.rate", "rdma.up", "rdma.slow"),
    "net_speed_gbps": ("net.speed", "net.up", "net.slow"),
}
_COUNTED = (
    ("gpu_count", "gpu.missing", "GPU", GPUS),
    ("rdma_count", "rdma.missing", "RDMA port", ("rdma.up",)),
)
COUNTS = frozenset({"gpu_count", "rdma_count"})
"""Keys of `expect:` that mean the same as `gpus:` and `rdma:` of a node."""


class Derived(Record):
    """Numbers by metric and device, and a note for the sentence about each."""

    values: dict[str, dict[str, Number]] = field(default_factory=dict[str, dict[str, Number]])
    notes: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def put(self, metric: str, device: str, number: Number, note: str = "") -> None:
        """Store a derived number, and the {note} for the sentence of its rule."""
        self.values.setdefault(metric, {})[device] = number
        if note:
            self.notes[metric, device] = note


def derive_numbers(facts: Facts) -> Derived:
    """The numbers that follow from these facts."""
    found = Derived()

    _driver(facts, found)
    _recovery(facts, found)
    _fabric(facts, found)
    _nvlinks(facts, found)
    _held_down(facts, found)
    _counts(facts, found)
    _links(facts, found)
    _gone(facts, found)

    _fell_back(facts, found)
    links = facts.values.get("rdma.up")
    if links:
        _odd_ports(links, facts, found)
        _odd_rates(links, facts, found)
    _odd_gpus(facts, found)

    for device, percent in facts.values.get("md.rebuilt", {}).items():
        found.notes["md.degraded", device] = f"; it is being rebuilt, {percent:g}% done"
    for path, mounted in facts.values.get("disk.mounted", {}).items():
        if not mounted:  # although the node's own table has it
            found.put("disk.unmounted", path, 1)
    _clock(facts, found)

    for key, value in facts.expected.other.items():
        _as_told(key, value, facts, found)
    return found


def wanted_devices(facts: Facts, key: str) -> int:
    """How many GPUs ("gpu_count") or RDMA ports ("rdma_count") the node should have."""
    expected = facts.expected.gpus if key == "gpu_count" else facts.expected.rdma
    other = facts.expected.other.get(key, 0)
    return expected or (other if isinstance(other, int) else 0)


def _driver(facts: Facts, found: Derived) -> None:
    for device, waited in facts.values.get("gpu.answer", {}).items():
        if waited >= facts.driver_limit:
            found.put("gpu.hangs", device, 1, write_number(waited, "s"))


def _recovery(facts: Facts, found: Derived) -> None:
    for device, action in facts.values.get("gpu.recovery", {}).items():
        if action:
            bad, note = RECOVERY.get(int(action), (2, f"recovery action {action:g}"))
            found.put("gpu.action", device, bad, note)


def _fabric(facts: Facts, found: Derived) -> None:
    for device, mask in facts.values.get("gpu.fabric_health", {}).items():
        faults = [fault for fault in FABRIC_FAULTS if int(mask) >> fault[0] & fault[1] in fault[2]]
        if faults:
            note = ", ".join(fault[4] for fault in faults)
            found.put("gpu.fabric_fault", device, max(fault[3] for fault in faults), note)


def _nvlinks(facts: Facts, found: Derived) -> None:
    """NVLinks that do not work; not of PCIe cards, whose bridges are optional."""
    every = facts.values.get("gpu.nvlinks", {})
    alone = len(every) == 1 and wanted_devices(facts, "gpu_count") <= 1
    for device, active in facts.values.get("gpu.nvlinks_active", {}).items():
        if alone and not active:
            # The only GPU of a virtual machine, or of a Grace Hopper: there is none to link to.
            continue
        bridged = _BRIDGED.search(facts.inventory.get(f"gpu.{device}.model", ""))
        if device in every and not bridged:
            note = f"{active:g} of {every[device]:g}"
            found.put("gpu.nvlinks_down", device, max(0, every[device] - active), note)


def _held_down(facts: Facts, found: Derived) -> None:
    """What slows clocks down now, if the driver has no counter of the time."""
    for device, bits in facts.values.get("gpu.throttle_reasons", {}).items():
        for mask, counter, derived in _HELD:
            if int(bits) & mask and device not in facts.values.get(counter, {}):
                found.put(derived, device, 1)
                break


def _counts(facts: Facts, found: Derived) -> None:
    """Missing devices; a device that could not be read is not missing."""
    for key, metric, what, seen_by in _COUNTED:
        number = wanted_devices(facts, key)
        if not number or any(n.partition("/")[0] in seen_by for n in facts.failed):
            continue
        if any(name in facts.values or name in facts.absent for name in seen_by):
            seen = max(len(facts.values.get(name, {})) for name in seen_by)
            if seen < number:
                note = f"{seen} of {number} {what}s"
                found.put(metric, "", number - seen, note)

    there = facts.values.get("gpu.on_bus", {}).get("", 0)
    listed = len(facts.values.get("gpu.lost", {}))
    if listed and not wanted_devices(facts, "gpu_count") and there > listed:
        found.put("gpu.unlisted", "", there - listed, f"{listed} of {there:g} GPUs")


def is_kept(
    metric: str, device: str, number: Number, values: Table, inventory: Mapping[str, str]
) -> bool:
    """Whether a device of KEPT should stay: something is wrong when it goes."""
    kind = metric.partition(".")[0]
    if metric == "net.up":
        return bool(number) and interface_matters(device, values, inventory)
    if inventory.get(f"{kind}.{device}.kind") in _PASSING_KINDS:
        return False
    if metric in _SEEN_AS:
        automatic = device in values.get("disk.automatic", {})
        return bool(number or metric != "disk.mounted") and not (
            automatic or _PASSING_MOUNT.match(device)
        )
    return True


def interface_matters(interface: str, values: Table, inventory: Mapping[str, str]) -> bool:
    """Whether something is wrong when this interface, which was up, goes down."""
    kind = inventory.get(f"net.{interface}.kind", "")
    if UNWATCHED.fullmatch(interface) or _PASSING.fullmatch(interface):
        return False
    needed = values.get("net.needed", {}).get(interface)
    if needed is None:
        return kind not in _PASSING_KINDS
    return bool(needed) and kind not in _PASSING_KINDS - {"usb"}


_RDMA_DEVICE = re.compile(r"\w+_\d+")
"""Names of RDMA devices in lines of their drivers."""


def weigh_link_event(event: Event, values: Table, inventory: Mapping[str, str]) -> Event:
    """The event, as no warning if it tells that an interface has no link which nobody here
    needs: a port without a cable, or one of a container.
    """
    links = values.get("net.up")
    if event.check != "kernel.link" or event.level == "ok" or not links:
        return event
    if event.device in links:
        matters = interface_matters(event.device, values, inventory)
    else:
        matters = _RDMA_DEVICE.fullmatch(event.device) is not None
    return event if matters else replace(event, level="info")


def _gone(facts: Facts, found: Derived) -> None:
    """What was there in this boot and is not any more."""
    for metric, device in facts.seen:
        if f"rdma.{device.partition('/')[0]}.excluded" in facts.inventory and metric == "rdma.up":
            continue
        group = next((names for names in _TOGETHER if metric in names), (metric,))
        if not _is_there(facts, group, device):
            _put_gone(metric, device, facts, found)

    for metric, derived in zip(SIZES, ("cpu.missing", "mem.missing")):
        now, most = facts.values.get(metric, {}).get(""), facts.most.get(metric, 0)
        if now is not None and now < most * _SHRUNK:
            unit = "B" if metric == "mem.total" else ""
            found.put(derived, "", 1, f"{write_number(now, unit)} of {write_number(most, unit)}")


def _is_there(facts: Facts, metrics: Iterable[str], device: str) -> bool:
    """Whether the device has one of these metrics now, or whether that is not known."""
    if any(name in facts.failed or f"{name}/{device}" in facts.failed for name in metrics):
        return True
    # A metric that is neither there nor absent was not read yet.
    known = [name for name in metrics if name in facts.values or name in facts.absent]
    return not known or any(device in facts.values.get(name, ()) for name in known)


def _put_gone(metric: str, device: str, facts: Facts, found: Derived) -> None:
    if metric in ("rdma.up", "net.up"):
        found.put(f"{metric.partition('.')[0]}.down", device, 1, "gone")
    elif metric in _SEEN_AS:
        found.put("disk.unmounted", device, 1)
    elif metric == "nvme.live":
        found.put("nvme.gone", device, 1)
    elif not wanted_devices(facts, "gpu_count"):
        found.put("gpu.gone", device, 1)


def _links(facts: Facts, found: Derived) -> None:
    """Links that are down although they are expected, named, or were up before."""
    _named_interface(facts, found)
    for device, used in facts.values.get("net.bond_leg", {}).items():
        if not used:
            found.put(
                "net.down", device, 1, "not used by its bond: its link or its partner is gone"
            )

    for metric, derived in (("rdma.up", "rdma.down"), ("net.up", "net.down")):
        links = facts.values.get(metric)
        if not links or 0 not in links.values():
            continue
        every = metric == "rdma.up" and wanted_devices(facts, "rdma_count") > sum(
            map(bool, links.values())
        )
        for device, up in links.items():
            named = metric == "net.up" and device == facts.expected.interface
            was_up = (metric, device) in facts.seen_up and (
                metric != "net.up" or interface_matters(device, facts.values, facts.inventory)
            )
            if not up and (every or named or was_up):
                waits = metric == "rdma.up" and _physical(facts, device) == LINK_UP
                found.put(derived, device, 1, f"not ACTIVE{_NO_MANAGER}" if waits else "down")


def _named_interface(facts: Facts, found: Derived) -> None:
    """The interface that the cluster file names, if the node has no such interface."""
    name = facts.expected.interface
    # Purely virtual interfaces are not read.
    if name and not UNWATCHED.fullmatch(name) and not _is_there(facts, ("net.up",), name):
        found.put("net.down", name, 1, "not there")


def _odd_ports(links: Mapping[str, Number], facts: Facts, found: Derived) -> None:
    """Ports that are not ACTIVE while their link is up or most others are ACTIVE;
    only if the expected number is not set.
    """
    if wanted_devices(facts, "rdma_count"):
        return
    # Virtual functions wait for the container or machine that gets them.
    links = {d: on for d, on in links.items() if facts.inventory.get(f"rdma.{d}.kind") != "vf"}
    up = sum(map(bool, links.values()))
    if not links:
        return
    kinds = [_kind(facts, device) for device in links]
    usual = max(set(kinds), key=kinds.count)
    for device, active in links.items():
        state = _physical(facts, device)
        # A port with a cable is meant to be used; a disabled port of
        # another kind of card is a spare one.
        spare = state == DISABLED and _kind(facts, device) != usual
        if not active and (state == LINK_UP or (_most(up, len(links)) and not spare)):
            why = _NO_MANAGER if state == LINK_UP else ""
            found.put("rdma.odd", device, 1, f"{up} of {len(links)} are ACTIVE{why}")


def _physical(facts: Facts, device: str) -> Number:
    return facts.values.get("rdma.phys_state", {}).get(device, 0)


def _kind(facts: Facts, device: str) -> tuple[str, str]:
    """The type of the card and its link layer (InfiniBand or Ethernet)."""
    inventory = facts.inventory
    return inventory.get(f"rdma.{device}.type", ""), inventory.get(f"rdma.{device}.link", "")


def _fell_back(facts: Facts, found: Derived) -> None:
    """Links that were faster before in this boot; only if the expected speed is not set."""
    for key, (metric, up, derived) in SPEEDS.items():
        links = facts.values.get(up, {})
        for device, speed in facts.values.get(metric, {}).items():
            most = facts.most.get(f"{metric}/{device}", 0)
            slower = 0 < speed < most and links.get(device) and key not in facts.expected.other
            if slower and _keeps_pace(metric, device, facts):
                note = f"{write_number(speed, 'bit/s')}, {write_number(most, 'bit/s')} before"
                found.put(derived, device, 1, note)


def _keeps_pace(metric: str, device: str, facts: Facts) -> bool:
    """Whether something is wrong when this link gets slower: a bond is
    as fast as the legs that it has, which are judged themselves.
    """
    if metric != "net.speed":
        return True
    bond = facts.inventory.get(f"net.{device}.kind") == "bond"
    return not bond and interface_matters(device, facts.values, facts.inventory)


def _odd_rates(links: Mapping[str, Number], facts: Facts, found: Derived) -> None:
    """Ports that are slower than most of their kind; only if the expected rate is not set."""
    if "rdma_rate_gbps" in facts.expected.other:
        return
    kinds: dict[tuple[str, str], dict[str, Number]] = {}
    for device, rate in facts.values.get("rdma.rate", {}).items():
        if links.get(device) and rate > 0:
            kinds.setdefault(_kind(facts, device), {})[device] = rate
    for rates in kinds.values():
        usual = max(set(rates.values()), key=list(rates.values()).count)
        alike = sum(rate == usual for rate in rates.values())
        for device, rate in rates.items() if _most(alike, len(rates)) else ():
            if rate < usual:
                note = (
                    f"{write_number(rate, 'bit/s')}, {alike} of {len(rates)} of its kind at"
                    f" {write_number(usual, 'bit/s')}"
                )
                found.put("rdma.slow", device, 1, note)


class PeerRow(Value):
    """A number in which the equal GPUs of a node are alike."""

    metric: str
    share: float
    """Below this share of what the others have, a GPU is unlike them."""
    derived: str
    unit: str
    busy: bool
    """Only GPUs that have work are compared."""


_PEERS = (
    # Two kernels may differ much in the clock that the power limit leaves them.
    PeerRow("gpu.clock", 0.5, "gpu.slow", "Hz", busy=True),
    PeerRow("gpu.power_limit", 0.9, "gpu.capped", "W", busy=False),
)
_BUSY = 50
"""Percent of use from which on a GPU has work."""


def _odd_gpus(facts: Facts, found: Derived) -> None:
    """GPUs that are far below most others of the same model in this node."""
    use = facts.values.get("gpu.used", {})
    for row in _PEERS:
        kinds: dict[str, dict[str, Number]] = {}
        for device, number in facts.values.get(row.metric, {}).items():
            if not row.busy or use.get(device, 0) >= _BUSY:
                model = facts.inventory.get(f"gpu.{device}.model", "")
                kinds.setdefault(model, {})[device] = number
        for numbers in kinds.values():
            # The higher median: `statistics` loads fractions, decimals and random numbers.
            usual = sorted(numbers.values())[len(numbers) // 2]
            low = {device: n for device, n in numbers.items() if n < usual * row.share}
            alike = len(numbers) - len(low)
            for device, number in low.items() if _most(alike, len(numbers)) else ():
                note = (
                    f"{write_number(number, row.unit)}, {alike} of {len(numbers)} like it at"
                    f" {write_number(usual, row.unit)}"
                )
                found.put(row.derived, device, 1, note)


def _most(alike: int, everything: int) -> bool:
    """Whether `alike` of `everything` are a clear majority (PEERS, SHARE) but not all."""
    return PEERS <= alike < everything and alike >= SHARE * everything


def _clock(facts: Facts, found: Derived) -> None:
    if facts.skew is not None:
        side = "ahead" if facts.skew > 0 else "behind"
        note = f"{write_duration(abs(facts.skew))} {side}" if abs(facts.skew) >= 0.5 else ""
        found.put("node.skew", "", abs(facts.skew), note)


def _as_told(key: str, value: Union[str, float], facts: Facts, found: Derived) -> None:
    """Compare one entry of `expect:` with what the node reports."""
    if key in COUNTS:
        return
    if key in SPEEDS:
        if isinstance(value, (int, float)):
            _slow(key, value * 1e9, facts, found)
    elif key == "mounts":
        _mounts(str(value), facts, found)
    else:
        _told_words(key, str(value), facts.inventory, found)


def _slow(key: str, rate: float, facts: Facts, found: Derived) -> None:
    metric, up, derived = SPEEDS[key]
    links = facts.values.get(up, {})
    only = facts.expected.interface if metric == "net.speed" else ""
    for device, speed in facts.values.get(metric, {}).items():
        if 0 < speed < rate and links.get(device, 1) and device == (only or device):
            note = f"{write_number(speed, 'bit/s')}, expected {write_number(rate, 'bit/s')}"
            found.put(derived, device, 1, note)


def _mounts(paths: str, facts: Facts, found: Derived) -> None:
    listed = facts.values.get("disk.mounted", {})
    mounted = {
        device
        for metric in _MOUNTS
        for device in facts.values.get(metric, {})
        if listed.get(device, 1)
    }
    if not mounted:
        return
    for path in filter(None, (part.strip() for part in paths.split(","))):
        if path not in mounted:
            found.put("disk.unmounted", path, 1)


def _told_words(key: str, value: str, inventory: Mapping[str, str], found: Derived) -> None:
    kind, _, tail = key.partition("_")
    for name, text in inventory.items():
        same = name == key or (tail and name.startswith(f"{kind}.") and name.endswith(f".{tail}"))
        if same and value.lower() not in text.lower():
            note = f"{name} is {text}, expected {value}"
            found.put("node.unlike", key, 1, note)
            return
