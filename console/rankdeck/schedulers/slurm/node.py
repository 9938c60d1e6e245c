"""A node as Slurm reports it, and what that means for its health."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec import field

from rankdeck.model.health import of_reasons
from rankdeck.model.scheduler_node import SchedulerColumn
from rankdeck.model.text import day_time
from rankdeck.values import Value
from rankdeck_agent.rules.levels import Health, Level, Reason
from rankdeck_agent.wire.schedulers.slurm_states import AWAY, DRAIN_PREFIX, NO_JOBS, SlurmFlag

_LOOK = "look at slurmd there (`systemctl status slurmd`, its log) and at the way to the controller"
_BACK = {True: "`:resume` gives it back", False: "`:resume anyway` gives it back"}
_USED = ("idle", "mixed", "alloc", "compl", "planned")
"""Prefixes of Slurm's states in which jobs run on a node or may be started."""
_GIVEN = ("alloc", "mixed", "mix", "comp", "resv", "reserved", "maint", "planned", "plnd")
"""Prefixes of Slurm's states in which a node belongs to others, now or soon."""


_LEAVING = (SlurmFlag.POWERING_DOWN, SlurmFlag.REBOOTING)
"""Flags of a node that is about to be off."""


class SlurmNode(Value, kw_only=True):
    """A node as Slurm reports it."""

    scheduler: ClassVar[str] = "slurm"
    title: ClassVar[str] = "Slurm"
    tells_own_jobs: ClassVar[bool] = True
    agent_install: ClassVar[str] = ""
    columns: ClassVar[Sequence[SchedulerColumn]] = (
        SchedulerColumn("SLURM", 12, 9, lambda view: view.words or "gone"),
        SchedulerColumn("JOBS", 4, 6, lambda view: str(len(view.jobs) or ""), right=True),
        SchedulerColumn("GRES", 14, 6, lambda view: view.gres_words),
        SchedulerColumn("PARTITION", 12, 3, lambda view: ",".join(view.partitions)),
        SchedulerColumn("FEATURES", 12, 1, lambda view: view.features),
    )
    state: str
    """Slurm's state in lower case: idle, mixed, drained, …; "" if Slurm no longer has the node."""
    also: tuple[str, ...] = ()
    """Meaning of the flags that Slurm appends to the state: `not responding`, `powered down`, …"""
    reason: str = ""
    """Why it was taken out of service, as given by the person or program that did it."""
    by: str = ""
    """Who took it out of service."""
    since: float | None = None
    """When it was taken out of service, epoch seconds by Slurm's clock."""
    partitions: tuple[str, ...] = ()
    features: str = ""
    gres: Mapping[str, int] = field(default_factory=dict[str, int])
    """`gpu:a100` -> how many there are."""
    gres_used: Mapping[str, int] = field(default_factory=dict[str, int])
    cpus: int = 0
    cpus_used: int = 0
    memory: int = 0
    """MB."""
    memory_used: int = 0
    jobs: tuple[str, ...] = ()
    """`4711 alice`, at most 64."""

    @property
    def gone(self) -> bool:
        """Whether Slurm no longer has this node."""
        return not self.state

    @property
    def out(self) -> bool:
        """Whether it gets no new jobs until somebody acts."""
        return self.state.startswith(NO_JOBS)

    @property
    def ours(self) -> bool:
        """Whether a Rankdeck console drained it: its reason has our prefix."""
        return self.reason.startswith(DRAIN_PREFIX)

    @property
    def words(self) -> str:
        """`idle, not responding`."""
        return ", ".join((self.state, *self.also))

    @property
    def gres_words(self) -> str:
        """`gpu:a100 3/4`: 3 in use of 4."""
        return ", ".join(
            f"{name} {self.gres_used.get(name, 0)}/{count}" for name, count in self.gres.items()
        )

    @property
    def alone(self) -> str:
        return ""

    @property
    def remark(self) -> str:
        return ""

    @property
    def lines(self) -> tuple[str, ...]:
        return ()

    @property
    def said(self) -> tuple[tuple[str, str], ...]:
        """Its state and why, partitions, what is in use, jobs; () if Slurm no longer has it."""
        if self.gone:
            return ()
        since = day_time(self.since) if self.since else ""
        who = ", ".join(filter(None, (f"by {self.by}" if self.by else "", since)))
        rows = (
            ("state", self.words),
            ("reason", f"{self.reason} ({who})" if self.reason and who else self.reason),
            ("partitions", ", ".join(self.partitions)),
            ("features", self.features),
            ("GRES in use", self.gres_words),
            ("CPUs in use", f"{self.cpus_used}/{self.cpus}"),
            ("memory given out", f"{self.memory_used:,} of {self.memory:,} MB"),
            *(("job", job) for job in self.jobs),
        )
        return tuple((name, text) for name, text in rows if text)

    @property
    def searched(self) -> str:
        words = (self.words, *self.partitions, self.features, self.reason, *self.gres, *self.jobs)
        return " ".join(words)

    def values_of(self, word: str) -> Iterable[str]:
        """The users with jobs on the node, its partitions, or why it is out of service."""
        if word == "user":
            return (job.partition(" ")[2] for job in self.jobs)
        return self.partitions if word == "partition" else (self.reason,) * (word == "reason")

    def merge_health(self, health: Health, *, heard: bool, tried: bool) -> Health:
        """The health with the node's state in Slurm; `tried` has no effect."""
        reasons = tuple(
            filter(None, (_state(self, health, heard=heard), _touch(self, heard=heard)))
        )
        reasons = reasons or tuple(filter(None, (_still_used(self, health),)))
        return of_reasons(health, (*health.reasons, *reasons)) if reasons else health

    def why_closed(self, *, shared: bool) -> str:
        """Why Slurm would not give it to us now."""
        if self.gone:
            return "Slurm has no such node"
        if self.out:
            by = f", by {self.by}" if self.by else ""
            return f"{self.words} in Slurm{f': {self.reason}{by}' if self.reason else ''}"
        if SlurmFlag.NOT_RESPONDING in self.also:
            return f"{self.words} in Slurm: its slurmd does not answer"
        if shared:
            return ""
        if not self.state.startswith(_GIVEN):
            away = self.state.startswith(AWAY) or any(flag in self.also for flag in _LEAVING)
            return f"{self.words} in Slurm: it gets no jobs for now" if away else ""
        jobs = f" ({', '.join(self.jobs[:3])})" if self.jobs else ""
        return f"busy: {self.words} in Slurm{jobs}"


