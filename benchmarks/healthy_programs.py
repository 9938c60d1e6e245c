"""Programs whose healthy jobs `benchmarks.healthy` runs. Nobody of this project wrote them, but for
two samples and a few lines that call a library.

To try another one, add a row; nothing else has to change.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from benchmarks.fault_others import BOOST, PORT, RING, TREES
from benchmarks.measure import ROOT

BIN = Path(sys.executable).parent
LAMMPS = Path("/usr/share/lammps/examples")
NWCHEM = Path("/usr/share/doc/nwchem/examples")
HPCC = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt")
SAMPLES = ROOT / "sample-clusters/jobs/programs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One row: a program, and the job that runs it."""

    name: str
    needs: str
    """What must be here: a program, a file or a Python module."""
    job: Mapping[str, object]
    """The job file, without its name and its working folder."""
    files: Mapping[str, Callable[[], str]] = field(default_factory=dict[str, Callable[[], str]])
    """Name in the working folder -> what makes its text."""
    busy: float = 2.0
    """Cores that it would use."""

    @property
    def is_here(self) -> bool:
        if self.needs.startswith("/"):
            return Path(self.needs).exists()
        # A program may be called `pw.x`: of a name with a dot, Python would load the first part.
        module = "." not in self.needs and find_spec(self.needs) is not None
        return which(self.needs) is not None or module


def _debian(command: list[str], nodes: int = 2, ranks: int = 1) -> dict[str, object]:
    """A program of Debian, built with its Open MPI."""
    mpi = {"flavour": "openmpi4", "path": "/usr/bin/mpirun.openmpi"}
    return {
        "launch": "mpi", "mpi": mpi, "nodes": nodes, "ranks_per_node": ranks,
        "command": command, "env": {"OMP_NUM_THREADS": "1"},
    }  # fmt: skip


def _mpi4py(command: list[str], nodes: int = 2, ranks: int = 1) -> dict[str, object]:
    mpi = {"flavour": "openmpi5", "path": str(BIN / "mpirun")}
    return {
        "launch": "mpi", "mpi": mpi, "nodes": nodes, "ranks_per_node": ranks,
        "command": [sys.executable, *command], "env": {"OMP_NUM_THREADS": "1"},
    }  # fmt: skip


def _torch(command: list[str], *args: str, nodes: int = 2, ranks: int = 1) -> dict[str, object]:
    return {
        "launch": "torchrun", "torch": {"path": str(BIN / "torchrun"), "args": [*args]},
        "nodes": nodes, "ranks_per_node": ranks, "command": command,
        "env": {"OMP_NUM_THREADS": "1"},
    }  # fmt: skip


def _plain(command: list[str], nodes: int = 3, ranks: int = 1) -> dict[str, object]:
    return {"launch": "plain", "nodes": nodes, "ranks_per_node": ranks, "command": command}


def _changed(file: Path, *changes: tuple[str, str]) -> Callable[[], str]:
    """What makes the text of an example with these changes, so that it takes minutes."""

    def text() -> str:
        told = file.read_text()
        for old, new in changes:
            if old not in told:
                raise ValueError(f"{file.name} has no `{old}`")
            told = told.replace(old, new)
        return told

    return text


SILICON = """\
&control
 calculation = 'scf', prefix = 'si', pseudo_dir = '/usr/share/espresso/pseudo', outdir = './'
/
&system
 ibrav = 2, celldm(1) = 10.20, nat = 2, ntyp = 1, ecutwfc = 24.0
/
&electrons
 conv_thr = 1.0d-9
/
ATOMIC_SPECIES
 Si 28.086 Si.pz-vbc.UPF
ATOMIC_POSITIONS alat
 Si 0.00 0.00 0.00
 Si 0.25 0.25 0.25
K_POINTS automatic
 8 8 8 1 1 1
"""

