"""The faults: one row each. To try another one, add a row; nothing else has to change.

A row says what runs (`job`, its program inside), what goes wrong (`prog` by itself, or `plant`),
and who is to blame for it. Virtual nodes: ranks 0-1 on sakuya, 2-3 on sakura, 4-5 on koishi; n1,
n2, n3 in the lab.
"""

import signal
import sys
from pathlib import Path

from tests.support import cpu_quota, mpich

from benchmarks import fault_plants as plants
from benchmarks import fault_programs as programs
from benchmarks.fault_frameworks import FRAMEWORKS
from benchmarks.fault_model import Answer, Fault, Kind
from benchmarks.fault_others import OTHERS
from benchmarks.fault_real import REAL
from rankdeck.config.document import write_documents

BIN = Path(sys.executable).parent
PLACE = "@PLACE@"
"""Placeholder in a job file for the folder that every node sees under the same path."""
PORT = 29871
SLEEP = "time.sleep(1000)"
LOOPBACK_TORCH = {"nodes": 2, "ranks_per_node": 2}
EVERY_RANK = frozenset(range(6))
NODE_1, NODE_2, NODE_3 = "sakuya", "sakura", "koishi"


def _job(launch: str, text: str, **more: object) -> str:
    """A job file whose program is `text`; the others are stopped 2 s after a failure."""
    job = {
        "job": "fault", "launch": launch, "nodes": 3, "ranks_per_node": 2, "grace": 1,
        "abort": {"countdown": 2}, "files": {"prog.py": text},
        "command": ["python3", "${RANKDECK_RUN}/prog.py"],
    }  # fmt: skip
    return write_documents([{**job, **more}])


def _mpi(text: str, **more: object) -> str:
    mpi = {"flavour": "openmpi5", "path": str(BIN / "mpirun")}
    return _job("mpi", text, mpi=mpi, **more)


def _mpich(victim: int, how: str) -> str:
    mpi = {"flavour": "mpich", "path": "/usr/bin/mpiexec.mpich"}
    command = [f"{PLACE}/prog", str(victim), how]
    env = {"UCX_TLS": "tcp,self"}  # virtual nodes share no memory, which UCX believes
    return _job("mpi", "", mpi=mpi, command=command, files={}, env=env)


def _torch(text: str, **more: object) -> str:
    torch = {"path": str(BIN / "torchrun")}
    return _job("torchrun", text, **{**LOOPBACK_TORCH, "torch": torch, **more})


def _shell(script: str, **more: object) -> str:
    files = {"prog.sh": script}
    command = ["sh", "${RANKDECK_RUN}/prog.sh"]
    return _job("plain", "", files=files, command=command, **more)


def _rank(rank: int, word: str) -> Answer:
    return Answer(ranks=frozenset({rank}), word=word)


def _ended(name: str, wrong: str, word: str) -> Fault:
    """Rank 4 of an Open MPI job ends by itself while the others wait for it."""
    return Fault(
        name=f"openmpi.{name}", launcher="openmpi5", job=_mpi(programs.mpi(wrong)),
        right=_rank(4, word),
    )  # fmt: skip


def _stuck(name: str, wrong: str, word: str, *, speaks: str = "True") -> Fault:
    """Rank 4 of an Open MPI job goes on running but no longer joins collective operations."""
    job = _mpi(programs.mpi(wrong, speaks=speaks))
    return Fault(
        name=f"openmpi.{name}", launcher="openmpi5", job=job, kind=Kind.HANG,
        right=_rank(4, word),
    )  # fmt: skip


