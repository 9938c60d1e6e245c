"""Plans a run before anything starts: which recipes the nodes can run,
rounds, minutes, bytes, commands. Pure.

The network is measured before collectives over GPUs: the verdict about a
slow NCCL needs the values of the network.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import chain
from statistics import median_low

from rankdeck.acceptance.gate import Admitted, Identity
from rankdeck.acceptance.leaves import Leaves
from rankdeck.acceptance.population import FEWEST
from rankdeck.acceptance.run import Request, RunPlan, StagePlan
from rankdeck.acceptance.schedule import Options, Pair, group_sizes, groups_of, pair_rounds
from rankdeck.acceptance.values import Stage
from rankdeck.acceptance.work import (
    Setup,
    Work,
    command_lines,
    find_recipe,
    gpu_ranks,
    known_of,
    measurement_seconds,
    one_run,
)
from rankdeck.errors import RankdeckError
from rankdeck.model.nodeset import fold_nodes
from rankdeck.plugins import plugin_names
from rankdeck.values import Value
from rankdeck_agent.rules.units import write_duration
from rankdeck_agent.rules.units import write_size as bytes_text

_GPU = ("nccl-tests", "rccl-tests", "torch-nccl")
_MPI = ("imb", "osu", "mpi4py.bench")
_CPU = ("stress-ng", "sysbench")
"""Recipes for the same thing, the preferred one first; others run only if asked for by name."""
_FAST = 40.0
"""Gb/s from which one TCP stream is limited by a core, not by the link."""


class Chosen(Value):
    """The recipe that was chosen for a stage."""

    stage: Stage
    recipe: str
    """"" if no recipe was found; `why` then gives the reason."""
    why: str


def choose_recipes(
    nodes: Sequence[str],
    identities: Mapping[str, Identity],
    *,
    virtual: bool,
    gbps: float,
    gpus: int = 0,
) -> tuple[Chosen, ...]:
    """The recipes for single nodes, pairs and groups.

    `virtual`: the nodes share one machine. `gbps`: rate of the network, 0 if
    unknown. `gpus`: measured GPUs per node.
    """
    lacking = _lacking(nodes, identities)
    return (
        *_choose_single(lacking, virtual=virtual, gpus=gpus),
        *_choose_pairs(lacking, virtual=virtual, gbps=gbps),
        *_choose_groups(lacking),
    )


def needed_programs() -> tuple[str, ...]:
    """The programs that some recipe needs on a node."""
    return _needed(lambda word: "" if ":" in word or word == "rdma" else word)


def needed_modules() -> tuple[str, ...]:
    """The Python modules that some recipe needs on a node."""
    return _needed(lambda word: word.removeprefix("module:") if word.startswith("module:") else "")


def _needed(wanted: Callable[[str], str]) -> tuple[str, ...]:
    words = chain.from_iterable(find_recipe(name).needs for name in plugin_names("recipes"))
    return tuple(dict.fromkeys(filter(None, map(wanted, words))))


Lacking = Mapping[str, Mapping[str, Sequence[str]]]
"""Recipe -> node that cannot run it -> what it lacks."""


def _lacking(nodes: Sequence[str], identities: Mapping[str, Identity]) -> Lacking:
    known = {node: identities[node].has for node in nodes if node in identities}
    needs = {name: find_recipe(name).needs for name in plugin_names("recipes")}
    return {
        recipe: {
            node: [word for word in words if word not in has]
            for node, has in known.items()
            if not has.issuperset(words)
        }
        for recipe, words in needs.items()
    }


def _first(names: Sequence[str], lacking: Lacking) -> str:
    return next((name for name in names if not lacking[name]), "")


def _choose_single(lacking: Lacking, *, virtual: bool, gpus: int) -> list[Chosen]:
    found: list[Chosen] = []
    if test := _first(("dcgmi",), lacking):
        found.append(Chosen(Stage.SINGLE, test, "NVIDIA GPUs and dcgmi are there"))
    if virtual:
        why = "the nodes share one machine: each would measure the others"
        return [*found, Chosen(Stage.SINGLE, "", why)]
    if gpus > 1 and (test := _first(_GPU, lacking)):
        found.append(Chosen(Stage.SINGLE, test, f"over the {gpus} GPUs of each node"))
    cpu = _first(_CPU, lacking)
    why = f"every node has {cpu}" if cpu else _why_not(_CPU, lacking)
    found.append(Chosen(Stage.SINGLE, cpu, why))
    if memory := _first(("stream",), lacking):
        found.append(Chosen(Stage.SINGLE, memory, "its memory: every node has it"))
    return found


def _choose_pairs(lacking: Lacking, *, virtual: bool, gbps: float) -> list[Chosen]:
    below = _first(("ib_write_bw",), lacking)
    why = "every node has RDMA ports and ib_write_bw" if below else ""
    if not below:
        below, why = _tcp(lacking, virtual=virtual, gbps=gbps)
    found = [Chosen(Stage.PAIRS, below, why)] if below else []
    if gpu := _first(_GPU, lacking):
        found.append(Chosen(Stage.PAIRS, gpu, f"every node has GPUs and {gpu}"))
    names = ("iperf3", *_MPI, "torch-gloo")
    return found or [Chosen(Stage.PAIRS, "", _why_not(names, lacking))]


def _tcp(lacking: Lacking, *, virtual: bool, gbps: float) -> tuple[str, str]:
    """The recipe for a network without RDMA ("" if there is none), and why it was chosen."""
    mpi = _first(_MPI, lacking)
    if not lacking["iperf3"] and not virtual and gbps < _FAST:
        return "iperf3", "every node has iperf3, which tells the directions apart"
    if mpi:
        fast = f"; one stream of iperf3 does not fill {gbps:g} Gb/s" if gbps >= _FAST else ""
        return mpi, f"every node has MPI and {mpi}{fast}"
    if not lacking["iperf3"]:
        return "iperf3", "every node has iperf3"
    gloo = _first(("torch-gloo",), lacking)
    return gloo, "every node has torch" if gloo else ""


def _choose_groups(lacking: Lacking) -> list[Chosen]:
    names = (*_GPU, *_MPI, "torch-gloo")
    name = _first(names, lacking)
    why = f"every node has {name}" if name else _why_not(names, lacking)
    return [Chosen(Stage.GROUPS, name, why)]


Rails = Mapping[str, tuple[str, ...]]
"""Node -> its devices, one per rail; every node has the same number."""


def rails_of(
    nodes: Sequence[str], identities: Mapping[str, Identity], asked: Sequence[str]
) -> Rails:
    """The devices in `asked`, or else the fastest RDMA ports of each
    node; empty if a node has fewer than two.

    Raises RankdeckError if a node lacks a device in `asked`.
    """
    if asked:
        for node in nodes:
            has = {*identities[node].rdma, *identities[node].networks}
            if lacks := [name for name in asked if name not in has]:
                known = ", ".join(sorted(has)[:12])
                raise RankdeckError(f"{node} has no active {', '.join(lacks)}; it has {known}")
        return dict.fromkeys(nodes, tuple(asked))
    fastest = {node: _fastest(identities[node].rdma) for node in nodes if node in identities}
    count = min(map(len, fastest.values()), default=0)
    return {node: ports[:count] for node, ports in fastest.items()} if count > 1 else {}


def _fastest(ports: Mapping[str, float]) -> tuple[str, ...]:
    """The fastest ports, which jobs use; slower ones are for storage or management."""
    best = max(ports.values(), default=0.0)
    return tuple(sorted((name for name, rate in ports.items() if rate == best), key=_by_number))


def _by_number(name: str) -> tuple[str | int, ...]:
    """Sort key that puts `mlx5_10` after `mlx5_9`."""
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name))


def fabric_of(rails: Rails, identities: Mapping[str, Identity]) -> str:
    """Whether rails are `rdma` devices or `network` interfaces."""
    node, ports = next(iter(rails.items()), ("", ()))
    return "rdma" if ports and all(one in identities[node].rdma for one in ports) else "network"


def _why_not(names: Sequence[str], lacking: Lacking) -> str:
    """Names the recipe that the fewest nodes lack, and these nodes."""
    least = min(names, key=lambda name: len(lacking[name]))
    return f"no recipe that every node can run: {_lacks(least, lacking[least])}"


def _lacks(recipe: str, who: Mapping[str, Sequence[str]]) -> str:
    """`n[2-3] lack mpirun, IMB-MPI1 for imb`."""
    needs = dict.fromkeys(
        word.partition(":")[2] or word for words in who.values() for word in words
    )
    purpose = "" if recipe in needs else f" for {recipe}"
    return f"{fold_nodes(who)} lack{'s' * (len(who) == 1)} {', '.join(needs)}{purpose}"


LEAF = (Stage.INSIDE, Stage.CROSSING, Stage.ALONE)
MEASURED = (Stage.SINGLE, Stage.PAIRS, Stage.CONFIRM, *LEAF, Stage.GROUPS, Stage.SOAK)
"""Stages in which something is measured, in their order."""
_START = {True: 1.0, False: 4.0}
"""Seconds that a job takes to begin and to end: True for pairs
with a server, False for launchers.
"""


class Participants(Value, kw_only=True):
    """The nodes that take part, and what they have."""

    admitted: Admitted
    identities: Mapping[str, Identity]
    setup: Setup
    leaves: Leaves
    seed: int

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.admitted.nodes

    @property
    def gpus(self) -> int:
        """GPUs of each node that are measured."""
        return gpu_ranks(self.nodes, self.setup)

    @property
    def gpu(self) -> str:
        """The GPU model of all nodes; "" if they differ."""
        names = {
            self.identities[node].facts.get("gpu name", "")
            for node in self.nodes
            if node in self.identities
        }
        return names.pop() if len(names) == 1 else ""

    @property
    def node_gbps(self) -> float:
        """Gb/s of a node's fastest RDMA ports together, as the lower median of the
        nodes; that of the link if there are none.
        """
        ports = [self.identities[node].rdma for node in self.nodes if node in self.identities]
        sums = [max(some.values()) * len(_fastest(some)) for some in ports if some]
        return median_low(sums) if sums else self.setup.known.link_gbps


def plan_run(request: Request, participants: Participants) -> RunPlan:
    """The whole plan; a stage that does not apply says why in its note."""
    chosen = _chosen(request, participants)
    wanted = stages_of(request)
    stages = [
        StagePlan(stage=Stage.GATE, note=_left(participants)),
        StagePlan(stage=Stage.IDENTITY, note="compared with the majority"),
    ]
    stages += chain.from_iterable(
        _planned(one, request, participants) for one in chosen if one.stage in wanted
    )
    stages += _not_planned(request, wanted, {one.stage for one in stages})
    if Stage.SOAK in wanted:
        stages += _soak(stages, request)
    return RunPlan(
        cluster=participants.setup.cluster.name,
        nodes=participants.nodes,
        left_out=participants.admitted.left_out,
        leaves=participants.leaves,
        virtual=participants.admitted.virtual,
        stages=tuple(
            one
            for one in stages
            if one.stage in wanted or one.stage in (Stage.GATE, Stage.IDENTITY)
        ),
        seed=participants.seed,
        repeats=request.repeats,
        seconds=request.seconds,
        exhaustive=request.exhaustive,
        max_crossing=request.max_crossing,
        link_gbps=participants.setup.known.link_gbps,
        rdma_gbps=participants.setup.rdma_gbps,
        node_gbps=participants.node_gbps,
        gpu=participants.gpu,
        gpus=participants.gpus,
        rails=participants.setup.rails,
        soak=request.soak,
        include_busy=tuple(request.include_busy),
        notes=(
            *participants.admitted.notes,
            *_not_there(request, participants),
            *_few_slots(participants),
            *_limits(request, participants),
            _plan_sentence(participants, stages),
        ),
    )


def _not_there(request: Request, participants: Participants) -> Iterable[str]:
    """Nodes on which a recipe that was asked for by name cannot run."""
    lacking = _lacking(participants.nodes, participants.identities)
    return (
        f"{_lacks(name, who)}: not measured there"
        for name in request.recipes
        if (who := lacking.get(name))
    )


def _few_slots(participants: Participants) -> Iterable[str]:
    """Nodes whose GPUs are not all measured."""
    setup = participants.setup
    few = {
        node: (count, slots)
        for node in participants.nodes
        if (count := setup.gpus.get(node, 0)) > (slots := setup.cluster.node(node).slots)
    }
    for one in dict.fromkeys(few.values()):
        nodes = fold_nodes(node for node, has in few.items() if has == one)
        count, slots = one
        yield f"{nodes}: {slots} of {count} GPUs take part, because `slots:` of the cluster file is {slots}"


def stages_of(request: Request) -> tuple[Stage, ...]:
    """The requested stages, in their order; soak only if its seconds are given."""
    first = MEASURED.index(request.begin) if request.begin in MEASURED else 0
    asked = [one for one in MEASURED[first:] if not request.only or one in request.only]
    return tuple(one for one in asked if one is not Stage.SOAK or request.soak)


def _chosen(request: Request, participants: Participants) -> Sequence[Chosen]:
    if not request.recipes:
        return choose_recipes(
            participants.nodes,
            participants.identities,
            virtual=bool(participants.admitted.virtual),
            gbps=participants.setup.known.link_gbps,
            gpus=participants.gpus,
        )
    return tuple(chain.from_iterable(named_stages(name) for name in request.recipes))


def named_stages(name: str) -> tuple[Chosen, ...]:
    """The stages of a recipe that was asked for by name; raises UnknownPluginError."""
    recipe = find_recipe(name)
    if recipe.one_node:
        return (Chosen(Stage.SINGLE, name, "asked for"),)
    pairs = Chosen(Stage.PAIRS, name, "asked for")
    if recipe.traits.directed:
        return (pairs,)
    return (pairs, Chosen(Stage.GROUPS, name, "asked for"))


def _planned(one: Chosen, request: Request, participants: Participants) -> Iterable[StagePlan]:
    if not one.recipe:
        return (StagePlan(stage=one.stage, note=one.why),)
    if one.stage is Stage.PAIRS:
        return _pairs(one, request, participants)
    plan = _single if one.stage is Stage.SINGLE else _groups
    return (plan(one, participants),)


def _single(one: Chosen, participants: Participants) -> StagePlan:
    seconds = measurement_seconds(find_recipe(one.recipe), participants.setup)
    work = one_run(Stage.SINGLE, one.recipe, participants.nodes[:1])
    return StagePlan(
        stage=Stage.SINGLE,
        recipe=one.recipe,
        rounds=1,
        tests=len(participants.nodes),
        minutes=(seconds + _START[False]) / 60,
        commands=command_lines(work, participants.setup),
        note=one.why,
    )


def repeats_of(recipe: str, repeats: int) -> int:
    """Repeats of each direction; for a recipe without direction half as many, of the pair."""
    return repeats if find_recipe(recipe).traits.directed else max(1, repeats // 2)


def rail_count(rails: Mapping[str, Rails], recipe: str) -> int:
    """How many rails a recipe measures separately."""
    return len(next(iter(rails.get(recipe, {}).values()), ("",)))


def schedule_options(plan: RunPlan, recipe: str, nodes: Sequence[str]) -> Options:
    """The options for the schedule of a recipe's pairs."""
    asked = {one.stage for one in plan.stages}
    stages = tuple(one for one in (Stage.PAIRS, Stage.CONFIRM, *LEAF) if one in asked)
    return Options(
        nodes=tuple(nodes),
        leaves=plan.leaves,
        seed=plan.seed,
        exhaustive=plan.exhaustive,
        stages=stages,
        repeats=repeats_of(recipe, plan.repeats),
        directed=find_recipe(recipe).traits.directed,
        max_crossing=plan.max_crossing,
        rails=rail_count(plan.rails, recipe),
    )


