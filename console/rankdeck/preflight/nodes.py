"""Checks of host names, GPUs, and what telemetry says."""

from collections.abc import Iterable

from rankdeck.model.cluster import Node
from rankdeck.model.health import Level
from rankdeck.model.job import Launch
from rankdeck.preflight.case import (
    Case,
    each,
    is_address,
    needs_names,
)
from rankdeck.preflight.facts import NodeFacts
from rankdeck.preflight.findings import Finding, found


def names(case: Case) -> Iterable[Finding]:
    """Host names that mean nothing on some node."""
    if not needs_names(case.spec) or len(case.layout.places) < 2:
        return
    for place in case.layout.places:
        host = place.node.host
        if not is_address(host):
            yield from each(
                case, Level.BAD, "names",
                lambda _, f, h=host: f"`{h}` does not resolve: {f.names[h].error}"
                if h in f.names and f.names[h].error else None,
                "give the node an `address` in the cluster file, or add it to /etc/hosts there",
            )  # fmt: skip
    if case.spec.launch is Launch.TORCHRUN:
        yield from own_name(case)


def own_name(case: Case) -> Iterable[Finding]:
    """A node whose own name means loopback, or nothing: Gloo listens where the others never come."""

    def tell(node: Node, facts: NodeFacts) -> str | None:
        if node.interface or "GLOO_SOCKET_IFNAME" in case.spec.env:
            return None
        if facts.own.error:
            return f"its own name `{facts.own_name}` does not resolve: {facts.own.error}"
        loopback = all(a.startswith("127.") or a == "::1" for a in facts.own.addresses)
        return (
            f"its own name `{facts.own_name}` is {facts.own.addresses[0]}: Gloo will listen on loopback"
            if facts.own.addresses and loopback and not node.host.startswith("127.")
            else None
        )

    return each(
        case, Level.WARN, "names", lambda p, f: tell(p.node, f),
        "name the `interface` of the job network in the cluster file",
    )  # fmt: skip


def gpus(case: Case) -> Iterable[Finding]:
    """GPUs that are missing, ailing or in use."""
    for place, facts in case.answered:
        node, told = place.node, facts.gpus
        if told is None or (not node.gpus and told.error):
            continue
        if told.error or len(told.names) < node.gpus:
            have = told.error or f"the driver shows {len(told.names)}"
            yield found(
                Level.BAD,
                "gpu",
                node.name,
                f"the cluster file says {node.gpus} GPUs: {have}",
                "look at `nvidia-smi` and `dmesg` there, or correct `gpus`",
            )
        for index, errors in enumerate(told.uncorrected):
            if errors:
                yield found(
                    Level.WARN,
                    "gpu",
                    node.name,
                    f"GPU {index} has {errors} uncorrected memory errors since boot",
                    f"`nvidia-smi --gpu-reset -i {index}` there when nobody uses it, or leave the node out with `on`",
                )
        if told.users:
            yield found(
                Level.WARN,
                "gpu",
                node.name,
                f"GPUs are in use: {', '.join(told.users[:3])}",
                "wait, end it, or choose other nodes with `on`",
            )


def health(case: Case) -> Iterable[Finding]:
    """What telemetry has against a node."""
    for place in case.layout.places:
        known = case.health.get(place.node.name)
        for reason in known.reasons if known else ():
            if reason.level in (Level.WARN, Level.BAD):
                # The job may still run well: the operator decides.
                yield found(Level.WARN, "health", place.node.name, reason.text)
