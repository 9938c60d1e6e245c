"""Failures in the form of public reports, written here: the rank to blame, or that nobody is."""

from dataclasses import dataclass

from rankdeck.rules.certainty_table import WEIGHTS
from rankdeck.rules.ends import LAUNCHER_ENDINGS, End
from rankdeck.rules.failed_job import FailedJob
from rankdeck.rules.failure_evidence import weigh_failure
from rankdeck.rules.root_cause import find_cause
from rankdeck_agent.rules.scheduler_verdict import SchedulerVerdict, VerdictKind
from tests.support.cases import each

TRACE = ("Traceback (most recent call last):", '  File "/app/run.py", line 9, in <module>')
NAMES = {f"10.0.0.{n}": f"n{n}" for n in range(1, 5)} | {f"n{n}": f"n{n}" for n in range(1, 5)}
LOST = "[rank{r}]: RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.{n}]:4041"
WATCHDOG = "[rank{r}]:[E1129 10:00:00.1 ProcessGroupNCCL.cpp:688] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800090 milliseconds before timing out."
NETWORK = "[rank{r}]: torch.distributed.DistBackendError: NCCL error in: x.hpp:1, remote process exited or there was a network error"


@dataclass(frozen=True)
class Failed:
    """A job that failed, two ranks on each node."""

    right: frozenset[int]
    """The ranks to blame; empty: nobody."""
    ends: tuple[End, ...]
    ending: str = ""
    launchers: tuple[End, ...] = ()


def end(rank: int, at: float, code: int | None = None, said: tuple[str, ...] = (), **more) -> End:
    node = rank // 2 + 1
    lines = tuple(line.replace("{r}", str(rank)).replace("{n}", str(3 - node)) for line in said)
    return End(rank=rank, at=at, code=code, lines=lines, node=f"n{node}", slack=0.005, **more)


def ends(ranks, at: float, code: int | None = None, said: tuple[str, ...] = (), **more) -> list[End]:  # fmt: skip
    return [end(rank, at + rank / 100, code, said, **more) for rank in ranks]


def blames(right, *some: End, ending: str = "", told: tuple[str, ...] = (), **more) -> Failed:
    name = LAUNCHER_ENDINGS[ending].name or "launcher"
    at = max(one.at or 0.0 for one in some) + 0.3
    launchers = (End(what="launcher", name=name, node="n1", at=at, code=1, lines=told),)
    return Failed(frozenset(right), tuple(some), ending, launchers if told else ())


def but(count: int, *ranks: int) -> list[int]:
    return [rank for rank in range(count) if rank not in ranks]


