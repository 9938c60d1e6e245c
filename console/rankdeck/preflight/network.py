"""Which nodes must reach which, by which address, and what it means where they do not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from rankdeck.backends.layout import Place
from rankdeck.model.health import Level
from rankdeck.model.nodeset import fold
from rankdeck.model.text import clean
from rankdeck.preflight.case import Case, each, group, job_interface
from rankdeck.preflight.facts import NodeFacts
from rankdeck.preflight.findings import Finding, found

ALL_PAIRS = 64
"""Up to so many nodes everybody tries everybody; beyond, each tries this many others."""
_SHOWN = 4
Target = tuple[str, str, int]
"""Name, address and port of a node that listens."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one node reached another: `error` "" is well; `stage` connect or data."""

    error: str
    stage: str


Reached = Mapping[str, Mapping[str, Attempt]]
"""From -> to -> how it went."""


def address_of(case: Case, name: str) -> str:
    """The address by which the others will reach a node in this job."""
    place = next(p for p in case.layout.places if p.node.name == name)
    facts = case.facts[name]
    interface = job_interface(case, place, facts)
    if interface is not None and interface.address is not None:
        return str(interface.address.ip)
    return place.node.host


def targets(case: Case) -> dict[str, list[Target]]:
    """Whom each node tries: all others, or an even choice of them in a large job."""
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


def attempts(raw: object) -> dict[str, Attempt]:
    """What a node says of its attempts; nothing in it is trusted."""
    if not isinstance(raw, dict):
        return {}
    rows = list(cast("Mapping[str, Any]", raw).items())[:4096]
    found_rows = {clean(name): _attempt(row) for name, row in rows}
    return {name: row for name, row in found_rows.items() if row is not None}


def _attempt(raw: object) -> Attempt | None:
    if not isinstance(raw, dict):
        return None
    row = cast("Mapping[str, Any]", raw)
    return Attempt(clean(row.get("error")), clean(row.get("stage"), 10))


# ---- what it means ---------------------------------------------------------------------


def judge_pairs(case: Case, reached: Reached) -> list[Finding]:
    """Sentences for every node or pair of nodes that cannot talk."""
    broken = {
        (a, b): attempt for a, row in reached.items() for b, attempt in row.items() if attempt.error
    }
    if not broken:
        count = sum(len(row) for row in reached.values())
        text = (
            f"{count} connections between the nodes, all well"
            if count
            else "one node: nobody to reach"
        )
        return [found(Level.OK, "connect", "", text)]
    findings: list[Finding] = []
    for stage, judge in (("connect", _refused), ("data", _swallowed)):
        pairs = {pair: a for pair, a in broken.items() if a.stage == stage}
        findings += judge(case, pairs, reached)
    return findings


def _refused(
    case: Case, pairs: Mapping[tuple[str, str], Attempt], reached: Reached
) -> Iterable[Finding]:
    """Nodes that nobody reaches, then single pairs."""
    fix = "look for a firewall (`nft list ruleset`) and routes (`ip route`) there, or correct `network` and `interface` in the cluster file"
    alone: set[str] = set()
    for name in sorted({b for _, b in pairs}):
        tried = [a for a, row in reached.items() if name in row]
        failed = [a for a in tried if (a, name) in pairs]
        if len(tried) > 1 and len(failed) == len(tried):
            alone.add(name)
            why = pairs[failed[0], name].error
            yield found(
                Level.BAD,
                "connect",
                name,
                f"no other node reaches it at {address_of(case, name)}: {why}",
                fix,
            )
    rest = {pair: a for pair, a in pairs.items() if not alone & set(pair)}
    for (a, b), attempt in list(rest.items())[:_SHOWN]:
        yield found(
            Level.BAD,
            "connect",
            fold((a, b)),
            f"{a} cannot reach {b} at {address_of(case, b)}: {attempt.error}",
            fix,
        )
    if len(rest) > _SHOWN:
        nodes = fold({name for pair in rest for name in pair})
        yield found(
            Level.BAD,
            "connect",
            nodes,
            f"{len(rest) - _SHOWN} more pairs of nodes cannot reach each other",
            fix,
        )


