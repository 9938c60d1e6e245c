"""Explains messages of launchers, MPI, torch, NCCL, containers and the kernel by one table. No I/O.

Patterns are searched in one line of at most 500 characters. The first row that matches a line explains it, so special
rows come before general ones. No quantifier is nested in another.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from rankdeck.model.job import Explained

_LONGEST = 500
_MOST_RANKS = 4096
_NUMBER = r"(\d{1,9})\b"
_RANKS = tuple(
    re.compile(pattern)
    for pattern in (
        # MPICH's "node" is the rank in MPI_COMM_WORLD; the rank after it may be that of another communicator.
        rf"\bAbort\(-?\d+\) on node {_NUMBER}",
        rf"\bMPI_ABORT was invoked on rank {_NUMBER}(?! in communicator (?!MPI_COMM_WORLD))",
        rf"^\s*Proc: \[\[\d+,\d+\],{_NUMBER}",
        rf"\bProcess name: \[[^\s\]]+\]?,{_NUMBER}\]",
        rf"\bprocess rank {_NUMBER} with PID",
        rf"\bRANK {_NUMBER} PID \d+ RUNNING AT",
        rf"\bCommunication error with rank {_NUMBER}",
        r"\bRanks? (\d[\d, ]*) failed to pass monitoredBarrier",
        r"\bsrun: error: [^\s:]+: tasks? \[?(\d[\d,-]*)\]?:",
    )
)
_PORT = r":\d{1,5}\b"
_ADDRESS = r"[0-9A-Fa-f:.]{3,45}(?:%\w{1,15})?"
_HOST = r"([\w.-]{1,253})"
_PEERS = tuple(
    re.compile(pattern)
    for pattern in (
        # Gloo and c10d; the address after `addr=` is the local end.
        rf"(?<!addr=)\[({_ADDRESS})\]{_PORT}",
        rf"\bconnect to \[{_HOST}\]{_PORT}",
        rf"\b(?:connect to|address of) \({_HOST}, \d+\)",
        # NCCL
        r"\b(?:[Cc]onnect to|recv from|send to|peer) ([^\s<>]{1,253})<\d+>",
        # Open MPI, MPICH, Slurm
        rf"^\s*(?:[Pp]eer(?: host| hostname)?|[Hh]ostname|Remote host):\s+{_HOST}(?:\s|$)",
        rf"\bRemote daemon: \S+ on node {_HOST}",
        rf"\bprocess rank \d+ with PID \d+ on node {_HOST}",
        rf"\bRUNNING AT {_HOST}",
        rf"\bsrun: error: {_HOST}: tasks? ",
        # UCX, libfabric, gRPC, ssh
        rf"\bdest_addr=({_ADDRESS}){_PORT}",
        rf"<-> ({_ADDRESS}){_PORT}",
        rf"\bremote peer \(({_ADDRESS}){_PORT}\)",
        rf"\bfi_sockaddr_in6?://\[?({_ADDRESS})\]?{_PORT}",
        rf"\bipv[46]:(?:\[|%5B)?({_ADDRESS})(?:\]|%5D)?{_PORT}",
        rf"\bssh: connect to host {_HOST} port \d",
        r"\b[Cc]ould not resolve hostname ([\w.-]{1,253})",
    )
)


@lru_cache(maxsize=8192)
def named_ranks(line: str) -> tuple[int, ...]:
    """The ranks that have failed or are missing according to this line, each once."""
    found: list[int] = []
    for pattern in _RANKS:
        for match in pattern.finditer(line[:_LONGEST]):
            found += _numbers(match[1])
    return tuple(dict.fromkeys(found))[:_MOST_RANKS]


@lru_cache(maxsize=8192)
def named_peers(line: str) -> tuple[str, ...]:
    """The addresses and host names of other nodes in a line, without their ports."""
    hits = (match for pattern in _PEERS for match in pattern.finditer(line[:_LONGEST]))
    found = (match[1].removeprefix("::ffff:").rstrip(".") for match in hits)
    return tuple(dict.fromkeys(name for name in found if name))


def _numbers(text: str) -> list[int]:
    """The numbers in `0`, `2, 5` or `0-3,7`; for a very long range only its two ends."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit():
            continue
        low, high = int(first[:9]), int(last[:9]) if last.isdigit() else int(first[:9])
        found += range(low, high + 1) if 0 <= high - low < _MOST_RANKS else (low, high)
    return found


