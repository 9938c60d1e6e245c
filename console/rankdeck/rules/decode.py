"""What the messages of launchers, MPI, torch and the kernel mean, and what to try. No I/O."""

import re
from collections.abc import Iterable
from functools import lru_cache

from rankdeck.model.insight import Explained

MOST = 4
"""Explanations of one failure: more would hide the first."""

MESSAGES: tuple[tuple[str, str, str], ...] = (
    # pattern, means, try
    (r"Host key verification failed", "a node does not know the host key of another node", "let Rankdeck start the daemons (leave `mpi: {launcher: ssh}` out), or add the key to known_hosts on that node"),
    (r"Permission denied \(publickey", "a node has no key for another node", "let Rankdeck start the daemons (leave `mpi: {launcher: ssh}` out), or install a key between the nodes"),
    (r"Could not resolve hostname (\S+)|Name or service not known|Temporary failure in name resolution", "a host name is not known on that node", "use addresses in the cluster file; a name that ends in `:2` is a hostfile of another MPI"),
    (r"(?:orted|prted)\b.*(?:not found|No such file)", "the MPI daemon is not where mpirun looks for it on that node", "give the absolute path of mpirun (`mpi: {path: …}`), the same on every node"),
    (r"token slots not supported", "a hostfile of Open MPI was given to MPICH's launcher", "set `mpi: {flavour: mpich}`, or use Open MPI's mpirun"),
    (r"not enough slots|All nodes which are allocated for this job are already filled", "more ranks than slots", "lower `ranks_per_node`, or raise `slots` in the cluster file"),
    (r"unable to (?:access or execute|find) (?:an|the) executable|execve\(\): .*No such file|could not execute the executable", "the program is missing on a node", "copy the program to every node, or put it under `files:` in the job file"),
    (r"No PMIx server was reachable", "the program's MPI finds no launcher of its kind: every rank believes it is alone", "start it with the mpirun of the same MPI; under Slurm `--mpi=pmix`"),
    (r"launcher not compatible with PMI1 client", "a program of MPICH was started by Open MPI's launcher", "set `mpi: {flavour: mpich}` and use its mpiexec"),
    (r"\b[Rr]ank 0(?:/| of )1\b|world[ _]size:? 1\b", "every rank believes it is alone: launcher and program are of different MPIs", "start it with the mpirun of the MPI that the program was built with"),
    (r"Framework: gds\s+Component: shmem2|gds.*shmem2", "the PMIx of launcher and program differ in version", "use the same MPI outside and inside the container"),
    (r"OPAL_PREFIX.*PMIX_INSTALL_PREFIX|conflicting directives", "variables of a second MPI leak into the job", "start from a clean environment: unset OPAL_PREFIX and PMIX_INSTALL_PREFIX"),
    (r"EADDRINUSE|errno:? ?-?98\b|[Aa]ddress already in use", "the port is taken by another process on that node", "start the job again: a new port is chosen; `ss -ltnp` names the process"),
    (r"RendezvousClosedError|RendezvousConnectionError", "another node's agent left the rendezvous first", "look at the other nodes: theirs is the first failure"),
    (r"Watchdog caught collective operation timeout", "some rank never came to a collective operation", "compare SeqNum between the ranks; the lens (`rankdeck inspect`) shows who is elsewhere"),
    (r"Read -1, expected|process_vm_readv.*returned -1", "single-copy between containers is refused: they are in different user namespaces", "Open MPI 4: `--mca btl_vader_single_copy_mechanism none`; 5: `--mca smsc ^cma`"),
    (r"Failed to create UCP worker|ibv_create_srq\(\) failed", "the network card cannot do what UCX asks for", "`mpi: {args: [--mca, pml, ob1]}`; harmless where the job goes on"),
    (r"CUDA out of memory|OutOfMemoryError|hipErrorOutOfMemory|CUDA_ERROR_OUT_OF_MEMORY", "the GPU's memory is full", "a smaller batch; `nvidia-smi` shows who else is on that GPU"),
    (r"CUDA error: .*(?:ECC|uncorrectable)|Uncorrectable ECC", "the GPU has a memory fault", "exclude that node and look at its health: the card wants a reset or a replacement"),
    (r"no kernel image is available|CUDA driver version is insufficient", "the program was built for another GPU or a newer driver", "an image that fits the driver on that node"),
    (r"NCCL WARN.*(?:Net|IB)|ncclSystemError|ncclRemoteError|NET/IB.*(?:failed|error)", "NCCL lost its network or a peer", "look at the other ranks and at the RDMA ports of both nodes; NCCL_DEBUG=INFO says more"),
    (r"No space left on device", "a disk is full on that node", "free space there; /dev/shm counts too (`--ipc=host` or a larger shm for containers)"),
    (r"Bus error.*shm|insufficient shared memory|unable to (?:open|mmap) shared memory", "/dev/shm is too small", "`--ipc=host` or a larger shm size for the container"),
    (r"ModuleNotFoundError: No module named '?([\w.]+)|ImportError:", "a Python module is missing on that node", "install it on every node, or use an image that has it"),
    (r"[Cc]ommand not found|: not found$", "a program is not on the PATH of that node", "give its absolute path, or set PATH in `environment` of the cluster file"),
    (r"\bloss (?:is|=) ?NaN|[Nn]on-finite loss", "the numbers of the training ran away", "a lower learning rate, or the data of that step; not a fault of the machine"),
    (r"[Cc]onnection (?:refused|reset by peer|timed out)", "a process on another node could not be reached or went away", "look at the other ranks first; else firewall and `network:` of the cluster file"),
    (r"no console started the daemon within", "no Rankdeck was there to start an MPI daemon", "keep the console open until all ranks have begun"),
)  # fmt: skip

STATUSES: dict[int, tuple[str, str]] = {
    126: ("the program may not be executed", "`chmod +x`, and no noexec mount"),
    127: ("the program was not found", "an absolute path; is it on every node?"),
    132: ("illegal instruction", "built for another CPU than this node's"),
    134: (
        "it aborted itself (SIGABRT)",
        "an assertion or MPI_Abort: see its last lines",
    ),
    135: ("bus error (SIGBUS)", "a full /dev/shm, or a file that shrank under mmap"),
    136: ("arithmetic error (SIGFPE)", "a division by zero: see its last lines"),
    137: (
        "it was killed (SIGKILL): out of memory, or by somebody",
        "the node's `dmesg` and memory.events say whether the kernel did it",
    ),
    139: ("segmentation fault (SIGSEGV)", "a bug, or a library of the wrong version"),
    143: (
        "it was told to end (SIGTERM)",
        "somebody else failed first, or cancelled it",
    ),
}
"""Exit statuses as a shell gives them."""
_COMPILED = tuple((re.compile(p), means, remedy) for p, means, remedy in MESSAGES)
_LONGEST = 500


def explain(lines: Iterable[str], status: int | None = None) -> tuple[Explained, ...]:
    """What these last lines and the exit status mean, the newest message first."""
    return _explain(tuple(line[:_LONGEST] for line in lines), status)


@lru_cache(maxsize=256)
def _explain(lines: tuple[str, ...], status: int | None) -> tuple[Explained, ...]:
    found: dict[str, Explained] = {}
    for line in reversed(lines):
        for pattern, means, remedy in _COMPILED:
            if means not in found and pattern.search(line):
                found[means] = Explained(means, remedy, line.strip())
    if status in STATUSES:
        means, remedy = STATUSES[status]
        found.setdefault(means, Explained(means, remedy))
    return tuple(found.values())[:MOST]