FAILED = {
    "DeepSpeed misses a piece of its checkpoint": blames({5}, end(5, 10, 1, (*TRACE, "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/global_step40/zero_pp_rank_5_optim_states.pt'")), *ends(but(8, 5), 10.6, said=("NCCL communicator was aborted on rank {r}.",), signal=15), ending="torchrun"),
    "Horovod is shut down by a rank without a key": blames({2}, end(2, 69.5, 1, (*TRACE, "KeyError: 'image/encoded'")), *ends(but(4, 2), 70, 1, ("[1,{r}]<stderr>:horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception on one of the ranks",)), ending="openmpi5"),
    "JAX tasks lose one that memory ended": blames({1}, end(1, 10, signal=9, kernel=("Out of memory: Killed process 812 (python3)",)), *ends(but(4, 1), 80, said=("F1129 client.h:80] Terminating process because the JAX distributed service detected fatal errors.", "/job:jax_worker/replica:0/task:1"), signal=6)),
    "TensorFlow workers lose one with other shapes": blames({2}, end(2, 10, 1, (*TRACE, "tensorflow.python.framework.errors_impl.InvalidArgumentError: Shapes of all inputs must match")), *ends(but(3, 2), 10.4, 1, ("tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.2:2222: Failed to connect to remote host: Connection refused",))),
    "srun names a crash": blames({6}, end(6, 10, 139), *ends(but(8, 6), 10.2, signal=15), ending="slurm", told=("srun: error: n4: task 6: Segmentation fault (core dumped)", "srun: Terminating StepId=81.0", "srun: error: n1: tasks 0-1: Terminated")),
    "Pyxis cannot mount a folder": blames({4}, end(4, 3, 1, ("slurmstepd: error: pyxis: container start failed with error code: 1", "slurmstepd: error: pyxis:     enroot-mount: failed to mount: /lustre/data at /run/enroot/data: No such file or directory")), *ends(but(6, 4), 4, signal=15), ending="slurm", told=("srun: error: n3: task 4: Exited with exit code 1",)),
    "an image is broken on one node": blames({2, 3}, *ends((2, 3), 2, 255, ("FATAL:   container creation failed: mount hook function failure: while mounting image /proc/self/fd/3: squashfuse_ll exited: exit status 1",)), *ends(but(6, 2, 3), 3, signal=15), ending="openmpi5"),
    "Open MPI cuts a message": blames({1}, end(1, 10, 15, ("[n1:00731] *** An error occurred in MPI_Recv", "[n1:00731] *** MPI_ERR_TRUNCATE: message truncated")), *ends(but(4, 1), 10.2, signal=15), ending="openmpi5", told=("prterun detected that one or more processes exited with non-zero status", "  Process name: [prterun-n1-7@1,1]")),
    "MPICH and a bus error": blames({7}, end(7, 10, signal=7), *ends(but(8, 7), 10.1, signal=9), ending="mpich", told=("=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", "=   EXIT CODE: 135", "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Bus error (signal 7)")),
    "NCCL names the node before each exception": blames({4, 5}, *ends((0, 1, 2, 3), 10, 1, ("n1:8:99 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.3<51034> with status=12 opcode=0 len=0", NETWORK)), *ends((4, 5), 11, 1, (NETWORK,)), ending="torchrun"),
    "Lightning's first rank has no space": blames({0}, end(0, 10, 1, (*TRACE, "OSError: [Errno 122] Disk quota exceeded: '/home/u/ckpt/epoch=3.ckpt'")), *ends(but(4, 0), 10.5, 1, ("[rank: {r}] Received SIGTERM: 15", *TRACE, "lightning.pytorch.utilities.exceptions.SIGTERMException")), ending="torchrun"),
    "a GPU's memory is broken": blames({3}, end(3, 10, 1, (*TRACE, "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered")), *ends(but(4, 3), 10.3, 1, ("[rank{r}]: torch.distributed.DistBackendError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",)), ending="torchrun"),
    "a loader has no shared memory": blames({2}, end(2, 10, 1, (*TRACE, "RuntimeError: DataLoader worker (pid 3304) is killed by signal: Bus error.")), *ends(but(4, 2), 10.3, 1, (LOST,)), ending="torchrun"),
    "a group of exceptions": blames({1}, end(1, 10, 1, ("  + Exception Group Traceback (most recent call last):", "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)", "    | ValueError: shard 9 has no header")), *ends(but(4, 1), 10.3, 1, (LOST,)), ending="torchrun"),
    "a Rust program panics": blames({3}, end(3, 10, 101, ("thread 'main' panicked at src/halo.rs:88:17:", "index out of bounds: the len is 64 but the index is 64")), *ends(but(4, 3), 10.1, 14), ending="openmpi5"),
    "a Julia program throws": blames({2}, end(2, 10, 1, ("ERROR: LoadError: DomainError with -1.0:", "Stacktrace:", " [1] throw_complex_domainerror(f::Symbol, x::Float64)")), *ends(but(4, 2), 10.1, 14), ending="openmpi5"),
    "a Fortran program reads too far": blames({0}, end(0, 10, 2, ("At line 71 of file read_mesh.f90 (unit = 21, file = 'mesh.dat')", "Fortran runtime error: End of file")), *ends(but(4, 0), 10.2, signal=15), ending="openmpi5"),
    "a pod fails and its job deletes the others": blames({2}, end(2, 10, 3), *ends(but(4, 2), 12, 143), ending="kubernetes"),
    "a compiler of kernels fails": blames({1}, end(1, 10, 1, (*TRACE, "torch._inductor.exc.InductorError: SubprocException: An exception occurred in a subprocess:", "RuntimeError: Triton Error [CUDA]: device kernel image is invalid")), *ends(but(4, 1), 10.2, 1, (LOST,)), ending="torchrun"),
    "a rank sleeps while the others wait": blames({3}, *ends(but(4, 3), 40, 1, ("[rank{r}]: RuntimeError: [unbound_buffer.cc:78] Timed out waiting 30000ms for recv operation to complete",), doing="ep_poll"), end(3, 70, signal=15, doing="hrtimer_nanosleep"), ending="torchrun"),
    "a library does not fit one node": blames({4, 5}, *ends((4, 5), 1, 1, ("Intel MKL FATAL ERROR: Cannot load libmkl_avx512.so.2 or libmkl_def.so.2.",)), *ends(but(6, 4, 5), 1.5, signal=15), ending="openmpi5"),
    "DeepSpeed's launcher ends the others": blames({3}, end(3, 10, signal=9), *ends(but(8, 3), 10.9, signal=15), told=("[2026-11-29 10:00:01,100] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 4410",)),
    "a rank prints what all raised": blames({2}, end(2, 10, 1, (*TRACE, "ValueError: bad halo")), end(0, 10.4, 1, ("[rank2]: ValueError: bad halo", "[rank3]: ValueError: none")), *ends((1, 3), 10.5, 1, (LOST,))),
    "NVRx names the rank by its number": blames({2}, *ends((2,), 10, 1), *ends((0, 1, 3), 10, 1), ending="torchrun", told=("[2026-11-29 10:00:01,820] [ERROR] [ft_launcher31@n1] Some rank(s) exited with non-zero exit code: {2: ProcessFailure(local_rank=0, pid=3517, exitcode=1, error_file='<N/A>')}",)),
    "all pods are killed": blames((), *ends(range(4), 10, 137), ending="kubernetes"),
    "all are interrupted": blames((), *ends(range(4), 10, signal=2)),
    "the terminal is gone": blames((), *ends(range(4), 10, signal=1)),
    "the machines are switched off": blames((), *ends((0, 1), 10, signal=15), *ends((2, 3), 10.01, 143), ending="torchrun"),
    "the network is cut between two nodes": blames((), *ends(range(4), 10, 1, (LOST,))),
    "all wait for each other": blames((), *ends(range(4), 1800, said=(WATCHDOG,), signal=6), ending="torchrun"),
    "Slurm's time is up": blames((), *ends(range(4), 10, signal=15), ending="slurm", told=("slurmstepd: error: *** JOB 91 ON n1 CANCELLED AT 2026-11-29T10:00:00 DUE TO TIME LIMIT ***",)),
    "Slurm needs the nodes for another job": blames((), *ends(range(4), 10, signal=15), ending="slurm", told=("slurmstepd: error: *** JOB 91 ON n1 CANCELLED AT 2026-11-29T10:00:00 DUE TO PREEMPTION ***",)),
    "nobody finds the store": blames((), *ends(range(4), 10, 1, ("[rank{r}]: torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.0.0.9, 29500).",))),
    "NVRx kills a rank that waited for another": blames((), end(0, 20, signal=9), *ends((1, 2, 3), 20.3, signal=15), ending="torchrun", told=("[2026-11-29 10:00:19,738] [WARNING] [RankMonServer17050@n1:0] Did not get subsequent heartbeat. Waited 15.00 seconds.", "[2026-11-29 10:00:20,527] [ERROR] [ft_launcher31@n1] failed (exitcode: -9) local_rank: 0 (pid: 17068) of binary: python3")),
}  # fmt: skip