def _state(view: SlurmNode, health: Health, *, heard: bool) -> Reason | None:
    """A reason if the node's Slurm state keeps jobs away; else None."""
    if view.gone:
        text = "Slurm has no such node any more · it was removed from slurm.conf"
        return Reason("slurm.gone", Level.UNKNOWN, text)
    if view.state.startswith(("down", "error")):
        return _down(view, heard=heard)
    if view.state == "inval":
        text = (
            f"Slurm gives it no jobs: less is there than slurm.conf says{_why(view)} · compare"
            " `slurmd -C` there with slurm.conf"
        )
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
    """A reason if slurmd on the node does not answer Slurm, or Slurm has
    powered the node down; else None.
    """
    if SlurmFlag.POWERED_DOWN in view.also and not heard:
        text = "Slurm has powered it down to save energy · it starts when a job needs it"
        return Reason("slurm.power", Level.UNKNOWN, text)
    if SlurmFlag.NOT_RESPONDING not in view.also or view.state.startswith("down"):
        return None
    but = " but our agent is heard" if heard else ""
    level = Level.WARN if heard else Level.UNKNOWN
    return Reason("slurm.silent", level, f"its slurmd does not answer Slurm{but} · {_LOOK}")


def _still_used(view: SlurmNode, health: Health) -> Reason | None:
    """A reason if Slurm still gives jobs to a node with an unacknowledged BAD reason; else None."""
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