_NOT_A_PART = r"(?<!local )(?<!local-)(?<!node )(?<!parallel )(?<!parallel-)(?<!group )(?<!stage )"
"""Excludes ranks within a part of the job, where one may be the only one: `local rank 0 of 1`."""
_NUMBER_ENDS = r"(?![\w/%]|[.,]\d)"
ALONE = (
    rf"{_NOT_A_PART}\b(?:[Rr]ank|RANK|[Pp]rocess|[Tt]ask)[ :=#]*0,? *(?:/|of|out of|from|size:?) *1{_NUMBER_ENDS}"
    rf"|{_NOT_A_PART}\b(?:[Ww]orld|WORLD|MPI|COMM_WORLD)[ _-][Ss](?:ize|IZE)[ :=]*(?:is )?1{_NUMBER_ENDS}"
    rf"|(?i:\b(?:number of|num|total) (?:MPI )?(?:processes|ranks|tasks|procs) *[:=]? *(?:is )?1{_NUMBER_ENDS})"
    rf"|(?i:\b(?:using|running on) +1 (?:MPI )?(?:process(?:es|ors?)?|procs?|ranks?|tasks?)\b)"
)
"""Matches output of a rank that believes it is alone: `rank 0 of 1`, `world size 1`, `running on 1 processor`."""
_ALONE = re.compile(ALONE)
_AMONG_OTHERS = re.compile(
    r"\b(?:[Rr]ank|RANK|[Pp]rocess|[Tt]ask)[ :=#]*\d{1,7},? *(?:/|of|out of|from|size:?) *(?:[2-9]|1\d)"
    r"|\b(?:[Ww]orld|WORLD|MPI|COMM_WORLD)[ _-][Ss](?:ize|IZE)[ :=]*(?:is )?(?:[2-9]|1\d)"
)
"""Matches output of a rank that knows of others."""
EVERY_RANK_ALONE = Explained(
    "every rank believes it is alone: launcher and program are of different MPIs",
    "start it with the mpirun of the MPI that the program was built with",
)


def believes_alone(ranks_lines: Mapping[int, Sequence[str]]) -> bool:
    """Whether at least two ranks wrote, and each that did says that it is the only one.

    Only for MPI jobs with several ranks; `ranks_lines` has the first or last lines of each rank.
    """
    wrote = [lines for lines in ranks_lines.values() if any(map(str.strip, lines))]
    return len(wrote) > 1 and all(map(_says_alone, wrote))


def lone_line(ranks_lines: Mapping[int, Sequence[str]]) -> str:
    """The first line in which a rank says that it is alone; "" if there is none."""
    lines = (line for rank in sorted(ranks_lines) for line in ranks_lines[rank])
    return next((line.strip() for line in lines if _ALONE.search(line[:_LONGEST])), "")


def _says_alone(lines: Iterable[str]) -> bool:
    short = [line[:_LONGEST] for line in lines]
    if any(_AMONG_OTHERS.search(line) for line in short):
        return False
    return any(_ALONE.search(line) for line in short)


class MessageKind(StrEnum):
    """What a line says about who failed."""

    OWN = "own"
    """The rank's own fault."""
    PEER = "peer"
    """Another process went away or did not answer."""
    TIMEOUT = "timeout"
    """It waited for others and timed out."""
    TERMINATED = "terminated"
    """It was told to end."""
    HOST = "host"
    """The node: disk, memory, device."""
    START = "start"
    """Set-up: names, ports, images, MPI flavour."""


class Message(NamedTuple):
    """One row: the pattern of a line, its kind, what it means, what to try."""

    pattern: str
    kind: MessageKind
    means: str
    remedy: str


OWN, PEER, TIMEOUT, TERMINATED, HOST, START = MessageKind
OF_OTHERS = frozenset({PEER, TERMINATED})
"""Kinds that are left out when the same end has another explanation."""
_OTHERS_FIRST = "look at the other ranks: theirs is the first failure"
_LET_US_START = "let Rankdeck start the daemons: take `launcher: ssh` out of `mpi`"
_NOTHING_MORE = r"(?=\s*(?:$|[.,;:!)\]'\"\[(]))"
"""The message must end here: `connection refused rate 0.1` is not an error."""

