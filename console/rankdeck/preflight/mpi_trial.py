"""The trial of MPI: two ranks through the real launcher say whether they find each other."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from rankdeck.backends.base import Backend
from rankdeck.model.cluster import Cluster
from rankdeck.model.field_checks import is_integer
from rankdeck.model.job_spec import Abort, JobSpec, Launch
from rankdeck.model.json_tables import parse_table
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import clean_line
from rankdeck.preflight.checks import flavour_of
from rankdeck.preflight.findings import Change, Finding, make_finding
from rankdeck.preflight.job_context import JobContext
from rankdeck.preflight.trial_run import (
    Complaint,
    Texts,
    collect_output,
    marked_lines,
    read_complaint,
)
from rankdeck.values import Value, replace
from rankdeck_agent.rules.levels import Level

MARK = "rankdeck-probe"
ELSEWHERE = (
    "/usr/bin/mpirun",
    "/usr/lib64/openmpi/bin/mpirun",
    "/opt/*mpi*/bin/mpirun",
    "/usr/local/bin/mpirun",
    "/usr/bin/mpirun.mpich",
)
"""Paths at which another MPI may be that fits the image; nodes expand `*`."""
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
def is_python(program):
    if not program:
        return False
    with open(program, "rb") as file:
        first = file.read(128).split(b"\\n")[0]
    return first.startswith(b"#!") and b"python" in first
name = sys.argv[1]
program = shutil.which(name) or ""
row = {"program": bool(program)}
try:
    if "python" in name.rpartition("/")[2] or is_python(program):
        rank, size, version = by_mpi4py()
    elif library(program):
        rank, size, version = by_library(library(program))
    else:
        raise ImportError("the program is not linked with an MPI")
    say(rank=rank, size=size, version=version.replace("\\0", " ").split(", package")[0].split("\\n")[0][:120], **row)
except (ImportError, OSError) as error:
    say(none=str(error)[:200], **row)
"""


class RankAnswer(Value):
    """The answer of one rank of the probe: its rank and world size,
    or in `none` why it cannot tell.
    """

    rank: int
    size: int
    version: str
    none: str
    program: bool


class ProbeOutcome(Value):
    """The result of the probe."""

    job: str
    answers: tuple[RankAnswer, ...]
    wanted: int
    complaint: str = ""
    """What the launcher said if it failed, or what went wrong earlier."""
    remedy: str = ""
    """What to do about it; "" if that is not known."""
    late: float = 0.0


def probe_spec(case: JobContext) -> JobSpec | None:
    """The job of the probe: two ranks on the first two nodes that can run them, or
    both on one; None if there are no such nodes.
    """
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


async def run_probe(backend: Backend, cluster: Cluster, spec: JobSpec) -> ProbeOutcome:
    """Run the probe and parse what its ranks answer; leaves no process behind."""
    output = await collect_output(backend, cluster, spec)
    rows = _rank_answers(output.texts)
    complaint, wanted = Complaint(output.complaint), output.plan.world_size
    if len(rows) < wanted and not output.complaint:
        complaint = read_complaint(output.texts, MARK)
    late = output.late
    return ProbeOutcome(
        output.plan.job, tuple(rows), wanted, complaint.text, complaint.remedy, late
    )


def _rank_answers(texts: Texts) -> list[RankAnswer]:
    """The answers of ranks among all other output."""
    rows = (parse_table(text.encode("utf-8", "replace")) for text in marked_lines(texts, MARK))
    return [_row(raw) for raw in rows if raw is not None]


def _row(raw: Mapping[str, Any]) -> RankAnswer:
    rank, size = (v if is_integer(v := raw.get(k)) else -1 for k in ("rank", "size"))
    texts = clean_line(raw.get("version"), 120), clean_line(raw.get("none"))
    return RankAnswer(rank, size, *texts, raw.get("program") is not False)


# ---- what it means ---------------------------------------------------------------------


def judge_probe(case: JobContext, spec: JobSpec, outcome: ProbeOutcome) -> list[Finding]:
    """Findings from the probe: whether two ranks have found each
    other, and what that means for the job.
    """
    nodes, answers = fold_nodes(spec.on), outcome.answers
    box = case.spec.container
    if any(not row.program for row in answers):
        where = f"in the image `{box.image}`" if box else "there"
        text = f"no `{case.spec.command[0]}` {where}"
        return [
            make_finding(
                Level.BAD, "program", nodes, text, "correct `command`, or rebuild the image"
            )
        ]
    if outcome.late:
        text = f"two ranks did not find each other within {outcome.late:.0f} s"
        return [make_finding(Level.BAD, "probe", nodes, text, _try_next(case.spec))]
    if len(answers) < outcome.wanted:
        text = f"the launcher could not start two ranks: {outcome.complaint}"
        return [make_finding(Level.BAD, "probe", nodes, text, outcome.remedy)]
    if why := next((row.none for row in answers if row.none), ""):
        level = Level.UNKNOWN if box else Level.OK
        return [make_finding(level, "probe", nodes, f"MPI was not tried: {why}")]
    return _compared(case, nodes, outcome)


def _try_next(spec: JobSpec) -> str:
    """What may help if two ranks do not find each other."""
    if spec.mpi.flavour == "mpich":
        return "look at the network findings; else name the `interface` of each node in the cluster file"
    return "look at the network findings; else try `mpi.args: [--mca, btl, 'tcp,self']`"


def _compared(case: JobContext, nodes: str, outcome: ProbeOutcome) -> list[Finding]:
    outside = outside_version(case)
    inside = ", ".join(sorted({row.version for row in outcome.answers}))
    if sorted(row.rank for row in outcome.answers) != list(range(outcome.wanted)):
        text = (
            f"every rank is rank 0 of 1: the launcher is {outside}, the program's MPI is {inside}"
        )
        fix, *patch = _other_launcher(case, inside)
        return [make_finding(Level.BAD, "probe", nodes, text, fix, *patch)]
    text = f"{outcome.wanted} ranks found each other: {inside}"
    if case.spec.container is not None and _number(outside) not in inside:
        text = f"the launcher is {outside}, the image has {inside}; they work together here"
        return [
            make_finding(
                Level.WARN, "probe", nodes, text, "the same version on both sides is safer"
            )
        ]
    return [make_finding(Level.OK, "probe", nodes, text)]


def outside_version(case: JobContext) -> str:
    """The first line of `mpirun --version` on the first node."""
    path = case.spec.mpi.path
    return next((f.versions[path] for _, f in case.answered if f.versions.get(path)), path)


def _number(version: str) -> str:
    words = [word.lstrip("v") for word in version.replace("(", " ").replace(")", " ").split()]
    return next((word for word in words if word[:1].isdigit()), version)


def _other_launcher(case: JobContext, inside: str) -> tuple[str, *tuple[Change, ...]]:
    """What to do about an MPI that does not fit the image: another mpirun on all
    nodes, with the change of the job file.
    """
    flavour = flavour_of(inside.replace("Open MPI v", "(Open MPI) "))
    named = {path for _, f in case.answered for path in f.versions}
    paths = {path for path in named if any(fnmatchcase(path, at) for at in ELSEWHERE)}
    for path in sorted(paths):
        versions = [f.versions.get(path, "") for _, f in case.answered]
        if flavour and all(flavour_of(version) == flavour for version in versions):
            fix = f"start it with {path} ({versions[0]})"
            return fix, Change("mpi.path", path), Change("mpi.flavour", flavour)
    return (
        "use an mpirun of the program's own MPI (`mpi.path`), or rebuild the program with the launcher's",
    )