def _pairs(one: Chosen, request: Request, participants: Participants) -> Iterable[StagePlan]:
    if len(participants.nodes) < 2:
        yield StagePlan(stage=Stage.PAIRS, note="fewer than two nodes take part")
        return
    repeats = repeats_of(one.recipe, request.repeats)
    options = Options(
        nodes=participants.nodes,
        leaves=participants.leaves,
        seed=participants.seed,
        exhaustive=request.exhaustive,
        repeats=repeats,
        max_crossing=request.max_crossing,
    )
    rounds = pair_rounds(options)
    yield _round_plan(Stage.PAIRS, one, rounds, repeats, participants)
    few = len(participants.nodes) < FEWEST
    suspects = "" if few else "suspects with two proven partners, "
    yield StagePlan(
        stage=Stage.CONFIRM,
        recipe=one.recipe,
        note=f"{suspects}suspect pairs again: what is slow twice is named",
    )
    if not few:
        for stage in LEAF:
            yield StagePlan(
                stage=stage,
                recipe=one.recipe,
                rounds=1 if participants.leaves else 0,
                note=_LEAF_NOTES[stage],
            )


def _not_planned(
    request: Request, wanted: Iterable[Stage], planned: Set[Stage]
) -> Iterable[StagePlan]:
    """Stages that cannot be measured without pairs of the same run or with
    too few nodes; one for all leaf stages.
    """
    pairs = Stage.PAIRS in planned
    missing = [one for one in wanted if one in (Stage.CONFIRM, *LEAF) and one not in planned]
    asked = [one for one in missing if not pairs or one in request.only]
    note = (
        f"fewer than {FEWEST} nodes: no leaf stands out"
        if pairs
        else "it needs pairs of the same run: ask for `pairs` too"
    )
    for stage in dict.fromkeys(LEAF[0] if one in LEAF else one for one in asked):
        yield StagePlan(stage=stage, note=note)


