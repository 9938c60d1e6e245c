"""Checks of the job file alone: what is known to go wrong by its words."""

from collections.abc import Iterable

from rankdeck.model.health import Level
from rankdeck.model.job import JobSpec, Launch
from rankdeck.preflight.findings import Change, Finding, found
from rankdeck.preflight.meeting import overridden

_PLACING = {
    "-np": 1, "-n": 1, "--np": 1, "-c": 1, "-N": 1, "--hostfile": 1, "-hostfile": 1, "--machinefile": 1,
    "-machinefile": 1, "--host": 1, "-host": 1, "-H": 1, "--map-by": 1, "-ppn": 1, "-f": 1,
}  # fmt: skip
"""Words that say again, differently, where the ranks go, and how many words follow."""
_CLEAN = ("-e", "--cleanenv", "-C", "--containall", "-c", "--contain")


def arguments(spec: JobSpec) -> Iterable[Finding]:
    """Arguments of mpirun that contradict the plan."""
    words, kept = list(spec.mpi.args), list[str]()
    twice: list[str] = []
    while spec.launch is Launch.MPI and words:
        word = words.pop(0)
        if (count := _PLACING.get(word.partition("=")[0])) is None:
            kept.append(word)
            continue
        twice.append(word)
        del words[: 0 if "=" in word else count]
    if twice:
        yield found(
            Level.BAD, "arguments", "",
            f"`mpi.args` has {', '.join(twice)}, but the plan already places the ranks",
            "take it out; `nodes`, `on` and `ranks_per_node` say the same", Change("mpi.args", kept),
        )  # fmt: skip


def vader(spec: JobSpec) -> Iterable[Finding]:
    """A parameter that Open MPI 5 no longer knows, and ignores without a word."""
    args = list(spec.mpi.args)
    name = "btl_vader_single_copy_mechanism"
    if spec.launch is Launch.MPI and spec.mpi.flavour == "openmpi5" and name in args:
        at = args.index(name)
        changed = [*args[: max(0, at - 1)], "--mca", "smsc", "^cma", *args[at + 2 :]]
        yield found(
            Level.WARN, "arguments", "",
            f"`{name}` is a parameter of Open MPI 4: Open MPI 5 ignores it",
            "write `--mca smsc ^cma` instead", Change("mpi.args", changed),
        )  # fmt: skip


def environment(spec: JobSpec) -> Iterable[Finding]:
    """A container that starts without the variables by which a rank knows who it is."""
    box = spec.container
    if box is None or box.runtime not in ("apptainer", "singularity"):
        return
    hit = [word for word in box.args if word in _CLEAN]
    if hit and spec.launch is Launch.MPI:
        kept = [word for word in box.args if word not in _CLEAN]
        yield found(
            Level.BAD, "environment", "",
            f"`container.args` has {', '.join(hit)}: the launcher's variables do not get in, every rank would be rank 0 of 1",
            "take it out", Change("container.args", kept),
        )  # fmt: skip


def noise(spec: JobSpec) -> Iterable[Finding]:
    """Debugging output that was left on."""
    level = spec.env.get("NCCL_DEBUG", "")
    if level.upper() == "TRACE":
        yield found(
            Level.WARN, "environment", "",
            f"NCCL_DEBUG={level} writes thousands of lines a second and slows the job",
            "WARN is enough to be told of errors", Change("env.NCCL_DEBUG", "WARN"),
        )  # fmt: skip


CHECKS = (arguments, vader, environment, noise, overridden)


def judge(spec: JobSpec) -> list[Finding]:
    """All that these checks find."""
    return [finding for check in CHECKS for finding in check(spec)]
