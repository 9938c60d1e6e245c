"""The values of a cluster file, which do not change while the cluster is open."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from msgspec import field

from rankdeck.model.capabilities import Capabilities, capabilities_of
from rankdeck.values import Value

LOCAL = "local"
"""The word of a cluster file for this machine itself: `address:
local` of a node, `login: local`.
"""


class Node(Value, kw_only=True):
    """One machine. `address` "": the name is used as the address."""

    name: str
    address: str = ""
    port: int = 22
    slots: int = 1
    """Number of ranks that fit, as in a hostfile."""
    gpus: int = 0
    rdma: int = 0
    interface: str = ""
    """Network interface of the job network; "": found by the route."""
    pythons: tuple[str, ...] = ()
    """The Pythons to try on this node, in order; none: as in `Access`."""
    leaf: str = ""
    """Any name for the leaf switch that the node is connected to; "" if not known."""
    here: bool = False
    """Whether it is this machine itself, and used without SSH."""

    @property
    def host(self) -> str:
        return self.address or self.name


class Transport(Enum):
    """What carries the connections to nodes; the values are the words of the cluster file."""

    ASYNCSSH = "asyncssh"
    OPENSSH = "openssh"
    SRUN = "srun"
    """Steps in an allocation of Slurm that the user holds."""


USUAL_CONNECT_LIMIT = 10.0
"""Seconds that a login may take if the cluster file does not say."""


class Access(Value, kw_only=True):
    """How to log in over SSH; empty fields are taken from ~/.ssh/config."""

    user: str = ""
    identity: str = ""
    known_hosts: str = ""
    config: str = ""
    """An ssh_config file to read instead of ~/.ssh/config; "none" reads none."""
    config_text: str | None = None
    """The text of `config` that the user agreed to; later changes of the file are not used."""
    pythons: tuple[str, ...] = ()
    """The Pythons to try on the nodes, in order; none: the usual ones."""
    connect_limit: float = USUAL_CONNECT_LIMIT
    """Seconds that connecting and logging in may take; the waits for answers
    of nodes grow with it (`patience`).
    """
    waits: float = 1.0
    """All waits for nodes are so many times as long as usual (`patience:` of the cluster file)."""
    logins: int = 0
    """Most logins at a time; 0: 64, or 8 through a jump host."""
    folder: str = ""
    """The folder for the agent file on the nodes; "": the first of
    the usual ones that can be used.
    """
    transport: Transport | None = None
    """None: asyncssh, but openssh where a master connection is open or
    ssh_config asks for what asyncssh cannot do.
    """
    allocation: str = ""
    """The number of the job of Slurm whose nodes SRUN reaches."""

    @property
    def patience(self) -> float:
        """By how much longer than usual nodes have to answer: as the cluster file says, at
        least as much as `connect_limit` is above the usual one.
        """
        return max(1.0, self.waits, self.connect_limit / USUAL_CONNECT_LIMIT)


class Broker(Value, kw_only=True):
    """The site's MQTT broker. A cluster without one uses a private broker in the console."""

    host: str
    port: int = 1883
    tls: bool = False
    ca_file: str = ""
    username: str = ""
    password_env: str = ""
    password_file: str = ""
    agents_file: str = ""
    """File of `node:password` lines: the agent of each node has its own account."""
    reach: str = "direct"
    """How agents connect to the broker: "direct", or "ssh" (through the console's connection)."""
    sample_period: float = 0.0
    """Seconds between two full samples of an installed agent; 0: 1 s, or 15 s with many nodes."""


class Switch(Value, kw_only=True):
    """An Ethernet switch that speaks gNMI, and which of its ports lead to which RDMA ports."""

    name: str
    address: str = ""
    port: int = 9339
    tls: bool = True
    ca_file: str = ""
    user: str = ""
    password_env: str = ""
    ports: Mapping[str, str] = field(default_factory=dict[str, str])
    """`Ethernet1` -> `gpu01:mlx5_0/1`."""

    @property
    def host(self) -> str:
        """Where it is reached: its address, or else its name."""
        return self.address or self.name


class Metrics(Value, kw_only=True):
    """The site's Prometheus, or a server with the same API: the source
    of numbers from hours and days ago.
    """

    host: str
    port: int
    tls: bool = False
    path: str = ""
    """The path before `/api/v1`, without a final slash."""
    ca_file: str = ""
    user: str = ""
    password_env: str = ""
    password_file: str = ""
    token_env: str = ""
    token_file: str = ""
    label: str = "instance"
    """The label that names the node: its name or address, with or without domain and port."""
    gpu_label: str = "Hostname"
    """The label that names the node in series of dcgm-exporter."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Label -> value that a series must also have: tells clusters apart."""
    interval: float = 30.0
    """Most seconds between two scrapes."""

    @property
    def place(self) -> str:
        """`HOST:PORT`, for people."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One cluster file."""

    name: str
    nodes: tuple[Node, ...]
    access: Access = dataclasses.field(default_factory=Access)
    broker: Broker | None = None
    metrics: Metrics | None = None
    export: tuple[str, ...] = ()
    """Groups and names of series (model/series.py) that `rankdeck export` serves; () for all."""
    switches: tuple[Switch, ...] = ()
    backend: str = "ssh"
    network: str = ""
    """CIDR of the job network, e.g. 10.0.0.0/24."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Environment variables for every job, such as the PATH of an MPI or proxy settings."""
    expect: Mapping[str, str | int | float] = dataclasses.field(
        default_factory=dict[str, str | int | float]
    )
    rdma_exclude: tuple[str, ...] = ()
    """Patterns of RDMA devices whose counters the agents do not read."""
    simulate: tuple[str, ...] = ()
    """Collectors to simulate: "gpu", "rdma". For demos; shown as SIMULATED."""
    options: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Options of the backend: slurm login node and partition, kubernetes namespace and context."""
    file: str = ""
    _by_name: Mapping[str, Node] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {node.name: node for node in reversed(self.nodes)}
        object.__setattr__(self, "_by_name", by_name)

    @property
    def can(self) -> Capabilities:
        """What the cluster's backend can do."""
        return capabilities_of(self.backend)

    @property
    def hosts(self) -> tuple[Node, ...]:
        """Every machine to log in to: the nodes, and the login node for Slurm's commands."""
        login = self.options.get("login", "")
        known = not login or self.has(login)
        return self.nodes if known else (*self.nodes, Node(name=login, here=login == LOCAL))

    def node(self, name: str) -> Node:
        """The node of that name; raises KeyError."""
        return self._by_name[name]

    def has(self, name: str) -> bool:
        """Whether the file names this node."""
        return name in self._by_name
