"""Health of a node by what Slurm says of it, beside our agent: both are said, and where they disagree that too."""

import time

from rankdeck.model.health import Health, Level, Reason, worst_of
from rankdeck.model.slurm_cluster import SlurmNode

_LOOK = "look at slurmd there (`systemctl status slurmd`, its log) and at the way to the controller"

_BACK = {True: "`:resume` gives it back", False: "`:resume anyway` gives it back"}
_USED = ("idle", "mixed", "alloc", "compl", "planned")
"""How the states begin in which jobs run there, or may be started."""


def with_slurm(health: Health, view: SlurmNode | None, *, heard: bool) -> Health:
    """The health by our agent with the opinion of Slurm; `heard` is whether the agent is heard now."""
    if view is None:
        return health
    told = tuple(filter(None, (_state(view, health, heard=heard), _touch(view, heard=heard))))
    told = told or tuple(filter(None, (_still_used(view, health),)))
    if not told:
        return health
    ordered = tuple(sorted((*health.reasons, *told), key=lambda one: -one.level))
    return Health(worst_of(ordered), ordered, health.evaluated, health.checks, health.limits)


def _state(view: SlurmNode, health: Health, *, heard: bool) -> Reason | None:
    """What its state means for jobs."""
    if view.gone:
        text = "Slurm has no such node any more · it was removed from slurm.conf"
        return Reason("slurm.gone", Level.UNKNOWN, text)
    if view.state.startswith(("down", "error")):
        return _down(view, heard=heard)
    if view.state == "inval":
        text = f"Slurm gives it no jobs: less is there than slurm.conf says{_why(view)} · compare `slurmd -C` there with slurm.conf"
        return Reason("slurm.state", Level.WARN, text)
    if not view.out:
        return None
    well = heard and health.level is Level.OK
    ours = view.ours
    text = f"{view.state} in Slurm: it gets no new jobs{_why(view)}"
    text += (
        f" · our agent finds nothing wrong there · {_BACK[ours]}{'' if ours else ', once whoever did it agrees'}"
        if well
        else f" · {_BACK[ours]} once it is repaired"
    )
    return Reason("slurm.state", Level.WARN, text)


def _down(view: SlurmNode, *, heard: bool) -> Reason:
    text = f"Slurm calls it down{_why(view)}"
    if heard:
        return Reason("slurm.state", Level.WARN, f"{text} but our agent is heard · {_LOOK}")
    return Reason("slurm.state", Level.BAD, f"{text} · is it up? {_LOOK}")


def _touch(view: SlurmNode, *, heard: bool) -> Reason | None:
    """Whether Slurm and its slurmd hear each other."""
    if "powered down" in view.also and not heard:
        text = "Slurm has powered it down to save energy · it starts when a job needs it"
        return Reason("slurm.power", Level.UNKNOWN, text)
    if "not responding" not in view.also or view.state.startswith("down"):
        return None
    but = " but our agent is heard" if heard else ""
    level = Level.WARN if heard else Level.UNKNOWN
    return Reason("slurm.silent", level, f"its slurmd does not answer Slurm{but} · {_LOOK}")


def _still_used(view: SlurmNode, health: Health) -> Reason | None:
    """Slurm goes on giving jobs to a node on which something is wrong."""
    bad = any(one.level is Level.BAD and one.acknowledged_until is None for one in health.reasons)
    if not bad or view.also or not view.state.startswith(_USED):
        return None
    text = f"Slurm still gives it jobs ({view.words}) · `:drain WHY` takes it out of service"
    return Reason("slurm.usable", Level.WARN, text)


def _why(view: SlurmNode) -> str:
    """` (bad cable, by root, since 11-22 18:23)`."""
    since = time.strftime("since %m-%d %H:%M", time.localtime(view.since)) if view.since else ""
    known = (view.reason, f"by {view.by}" if view.by else "", since if view.reason else "")
    words = ", ".join(filter(None, known))
    return f" ({words})" if words else ""
