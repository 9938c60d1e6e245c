"""Faults of programs that nobody of this project wrote, caused from outside as an operator meets
them, and of programs that wait for each other wrongly. A part of the table in `fault_list`.
"""

import signal
import sys
import time
from pathlib import Path

from benchmarks import fault_plants as plants
from benchmarks import fault_programs as programs
from benchmarks.fault_model import Answer, Fault, Kind, Plant, Site, itself
from rankdeck.config.document import write_documents

BIN = Path(sys.executable).parent
NODE_2 = "sakura"
EVERY_RANK = frozenset(range(3))
_MELT = Path("/usr/share/lammps/examples/melt/in.melt")
_SETTLES, _LIMIT = 6.0, 60.0
"""Seconds for which the program works before the fault, and until it has begun."""
_NOW = 'date +%s.%N >"$RANKDECK_RUN/fault"\n'
DEADLOCK = Answer(what="nobody", word="wait for each other")


def launch_on(
    launch: str, ranks: int, files: dict[str, str], command: list[str], **more: object
) -> str:
    """The text of a job file for three nodes."""
    job = {
        "job": "fault", "launch": launch, "nodes": 3, "ranks_per_node": ranks, "grace": 1,
        "abort": {"countdown": 2}, "files": files, "command": command,
        "env": {"OMP_NUM_THREADS": "1"},
    }  # fmt: skip
    return write_documents([{**job, **more}])


def debian_job(script: str, files: dict[str, str], **more: object) -> str:
    """A program of Debian on three nodes, started by a shell script that it replaces."""
    mpi = {"flavour": "openmpi4", "path": "/usr/bin/mpirun.openmpi"}
    script = f'cd "$RANKDECK_RUN"\n{script}'
    files, command = {**files, "prog.sh": script}, ["sh", "${RANKDECK_RUN}/prog.sh"]
    return launch_on("mpi", 1, files, command, mpi=mpi, **more)


def signal_later(number: int, rank: int, name: str) -> Plant:
    """Send a signal to a rank's program after it has worked for some seconds."""

    def plant(site: Site, job: str) -> float:
        del site
        until = time.monotonic() + _LIMIT
        while not (found := _pids(job, rank, name)) and time.monotonic() < until:
            time.sleep(0.2)
        time.sleep(_SETTLES)
        return plants.send(number, found, f"{name} of rank {rank}")

    return plant


def _pids(job: str, rank: int, name: str) -> list[int]:
    found = (one for one in plants.processes(job) if one.told_rank == rank)
    return [one.pid for one in found if name in {Path(word).name for word in one.argv}]


# ---- LAMMPS -------------------------------------------------------------------------------


def _lammps(
    name: str, script: str, right: Answer, plant: Plant = itself, kind: Kind = Kind.FAILURE
) -> Fault:
    text = _MELT.read_text() if _MELT.exists() else ""
    files = {"in.melt": text.replace("run\t\t250", "run\t\t400000")}
    return Fault(
        name=f"real.lammps.{name}", launcher="openmpi4", right=right, at_start=True, kind=kind,
        job=debian_job(script, files), plant=plant, lacking=plants.need("lmp"),
    )  # fmt: skip


def started_on(rank: int, does: str) -> str:
    """Lines of a shell script that only this rank runs; they note when the fault happens."""
    return f'if [ "$OMPI_COMM_WORLD_RANK" = {rank} ]; then\n{_NOW}{does}\nfi\n'


def named_rank(rank: int, word: str) -> Answer:
    """The answer that this rank is to blame, with a word of the reason."""
    return Answer(ranks=frozenset({rank}), word=word)


