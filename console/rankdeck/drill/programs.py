"""The program of a drill: real ranks that work in steps, of which one goes wrong when it is told
to. It needs Python 3.6 on the nodes, and for MPI only the library that belongs to the launcher.
"""

from rankdeck.model.job_spec import Launch
from rankdeck_agent.wire import RANK_VARIABLES

MARK = "#rankdeck-drill"
"""Begins a line in which a rank says that it goes wrong `now`, or why it `cannot`."""
FILE = "drill.py"
STEP = 0.2
"""Seconds of a step."""
PLANTED_AT = 15
"""The step in which the victim goes wrong: all are at work by then."""
FROZEN_AT = 40
"""The same for the agent of a node, which first looks at its ranks after 5 s."""
FREEZE_AFTER = 1.0
"""Seconds in which the agent can still read that it will be frozen."""
_HEAD = f"""\
# Made by Rankdeck: a drill. One rank goes wrong, on purpose; nothing else is touched.
import ctypes, glob, json, os, signal, sys, time
WAY, VICTIM, LIFE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
MARK = "{MARK}"


def say(*words):
    print(*words, flush=True)


def guard(pid, *numbers):
    # Ends or wakes what is stopped, should nobody cancel this job; ends with it.
    if os.fork():
        return
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    time.sleep(LIFE)
    for number in numbers:
        os.kill(pid, number)
    os._exit(0)


def supervisor():
    with open(os.path.join(os.environ["RANKDECK_RUN"], "events")) as file:
        pid = next(row["pid"] for row in map(json.loads, file) if row["kind"] == "ready")
    with open("/proc/%d/cmdline" % pid, "rb") as file:
        if b"rankdeck" not in file.read():
            raise OSError("process %d is not the agent" % pid)
    return pid


def freeze():
    try:
        pid = supervisor()
    except (OSError, KeyError, ValueError, StopIteration) as error:
        say(MARK, "cannot", "no agent keeps the ranks of this node:", error)
        return
    guard(pid, signal.SIGCONT)
    say(MARK, "now", {FREEZE_AFTER})
    time.sleep({FREEZE_AFTER})
    os.kill(pid, signal.SIGSTOP)


def go_wrong():
    if WAY == "frozen":
        return freeze()
    say(MARK, "now", 0)
    if WAY == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if WAY == "stopped":
        guard(os.getpid(), signal.SIGCONT, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGSTOP)
    if WAY == "silent":
        time.sleep(LIFE)
    if WAY == "collective":
        broadcast()


signal.alarm(LIFE)  # no rank outlives the drill, whatever it waits for
"""
_STEPS = f"""
step, wrong_at = 0, {FROZEN_AT} if WAY == "frozen" else {PLANTED_AT}
while True:
    meet()
    say("step", step)
    if step == wrong_at and RANK == VICTIM:
        go_wrong()
    busy = time.time() + (1.5 if WAY == "slow" and step >= wrong_at and RANK == VICTIM else 0)
    while time.time() < busy:
        sum(range(1000))
    time.sleep({STEP})
    step += 1
"""
_PLAIN = f"""
WORDS = {(*RANK_VARIABLES, "JOB_COMPLETION_INDEX")!r}
RANK = int(next(os.environ[name] for name in WORDS if name in os.environ))


def meet():
    pass
"""
_MPI = """
def libraries():
    # The library beside the launcher that has started this rank, then those that the system knows.
    pid, places = os.getppid(), []
    while pid > 1:
        try:
            places.append(os.path.realpath("/proc/%d/exe" % pid))
            with open("/proc/%d/stat" % pid) as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
    for name in ("mpirun", "mpiexec"):
        places += [os.path.realpath(os.path.join(folder, name)) for folder in
                   os.environ.get("PATH", "").split(os.pathsep) if os.path.exists(os.path.join(folder, name))]
    hydra = "PMI_RANK" in os.environ and "PMIX_RANK" not in os.environ
    for place in places:
        top = os.path.dirname(os.path.dirname(place))
        for folder in ("lib", "lib64", "lib/release"):
            yield from sorted(glob.glob(os.path.join(top, folder, "libmpi.so*")))
    yield from ("libmpi.so.12", "libmpich.so.12") if hydra else ("libmpi.so.40",)
    yield "libmpi.so"


def load():
    for name in libraries():
        try:
            return ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    say(MARK, "cannot", "no MPI library was found (libmpi.so) beside mpirun or by the linker")
    sys.exit(3)


MPI = load()
if hasattr(MPI, "ompi_mpi_comm_world"):
    def handle(name):
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(MPI, name)))
    WORLD, INT, SUM = map(handle, ("ompi_mpi_comm_world", "ompi_mpi_int", "ompi_mpi_op_sum"))
else:
    WORLD, INT, SUM = 0x44000000, 0x4C000405, 0x58000003
MPI.MPI_Init(None, None)
number, total = ctypes.c_int(), ctypes.c_int()
MPI.MPI_Comm_rank(WORLD, ctypes.byref(number))
MPI.MPI_Comm_size(WORLD, ctypes.byref(total))
RANK, ONE = number.value, ctypes.c_int(1)
if total.value == 1:
    say(MARK, "cannot", "each rank believes to be alone: launcher and MPI library do not belong together")
    sys.exit(3)


def meet():
    MPI.MPI_Allreduce(ctypes.byref(ONE), ctypes.byref(total), 1, INT, SUM, WORLD)


def broadcast():
    MPI.MPI_Bcast(ctypes.byref(total), 1, INT, 0, WORLD)
"""
_TORCH = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
RANK, TENSOR = dist.get_rank(), torch.ones(1)


def meet():
    dist.all_reduce(TENSOR)


def broadcast():
    dist.broadcast(TENSOR, src=0)
"""
_MEETS = {Launch.PLAIN: _PLAIN, Launch.MPI: _MPI, Launch.TORCHRUN: _TORCH}
LAUNCHES = tuple(_MEETS)
"""What a drill can start."""


def drill_program(launch: Launch) -> str:
    """The program of a rank; its arguments are the way, the victim, and the most seconds that any
    rank of it lives.
    """
    return _HEAD + _MEETS[launch] + _STEPS