OPEN_MPI = (
    _ended("segv", "import ctypes; ctypes.string_at(0)", "segmentation|SIGSEGV"),
    _ended("kill", "os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL|killed"),
    _ended("abrt", "os.abort()", "SIGABRT|abort"),
    _ended("bus", "os.kill(os.getpid(), signal.SIGBUS)", "SIGBUS|bus error"),
    _ended("fpe", "os.kill(os.getpid(), signal.SIGFPE)", "SIGFPE|arithmetic|floating"),
    _ended("raise", 'raise ValueError("no sample 17")', "no sample 17"),
    _ended("exit3", "sys.exit(3)", "exit 3"),
    _ended("exit0", "os._exit(0)", "exit 0|left|without|finali"),
    _ended("fds", "files = []\nimport resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
           "while True: files.append(open('/dev/null'))", "too many open files|descriptors"),
    Fault(
        name="openmpi.abort", launcher="openmpi5", right=_rank(3, "MPI_Abort"),
        job=_mpi(programs.mpi("WORLD.Abort(7)", victims=(3,))),
    ),
    Fault(
        name="openmpi.signal_outside", launcher="openmpi5", right=_rank(1, "SIGKILL|killed"),
        job=_mpi(programs.mpi()), plant=plants.signal_rank(signal.SIGKILL, 1),
    ),
    Fault(
        name="openmpi.import", launcher="openmpi5", at_start=True,
        right=Answer(ranks=frozenset({2, 3}), word="No module|not installed"),
        job=_mpi(programs.mpi(first=f"if NODE == '{NODE_2}':\n    fault()\n    import solver_of_another_node\n")),
    ),
    Fault(
        name="openmpi.missing", launcher="openmpi5", at_start=True,
        right=Answer(ranks=frozenset({2, 3}), word="not found|No such file"),
        job=_mpi("", workdir="~", command=[f"./{plants.PROGRAM}"], files={}),
        prepare=plants.program_at_home("#!/usr/bin/env python3\n" + programs.mpi(), (NODE_1, NODE_3)),
    ),
    Fault(
        name="openmpi.mpirun_killed", launcher="openmpi5", job=_mpi(programs.mpi()),
        right=Answer(node=NODE_1, what="launcher", word="mpirun|SIGKILL|killed"),
        plant=plants.signal_program(signal.SIGKILL, ("mpirun", "prterun"), NODE_1),
    ),
    Fault(
        name="openmpi.prted_killed", launcher="openmpi5", job=_mpi(programs.mpi()),
        right=Answer(node=NODE_2, what="launcher|node", word="prted|daemon"),
        plant=plants.signal_program(signal.SIGKILL, ("prted",), NODE_2),
    ),
    Fault(
        name="openmpi.supervisor_killed", launcher="openmpi5", job=_mpi(programs.mpi()),
        right=Answer(node=NODE_2, what="launcher|node", word="supervisor"),
        plant=plants.kill_supervisor(NODE_2),
    ),
    _stuck("slow", "pause = 3", "slow|behind|late|wait"),
    _stuck("sleep", SLEEP, "sleep|silent|stuck|wait"),
    _stuck("sleep_quiet", SLEEP, "sleep|silent|stuck|wait", speaks="RANK == 0"),
    _stuck("spin", "while True: pass", "spin|comput|busy|silent|stuck|wait"),
    _stuck("thread_raises", "threading.Thread(target=int, args=('seventeen',)).start()\n" + SLEEP, "seventeen|ValueError"),
    Fault(
        name="openmpi.raise_finalize", launcher="openmpi5", kind=Kind.HANG,
        right=_rank(4, "no sample 17"),
        job=_mpi(programs.mpi('raise ValueError("no sample 17")', finalize=True)),
    ),
    Fault(
        name="openmpi.stopped", launcher="openmpi5", kind=Kind.HANG, right=_rank(5, "stopped|SIGSTOP"),
        job=_mpi(programs.mpi()), plant=plants.signal_rank(signal.SIGSTOP, 5),
    ),
)  # fmt: skip

RAISES = 'raise ValueError("no sample 17")'
NUMPY = "UserWarning: Failed to initialize NumPy: No module named 'numpy'"
DEADLOCK = Answer(what="nobody", word="wait for each other")
"""All wait: nobody is to blame for that, and it must be said."""


def _pulled(name: str, does: str) -> Fault:
    """Rank 4 raises; the others say and do much when their launcher then tells them to end."""
    job = _mpi(programs.mpi(RAISES, first=programs.when_told(does)))
    return Fault(
        name=f"openmpi.{name}", launcher="openmpi5", job=job, right=_rank(4, "no sample 17")
    )