_LEAF_NOTES = {
    Stage.INSIDE: "where leaves are known, or the pairs show them: every pair within its leaf",
    Stage.CROSSING: "every pair crosses at once",
    Stage.ALONE: "one pair crosses alone, of each slow leaf",
}


def _round_plan(
    stage: Stage,
    one: Chosen,
    rounds: Sequence[Sequence[Pair]],
    repeats: int,
    participants: Participants,
) -> StagePlan:
    recipe, setup = find_recipe(one.recipe), participants.setup
    seconds, directed = measurement_seconds(recipe, setup), recipe.traits.directed
    first, last = rounds[0][0]
    ways = 2 if directed else 1
    runs = ((first, last, 0, 0), (last, first, 0, 0))[:ways]
    work = Work(stage=stage, recipe=one.recipe, nodes=(first, last), runs=runs)
    each = ways * repeats * (seconds if directed else seconds + _START[False]) + _START[True]
    rails = next(iter(setup.rails.get(one.recipe, {}).values()), ())
    tests = ways * repeats * sum(map(len, rounds)) * (len(rails) or 1)
    link = known_of(recipe, setup.known.link_gbps, setup.rdma_gbps).link_gbps
    moved = int(link * 1e9 / 8 * seconds * tests) if directed else 0
    return StagePlan(
        stage=stage,
        recipe=one.recipe,
        rounds=len(rounds),
        tests=tests,
        minutes=len(rounds) * each / 60,
        bytes=moved,
        load=link * max(map(len, rounds)) * (len(rails) or 1),
        commands=command_lines(work, setup),
        note=one.why + (f"; {len(rails)} rails at once: {', '.join(rails)}" if rails else ""),
    )


