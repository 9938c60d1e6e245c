"""What a run will do, with rounds, minutes, bytes and every kind of command, before anything starts. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from rankdeck.acceptance.choice import Chosen, choose
from rankdeck.acceptance.gate import Gated, Identity
from rankdeck.acceptance.groups import groups_of, sizes
from rankdeck.acceptance.leaves import Leaves
from rankdeck.acceptance.measurement import FEWEST
from rankdeck.acceptance.port import Request
from rankdeck.acceptance.run import RunPlan, StagePlan
from rankdeck.acceptance.schedule import Options, Pair, pair_rounds
from rankdeck.acceptance.work import Ground, Work, command_lines, find, known_of, seconds_of
from rankdeck.model.acceptance import Stage
from rankdeck.model.text import size as bytes_text

LEAF = (Stage.INSIDE, Stage.CROSSING, Stage.ALONE)
MEASURED = (Stage.SINGLE, Stage.PAIRS, Stage.CONFIRM, *LEAF, Stage.GROUPS, Stage.SOAK)
"""Stages in which something is measured, in their order."""
SINGLE = ("sysbench", "stress-ng", "stream", "hpcc", "himeno", "dcgmi", "fio")
"""Recipes that look at one node."""
_START = {True: 1.0, False: 4.0}
"""Seconds that a job takes to begin and to end: of pairs with a server, and of launchers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Who takes part and what they have."""

    gated: Gated
    said: Mapping[str, Identity]
    ground: Ground
    leaves: Leaves
    seed: int

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.gated.nodes


def plan_run(request: Request, scene: Scene) -> RunPlan:
    """The whole plan; a stage that does not apply says why in its note."""
    gbps = scene.ground.known.link_gbps
    chosen = _chosen(request, scene, gbps)
    wanted = stages_of(request)
    stages = [
        StagePlan(stage=Stage.GATE, note=_left(scene)),
        StagePlan(stage=Stage.IDENTITY, note="compared with the majority"),
    ]
    stages += chain.from_iterable(
        _planned(one, request, scene) for one in chosen if one.stage in wanted
    )
    if Stage.SOAK in wanted:
        stages += _soak(stages, request)
    return RunPlan(
        cluster=scene.ground.cluster.name, nodes=scene.nodes, left_out=scene.gated.left_out, leaves=scene.leaves,
        stages=tuple(one for one in stages if one.stage in wanted or one.stage in (Stage.GATE, Stage.IDENTITY)),
        seed=scene.seed, repeats=request.repeats, seconds=request.seconds, exhaustive=request.exhaustive, max_crossing=request.max_crossing,
        link_gbps=gbps, rdma_gbps=scene.ground.rdma_gbps, rails=scene.ground.rails, soak=request.soak, include_busy=tuple(request.include_busy),
        notes=(*scene.gated.notes, *_limits(request, scene), _said(scene, stages)),
    )  # fmt: skip


def stages_of(request: Request) -> tuple[Stage, ...]:
    """The stages that are asked for, in their order; soak only where seconds are given."""
    first = MEASURED.index(request.begin) if request.begin in MEASURED else 0
    asked = [one for one in MEASURED[first:] if not request.only or one in request.only]
    return tuple(one for one in asked if one is not Stage.SOAK or request.soak)


def _chosen(request: Request, scene: Scene, gbps: float) -> Sequence[Chosen]:
    if not request.recipes:
        return choose(scene.nodes, scene.said, virtual=bool(scene.gated.shared), gbps=gbps)
    return tuple(chain.from_iterable(_named(name) for name in request.recipes))


def _named(name: str) -> Iterable[Chosen]:
    """The stages of a recipe that was asked for by name."""
    recipe = find(name)
    if name in SINGLE:
        return (Chosen(stage=Stage.SINGLE, recipe=name, why="asked for"),)
    pairs = Chosen(stage=Stage.PAIRS, recipe=name, why="asked for")
    if recipe.traits.directed:
        return (pairs,)
    return (pairs, Chosen(stage=Stage.GROUPS, recipe=name, why="asked for"))


def _planned(one: Chosen, request: Request, scene: Scene) -> Iterable[StagePlan]:
    if not one.recipe:
        return (StagePlan(stage=one.stage, note=one.why),)
    return {Stage.SINGLE: _single, Stage.PAIRS: _pairs, Stage.GROUPS: _groups}[one.stage](
        one, request, scene
    )


def _single(one: Chosen, request: Request, scene: Scene) -> Iterable[StagePlan]:
    del request
    seconds = seconds_of(find(one.recipe), scene.ground)
    work = Work(
        stage=Stage.SINGLE,
        recipe=one.recipe,
        nodes=scene.nodes[:1],
        runs=((scene.nodes[0], "", 0, 0),),
    )
    yield StagePlan(
        stage=Stage.SINGLE, recipe=one.recipe, rounds=1, tests=len(scene.nodes), minutes=(seconds + _START[False]) / 60,
        commands=command_lines(work, scene.ground), note=one.why,
    )  # fmt: skip


def repeats_of(recipe: str, repeats: int) -> int:
    """Of each direction; what has no direction repeats by itself: half as often, in all."""
    return repeats if find(recipe).traits.directed else max(1, repeats // 2)


def rail_count(plan: RunPlan, recipe: str) -> int:
    """Rails that a recipe measures apart."""
    return len(next(iter(plan.rails.get(recipe, {}).values()), ("",)))


def options_of(plan: RunPlan, recipe: str, nodes: Sequence[str]) -> Options:
    """What the schedule of a recipe's pairs is made from."""
    asked = {one.stage for one in plan.stages}
    stages = tuple(one for one in (Stage.PAIRS, Stage.CONFIRM, *LEAF) if one in asked)
    return Options(
        nodes=tuple(nodes), leaves=plan.leaves, seed=plan.seed, exhaustive=plan.exhaustive,
        stages=stages, repeats=repeats_of(recipe, plan.repeats), directed=find(recipe).traits.directed,
        max_crossing=plan.max_crossing, rails=rail_count(plan, recipe),
    )  # fmt: skip


