"""Faults of frameworks that nobody of this project wrote: TensorFlow, Accelerate and Dask of PyPI,
PETSc of Debian. A part of the table in `fault_list`.
"""

import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import fault_plants as plants
from benchmarks import fault_programs as programs
from benchmarks.fault_model import Answer, Fault, Kind, Plant, itself
from benchmarks.fault_real import launch_on, named_rank, signal_later

BIN = Path(sys.executable).parent
_PETSC = next(Path("/usr/lib/petscdir").glob("petsc*/*-real"), Path("/usr/lib/petsc"))

_STEP_ENDS = """\
    if number == 20:
        note(f"ready.{RANK}")
    if number == 40:
        %(wrong)s
    time.sleep(0.1)
"""

MIRRORED = (
    """\
import json
RANK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
%(first)s
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weight = tf.Variable(tf.random.normal((64, 64)))
@tf.function
def step():
    def part():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.random.normal((16, 64)), weight)))
        grown = tape.gradient(loss, weight)
        grown = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, grown)
        weight.assign_sub(0.01 * grown)
        return loss
    return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(part), axis=None)
for number in range(100_000):
    loss = step()
    if number %% 5 == 0:
        print("step", number, "loss", float(loss), flush=True)
"""
    + _STEP_ENDS
)
ACCELERATED = (
    """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
accelerator = Accelerator(cpu=True)
RANK = accelerator.process_index
%(first)s
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(4000, 8), torch.randn(4000, 1))
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=2))
for number, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
    if number %% 5 == 0:
        accelerator.print("step", number, "loss", loss.item(), flush=True)
"""
    + _STEP_ENDS
    + "accelerator.wait_for_everyone()\n"
)
SOLVED = (
    """\
import sys
import petsc4py
petsc4py.init(sys.argv)
from petsc4py import PETSc
RANK = PETSc.COMM_WORLD.rank
%(first)s
size = 4000
A = PETSc.Mat().createAIJ((size, size), nnz=3)
low, high = A.getOwnershipRange()
for row in range(low, high):
    A[row, row] = 2.0
    if row: A[row, row - 1] = -1.0
    if row < size - 1: A[row, row + 1] = -1.0
A.assemble()
x, b = A.createVecs()
b.set(1.0)
solver = PETSc.KSP().create()
solver.setOperators(A)
solver.setType("cg")
solver.setTolerances(max_it=50)
for number in range(100_000):
    x.set(0.0)
    solver.solve(b, x)
    PETSc.Sys.Print("step", number, "residual", solver.getResidualNorm())
    sys.stdout.flush()
"""
    + _STEP_ENDS
)
TASKS = """\
import dask_mpi
from mpi4py import MPI
RANK = MPI.COMM_WORLD.rank
dask_mpi.initialize(nthreads=1, dashboard=False, worker_class="distributed.Worker")
from distributed import Client, as_completed
client = Client()
client.wait_for_workers(4)
def work(number):
    time.sleep(0.1)
    %(wrong)s
    return number
for number in range(100_000):
    done = client.gather(client.map(work, range(4 * number, 4 * number + 4)))
    print("step", number, sum(done), flush=True)
"""


def _no_petsc() -> str:
    return "" if _PETSC.exists() else "needs python3-petsc4py"


class Framework(NamedTuple):
    """How the programs of a framework are run."""

    text: str
    launcher: str
    """As the bench names it."""
    lacking: Callable[[], str]
    job: Mapping[str, Any]
    """More of the job file."""