WATER = """\
&GLOBAL
  PROJECT water
  RUN_TYPE MD
  PRINT_LEVEL LOW
&END GLOBAL
&FORCE_EVAL
  METHOD Quickstep
  &DFT
    BASIS_SET_FILE_NAME BASIS_SET
    POTENTIAL_FILE_NAME GTH_POTENTIALS
    &MGRID
      CUTOFF 200
    &END MGRID
    &XC
      &XC_FUNCTIONAL Pade
      &END XC_FUNCTIONAL
    &END XC
  &END DFT
  &SUBSYS
    &CELL
      ABC 6.0 6.0 6.0
    &END CELL
    &COORD
      O 0.000 0.000 0.000
      H 0.758 0.586 0.000
      H -0.758 0.586 0.000
    &END COORD
    &KIND H
      BASIS_SET DZVP-GTH-PADE
      POTENTIAL GTH-PADE-q1
    &END KIND
    &KIND O
      BASIS_SET DZVP-GTH-PADE
      POTENTIAL GTH-PADE-q6
    &END KIND
  &END SUBSYS
&END FORCE_EVAL
&MOTION
  &MD
    STEPS 200
  &END MD
&END MOTION
"""
POOL = """\
import time
from mpi4py.futures import MPIPoolExecutor

def work(number):
    time.sleep(number % 7)
    return sum(range(number * 100_000))

if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        for number, total in enumerate(pool.map(work, range(80))):
            if number % 8 == 0:
                print("done", number, total, flush=True)
"""
TASKS = """\
import random, time
from dask_mpi import initialize

def work(number):
    time.sleep(random.random() * 8)
    if number % 9 == 0:
        raise ValueError(f"no sample {number}")
    return number

if __name__ == "__main__":
    initialize(nthreads=2, dashboard=False)
    from dask.distributed import Client, as_completed
    with Client() as client:
        for done in as_completed(client.map(work, range(200))):
            print("failed" if done.exception() else done.result(), flush=True)
"""
FIT = """\
import os
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel

if __name__ == "__main__":
    nodes, devices = int(os.environ["GROUP_WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    Trainer(
        num_nodes=nodes, devices=devices, accelerator="cpu", strategy="ddp", max_epochs=300,
    ).fit(BoringModel(), datamodule=BoringDataModule())
"""


def _lammps(example: str, *changes: tuple[str, str], ranks: int = 1) -> Program:
    return Program(
        name=f"lammps {example}", busy=2 * ranks, needs="/usr/bin/lmp",
        job=_debian(["lmp", "-in", f"in.{example}"], ranks=ranks),
        files={f"in.{example}": _changed(LAMMPS / example / f"in.{example}", *changes)},
    )  # fmt: skip


def _nwchem(example: str) -> Program:
    return Program(
        name=f"nwchem {example}", needs="/usr/bin/nwchem", job=_debian(["nwchem", "in.nw"], nodes=1, ranks=2),
        files={"in.nw": _changed(NWCHEM / f"{example}.nw")},
    )  # fmt: skip


def _accelerate(script: str, nodes: int = 2, ranks: int = 1) -> Program:
    module = f"accelerate.test_utils.scripts.{script}"
    return Program(
        name=f"accelerate {script}", busy=1, needs="accelerate",
        job=_torch([sys.executable, "-m", module], nodes=nodes, ranks=ranks),
    )  # fmt: skip


def _boosted(module: str, text: str, after: int) -> Program:
    """Rounds of boosting, in which most lines are those of rank 0."""
    env = {"OMP_NUM_THREADS": "1", "BOOST_PORT": str(PORT + 300 + after)}
    return Program(
        name=module, needs=module, job=_plain([sys.executable, "prog.py"], 2) | {"env": env},
        files={"prog.py": lambda: text},
    )  # fmt: skip