def _pairs(one: Chosen, request: Request, scene: Scene) -> Iterable[StagePlan]:
    if len(scene.nodes) < 2:
        yield StagePlan(stage=Stage.PAIRS, note="fewer than two nodes take part")
        return
    repeats = repeats_of(one.recipe, request.repeats)
    options = Options(
        nodes=scene.nodes,
        leaves=scene.leaves,
        seed=scene.seed,
        exhaustive=request.exhaustive,
        repeats=repeats,
        max_crossing=request.max_crossing,
    )
    rounds = pair_rounds(options)
    yield _round_plan(Stage.PAIRS, one, rounds, repeats, scene)
    few = len(scene.nodes) < FEWEST
    suspects = "" if few else "suspects with two proven partners, "
    yield StagePlan(
        stage=Stage.CONFIRM,
        recipe=one.recipe,
        note=f"{suspects}suspect pairs again: two strikes name it",
    )
    if not few:
        for stage in LEAF:
            yield StagePlan(
                stage=stage,
                recipe=one.recipe,
                rounds=1 if scene.leaves else 0,
                note=_LEAF_NOTES[stage],
            )


_LEAF_NOTES = {
    Stage.INSIDE: "where leaves are known, or the pairs show them: every pair within its leaf",
    Stage.CROSSING: "every pair crosses at once",
    Stage.ALONE: "one pair crosses alone, of each slow leaf",
}


