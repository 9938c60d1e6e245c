"""Checks of the network: interfaces, addresses, ports, and which nodes must reach each other."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from rankdeck.backends.launchers import Placement, RankPlace
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.json_tables import as_table, is_table
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import clean_line
from rankdeck.preflight.facts import NodeFacts
from rankdeck.preflight.findings import Change, Finding, group_nodes, make_finding
from rankdeck.preflight.job_context import JobContext, findings_for_each, job_interface
from rankdeck.preflight.job_needs import is_address
from rankdeck.values import Value
from rankdeck_agent.rules.levels import Level

ALL_PAIRS = 64
"""Up to this many nodes, all try to reach each other; in larger
jobs each tries this many others.
"""
_SHOWN = 4
Target = tuple[str, str, int]
"""Name, address and port of a node that listens."""


class ConnectAttempt(Value):
    """How one node reached another: `error` is "" if it did; `stage` is `connect` or `data`."""

    error: str
    stage: str


Reached = Mapping[str, Mapping[str, ConnectAttempt]]
"""From node -> to node -> attempt."""


def address_of(case: JobContext, name: str) -> str:
    """The address at which the others will reach a node in this job."""
    place = next(p for p in case.layout.places if p.node.name == name)
    facts = case.facts[name]
    interface = job_interface(case, place, facts)
    if interface is not None and interface.address is not None:
        return str(interface.address.ip)
    return place.node.host


def connection_targets(case: JobContext) -> dict[str, list[Target]]:
    """The nodes that each node tries: all others, or an evenly spread selection in a large job."""
    listening = [
        (p.node.name, address_of(case, p.node.name), f.listen) for p, f in case.answered if f.listen
    ]
    count = len(listening)
    reach = min(count - 1, ALL_PAIRS)
    step = max(1, (count - 1) // reach) if reach > 0 else 1
    return {
        row[0]: [listening[(i + 1 + k * step) % count] for k in range(reach)]
        for i, row in enumerate(listening)
    }


def parse_attempts(raw: object) -> dict[str, ConnectAttempt]:
    """Parse the attempts that a node reports; invalid ones are left out."""
    return {
        clean_line(name): ConnectAttempt(
            clean_line(row.get("error")), clean_line(row.get("stage"), 10)
        )
        for name, row in list(as_table(raw).items())[:4096]
        if is_table(row)
    }


# ---- what it means ---------------------------------------------------------------------


def judge_pairs(case: JobContext, reached: Reached) -> list[Finding]:
    """Findings for every node or pair of nodes that cannot connect."""
    broken = {
        (a, b): attempt for a, row in reached.items() for b, attempt in row.items() if attempt.error
    }
    if not broken:
        count = sum(len(row) for row in reached.values())
        text = (
            f"{count} connections between the nodes, all well"
            if count
            else "one node: no connection to test"
        )
        return [make_finding(Level.OK, "connect", "", text)]
    findings: list[Finding] = []
    for stage, judge in (("connect", _refused), ("data", _swallowed)):
        pairs = {pair: a for pair, a in broken.items() if a.stage == stage}
        findings += judge(case, pairs, reached)
    return findings


def _refused(
    case: JobContext, pairs: Mapping[tuple[str, str], ConnectAttempt], reached: Reached
) -> Iterable[Finding]:
    """Findings for nodes that no other node reaches, then for single pairs."""
    fix = (
        "look for a firewall (`nft list ruleset`) and routes (`ip route`) there, or correct"
        " `network` and `interface` in the cluster file"
    )
    alone: set[str] = set()
    for name in sorted({b for _, b in pairs}):
        tried = [a for a, row in reached.items() if name in row]
        failed = [a for a in tried if (a, name) in pairs]
        if len(tried) > 1 and len(failed) == len(tried):
            alone.add(name)
            why = pairs[failed[0], name].error
            text = f"no other node reaches it at {address_of(case, name)}: {why}"
            yield make_finding(Level.BAD, "connect", name, text, fix)
    rest = {pair: a for pair, a in pairs.items() if not alone & set(pair)}
    for (a, b), attempt in list(rest.items())[:_SHOWN]:
        text = f"{a} cannot reach {b} at {address_of(case, b)}: {attempt.error}"
        yield make_finding(Level.BAD, "connect", fold_nodes((a, b)), text, fix)
    if len(rest) > _SHOWN:
        nodes = fold_nodes({name for pair in rest for name in pair})
        text = f"{len(rest) - _SHOWN} more pairs of nodes cannot reach each other"
        yield make_finding(Level.BAD, "connect", nodes, text, fix)


def _swallowed(
    case: JobContext, pairs: Mapping[tuple[str, str], ConnectAttempt], reached: Reached
) -> Iterable[Finding]:
    """Findings for pairs between which small packets pass but large ones do not."""
    if not pairs:
        return
    (a, b), attempt = next(iter(pairs.items()))
    more = f", and {len(pairs) - 1} more pairs" if len(pairs) > 1 else ""
    yield make_finding(
        Level.BAD,
        "mtu",
        fold_nodes({name for pair in pairs for name in pair}),
        f"{a} and {b} connect, but large packets are lost on the way ({attempt.error}){more}",
        "a switch or interface on the path has a smaller MTU: raise it there, or lower it on the nodes",
    )


def check_interfaces(case: JobContext) -> list[Finding]:
    """Check the job's interface on every node: it exists, is up, in one network, with one MTU."""

    def absent(place: RankPlace, facts: NodeFacts) -> str | None:
        name = place.node.interface
        if not name or job_interface(case, place, facts) is not None:
            return None
        known = ", ".join(i.name for i in facts.interfaces[:12]) or "none"
        return f"no interface `{name}`; there are: {known}"

    def outside(place: RankPlace, facts: NodeFacts) -> str | None:
        lost = case.network is not None and not place.node.interface
        if lost and job_interface(case, place, facts) is None:
            return f"no address in the job network {case.network}"
        return None

    return [
        *findings_for_each(
            case, Level.BAD, "interface", absent, "correct `interface` in the cluster file"
        ),
        *findings_for_each(
            case,
            Level.BAD,
            "interface",
            outside,
            "correct `network` in the cluster file, or bring the interface up there",
        ),
        *_down(case),
        *_mixed(case),
        *_named_by_env(case),
    ]


