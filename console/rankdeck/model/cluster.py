"""The values of a cluster file; they never change while the cluster is open."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine. `address` "" means the name resolves."""

    name: str
    address: str = ""
    port: int = 22
    slots: int = 1
    """Ranks that fit: what a hostfile calls slots."""
    gpus: int = 0
    rdma: int = 0
    interface: str = ""
    """Network interface of the job network; "" lets the route decide."""
    leaf: str = ""
    """The switch that it hangs on, by any name; "" where that is not known."""

    @property
    def host(self) -> str:
        return self.address or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to log in; what is empty comes from ~/.ssh/config."""

    user: str = ""
    identity: str = ""
    known_hosts: str = ""
    config: str = ""
    """An ssh_config file to read instead of ~/.ssh/config; "none" reads none."""
    config_text: str | None = None
    """What stood in it when it was agreed to: that is followed, whatever it says later."""
    python: str = "python3"
    """The interpreter on the nodes, 3.9 or newer."""
    connect_limit: float = 10.0
    logins: int = 0
    """Logins that may be under way at a time; 0: 64, through a jump host 8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The site's MQTT broker. No Broker in a cluster: a private one."""

    host: str
    port: int = 1883
    tls: bool = False
    ca_file: str = ""
    username: str = ""
    password_env: str = ""
    password_file: str = ""
    agents_file: str = ""
    """`node:password` lines: an account of its own for the agent of each node."""
    reach: str = "direct"
    """How agents get there: "direct", or "ssh" through the console's connection."""
    sample_period: float = 0.0
    """Seconds between two full samples of an installed agent; 0: 1 s, of many nodes 15 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The site's Prometheus, or what speaks its API: where hours and days come from."""

    host: str
    port: int
    tls: bool = False
    path: str = ""
    """What stands before `/api/v1`, without a slash at its end."""
    ca_file: str = ""
    user: str = ""
    password_env: str = ""
    password_file: str = ""
    token_env: str = ""
    token_file: str = ""
    label: str = "instance"
    """The label whose value is a node: its name or address, with or without domain and port."""
    gpu_label: str = "Hostname"
    """The same, of the series of dcgm-exporter."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Label -> value that a series must have too: tells clusters apart."""
    interval: float = 30.0
    """Seconds between two scrapes, at most."""

    @property
    def place(self) -> str:
        """`HOST:PORT`, for people."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One cluster file."""

    name: str
    nodes: tuple[Node, ...]
    access: Access = field(default_factory=Access)
    broker: Broker | None = None
    metrics: Metrics | None = None
    switches: tuple[Switch, ...] = ()
    backend: str = "ssh"
    network: str = ""
    """CIDR of the job network, e.g. 10.0.0.0/24."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Set for every job: PATH of an MPI, proxy settings."""
    expect: Mapping[str, str | int | float] = field(default_factory=dict[str, str | int | float])
    rdma_exclude: tuple[str, ...] = ()
    """Patterns of RDMA devices whose counters the agents leave alone."""
    simulate: tuple[str, ...] = ()
    """Collectors to make up: "gpu", "rdma". For demos; shown as SIMULATED."""
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Backend's own: slurm login node and partition, kubernetes namespace and context."""
    file: str = ""
    _by_name: Mapping[str, Node] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {node.name: node for node in reversed(self.nodes)}
        object.__setattr__(self, "_by_name", by_name)

    @property
    def hosts(self) -> tuple[Node, ...]:
        """Every machine to log in to: the nodes, and the one where Slurm's commands are."""
        login = self.options.get("login", "")
        known = not login or self.has(login)
        return self.nodes if known else (*self.nodes, Node(name=login))

    def node(self, name: str) -> Node:
        """The node of that name; raises KeyError."""
        return self._by_name[name]

    def has(self, name: str) -> bool:
        """Whether the file names this node."""
        return name in self._by_name
