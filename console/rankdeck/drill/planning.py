"""Plans a drill: which fault in which job, and which rank goes wrong. Pure."""

import shlex
from collections.abc import Sequence

from rankdeck.drill.programs import FILE, LAUNCHES, drill_program
from rankdeck.drill.values import LIMIT, NO_LINK, TOGETHER, DrillFault, DrillPlan, Link, Way
from rankdeck.errors import RankdeckError, suggest_or_list
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import Abort, JobSpec, Launch
from rankdeck.values import Value, replace
from rankdeck_agent.wire import RUN_TOKEN

NAME = "drill"
NODES, RANKS = 3, 2
"""Most nodes of a job, and most ranks on each, unless others are asked for."""
_START = 120.0
"""Seconds beyond the limit after which a rank ends itself: to start, and to come to its fault."""
_COUNTDOWN = 3.0
"""Seconds from a failure until the other ranks are stopped."""
_PATIENT = 15.0
"""The same where a node is to blame: what is told in the meantime counts."""
_NOBODY_CUTS = "only where --cut and --mend name the programs of the site that do it"


class DrillError(RankdeckError):
    """A drill that cannot be made as asked; the text says why."""


class DrillRequest(Value, kw_only=True):
    """What the user asks for."""

    on: tuple[str, ...] = ()
    nodes: int = 0
    """0: NODES, or as many as there are."""
    ranks_per_node: int = 0
    """0: RANKS, or as many as there are slots."""
    launches: tuple[Launch, ...] = LAUNCHES
    ways: tuple[Way, ...] = tuple(Way)
    like: JobSpec | None = None
    """A job whose environment, image, and options of launchers and scheduler are taken over."""
    limit: float = LIMIT
    link: Link = NO_LINK


def parse_ways(text: str) -> tuple[Way, ...]:
    """The faults in `killed,slow`, all for ""; raises DrillError."""
    return tuple(map(Way, _words(text, [one.value for one in Way], "fault")))


def parse_launches(text: str) -> tuple[Launch, ...]:
    """The launchers in `plain,mpi`, all for ""; raises DrillError."""
    return tuple(map(Launch, _words(text, [one.value for one in LAUNCHES], "launcher")))


def _words(text: str, known: Sequence[str], what: str) -> list[str]:
    found = [word for word in (part.strip() for part in text.split(",")) if word]
    for word in found:
        if word not in known:
            raise DrillError(f"no {what} `{word[:40]}`{suggest_or_list(word, known)}")
    return [word for word in known if word in found or not found]


def parse_link(cut: str, mend: str) -> Link:
    """The programs of `--cut` and `--mend`; raises DrillError."""
    if bool(cut) != bool(mend):
        raise DrillError("--cut needs --mend, and --mend needs --cut: what is cut must be mended")
    found: list[tuple[str, ...]] = []
    for option, text in (("--cut", cut), ("--mend", mend)):
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise DrillError(f"{option}: {error}") from error
        if text and not any("{node}" in word for word in words):
            raise DrillError(f"{option}: write {{node}} where the name of the node belongs")
        found.append(words)
    return Link(*found)


def plan_drill(request: DrillRequest, cluster: Cluster, names: Sequence[str]) -> DrillPlan:
    """The drill on these nodes (`names`, in order; empty: those that the
    scheduler chooses); raises DrillError.
    """
    count = len(names) or request.nodes or min(NODES, max(len(cluster.nodes), 1))
    each = request.ranks_per_node or min([RANKS, *(cluster.node(name).slots for name in names)])
    if count * each < 2:
        raise DrillError("a drill needs two ranks: give it more nodes, or nodes with more slots")
    victims, spec = _Victims(count, each), _spec(request, tuple(names), (count, each))
    life = round((request.limit + _START) * cluster.access.patience)
    faults = tuple(
        _fault(spec, launch, way, (victims.next_for(way), life, bool(request.link)))
        for launch in request.launches
        for way in request.ways
        if launch is not Launch.PLAIN or way not in TOGETHER
    )
    if not faults:
        raise DrillError(
            "plain ranks do not work together: `slow` and `collective` need mpi or torchrun"
        )
    return DrillPlan(cluster=cluster.name, faults=faults, limit=request.limit, link=request.link)


class _Victims:
    """Another rank each time, so that who always names the same one is not right by luck; never
    rank 0, whose launcher some faults would take with it, nor for a fault of a node the first node.
    """

    def __init__(self, nodes: int, each: int) -> None:
        self._ranks, self._each, self._given = nodes * each, each, 0

    def next_for(self, way: Way) -> int:
        self._given += 1
        first = self._each if way.of_node and self._ranks > self._each else 1
        return first + (self._given * 2) % (self._ranks - first)


def _spec(request: DrillRequest, names: tuple[str, ...], size: tuple[int, int]) -> JobSpec:
    """What all jobs of the drill have in common; `size` is (nodes, ranks on each)."""
    like = request.like or JobSpec(name=NAME, launch=Launch.PLAIN, command=())
    return replace(
        like,
        name=NAME,
        nodes=size[0],
        on=names,
        ranks_per_node=size[1],
        env={"OMP_NUM_THREADS": "1", **like.env},
        workdir="",
        grace=1.0,
        progress={},
        file="",
    )


def _fault(spec: JobSpec, launch: Launch, way: Way, chosen: tuple[int, int, bool]) -> DrillFault:
    """`chosen` is (victim, most seconds that a rank lives, whether links can be cut)."""
    victim, life, can_cut = chosen
    argv = (f"{RUN_TOKEN}/{FILE}", way.value, str(victim), str(life))
    own = replace(
        spec,
        launch=launch,
        command=argv if launch is Launch.TORCHRUN else ("python3", *argv),
        files={FILE: drill_program(launch)},
        abort=Abort(countdown=_PATIENT if way.of_node else _COUNTDOWN),
    )
    why = "" if way is not Way.CUT or can_cut else _NOBODY_CUTS
    return DrillFault(way=way, launch=launch, victim=victim, spec=own, unplanted=why)


def without_lacking(plan: DrillPlan, lacks: Sequence[str]) -> DrillPlan:
    """The plan in which faults whose nodes lack something are not planted; `lacks` has a
    sentence, or "", for each fault.
    """
    faults = (
        replace(one, unplanted=one.unplanted or (f"its nodes have {why}" if why else ""))
        for one, why in zip(plan.faults, lacks, strict=True)
    )
    return replace(plan, faults=tuple(faults))
