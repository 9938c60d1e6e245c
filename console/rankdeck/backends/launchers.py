"""The launchers (plain, torchrun, TensorFlow, JAX, mpirun of each MPI),
choice of nodes, the ssh backend's plan.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from rankdeck.backends.free_port import PORT_TOKEN, needs_port, port_token
from rankdeck.backends.job_network import (
    address_for_others,
    asks_nodes,
    is_loopback,
    network_variables,
    own_address,
)
from rankdeck.backends.shell_words import SHIM, at_run_time, folder_word, shell_line
from rankdeck.config.files import command_of
from rankdeck.errors import LaunchError, suggest_word
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import CLAIM, Container, JobSpec, Launch
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.plan import Plan
from rankdeck.runtimes import Runtime, find_runtime
from rankdeck.values import Value, replace
from rankdeck_agent.wire import JOB_VARIABLE, RUN_TOKEN, NodeFile, NodePlan, ProcessPlan
from rankdeck_agent.wire.run_folder import HOSTFILE

HOST_PATHS = ("PATH", "LD_LIBRARY_PATH", "MANPATH")
"""Variables of the cluster file that are valid on the nodes and are not set inside containers."""


class RankPlace(Value):
    """A node of the job and the ranks on it."""

    node: Node
    index: int
    ranks: tuple[int, ...]


class Placement(Value, kw_only=True):
    """Everything a launcher needs to write its commands."""

    cluster: Cluster
    spec: JobSpec
    job: str
    places: tuple[RankPlace, ...]
    runtime: Runtime

    @property
    def world_size(self) -> int:
        return sum(len(place.ranks) for place in self.places)

    @property
    def even(self) -> bool:
        """Whether all nodes have the same number of ranks."""
        return len({len(place.ranks) for place in self.places}) == 1

    def wrapped(self, command: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The command of a rank (or another), inside the job's container if it has one."""
        command = command or self.spec.command
        container = self.spec.container
        if container is None:
            return command
        return self.runtime.wrap(command, container, self._inside(), self.spec.launch)

    def variables(self) -> dict[str, str]:
        """The variables of cluster and job, and those with which the
        runtime passes them into the container.
        """
        given = self.runtime.variables(self._inside())
        return {**self.cluster.environment, **self.spec.env, **given}

    def _inside(self) -> dict[str, str]:
        """The variables that are set inside containers."""
        env = {**self.cluster.environment, **self.spec.env}
        return {key: value for key, value in env.items() if key not in HOST_PATHS}

    def node_plan(self, place: RankPlace, extra: Mapping[str, str]) -> NodePlan:
        """The plan of a node without processes; the job's own variables override `extra`."""
        env = {"PYTHONUNBUFFERED": "1", **extra, **self.variables()}
        files = tuple(NodeFile(name, text) for name, text in self.spec.files.items())
        return NodePlan(
            job=self.job,
            node=place.node.name,
            ranks=place.ranks,
            files=files,
            env=env,
            tty=self.spec.tty,
            grace=self.spec.grace,
            network=self.cluster.network,
            interface=place.node.interface,
            patience=self.cluster.access.patience,
        )

    def network_variables(self, place: RankPlace) -> dict[str, str]:
        """The variables that choose the network interface of a node's ranks."""
        return network_variables(self.cluster, place.node, len(self.places))

    def address_of(self, place: RankPlace) -> str:
        """The address of a node for the commands of others: in the job network if there is one."""
        return address_for_others(self.cluster, place.node, place.index, len(self.places))


def lay_out(cluster: Cluster, spec: JobSpec, job: str) -> Placement:
    """Place a job's ranks on its nodes, in order; raises LaunchError."""
    if not spec.command:
        raise LaunchError("plan", f"job `{spec.name}` has no command")
    refuse_claims(spec.container)
    first = 0
    places: list[RankPlace] = []
    for index, node in enumerate(choose_nodes(cluster, spec)):
        count = _count(node, spec)
        places.append(RankPlace(node, index, tuple(range(first, first + count))))
        first += count
    runtime = find_runtime(spec.container.runtime if spec.container else "none")
    return Placement(cluster=cluster, spec=spec, job=job, places=tuple(places), runtime=runtime)