_START_OF_RANKS = (
    Message(r"Argument list too long", START, "its arguments and variables are longer than the system takes (128 KiB for one of them)", "put the text into a file: `files` in the job file"),
    Message(r"cannot start: there is no folder ", START, "its working directory is not there on that node", "make it on every node, or set `workdir`"),
    Message(r"Host key verification failed", START, "a node does not know the host key of another node", f"{_LET_US_START}, or add the key to known_hosts on that node"),
    Message(r"Permission denied \(publickey", START, "a node has no key for another node", f"{_LET_US_START}, or install a key between the nodes"),
    Message(r"Could not resolve hostname \S+:\d", START, "a hostfile of another MPI: the `:2` behind a host name is its number of slots", "set `mpi.flavour` to the MPI that starts the ranks"),
    Message(r"Could not resolve hostname|Name or service not known|[Tt]emporary failure in name resolution|No address associated with hostname", START, "a host name is not known on that node", "give the nodes an `address` in the cluster file, or add the name to /etc/hosts there"),
    Message(r"(?:orted|prted)\b.*(?:not found|No such file)", START, "the MPI daemon is not where mpirun looks for it on that node", "give the absolute path of mpirun by `mpi.path`; it must be the same on every node"),
    Message(r"token slots not supported", START, "a hostfile of Open MPI was given to MPICH's launcher", "set `mpi.flavour` to mpich, or use Open MPI's mpirun"),
    Message(r"not enough slots|All nodes which are allocated for this job are already filled", START, "more ranks than slots", "lower `ranks_per_node`, or raise `slots` in the cluster file"),
    Message(r"unable to (?:access or execute|find) (?:an|the) executable|unable to launch the specified application|execve\(\): .*No such file|could not execute the executable|execvp error on file", START, "the program is missing on a node", "copy the program to every node, or put it under `files` in the job file"),
    Message(r"No PMIx server was reachable|PMIx server (?:is )?(?:unreachable|not reachable)|PMIX ERROR:? (?:PMIX_ERR_)?UNREACH", START, "the program's MPI finds no launcher of its kind: every rank believes it is alone", "start it with the mpirun of the same MPI; under Slurm use `--mpi=pmix`"),
    Message(r"launcher not compatible with PMI1 client", START, "a program of MPICH was started by Open MPI's launcher", "set `mpi.flavour` to mpich and use its mpiexec"),
    Message(ALONE, START, "the rank believes it is alone", "if the job has more ranks, launcher and program are of different MPIs: start it with the mpirun of the program's MPI"),
    Message(r"PMIX ERROR: .*FILE_OPEN_FAILURE.*\bgds_", START, "the rank cannot map the shared memory of the launcher's PMIx: the container does not have its files", "set PMIX_MCA_gds=hash in `env`"),
    Message(r"Framework: gds\s+Component: shmem2|gds.*shmem2", START, "the PMIx of launcher and program differ in version", "use the same MPI outside and inside the container"),
    Message(r"OPAL_PREFIX.*PMIX_INSTALL_PREFIX|conflicting directives", START, "variables of a second MPI leak into the job", "start from a clean environment: unset OPAL_PREFIX and PMIX_INSTALL_PREFIX"),
    Message(r"No components were able to be opened in the \w+ framework|PML \w+ cannot be selected", START, "the MPI lacks the transport that the job asks for", "take that `--mca` out of `mpi.args`, or install the MPI with it"),
    Message(r"Missing privilege separation directory|sshd: no hostkeys available", START, "sshd cannot start in this image", "build into the image: `mkdir -p /run/sshd && ssh-keygen -A`"),
    Message(r"A daemon failed to report back after being spawned|unable to reliably start one or more daemons", START, "an MPI daemon did not come up on a node", "read the lines above it; else a firewall, or another MPI on that node"),
    Message(r"rankdeck: preflight: not every node is fit", START, "the job's first step found a bad node; no rank was started", "read the lines above it; leave the node out with `exclude` under `slurm:`, and have it looked at"),
    Message(r"no console started the daemon within", START, "no Rankdeck was there to start an MPI daemon", "keep the console open until all ranks have begun"),
)  # fmt: skip