def _swallowed(
    case: Case, pairs: Mapping[tuple[str, str], Attempt], reached: Reached
) -> Iterable[Finding]:
    """Small packets go through and large ones do not."""
    if not pairs:
        return
    (a, b), attempt = next(iter(pairs.items()))
    more = f", and {len(pairs) - 1} more pairs" if len(pairs) > 1 else ""
    yield found(
        Level.BAD, "mtu", fold({name for pair in pairs for name in pair}),
        f"{a} and {b} connect, but large packets are lost on the way ({attempt.error}){more}",
        "a switch or interface on the path has a smaller MTU: raise it there, or lower it on the nodes",
    )  # fmt: skip


def interfaces(case: Case) -> list[Finding]:
    """The job's interface on every node: there, up, in one network, with one MTU."""

    def absent(place: Place, facts: NodeFacts) -> str | None:
        name = place.node.interface
        if not name or job_interface(case, place, facts) is not None:
            return None
        known = ", ".join(i.name for i in facts.interfaces[:12]) or "none"
        return f"no interface `{name}`; there are: {known}"

    def outside(place: Place, facts: NodeFacts) -> str | None:
        lost = case.network is not None and not place.node.interface
        if lost and job_interface(case, place, facts) is None:
            return f"no address in the job network {case.network}"
        return None

    return [
        *each(case, Level.BAD, "interface", absent, "correct `interface` in the cluster file"),
        *each(case, Level.BAD, "interface", outside, "correct `network` in the cluster file, or bring the interface up there"),
        *_down(case),
        *_mixed(case),
        *_named_by_env(case),
    ]  # fmt: skip


def _down(case: Case) -> Iterable[Finding]:
    """Interfaces of the job that are not up, each name with its command."""
    rows = [(p.node.name, job_interface(case, p, f)) for p, f in case.answered]
    down = group((name, i.name if i and not i.up else None) for name, i in rows)
    for name, nodes in down.items():
        yield found(
            Level.BAD,
            "interface",
            nodes,
            f"interface `{name}` is down",
            f"`ip link set {name} up` there; else cable and switch port",
        )


def _mixed(case: Case) -> Iterable[Finding]:
    rows = [(p.node.name, job_interface(case, p, f)) for p, f in case.answered]
    mtus = group((name, i.mtu if i else None) for name, i in rows)
    if len(mtus) > 1:
        parts = ", ".join(f"{mtu} on {nodes}" for mtu, nodes in sorted(mtus.items()))
        least = min(mtus)
        names = group((name, i.name if i and i.mtu > least else None) for name, i in rows)
        lower = ", ".join(
            f"`ip link set dev {name} mtu {least}` on {nodes}" for name, nodes in names.items()
        )
        yield found(
            Level.WARN,
            "mtu",
            "",
            f"the MTU differs: {parts}",
            f"make it the same on all nodes and switches: {lower}, or raise the others",
        )
    nets = group((name, i.address.network if i and i.address else None) for name, i in rows)
    if len(nets) > 1:
        parts = ", ".join(f"{net} on {nodes}" for net, nodes in nets.items())
        yield found(
            Level.WARN,
            "interface",
            "",
            f"the job's interfaces are in different networks: {parts}",
            "name the right `interface` or `network` in the cluster file",
        )


def _named_by_env(case: Case) -> Iterable[Finding]:
    """Interfaces that the job's own variables name; NCCL takes prefixes and lists."""
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = case.spec.env.get(variable, "")
        if not value or value.startswith("^"):
            continue
        exact = value.startswith("=") or variable.startswith("GLOO")
        wanted = value.lstrip("=").split(",")
        lacking = [
            p.node.name for p, f in case.answered
            if not any(i.name == w or (not exact and i.name.startswith(w)) for i in f.interfaces for w in wanted)
        ]  # fmt: skip
        if lacking:
            yield found(
                Level.BAD,
                "interface",
                fold(lacking),
                f"{variable} names `{value}`, which is not there",
                f"leave {variable} out, and name the `interface` of each node in the cluster file",
            )
