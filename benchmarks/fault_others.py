"""Faults of more programs that nobody of this project wrote: Meep, OpenFOAM and GROMACS of Debian,
XGBoost, LightGBM and JAX of PyPI. A part of the table in `fault_list`.
"""

import signal
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from benchmarks import fault_plants as plants
from benchmarks import fault_programs as programs
from benchmarks.fault_model import Answer, Fault, Kind, Plant, itself
from benchmarks.fault_real import (
    EVERY_RANK,
    debian_job,
    launch_on,
    named_rank,
    signal_later,
    started_on,
)

PORT = 29673
_ROWS = count()
UNDECIDED = Answer(what="nobody", word="apart")

# ---- Debian -------------------------------------------------------------------------------

RING = """\
(set! geometry-lattice (make lattice (size 16 16 no-size)))
(set! geometry (list
 (make cylinder (center 0 0) (radius 3) (height infinity) (material (make dielectric (index 3.4))))
 (make cylinder (center 0 0) (radius 2) (height infinity) (material air))))
(set! pml-layers (list (make pml (thickness 1.0))))
(set! resolution 20)
(set! sources (list (make source
 (src (make gaussian-src (frequency 0.15) (fwidth 0.1))) (component Ez) (center 2.1 0))))
(run-until 20000)
"""
"""Light in a ring, on two dimensions: some ten minutes on two cores."""
CAVITY = "/usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity"
_PREPARE = f"""\
cp -r {CAVITY}/. . && gunzip -rq 0 constant system || true
sed -i 's/^endTime .*/endTime 500;/; s/^writeInterval .*/writeInterval 20000;/' system/controlDict
printf 'FoamFile {{ version 2.0; format ascii; class dictionary; object decomposeParDict; }}\\nnumberOfSubdomains 3; method simple; simpleCoeffs {{ n (3 1 1); delta 0.001; }}\\n' >system/decomposeParDict
(blockMesh && decomposePar) >prepared 2>&1
"""
"""The flow in a box, cut into three, made anew on each node."""
_FLOWS = "exec icoFoam -parallel\n"
_SHINES = "exec meep ring.ctl\n"


def _of_debian(
    name: str, script: str, right: Answer, plant: Plant = itself, kind: Kind = Kind.FAILURE
) -> Fault:
    program = script.split("exec ")[-1].split()[0]
    environment = {"OMP_NUM_THREADS": "1", "WM_PROJECT_DIR": "/usr/share/openfoam"}
    job = debian_job(script, {"ring.ctl": RING}, env=environment)
    wanted = plants.need(program) if program == "meep" else plants.need(program, "blockMesh")
    return Fault(
        name=f"real.{name}", launcher="openmpi4", right=right, at_start=True, kind=kind, job=job,
        plant=plant, lacking=wanted if Path(CAVITY).exists() or program == "meep" else _no_example,
    )  # fmt: skip


def _no_example() -> str:
    return "needs openfoam-examples"


_FINER = "sed -i 's/resolution 20/resolution 24/' ring.ctl"
OF_DEBIAN = (
    _of_debian("meep.kill", _SHINES, named_rank(1, "SIGKILL|killed"), signal_later(signal.SIGKILL, 1, "meep")),
    _of_debian("meep.other_input", started_on(2, _FINER) + _SHINES, UNDECIDED),
    _of_debian("meep.no_input", "rm ring.ctl\n" + _SHINES, Answer(ranks=EVERY_RANK, word="ring.ctl")),
    _of_debian("foam.part", _PREPARE + started_on(2, "rm processor2/0/U") + _FLOWS, named_rank(2, "cannot find file")),
    # Rank 0 reads it, and tells the others.
    _of_debian("foam.setting", _PREPARE + started_on(0, "sed -i s/PISO/PISOX/ system/fvSolution") + _FLOWS, Answer(ranks=EVERY_RANK, word="PISO")),
    _of_debian("foam.stop", _PREPARE + _FLOWS, named_rank(1, "stopped"), signal_later(signal.SIGSTOP, 1, "icoFoam"), Kind.HANG),
)  # fmt: skip

# ---- PyPI ---------------------------------------------------------------------------------