def _down(case: JobContext) -> Iterable[Finding]:
    """Findings for interfaces of the job that are not up, with the command for each."""
    rows = [(p.node.name, job_interface(case, p, f)) for p, f in case.answered]
    down = group_nodes((name, i.name if i and not i.up else None) for name, i in rows)
    for name, nodes in down.items():
        yield make_finding(
            Level.BAD,
            "interface",
            nodes,
            f"interface `{name}` is down",
            f"`ip link set {name} up` there; else cable and switch port",
        )


def _mixed(case: JobContext) -> Iterable[Finding]:
    rows = [(p.node.name, job_interface(case, p, f)) for p, f in case.answered]
    mtus = group_nodes((name, i.mtu if i else None) for name, i in rows)
    if len(mtus) > 1:
        parts = ", ".join(f"{mtu} on {nodes}" for mtu, nodes in sorted(mtus.items()))
        least = min(mtus)
        names = group_nodes((name, i.name if i and i.mtu > least else None) for name, i in rows)
        lower = ", ".join(
            f"`ip link set dev {name} mtu {least}` on {nodes}" for name, nodes in names.items()
        )
        yield make_finding(
            Level.WARN,
            "mtu",
            "",
            f"the MTU differs: {parts}",
            f"make it the same on all nodes and switches: {lower}, or raise the others",
        )
    nets = group_nodes((name, i.address.network if i and i.address else None) for name, i in rows)
    if len(nets) > 1:
        parts = ", ".join(f"{net} on {nodes}" for net, nodes in nets.items())
        yield make_finding(
            Level.WARN,
            "interface",
            "",
            f"the job's interfaces are in different networks: {parts}",
            "name the right `interface` or `network` in the cluster file",
        )


def _named_by_env(case: JobContext) -> Iterable[Finding]:
    """Check the interfaces that the job's own variables name; for NCCL
    these may be prefixes and lists.
    """
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = case.spec.env.get(variable, "")
        if not value or value.startswith("^"):
            continue
        exact = value.startswith("=") or variable.startswith("GLOO")
        wanted = value.lstrip("=").split(",")
        lacking = [
            p.node.name
            for p, f in case.answered
            if not any(
                i.name == w or (not exact and i.name.startswith(w))
                for i in f.interfaces
                for w in wanted
            )
        ]
        if lacking:
            yield make_finding(
                Level.BAD,
                "interface",
                fold_nodes(lacking),
                f"{variable} names `{value}`, which is not there",
                f"leave {variable} out, and name the `interface` of each node in the cluster file",
            )