TOO_MANY = "RuntimeError: Timed out initializing process group in store based barrier on rank: {r}, for key: k:1 (world_size=2, worker_count=4, timeout=0:30:00)"
LOST_HOROVOD = (
    *TRACE,
    "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.",
)
FAILED |= {
    "every rank crashes in MPI_Init": blames((), *ends(range(6), 1, signal=11), ending="mpich", told=("=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",)),
    "every rank calls MPI_Abort": blames((), *ends(range(6), 3, 1, ("application called MPI_Abort(MPI_COMM_WORLD, 1) - process {r}",)), ending="mpich"),
    "mpirun names one of those that all fail alike": blames((), *ends(range(8), 60, 3, ("n{n}: Test NCCL failure common.cu:9 'unhandled cuda error (run with NCCL_DEBUG=INFO for details)'",)), ending="openmpi4", told=("mpirun detected that one or more processes exited with non-zero status", "  Process name: [[4,1],5]")),
    "mpirun says MPI_ABORT of one of those that all fail alike": blames((), *ends(range(6), 2, 254, ("_malloc_semaphore: sem_open: No such file or directory", "[{r}] Received an Error in Communication: (-2) _malloc_semaphore")), ending="openmpi4", told=("MPI_ABORT was invoked on rank 5 in communicator MPI_COMM_WORLD",)),
    "all exit alike without a word": blames((), *ends(range(4), 1, 127)),
    "more workers than the world has": blames((), *ends(range(4), 1800, 1, (*TRACE, TOO_MANY)), ending="slurm", told=("srun: error: n1: tasks 0-1: Exited with exit code 1",)),
    "two ranks are too few": blames((), *ends(range(2), 4, 1, (*TRACE, "dask_mpi.exceptions.WorldTooSmallException: Not enough MPI ranks")), ending="openmpi4"),
    "all are killed by name, and mpirun names one": blames((), *ends(range(4), 10, signal=15), ending="openmpi4", told=("mpirun noticed that process rank 3 with PID 7 on node n2 exited on signal 15 (Terminated).",)),
    "each reports the errors of all": blames((), *ends(range(4), 30, 1, ("[rank{r}]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1, 2, 3])", "[rank{r}]: Traceback (most recent call last): (RANK 0)", "[rank{r}]: AssertionError")), ending="torchrun"),
    "one exits first without a word, then the others": blames({2}, end(2, 10, 1), *ends(but(4, 2), 10.6, 1)),
    "one raises something else than the others": blames({3}, end(3, 10, 1, (*TRACE, "KeyError: 'mesh'")), *ends(but(4, 3), 10.2, 1, (LOST,))),
    "a file is on the first node only": blames({2, 3, 4, 5, 6, 7}, *ends(range(2, 8), 840, 1, (*TRACE, "FileNotFoundError: [Errno 2] No such file or directory: '/data/train_doc_idx.npy'")), *ends((0, 1), 841, 1, (NETWORK,)), ending="torchrun"),
    "memory is corrupt when others have ended well": blames({1}, end(1, 50.3, said=("corrupted size vs. prev_size", "Program received signal SIGABRT: Process abort signal."), signal=6), *ends((0, 2), 50.2, 0), end(3, 50.6, signal=15), ending="openmpi4", told=("mpirun noticed that process rank 1 with PID 3 on node n1 exited on signal 6 (Aborted).",)),
    "Horovod lists who is missing": blames({2}, end(0, 120, 1, ("Missing ranks:", "2: [HorovodBroadcast_bias_0, HorovodBroadcast_bias_1]", *LOST_HOROVOD)), *ends((1, 3), 120, 1, LOST_HOROVOD), end(2, 120.5, signal=15), ending="openmpi4"),
    "all say which rank differs": blames({1}, *ends(range(4), 60, 1, (*TRACE, "AssertionError: Rank 1 has different values for step: 8016.0. Other ranks: 7870.0")), ending="torchrun"),
    "a whole node does not come": blames({6, 7}, *ends(range(6), 1800, 1, (*TRACE, "RuntimeError: Timed out initializing process group in store based barrier on rank: {r}, for key: k:1 (world_size=8, worker_count=6, timeout=0:30:00)")), *(End(rank=rank, node="n4") for rank in (6, 7)), ending="slurm"),
    "a rank waits for the first of its node": blames({0}, end(1, 60, 1, (*TRACE, "RuntimeError: Waiting for local rank 0, bailing out: 60.000 < 60.053 sec.")), end(0, 61, signal=15)),
}  # fmt: skip