def _groups(one: Chosen, participants: Participants) -> StagePlan:
    steps = group_sizes(len(participants.nodes))
    if not steps:
        note = "fewer than four nodes: the pairs are all there is"
        return StagePlan(stage=Stage.GROUPS, recipe=one.recipe, note=note)
    work = one_run(Stage.GROUPS, one.recipe, participants.nodes[: steps[0]])
    seconds = measurement_seconds(find_recipe(one.recipe), participants.setup) + _START[False]
    return StagePlan(
        stage=Stage.GROUPS,
        recipe=one.recipe,
        rounds=len(steps),
        tests=sum(len(groups_of(participants.nodes, size)) for size in steps),
        minutes=len(steps) * seconds / 60,
        commands=command_lines(work, participants.setup),
        note=f"{one.why}; groups of {', '.join(map(str, steps))}",
    )


def _soak(stages: Iterable[StagePlan], request: Request) -> Iterable[StagePlan]:
    """The largest group, repeated for a given time."""
    group = next((one for one in stages if one.stage is Stage.GROUPS and one.rounds), None)
    if group is None:
        yield StagePlan(stage=Stage.SOAK, note="no group to repeat")
    else:
        yield StagePlan(
            stage=Stage.SOAK,
            recipe=group.recipe,
            minutes=request.soak / 60,
            commands=group.commands,
            note="all nodes together, again and again",
        )