_ADDRESS, _PORT, _ENDPOINT = "--master-addr", "--master-port", "--rdzv-endpoint"
_BACKEND, _NUMBERS_ITSELF = "--rdzv-backend", "ft_launcher"
_C10D_PORT = "29400"
"""torchrun's port for an endpoint without one."""
_FREE = "leave it out and a free port is found"
_MOST_PORT = 65535


class Meeting(Value):
    """The rendezvous of the ranks, as far as fixed, and by which key;
    "": the first node, a free port.
    """

    host: str = ""
    host_by: str = ""
    port: str = ""
    port_by: str = ""

    @property
    def number(self) -> int:
        """The port; 0 if none is fixed, or if it is not a valid port."""
        digits = self.port.isascii() and self.port.isdigit() and len(self.port) < 6
        return int(self.port) if digits and int(self.port) <= _MOST_PORT else 0


def meeting_place(layout: Placement) -> Meeting:
    """Where the ranks of this job will meet, as far as its file fixes that."""
    spec = layout.spec
    if spec.launch is Launch.TORCHRUN:
        return _of_torchrun(spec)
    env = {**layout.cluster.environment, **spec.env}
    host, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    return Meeting(_literal(host), "MASTER_ADDR", _literal(port), "MASTER_PORT")


def _of_torchrun(spec: JobSpec) -> Meeting:
    """The same for torchrun: arguments of the job come last and win; torchrun
    sets MASTER_ADDR and MASTER_PORT itself.
    """
    args = spec.torch.args
    if "--standalone" in args:
        return Meeting()
    endpoint = _literal(_value(args, _ENDPOINT))
    if endpoint:
        host, port = _split(endpoint)
        return Meeting(host, _ENDPOINT, port, _ENDPOINT)
    host, port = _literal(_value(args, _ADDRESS)), _literal(_value(args, _PORT))
    fixed = str(spec.torch.port) if spec.torch.port else ""
    by = _PORT if port else "torch.port"
    return Meeting(host, _ADDRESS, port or fixed, by)


def _split(endpoint: str) -> tuple[str, str]:
    """Host and port of an endpoint; port 0 means a free port, which needs no check."""
    host, colon, port = endpoint.rpartition(":")
    if not colon or not port.isdigit():
        return endpoint.strip("[]"), _C10D_PORT
    return host.strip("[]"), "" if int(port) == 0 else port


def _literal(text: str) -> str:
    """The text; "" if its value is known only when the job starts."""
    return "" if "$" in text else text.strip()


def _value(args: Sequence[str], option: str) -> str:
    """The last value of an option, which torchrun accepts with `-` or `_`."""
    found_value = ""
    for index, word in enumerate(args):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == option:
            after = args[index + 1] if index + 1 < len(args) else ""
            found_value = value if equals else after
    return found_value


def listens_on(layout: Placement) -> str:
    """The node on whose port the ranks meet; "" if it is not a node of the job."""
    met, first = meeting_place(layout), layout.places[0].node
    if not met.host or met.host_by == "MASTER_ADDR":
        # Rank 0 listens, whatever host the job names.
        return first.name
    nodes = [place.node for place in layout.places]
    return next((n.name for n in nodes if met.host in (n.name, n.host)), "")


def foreign_host(layout: Placement) -> str:
    """A host name that the job fixes and every node must know; "" if there is none."""
    host = meeting_place(layout).host
    return "" if not host or is_address(host) or _is_loopback(host) else host


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


# ---- what it means ---------------------------------------------------------------------


def check_port(case: JobContext) -> Iterable[Finding]:
    """Check the fixed port: it is a valid port, and free on the node that listens."""
    met, node = meeting_place(case.layout), listens_on(case.layout)
    if met.port and not met.number:
        yield make_finding(
            Level.BAD,
            "port",
            "",
            f"`{met.port_by}` says `{met.port[:20]}`, which is no port",
            "name a number from 1 to 65535",
        )
    elif met.number and node in case.facts and case.facts[node].port_trouble:
        why = case.facts[node].port_trouble
        fix, *change = _other_port(case.spec, met)
        yield make_finding(
            Level.BAD,
            "port",
            node,
            f"port {met.number} (`{met.port_by}`) cannot be used: {why}",
            f"{fix}; `ss -ltnp sport = :{met.number}` there says who has it",
            *change,
        )


