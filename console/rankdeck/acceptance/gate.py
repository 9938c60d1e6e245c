"""Who may be measured: busy, excluded and doubled nodes are left out by name, with the reason. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankdeck.acceptance.identity import Identity
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.nodeset import fold
from rankdeck.model.slurm_cluster import SlurmNode

BUSY = 0.5
"""Share of the cores: more than this, and somebody works there."""
CLOCK = 5.0
"""Seconds by which clocks may differ before it is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What the console knows of the nodes besides what they say."""

    jobs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> a job of ours that runs there."""
    away: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why it cannot even be asked: it did not answer, or its scheduler keeps it from us."""
    excluded: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node -> why jobs are kept away: it is measured, since a run that passes it ends that."""
    scheduled: bool = False
    """A scheduler gives us the nodes for ourselves: load of others cannot be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """Who takes part, and who not."""

    nodes: tuple[str, ...]
    left_out: Mapping[str, str]
    """Node -> why."""
    shared: tuple[str, ...] = ()
    """Nodes that are one machine by intent: what is between them is no network."""
    notes: tuple[str, ...] = ()


def gate(
    cluster: Cluster,
    wanted: Sequence[str],
    said: Mapping[str, Identity],
    around: Around,
    include: Sequence[str] = (),
) -> Gated:
    """Decide for each node; `include` names busy ones that take part all the same."""
    doubled = _doubled(cluster, wanted, said)
    kernels = _together({name: said[name].boot for name in wanted if name in said})
    left_out: dict[str, str] = {}
    taken: list[str] = []
    for name in wanted:
        never = around.away.get(name, "") or doubled.get(name, "")
        if name not in said and not never:
            never = "it did not say what it is"
        why = never or ("" if name in include else _busy(name, said[name], around, name in kernels))
        if why:
            left_out[name] = why
        else:
            taken.append(name)
    return Gated(
        nodes=tuple(taken), left_out=left_out, shared=_virtual(taken, said),
        notes=_notes(taken, said, kernels, around),
    )  # fmt: skip


def kept_by_slurm(views: Mapping[str, SlurmNode], include: Sequence[str] = ()) -> dict[str, str]:
    """Node -> why Slurm would not give it to us now; `include` names those for which our jobs may wait."""
    out = {
        name: f"{view.words} in Slurm{_reason(view)}" for name, view in views.items() if view.out
    }
    gone = {name: "Slurm has no such node any more" for name, view in views.items() if view.gone}
    silent = {
        name: f"{view.words} in Slurm: its slurmd does not answer"
        for name, view in views.items()
        if "not responding" in view.also
    }
    used = {
        name: f"busy: {view.words} in Slurm"
        + (f" ({', '.join(view.jobs[:3])})" if view.jobs else "")
        for name, view in views.items()
        if view.state.startswith(_USED) and name not in include
    }
    return {**used, **silent, **out, **gone}


_USED = ("alloc", "mixed", "mix", "comp", "resv", "reserved", "maint", "planned", "plnd")
"""How the states begin in which a node is somebody else's, now or soon."""


def _reason(view: SlurmNode) -> str:
    by = f", by {view.by}" if view.by else ""
    return f": {view.reason}{by}" if view.reason else ""


def _busy(name: str, one: Identity, around: Around, shared: bool) -> str:
    """Why it is in use, or too hot; load is nobody's where nodes share a kernel, and so is their heat."""
    if job := around.jobs.get(name):
        return f"busy: {job} runs there"
    if one.heat and not shared:
        return f"too hot: {', '.join(one.heat)}; it would be slow now: let it cool, look at fans and inlet air"
    if around.scheduled:
        return ""
    if one.gpu_pids:
        return (
            f"busy: {len(one.gpu_pids)} processes on its GPUs (pid {', '.join(one.gpu_pids[:3])})"
        )
    if one.busy is not None and one.busy > BUSY and not shared:
        return f"busy: {one.busy:.0%} of its cores are in use".replace("%", " %")
    return ""


def _doubled(
    cluster: Cluster, wanted: Sequence[str], said: Mapping[str, Identity]
) -> dict[str, str]:
    """Names that lead to a machine that has another name, too."""
    first: dict[str, str] = {}
    found: dict[str, str] = {}
    for name in wanted:
        machine = said[name].machine if name in said else ""
        if not machine:
            continue
        other = first.setdefault(machine, name)
        if other != name and not _meant(cluster.node(other), cluster.node(name)):
            found[name] = (
                f"it is the same machine as {other} (it says it is {said[name].hostname}): "
                "one of the two names leads to the wrong address"
            )
    return found


def _meant(one: Node, other: Node) -> bool:
    """The cluster file itself says that both are at one address: virtual nodes."""
    return one.host == other.host and one.port != other.port


def _together(keys: Mapping[str, str]) -> frozenset[str]:
    """Nodes whose key another one has, too."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name, key in keys.items():
        groups[key].append(name)
    return frozenset(
        name for key, names in groups.items() if key and len(names) > 1 for name in names
    )


def _virtual(taken: Sequence[str], said: Mapping[str, Identity]) -> tuple[str, ...]:
    together = _together({name: said[name].machine for name in taken})
    return tuple(name for name in taken if name in together)


def _notes(
    taken: Sequence[str], said: Mapping[str, Identity], kernels: frozenset[str], around: Around
) -> tuple[str, ...]:
    notes: list[str] = []
    virtual = _virtual(taken, said)
    if virtual:
        notes.append(f"{fold(virtual)} are one machine: what is between them is no network")
    shared = [name for name in taken if name in kernels]
    if shared:
        loads = [share for name in shared if (share := said[name].busy) is not None]
        much = f" ({max(loads):.0%} of its cores are in use)".replace("%", " %") if loads else ""
        notes.append(f"{fold(shared)} share one kernel{much}: whose load that is cannot be told")
    notes += [f"{name} is {around.excluded[name]}" for name in taken if name in around.excluded]
    held = {name: said[name].facts.get("gpu limits", "none") for name in taken}
    notes += [f"{name}: its GPUs are {why}" for name, why in held.items() if why != "none"]
    users = {name: ", ".join(said[name].users[:3]) for name in taken if said[name].users}
    if users and not around.scheduled:
        notes.append(
            "logged in: " + "; ".join(f"{who} on {name}" for name, who in list(users.items())[:6])
        )
    clocks = sorted((said[name].at, name) for name in taken if said[name].at)
    if clocks and clocks[-1][0] - clocks[0][0] > CLOCK:
        apart = clocks[-1][0] - clocks[0][0]
        notes.append(
            f"clocks differ by up to {apart:.0f} s ({clocks[0][1]} behind, {clocks[-1][1]} ahead)"
        )
    return tuple(notes)