def _limits(request: Request, participants: Participants) -> Iterable[str]:
    """What `--max-crossing` does, and where it does nothing."""
    if request.max_crossing < 1:
        most = max(1, int(request.max_crossing * (len(participants.nodes) // 2)))
        yield (
            f"at most {most} pair{'s' * (most != 1)} cross leaves at once; an uplink is loaded no further, "
            "and groups of more than a leaf cross as they come"
        )


def _left(participants: Participants) -> str:
    out = len(participants.admitted.left_out)
    taken = len(participants.nodes)
    who = "1 node takes part" if taken == 1 else f"{taken} nodes take part"
    return who + (f", {out} {'is' if out == 1 else 'are'} left out" if out else "")


def _plan_sentence(participants: Participants, stages: Sequence[StagePlan]) -> str:
    """What will happen to the cluster, in one sentence."""
    nodes, out = len(participants.nodes), len(participants.admitted.left_out)
    rounds, minutes = sum(one.rounds for one in stages), sum(one.minutes for one in stages)
    moved = sum(one.bytes for one in stages)
    network = f", about {bytes_text(moved)} over the network" if moved else ""
    burden = sum(
        one.minutes for one in stages if one.recipe and find_recipe(one.recipe).traits.gpus
    )
    network += f", GPUs full for about {write_duration(burden * 60)}" if burden else ""
    most = max((one.load for one in stages), default=0.0)
    network += f", up to {most:,.0f} Gb/s at once between all of them" if most else ""
    writes = any(find_recipe(one.recipe).traits.writes for one in stages if one.recipe)
    disks = "it writes to disks" if writes else "nothing is written to disks"
    took = f"{rounds} round{'s' * (rounds != 1)}, about {write_duration(minutes * 60)}"
    return f"{nodes} of {nodes + out} nodes, {took}{network}; {disks}"
