"""All checks of what the nodes told: a table of names, what is well, and who judges."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from rankdeck.model.health import Level
from rankdeck.model.job import Launch
from rankdeck.preflight.check_job import image, mpi, programs, runtime, same_program
from rankdeck.preflight.check_network import host, meeting, port
from rankdeck.preflight.check_nodes import (
    clock,
    folder,
    gpus,
    health,
    memlock,
    names,
    shared_memory,
    slots,
    space,
)
from rankdeck.preflight.context import Context, needs_names
from rankdeck.preflight.findings import Finding, found


class Check(NamedTuple):
    """One row: its name, what to say when nothing is found, and who judges."""

    name: str
    well: str
    judge: Callable[[Context], Iterable[Finding]]


CHECKS = (
    Check("clock", "the clocks agree", clock),
    Check("slots", "a core for every rank", slots),
    Check("workdir", "the working directory is there", folder),
    Check("program", "launcher and program are there", programs),
    Check("program", "the program is the same file everywhere", same_program),
    Check("mpi", "mpirun is what the job says", mpi),
    Check("image", "the image is the same everywhere", image),
    Check("runtime", "containers may be started", runtime),
    Check("port", "the port is free", port),
    Check("names", "the names resolve", names),
    Check("meeting", "the ranks can find rank 0", host),
    Check("gpu", "the GPUs are there and free", gpus),
    Check("memlock", "enough memory may be locked", memlock),
    Check("shm", "enough shared memory", shared_memory),
    Check("space", "enough disk space", space),
    Check("health", "telemetry has nothing against the nodes", health),
)


def concerns(case: Context) -> Mapping[str, bool]:
    """Which checks have anything to look at for this job; those not named always have."""
    spec = case.spec
    nodes = [place.node for place in case.layout.places]
    return {
        "mpi": spec.launch is Launch.MPI,
        "image": any(f.image is not None for _, f in case.answered),
        "runtime": spec.container is not None and spec.container.runtime != "none",
        "port": bool(meeting(case.layout).port),
        "meeting": bool(meeting(case.layout).host),
        "names": needs_names(spec),
        "gpu": any(f.gpus is not None for _, f in case.answered) and any(n.gpus for n in nodes),
        "memlock": any(node.rdma for node in nodes),
        "health": bool(case.health),
    }


def judge(case: Context) -> list[Finding]:
    """What every check that concerns this job found, or that all is well."""
    concerned = concerns(case)
    findings: list[Finding] = []
    for check in CHECKS:
        if not concerned.get(check.name, True):
            continue
        news = list(check.judge(case))
        findings += news or [found(Level.OK, check.name, "", check.well)]
    return findings