def _other_port(spec: JobSpec, met: Meeting) -> tuple[str, *tuple[Change, ...]]:
    """What to do about a port that is in use, with a change of the job file if one helps."""
    if met.port_by == "torch.port":
        return f"take `torch.port` out: {_FREE}", Change("torch.port", None)
    if met.port_by == _PORT:
        kept = _without(spec.torch.args, _PORT)
        return f"take `{_PORT}` out: {_FREE}", Change("torch.args", kept)
    return (f"choose another port for `{met.port_by}`",)


def _without(args: Sequence[str], option: str) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in args:
        name, equals, _ = word.partition("=")
        hit = name.replace("_", "-") == option
        if not hit and not skip:
            kept.append(word)
        skip = hit and not equals
    return kept


def check_host(case: JobContext) -> Iterable[Finding]:
    """Check the fixed host: rank 0 runs there, and every node knows its name."""
    met, many = meeting_place(case.layout), len(case.layout.places) > 1
    first = case.layout.places[0].node
    if many and met.host and _is_loopback(met.host):
        yield make_finding(
            Level.BAD,
            "meeting",
            "",
            f"`{met.host_by}` is {met.host}: every node would look for rank 0 on itself",
            f"name the first node: {first.host}",
        )
    elif met.host_by == "MASTER_ADDR" and _elsewhere(case, met.host):
        yield make_finding(
            Level.BAD,
            "meeting",
            "",
            f"`MASTER_ADDR` is {met.host}, but rank 0 runs on {first.name}",
            f"name the first node: {first.host}",
        )
    yield from findings_for_each(
        case,
        Level.BAD,
        "meeting",
        _unknown(case),
        "correct it, use an address, or add the name to /etc/hosts there",
    )


def check_numbering(case: JobContext) -> Iterable[Finding]:
    """Report a rendezvous of torchrun that numbers the nodes by their addresses, not as planned."""
    torch = case.spec.torch
    backend, program = _value(torch.args, _BACKEND), torch.path.rpartition("/")[2]
    itself = "its ranks may be on other nodes than planned; then their output stays with it"
    if backend not in ("", "static"):
        text = f"torchrun numbers the nodes itself with `{_BACKEND}={backend}`: {itself}"
        fix = f"take `{_BACKEND}` out: torchrun gets the number of each node"
        change = Change("torch.args", _without(torch.args, _BACKEND))
        yield make_finding(Level.WARN, "numbering", "", text, fix, change)
    elif program == _NUMBERS_ITSELF:
        fix = "use one node, or torchrun"
        yield make_finding(
            Level.WARN, "numbering", "", f"{program} numbers the nodes itself: {itself}", fix
        )


def _elsewhere(case: JobContext, name: str) -> bool:
    """Whether this is a node of the job, but not the first."""
    others = [place.node for place in case.layout.places[1:]]
    first = case.layout.places[0].node
    return name not in (first.name, first.host) and any(name in (n.name, n.host) for n in others)


def _unknown(case: JobContext) -> Callable[[RankPlace, NodeFacts], str | None]:
    name, by = foreign_host(case.layout), meeting_place(case.layout).host_by

    def tell(_: RankPlace, facts: NodeFacts) -> str | None:
        error = facts.names[name].error if name in facts.names else ""
        return f"`{name}` (`{by}`) does not resolve: {error}" if error else None

    return tell


_SET = {
    Launch.TORCHRUN: (("MASTER_ADDR", "MASTER_PORT"), "torchrun", "take it out; `torch.port` fixes the port"),
    Launch.JAX: (("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"), "`launch: jax`", "take it out"),
}  # fmt: skip
"""Launcher -> the variables that it sets, who does, what to do."""


def check_overridden(spec: JobSpec) -> Iterable[Finding]:
    """Report variables that the job sets but its launcher overrides for its ranks."""
    names, who, fix = _SET.get(spec.launch, ((), "", ""))
    for name in names:
        if name in spec.env:
            yield make_finding(
                Level.WARN, "environment", "", f"`{name}` in `env` has no effect: {who} sets it for the ranks",
                fix, Change(f"env.{name}", None),
            )  # fmt: skip