def _deadlock(name: str, wrong: str, victims: tuple[int, ...]) -> Fault:
    """These ranks of an Open MPI job wait for what nobody sends, and the others wait for them."""
    job = _mpi(programs.mpi(wrong, victims=victims))
    return Fault(
        name=f"openmpi.{name}", launcher="openmpi5", job=job, kind=Kind.HANG, right=DEADLOCK
    )


def _wrapped(wrong: str) -> str:
    """An Open MPI job whose ranks are started by a shell that ends
    with exit 0, however they end.
    """
    wrapper = 'python3 "$RANKDECK_RUN/prog.py"; exit 0'
    return _mpi(programs.mpi(wrong), command=["bash", "-c", wrapper])


_WRAPPED_ALONE = """\
echo begun
touch "$RANKDECK_RUN/ready.$RANKDECK_RANK"
sleep 2
if [ "$RANKDECK_RANK" = 1 ]; then
    date +%s.%N >"$RANKDECK_RUN/fault"
    sh -c 'kill -SEGV $$'
fi
sleep 1
exit 0
"""
"""Ranks that need no other: the program of one crashes, its wrapper ends with exit 0."""
UNSEEN = (
    _pulled("cleanup_raises", "print('cleaning up', flush=True)\nraise KeyError('buffer')"),
    _pulled("give_up", "print('training failed, giving up', file=sys.stderr, flush=True)\nos._exit(1)"),
    _pulled("forrtl", "print('forrtl: error (78): process killed (SIGTERM)', file=sys.stderr, flush=True)\nos._exit(78)"),
    _ended("silent_exit1", "os._exit(1)", "exit 1"),
    _ended("sigpipe", "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\nos.kill(os.getpid(), signal.SIGPIPE)", "SIGPIPE"),
    _ended("code14", "print('cannot read mesh.h5', file=sys.stderr, flush=True)\nos._exit(14)", "mesh.h5|exit 14"),
    _ended("code143", "print('cannot read mesh.h5', file=sys.stderr, flush=True)\nos._exit(143)", "mesh.h5|143"),
    _ended("chain", "try: raise MemoryError('no room for 4 GB')\nexcept MemoryError as error: raise RuntimeError('barrier failed') from error", "4 GB|memory"),
    Fault(
        name="openmpi.warned", launcher="openmpi5", right=_rank(4, "no sample 17"),
        job=_mpi(programs.mpi(f"print({NUMPY!r}, file=sys.stderr, flush=True)\n" + RAISES, first=f"print({NUMPY!r}, file=sys.stderr, flush=True)\n")),
    ),
    Fault(
        name="openmpi.sigterm_outside", launcher="openmpi5", right=_rank(1, "SIGTERM|told to end"),
        job=_mpi(programs.mpi()), plant=plants.signal_rank(signal.SIGTERM, 1),
    ),
    Fault(
        name="openmpi.wrapper", launcher="openmpi5", right=_rank(4, "Segmentation|SIGSEGV"),
        job=_wrapped("import ctypes; ctypes.string_at(0)"),
    ),
    Fault(
        name="plain.wrapper", launcher="plain", right=Answer(what="note", word="rank 1 on .*SIGSEGV"),
        job=_shell(_WRAPPED_ALONE, ranks_per_node=1),
    ),
    _deadlock("mismatch", "WORLD.bcast(1, root=0)", (4,)),
    _deadlock("receive_each_other", "WORLD.recv(source=9 - RANK)", (4, 5)),
    _deadlock("receive_in_a_ring", "WORLD.recv(source=(RANK + 1) % 6)", tuple(range(6))),
    Fault(
        name="openmpi.quota", launcher="openmpi5", kind=Kind.HANG, right=_rank(3, "CPU quota"),
        job=_mpi(programs.works()), plant=plants.limit_cpu(3, 0.03), prepare=plants.without_quotas,
        lacking=cpu_quota.lacking,
    ),
)  # fmt: skip


def _hydra(name: str, victim: int, word: str, kind: Kind = Kind.FAILURE) -> Fault:
    return Fault(
        name=f"mpich.{name}", launcher="mpich", job=_mpich(victim, name), kind=kind,
        right=_rank(victim, word) if word else DEADLOCK, lacking=mpich.lacking,
    )  # fmt: skip


