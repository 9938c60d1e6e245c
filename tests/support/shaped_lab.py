"""Eight namespace nodes whose links are shaped with tc, so that the machine's CPU does not matter: faults are planted there."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.support.lab.rootless import Lab

NODES = tuple(f"n{number}" for number in range(1, 9))
FULL = "100mbit"


class ShapedLab(Lab):
    """A lab whose every port carries 100 Mbit/s in each direction."""

    def up(self) -> None:
        super().up()
        self.heal()

    def heal(self) -> None:
        """Every port as it should be."""
        for node in self.nodes:
            self.shape(node, FULL, sending=True)
            self.shape(node, FULL, sending=False)

    def shape(self, node: str, rate: str, *, sending: bool) -> None:
        """Let a node send, or receive, so much."""
        queue = ("tbf", "rate", rate, "burst", "64kb", "latency", "60ms")
        self.as_root([*self._queue("replace", node, towards_head=sending), *queue])

    def as_roots(self, script: str) -> list[str]:
        """A shell script on the head that may enter the nodes' networks; for Popen."""
        return self._on_head(["sh", "-c", script])

    def narrow(self, node: str, other: str, rate: str) -> None:
        """Let a node send so much to one other node, and everything else at full speed."""
        self.as_root(self._queue("delete", node, towards_head=True))
        space = ["nsenter", f"--net=/run/netns/{node}", "tc"]
        classes = ("class", "add", "dev", "eth0", "parent", "1:", "classid")
        for words in (
            ("qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1"),
            (*classes, "1:1", "htb", "rate", FULL, "burst", "64kb"),
            (*classes, "1:2", "htb", "rate", rate, "burst", "16kb"),
            ("filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", "u32", "match", "ip", "dst", f"{self.address(other)}/32", "flowid", "1:2"),
        ):  # fmt: skip
            self.as_root([*space, *words])

    def second(self) -> None:
        """Give every node a second interface, eth1, on a switch of its own, as wide as the first."""
        self.as_root(["ip", "link", "add", "br2", "type", "bridge"])
        self.as_root(["ip", "link", "set", "br2", "up"])
        for node in self.nodes:
            port = f"w{self._number(node)}"
            self.as_root(["ip", "link", "add", port, "type", "veth", "peer", "name", "eth1", "netns", node])  # fmt: skip
            self.as_root(["ip", "link", "set", port, "master", "br2", "up"])
            self.as_root(["ip", "-n", node, "addr", "add", f"10.79.0.{self._number(node)}/24", "dev", "eth1"])  # fmt: skip
            self.as_root(["ip", "-n", node, "link", "set", "eth1", "up"])
            self.shape_second(node, FULL)

    def shape_second(self, node: str, rate: str) -> None:
        """What eth1 of a node carries, in each direction."""
        queue = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "60ms")
        inside = ["nsenter", f"--net=/run/netns/{node}", "tc", "qdisc", "replace", "dev", "eth1"]
        self.as_root([*inside, *queue])
        self.as_root(["tc", "qdisc", "replace", "dev", f"w{self._number(node)}", *queue])

    def part(self, nodes: Iterable[str], rate: str) -> None:
        """Put these nodes on a switch of their own; so much goes to and from the others, of all together."""
        bridge = ["ip", "link", "set"]
        self.as_root(["ip", "link", "add", "br1", "type", "bridge"])
        self.as_root(["ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1"])
        for words in (
            ("br1", "up"),
            ("up0", "master", "br0", "up"),
            ("up1", "master", "br1", "up"),
        ):
            self.as_root([*bridge, *words])
        for node in nodes:
            self.as_root([*bridge, f"v{self._number(node)}", "master", "br1"])
        for device in ("up0", "up1"):
            self.as_root(
                ["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "60ms"]
            )  # fmt: skip

    def join(self, nodes: Iterable[str]) -> None:
        """All on one switch again."""
        for node in nodes:
            self.as_root(["ip", "link", "set", f"v{self._number(node)}", "master", "br0"])
        for device in ("up0", "br1"):
            self.as_root(["ip", "link", "delete", device])


@contextmanager
def parted(lab: ShapedLab, rate: str, *nodes: str) -> Iterator[None]:
    """These nodes behind an uplink of that rate, until the end of the block."""
    lab.part(nodes, rate)
    try:
        yield
    finally:
        lab.join(nodes)


@contextmanager
def planted(lab: ShapedLab, *faults: tuple[str, ...]) -> Iterator[None]:
    """Faults of the lab until the end of the block: (`sends` or `receives`, node, rate), or (`path`, node, other, rate)."""
    try:
        for kind, node, *more in faults:
            if kind == "path":
                lab.narrow(node, *more)
            else:
                lab.shape(node, *more, sending=kind == "sends")
        yield
    finally:
        lab.heal()
