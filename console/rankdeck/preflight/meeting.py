"""Where the ranks of a torch job meet: the host and port that job and arguments fix, and whether they will do."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rankdeck.backends.layout import Layout, Place
from rankdeck.model.health import Level
from rankdeck.model.job import JobSpec, Launch
from rankdeck.preflight.case import Case, each, is_address
from rankdeck.preflight.facts import NodeFacts
from rankdeck.preflight.findings import Change, Finding, found

_ADDRESS, _PORT, _ENDPOINT = "--master-addr", "--master-port", "--rdzv-endpoint"
_C10D_PORT = "29400"
"""Of torchrun, for an endpoint without a port."""
_FREE = "leave it out and a free port is found"
_MOST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Meeting:
    """What is fixed, and by which key; "" is not fixed: the first node and a free port."""

    host: str = ""
    host_by: str = ""
    port: str = ""
    port_by: str = ""

    @property
    def number(self) -> int:
        """The port; 0 where none is fixed or it is none."""
        digits = self.port.isascii() and self.port.isdigit() and len(self.port) < 6
        return int(self.port) if digits and int(self.port) <= _MOST_PORT else 0


def meeting(layout: Layout) -> Meeting:
    """Where the ranks of this job will meet, as far as its files fix it."""
    spec = layout.spec
    if spec.launch is Launch.TORCHRUN:
        return _of_torchrun(spec)
    env = {**layout.cluster.environment, **spec.env}
    host, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    return Meeting(_literal(host), "MASTER_ADDR", _literal(port), "MASTER_PORT")


def _of_torchrun(spec: JobSpec) -> Meeting:
    """Arguments of the job come last and win; torchrun sets MASTER_ADDR and MASTER_PORT itself."""
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
    """Host and port of an endpoint; port 0 is a free one, which nobody has to check."""
    host, colon, port = endpoint.rpartition(":")
    if not colon or not port.isdigit():
        return endpoint.strip("[]"), _C10D_PORT
    return host.strip("[]"), "" if int(port) == 0 else port


def _literal(text: str) -> str:
    """The text; "" where it is only known when the job starts."""
    return "" if "$" in text else text.strip()


def _value(args: Sequence[str], option: str) -> str:
    """The last value of an option, which torchrun takes with `-` or `_`."""
    found_value = ""
    for index, word in enumerate(args):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == option:
            after = args[index + 1] if index + 1 < len(args) else ""
            found_value = value if equals else after
    return found_value


def listens_on(layout: Layout) -> str:
    """The node whose port the ranks meet at; "" where that is none of the job's."""
    met, first = meeting(layout), layout.places[0].node
    if not met.host or met.host_by == "MASTER_ADDR":
        # Rank 0 listens, whatever the others believe.
        return first.name
    nodes = [place.node for place in layout.places]
    return next((n.name for n in nodes if met.host in (n.name, n.host)), "")


def foreign_host(layout: Layout) -> str:
    """A host name that the job fixes and every node must know; "" where there is none."""
    host = meeting(layout).host
    return "" if not host or is_address(host) or _is_loopback(host) else host


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


# ---- what it means ---------------------------------------------------------------------


def port(case: Case) -> Iterable[Finding]:
    """The fixed port is none, or taken on the node that listens."""
    met, node = meeting(case.layout), listens_on(case.layout)
    if met.port and not met.number:
        yield found(
            Level.BAD,
            "port",
            "",
            f"`{met.port_by}` says `{met.port[:20]}`, which is no port",
            "name a number from 1 to 65535",
        )
    elif met.number and node in case.facts and case.facts[node].port_trouble:
        why = case.facts[node].port_trouble
        fix, *change = _other_port(case.spec, met)
        yield found(
            Level.BAD, "port", node, f"port {met.number} (`{met.port_by}`) cannot be used: {why}",
            f"{fix}; `ss -ltnp sport = :{met.number}` there says who has it", *change,
        )  # fmt: skip


def _other_port(spec: JobSpec, met: Meeting) -> tuple[str, *tuple[Change, ...]]:
    """What to do about a taken port, with the change of the job file where one will do."""
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


def host(case: Case) -> Iterable[Finding]:
    """The fixed host is not the one where rank 0 runs, or a name that some node does not know."""
    met, many = meeting(case.layout), len(case.layout.places) > 1
    first = case.layout.places[0].node
    if many and met.host and _is_loopback(met.host):
        yield found(
            Level.BAD, "meeting", "", f"`{met.host_by}` is {met.host}: every node would look for rank 0 on itself",
            f"name the first node: {first.host}",
        )  # fmt: skip
    elif met.host_by == "MASTER_ADDR" and _elsewhere(case, met.host):
        yield found(
            Level.BAD, "meeting", "", f"`MASTER_ADDR` is {met.host}, but rank 0 runs on {first.name}",
            f"name the first node: {first.host}",
        )  # fmt: skip
    yield from each(
        case,
        Level.BAD,
        "meeting",
        _unknown(case),
        "correct it, use an address, or add the name to /etc/hosts there",
    )


def _elsewhere(case: Case, name: str) -> bool:
    """Whether this is another node of the job than the first."""
    others = [place.node for place in case.layout.places[1:]]
    first = case.layout.places[0].node
    return name not in (first.name, first.host) and any(name in (n.name, n.host) for n in others)


def _unknown(case: Case) -> Callable[[Place, NodeFacts], str | None]:
    name, by = foreign_host(case.layout), meeting(case.layout).host_by

    def tell(_: Place, facts: NodeFacts) -> str | None:
        error = facts.names[name].error if name in facts.names else ""
        return f"`{name}` (`{by}`) does not resolve: {error}" if error else None

    return tell


def overridden(spec: JobSpec) -> Iterable[Finding]:
    """Variables that torchrun sets for its ranks, whatever the job says."""
    if spec.launch is Launch.TORCHRUN:
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            if name in spec.env:
                yield found(
                    Level.WARN, "environment", "", f"`{name}` in `env` has no effect: torchrun sets it for the ranks",
                    "take it out; `torch.port` fixes the port", Change(f"env.{name}", None),
                )  # fmt: skip