MPICH = (
    _hydra("segv", 4, "segmentation|SIGSEGV"),
    _hydra("abort", 3, "MPI_Abort|Abort\\(7\\)"),
    _hydra("exit", 2, "exit 3"),
    _hydra("hang", 4, "sleep|silent|stuck|wait", Kind.HANG),
    _hydra("exit0", 2, "exit 0|left|without|finali"),
    _hydra("abort143", 3, "MPI_Abort|Abort\\(143\\)"),
    _hydra("mismatch", 4, "match", Kind.HANG),
    _hydra("receives", 4, "", Kind.HANG),
)

_AWAY = "os.environ['MASTER_ADDR'] = 'no-such-host.invalid'\n"
_RESOLVE = (
    "import torch.distributed as early\nfault()\n"
    "early.init_process_group('gloo', timeout=timedelta(seconds=15))\n"
)
_SAVE = f"torch.save(torch.ones(1 << 20), '{plants.FULL}/step15.pt')"


def _gloo(name: str, text: str, right: Answer, **more: object) -> Fault:
    options = {"kind": Kind.FAILURE, "lacking": plants.need_torch, **more}
    return Fault(name=f"torch.{name}", launcher="torchrun", job=_torch(text), right=right, **options)  # fmt: skip # pyright: ignore[reportArgumentType]


TORCH = (
    _gloo("raise", programs.torch('raise ValueError("no sample 17")'), _rank(3, "no sample 17")),
    _gloo("kill", programs.torch("os.kill(os.getpid(), signal.SIGKILL)"), _rank(3, "SIGKILL|killed")),
    _gloo("exit0", programs.torch("os._exit(0)"), _rank(3, "exit 0|left|without")),
    _gloo("absent", programs.torch(SLEEP, timeout=8), _rank(3, "collective|timed out|wait|sleep"), kind=Kind.HANG),
    _gloo("thread_raises", programs.torch("threading.Thread(target=int, args=('seventeen',)).start()\n" + SLEEP),
          _rank(3, "seventeen|ValueError"), kind=Kind.HANG),
    _gloo("disk_full", programs.torch(_SAVE), _rank(3, "No space|disk|full|unexpected pos"),
          prepare=plants.small_disk(NODE_2), lacking=plants.need_torch_and_root),
    _gloo("name", programs.torch(first=_AWAY + _RESOLVE), Answer(ranks=EVERY_RANK, word="resolv|name|no-such-host"),
          at_start=True, kind=Kind.HANG),
    Fault(
        name="torch.interface", launcher="torchrun", at_start=True, lacking=plants.need_torch,
        job=_torch(programs.torch(first="import torch.distributed\nfault()\n"), env={"GLOO_SOCKET_IFNAME": "eth9"}),
        right=Answer(ranks=EVERY_RANK, word="eth9|interface"),
    ),
    Fault(
        name="torch.port", launcher="torchrun", at_start=True, lacking=plants.need_torch,
        prepare=plants.busy_port(PORT),
        job=_torch(programs.torch(), torch={"path": str(BIN / "torchrun"), "port": PORT}),
        right=Answer(node=NODE_1, what="launcher", word="in use|port"),
    ),
    Fault(
        name="torch.crowded", launcher="torchrun", kind=Kind.HANG, right=_rank(1, "waits for a core"),
        job=_torch(programs.works_torch(), ranks_per_node=1), plant=plants.crowd_core(1, 5),
        prepare=plants.without_hogs, lacking=plants.need_torch_and_cores,
    ),
    _gloo("torchrun_killed", programs.torch(), Answer(node=NODE_2, what="launcher", word="torchrun|SIGKILL|killed"),
          plant=plants.signal_program(signal.SIGKILL, ("torchrun",), NODE_2)),
)  # fmt: skip