def refuse_claims(container: Container | None) -> None:
    """Raise LaunchError if a mount is a volume claim, which only Kubernetes has."""
    for mount in container.mounts if container else ():
        if mount.startswith(CLAIM):
            raise LaunchError("plan", f"mount `{mount}`: volume claims are only on Kubernetes")


def exclude_nodes(cluster: Cluster, spec: JobSpec, excluded: Mapping[str, str]) -> JobSpec:
    """The job without excluded nodes; raises LaunchError if it names an
    excluded node, or too few nodes are left.

    `excluded` is node -> why. For a scheduler that chooses the nodes
    itself they go into its option `exclude`.
    """
    named = [name for name in spec.on if name in excluded]
    if named:
        back = f"{command_of('accept', cluster.file)} --readmit {named[0]}"
        raise LaunchError(
            "plan", f"`{named[0]}` is {excluded[named[0]]}; take it back with `{back}`"
        )
    if spec.on or not excluded:
        return spec
    if cluster.can.chooses_nodes:
        key = f"{cluster.backend}.exclude"
        out = ",".join(filter(None, (spec.options.get(key, ""), *sorted(excluded))))
        return replace(spec, options={**spec.options, key: out})
    left = [node.name for node in cluster.nodes if node.name not in excluded]
    first = (node.name for node in cluster.nodes[: spec.nodes])
    if not left or excluded.keys().isdisjoint(first):
        return spec
    if spec.nodes > len(left):
        out = fold_nodes(node.name for node in cluster.nodes if node.name in excluded)
        raise LaunchError(
            "plan",
            f"job `{spec.name}` wants {spec.nodes} nodes, {len(left)} are left: {out} excluded by `rankdeck accept`",
        )
    return replace(spec, on=tuple(left[: spec.nodes]))


def place_job(
    cluster: Cluster, spec: JobSpec, excluded: Mapping[str, str], bad: Set[str], busy: Set[str]
) -> JobSpec:
    """The job `exclude_nodes` excluded nodes; if it names none, `bad` nodes are
    replaced by good ones that are not `busy`.
    """
    chosen = exclude_nodes(cluster, spec, excluded)
    if spec.on or not bad or cluster.can.chooses_nodes:
        return chosen
    first = chosen.on or tuple(node.name for node in cluster.nodes[: spec.nodes])
    out = {*first, *excluded} | bad | busy
    free = (n.name for n in cluster.nodes if n.name not in out and n.slots >= spec.ranks_per_node)
    on = tuple(next(free, name) if name in bad else name for name in first)
    return chosen if on == first else replace(chosen, on=on)


def choose_nodes(cluster: Cluster, spec: JobSpec) -> tuple[Node, ...]:
    """The nodes that the job names, else the first ones of the cluster; raises LaunchError."""
    if spec.on:
        return tuple(_named(cluster, name) for name in spec.on)
    if spec.nodes > len(cluster.nodes):
        have = f"cluster `{cluster.name}` has {len(cluster.nodes)}"
        names = f" ({fold_nodes(node.name for node in cluster.nodes)})" if cluster.nodes else ""
        raise LaunchError("plan", f"job `{spec.name}` wants {spec.nodes} nodes; {have}{names}")
    if spec.nodes < 1:
        raise LaunchError("plan", f"job `{spec.name}` wants no node at all")
    return cluster.nodes[: spec.nodes]


def _named(cluster: Cluster, name: str) -> Node:
    try:
        return cluster.node(name)
    except KeyError:
        known = [node.name for node in cluster.nodes]
        hint = suggest_word(name, known) or f"; there are: {fold_nodes(known)}"
        raise LaunchError("plan", f"no node `{name}` in cluster `{cluster.name}`{hint}") from None


