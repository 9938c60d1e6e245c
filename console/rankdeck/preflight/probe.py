"""Two ranks through the real launcher and container, to see whether they find each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, cast

from rankdeck.backends.base import Backend
from rankdeck.model.border import integer, table
from rankdeck.model.cluster import Cluster
from rankdeck.model.health import Level
from rankdeck.model.job import Abort, JobSpec, Launch
from rankdeck.model.nodeset import fold
from rankdeck.model.text import clean
from rankdeck.preflight.case import Case
from rankdeck.preflight.findings import Change, Finding, found
from rankdeck.preflight.programs import flavour_of
from rankdeck.preflight.trial import LIMIT, hear, last_words

MARK = "rankdeck-probe"
ELSEWHERE = (
    "/usr/bin/mpirun",
    "/usr/lib64/openmpi/bin/mpirun",
    "/opt/*mpi*/bin/mpirun",
    "/usr/local/bin/mpirun",
    "/usr/bin/mpirun.mpich",
)
"""Where another MPI may be that fits the image; nodes say what a `*` stands for."""
_SHELL = (
    'case "${1##*/}" in python*) exec "$1" -c "$2" "$1";; esac; '
    'command -v python3 >/dev/null && exec python3 -c "$2" "$1"; '
    f"""echo '{MARK} {{"none": "no python3 to try it with"}}' """
)
_PROGRAM = """
import ctypes, json, re, shutil, subprocess, sys
def say(**row):
    print("rankdeck-probe", json.dumps(row), flush=True)
def library(program):
    if not program:
        return ""
    done = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found = re.search(r"libmpi[a-z_]*\\.so[.0-9]* => (/\\S+)", done.stdout.decode(errors="replace"))
    return found.group(1) if found else ""
def by_mpi4py():
    from mpi4py import MPI
    MPI.COMM_WORLD.Barrier()
    return MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, MPI.Get_library_version()
def by_library(path):
    mpi = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    mpi.MPI_Init(None, None)
    try:
        world = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world")))
    except ValueError:
        world = ctypes.c_int(0x44000000)
    rank, size, length, text = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(8192)
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    mpi.MPI_Comm_size(world, ctypes.byref(size))
    mpi.MPI_Get_library_version(text, ctypes.byref(length))
    mpi.MPI_Barrier(world)
    mpi.MPI_Finalize()
    return rank.value, size.value, text.value.decode(errors="replace")
name = sys.argv[1]
program = shutil.which(name) or ""
row = {"program": bool(program)}
try:
    if "python" in name.rpartition("/")[2]:
        rank, size, version = by_mpi4py()
    elif library(program):
        rank, size, version = by_library(library(program))
    else:
        raise ImportError("the program is not linked with an MPI")
    say(rank=rank, size=size, version=version.replace("\\0", " ").split(", package")[0].split("\\n")[0][:120], **row)
except (ImportError, OSError) as error:
    say(none=str(error)[:200], **row)
"""


@dataclass(frozen=True, slots=True)
class Said:
    """What one rank of the probe said: who it is, or `none`, why it cannot tell."""

    rank: int
    size: int
    version: str
    none: str
    program: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the probe."""

    job: str
    said: tuple[Said, ...]
    wanted: int
    complaint: str = ""
    """The last words of the launcher where it failed; what went wrong before."""
    late: bool = False


def probe_spec(case: Case) -> JobSpec | None:
    """The job of the probe: a rank on each of the first two nodes that have all it takes."""
    spec = case.spec
    if spec.launch is not Launch.MPI:
        return None
    able = [
        place.node
        for place, facts in case.answered
        if (facts.image is None or facts.image.kind != "missing")
    ][:2]
    each = 1 if len(able) == 2 else 2
    if not able or min(node.slots for node in able) < each:
        return None
    return replace(
        spec,
        name="probe",
        command=("sh", "-c", _SHELL, "sh", spec.command[0], _PROGRAM),
        on=tuple(node.name for node in able),
        nodes=len(able),
        ranks_per_node=each,
        abort=Abort(enabled=False),
        tty=False,
    )


async def run_probe(backend: Backend, cluster: Cluster, spec: JobSpec) -> Outcome:
    """Launch, listen, end; leaves no process and says what happened."""
    heard = await hear(backend, cluster, spec)
    rows = [row for text in heard.texts.values() for row in _said(text)]
    complaint, wanted = heard.complaint, heard.plan.world_size
    if len(rows) < wanted and not complaint:
        complaint = last_words(heard.texts, MARK)
    return Outcome(heard.plan.job, tuple(rows), wanted, complaint, heard.late)


