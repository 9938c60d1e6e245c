"""Carries out the plan of one run, stage by stage and round by
round; continues a run that was killed.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, product
from math import ceil

from rankdeck.acceptance.baseline import hardware_name, kinds_of_hardware, params_hash
from rankdeck.acceptance.hardware import (
    BUSY_CORES,
    CLOCKS,
    COUNTERS,
    HEARD,
    LINK_ERRORS,
    REBOOTS,
    WELL,
    Grown,
    busy_cores,
    clocks_under_load,
    describe_differing,
    link_errors,
)
from rankdeck.acceptance.measure import (
    Ended,
    MeasureSession,
    RawOutputs,
    ended_with_proof,
    measure_job,
)
from rankdeck.acceptance.planning import rail_count
from rankdeck.acceptance.recipe import NEVER_BEGAN
from rankdeck.acceptance.run import RunPlan
from rankdeck.acceptance.schedule import Round, Run, next_groups, runs_of_pair
from rankdeck.acceptance.store import AcceptanceRuns
from rankdeck.acceptance.values import Key, Outcome, Result, Stage, Verdict, measurement_of
from rankdeck.acceptance.view import able_nodes, expected_median, schedule_of
from rankdeck.acceptance.work import (
    Setup,
    Work,
    find_recipe,
    limit_of,
    never_began,
    one_run,
    perhaps_slow,
    resting_text,
    results_of,
    spec_of,
    takes_turns,
)
from rankdeck.state.fleet import NodeState
from rankdeck.values import replace

_ATTEMPTS = 3
"""How often a measurement is tried that never began, each time on other ports;
such tries do not count against nodes.
"""
_SOAKS = 10_000
_COMPUTES, _LOOK = 50, 1.0
"""A processor's clock counts if it is busy for at least this percentage of
the time; seconds between two samples.
"""

COUNTERS_COME = 11.0
"""Seconds after which agents have sent the counters of links, which they read every ten seconds."""


class Runner:
    """One run in progress.

    `results` has measurements that are done or running; `changed` is called when it changes.
    """

    def __init__(
        self,
        session: MeasureSession,
        store: AcceptanceRuns,
        raw: RawOutputs,
        setup: Setup,
        changed: Callable[[], None],
    ) -> None:
        self._session, self._store, self._raw = session, store, raw
        self._setup, self._changed = setup, changed
        self.results: dict[Key, Result] = {}
        self.stage: Stage | None = None
        self.excluded: dict[str, str] = {}
        self.odd: dict[str, str] = {}
        """Node -> what is odd about it: facts that differ from most, or what
        its health showed during measurements.
        """
        self.resting: dict[str, tuple[str, str]] = {}
        """Node -> (job of which something may be left there, why); such a node is
        not measured until it is verified clean.
        """
        self._wanted: list[list[Work]] = []
        self.kinds: dict[str, str] = {}
        """Node -> its hardware, if there are several kinds with enough nodes each."""
        self.alike: dict[str, str] = {}
        """Node -> its hardware; clocks are compared only between equal hardware."""
        self._clocks: dict[tuple[str, str], dict[str, float]] = {}
        """(fact, node) -> device -> the highest clock under load in MHz."""
        self._cores: dict[str, tuple[float, int]] = {}
        """Node -> sum of the percentages of cores in use in each sample while it
        was measured, and the number of samples.
        """
        self._counted: dict[tuple[str, str], dict[str, float]] = {}
        """(metric, node) -> device -> the counter before anything was measured."""
        self._boots: dict[str, str] = {}
        """Node -> the boot id of its kernel before anything was measured there."""
        self._differing: dict[str, str] = {}
        """Node -> the part of `odd` about its clocks and links."""
        self.identity: dict[str, Mapping[str, str]] = {}
        """Node -> fact -> value: the identity of the nodes, and facts
        from telemetry during this run.
        """
        self._earlier: Mapping[str, Mapping[str, str]] = {}
        """The part of it that an earlier console received in this run."""

    def take(self, results: Iterable[Result], identity: Mapping[str, Mapping[str, str]]) -> None:
        """Add what an earlier console measured in this run, which is not
        measured again, and node -> fact -> value.
        """
        self.identity.update(identity)
        self.results |= {one.key: one for one in results}
        self.odd.update(describe_differing(identity))
        self.kinds.update(kinds_of_hardware(identity))
        self.alike.update({node: hardware_name(facts) for node, facts in identity.items()})
        self._earlier = {
            node: {fact: facts[fact] for fact in HEARD if fact in facts}
            for node, facts in identity.items()
        }
        self._differing = describe_differing(self._earlier)

    @property
    def done(self) -> list[Result]:
        """The results that have an outcome."""
        return [one for one in self.results.values() if one.outcome.final]

    async def go(self, run: str, plan: RunPlan) -> None:
        """Run all stages; raises HistoryError if measurements cannot be saved."""
        self._run, self._plan = run, plan
        await self._end_earlier()
        for stage, recipe in plan.parts:
            self.stage = stage
            self._changed()
            if stage is Stage.SINGLE:
                await self._single(recipe)
            elif stage is Stage.PAIRS:
                await self._pairs(recipe)
            elif stage is Stage.GROUPS:
                await self._groups(recipe)
            else:
                await self._soak(recipe)
        self.stage = None
        await self._last_look()
        rdma = any(before for (metric, _), before in self._counted.items() if "rdma" in metric)
        if rdma and self._verdicts():
            await asyncio.sleep(COUNTERS_COME)
            self._keep_telemetry()

    def again(self, nodes: tuple[str, ...], recipe: str, repeats: int) -> None:
        """Measure one node, or a pair in both directions, again after the current
        round; this counts as a confirmation.
        """
        if len(nodes) == 1:
            self._wanted.append([self._alone_again(nodes[0], recipe)])
            return
        pair, directed = (nodes[0], nodes[1]), find_recipe(recipe).traits.directed
        met = {(one.sender, one.receiver) for one in self.results.values() if one.recipe == recipe}
        if not directed and pair not in met and pair[::-1] in met:
            # One cell has both directions, so the new measurement belongs to that cell.
            pair = (nodes[1], nodes[0])
        number = (
            1 + max((one.round for one in self.results.values()), default=0) + len(self._wanted)
        )
        runs = runs_of_pair(pair, repeats, rail_count(self._setup.rails, recipe), directed=directed)
        one = Round(number=number, stage=Stage.CONFIRM, pairs=(pair,), runs=tuple(runs))
        self._wanted += _works(one, recipe)

    def _alone_again(self, node: str, recipe: str) -> Work:
        before = [
            one.repeat
            for one in self.results.values()
            if (one.stage, one.recipe, one.sender) == (Stage.SINGLE, recipe, node)
        ]
        return one_run(Stage.SINGLE, recipe, (node,), 1 + max(before, default=-1))

    async def asked(self, run: str, plan: RunPlan) -> None:
        """Measure what was passed to `again`, if no round is running."""
        self._run, self._plan = run, plan
        await self._extra()

    # ---- stages

    async def _single(self, recipe: str) -> None:
        """Measure all nodes at once; for a recipe without a launcher, all nodes are one job."""
        nodes = enumerate(self._plan.nodes)
        await self._round(
            [[one_run(Stage.SINGLE, recipe, (node,), place=place)] for place, node in nodes]
        )

    async def _pairs(self, recipe: str) -> None:
        """Run rounds until the schedule has no more: pairs, confirmation, leaves."""
        schedule = schedule_of(self._plan, recipe, self.done, self.odd, self.kinds)
        lower = find_recipe(recipe).traits.lower_is_better
        while (one := schedule.next_round()) is not None:
            self.stage = one.stage
            before = set(self.results)
            await self._round(list(_works(one, recipe)))
            # These include extra measurements that the operator requested.
            for key, result in self.results.items():
                if key not in before and result.receiver and result.recipe == recipe:
                    schedule.take(measurement_of(result, lower_is_better=lower))
            schedule.expect(expected_median(self._plan, recipe, self.done))

    async def _groups(self, recipe: str) -> None:
        nodes = self._fit()
        tolerance = find_recipe(recipe).traits.tolerance
        number = 0
        # Only from what was done before this round, so that a resumed
        # run is planned in the same way.
        while groups := next_groups(nodes, self._before(number), tolerance).groups:
            works = (one_run(Stage.GROUPS, recipe, group, 0, n) for n, group in enumerate(groups))
            await self._round([[replace(one, round=number)] for one in works])
            number += 1

    def _before(self, number: int) -> list[Result]:
        return [one for one in self.done if one.stage is Stage.GROUPS and one.round < number]

    async def _soak(self, recipe: str) -> None:
        """Measure the largest group until the time is over (including that of an
        earlier console), or no result comes.
        """
        spent = sum(one.seconds for one in self.done if one.stage is Stage.SOAK)
        until = time.monotonic() + self._plan.soak - spent
        first = 1 + max((one.repeat for one in self.done if one.stage is Stage.SOAK), default=-1)
        for repeat in range(first, _SOAKS):
            nodes = self._fit()  # without those taken out meanwhile
            if time.monotonic() >= until or len(nodes) < 2:
                return
            work = replace(one_run(Stage.SOAK, recipe, nodes, repeat), round=repeat)
            await self._round([[work]])
            if any(self.results[one.key].outcome is Outcome.NOT_MEASURED for one in work.pending()):
                return

    def _fit(self) -> tuple[str, ...]:
        """Nodes for groups: all except those that are bad alone or in pairs."""
        bad = {*self.excluded, *(node for verdict in self._verdicts() for node in verdict.nodes)}
        return tuple(node for node in able_nodes(self._plan, self.done) if node not in bad)

    def _verdicts(self) -> list[Verdict]:
        """The verdicts on the pairs of all recipes."""
        schedules = (
            schedule_of(self._plan, recipe, self.done, self.odd, self.kinds)
            for recipe in self._plan.recipes_of(Stage.PAIRS)
        )
        return [verdict for one in schedules for verdict in one.judgement().verdicts]

    # ---- rounds

    async def _round(self, jobs: Sequence[Sequence[Work]]) -> None:
        """Run a round, then extra measurements that the operator requested."""
        await self._at_once(jobs)
        await self._extra()

    async def _extra(self) -> None:
        while self._wanted:
            await self._at_once([self._wanted.pop(0)])

    async def _at_once(self, jobs: Sequence[Sequence[Work]]) -> None:
        """Run all places of a round at once, and the works of each place one after the other."""
        await self._prove_clean()
        todo = [[left for work in place if (left := self._left(work)).runs] for place in jobs]
        for work in (work for place in todo for work in place):
            self._show(work.pending())
        ended: list[float] = []
        count = sum(map(len, todo))
        nodes = tuple({node: None for place in todo for work in place for node in work.nodes})
        self._count(nodes)
        async with asyncio.TaskGroup() as watching:
            watch = watching.create_task(self._watch_load(nodes))
            async with asyncio.TaskGroup() as tasks:
                for place in todo:
                    tasks.create_task(self._place(place, ended, count))
            watch.cancel()
        self._hear_nodes(nodes)
        self._keep_telemetry()

    async def _place(self, works: Iterable[Work], ended: list[float], count: int) -> None:
        for work in works:
            await self._work(
                work,
                lambda work=work: limit_of(
                    work, self._setup, ended if 2 * len(ended) >= count else ()
                ),
                ended,
            )

    async def _work(self, work: Work, limit: Callable[[], float], ended: list[float]) -> None:
        """Run one job; if the measurement never began, again on other ports."""
        if why := self._why_not(work):
            outcome = (
                Outcome.EXCLUDED
                if any(node in self.excluded for node in work.nodes)
                else Outcome.NOT_MEASURED
            )
            self._keep([(replace(one, outcome=outcome, text=why), b"") for one in work.pending()])
            return
        for attempt in range(_ATTEMPTS):
            now = replace(work, attempt=attempt)
            self._show(replace(one, outcome=Outcome.RUNNING) for one in now.pending())
            done = await measure_job(
                self._session, spec_of(now, self._setup), limit, self._setup.cluster.environment
            )
            found = self._results(now, done)
            if done.hung and not ended and not self._known(work.recipe):
                found = [(perhaps_slow(one), raw) for one, raw in found]
            again = (
                [one for one, _ in found if never_began(one)]
                if attempt + 1 < _ATTEMPTS and not done.hung
                else []
            )
            self._keep([pair for pair in found if pair[0] not in again])
            ended += [] if done.cut or done.refused else [done.seconds]
            for node, why in done.left.items():
                self.resting[node] = done.job, why
            if not again:
                return
            work = replace(
                work, runs=tuple((one.sender, one.receiver, one.repeat, one.rail) for one in again)
            )

    def _known(self, recipe: str) -> bool:
        """Whether the duration of a measurement is known: it is
        set, or this run has measured it.
        """
        has = any(one.recipe == recipe and one.value is not None for one in self.done)
        return takes_turns(recipe) or has

    def _results(self, work: Work, done: Ended) -> list[tuple[Result, bytes]]:
        if done.refused:
            text = f"{NEVER_BEGAN}: {done.refused}"
            return [
                (replace(one, outcome=Outcome.NOT_MEASURED, text=text), b"")
                for one in work.pending()
            ]
        found = results_of(work, self._setup, done.output, done.exit_code, done.cut)
        # Steps between a client and a server report their own duration.
        took = 0.0 if takes_turns(work.recipe) else round(done.seconds, 3)
        return [
            (replace(one, job=done.job, seconds=one.seconds or took), raw) for one, raw in found
        ]

    def _why_not(self, work: Work) -> str:
        for node in work.nodes:
            if node in self.excluded:
                return f"{node} was taken out: {self.excluded[node]}"
            if node in self.resting:
                return resting_text(node, self.resting[node][1])
        return ""

    def _left(self, work: Work) -> Work:
        """The work with the runs that have no outcome yet."""
        has = {one.key for one in self.done}
        runs = tuple(
            run for run, one in zip(work.runs, work.pending(), strict=True) if one.key not in has
        )
        return replace(work, runs=runs)

    async def _last_look(self) -> None:
        """Mark the last result of each node that was never verified clean as not
        measured: something may have run beside it.
        """
        await self._prove_clean()
        number = 1 + max((one.round for one in self.done), default=0)
        for node, (_, why) in self.resting.items():
            # None: the node was never measured, for example a login node.
            last = next((one for one in reversed(self.done) if node in one.nodes), None)
            if last is None or last.text.startswith(resting_text(node, "")):
                continue
            stage = Stage.CONFIRM if last.receiver else last.stage
            lost = replace(
                last,
                stage=stage,
                round=number,
                outcome=Outcome.NOT_MEASURED,
                value=None,
                seconds=0.0,
                raw="",
                job="",
                text=resting_text(node, why),
            )
            self._keep([(lost, b"")])

    async def _end_earlier(self) -> None:
        """End jobs that an earlier console left of this run; they
        would disturb the measurements.
        """
        for job in self._session.jobs.all():
            if job.plan.part_of == self._run and (not job.state.final or job.unproven):
                left = await ended_with_proof(self._session, job.id)
                self.resting |= {node: (job.id, why) for node, why in left.items()}

    async def _prove_clean(self) -> None:
        """Check nodes that rest again; those that are clean take part again."""
        for job in {job for job, _ in self.resting.values()}:
            left = await ended_with_proof(self._session, job)
            for node in [
                node for node, (of, _) in self.resting.items() if of == job and node not in left
            ]:
                del self.resting[node]

    def _hear_nodes(self, nodes: Iterable[str]) -> None:
        """Note the health of these nodes now; the sentences about them include it."""
        for node in dict.fromkeys(nodes):
            reasons = (
                self._session.fleet.reasons_of(node) if self._session.fleet.knows(node) else ()
            )
            seen = "; ".join(reason.sentence.seen for reason in reasons[:2])
            if seen and seen not in self.odd.get(node, ""):
                self.odd[node] = "; ".join(filter(None, (self.odd.get(node, ""), seen)))

    async def _watch_load(self, nodes: Iterable[str]) -> None:
        """Note cores in use, and the highest clock of each busy GPU and CPU: slow with low clocks
        is another fault than slow with full clocks.
        """
        known = [node for node in nodes if self._session.fleet.knows(node)]
        while True:
            for name in known:
                self._look_at_load(name, self._session.fleet.node(name))
            await asyncio.sleep(_LOOK)

    def _look_at_load(self, name: str, node: NodeState) -> None:
        for used in node.current("cpu.used").values():
            total, looks = self._cores.get(name, (0.0, 0))
            self._cores[name] = total + used, looks + 1
        for one in CLOCKS:
            seen = self._clocks.setdefault((one.fact, name), {})
            used = node.current(one.used)
            for device, clock in node.current(one.clock).items():
                if used.get(device, 0) > _COMPUTES:
                    seen[device] = max(seen.get(device, 0.0), clock / 1e6)

    def _count(self, nodes: Iterable[str]) -> None:
        """Note the counters of links, and the boot id, before the first measurement of a node."""
        known = [node for node in nodes if self._session.fleet.knows(node)]
        for node in known:
            if (hello := self._session.fleet.node(node).hello) and hello.boot:
                self._boots.setdefault(node, hello.boot)
        for one, node in product(COUNTERS, known):
            before = self._counted.setdefault((one.metric, node), {})
            for device, count in self._session.fleet.node(node).values.get(one.metric, {}).items():
                before.setdefault(device, count)

    def _grown(self) -> Grown:
        """How much each counter has grown since then; negative if it was reset."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for (metric, node), before in self._counted.items():
            now = self._session.fleet.node(node).values.get(metric, {})
            grown = {
                device: now[device] - count for device, count in before.items() if device in now
            }
            if grown:
                found.setdefault(metric, {})[node] = grown
        return found

    def _reboots(self) -> dict[str, str]:
        """Node -> words on whether it was rebooted since the first measurement."""
        now = {node: self._session.fleet.node(node).hello for node in self._boots}
        return {
            node: "1 or more in this run" if hello and hello.boot != self._boots[node] else "none"
            for node, hello in now.items()
        }

    def _telemetry(self) -> Iterable[tuple[str, dict[str, str]]]:
        """(fact, node -> value) from the telemetry so far."""
        yield LINK_ERRORS, link_errors(self._grown())
        yield REBOOTS, self._reboots()
        means = {node: total / looks for node, (total, looks) in self._cores.items()}
        yield BUSY_CORES, busy_cores(means, self.alike)
        for one in CLOCKS:
            seen = {
                node: found
                for (fact, node), found in self._clocks.items()
                if fact == one.fact and found
            }
            yield one.fact, clocks_under_load(seen, self.alike, one.word)

    def _keep_telemetry(self) -> None:
        """Save clocks, cores, links and reboots with the identity of the nodes, so that saved
        runs have them and later runs show changes.
        """
        kept = defaultdict[str, dict[str, str]](dict)
        kept.update({node: dict(facts) for node, facts in self._earlier.items()})
        for fact, texts in self._telemetry():
            for node, text in texts.items():
                was = self._earlier.get(node, {}).get(fact, text)
                kept[node][fact] = was if text == WELL[fact] else text
        self._store.identify(self._run, kept)
        self.identity.update({node: {**self.identity.get(node, {}), **kept[node]} for node in kept})
        slow = describe_differing(kept)
        for node in {*kept, *self._differing}:
            was, now = self._differing.pop(node, "").split("; "), slow.get(node, "")
            left = [part for part in self.odd.pop(node, "").split("; ") if part and part not in was]
            if now:
                self._differing[node] = now
            if words := "; ".join((*left, *([now] if now else []))):
                self.odd[node] = words

    # ---- results

    def _show(self, results: Iterable[Result]) -> None:
        self.results |= {one.key: one for one in results}
        self._changed()

    def _keep(self, found: Iterable[tuple[Result, bytes]]) -> None:
        """Save results before anything else: first the raw output, then the row that names it."""
        done = [replace(one, raw=self._raw.write(self._run, one, raw)) for one, raw in found]
        seconds = ceil(self._setup.seconds)
        rows = [(one, params_hash(find_recipe(one.recipe), seconds)) for one in done]
        self._store.add(self._run, rows)
        self._show(done)


def _works(one: Round, recipe: str) -> Iterable[list[Work]]:
    """The jobs of a round, by pair and rail: one job for all runs, or one
    after the other if a launcher starts them.
    """

    def place_of(run: Run) -> tuple[str, str, int]:
        first, last = sorted(run[:2])
        return first, last, run[3]

    turns = takes_turns(recipe)
    places = groupby(sorted(one.runs, key=place_of), key=place_of)
    for place, ((*pair, _), some) in enumerate(places):
        runs = sorted(some, key=lambda run: (run[2], run[0]))
        base = Work(
            stage=one.stage,
            recipe=recipe,
            nodes=tuple(map(str, pair)),
            runs=tuple(runs),
            round=one.number,
            port=one.port,
            place=place,
        )
        yield [base] if turns else [replace(base, nodes=run[:2], runs=(run,)) for run in runs]