OOM = "srun: error: n{}: tasks {}: Out Of Memory"
FAILED |= {
    "srun says which tasks were out of memory": blames({2, 3}, *ends((2, 3), 10, signal=9), *ends(but(8, 2, 3), 10.4, signal=15), ending="slurm", told=("slurmstepd: error: Detected 1 oom_kill event in StepId=44.0. Some of the step tasks have been OOM Killed.", OOM.format(2, "2-3"), "srun: Terminating StepId=44.0")),
    "tasks of two nodes were out of memory": blames({2, 3, 4}, *ends((2, 3, 4), 10, signal=9), *ends(but(8, 2, 3, 4), 10.4, signal=15), ending="slurm", told=(OOM.format(2, "2-3"), OOM.format(3, "4"))),
    "one task was out of memory, the others were killed for it": blames({4}, end(4, 10, signal=9), *ends(but(8, 4), 10.1, signal=9), ending="slurm", told=(OOM.format(3, "4"), "srun: error: n1: tasks 0-1: Killed")),
    "all tasks were out of memory": blames((), *ends(range(6), 10, signal=9), ending="slurm", told=(OOM.format(1, "0-1"), OOM.format(2, "2-3"), OOM.format(3, "4-5"))),
    "an exit code of all that looks like a signal": blames((), *ends(range(4), 1, 143, ("Abort(1615247) on node {r} (rank {r} in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:", "find_provider(2708)..........: OFI fi_getinfo() failed (ofi_init.c:2708:find_provider:No data available)")), ending="mpich", told=("=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", "=   RANK 1 PID 44 RUNNING AT n1", "=   KILLED BY SIGNAL: 9 (Killed)")),
    "JAX lists two tasks that did not come": blames({0, 3}, *ends((1, 2), 300, 1, (*TRACE, "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: sync0. Timed out task names:", "/job:jax_worker/replica:0/task:3", "/job:jax_worker/replica:0/task:0")), *ends((0, 3), 330, signal=15, stopped=True)),
    "the time is up, and a handler of the signal calls MPI_Abort in some": blames((), *ends((0, 3), 3600, 59, ("[{r}]PETSC ERROR: ------------------------------------------------------------------------", "[{r}]PETSC ERROR: Caught signal number 15 Terminate: Some process (or the batch system) has told this process to end", "application called MPI_Abort(MPI_COMM_WORLD, 59) - process {r}")), *ends((1, 2), 3600, signal=15), ending="slurm", told=("slurmstepd: error: *** JOB 91 ON n1 CANCELLED AT 2026-11-29T10:00:00 DUE TO TIME LIMIT ***",)),
}  # fmt: skip

