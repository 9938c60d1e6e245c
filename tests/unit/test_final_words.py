"""What the last lines of a rank mean: its own fault or that of
another; whole chains, no warnings.
"""

import pytest

from rankdeck.rules.ends import LAUNCHER_ENDINGS, End, Meaning, Role, meaning_of
from tests.support.cases import each

PLAIN = LAUNCHER_ENDINGS[""]
TRACE = ("Traceback (most recent call last):", '  File "/w/train.py", line 7, in step')
DURING = ("", "During handling of the above exception, another exception occurred:", "")
LOST = "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.2]:40312"
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, {}, NCCL version 2.21.5"
)


def meaning(
    *said: str, code: int | None = 1, signal: int | None = None, mark: str = "", ago=()
) -> Meaning:
    lines = tuple(mark + line for line in said)
    return meaning_of(
        End(rank=3, node="n1", at=50.0, code=code, signal=signal, lines=lines, ago=ago), PLAIN, 50.0
    )


CHAINS = {
    "own memory, then the barrier fails": (
        (*TRACE, "torch.OutOfMemoryError: CUDA out of memory. Tried 1 GiB", *DURING, *TRACE, LOST),
        Role.CAUSE,
        "out of memory",
    ),
    "a peer was lost, then the clean-up fails": (
        (*TRACE, LOST, *DURING, *TRACE, "KeyError: 'loader'"),
        Role.PEER,
        "Connection closed by peer",
    ),
    "an error of its own, told again by a wrapper": (
        (*TRACE, "zarr.errors.GroupNotFoundError: group not found: 'a/3'", *DURING, *TRACE, "ValueError: bad shard 3"),
        Role.CAUSE,
        "bad shard 3",
    ),
    "an exception long before that was handled": (
        (*TRACE, LOST, "went on", *TRACE, "KeyError: 'x'"),
        Role.CAUSE,
        "KeyError",
    ),
    "a worker's error, told by its parents": (
        (
            "(Worker_TP1 pid=7) ERROR 11-26 10:00:00 [multiproc.py:59] ValueError: Free memory on device (1/2 GiB) on startup is less than desired",
            "(EngineCore pid=6) Exception: WorkerProc initialization failed. See stack trace for root cause.",
            "(APIServer pid=5) RuntimeError: Engine core initialization failed. See root cause above. Failed: {}",
        ),
        Role.CAUSE,
        "Free memory on device",
    ),
    "a launcher per node tells of its child": (
        (
            "[rank9]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
            "Root Cause (first observed failure):",
        ),
        Role.CAUSE,
        "illegal memory access",
    ),
    "a launcher per node tells of a child that lost its peer": (
        (f"[rank1]: {LOST}", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "),
        Role.PEER,
        "Connection closed by peer",
    ),
    "PyTorch's watchdog ended it while others did not come": (
        ("terminate called after throwing an instance of 'c10::DistBackendError'", "  what():  [PG 0 Rank 3] failure detected by watchdog at work sequence id: 7"),
        Role.TIMEOUT,
        "failure detected by watchdog",
    ),
    "PyTorch's watchdog tells an error of its own": (
        ("[PG 0 Rank 3] failure detected by watchdog at work sequence id: 7", "  what():  CUDA error: an illegal memory access was encountered"),
        Role.CAUSE,
        "illegal memory access",
    ),
    "PETSc tells that it was told to end": (
        ("[3]PETSC ERROR: --------------------", "[3]PETSC ERROR: Caught signal number 15 Terminate: Some process has told this process to end", "[3]PETSC ERROR: to get more information on the crash."),
        Role.TERMINATED,
        "signal number 15",
    ),
    "the reason stands below the exception": (
        (NCCL.format("invalid usage"), "ncclInvalidUsage: This", "Last error:", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60"),
        Role.CAUSE,
        "Duplicate GPU",
    ),
    "below a general line a reason of its own": (
        (NCCL.format("unhandled system error"), "Last error:", "Error while creating shared memory segment /dev/shm/nccl-a: No space left on device"),
        Role.CAUSE,
        "No space left",
    ),
    "a general line alone is of a peer": (
        (NCCL.format("unhandled system error"), "Last error:"),
        Role.PEER,
        "unhandled system error",
    ),
    "TensorFlow tells the reason three lines below": (
        ("tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:", "Detected at node x", "Received a label value of 7 which is outside the valid range"),
        Role.CAUSE,
        "label value of 7",
    ),
    "a service outside the job refused": (
        ("ConnectionRefusedError: [Errno 111] Connection refused", *DURING, "redis.exceptions.ConnectionError: Error 111 connecting to 10.9.9.9:6379."),
        Role.CAUSE,
        "6379",
    ),
}  # fmt: skip


@each(list(CHAINS.values()))
def test_a_chain_of_exceptions_is_read_whole(said: tuple[str, ...], role: Role, why: str) -> None:
    found = meaning(*said)

    assert (found.role, why in found.why) == (role, True), found.why


@each(
    [
        "[rank3]: ",
        "[default3]:[rank3]: ",
        "[1,3]<stderr>: ",
        "(RayTrainWorker pid=9, ip=10.0.0.1) ",
        "3: ",
        " 3: ",
        "gpu-n3.lab: [rank3]: ",
        "10:00:00 ",
        "2026-11-28T10:00:00.123456789Z stderr F ",
        "2026-11-28 10:00:00,123 - root - ERROR - ",
    ]
)
def test_marks_of_launchers_hide_no_exception(mark: str) -> None:
    assert meaning(*TRACE, "KeyError: 'x'", mark=mark).why == "it raised KeyError: 'x'"


VICTIMS = (
    ("forrtl: error (78): process killed (SIGTERM)", "Image   PC   Routine  Line  Source"),
    ("[rank: 3] Received SIGTERM: 15", *TRACE, "lightning.pytorch.utilities.exceptions.SIGTERMException"),
    ("UnknownError: Horovod has been shut down. This was caused by an exception on one of the ranks",),
    ("F client.h:77] Terminating process because the JAX distributed service detected fatal errors.", "Fatal Python error: Aborted"),
    ("RuntimeError: NCCL communicator was aborted on rank 3.",),
    ("NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4791> with status=12",),
)  # fmt: skip


@each([(said,) for said in VICTIMS])
def test_a_rank_that_others_ended_is_no_cause(said: tuple[str, ...]) -> None:
    assert meaning(*said).role > Role.KILLED


WARNED = (
    "nn.py:12: UserWarning: Failed to initialize NumPy: No module named 'numpy' (Triggered internally)",
    "[W1126 11:00:02.1 socket.cpp:697] [c10d] The IPv6 addresses cannot be retrieved (gai error: -2 - Name or service not known).",
    "sending metrics: Connection refused (ignored)",
    "2026-11-26 11:09:01.1: W tensorflow/x.cc:64] libcudnn.so: cannot open shared object file",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
)


@each(WARNED)
def test_a_warning_decides_nothing(line: str) -> None:
    assert meaning("step 1", line, "giving up").role is Role.LIKELY
    assert meaning(line, f"[rank3]: {LOST}").role is Role.PEER


@pytest.mark.parametrize("code", [143, 137, 14])
def test_a_code_that_a_program_returned_is_no_signal_where_its_words_say_more(code: int) -> None:
    said = (
        "Abort(1090959) on node 3 (rank 3 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:",
    )

    assert (
        meaning(*said, "open_fabric(2713): OFI fi_getinfo() failed", code=code).role is Role.CAUSE
    )
    assert meaning("step 9", code=143).role is Role.TERMINATED


def test_a_killed_rank_is_not_said_to_be_the_out_of_memory_killers() -> None:
    assert "memory" not in meaning("step 9", code=None, signal=9).why


def test_an_end_began_when_its_message_was_written() -> None:
    raised = (*TRACE, "KeyError: 'x'", "saving what is left")

    assert meaning(*raised, ago=(9.0, 9.0, 8.5, 1.0)).began == 41.5
    assert meaning(*raised).began == 50.0
    assert meaning("quiet", ago=(3.0,)).began == 50.0


def test_of_a_long_stack_the_first_line_tells_the_reason() -> None:
    frames = [f"vasp_std  00000000004D1A{n:02X}  Unknown  Unknown  Unknown" for n in range(20)]
    found = meaning("forrtl: severe (174): SIGSEGV, segmentation fault occurred", *frames, code=174)

    assert (found.role, "forrtl" in found.why) == (Role.CAUSE, True)


REPORTS = {
    "of all, by their labels": (
        "[rank0]: finished", "[rank1]: KeyError: 'x'", "[rank2]: finished", "1 of 4 failed"
    ),
    "of mpirun's output": ("[1,1]<stderr>:KeyError: 'x'", "[1,1]<stderr>: MPI_ABORT was invoked on rank 3"),
    "of one": ("[default3]:[rank1]: torch.OutOfMemoryError: CUDA out of memory",),
}  # fmt: skip


@each(list(REPORTS.items()))
def test_what_a_rank_prints_with_the_label_of_another_is_not_its_own_word(
    name: str, said: tuple[str, ...]
) -> None:
    why = meaning(*said).why
    assert why.startswith("it ended by itself: exit 1"), name
    assert "KeyError" not in why, name


def test_the_labels_of_a_launcher_that_runs_as_a_rank_are_those_of_its_own_processes() -> None:
    said = (
        "[rank5]: KeyError: 'x'",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    )

    assert "KeyError" in meaning(*said).why
