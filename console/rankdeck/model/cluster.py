"""The values of a cluster file; they never change while the cluster is open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from rankdeck import plugins
from rankdeck.errors import UnknownPluginError
from rankdeck.model.nodeset import fold


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
    """The switch that it is connected to, by any name; "" if that is not known."""

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
    """The text that the user agreed to; later changes of the file are not used."""
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
    """The path before `/api/v1`, without a final slash."""
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
class Capabilities:
    """What a backend does by itself; the defaults are those of the ssh backend."""

    scheduler: str = ""
    """What people call it; "" if nothing schedules."""
    chooses_nodes: bool = False
    """Nodes are chosen when the job starts: they cannot be asked before, and jobs may wait."""
    needs_login: bool = True
    """Jobs run only on nodes that the user can log in to."""
    allows_login: bool = True
    """The nodes are reached over SSH."""
    asked_from_here: bool = False
    """Where the cluster file names no login node, the scheduler is asked from this machine."""
    states_rights: bool = False
    """It says what a user may do."""
    pods: bool = False
    """Ranks run in pods: each job has other host names and addresses than the one before."""
    requeues: bool = False
    """It may run a job again."""
    ends_ranks: frozenset[str] = frozenset()
    """Launches of which it ends the ranks itself when one fails; "": a job of others."""
    document: bool = False
    """`Plan.text` is all that a launch creates."""
    queue: bool = False
    """Queue, partitions and states of nodes are read at the login node, where nodes are drained too."""
    drain_lines: tuple[str, ...] = ()
    """Commands for it, with `{folded}` or `{nodes}` and `{why}`; the last gives the nodes back."""
    whole_nodes: tuple[str, ...] = ()
    """Options of a job that needs its nodes for itself."""
    node_check: str = ""
    """What to write into a job to have its nodes judged when it has them."""
    proof: tuple[str, str] = ("every node is searched", "for processes of the job that are left.")
    """How a cancel proves that the job is over, on two lines."""

    def out_of_service(self, nodes: Sequence[str], why: str) -> list[str]:
        """Commands that take these nodes out of service; the last gives them back. [] if there are none."""
        words = {"folded": fold(nodes), "nodes": " ".join(nodes), "why": why}
        return [line.format_map(words) for line in self.drain_lines]


BACKENDS = {
    "ssh": Capabilities(),
    "slurm": Capabilities(
        scheduler="Slurm",
        chooses_nodes=True,
        needs_login=False,
        requeues=True,
        ends_ranks=frozenset(("", "mpi", "torchrun", "tensorflow", "plain")),
        queue=True,
        drain_lines=(
            'scontrol update nodename={folded} state=drain reason="{why}"',
            "scontrol update nodename={folded} state=resume",
        ),
        whole_nodes=("slurm.exclusive",),
        node_check="slurm: {preflight: true}",
        proof=("Slurm is asked", "whether the job is over (scancel, run as you)."),
    ),
    "kubernetes": Capabilities(
        scheduler="Kubernetes",
        chooses_nodes=True,
        needs_login=False,
        allows_login=False,
        asked_from_here=True,
        states_rights=True,
        pods=True,
        ends_ranks=frozenset(("torchrun", "tensorflow", "plain")),
        document=True,
        drain_lines=(
            "kubectl cordon {nodes}",
            "kubectl drain --ignore-daemonsets {nodes}   # also moves what runs there",
            "kubectl uncordon {nodes}",
        ),
        proof=("the API server is asked", "whether all pods of the job are gone."),
    ),
}
"""Those of Rankdeck's own backends, so that callers need not load a backend to ask."""


@lru_cache(64)
def capabilities(backend: str) -> Capabilities:
    """What the backend of this name can do; of one that is not installed here the defaults."""
    if backend in BACKENDS:
        return BACKENDS[backend]
    try:
        return plugins.find("backends", backend).can
    except UnknownPluginError:
        return Capabilities()


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
    def can(self) -> Capabilities:
        """What its backend can do."""
        return capabilities(self.backend)

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