_MELTS = "exec lmp -in in.melt\n"
LAMMPS = (
    _lammps("kill", _MELTS, named_rank(1, "SIGKILL|killed"), signal_later(signal.SIGKILL, 1, "lmp")),
    _lammps("segv", _MELTS, named_rank(2, "SIGSEGV|segm"), signal_later(signal.SIGSEGV, 2, "lmp")),
    _lammps("term", _MELTS, named_rank(1, "SIGTERM"), signal_later(signal.SIGTERM, 1, "lmp")),
    _lammps("stop", _MELTS, named_rank(1, "stopped"), signal_later(signal.SIGSTOP, 1, "lmp"), Kind.HANG),
    _lammps("input", _NOW + "exec lmp -in in.melted\n", Answer(ranks=EVERY_RANK, word="No such file|Cannot open")),
    _lammps("arguments", started_on(1, "exec lmp -in in.melt -bogus") + _MELTS, Answer(what="nobody", word="do not match"), kind=Kind.HANG),
    _lammps("not_found", started_on(2, "exec lmp_missing -in in.melt") + _MELTS, named_rank(2, "not found")),
    _lammps("early", started_on(2, "sleep 9; exit 0") + _MELTS, named_rank(2, "exit 0|left|without|finali|never")),
    _lammps("never", started_on(2, "exec sleep 500") + _MELTS, named_rank(2, "sleep|never|wait"), kind=Kind.HANG),
)  # fmt: skip

# ---- other programs of Debian -------------------------------------------------------------

_SILICON = """\
&control
 calculation = 'scf', prefix = 'si', pseudo_dir = '%s', outdir = './'
/
&system
 ibrav = 2, celldm(1) = 10.20, nat = 2, ntyp = 1, ecutwfc = 24.0
/
&electrons
/
ATOMIC_SPECIES
 Si 28.086 Si.pz-vbc.UPF
ATOMIC_POSITIONS alat
 Si 0.00 0.00 0.00
 Si 0.25 0.25 0.25
K_POINTS automatic
 8 8 8 1 1 1
"""
_HPCC = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt")


def _other(
    name: str, script: str, files: dict[str, str], right: Answer, plant: Plant = itself
) -> Fault:
    program = script.split("exec ")[-1].split()[0]
    return Fault(
        name=f"real.debian.{name}", launcher="openmpi4", right=right, at_start=True,
        kind=Kind.HANG if name.endswith("stop") else Kind.FAILURE,
        job=debian_job(script, files), plant=plant, lacking=plants.need(program),
    )  # fmt: skip


_HPCC_TEXT = {"hpccinf.txt": (_HPCC.read_text() if _HPCC.exists() else "").replace(
    "2            Ps", "1            Ps").replace("1000         Ns", "3000         Ns")}  # fmt: skip
DEBIAN = (
    _other("hpcc_kill", "exec hpcc\n", _HPCC_TEXT, named_rank(2, "SIGKILL|killed"), signal_later(signal.SIGKILL, 2, "hpcc")),
    _other("hpcc_stop", "exec hpcc\n", _HPCC_TEXT, named_rank(1, "stopped"), signal_later(signal.SIGSTOP, 1, "hpcc")),
    _other("pw_pseudo", _NOW + "exec pw.x -in si.in\n", {"si.in": (_SILICON % ".").replace("Si.pz-vbc", "Si.pz-vbd")}, Answer(ranks=EVERY_RANK, word="pseudo|file")),
    _other("pw_input", _NOW + "exec pw.x -in si.in\n", {"si.in": (_SILICON % ".").replace("nat = 2", "nat = two")}, Answer(ranks=EVERY_RANK, word="namelist|system")),
    _other("nwchem_input", _NOW + "exec nwchem in.nw\n", {}, Answer(ranks=EVERY_RANK, word="in.nw|input|open")),
)  # fmt: skip

# ---- ranks of MPI that wait wrongly -------------------------------------------------------

_ARRAYS = "import numpy\nfrom mpi4py import MPI\nWORLD = MPI.COMM_WORLD\nRANK, SIZE = WORLD.rank, WORLD.size\n"
_BEGIN = "for step in range(20):\n    WORLD.Barrier()\n    if RANK == 0: print('step', step, flush=True)\n    time.sleep(0.1)\nif RANK == 0: fault()\n"