def _count(node: Node, spec: JobSpec) -> int:
    if spec.launch is Launch.TENSORFLOW:
        return 1
    if spec.ranks_per_node > node.slots:
        raise LaunchError(
            "plan",
            f"{spec.ranks_per_node} ranks do not fit on `{node.name}`: it has {node.slots}"
            f" slot{'s' if node.slots != 1 else ''}; raise `slots` in the cluster file"
            " or lower `ranks_per_node`",
        )
    return spec.ranks_per_node or node.slots


def _on_each_node(layout: Placement) -> tuple[NodePlan, ...]:
    """The node plans of a job that starts its own processes on every node."""
    started = _PROCESSES[layout.spec.launch]
    return tuple(
        replace(
            layout.node_plan(place, layout.network_variables(place)),
            processes=started(layout, place),
        )
        for place in layout.places
    )


def _plain(layout: Placement, place: RankPlace) -> tuple[ProcessPlan, ...]:
    """One process per rank."""
    return tuple(rank_process(layout, place, local, {}) for local in range(len(place.ranks)))


def rank_process(
    layout: Placement, place: RankPlace, local: int, extra: Mapping[str, str]
) -> ProcessPlan:
    """The process of rank number `local` on this node, with rank
    and world size in its environment.
    """
    rank = place.ranks[local]
    env = {
        "RANKDECK_RANK": str(rank),
        "RANK": str(rank),
        "WORLD_SIZE": str(layout.world_size),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(len(place.ranks)),
        **extra,
    }
    argv = layout.wrapped()
    return ProcessPlan(f"rank {rank}", argv, env, layout.spec.workdir, rank)


def _torchrun(layout: Placement, place: RankPlace) -> tuple[ProcessPlan, ...]:
    """One torchrun on every node."""
    process = ProcessPlan(
        name="torchrun",
        argv=layout.wrapped(torchrun_argv(layout, place)),
        env={"TORCHELASTIC_ERROR_FILE": f"{RUN_TOKEN}/torch-error.json"},
        cwd=layout.spec.workdir,
    )
    return (process,)


TORCHRUN_ENDS = ("--no-python", "--")
"""Words before the program.

Without `--`, torchrun takes the program's argument `--log`, for example, for its own.
"""


def torchrun_argv(layout: Placement, place: RankPlace) -> tuple[str, ...]:
    """The torchrun command of one node, with static rendezvous: each rank
    is on the node that the plan says.
    """
    torch = layout.spec.torch
    address = own_address(layout.cluster, place.node, len(layout.places))
    local = (f"--local-addr={address}",) if address else ()
    return (
        torch.path,
        f"--nnodes={len(layout.places)}",
        f"--nproc-per-node={len(place.ranks)}",
        f"--node-rank={place.index}",
        f"--master-addr={layout.address_of(layout.places[0])}",
        f"--master-port={torch.port or PORT_TOKEN}",
        *local,
        "--max-restarts=0",
        *torch.args,
        *TORCHRUN_ENDS,
        SHIM,
        *script_command(layout.spec.command),
    )


def script_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command, with Python before a `.py` file, as torchrun
    without --no-python would run it.
    """
    return ("python3", "-u", *command) if command[0].endswith(".py") else command


def _tensorflow(layout: Placement, place: RankPlace) -> tuple[ProcessPlan, ...]:
    """One worker per node, with the list of all workers and its index."""
    task = {"type": "worker", "index": place.index}
    config = json.dumps({"cluster": {"worker": worker_addresses(layout)}, "task": task})
    return (rank_process(layout, place, 0, {"TF_CONFIG": config}),)


def jax_variables(coordinator: str, count: str, number: str, local: str) -> dict[str, str]:
    """The variables by which a JAX program meets the others.

    JAX reads the address and, on GPUs, the device of a process by itself; the program
    passes count and number to `jax.distributed.initialize`. `local` "": all devices.
    """
    found = {
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_NUM_PROCESSES": count,
        "JAX_PROCESS_ID": number,
    }
    return {**found, "JAX_LOCAL_DEVICE_IDS": local} if local else found


def _jax(layout: Placement, place: RankPlace) -> tuple[ProcessPlan, ...]:
    """One process per rank; the first node's listens as the coordinator."""
    host = layout.address_of(layout.places[0])
    shown = f"[{host}]" if ":" in host else host
    count, several = str(layout.world_size), len(place.ranks) > 1
    return tuple(
        rank_process(
            layout,
            place,
            local,
            jax_variables(f"{shown}:{PORT_TOKEN}", count, str(rank), str(local) if several else ""),
        )
        for local, rank in enumerate(place.ranks)
    )