def _round_plan(
    stage: Stage, one: Chosen, rounds: Sequence[Sequence[Pair]], repeats: int, scene: Scene
) -> StagePlan:
    recipe, ground = find(one.recipe), scene.ground
    seconds, directed = seconds_of(recipe, ground), recipe.traits.directed
    first, last = rounds[0][0]
    ways = 2 if directed else 1
    runs = ((first, last, 0, 0), (last, first, 0, 0))[:ways]
    work = Work(stage=stage, recipe=one.recipe, nodes=(first, last), runs=runs)
    each = ways * repeats * (seconds if directed else seconds + _START[False]) + _START[True]
    rails = next(iter(ground.rails.get(one.recipe, {}).values()), ())
    tests = ways * repeats * sum(map(len, rounds)) * (len(rails) or 1)
    link = known_of(recipe, ground.known.link_gbps, ground.rdma_gbps).link_gbps
    moved = int(link * 1e9 / 8 * seconds * tests) if directed else 0
    return StagePlan(
        stage=stage, recipe=one.recipe, rounds=len(rounds), tests=tests, minutes=len(rounds) * each / 60, bytes=moved,
        commands=command_lines(work, ground),
        note=one.why + (f"; {len(rails)} rails at once: {', '.join(rails)}" if rails else ""),
    )  # fmt: skip


def _groups(one: Chosen, request: Request, scene: Scene) -> Iterable[StagePlan]:
    del request
    steps = sizes(len(scene.nodes))
    if not steps:
        yield StagePlan(
            stage=Stage.GROUPS,
            recipe=one.recipe,
            note="fewer than four nodes: the pairs are all there is",
        )
        return
    nodes = scene.nodes[: steps[0]]
    work = Work(stage=Stage.GROUPS, recipe=one.recipe, nodes=nodes, runs=((nodes[0], "", 0, 0),))
    seconds = seconds_of(find(one.recipe), scene.ground) + _START[False]
    yield StagePlan(
        stage=Stage.GROUPS, recipe=one.recipe, rounds=len(steps), tests=sum(len(groups_of(scene.nodes, size)) for size in steps),
        minutes=len(steps) * seconds / 60, commands=command_lines(work, scene.ground),
        note=f"{one.why}; groups of {', '.join(map(str, steps))}",
    )  # fmt: skip


def _soak(stages: Iterable[StagePlan], request: Request) -> Iterable[StagePlan]:
    """The largest group again and again."""
    group = next((one for one in stages if one.stage is Stage.GROUPS and one.rounds), None)
    if group is None:
        yield StagePlan(stage=Stage.SOAK, note="no group to repeat")
    else:
        yield StagePlan(
            stage=Stage.SOAK, recipe=group.recipe, minutes=request.soak / 60, commands=group.commands,
            note="all nodes together, again and again",
        )  # fmt: skip


def _limits(request: Request, scene: Scene) -> Iterable[str]:
    """What `--max-crossing` does, and where it does nothing."""
    if request.max_crossing < 1:
        most = max(1, int(request.max_crossing * (len(scene.nodes) // 2)))
        yield (
            f"at most {most} pair{'s' * (most != 1)} cross leaves at once; an uplink is loaded no further, "
            "and groups of more than a leaf cross as they come"
        )


def _left(scene: Scene) -> str:
    out = len(scene.gated.left_out)
    return f"{len(scene.nodes)} nodes take part" + (f", {out} are left out" if out else "")


def _said(scene: Scene, stages: Sequence[StagePlan]) -> str:
    """What will happen to the cluster, in one sentence."""
    nodes, out = len(scene.nodes), len(scene.gated.left_out)
    rounds, minutes = sum(one.rounds for one in stages), sum(one.minutes for one in stages)
    moved = sum(one.bytes for one in stages)
    network = f", about {bytes_text(moved)} over the network" if moved else ""
    writes = any(find(one.recipe).traits.writes for one in stages if one.recipe)
    disks = "it writes to disks" if writes else "nothing is written to disks"
    return f"{nodes} of {nodes + out} nodes, {rounds} rounds, about {max(minutes, 0.1):.1f} min{network}; {disks}"