def _tested(module: str) -> Program:
    """The tests of a package of Python: many lines, with warnings and the word error."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--pyargs", module]
    return Program(name=f"pytest {module}", needs=module.partition(".")[0], job=_plain(command, 2))


def _python_tests(*modules: str) -> Program:
    """Tests of Python itself: exceptions that are caught, warnings, long waits."""
    return Program(
        name=f"Python's {modules[0]}", busy=0.5, needs="test",
        job=_plain([sys.executable, "-m", "test", "-v", *modules], 2),
    )  # fmt: skip


PROGRAMS = (
    _lammps("melt", ("run\t\t250", "run\t\t60000")),
    _lammps("crack", ("run\t\t5000", "run\t\t200000")),
    _lammps("friction", ("run\t\t20000", "run\t\t400000")),
    Program(
        name="hpcc", busy=4, needs="hpcc", job=_debian(["hpcc"], ranks=2),
        files={"hpccinf.txt": _changed(HPCC, ("1000         Ns", "2000         Ns"))},
    ),
    Program(
        name="quantum-espresso pw.x", needs="pw.x", job=_debian(["pw.x", "-in", "si.in"]),
        files={"si.in": lambda: SILICON},
    ),
    _nwchem("h2o-b3lyp-disp"),
    _nwchem("h2o-hse"),
    Program(
        name="meep", needs="meep", job=_debian(["meep", "ring.ctl"]), files={"ring.ctl": lambda: RING},
    ),
    Program(
        name="cp2k", needs="cp2k.popt", job=_debian(["cp2k.popt", "-i", "water.inp"]),
        files={"water.inp": lambda: WATER},
    ),
    _boosted("xgboost", BOOST, 10),
    _boosted("lightgbm", TREES, 20),
    Program(
        name="jax, our sample", needs="jax",
        job=_plain([sys.executable, str(SAMPLES / "jax_ddp.py"), "--steps", "20000"], 2)
        | {"launch": "jax", "env": {"JAX_PLATFORMS": "cpu"}},
    ),
    Program(name="netpipe", needs="NPopenmpi", job=_debian(["NPopenmpi"])),
    Program(
        name="mpi4py ring test", needs="mpi4py",
        job=_mpi4py(["-m", "mpi4py.bench", "ringtest", "-n", "4194304", "-l", "3000"]),
    ),
    Program(
        name="mpi4py futures", busy=0.5, needs="mpi4py",
        job=_mpi4py(["-m", "mpi4py.futures", "pool.py"]),
        files={"pool.py": lambda: POOL},
    ),
    _accelerate("test_script"),
    _accelerate("test_ops"),
    _accelerate("test_sync"),
    Program(
        name="lightning boring model", busy=1, needs="lightning", job=_torch(["fit.py"]),
        files={"fit.py": lambda: FIT},
    ),
    Program(
        name="torchrun, our sample", busy=1, needs="torch",
        job=_torch([str(SAMPLES / "ddp.py"), "--steps", "20000"]),
    ),
    Program(
        name="stencil, our sample", needs="mpi4py",
        job=_mpi4py([str(SAMPLES / "stencil.py"), "24", "24", "24"])
        | {"env": {"STENCIL_SECONDS": "300"}},
    ),
    _tested("numpy"),
    _tested("scipy.optimize"),
    Program(
        name="tornado's tests", busy=0.5, needs="tornado",
        job=_plain([sys.executable, "-m", "tornado.test.runtests", "--verbose"]),
    ),
    _python_tests("test_asyncio"),
    _python_tests("test_logging", "test_queue", "test_sched"),
    _python_tests("test_threading", "test_json", "test_selectors"),
    Program(
        name="dask", busy=0.5, needs="dask_mpi", job=_mpi4py(["tasks.py"], nodes=3),
        files={"tasks.py": lambda: TASKS},
    ),
    Program(
        name="vmstat", busy=0.1, needs="vmstat", job=_plain(["vmstat", "-t", "2", "280"]),
    ),
)  # fmt: skip
"""Each runs for some minutes; what runs longer is cancelled and counted."""