def worker_addresses(layout: Placement) -> list[str]:
    """`host:port` of every worker; nodes with the same address in the cluster file get consecutive
    ports.
    """
    taken: Counter[str] = Counter()
    workers: list[str] = []
    for place in layout.places:
        host, machine = layout.address_of(place), place.node.host
        shown = f"[{host}]" if ":" in host else host
        workers.append(f"{shown}:{port_token(taken[machine])}")
        taken[machine] += 1
    return workers


AGENT = "/tmp/rankdeck.{job}/launch-agent"
"""The same path on every node: Open MPI 4 fails if a daemon does not find the
launch agent at the first node's path.
"""


class Flavour(Value, kw_only=True):
    """The mpirun options of one MPI; `{…}` is filled in."""

    host: str
    start: tuple[str, ...]
    even: tuple[str, ...]
    """For the same number of ranks on every node."""
    uneven: tuple[str, ...]
    """For as many ranks on each node as the hostfile says."""
    agent: tuple[str, ...]
    """`{agent}` (Rankdeck's launch agent) starts all daemons, from the first node."""
    ssh: tuple[str, ...]
    network: tuple[str, ...]
    loopback: tuple[str, ...]
    """Instead of `network` if that is loopback: virtual nodes on one machine."""


def _mca(*pairs: str, option: str = "--mca") -> tuple[str, ...]:
    """`option NAME VALUE` for each pair of words."""
    return tuple(word for at in range(0, len(pairs), 2) for word in (option, *pairs[at : at + 2]))


_TCP = ("btl_tcp_if_include", "{network}")
_PRTE = _mca("plm_ssh_agent", "{agent}", "plm_ssh_no_tree_spawn", "1", option="--prtemca")
_ORTE = _mca("plm_rsh_agent", "{agent}", "plm_rsh_no_tree_spawn", "1")
_ORTE_NETWORK = _mca("oob_tcp_if_include", "{network}", *_TCP)
# PRRTE refuses loopback as the network ("No network interfaces were
# found"), and does not need the option.
_OPEN_MPI = Flavour(
    host="{host} slots={slots}",
    start=("--hostfile", "{hostfile}", "-np", "{size}"),
    even=("--map-by", "ppr:{each}:node", "--bind-to", "none"),
    uneven=("--map-by", "slot", "--bind-to", "none"),
    agent=_PRTE,
    ssh=_PRTE,
    network=(*_mca("prte_if_include", "{network}", option="--prtemca"), *_mca(*_TCP)),
    loopback=_mca(*_TCP),
)
FLAVOURS = {
    "openmpi5": _OPEN_MPI,
    "openmpi4": replace(
        _OPEN_MPI, agent=_ORTE, ssh=_ORTE, network=_ORTE_NETWORK, loopback=_ORTE_NETWORK
    ),
    "mpich": Flavour(
        host="{host}:{slots}",
        start=("-f", "{hostfile}", "-n", "{size}"),
        even=("-ppn", "{each}", "-bind-to", "none"),
        uneven=("-bind-to", "none"),
        agent=("-launcher", "ssh", "-launcher-exec", "{agent}"),
        ssh=("-launcher", "ssh"),
        network=(),
        loopback=(),
    ),
}
LAUNCHER_ENV = {
    "openmpi5": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    "openmpi4": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    "mpich": {},
}
"""Allows Open MPI to run as root, for users who log in as root."""
QUIET_ENV = {"HWLOC_COMPONENTS": "-gl"}
"""Without it, hwloc searches for an X server and prints a warning on every node."""