_MPI = (
    Message(r"has lost communication with a remote daemon|lost communication with (?:a remote|its) daemon|LOST_CONNECTION|my daemon died|HYD_pmci_wait_for_completion|control_cb .*assert \(!closed\) failed", PEER, "the launcher lost its daemon on a node", "is that node up? look at its health and kernel log; else the daemon was killed"),
    Message(r"An error occurred in Socket closed", PEER, "another rank went away: its connection closed", _OTHERS_FIRST),
    Message(r"noticed that process rank \d+ .* exited on|exited due to process rank \d+ |= +BAD TERMINATION OF ONE OF YOUR|one or more processes exited with non-zero status|\d+ process(?:es)? returned$|failed \(exitcode: -?\d+\) local_rank: \d+|\bChildFailedError\b", PEER, "the launcher ended the job: a rank had failed", "look at the rank that it names"),
    Message(r"EXIT STRING: Killed|process killed \(SIGKILL\)", PEER, "a rank was killed: out of memory, or by somebody", "look at the kernel log of its node"),
    Message(r"Message truncated|MPI_ERR_TRUNCATE", OWN, "a message was longer than the buffer of its receiver", "a bug in the program: counts or types of send and receive differ"),
    Message(r"application called MPI_Abort|MPI_ABORT was invoked on rank", OWN, "the program itself ended the job by MPI_Abort", "read what that rank wrote before"),
    Message(r"(?:Fatal error in|error stack).*(?:[Pp]roc(?:ess)? failed|Connection reset|connection closed|Broken pipe)|MPIX?_ERR_PROC_FAILED|Communication error with rank \d+", PEER, "MPI lost a rank", _OTHERS_FIRST),
    Message(r"Fatal error in (?!\w*MPI_Init|internal_Init)\w+: (?:Other MPI error|Unknown error class)|Failure during collective", PEER, "a call that needs other ranks failed: one of them is gone", _OTHERS_FIRST),
    Message(r"\bAbort\(\d+\) on node \d+ \(rank \d+|Fatal error in (?:P?MPI|internal)_|\*\*\* An error occurred in MPI_", OWN, "an MPI call failed", "read the rest of the line and the lines around it"),
    Message(r"Assertion failed in file \S+ at line \d+", OWN, "an assertion inside MPI failed", "usually the program overwrote memory, or two versions of the MPI are mixed"),
    Message(r"UCX +(?:ERROR|WARN|FATAL).*(?:reset by remote peer|dropped by the peer|closed by the peer|failed: Connection (?:refused|reset))|Connection reset by remote peer", PEER, "UCX lost another rank", _OTHERS_FIRST),
    Message(r"unhandled timeout error|[Ee]ndpoint timeout|UCX +(?:ERROR|WARN).*timed out|transport retry (?:count|counter) exceeded|IBV_WC_RETRY_EXC_ERR", TIMEOUT, "the network gave up: the other side did not answer", "look at the other ranks, then at link and error counters of both nodes"),
    Message(r"mca_btl_tcp\w*.*(?:readv|writev|recv|connect)\S* failed|peer process has unexpectedly disconnected|failed to TCP connect to a peer|remote peer unexpectedly closed", PEER, "MPI lost the TCP connection to another rank", _OTHERS_FIRST),
    Message(r"Read -1, expected|process_vm_readv.*returned -1", START, "single-copy between containers is refused: they are in different user namespaces", "Open MPI 4: `--mca btl_vader_single_copy_mechanism none`; 5: `--mca smsc ^cma`"),
    Message(r"ibv_reg_mr.*Cannot allocate memory|max locked memory|UCX +(?:ERROR|WARN).*memlock|[Uu]nable to (?:register|lock) memory", HOST, "the limit of locked memory is too low for RDMA", "raise `memlock` on that node: /etc/security/limits.d, and `LimitMEMLOCK=infinity` for sshd"),
    Message(r"no active (?:IB )?ports?\b|[Nn]o active IB", HOST, "no RDMA port of that node is up", "look at `ibstat` there: cable, switch port, subnet manager"),
    Message(r"(?i:(?:invalid|no valid|unable|fail|could).*\bGID index\b|\bGID index\b.*(?:invalid|not valid|not found|out of range|fail))", START, "the RDMA port has no such GID", "take NCCL_IB_GID_INDEX out and NCCL chooses; `show_gids` lists the GIDs"),
    Message(r"Failed to create UCP worker|ibv_create_srq\(\) failed", START, "the network card cannot do what UCX asks for", "`mpi: {args: [--mca, pml, ob1]}`; harmless where the job goes on"),
)  # fmt: skip

