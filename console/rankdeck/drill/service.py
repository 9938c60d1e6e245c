"""Drills on one open cluster: plans them and plants their faults, one after the other."""

import time
from collections.abc import Callable

from rankdeck.acceptance.measure import MeasureSession
from rankdeck.acceptance.series import JobSeries
from rankdeck.backends.launchers import exclude_nodes
from rankdeck.backends.plan_options import new_series_id
from rankdeck.drill.planning import NODES, DrillError, DrillRequest, plan_drill, without_lacking
from rankdeck.drill.trial import run_fault
from rankdeck.drill.values import Drill, DrillFault, DrillPlan, DrillResult, DrillVerdict
from rankdeck.errors import LaunchError, RankdeckError
from rankdeck.values import replace


class Drills:
    """Plans a drill and carries it out."""

    def __init__(self, session: MeasureSession) -> None:
        self._session = session
        self._series = JobSeries(session, "drill")
        self.current: Drill | None = None
        """The drill that was planned or started last."""
        self.changed: Callable[[], None] = lambda: None
        """Called without arguments whenever `current` changed; may be replaced."""

    async def plan(self, request: DrillRequest) -> Drill:
        """Plan a drill and ask the nodes what they lack for it; no job is started.

        Raises RankdeckError.
        """
        self._series.refuse_while_running()
        plan = plan_drill(request, self._session.cluster, self._names(request))
        files = [replace(one.spec, file=str(at)) for at, one in enumerate(plan.faults)]
        lacks = await self._session.control.find_lacking(files)
        plan = without_lacking(plan, [lacks.get(str(at), "") for at in range(len(files))])
        await self._series.look_around()
        plan = replace(plan, notes=self._busy(plan))
        name = new_series_id("d")
        return self._touch(Drill(id=name, plan=plan))

    def _names(self, request: DrillRequest) -> tuple[str, ...]:
        """The nodes of the jobs; () if a scheduler chooses them."""
        cluster, out = self._session.cluster, self._session.control.find_excluded()
        if named := [name for name in request.on if name in out]:
            raise LaunchError("plan", f"`{named[0]}` is {out[named[0]]}")
        if request.on or self._session.cluster.can.chooses_nodes:
            return request.on
        free = [node.name for node in cluster.nodes if node.name not in out]
        count = request.nodes or min(NODES, len(free))
        if not 1 <= count <= len(free):
            raise DrillError(
                f"--nodes {count}: `{cluster.name}` has {len(free)} nodes that may be used"
            )
        return tuple(free[:count])

    def _busy(self, plan: DrillPlan) -> tuple[str, ...]:
        """Sentences on what else runs on the nodes."""
        nodes = {name for one in plan.faults for name in one.spec.on}
        found = [
            f"{job} runs on {node}: a drill takes a little of its time"
            for job, node in self._series.jobs_on(nodes)
        ]
        return tuple(found[:3])

    async def start(self) -> Drill:
        """Plant the faults of `current`; returns it when it has ended or was stopped."""
        self._series.refuse_while_running()
        if self.current is None:
            raise RankdeckError("nothing is planned")
        drill = self._touch(replace(self.current, started=time.time(), results=()))
        try:
            if await self._series.carry_out(self._go(drill)):
                self._touch(replace(self.current, ended=time.time()))
        finally:
            self._touch(replace(self.current, running=""))
        return self.current

    async def _go(self, drill: Drill) -> None:
        for fault in drill.plan.faults:
            await self._series.prove_clean()
            now = self.current or drill
            self._touch(replace(now, running=fault.label))
            result = await self._planted(drill, fault)
            self._series.remember(result.job, result.left)
            self._touch(replace(now, results=(*now.results, result), running=""))

    async def _planted(self, drill: Drill, fault: DrillFault) -> DrillResult:
        cluster = self._session.cluster
        try:
            spec = exclude_nodes(cluster, fault.spec, self._session.control.find_excluded())
        except LaunchError as error:
            return DrillResult(fault=fault, verdict=DrillVerdict.UNPLANTED, sentence=str(error))
        if why := self._series.why_not_free(spec.on):
            return DrillResult(fault=fault, verdict=DrillVerdict.UNPLANTED, sentence=why)
        own = replace(fault, spec=replace(spec, part_of=drill.id))
        waits = (cluster.access.patience, cluster.environment)
        return replace(await run_fault(self._session, drill.plan, own, waits), fault=fault)

    async def stop(self) -> tuple[str, ...]:
        """Stop the drill: cancel its job and verify that; returns a sentence
        for each process left.
        """
        return await self._series.stop(self.current.id if self.current else "")

    def _touch(self, drill: Drill) -> Drill:
        self.current = drill
        self.changed()
        return drill