def _waits(name: str, wrong: str, right: Answer) -> Fault:
    mpi = {"flavour": "openmpi5", "path": str(BIN / "mpirun")}
    text = programs.HEAD + _ARRAYS + _BEGIN + wrong
    job = launch_on("mpi", 2, {"prog.py": text}, ["python3", "${RANKDECK_RUN}/prog.py"], mpi=mpi)
    return Fault(
        name=f"real.mpi.{name}", launcher="openmpi5", right=right, at_start=True, kind=Kind.HANG,
        job=job, lacking=plants.need_modules("numpy", "mpi4py"),
    )  # fmt: skip


_FIFO = """\
if RANK == 2:
    os.mkfifo(HERE + "/results")
    open(HERE + "/results").read()
WORLD.Barrier()
"""
_RING = """\
data = numpy.zeros(1000)
MPI.Request.Waitall([WORLD.Irecv(data, source=(RANK - 1) % SIZE)])
"""
_REDUCE = """\
if RANK == 3:
    WORLD.Alltoall(numpy.zeros(SIZE * 100000), numpy.zeros(SIZE * 100000))
else:
    WORLD.Reduce(numpy.zeros(100000), numpy.zeros(100000) if RANK == 0 else None)
WORLD.Barrier()
"""
_ROOTS = """\
WORLD.Bcast(numpy.zeros(5_000_000), root=1 if RANK == 1 else 0)
WORLD.Barrier()
"""
_LOCK = """\
import fcntl
if RANK == 4:
    held = open(HERE + "/lock", "w"); fcntl.flock(held, fcntl.LOCK_EX)
    fcntl.flock(open(HERE + "/lock"), fcntl.LOCK_EX)
WORLD.Allreduce(numpy.zeros(10), numpy.zeros(10))
"""
_THREADS = """\
import threading
lock = threading.Lock()
if RANK == 5:
    lock.acquire(); lock.acquire()
WORLD.Allgather(numpy.zeros(10), numpy.zeros(10 * SIZE))
"""
_CHILD = """\
import subprocess
if RANK == 1:
    subprocess.run(["cat"], stdin=subprocess.Popen(["sleep", "900"], stdout=subprocess.PIPE).stdout)
WORLD.Barrier()
"""
_BCAST = """\
if RANK == 4:
    WORLD.Bcast(numpy.zeros(10), root=0)
else:
    WORLD.Allreduce(numpy.zeros(10), numpy.zeros(10))
WORLD.Barrier()
"""
_LOCKS = """\
one, other = threading.Lock(), threading.Lock()
def take(first, second):
    with first:
        time.sleep(1)
        with second: pass
if RANK == 2:
    helper = threading.Thread(target=take, args=(other, one), daemon=True)
    helper.start()
    take(one, other)
WORLD.Barrier()
"""
_SLEEP = """\
if RANK == 3:
    time.sleep(3600)
WORLD.Allreduce(numpy.zeros(10), numpy.zeros(10))
"""
_FINALIZED = """\
if RANK == 5:
    MPI.Finalize()
    time.sleep(3600)
if RANK == 0:
    WORLD.Recv(numpy.zeros(10), source=5)
WORLD.Barrier()
"""
MPI_WAITS = (
    _waits("ring", _RING, DEADLOCK),
    _waits("reduce_alltoall", _REDUCE, named_rank(3, "wait for each other|match")),
    _waits("two_roots", _ROOTS, Answer(what="nobody", word="wait for each other|match")),
    _waits("fifo", _FIFO, named_rank(2, "open|results|fifo|pipe")),
    _waits("flock", _LOCK, named_rank(4, "flock|lock")),
    _waits("lock", _THREADS, named_rank(5, "lock|futex")),
    _waits("bcast", _BCAST, named_rank(4, "match")),
    _waits("locks", _LOCKS, named_rank(2, "lock|futex")),
    _waits("sleep", _SLEEP, named_rank(3, "sleep")),
    _waits("finalized", _FINALIZED, DEADLOCK),
    _waits("child", _CHILD, named_rank(1, "wait|child|cat|poll")),
)

