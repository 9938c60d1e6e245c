"""Checks of what the job runs: launcher, program, MPI."""

import re
from collections.abc import Iterable

from rankdeck.model.health import Level
from rankdeck.model.job import Launch
from rankdeck.model.nodeset import fold
from rankdeck.preflight.case import (
    Case,
    group,
    own_files,
    programs_of,
)
from rankdeck.preflight.facts import NodeFacts
from rankdeck.preflight.findings import Change, Finding, found

_FLAVOURS = (
    (re.compile(r"\(Open MPI\) 5\.|prterun|PRRTE", re.IGNORECASE), "openmpi5"),
    (re.compile(r"\(Open MPI\) [1-4]\.", re.IGNORECASE), "openmpi4"),
    (re.compile(r"HYDRA|MPICH|Intel\(R\) MPI", re.IGNORECASE), "mpich"),
)
_SERIES = re.compile(r"\d+\.\d+")


def programs(case: Case) -> Iterable[Finding]:
    """A launcher, runtime or program that is missing somewhere."""
    for name in programs_of(case.spec):
        without = [p.node.name for p, f in case.answered if not _has(f, name)]
        if not without:
            continue
        everywhere = len(without) == len(case.answered)
        text = f"no `{name}` on {'any' if everywhere else 'this'} node"
        yield found(
            Level.BAD,
            "program",
            fold(without),
            text,
            _how_to_get(case, name),
            *_other_runtime(case, name),
        )


def _has(facts: NodeFacts, name: str) -> bool:
    return bool(facts.programs[name].path) if name in facts.programs else True


def _how_to_get(case: Case, name: str) -> str:
    spec = case.spec
    key = {spec.mpi.path: "mpi.path", spec.torch.path: "torch.path"}.get(name)
    if spec.container is not None and name == spec.container.runtime:
        return f"install {name} there, or change `container.runtime`"
    if key is not None:
        return f"install it there, set `{key}` to its full path, or PATH in the cluster file's `environment`"
    where = "a path from `workdir` or home" if "/" in name else "a command in PATH"
    return f"put it there ({where}), or bring it with `files`"


def _other_runtime(case: Case, name: str) -> tuple[Change, ...]:
    twins = {"apptainer": "singularity", "singularity": "apptainer"}
    other = twins.get(name, "")
    if other and all(_has_for_sure(f, other) for _, f in case.answered):
        return (Change("container.runtime", other),)
    return ()


def _has_for_sure(facts: NodeFacts, name: str) -> bool:
    return name in facts.programs and bool(facts.programs[name].path)


def same_program(case: Case) -> Iterable[Finding]:
    """The job's own program is another file on some node."""
    box = case.spec.container
    if box is not None and box.runtime != "none":
        return
    machines = {f.machine for _, f in case.answered}
    for name in own_files(case.spec):
        digests = group((p.node.name, _digest(f, name)) for p, f in case.answered)
        if len(digests) > 1:
            own = "/" in name or name.endswith(".py")
            level = Level.BAD if own and len(machines) == 1 else Level.WARN
            parts = ", ".join(f"{d[:12]} on {nodes}" for d, nodes in digests.items())
            yield found(
                level,
                "program",
                "",
                f"`{name}` is not the same file everywhere: {parts}",
                "copy one of them to all nodes",
            )


def _digest(facts: NodeFacts, name: str) -> str | None:
    program = facts.programs.get(name)
    return (program.digest or None) if program else None


def mpi(case: Case) -> Iterable[Finding]:
    """Another MPI than the job says, or not the same on all nodes."""
    spec = case.spec
    if spec.launch is not Launch.MPI:
        return
    told = group((p.node.name, f.versions.get(spec.mpi.path) or None) for p, f in case.answered)
    if len({_series(version) for version in told}) > 1:
        parts = ", ".join(f"{version} on {nodes}" for version, nodes in told.items())
        yield found(
            Level.BAD,
            "mpi",
            "",
            f"`{spec.mpi.path}` differs: {parts}",
            "install one version everywhere, or name a common one by `mpi.path`",
        )
    for version, nodes in told.items():
        flavour = flavour_of(version)
        if flavour and flavour != spec.mpi.flavour:
            yield found(
                Level.BAD, "mpi", nodes, f"`{spec.mpi.path}` is {version}, but the job says `flavour: {spec.mpi.flavour}`",
                f"say `flavour: {flavour}`", Change("mpi.flavour", flavour),
            )  # fmt: skip


def _series(version: str) -> str:
    found_version = _SERIES.search(version)
    return found_version[0] if found_version else version


def flavour_of(version: str) -> str:
    """openmpi5, openmpi4 or mpich, by the first line of `mpirun --version`; "" if unknown."""
    for pattern, flavour in _FLAVOURS:
        if pattern.search(version):
            return flavour
    return ""
