"""Messages and what they mean: every one of the table, and silence about the rest."""

import pytest

from rankdeck.rules.decode import MESSAGES, STATUSES, explain

SAID = {
    "Host key verification failed.": "host key",
    "root@n2: Permission denied (publickey,password).": "no key",
    "ssh: Could not resolve hostname n2:2: Name or service not known": "host name",
    "bash: line 1: orted: command not found": "MPI daemon",
    "[mpiexec@n1] token slots not supported at this time": "hostfile of Open MPI",
    "There are not enough slots available in the system to satisfy the 8": "more ranks than slots",
    "prterun was unable to find the specified executable file, unable to find an executable": "missing on a node",
    "slurmstepd: error: execve(): /opt/app: No such file or directory": "missing on a node",
    "No PMIx server was reachable, but a PMI1/2 was detected.": "finds no launcher",
    "launcher not compatible with PMI1 client": "MPICH",
    "Hello from rank 0/1 on n2": "believes it is alone",
    "  Framework: gds  Component: shmem2": "PMIx",
    "conflicting directives were given: OPAL_PREFIX and PMIX_INSTALL_PREFIX": "second MPI",
    "RuntimeError: The server socket has failed to bind: EADDRINUSE": "port is taken",
    "torch.distributed.elastic.rendezvous.api.RendezvousClosedError": "rendezvous",
    "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=18237, OpType=ALLREDUCE": "never came",
    "Read -1, expected 524288, errno = 1": "user namespaces",
    "[n1] ibv_create_srq() failed: Operation not supported": "network card",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB": "GPU's memory",
    "OSError: [Errno 28] No space left on device": "disk is full",
    "ModuleNotFoundError: No module named 'mpi4py'": "Python module",
    "ValueError: loss is NaN in step 9": "ran away",
}


@pytest.mark.parametrize(("line", "means"), SAID.items())
def test_a_message_is_put_into_plain_words(line: str, means: str) -> None:
    found = explain(["step 1 loss 2.3", line])

    assert means in found[0].means
    assert found[0].remedy
    assert found[0].line == line.strip()


def test_the_newest_message_comes_first_and_each_once() -> None:
    found = explain(["EADDRINUSE", "No space left on device", "EADDRINUSE again"])

    assert [one.line for one in found] == [
        "EADDRINUSE again",
        "No space left on device",
    ]


@pytest.mark.parametrize("status", STATUSES)
def test_an_exit_status_speaks_where_the_lines_do_not(status: int) -> None:
    (found,) = explain(["step 7"], status)

    assert found.line == ""


@pytest.mark.parametrize(
    "line",
    [
        "step 3 loss 2.1",
        "rank 0 of 16 ready",
        "rank 0/16",
        "world size 16",
        "port 9800",
        "done",
        "",
    ],
)
def test_an_ordinary_line_means_nothing(line: str) -> None:
    assert explain([line], 1) == ()


def test_every_row_is_tried_or_is_a_plain_variant() -> None:
    tried = {one.means for line in SAID for one in explain([line])}

    assert len({means for _, means, _ in MESSAGES} - tried) <= 7
