"""What makes a job talk over the job network: addresses, and the variables and options
that name an interface. No I/O.

A plan of the ssh backend has a token for what only the nodes know. Each node fills in what is
its own; an address that another node needs is asked for at the launch (`ADDRESS_OF`).
"""

import re
import shlex
from collections.abc import Mapping
from ipaddress import ip_address, ip_network

from rankdeck.backends.plan_tokens import fill_plan, plan_texts
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.plan import Plan
from rankdeck_agent.wire import ADDRESS_TOKEN, DEVICES_TOKEN, INTERFACE_TOKEN, NodePlan

ADDRESS_OF = "${RANKDECK_ADDRESS_%d}"
"""The address of the node with this index in the job."""
_ADDRESS_OF = re.compile(r"\$\{RANKDECK_ADDRESS_(\d{1,6})\}(:?)")
SOCKETS = ("GLOO_SOCKET_IFNAME", "FI_TCP_IFACE")
"""Variables whose value is the name of the interface: Gloo, and libfabric's TCP."""


def is_loopback(network: str) -> bool:
    """Whether this network or interface does not leave the machine."""
    return network == "lo" or network.startswith(("127.", "::1/"))


def asks_nodes(cluster: Cluster, node: Node, nodes: int) -> bool:
    """Whether a node of a job on so many nodes has to find its place in the job network."""
    named = node.interface or cluster.network
    return nodes > 1 and bool(named) and not is_loopback(cluster.network or node.interface)


def network_variables(cluster: Cluster, node: Node, nodes: int) -> dict[str, str]:
    """The variables that make NCCL, Gloo, libfabric and UCX use the job network on this node.

    `=` makes NCCL match the whole name. UCX is given the RDMA ports of the network too: its
    list would keep it from them.
    """
    asked = asks_nodes(cluster, node, nodes)
    interface = node.interface or (INTERFACE_TOKEN if asked else "")
    if not interface:
        return {}
    found = {"NCCL_SOCKET_IFNAME": f"={interface}", **dict.fromkeys(SOCKETS, interface)}
    return {**found, "UCX_NET_DEVICES": DEVICES_TOKEN} if asked else found


def own_address(cluster: Cluster, node: Node, nodes: int) -> str:
    """The address of a node in its own commands: a literal one if the cluster file has it."""
    known = not asks_nodes(cluster, node, nodes) or _is_literal(cluster, node)
    return node.address if known else ADDRESS_TOKEN


def address_for_others(cluster: Cluster, node: Node, index: int, nodes: int) -> str:
    """The address of a node in the commands of others, by its index in the job."""
    known = not asks_nodes(cluster, node, nodes) or _is_literal(cluster, node)
    return node.host if known else ADDRESS_OF % index


def _is_literal(cluster: Cluster, node: Node) -> bool:
    """Whether the address in the cluster file is one of the job network."""
    try:
        return ip_address(node.address) in ip_network(cluster.network, strict=False)
    except ValueError:
        return False


def asked_addresses(plan: Plan) -> tuple[int, ...]:
    """The indices of the nodes whose addresses must be filled in before the launch."""
    found = {int(m[1]) for text in plan_texts(plan.nodes) for m in _ADDRESS_OF.finditer(text)}
    return tuple(sorted(index for index in found if index < len(plan.nodes)))


def needs_network(node: NodePlan) -> bool:
    """Whether a node has to find its place in the job network."""
    tokens = (ADDRESS_TOKEN, INTERFACE_TOKEN, DEVICES_TOKEN)
    return any(token in text for text in plan_texts((node,)) for token in tokens)


def with_addresses(plan: Plan, addresses: Mapping[int, str]) -> Plan:
    """The plan with the addresses of these nodes filled in."""

    def fill(found: re.Match[str]) -> str:
        address = addresses.get(int(found[1]))
        if address is None:
            return found[0]
        return f"[{address}]:" if found[2] and ":" in address else address + found[2]

    return fill_plan(plan, lambda text: _ADDRESS_OF.sub(fill, text))


_LOOK_UP = """\
set_network() {
    set -- $(PATH=$PATH:/usr/sbin:/sbin ip -o addr show up scope global %(where)s)
    RANKDECK_INTERFACE=${2-} RANKDECK_ADDRESS=${4-}
    RANKDECK_ADDRESS=${RANKDECK_ADDRESS%%/*} RANKDECK_DEVICES=
    [ -n "$RANKDECK_ADDRESS" ] || { echo "$(uname -n): no address in the job network, "%(shown)s >&2; exit 1; }
    for port in /sys/class/infiniband/*/ports/*; do
        case " $(cat "$port/link_layer" "$port"/gid_attrs/ndevs/* 2>/dev/null | tr '\\n' ' ')" in
        *" InfiniBand "* | *" $RANKDECK_INTERFACE "*)
            port=${port#/sys/class/infiniband/}
            RANKDECK_DEVICES=$RANKDECK_DEVICES${port%%%%/*}:${port##*/},
            ;;
        esac
    done
    RANKDECK_DEVICES=$RANKDECK_DEVICES$RANKDECK_INTERFACE
}
set_network"""


def network_lines(network: str, interface: str) -> str:
    """Shell lines for scripts that run without Rankdeck: they set the variables that the
    tokens of a node become.
    """
    where = f"dev {interface}" if interface else f"to {network}"
    shown = shlex.quote(interface or network)
    return _LOOK_UP % {"where": where, "shown": shown}