# ---- torchrun -----------------------------------------------------------------------------

_TRAIN = """\
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
RANK = int(os.environ["RANK"])

class Samples(Dataset):
    def __len__(self):
        return 1_000_000
    def __getitem__(self, number):
        %(item)s
        return torch.randn(8), torch.randn(1)

def main():
    %(first)s
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Samples(), batch_size=4, num_workers=%(workers)d)
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if RANK == 0 and step %% 5 == 0:
            print("step", step, "loss", loss.item(), flush=True)
        if step == 30:
            note(f"ready.{RANK}")
        if step == 60 and RANK == 3:
            %(wrong)s
        time.sleep(0.1)

if __name__ == "__main__":
    main()
"""


def _torch(name: str, right: Answer, parts: dict[str, object], **more: object) -> Fault:
    """`parts`: what the program does wrong, and where; see _TRAIN."""
    usual = {"wrong": "pass", "item": "pass", "first": "pass", "workers": 0}
    text = programs.HEAD + _TRAIN % {**usual, **parts}
    files, command = {"prog.py": text}, ["${RANKDECK_RUN}/prog.py"]
    torch = {"path": str(BIN / "torchrun")}
    job = launch_on("torchrun", 2, files, command, torch=torch, nodes=2)
    return Fault(name=f"real.torch.{name}", launcher="torchrun", right=right, job=job, lacking=plants.need_torch, **more)  # fmt: skip # pyright: ignore[reportArgumentType]


_HANGS = "if RANK == 3 and number == 300: fault(); time.sleep(10_000)"
_DIES = "if RANK == 3 and number == 300: fault(); os.kill(os.getpid(), signal.SIGKILL)"
_RAISES = "if RANK == 3 and number == 300: fault(); raise OSError('shard-17: Input/output error')"
_NEVER = "if RANK == 3: fault(); time.sleep(10_000)"
_MISSING = f"if os.environ['RANKDECK_NODE'] == '{NODE_2}': fault(); open('/data/shard-17')"
_BOTH = Answer(ranks=frozenset({2, 3}), word="shard-17")
HANG = {"kind": Kind.HANG}
TORCH = (
    _torch("raise", named_rank(3, "no sample 17"), {"wrong": "fault(); raise ValueError('no sample 17')"}),
    _torch("exit0", named_rank(3, "exit 0|left|without"), {"wrong": "fault(); sys.exit(0)"}),
    _torch("never", named_rank(3, "never|sleep|wait"), {"first": _NEVER}, **HANG, at_start=True),
    _torch("loader", named_rank(3, "never entered"), {"item": _HANGS, "workers": 1}, **HANG),
    _torch("loader_killed", named_rank(3, "worker|killed"), {"item": _DIES, "workers": 1}),
    _torch("loader_raises", named_rank(3, "shard-17"), {"item": _RAISES, "workers": 1}),
    _torch("collective", named_rank(3, "match|never entered"), {"wrong": "fault(); dist.broadcast(torch.ones(9), 3)"}, **HANG),
    _torch("stop", named_rank(2, "stopped"), {}, plant=signal_later(signal.SIGSTOP, 2, "prog.py"), **HANG),
    _torch("kill", named_rank(1, "SIGKILL|killed"), {}, plant=signal_later(signal.SIGKILL, 1, "prog.py")),
    _torch("missing", _BOTH, {"first": _MISSING}, at_start=True),
    _torch("queue", named_rank(3, "never entered"), {"wrong": "fault(); torch.multiprocessing.Queue().get()"}, **HANG),
    _torch("pipe", named_rank(3, "never entered|read"), {"wrong": "fault(); os.read(os.pipe()[0], 1)"}, **HANG),
)  # fmt: skip
REAL = (*LAMMPS, *DEBIAN, *MPI_WAITS, *TORCH)