OUT_OF_TIME = (
    "slurmstepd: error: *** STEP 91.0 ON n1 CANCELLED AT 2026-11-29T10:00:00 DUE TO TIME LIMIT ***"
)
FAILED |= {
    "c10d's report of a desync names the rank": blames({7}, *ends((0, 1, 2), 600, signal=6, said=(WATCHDOG, "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:", "\t     [7] finished collective #182, but didn't join collective #183 (count from 1)", "\t - Snapshot of ranks' latest states:")), *ends((3, 4, 5, 6, 7), 600.4, signal=15), ending="torchrun", told=("Root Cause (first observed failure):", "  rank      : 0 (local_rank: 0)")),
    "the time is up, and one has an exit code of its own": blames((), end(2, 3600.02, 1), *ends((0, 1, 3), 3600, signal=15), ending="slurm", told=(OUT_OF_TIME, "srun: error: n2: task 2: Exited with exit code 1")),
    "the time is up, and one crashes in its handler": blames((), end(2, 3600.4, signal=11), *ends((0, 1, 3), 3600, signal=15), ending="slurm", told=(OUT_OF_TIME,)),
    "PBS ends the job, and one raises then": blames((), end(3, 3600.5, 1, (*TRACE, "ValueError: I/O operation on closed file")), *ends((0, 1, 2), 3600, signal=15), ending="mpich", told=("=>> PBS: job killed: walltime 3601 exceeded limit 3600",)),
    "one crashed long before the time was up": blames({1}, end(1, 100, signal=11), *ends((0, 2, 3), 3600, signal=15), ending="slurm", told=(OUT_OF_TIME,)),
    "a step is cancelled because a task failed": blames({1}, end(1, 100, 1), *ends((0, 2, 3), 100.3, signal=15), ending="slurm", told=("srun: error: n1: task 1: Exited with exit code 1", "slurmstepd: error: *** STEP 91.0 ON n1 CANCELLED AT 2026-11-29T10:00:00 ***")),
}  # fmt: skip