def plan_mpi(layout: Placement) -> tuple[NodePlan, ...]:
    """The node plans of an MPI job: launcher and hostfile on the first node;
    the others have ranks but no process.
    """
    options = layout.spec.mpi
    if options.flavour not in FLAVOURS:
        known = ", ".join(FLAVOURS)
        raise LaunchError("plan", f"no MPI flavour `{options.flavour}`; there are: {known}")
    if options.launcher == "ssh":
        _check_addresses(layout)
    # MPI's session files are removed with the job; the path is short
    # because paths of sockets must be.
    place = {"TMPDIR": f"/tmp/rankdeck.{layout.job}"}
    common = {**LAUNCHER_ENV[options.flavour], **QUIET_ENV, **place}
    nodes = [layout.node_plan(p, {**common, **layout.network_variables(p)}) for p in layout.places]
    launcher = ProcessPlan(
        name="mpirun",
        argv=launcher_argv(layout),
        cwd="" if RUN_TOKEN in layout.spec.workdir else layout.spec.workdir,
    )
    files = (*nodes[0].files, NodeFile(HOSTFILE, write_hostfile(layout)))
    return (replace(nodes[0], processes=(launcher,), files=files), *nodes[1:])


def write_hostfile(layout: Placement) -> str:
    """The hostfile: one line per node, with Rankdeck's names, or
    addresses if mpirun itself uses ssh.
    """
    line = FLAVOURS[layout.spec.mpi.flavour].host
    by_address = layout.spec.mpi.launcher == "ssh"
    return "".join(
        line.format(host=p.node.host if by_address else p.node.name, slots=len(p.ranks)) + "\n"
        for p in layout.places
    )


def launcher_argv(layout: Placement) -> tuple[str, ...]:
    """The whole mpirun command line."""
    spec, flavour = layout.spec, FLAVOURS[layout.spec.mpi.flavour]
    each = len(layout.places[0].ranks)
    container = _unless_given(layout.runtime.launcher_args(spec.mpi.flavour), spec.mpi.args)
    return (
        spec.mpi.path,
        *_fill(flavour.start, hostfile=f"{RUN_TOKEN}/{HOSTFILE}", size=str(layout.world_size)),
        *_fill(
            without_given_options(flavour.even if layout.even else flavour.uneven, spec.mpi.args),
            each=str(each),
        ),
        *_agent(layout, flavour),
        *_network(layout, flavour),
        *_forwarded(layout),
        *container,
        *spec.mpi.args,
        *_workdir(layout.spec.workdir),
        *rank_argv(layout),
    )