def _said(text: str) -> list[Said]:
    """The answers among everything else that was printed."""
    rows: list[Said] = []
    for line in text.splitlines():
        if MARK not in line:
            continue
        raw = table(line.partition(MARK)[2].encode("utf-8", "replace"))
        if raw is not None:
            rows.append(_row(raw))
    return rows


def _row(raw: Mapping[str, Any]) -> Said:
    rank, size = (v if integer(v := raw.get(k)) else -1 for k in ("rank", "size"))
    texts = clean(raw.get("version"), 120), clean(raw.get("none"))
    return Said(rank, size, *texts, raw.get("program") is not False)


# ---- what it means ---------------------------------------------------------------------


def judge_probe(case: Case, spec: JobSpec, outcome: Outcome) -> list[Finding]:
    """What two ranks that did, or did not, find each other mean for the job."""
    nodes, said = fold(spec.on), outcome.said
    box = case.spec.container
    if any(not row.program for row in said):
        where = f"in the image `{box.image}`" if box else "there"
        text = f"no `{case.spec.command[0]}` {where}"
        return [found(Level.BAD, "program", nodes, text, "correct `command`, or rebuild the image")]
    if outcome.late:
        text = f"two ranks did not find each other within {LIMIT:.0f} s"
        return [found(Level.BAD, "probe", nodes, text, _try_next(case.spec))]
    if len(said) < outcome.wanted:
        text = f"the launcher could not start two ranks: {outcome.complaint}"
        return [found(Level.BAD, "probe", nodes, text)]
    if why := next((row.none for row in said if row.none), ""):
        level = Level.UNKNOWN if box else Level.OK
        return [found(level, "probe", nodes, f"MPI was not tried: {why}")]
    return _compared(case, nodes, outcome)


def _try_next(spec: JobSpec) -> str:
    """What may help two ranks that do not find each other."""
    if spec.mpi.flavour == "mpich":
        return "look at the network findings; else name the `interface` of each node in the cluster file"
    return "look at the network findings; else try `mpi.args: [--mca, btl, 'tcp,self']`"


def _compared(case: Case, nodes: str, outcome: Outcome) -> list[Finding]:
    outside = outside_version(case)
    inside = ", ".join(sorted({row.version for row in outcome.said}))
    if sorted(row.rank for row in outcome.said) != list(range(outcome.wanted)):
        text = (
            f"every rank is rank 0 of 1: the launcher is {outside}, the program's MPI is {inside}"
        )
        fix, *patch = _other_launcher(case, inside)
        return [found(Level.BAD, "probe", nodes, text, str(fix), *cast("Sequence[Change]", patch))]
    text = f"{outcome.wanted} ranks found each other: {inside}"
    if case.spec.container is not None and _number(outside) not in inside:
        text = f"the launcher is {outside}, the image has {inside}; they work together here"
        return [found(Level.WARN, "probe", nodes, text, "the same version on both sides is safer")]
    return [found(Level.OK, "probe", nodes, text)]


def outside_version(case: Case) -> str:
    """The first line of `mpirun --version` on the first node."""
    path = case.spec.mpi.path
    return next((f.versions[path] for _, f in case.answered if f.versions.get(path)), path)


def _number(version: str) -> str:
    words = [word.lstrip("v") for word in version.replace("(", " ").replace(")", " ").split()]
    return next((word for word in words if word[:1].isdigit()), version)


def _other_launcher(case: Case, inside: str) -> tuple[str | Change, ...]:
    """Another mpirun that all nodes have and that fits, with the change of the job file."""
    flavour = flavour_of(inside.replace("Open MPI v", "(Open MPI) "))
    named = {path for _, f in case.answered for path in f.versions}
    paths = {path for path in named if any(fnmatchcase(path, at) for at in ELSEWHERE)}
    for path in sorted(paths):
        told = [f.versions.get(path, "") for _, f in case.answered]
        if flavour and all(flavour_of(version) == flavour for version in told):
            change = Change("mpi.path", path), Change("mpi.flavour", flavour)
            return f"start it with {path} ({told[0]})", *change
    return (
        "use an mpirun of the program's own MPI (`mpi.path`), or rebuild the program with the launcher's",
    )
