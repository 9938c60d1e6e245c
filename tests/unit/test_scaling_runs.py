"""A study through the real runner, judge and store, with simulated jobs: failed and hung runs,
stopped and continued studies.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rankdeck.acceptance import measure
from rankdeck.errors import HistoryError, LaunchError, RankdeckError, UnknownRunError
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job import Job
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.scaling.planning import ScaleRequest, ScalingError
from rankdeck.scaling.service import Scaling
from rankdeck.scaling.store import KeptStudy, ScalingStudies
from rankdeck.scaling.study import StudyState, VerdictKind
from rankdeck.scaling.trial import read_numbers
from rankdeck.scaling.values import WALL, TrialOutcome
from rankdeck.values import replace
from tests.support.acceptance_means import SimulatedMeans
from tests.support.node_events import node_event
from tests.support.scaling_study import plan_of, point

CLUSTER = Cluster(name="c", nodes=tuple(Node(name=f"n{i}", slots=4) for i in (1, 2)))
SPEC = JobSpec(name="stencil", launch=Launch.PLAIN, command=("./bmt",), env={"T": "1"})
Runs = Callable[[JobSpec], str | int | None]
"""Job -> what it prints, its exit code if it fails, None if it hangs."""


def ranks_of(spec: JobSpec) -> int:
    return spec.nodes * spec.ranks_per_node


def linear(spec: JobSpec) -> str:
    return f"MFLOPS measured : {100 * ranks_of(spec)}\n"


@dataclass
class Means(SimulatedMeans):
    """Simulated jobs that print what `runs` says."""

    runs: Runs = linear
    spec: JobSpec = SPEC
    out: dict[str, str] = field(default_factory=dict)

    def read_job(self, path: Path) -> JobSpec:
        del path
        return self.spec

    def find_excluded(self) -> dict[str, str]:
        return self.out

    def _outputs(self, job_id: str, spec: JobSpec) -> list[str]:
        said = self.runs(spec)
        if said is None:
            self._hung.add(job_id)
        return [said] if isinstance(said, str) else []

    async def finished(self, job_id: str) -> Job:
        if job_id in self._hung:
            await asyncio.Event().wait()
        said, count = self.runs(self.launched[int(job_id.rpartition("-")[2]) - 1]), Counter()
        for node in self.jobs.job(job_id).nodes:
            ranks = [one.rank for one in self.jobs.job(job_id).ranks if one.node == node]
            for kind, some in (("exited", ranks), ("closed", [None])):
                for rank in some:
                    more = {"rank": rank, "code": said if isinstance(said, int) else 0}
                    self.jobs.apply(node_event(job_id, node, kind, 2.0, seq=count[node], **more))
                    count[node] += 1
        return self.jobs.job(job_id)


@pytest.fixture
def store(tmp_path: Path):
    one = ScalingStudies(tmp_path / "scaling.db")
    yield one
    one.close()


def console(store: ScalingStudies, **more: object) -> tuple[Scaling, Means]:
    means = Means(CLUSTER, lambda *_: 1.0, **more)  # type: ignore[arg-type]
    return Scaling(means, store), means


ASKED = ScaleRequest(file="stencil.yaml", ranks=(1, 2, 8), repeats=2)


def test_a_study_runs_every_point_in_each_block_one_job_after_the_other(store) -> None:
    port, means = console(store)

    async def go():
        await port.plan(ASKED)
        assert means.launched == []
        return await port.start()

    study = asyncio.run(go())

    assert [ranks_of(one) for one in means.launched] == [1, 2, 8, 8, 2, 1]
    assert {one.part_of for one in means.launched} == {study.id}
    assert study.progress is StudyState.DONE
    assert [one.speedup for one in study.curves[0].points] == [1.0, 2.0, 8.0]
    assert (study.number, study.verdicts[0].kind) == ("mflops", VerdictKind.PAYS)
    assert port.open(study.id[:-2]) == replace(study, running="")
    assert port.open(study.id, WALL).number == WALL
    assert [one.id for one in port.studies()] == [study.id]


def test_a_run_that_fails_is_kept_with_its_reason_and_the_study_goes_on(store) -> None:
    port, means = console(store, runs=lambda spec: 3 if ranks_of(spec) == 2 else linear(spec))

    async def go():
        await port.plan(ASKED)
        return await port.start()

    study = asyncio.run(go())

    assert len(means.launched) == 6
    outcomes = {ranks: {one.outcome for one in study.trials if study.plan.points[one.point].ranks == ranks} for ranks in (1, 2, 8)}  # fmt: skip
    assert outcomes == {
        1: {TrialOutcome.MEASURED},
        2: {TrialOutcome.FAILED},
        8: {TrialOutcome.MEASURED},
    }
    assert "exit 3" in next(one.text for one in study.trials if one.text)
    assert study.curves[0].points[2].efficiency == pytest.approx(1.0)


def test_a_run_that_hangs_is_cancelled_with_proof(store, monkeypatch) -> None:
    monkeypatch.setattr(measure, "_LOOK", 0.02)
    port, means = console(store, runs=lambda spec: None if ranks_of(spec) == 8 else linear(spec))

    async def go():
        await port.plan(replace(ASKED, limit=0.2))
        return await port.start()

    study = asyncio.run(go())

    assert len(means.cancelled) == 2
    hung = [one for one in study.trials if one.outcome is TrialOutcome.HUNG]
    assert [study.plan.points[one.point].ranks for one in hung] == [8, 8]
    assert "was cancelled" in hung[0].text


def test_nodes_that_a_cancel_could_not_prove_clean_are_not_used(store, monkeypatch) -> None:
    monkeypatch.setattr(measure, "_LOOK", 0.02)
    port, _ = console(store, runs=lambda spec: None if ranks_of(spec) == 2 else linear(spec), left=frozenset({"n1"}))  # fmt: skip

    async def go():
        await port.plan(replace(ASKED, limit=0.2))
        return await port.start()

    study = asyncio.run(go())

    assert [one.outcome for one in study.trials[:3]] == [
        TrialOutcome.MEASURED, TrialOutcome.HUNG, TrialOutcome.NOT_STARTED
    ]  # fmt: skip
    assert study.trials[2].text.startswith("n1 may not be free yet: ")


def test_a_stopped_study_is_continued_by_another_console_without_a_second_run(store) -> None:
    first, before = console(store)

    async def stopped():
        third = asyncio.Event()
        before.after = lambda count: third.set() if count == 3 else None
        await first.plan(ASKED)
        async with asyncio.TaskGroup() as tasks:
            runs = tasks.create_task(first.start())
            await third.wait()
            left = await first.stop()
        return runs.result(), left

    study, left = asyncio.run(stopped())
    done = len(study.trials)
    assert study.progress is StudyState.STOPPED
    assert left == ()
    assert 0 < done < 6

    second, after = console(store)
    assert second.resume(study.id).progress is StudyState.STOPPED
    ended = asyncio.run(second.start())

    assert ended.progress is StudyState.DONE
    assert len(after.launched) == 6 - done
    assert len(ended.trials) == 6
    assert len({(one.block, one.point) for one in ended.trials}) == 6


def test_a_study_is_not_continued_with_another_job(store) -> None:
    first, _ = console(store, runs=lambda _: 1)

    async def fails():
        await first.plan(ASKED)
        with pytest.raises(RankdeckError, match=r"no run of a whole block gave a result.*exit 1"):
            await first.start()

    asyncio.run(fails())
    (kept,) = first.studies()
    assert (kept.progress, len(kept.trials)) == (StudyState.STOPPED, 3)

    second, after = console(store, spec=replace(SPEC, command=("./other",)))
    second.resume(kept.id)
    with pytest.raises(RankdeckError, match="has changed since"):
        asyncio.run(second.start())
    assert after.launched == []


def test_excluded_nodes_are_left_out_and_told(store) -> None:
    port, means = console(store, out={"n1": "excluded until tomorrow: its cable"})

    async def go():
        with pytest.raises(ScalingError, match="1 node for this job: n2, with 4 slots on each"):
            await port.plan(ASKED)
        with pytest.raises(LaunchError, match="`n1` is excluded"):
            await port.plan(replace(ASKED, ranks=(1,), on="n1"))
        await port.plan(replace(ASKED, ranks=(1, 2)))
        return await port.start()

    study = asyncio.run(go())

    assert study.plan.notes == ("n1 is excluded until tomorrow: its cable",)
    assert {one.on for one in means.launched} == {("n2",)}


def test_a_recipe_reads_the_output_and_says_what_is_missing() -> None:
    plan = plan_of(point(1), number="himeno", reader="himeno")
    numbers, unit, why = read_numbers(plan, SPEC, {0: b"no such thing\n"})

    assert (numbers, unit) == ({}, "")
    assert why


def test_own_patterns_count_and_the_last_number_of_the_first_rank_that_prints_it() -> None:
    spec = replace(SPEC, progress={"rate": r"rate=([\d.]+)", "own": r"own=(\d+)"})
    output = {0: b"rate=1\r\n\x1b[1mrate=2\x1b[0m\n", 3: b"rate=9 own=4\n", 4: b"\xff own=5\n"}

    assert read_numbers(plan_of(point(1)), spec, output) == ({"rate": 2.0, "own": 4.0}, "", "")


def test_a_number_that_is_not_printed_is_told_with_those_that_are(store) -> None:
    port, _ = console(store)

    async def go():
        await port.plan(replace(ASKED, number="tflops"))
        with pytest.raises(RankdeckError, match=r"it printed no `tflops`; there are: mflops, wall"):
            await port.start()

    asyncio.run(go())
    (kept,) = port.studies()
    with pytest.raises(UnknownRunError, match="has no number `x`; there are: mflops, wall"):
        port.open(kept.id, "x")
    with pytest.raises(UnknownRunError, match="no study `zz`"):
        port.open("zz")


def test_what_is_damaged_in_the_file_is_left_out(store, tmp_path: Path) -> None:
    port, _ = console(store)

    async def go():
        await port.plan(ASKED)
        return await port.start()

    study = asyncio.run(go())
    store._store.put("UPDATE trial SET body = ? WHERE point = 0", [('{"point": []}',)])
    store._store.put("UPDATE study SET body = ? WHERE id = ?", [("[", study.id)])

    assert len(store.trials(study.id)) == 4
    assert store.studies("c") == ()


def test_the_oldest_studies_go_with_their_runs(store, monkeypatch) -> None:
    monkeypatch.setattr("rankdeck.scaling.store.KEEP", 2)
    plan = plan_of(point(1), cluster="c")
    for at in range(3):
        store.begin(KeptStudy(id=f"s{at}", plan=plan, started=float(at)))

    assert [one.id for one in store.studies("c")] == ["s2", "s1"]


def test_a_study_that_cannot_be_kept_does_not_begin(store, monkeypatch) -> None:
    port, means = console(store)
    monkeypatch.setattr(type(store._store), "put", lambda *_: False)

    async def go():
        await port.plan(ASKED)
        with pytest.raises(HistoryError, match="nothing was kept"):
            await port.start()

    asyncio.run(go())
    assert means.launched == []