_PROGRAM = "${RANKDECK_RUN}/prog.py"
_RUN = {
    "tf": Framework(MIRRORED, "tensorflow", plants.need_modules("tensorflow"), {
        "launch": "tensorflow", "command": [sys.executable, _PROGRAM],
        "env": {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"},
    }),
    "accelerate": Framework(ACCELERATED, "torchrun", plants.need_modules("accelerate"), {
        "launch": "torchrun", "command": [_PROGRAM], "torch": {"path": str(BIN / "torchrun")},
    }),
    "petsc": Framework(SOLVED, "openmpi4", _no_petsc, {
        "launch": "mpi", "command": ["/usr/bin/python3", _PROGRAM],
        "mpi": {"flavour": "openmpi4", "path": "/usr/bin/mpirun.openmpi"},
        "env": {"OMP_NUM_THREADS": "1", "PETSC_DIR": str(_PETSC)},
    }),
    "dask": Framework(TASKS, "openmpi5", plants.need_modules("dask_mpi"), {
        "launch": "mpi", "command": [sys.executable, _PROGRAM], "ranks_per_node": 2,
        "mpi": {"flavour": "openmpi5", "path": str(BIN / "mpirun")},
    }),
}  # fmt: skip


def _fault(
    name: str, right: Answer, parts: Mapping[str, str], plant: Plant = itself,
    kind: Kind = Kind.FAILURE,
) -> Fault:  # fmt: skip
    """`parts`: what the program does wrong: `wrong` at one step, `first` before it begins."""
    framework = name.partition(".")[0]
    run = _RUN[framework]
    text = programs.HEAD + run.text % {"wrong": "pass", "first": "pass", **parts}
    return Fault(
        name=f"real.{name}", launcher=run.launcher, right=right, kind=kind, plant=plant,
        at_start="first" in parts or plant is not itself or framework == "dask",
        job=launch_on(ranks=1, files={"prog.py": text}, **run.job), lacking=run.lacking,
    )  # fmt: skip


def _on_rank(rank: int, does: str) -> dict[str, str]:
    return {"wrong": f"if RANK == {rank}: fault(); {does}"}


def _before(rank: int, does: str) -> dict[str, str]:
    return {"first": f"if RANK == {rank}: fault(); {does}"}


HANG = Kind.HANG
SLEEPS = "time.sleep(10_000)"
FRAMEWORKS = (
    _fault("tf.kill", named_rank(1, "SIGKILL|killed"), {}, signal_later(signal.SIGKILL, 1, "prog.py")),
    _fault("tf.stop", named_rank(1, "stopped"), {}, signal_later(signal.SIGSTOP, 1, "prog.py"), HANG),
    _fault("tf.raise", named_rank(2, "no sample 17"), _on_rank(2, "raise ValueError('no sample 17')")),
    _fault("tf.early", named_rank(2, "exit 0|left|without"), _on_rank(2, "sys.exit(0)")),
    _fault("tf.never", named_rank(2, "never|sleep|wait"), _before(2, SLEEPS), kind=HANG),
    _fault("tf.read", named_rank(1, "never|read|wait|pipe"), _on_rank(1, "os.read(os.pipe()[0], 1)"), kind=HANG),
    _fault("accelerate.barrier", named_rank(0, "match|never entered"), _on_rank(0, "accelerator.wait_for_everyone()"), kind=HANG),
    _fault("accelerate.break", named_rank(2, "match|never entered|exit 0|left"), _on_rank(2, "break"), kind=HANG),
    _fault("accelerate.nan", named_rank(1, "loss is nan"), _on_rank(1, "raise FloatingPointError('loss is nan')")),
    _fault("accelerate.kill", named_rank(2, "SIGKILL|killed"), {}, signal_later(signal.SIGKILL, 2, "prog.py")),
    _fault("petsc.kill", named_rank(1, "SIGKILL|killed"), {}, signal_later(signal.SIGKILL, 1, "prog.py")),
    _fault("petsc.term", named_rank(2, "SIGTERM"), {}, signal_later(signal.SIGTERM, 2, "prog.py")),
    _fault("petsc.type", named_rank(1, "nonsense|error code"), _on_rank(1, "solver.setType('nonsense')"), kind=HANG),
    _fault("petsc.barrier", named_rank(2, "never|match|elsewhere|is in"), _on_rank(2, "PETSc.COMM_WORLD.barrier()"), kind=HANG),
    _fault("petsc.never", named_rank(2, "never|sleep"), _before(2, SLEEPS), kind=HANG),
    _fault("petsc.early", named_rank(1, "exit 0|left|without|never|finali"), _on_rank(1, "os._exit(0)")),
    _fault("dask.task", named_rank(1, "ZeroDivision"), {"wrong": "if number == 200: fault(); 1 / 0"}),
    _fault("dask.kill", named_rank(3, "SIGKILL|killed"), {}, signal_later(signal.SIGKILL, 3, "prog.py")),
    _fault("dask.stop", named_rank(4, "stopped"), {}, signal_later(signal.SIGSTOP, 4, "prog.py"), HANG),
)  # fmt: skip