_EXIT_7 = f"""\
echo begun
touch "$RANKDECK_RUN/ready.$RANKDECK_RANK"
sleep 2
if [ "$RANKDECK_NODE" = {NODE_2} ]; then
    date +%s.%N >"$RANKDECK_RUN/fault"
    echo "cannot read mesh.h5" >&2
    exit 7
fi
sleep 100
"""
_HUNGRY = (
    programs.HEAD
    + """\
RANK = int(os.environ["RANKDECK_RANK"])
note(f"ready.{RANK}")
taken = []
while time.time() < END:
    print("step", flush=True)
    if os.path.exists(f"{HERE}/hungry"):
        if not taken: fault()
        taken.append(bytearray(os.urandom(1 << 20)))
    else:
        time.sleep(0.1)
"""
)
PLAIN = (
    Fault(
        name="plain.exit7", launcher="plain", right=_rank(1, "mesh.h5"),
        job=_shell(_EXIT_7, ranks_per_node=1),
    ),
    Fault(
        name="plain.not_found", launcher="plain", at_start=True,
        job=_job("plain", "", command=["no-such-solver", "--deck", "a.inp"], files={}),
        right=Answer(ranks=EVERY_RANK, word="not found|not on the PATH"),
    ),
    Fault(
        name="plain.oom", launcher="plain", right=_rank(1, "memory|OOM"), job=_job("plain", _HUNGRY, ranks_per_node=1),
        plant=plants.starve(1), lacking=plants.need_memory_group,
    ),
)  # fmt: skip

_PATIENT = {"enabled": True, "countdown": 10}
_CHILDREN = 'i=0; while [ $i -lt 45 ]; do i=$((i+1)); echo "chunk $i"; sleep 1; [ $i != 3 ] || touch "$RANKDECK_RUN/ready.$RANKDECK_RANK"; done\n'
LAB = (
    Fault(
        name="node.cut", launcher="openmpi5", lab=True, kind=Kind.HANG, plant=plants.cut("n3"),
        job=_mpi(programs.mpi(), abort=_PATIENT), right=Answer(node="n3", what="node", word="answer|lost|reach"),
    ),
    Fault(
        name="node.crash", launcher="openmpi5", lab=True, plant=plants.crash("n3"), kind=Kind.HANG,
        job=_mpi(programs.mpi(), abort=_PATIENT), right=Answer(node="n3", what="node", word="answer|lost|reach"),
    ),
    Fault(
        name="node.sshd_killed", launcher="plain", lab=True, plant=plants.silence_sshd("n3", 20), kind=Kind.HEALTHY,
        job=_shell(_CHILDREN, ranks_per_node=1, abort={"enabled": False}),
        right=Answer(node="n3", what="node"),
    ),
)  # fmt: skip
HEALTHY = (
    Fault(
        name="healthy.mpi_asleep", launcher="openmpi5", kind=Kind.HEALTHY, right=Answer(),
        job=_mpi(programs.healthy_mpi(25, busy=False)),
    ),
    Fault(
        name="healthy.mpi_busy", launcher="openmpi5", kind=Kind.HEALTHY, right=Answer(),
        job=_mpi(programs.healthy_mpi(40, busy=True)),
    ),
    Fault(
        name="healthy.mpi_writes", launcher="openmpi5", kind=Kind.HEALTHY, right=Answer(),
        job=_mpi(programs.healthy_writes(70)),
    ),
    Fault(
        name="healthy.torch_busy", launcher="torchrun", kind=Kind.HEALTHY, right=Answer(),
        lacking=plants.need_torch,
        job=_torch(programs.healthy_torch(35)),
    ),
    Fault(
        name="healthy.plain", launcher="plain", kind=Kind.HEALTHY, right=Answer(),
        job=_shell(programs.HEALTHY_SHELL),
    ),
)  # fmt: skip

FAULTS = (*OPEN_MPI, *UNSEEN, *MPICH, *TORCH, *PLAIN, *LAB, *HEALTHY, *REAL, *OTHERS, *FRAMEWORKS)
SHORT = (
    "openmpi.segv", "openmpi.raise", "openmpi.exit0", "openmpi.mpirun_killed", "openmpi.import",
    "openmpi.wrapper", "plain.wrapper", "mpich.segv", "mpich.abort", "plain.exit7", "plain.not_found",
)  # fmt: skip
"""Rows of the short form: seconds each."""