BOOST = """\
import os, threading
import numpy, xgboost
from xgboost import collective, tracker
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
HOST, PORT = "127.0.0.1", int(os.environ["BOOST_PORT"])
if RANK == 0:
    meeting = tracker.RabitTracker(n_workers=SIZE, host_ip=HOST, port=PORT, sortby="task")
    meeting.start()
    threading.Thread(target=meeting.wait_for, daemon=True).start()
at = {"dmlc_tracker_uri": HOST, "dmlc_tracker_port": PORT, "dmlc_task_id": str(RANK)}
with collective.CommunicatorContext(**at):
    made = numpy.random.default_rng(RANK).random((20_000, 20))
    data = xgboost.DMatrix(made, label=made[:, 0] * 3 + made[:, 1])
    settings = {"nthread": 1, "objective": os.environ.get("BOOST_GOAL", "reg:squarederror")}
    rounds = int(os.environ.get("BOOST_ROUNDS", "100000"))
    xgboost.train(settings, data, rounds, evals=[(data, "train")], verbose_eval=20)
"""
TREES = """\
import os
import lightgbm, numpy
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FIRST = int(os.environ["BOOST_PORT"])
made = numpy.random.default_rng(RANK).random((20_000, int(os.environ.get("COLUMNS", "20"))))
data = lightgbm.Dataset(made, made[:, 0] * 3 + made[:, 1])
settings = {
    "objective": "regression", "tree_learner": "data", "num_threads": 1, "num_machines": SIZE,
    "machines": ",".join(f"127.0.0.1:{FIRST + rank}" for rank in range(SIZE)),
    "local_listen_port": int(os.environ.get("OWN_PORT", FIRST + RANK)),
}
shown = [lightgbm.log_evaluation(20)]
lightgbm.train(settings, data, 100_000, valid_sets=[data], callbacks=shown)
"""


def _of_pypi(
    name: str, module: str, text: str, right: Answer, plant: Plant = itself,
    kind: Kind = Kind.FAILURE, only: Mapping[int, Mapping[str, str]] | None = None,
) -> Fault:  # fmt: skip
    """`only`: rank -> variables that this rank alone has. Each takes ports of its own: those of the
    row before may still be in use.
    """
    begin = f"{programs.HEAD}_ONLY = {dict(only or {})!r}\n_RANK = int(os.environ['RANK'])\n"
    apart = "os.environ.update(_ONLY.get(_RANK, {}))\nif _RANK in _ONLY: fault()\n"
    environment = {
        "OMP_NUM_THREADS": "1",
        "BOOST_PORT": str(PORT + 10 * next(_ROWS)),
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "${RANKDECK_RUN}/prog.py"]
    abort = {"enabled": True, "countdown": 2}
    job = launch_on(
        "plain", 1, {"prog.py": begin + apart + text}, command, env=environment, abort=abort
    )
    return Fault(
        name=f"real.{name}", launcher="plain", right=right, at_start=True, kind=kind, job=job,
        plant=plant, lacking=plants.need_modules(module, "numpy"),
    )  # fmt: skip


OF_PYPI = (
    _of_pypi("xgboost.kill", "xgboost", BOOST, named_rank(1, "SIGKILL|killed"), signal_later(signal.SIGKILL, 1, "prog.py")),
    _of_pypi("xgboost.setting", "xgboost", BOOST, named_rank(1, "Unknown objective"), only={1: {"BOOST_GOAL": "reg:squareerror"}}),
    _of_pypi("xgboost.early", "xgboost", BOOST, named_rank(1, "exit 0"), only={1: {"BOOST_ROUNDS": "40"}}),
    _of_pypi("lightgbm.stop", "lightgbm", TREES, named_rank(1, "stopped"), signal_later(signal.SIGSTOP, 1, "prog.py"), Kind.HANG),
    _of_pypi("lightgbm.port", "lightgbm", TREES, named_rank(1, "list of machines"), only={1: {"OWN_PORT": str(PORT + 200)}}),
    _of_pypi("lightgbm.columns", "lightgbm", TREES, UNDECIDED, only={2: {"COLUMNS": "21"}}),
)  # fmt: skip
OTHERS = (*OF_DEBIAN, *OF_PYPI)