REASONS = {
    "Extreme t_soisno at c": end(0, 4, 1, ("-------------- FATAL CALLED ---------------", "FATAL CALLED FROM FILE:  <stdin>  LINE:    1591", "WARNING: Extreme t_soisno at c, level 1 1", "-------------------------------------------", "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0")),
    "last said: charges are out of range": end(0, 4, 1, (" *********************************", " *  /   \\  charges are out of range *", " * [ABORT]                         *", " *  \\___/            matrices.F:90 *", " *********************************", "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0")),
    "--> FOAM FATAL ERROR: attempt to run on 1 processor": end(0, 4, 1, ("--> FOAM FATAL ERROR:", "attempt to run on 1 processor", "    in file UPstream.C at line 79.", "FOAM exiting")),
    "last said: SIM_ASSERT: cells.cpp:11: n > 0": end(0, 4, signal=6, said=("step 7", "SIM_ASSERT: cells.cpp:11: n > 0")),
    "x > xmax": end(0, 4, 30, ("Error: a source has x > xmax of the mesh", "Abort(30) on node 0 (rank 0 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 30) - process 0")),
    "no solver for aij": end(0, 4, 1, ("[0]PETSC ERROR: --------- Error Message ---------", "[0]PETSC ERROR: no solver for aij", "[0]PETSC ERROR: See https://petsc.org/release/faq/ for trouble shooting.", "[0]PETSC ERROR: Petsc Release Version 3.20.1, unknown", "[0]PETSC ERROR: #1 MatGetFactor() at matrix.c:4416")),
    "not as many as allocated": end(0, 4, 255, ("not as many as allocated", "application called MPI_Abort(MPI_COMM_WORLD, -1) - process 0")),
    "out of space": end(0, 4, 1, ("ERROR on proc 0: ran out of space on a list", "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD")),
}  # fmt: skip
"""What the reason has to quote -> the end of the rank that failed first."""


@each(list(FAILED.items()))
def test_the_rank_to_blame_is_told_or_nobody(name: str, failed: Failed) -> None:
    job = FailedJob(ends=failed.ends, launchers=failed.launchers, names=NAMES, ending=LAUNCHER_ENDINGS[failed.ending])  # fmt: skip
    cause = find_cause(job)
    assert cause is not None, name
    weighed = weigh_failure(cause, WEIGHTS)
    of_nobody = weighed.between or weighed.everybody or cause.finder == "scheduler"
    told = set() if of_nobody else {cause.end.rank, *weighed.tied}

    assert bool(told) == bool(failed.right), (name, told, weighed)
    assert told <= failed.right, (name, told, cause.evidence)


@each(list(REASONS.items()))
def test_the_reason_quotes_the_fault_and_not_the_call_or_the_stack_after_it(
    words: str, first: End
) -> None:
    others = ends((1, 2), 4.1, signal=9)
    job = FailedJob(ends=(first, *others), names=NAMES, ending=LAUNCHER_ENDINGS["mpich"])
    cause = find_cause(job)
    assert cause is not None
    assert (cause.end.rank, words in cause.evidence[0]) == (0, True), cause.evidence


def test_a_part_that_can_never_start_is_told_and_not_those_who_waited_for_it() -> None:
    verdict = SchedulerVerdict(VerdictKind.CANNOT_START, "pod t-2 cannot start: ImagePullBackOff")
    waited = ends((0, 1), 300, 1, ("Could not resolve hostname t-2: Name or service not known",))
    ending = LAUNCHER_ENDINGS["kubernetes"]
    cause = find_cause(FailedJob(ends=(*waited, End(rank=2, node="n2")), names=NAMES, ending=ending, scheduler=verdict))  # fmt: skip
    assert cause is not None
    assert (cause.end.what, cause.end.rank, cause.evidence) == ("scheduler", None, (verdict.text,))
