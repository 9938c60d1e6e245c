"""Eight namespace nodes with links limited by tc to rates that do not depend
on the CPU; tests plant faults in them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tests.support.lab.rootless import Lab

NODES = tuple(f"n{number}" for number in range(1, 9))
FULL = "100mbit"
_TO = ("filter", "add", "parent", "1:", "protocol", "ip", "u32", "match", "ip", "dst")


class ShapedLab(Lab):
    """A lab in which every port has 100 Mbit/s in each direction."""

    def up(self) -> None:
        super().up()
        self.heal()

    def heal(self) -> None:
        """Remove all faults."""
        for node in self.nodes:
            self.shape(node, FULL, sending=True)
            self.shape(node, FULL, sending=False)

    def shape(self, node: str, rate: str, *, sending: bool) -> None:
        """Limit the rate at which a node sends or receives."""
        queue = ("tbf", "rate", rate, "burst", "64kb", "latency", "60ms")
        self.as_root([*self._queue("replace", node, towards_head=sending), *queue])

    def as_roots(self, script: str) -> list[str]:
        """The command, for Popen, of a shell script on the head that may
        enter the networks of the nodes.
        """
        return self._on_head(["sh", "-c", script])

    def narrow(self, node: str, other: str, rate: str) -> None:
        """Limit the rate at which a node sends to one other node; all else has full speed."""
        run = self._aside(node, rate, towards_head=True)
        run(*_TO, f"{self.address(other)}/32", "flowid", "1:2")

    def block(self, node: str, other: str) -> None:
        """Drop all that a node sends to one other node; all else has full speed."""
        run = self._aside(node, FULL, towards_head=True)
        run("qdisc", "add", "parent", "1:2", "blackhole")
        run(*_TO, f"{self.address(other)}/32", "flowid", "1:2")

    def lose(self, node: str, share: float) -> None:
        """Drop this share of the packets to a node, at random."""
        run = self._aside(node, FULL, towards_head=False)
        run("qdisc", "add", "parent", "1:2", "blackhole")
        # Classic BPF: a packet goes to the class that drops if its
        # random number is not above the limit.
        most = int(share * (1 << 32))
        program = f"4,32 0 0 4294963256,37 1 0 {most},6 0 0 4294967295,6 0 0 0"
        run(
            "filter",
            "add",
            "parent",
            "1:",
            "protocol",
            "ip",
            "bpf",
            "bytecode",
            program,
            "flowid",
            "1:2",
        )

    def _aside(self, node: str, rate: str, *, towards_head: bool) -> Callable[..., None]:
        """Add a class 1:2 of this rate; returns the function that runs tc
        on this end of the link of a node.
        """
        self.as_root(self._queue("delete", node, towards_head=towards_head))
        space = ["nsenter", f"--net=/run/netns/{node}"] if towards_head else []
        device = "eth0" if towards_head else f"v{self._number(node)}"

        def run(kind: str, verb: str, *words: str) -> None:
            self.as_root([*space, "tc", kind, verb, "dev", device, *words])

        run("qdisc", "add", "root", "handle", "1:", "htb", "default", "1")
        classes = ("class", "add", "parent", "1:", "classid")
        run(*classes, "1:1", "htb", "rate", FULL, "burst", "64kb")
        run(*classes, "1:2", "htb", "rate", rate, "burst", "16kb")
        return run

    def second(self) -> None:
        """Give every node a second interface, eth1, with the same rate, on another switch."""
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
        """Limit the rate of eth1 of a node, in each direction."""
        queue = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "60ms")
        inside = ["nsenter", f"--net=/run/netns/{node}", "tc", "qdisc", "replace", "dev", "eth1"]
        self.as_root([*inside, *queue])
        self.as_root(["tc", "qdisc", "replace", "dev", f"w{self._number(node)}", *queue])

    def part(self, nodes: Iterable[str], rate: str) -> None:
        """Put these nodes on another switch; `rate` limits the sum of what
        goes to the other nodes, and from them.
        """
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
        """Put all nodes on one switch again."""
        for node in nodes:
            self.as_root(["ip", "link", "set", f"v{self._number(node)}", "master", "br0"])
        for device in ("up0", "br1"):
            self.as_root(["ip", "link", "delete", device])


@contextmanager
def parted(lab: ShapedLab, rate: str, *nodes: str) -> Iterator[None]:
    """Put these nodes behind an uplink of this rate until the end of the block."""
    lab.part(nodes, rate)
    try:
        yield
    finally:
        lab.join(nodes)


@contextmanager
def planted(lab: ShapedLab, *faults: tuple[str, ...]) -> Iterator[None]:
    """Faults of the lab until the end of the block: (`sends` or `receives`, node, rate), (`path`,
    node, other, rate), (`blocked`, node, other) of what the first sends, or (`loses`, node, share)
    of what it receives.
    """  # fmt: skip
    try:
        for kind, node, *more in faults:
            if kind == "path":
                lab.narrow(node, *more)
            elif kind == "blocked":
                lab.block(node, *more)
            elif kind == "loses":
                lab.lose(node, float(*more))
            else:
                lab.shape(node, *more, sending=kind == "sends")
        yield
    finally:
        lab.heal()