def _unless_given(words: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
    """`--mca NAME VALUE …` without names that the job sets itself
    (`given`): mpirun refuses a name given twice.
    """
    triples = [words[i : i + 3] for i in range(0, len(words), 3)]
    return tuple(word for three in triples if three[1] not in given for word in three)


def without_given_options(words: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
    """The pairs `OPTION VALUE` of `words` without options that the user gives,
    with one dash or two: the user's win.
    """
    names = {word.partition("=")[0].lstrip("-") for word in given if word.startswith("-")}
    pairs = [words[at : at + 2] for at in range(0, len(words), 2)]
    return tuple(word for pair in pairs if pair[0].lstrip("-") not in names for word in pair)


def rank_argv(layout: Placement) -> tuple[str, ...]:
    """What mpirun starts on every node: the shim at its common path, then the rank's command.

    sh fills in the run folder, which differs from node to node.
    """
    shim = f"/tmp/rankdeck.{layout.job}/rank"
    workdir, argv = layout.spec.workdir, layout.wrapped()
    if _moves(workdir):
        line = f"cd {folder_word(workdir)} && exec {shell_line(argv)}"
        return (shim, "sh", "-c", line)
    return (shim, *at_run_time(argv))


def _fill(words: Sequence[str], **values: str) -> tuple[str, ...]:
    return tuple(word.format(**values) for word in words)


def _agent(layout: Placement, flavour: Flavour) -> tuple[str, ...]:
    if layout.spec.mpi.launcher != "ssh":
        return _fill(flavour.agent, agent=AGENT.format(job=layout.job))
    user, port = layout.cluster.access.user, layout.places[0].node.port
    words = ["ssh", "-o", "BatchMode=yes"]
    words += ["-p", str(port)] if port != 22 else []
    words += ["-l", user] if user else []
    return _fill(flavour.ssh, agent=" ".join(words))


def _network(layout: Placement, flavour: Flavour) -> tuple[str, ...]:
    """The options for the job network; else for the interface, if it
    has the same name on all nodes.
    """
    interfaces = {place.node.interface for place in layout.places}
    shared = interfaces.pop() if len(interfaces) == 1 else ""
    if layout.spec.mpi.flavour == "mpich":
        return ("-iface", shared) if shared else _hydra_address(layout)
    network = layout.cluster.network or shared
    words = flavour.loopback if is_loopback(network) else flavour.network
    return _fill(words, network=network) if network else ()


def _hydra_address(layout: Placement) -> tuple[str, ...]:
    """Where Hydra's proxies find mpiexec; `-iface` would need the same name on all nodes."""
    first = layout.places[0].node
    asked = asks_nodes(layout.cluster, first, len(layout.places))
    address = own_address(layout.cluster, first, len(layout.places))
    return ("-localhost", address) if asked else ()


def _forwarded(layout: Placement) -> tuple[str, ...]:
    """The options that pass variables to remote ranks; without values with
    the run folder, which differs per node.
    """
    env = {**QUIET_ENV, "PYTHONUNBUFFERED": "1", **layout.variables()}
    names = [JOB_VARIABLE, *(key for key, value in env.items() if RUN_TOKEN not in value)]
    if layout.spec.mpi.flavour == "mpich":
        return ("-genvlist", ",".join(names))
    return tuple(word for name in names for word in ("-x", name))


def _workdir(workdir: str) -> tuple[str, ...]:
    return ("-wdir", workdir) if workdir and not _moves(workdir) else ()


def _moves(workdir: str) -> bool:
    """Whether the folder's path may differ from node to node."""
    return RUN_TOKEN in workdir or workdir.startswith("~")


def _check_addresses(layout: Placement) -> None:
    """Raise LaunchError if mpirun's own ssh cannot be used: it needs one port
    for all nodes and different addresses.
    """
    ports = {place.node.port for place in layout.places}
    if len(ports) > 1:
        raise LaunchError(
            "plan", "`mpi: {launcher: ssh}` needs the same SSH port on all nodes; leave it out"
        )
    by_host: dict[str, str] = {}
    for place in layout.places:
        other = by_host.setdefault(place.node.host, place.node.name)
        if other != place.node.name:
            raise LaunchError(
                "plan",
                f"`mpi: {{launcher: ssh}}` cannot tell `{other}` and `{place.node.name}` apart:"
                f" both are at {place.node.host}; leave it out",
            )


_PROCESSES: Mapping[Launch, Callable[[Placement, RankPlace], tuple[ProcessPlan, ...]]] = {
    Launch.TORCHRUN: _torchrun,
    Launch.TENSORFLOW: _tensorflow,
    Launch.JAX: _jax,
    Launch.PLAIN: _plain,
}
"""What a node starts itself; mpirun, on the first node, starts the ranks of an MPI job."""


def plan_job(cluster: Cluster, spec: JobSpec, job: str) -> Plan:
    """The plan of the ssh backend: what the supervisor of each node will
    do; raises LaunchError("plan", …).
    """
    layout = lay_out(cluster, spec, job)
    nodes = plan_mpi(layout) if spec.launch is Launch.MPI else _on_each_node(layout)
    return Plan(
        job=job,
        name=spec.name,
        cluster=cluster.name,
        backend="ssh",
        nodes=nodes,
        grace=spec.grace,
        abort=spec.abort,
        port_on=nodes[0].node if needs_port(nodes) else "",
    )