_NCCL = (
    Message(r"Watchdog caught collective operation timeout", TIMEOUT, "a collective operation timed out: some rank never joined it", "compare SeqNum between the ranks; `rankdeck inspect` shows who is elsewhere"),
    Message(r"no socket interface found|No interface found in the same subnet", START, "NCCL found no usable network interface", "leave NCCL_SOCKET_IFNAME out, and name the `interface` in the cluster file"),
    Message(r"(?i:mismatched NCCL version|NCCL version mismatch)", START, "the ranks run different versions of NCCL", "the same image or the same installation on every node"),
    Message(r"peer mapping resources exhausted", HOST, "too many GPUs in one process: they cannot all map each other", "fewer GPUs per process, or NCCL_P2P_DISABLE=1"),
    Message(r"CUDA out of memory|\bOutOfMemoryError|hipErrorOutOfMemory|CUDA_ERROR_OUT_OF_MEMORY|Cuda failure (?:\d+ )?'out of memory'|ResourceExhaustedError|RESOURCE_EXHAUSTED: ", OWN, "the GPU is out of memory", "a smaller batch; `nvidia-smi` shows who else is on that GPU"),
    Message(r"CUDA error: .*(?:ECC|uncorrectable)|[Uu]ncorrectable ECC|NVRM: Xid|fallen off the bus", HOST, "the GPU has a fault", "leave that node out and look at its health: the card wants a reset or a replacement"),
    Message(r"no kernel image is available|CUDA driver version is insufficient", START, "the program was built for another GPU or a newer driver", "use an image that fits the driver on that node"),
    Message(r"No CUDA GPUs are available|no CUDA-capable device|CUDA_ERROR_NO_DEVICE", HOST, "the rank finds no GPU", "`nvidia-smi` on that node; in a container: `gpu: nvidia`; CUDA_VISIBLE_DEVICES"),
    Message(r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE", OWN, "the rank asks for a GPU with a number that the node does not have", "fewer ranks per node, or the local rank modulo the number of GPUs; CUDA_VISIBLE_DEVICES"),
    Message(r"Duplicate GPU detected", OWN, "two ranks use the same GPU", "one GPU per rank: torch.cuda.set_device(LOCAL_RANK), no more ranks per node than GPUs, CUDA_VISIBLE_DEVICES"),
    Message(r"device-side assert triggered|illegal memory access|CUBLAS_STATUS_|CUDNN_STATUS_", OWN, "a computation on the GPU failed", "look at index and label ranges; CUDA_LAUNCH_BLOCKING=1 names the line"),
    Message(r"remote process exited or there was a network error|ncclRemoteError|Connection closed by remote peer|NCCL WARN.*Call to (?:recv|send) (?:from|to) .*failed", PEER, "NCCL lost another rank", _OTHERS_FIRST),
    Message(r"Call to connect (?:returned|to .* failed)|NCCL WARN.*\bConnect to \S+ failed|socketPollConnect|NCCL .*failed to connect", PEER, "NCCL does not reach another rank", "look at that rank first; else firewall, `network` and `interface` in the cluster file"),
    Message(r"Got completion (?:from peer|with)|NET/IB.*(?:failed|error)", PEER, "NCCL lost the RDMA connection to another rank", "look at the other rank, then at the RDMA ports of both nodes"),
    Message(r"unhandled system error|ncclSystemError|NCCL WARN.*(?:Net|IB)", PEER, "NCCL lost its network or a peer", "look at the other ranks and at the ports of both nodes; NCCL_DEBUG=INFO says more"),
)  # fmt: skip

_TORCH = (
    Message(r"[Uu]nable to find address for:|[Nn]o such device.*(?:SO_BINDTODEVICE|interface)|Unable to find interface", START, "the network interface of that name is not there", "leave GLOO_SOCKET_IFNAME out, and name the `interface` of that node in the cluster file"),
    Message(r"EADDRINUSE|errno:? ?-?98\b|[Aa]ddress already in use", START, "the port is taken by another process on that node", "`ss -ltnp` there names the process: end it, or choose another port; torchrun without `torch.port` is given a free one"),
    Message(r"RendezvousClosedError|RendezvousConnectionError", PEER, "another node's agent left the rendezvous first", "look at the other nodes: theirs is the first failure"),
    Message(r"RendezvousTimeoutError|client socket has timed out|socket has timed out after|failed to connect to any network address", TIMEOUT, "rank 0 did not answer at its address and port", "does rank 0 run? is its address right, does its name resolve, is the port open?"),
    Message(r"successfully reached monitoredBarrier, but", PEER, "rank 0 gave up at a barrier", "rank 0 names the rank that is missing"),
    Message(r"failed to pass monitoredBarrier", TIMEOUT, "a rank did not reach a barrier", "look at the rank that the line names"),
    Message(r"Timed out waiting \d+ms for|wait timeout after \d+ms|waitForInput: .*timed out|Timeout waiting for key|Socket Timeout\b", TIMEOUT, "it timed out waiting for another rank", "see which rank is behind: `rankdeck inspect` shows who is elsewhere"),
    Message(r"Connection closed by peer \[|Read error \[|Write error \[|Application timeout caused pair closure", PEER, "another rank went away", _OTHERS_FIRST),
    Message(r"Connect timeout \[|connect\S* timed out.*\[", TIMEOUT, "another rank could not be reached", "is it up? else firewall, `network` and `interface` in the cluster file"),
    Message(r"Dist(?:Network|Store)Error: (?:Broken pipe|failed to recv|Connection)|(?:sendBytes|recvValue|recvVector|recvBytes) failed|failed to recv, got 0 bytes", PEER, "the process that keeps the rendezvous (rank 0) went away", "look at rank 0: its failure is the first"),
    Message(r"No backend type associated|doesn't have \w+ built in|Backend \w+ does not (?:support|implement)", START, "this torch cannot do collectives on that device", "gloo for the CPU, nccl for the GPU; `init_process_group` must name the one that is there"),
    Message(r"DataLoader worker \(pid\S* [^)]*\) (?:is killed by signal: Bus error|exited unexpectedly with exit code: 135)|Bus error.*shm|insufficient shared memory|unable to (?:open|mmap) shared memory", HOST, "/dev/shm is too small", "`--ipc=host` or a larger shm size for the container"),
    Message(r"DataLoader worker \(pid\S* [^)]*\) (?:is killed by signal|exited unexpectedly)", OWN, "a data loader process was killed", "usually out of memory: use fewer workers; the node's kernel log says"),
    Message(r"received 0 items of ancdata|Too many open files|\[Errno 24\]|shared object file: Error 24", HOST, "too many open files", "raise `ulimit -n`; with torch: `set_sharing_strategy('file_system')`"),
    Message(r"unexpected pos \d+ vs \d+|PytorchStreamWriter failed writing file|basic_ios::clear: iostream error", HOST, "a checkpoint could not be written, usually a full disk", "`df` on that node at the place of the checkpoint"),
    Message(r"Collective ops is aborted by|UNAVAILABLE: .*(?:Connection|Socket|failed to connect)", PEER, "another TensorFlow worker went away or is not up", "look at the other workers: theirs is the first failure"),
    Message(r"Signal (?:15|2) \(SIG\w+\) received by PID|Sending process \d+ closing signal SIG", PEER, "torchrun ended the other ranks after the first failure", "look at the rank that it names under `Root Cause`"),
    Message(r"got signal: (?:15|2)\b|Received (?:15|2|SIGTERM|SIGINT) death signal|^Terminated\s*$", TERMINATED, "it was told to end", "somebody cancelled it, or another rank had failed"),
    Message(r"^(?:\[rank\d+\]: ?)?KeyboardInterrupt\b", TERMINATED, "it was interrupted (SIGINT)", "somebody pressed Ctrl-C, or cancelled it"),
    Message(r"\b[Ll]oss(?: is| =|:|=)? *[Nn]a[Nn](?![\w-])|[Nn]on-finite loss", OWN, "the loss is not a number", "a lower learning rate, or the data of that step; not a fault of the machine"),
)  # fmt: skip

_BOXES = (
    Message(r"Detected \d+ oom[_-]kill event|task \d+: Out Of Memory|(?:Out of memory|out of memory): Killed process|oom-kill:", HOST, "the kernel killed a process: out of memory", "more memory for the job, or less per rank; see who else is on the node"),
    Message(r"DUE TO TIME LIMIT", TERMINATED, "Slurm ended the job: its time was up", "ask for more time, or go on from a checkpoint"),
    Message(r"DUE TO PREEMPTION", TERMINATED, "Slurm ended the job for one of higher priority", "start it again, or ask for a partition that is not preempted"),
    Message(r"DUE TO NODE FAILURE|DUE TO NODE_FAIL", HOST, "a node failed under the job", "leave that node out and look at its health"),
    Message(r"slurmstepd(?:-[\w.-]+)?: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED", TERMINATED, "Slurm cancelled the job", "somebody called scancel, or another task had failed"),
    Message(r"pyxis: --container-mounts: source path does not exist", START, "a folder of `container.mounts` is not on that node", "correct `container.mounts`, or make the folder on every node"),
    Message(r"pyxis: .*Invalid image format", START, "the file of `container.image` is not an image that Enroot can read", "make it with `enroot import` or `mksquashfs`; was it copied whole?"),
    Message(r"pyxis: couldn't chdir to ", START, "the working folder is not in the image", "correct `container.workdir`, or mount that folder"),
    Message(r"Command not found: nvidia-container-cli", START, "the container cannot have the GPUs: libnvidia-container is not on that node", "leave the node out until it is installed there, or run without `container.gpu`"),
    Message(r"pyxis: .*Command not found: ", START, "a program that Enroot needs is not on that node", "leave the node out until it is installed there"),
    Message(r"unrecognized option '--container-(?:image|mounts|env)", START, "Slurm there has no Pyxis, which opens the image", "ask its administrators, or use `runtime: apptainer` or `podman`"),
    Message(r"pyxis: .*(?:failed to import|importing .*failed|couldn't start container|container start failed|failed to create container)|enroot-\w+: failed to", START, "Slurm could not start the container", "the lines of pyxis below it say why; try `enroot import` there by hand"),
    Message(r"FATAL:\s+(?:could not open image|.*failed to retrieve path|Unable to (?:handle|open))|[Nn]o such image|image not known|manifest unknown|pull access denied|No such file or directory: \S+\.sqsh", START, "the image is not on that node", "correct `container.image`; `rankdeck images` shows where it is"),
    Message(r"squashfuse.*(?:not found|fail|error|denied)|container creation failed|failed to create user namespace|[Cc]reating? user namespace.*(?:denied|not permitted)|unshare\S*: Operation not permitted", START, "the container does not start on that node", "user namespaces or /dev/fuse are not allowed there: run `rankdeck preflight` on the job"),
)  # fmt: skip

_NODE = (
    Message(r"runs on, but .* is gone \(removed", HOST, "what the job kept on that node was removed, or its file system is not mounted; its processes may still run", "`rankdeck cancel` ends what runs there; without the folder its output is lost"),
    Message(r"No space left on device|ENOSPC\b", HOST, "a disk is full on that node", "free space there; /dev/shm counts too (`--ipc=host` or a larger shm for containers)"),
    Message(r"Disk quota exceeded|EDQUOT\b", HOST, "the user's quota on that disk is used up", "`quota -s`; delete old checkpoints or write elsewhere"),
    Message(r"Stale (?:NFS )?file handle|ESTALE\b", HOST, "stale file handle: the file server restarted, or the file was replaced", "mount it again on that node"),
    Message(rf"Input/output error{_NOTHING_MORE}|I/O error, dev ", HOST, "input/output error of a disk or a network file system", "look at the kernel log of that node; leave the node out"),
    Message(rf"Read-only file system{_NOTHING_MORE}", HOST, "the place to write to is read-only on that node", "write elsewhere, or mount it there; a disk with errors turns read-only by itself"),
    Message(r"Text file busy", HOST, "a program was replaced while it ran", "copy it under a new name and rename it, or wait until nobody runs it"),
    Message(r"Exec format error", START, "the program is not for this CPU, or a script without `#!`", "build it for the machine of that node"),
    Message(r"version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found", START, "the program was built on a newer system than that node's", "build it there, or run it in an image"),
    Message(r"cannot open shared object file", START, "a library is missing on that node", "install it there, or set LD_LIBRARY_PATH in `env` of the job"),
    Message(r"Illegal instruction\b|signal: illegal instruction", START, "illegal instruction: the program was built for another CPU", "build it for the oldest CPU among the nodes"),
    Message(r"std::bad_alloc|^(?:\[rank\d+\]: ?)?MemoryError\b|_ArrayMemoryError|DefaultCPUAllocator: can't allocate|Cannot allocate memory|ENOMEM\b", HOST, "no memory was left for it on that node", "fewer ranks per node or a smaller problem; see who else uses the memory"),
    Message(r"can't start new thread|fork: (?:retry: )?Resource temporarily unavailable|BlockingIOError: \[Errno 11\]|pthread_create.*(?:failed|EAGAIN|Resource temporarily)|libgomp: Thread creation failed", HOST, "no more processes or threads can be started", "raise `ulimit -u` or pids.max of the cgroup; fewer threads: OMP_NUM_THREADS"),
    Message(rf"PermissionError: |: Permission denied{_NOTHING_MORE}|failed: Permission denied", HOST, "permission denied for a file or program", "compare owner and mode on the nodes; a program wants `chmod +x` and no noexec mount"),
    Message(r"(?i:clock skew detected)|certificate is not yet valid|certificate has expired", HOST, "the clock of that node is wrong", "`timedatectl` there: switch time synchronisation on"),
    Message(r"Network is unreachable|ENETUNREACH\b", START, "that node has no route to the other one", "`ip route` there; `network` and `interface` in the cluster file"),
    Message(r"No route to host|EHOSTUNREACH\b", PEER, "another node does not answer", "is it up? else a firewall"),
    Message(r"ConnectionRefusedError|(?:[:\]\-(]\s?|by |\()[Cc]onnection refused" + _NOTHING_MORE, PEER, "connection refused: the other process has ended or is not up yet", "look at the other ranks first; else firewall and `network` in the cluster file"),
    Message(r"ConnectionResetError|BrokenPipeError|(?:[:\]\-(]\s?)(?:[Cc]onnection reset by peer|Broken pipe)" + _NOTHING_MORE + r"|\bSocket closed$", PEER, "a process on another node went away", _OTHERS_FIRST),
    Message(r"(?:[:\]\-(]\s?)[Cc]onnection timed out" + _NOTHING_MORE, TIMEOUT, "a process on another node did not answer", "look at the other ranks first; else firewall and `network` in the cluster file"),
    Message(r"\bdo_signal_stop\b", OWN, "the process is stopped (SIGSTOP): it waits for SIGCONT", "`kill -CONT` with its pid lets it go on; ask who stopped it"),
    Message(r"No module named |\bImportError: ", START, "a Python module is missing on that node", "install it on every node, or use an image that has it"),
    Message(r"\bsh: .*: not found$|: \d+: [^:]+: not found$|[Cc]ommand not found|\benv: .*No such file or directory", START, "a program is not on the PATH of that node", "use its absolute path, or set PATH in `environment` of the cluster file"),
)  # fmt: skip

_PROGRAM = (
    Message(r"Caught signal 11|Signal: Segmentation fault|\bSegmentation fault\b|segfault at |SIGSEGV", OWN, "segmentation fault (SIGSEGV)", "a bug, or a library of the wrong version"),
    Message(r"Assertion `.*' failed|double free or corruption|stack smashing detected|free\(\): invalid|malloc\(\): |corrupted size vs", OWN, "the program detected an error and aborted", "a bug: the line says where it was noticed"),
    Message(r"Fortran runtime error|forrtl: (?:severe|error)|terminate called after throwing|Floating point exception", OWN, "the program ended by an error of its own", "read the line and those around it"),
    Message(r"\bRecursionError\b", OWN, "a Python function calls itself without end", "a bug: the traceback shows which"),
    Message(r"\bFileNotFoundError\b", OWN, "a file is missing on that node", "copy it to every node, or mount it by `container.mounts`"),
    Message(r"^(?:\[rank\d+\]: ?)?(?:Key|Value|Type|Attribute|Index|Name|Assertion|ZeroDivision|Syntax|NotImplemented|UnboundLocal|UnicodeDecode)Error\b", OWN, "the Python program ended by an error of its own", "read the traceback above the line"),
)  # fmt: skip

MESSAGES: tuple[Message, ...] = (
    *_START_OF_RANKS, *_MPI, *_NCCL, *_TORCH, *_BOXES, *_NODE, *_PROGRAM,
)  # fmt: skip

HARMLESS = r"NCCL INFO NET/Plugin|client socket has failed to connect to \[|libnccl-net\S*: cannot open|ORTE_ERROR_LOG: .*show_help|Authorization required, but no authorization protocol"
"""Matches lines that look like errors but appear in healthy runs."""

STATUSES: dict[int, tuple[str, str]] = {
    14: ("with Open MPI: another rank or the launcher went away", "look at the other ranks: theirs is the first failure"),
    126: ("the program may not be executed", "`chmod +x`, and no noexec mount"),
    127: ("the program was not found", "give its absolute path; is it on every node?"),
    132: ("illegal instruction: the program was built for another CPU", "build it for the oldest CPU among the nodes"),
    134: ("it aborted itself (SIGABRT)", "an assertion or MPI_Abort: see its last lines"),
    135: ("bus error (SIGBUS)", "a full /dev/shm, or a file that shrank under mmap"),
    136: ("arithmetic error (SIGFPE)", "a division by zero: see its last lines"),
    137: ("it was killed (SIGKILL): out of memory, or by somebody", "the node's `dmesg` and memory.events say whether the kernel did it"),
    139: ("segmentation fault (SIGSEGV)", "a bug, or a library of the wrong version"),
    143: ("it was told to end (SIGTERM)", "somebody else failed first, or cancelled it"),
}  # fmt: skip
"""Exit status as in a shell -> (what it means, what to try)."""
STATUSES_OF_OTHERS = frozenset({14, 143})


MOST = 4
"""Most explanations of one failure: more would hide the first."""
_COMPILED = tuple((re.compile(row.pattern), row) for row in MESSAGES)
_HARMLESS = re.compile(HARMLESS)


def explain(lines: Iterable[str], status: int | None = None) -> tuple[Explained, ...]:
    """What these last lines and the exit status mean, newest line first; at most MOST explanations.

    Messages that only say that others failed, or that the rank was told to end, come last.
    """
    own: dict[str, Explained] = {}
    others: dict[str, Explained] = {}
    for row, line in _known(lines):
        found = others if row.kind in OF_OTHERS else own
        found.setdefault(row.means, Explained(row.means, row.remedy, line))
    if status in STATUSES:
        means, remedy = STATUSES[status]
        found = others if status in STATUSES_OF_OTHERS else own
        found.setdefault(means, Explained(means, remedy))
    return (*own.values(), *others.values())[:MOST]


def kinds_of(lines: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """(value of `MessageKind`, line) for each line that the table knows, newest first."""
    return tuple((row.kind.value, line) for row, line in _known(lines))


def _known(lines: Iterable[str]) -> Iterable[tuple[Message, str]]:
    """The lines that the table knows, newest first, each with its row."""
    for line in reversed([line[:_LONGEST].strip() for line in lines]):
        row = _row(line)
        if row is not None:
            yield row, line


@lru_cache(maxsize=4096)
def _row(line: str) -> Message | None:
    """The first row of the table that matches a line; cached, because many ranks print the same."""
    if not line or _HARMLESS.search(line):
        return None
    return next((row for pattern, row in _COMPILED if pattern.search(line)), None)
