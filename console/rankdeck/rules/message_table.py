"""What lines of launchers, MPI, torch, NCCL, containers and the kernel mean: one record each. No I/O.

Patterns are searched in one line of at most 500 characters. The first row that matches a line explains it, so special
rows come before general ones. No quantifier is nested in another. Tests run every row through its example.
"""

from enum import StrEnum
from typing import NamedTuple


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
    SERVICE = "service"
    """A service outside the job did not answer: no rank did that."""


class Message(NamedTuple):
    """One row."""

    pattern: str
    """Of a line that it explains."""
    kind: MessageKind
    means: str
    remedy: str
    example: str
    """A line that it explains."""
    general: bool = False
    """Whether it is said under many causes: any other row comes before it."""
    warned: bool = False
    """Whether it explains also where it is a warning; a warning never decides who failed."""


OWN, PEER, TIMEOUT, TERMINATED, HOST, START, SERVICE = MessageKind
OF_OTHERS = frozenset({PEER, TERMINATED})
"""Kinds that are left out when the same end has another explanation."""
_OTHERS_FIRST = "look at the other ranks: theirs is the first failure"
_LET_US_START = "let Rankdeck start the daemons: take `launcher: ssh` out of `mpi`"
_NOTHING_MORE = r"(?=\s*(?:$|[.,;:!)\]'\"\[(]))"
"""The message must end here: `connection refused rate 0.1` is not an error."""

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
_START_OF_RANKS = (
    Message(r"At least one pair of MPI processes are unable to reach each other|unable to reach each other for MPI communications", START, "two ranks share no network that this MPI can use", "`interface` of the nodes in the cluster file; with Open MPI: `--mca btl tcp,self` and `btl_tcp_if_include` in `mpi.args`", "At least one pair of MPI processes are unable to reach each other for"),
    Message(r"cannot open file HPL\.dat|[Ii]llegal input in file HPL\.dat|HPL ERROR from process|Need at least \d+ processes for these tests", START, "HPL cannot use its HPL.dat: it is missing, or P x Q does not fit the ranks", "put HPL.dat into the working folder of every node (`files` in the job file), with P x Q = number of ranks", "HPL ERROR from process # 0, on line 321 of function HPL_pdinfo: cannot open file HPL.dat"),
    Message(r"Argument list too long", START, "its arguments and variables are longer than the system takes (128 KiB for one of them)", "put the text into a file: `files` in the job file", "rank 0 cannot start: Argument list too long"),
    Message(r"cannot start: there is no folder ", START, "its working directory is not there on that node", "make it on every node, or set `workdir`", "rank 0 cannot start: there is no folder /scratch/run7 on n1"),
    Message(r"Host key verification failed", START, "a node does not know the host key of another node", f"{_LET_US_START}, or add the key to known_hosts on that node", "Host key verification failed."),
    Message(r"Permission denied \(publickey", START, "a node has no key for another node", f"{_LET_US_START}, or install a key between the nodes", "root@n2: Permission denied (publickey,password)."),
    Message(r"Could not resolve hostname \S+:\d", START, "a hostfile of another MPI: the `:2` behind a host name is its number of slots", "set `mpi.flavour` to the MPI that starts the ranks", "ssh: Could not resolve hostname n2:2: Name or service not known"),
    Message(r"Could not resolve hostname|Name or service not known|[Tt]emporary failure in name resolution|No address associated with hostname", START, "a host name is not known on that node", "give the nodes an `address` in the cluster file, or add the name to /etc/hosts there", "socket.gaierror: [Errno -2] Name or service not known"),
    Message(r"(?:orted|prted)\b.*(?:not found|No such file)", START, "the MPI daemon is not where mpirun looks for it on that node", "give the absolute path of mpirun by `mpi.path`; it must be the same on every node", "bash: line 1: orted: command not found"),
    Message(r"token slots not supported", START, "a hostfile of Open MPI was given to MPICH's launcher", "set `mpi.flavour` to mpich, or use Open MPI's mpirun", "[mpiexec@n1] token slots not supported at this time"),
    Message(r"not enough slots|All nodes which are allocated for this job are already filled", START, "more ranks than slots", "lower `ranks_per_node`, or raise `slots` in the cluster file", "There are not enough slots available in the system to satisfy the 300"),
    Message(r"unable to (?:access or execute|find) (?:an|the) executable|unable to launch the specified application|execve\(\): .*No such file|could not execute the executable|execvp error on file", START, "the program is missing on a node", "copy the program to every node, or put it under `files` in the job file", "slurmstepd: error: execve(): /opt/app: No such file or directory"),
    Message(r"No PMIx server was reachable|PMIx server (?:is )?(?:unreachable|not reachable)|PMIX ERROR:? (?:PMIX_ERR_)?UNREACH", START, "the program's MPI finds no launcher of its kind: every rank believes it is alone", "start it with the mpirun of the same MPI; under Slurm use `--mpi=pmix`", "PMIx server unreachable"),
    Message(r"launcher not compatible with PMI1 client", START, "a program of MPICH was started by Open MPI's launcher", "set `mpi.flavour` to mpich and use its mpiexec", "launcher not compatible with PMI1 client"),
    Message(ALONE, START, "the rank believes it is alone", "if the job has more ranks, launcher and program are of different MPIs: start it with the mpirun of the program's MPI", "Hello from rank 0 of 1"),
    Message(r"PMIX ERROR: .*FILE_OPEN_FAILURE.*\bgds_", START, "the rank cannot map the shared memory of the launcher's PMIx: the container does not have its files", "set PMIX_MCA_gds=hash in `env`", "[n2:00507] PMIX ERROR: PMIX_ERR_FILE_OPEN_FAILURE in file ../../../../../../src/mca/gds/shmem2/gds_shmem2.c at line 1056"),
    Message(r"OFI poll failed|OFI [\w ]*failed.*(?:Connection|Transport|Broken pipe)", PEER, "libfabric lost another rank", _OTHERS_FIRST, "MPIDI_OFI_handle_cq_error(1042): OFI poll failed (ofi_events.c:1042:MPIDI_OFI_handle_cq_error:Connection reset by peer)"),
    Message(r"fi_getinfo\W|failed \(ofi_init\.c:|OFI (?:addrinfo|endpoint open|fabric open|domain open|call \w+)\S* failed|open_fabric\W|No OFI provider|no (?:suitable |usable )?(?:libfabric |OFI )?providers? (?:was |were )?found|PSM[23]? (?:can't|could not|was unable to) open", START, "libfabric (OFI) finds no provider on that node: its network card or its driver", "`fi_info` there; compare its FI_PROVIDER and libfabric with the other nodes; FI_PROVIDER=tcp goes without the card", "open_fabric(2713)............: OFI fi_getinfo() failed (ofi_init.c:2713:open_fabric:No data available)"),
    Message(r"Framework: gds\s+Component: shmem2|gds.*shmem2", START, "the PMIx of launcher and program differ in version", "use the same MPI outside and inside the container", "Framework: gds  Component: shmem2"),
    Message(r"OPAL_PREFIX.*PMIX_INSTALL_PREFIX|conflicting directives", START, "variables of a second MPI leak into the job", "start from a clean environment: unset OPAL_PREFIX and PMIX_INSTALL_PREFIX", "conflicting directives were given: OPAL_PREFIX and PMIX_INSTALL_PREFIX"),
    Message(r"No components were able to be opened in the \w+ framework|PML \w+ cannot be selected", START, "the MPI lacks the transport that the job asks for", "take that `--mca` out of `mpi.args`, or install the MPI with it", "[vm:15783] PML ucx cannot be selected", general=True),
    Message(r"Missing privilege separation directory|sshd: no hostkeys available", START, "sshd cannot start in this image", "build into the image: `mkdir -p /run/sshd && ssh-keygen -A`", "sshd: no hostkeys available -- exiting."),
    Message(r"A daemon failed to report back after being spawned|unable to reliably start one or more daemons", START, "an MPI daemon did not come up on a node", "read the lines above it; else a firewall, or another MPI on that node", "A daemon failed to report back after being spawned. This could"),
    Message(r"rankdeck: preflight: not every node is fit", START, "the job's first step found a bad node; no rank was started", "read the lines above it; leave the node out with `exclude` under `slurm:`, and have it looked at", "rankdeck: preflight: not every node is fit for the job: no rank was started"),
    Message(r"no console started the daemon within", START, "no Rankdeck was there to start an MPI daemon", "keep the console open until all ranks have begun", "rankdeck: no console started the daemon within 60 s"),
)  # fmt: skip

_MPI = (
    Message(r"has lost communication with a remote daemon|lost communication with (?:a remote|its) daemon|LOST_CONNECTION|my daemon died|HYD_pmci_wait_for_completion|control_cb .*assert \(!closed\) failed", PEER, "the launcher lost its daemon on a node", "is that node up? look at its health and kernel log; else the daemon was killed", "ORTE has lost communication with a remote daemon."),
    Message(r"An error occurred in Socket closed", PEER, "another rank went away: its connection closed", _OTHERS_FIRST, "[vm:00000] *** An error occurred in Socket closed"),
    Message(r"noticed that process rank \d+ .* exited on|exited due to process rank \d+ |= +BAD TERMINATION OF ONE OF YOUR|one or more processes exited with non-zero status|\d+ process(?:es)? returned$|failed \(exitcode: -?\d+\) local_rank: \d+|\bChildFailedError\b", PEER, "the launcher ended the job: a rank had failed", "look at the rank that it names", "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", general=True),
    Message(r"EXIT STRING: Killed|process killed \(SIGKILL\)", PEER, "a rank was killed: out of memory, or by somebody", "look at the kernel log of its node", "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"),
    Message(r"Message truncated|MPI_ERR_TRUNCATE", OWN, "a message was longer than the buffer of its receiver", "a bug in the program: counts or types of send and receive differ", "Abort(139278) on node 1 (rank 1 in comm 0): Fatal error in internal_Recv: Message truncated, error stack:"),
    Message(r"application called MPI_Abort|MPI_ABORT was invoked on rank", OWN, "the program itself ended the job by MPI_Abort", "read what that rank wrote before", "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD"),
    Message(r"(?:Fatal error in|error stack).*(?:[Pp]roc(?:ess)? failed|Connection reset|connection closed|Broken pipe)|MPIX?_ERR_PROC_FAILED|Communication error with rank \d+", PEER, "MPI lost a rank", _OTHERS_FIRST, "Fatal error in PMPI_Recv: Unknown error class, error stack: Communication error with rank 1"),
    Message(r"Fatal error in (?!\w*MPI_Init|internal_Init)\w+: (?:Other MPI error|Unknown error class)|Failure during collective", PEER, "a call that needs other ranks failed: one of them is gone", _OTHERS_FIRST, "MPIR_Bcast_intra_binomial(174): Failure during collective", general=True),
    Message(r"\bAbort\(\d+\) on node \d+ \(rank \d+|Fatal error in (?:P?MPI|internal)_|\*\*\* An error occurred in MPI_", OWN, "an MPI call failed", "read the rest of the line and the lines around it", "Fatal error in PMPI_Send: Invalid rank, error stack:", general=True),
    Message(r"Assertion failed in file \S+ at line \d+", OWN, "an assertion inside MPI failed", "usually the program overwrote memory, or two versions of the MPI are mixed", "Assertion failed in file src/mpid/ch4/netmod/ofi/ofi_events.c at line 1053: 0"),
    Message(r"UCX +(?:ERROR|WARN|FATAL).*(?:reset by remote peer|dropped by the peer|closed by the peer|failed: Connection (?:refused|reset))|Connection reset by remote peer", PEER, "UCX lost another rank", _OTHERS_FIRST, "mm_ep.c:148  UCX  ERROR Connection reset by remote peer"),
    Message(r"unhandled timeout error|[Ee]ndpoint timeout|UCX +(?:ERROR|WARN).*timed out|[Tt]ransport retry (?:count|counter) exceeded|IBV_WC_RETRY_EXC_ERR", TIMEOUT, "the network gave up: the other side did not answer", "look at the other ranks, then at link and error counters of both nodes", "ud_ep.c:278  Fatal: UD endpoint 0x1 to n2: unhandled timeout error"),
    Message(r"mca_btl_tcp\w*.*(?:readv|writev|recv|connect)\S* failed|peer process has unexpectedly disconnected|failed to TCP connect to a peer|remote peer unexpectedly closed", PEER, "MPI lost the TCP connection to another rank", _OTHERS_FIRST, "An MPI communication peer process has unexpectedly disconnected.  This"),
    Message(r"Read -1, expected|process_vm_readv.*returned -1", START, "single-copy between containers is refused: they are in different user namespaces", "Open MPI 4: `--mca btl_vader_single_copy_mechanism none`; 5: `--mca smsc ^cma`", "Read -1, expected 524288, errno = 1"),
    Message(r"ibv_\w+\S* (?:failed|error).*Cannot allocate memory|ibv_\w+.*: Cannot allocate memory|RLIMIT_MEMLOCK|memlock (?:limit|rlimit)", HOST, "the limit of locked memory is too low for RDMA", "raise `memlock` on that node: /etc/security/limits.d, and `LimitMEMLOCK=infinity` for sshd", "ibv_create_cq() failed: Cannot allocate memory"),
    Message(r"ibv_reg_mr.*Cannot allocate memory|max locked memory|UCX +(?:ERROR|WARN).*memlock|[Uu]nable to (?:register|lock) memory", HOST, "the limit of locked memory is too low for RDMA", "raise `memlock` on that node: /etc/security/limits.d, and `LimitMEMLOCK=infinity` for sshd", "ib_md.c:309  UCX  ERROR ibv_reg_mr(address=0x1, length=4096) failed: Cannot allocate memory"),
    Message(r"no active (?:IB )?ports?\b|[Nn]o active IB", HOST, "no RDMA port of that node is up", "look at `ibstat` there: cable, switch port, subnet manager", "NET/IB : no active IB ports", warned=True),
    Message(r"(?i:(?:invalid|no valid|unable|fail|could).*\bGID index\b|\bGID index\b.*(?:invalid|not valid|not found|out of range|fail))", START, "the RDMA port has no such GID", "take NCCL_IB_GID_INDEX out and NCCL chooses; `show_gids` lists the GIDs", "Couldn't read GID index 3 of mlx5_0"),
    Message(r"Failed to create UCP worker|ibv_create_srq\(\) failed", START, "the network card cannot do what UCX asks for", "`mpi: {args: [--mca, pml, ob1]}`; harmless where the job goes on", "[n1] ibv_create_srq() failed: Operation not supported", general=True),
)  # fmt: skip

_NCCL = (
    Message(r"Watchdog caught collective operation timeout", TIMEOUT, "a collective operation timed out: some rank never joined it", "compare SeqNum between the ranks; `rankdeck inspect` shows who is elsewhere", "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=18237, OpType=ALLREDUCE"),
    Message(r"no socket interface found|No interface found in the same subnet", START, "NCCL found no usable network interface", "leave NCCL_SOCKET_IFNAME out, and name the `interface` in the cluster file", "n1:9:9 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found"),
    Message(r"(?i:mismatched NCCL version|NCCL version mismatch)", START, "the ranks run different versions of NCCL", "the same image or the same installation on every node", "n1:9:9 [0] init.cc:1 NCCL WARN Mismatched NCCL version detected : rank 0 version 21403 rank 1 version 21805"),
    Message(r"peer mapping resources exhausted", HOST, "too many GPUs in one process: they cannot all map each other", "fewer GPUs per process, or NCCL_P2P_DISABLE=1", "[0] allocator.cc:79 NCCL WARN Cuda failure 711 'peer mapping resources exhausted'"),
    Message(r"ray\.exceptions\.OutOfMemoryError|killed due to (?:the node running low on memory|memory pressure)|Task was killed due to the node running low", HOST, "Ray killed it: the memory of that node was used up", "fewer or smaller tasks on a node; `ray memory` shows who holds the objects", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
    Message(r"Free memory on device .* is less than|No available memory for the cache blocks|larger than the maximum number of tokens that can be stored in KV cache|KV cache is needed, which is larger than the available", OWN, "vLLM finds too little free memory on the GPU", "`nvidia-smi` shows who else is on that GPU; lower `--gpu-memory-utilization` or `--max-model-len`", "ValueError: Free memory on device (20.1/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB)."),
    Message(r"Failed to CUDA (?:host )?[cm]alloc|[Cc]uda (?:host )?[cm]alloc(?: async)? (?:failed|\d)|Cuda failure \S* ?'out of memory'|CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)|CUDNN_STATUS_ALLOC_FAILED|HIP out of memory", OWN, "the GPU is out of memory", "a smaller batch; `nvidia-smi` shows who else is on that GPU", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    Message(r"CUDA out of memory|\bOutOfMemoryError|hipErrorOutOfMemory|CUDA_ERROR_OUT_OF_MEMORY|Cuda failure (?:\d+ )?'out of memory'|ResourceExhaustedError|RESOURCE_EXHAUSTED: ", OWN, "the GPU is out of memory", "a smaller batch; `nvidia-smi` shows who else is on that GPU", "[3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'"),
    Message(r"CUDA error: .*(?:ECC|uncorrectable)|[Uu]ncorrectable ECC|NVRM: Xid|fallen off the bus", HOST, "the GPU has a fault", "leave that node out and look at its health: the card wants a reset or a replacement", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    Message(r"system not yet initialized|cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY|\b[Ee]rror 802\b", HOST, "the GPUs of that node are not ready: its fabric manager does not run", "`systemctl status nvidia-fabricmanager` there; its version must be that of the driver", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized", warned=True),
    Message(r"\b[Ee]rror 80[34]\b|forward compatibility was attempted|unsupported display driver|CUDA_ERROR_(?:COMPAT_NOT_SUPPORTED_ON_DEVICE|SYSTEM_DRIVER_MISMATCH)|[Dd]river/library version mismatch|[Dd]river version mismatch", HOST, "driver and CUDA libraries on that node are of different versions", "the driver was probably updated under running libraries: restart that node; in a container: take its own libcuda (compat) out", "Failed to initialize NVML: Driver/library version mismatch", warned=True),
    Message(r"CUDA error: unknown error|Cuda failure 999|CUDA_ERROR_UNKNOWN|CUDA unknown error", HOST, "the GPU or its driver does not answer as it should", "look at the kernel log of that node (Xid); leave it out until it was restarted", "RuntimeError: CUDA error: unknown error", warned=True),
    Message(r"(?:CUDA-capable device\(s\) is/are|devices? (?:are|is)) busy or unavailable|cudaErrorDevicesUnavailable", HOST, "another process keeps the GPU for itself", "`nvidia-smi` there shows who uses it, and its compute mode", "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    Message(r"no kernel image is available|CUDA driver version is insufficient", START, "the program was built for another GPU or a newer driver", "use an image that fits the driver on that node", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    Message(r"No CUDA GPUs are available|no CUDA-capable device|CUDA_ERROR_NO_DEVICE", HOST, "the rank finds no GPU", "`nvidia-smi` on that node; in a container: `gpu: nvidia`; CUDA_VISIBLE_DEVICES", "RuntimeError: No CUDA GPUs are available"),
    Message(r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE", OWN, "the rank asks for a GPU with a number that the node does not have", "fewer ranks per node, or the local rank modulo the number of GPUs; CUDA_VISIBLE_DEVICES", "[rank1]: torch.AcceleratorError: CUDA error: invalid device ordinal"),
    Message(r"Duplicate GPU detected", OWN, "two ranks use the same GPU", "one GPU per rank: torch.cuda.set_device(LOCAL_RANK), no more ranks per node than GPUs, CUDA_VISIBLE_DEVICES", "[rank1]: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60"),
    Message(r"device-side assert triggered|illegal memory access|illegal instruction was encountered|misaligned address|unspecified launch failure|CUBLAS_STATUS_|CUDNN_STATUS_|CUDA_ERROR_(?:LAUNCH_FAILED|ILLEGAL_ADDRESS)", OWN, "a computation on the GPU failed", "look at index and label ranges; CUDA_LAUNCH_BLOCKING=1 names the line", "RuntimeError: CUDA error: device-side assert triggered"),
    Message(r"NCCL communicator was aborted|NCCL .*remote abort|ncclCommAbort.*remote", PEER, "NCCL was aborted: another rank had failed", _OTHERS_FIRST, "RuntimeError: NCCL communicator was aborted on rank 1."),
    Message(r"unhandled cuda error|ncclUnhandledCudaError|Cuda failure (?:\d+ )?'", OWN, "a call to CUDA failed inside NCCL on this rank", "the line `Cuda failure` says which; then look at that GPU and at the kernel log of its node", "ncclUnhandledCudaError: Call to CUDA function failed.", general=True),
    Message(r"remote process exited or there was a network error|ncclRemoteError|Connection closed by remote peer|NCCL WARN.*Call to (?:recv|send) (?:from|to) .*failed", PEER, "NCCL lost another rank", _OTHERS_FIRST, "misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer node2<47861>"),
    Message(r"Call to connect (?:returned|to .* failed)|NCCL WARN.*\bConnect to \S+ failed|socketPollConnect|NCCL .*failed to connect", PEER, "NCCL does not reach another rank", "look at that rank first; else firewall, `network` and `interface` in the cluster file", "n1:9:9 [0] NCCL WARN Call to connect returned Connection refused"),
    Message(r"Got (?:async event|completion) (?:from peer|with)|NET/IB.*(?:failed|error)", PEER, "NCCL lost the RDMA connection to another rank", "look at the other rank, then at the RDMA ports of both nodes", "NCCL WARN NET/IB : Got completion from peer 10.0.35.1<49189> with error 4, opcode 5327"),
    Message(r"unhandled system error|ncclSystemError|NCCL WARN.*(?:Net|IB)", PEER, "NCCL lost its network or a peer", "look at the other ranks and at the ports of both nodes; NCCL_DEBUG=INFO says more", "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:911, unhandled system error, NCCL version 2.14.3", general=True),
)  # fmt: skip

_TORCH = (
    Message(r"[Uu]nable to find address for:|[Nn]o such device.*(?:SO_BINDTODEVICE|interface)|Unable to find interface", START, "the network interface of that name is not there", "leave GLOO_SOCKET_IFNAME out, and name the `interface` of that node in the cluster file", "RuntimeError: [enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: eth9"),
    Message(r"EADDRINUSE|errno:? ?-?98\b|[Aa]ddress already in use", START, "the port is taken by another process on that node", "`ss -ltnp` there names the process: end it, or choose another port; torchrun without `torch.port` is given a free one", "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29622, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"),
    Message(r"Detected mismatch between collectives on ranks|Detected mismatch between collectives", PEER, "the ranks called different collective operations: one took another way through the program", "compare the branch of the named rank with that of the others: conditions on rank, data or loop length", "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: X(OpType=ALLREDUCE), but Rank 4 is running collective: X(OpType=ALLGATHER)"),
    Message(r"expects same model across all ranks", PEER, "the models of the ranks differ", "build the model from the same arguments on every rank; compare the named rank with the others", "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 148 params, while rank 2 has inconsistent 150 params."),
    Message(r"in this process with (?:sizes|strides) .* appears not to match", OWN, "the model of this rank differs from that of rank 0", "build the model from the same arguments on every rank", "RuntimeError: [2]: params[3] in this process with sizes [10, 20] appears not to match sizes of the same param in process 0."),
    Message(r"[Tt]imed out after \d+ seconds waiting for clients", TIMEOUT, "some ranks never came to the rendezvous", "see which rank is missing; does every node reach rank 0?", "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 5/6 clients joined."),
    Message(r"retrieving ncclUniqueId from \[\d+\]", PEER, "rank 0 went away while NCCL started", "look at rank 0: its failure is the first", "ProcessGroupNCCL is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer"),
    Message(r"Horovod has been shut down", PEER, "Horovod ended: another rank had failed", _OTHERS_FIRST, "UnknownError: Horovod has been shut down. This was caused by an exception on one of the ranks"),
    Message(r"Barrier timed out|timed out task names", TIMEOUT, "a task did not come to a barrier of JAX", "look at the task that the line names", "DEADLINE_EXCEEDED: Barrier timed out. Id: sync_1. Timed out task names: /job:jax_worker/replica:0/task:2"),
    Message(r"error from coordination service|distributed service detected fatal errors|another task died|[Tt]he tasks? (?:has|have) crashed|tasks are unhealthy", PEER, "another task of JAX went away", _OTHERS_FIRST, "Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died"),
    Message(r"(?:The actor|Actor) (?:died|is dead)|ActorDiedError|RayActorError|WorkerCrashedError", PEER, "a worker of Ray went away", _OTHERS_FIRST, "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."),
    Message(r"RendezvousClosedError|RendezvousConnectionError", PEER, "another node's agent left the rendezvous first", "look at the other nodes: theirs is the first failure", "torch.distributed.elastic.rendezvous.api.RendezvousClosedError"),
    Message(r"RendezvousTimeoutError|client socket has timed out|socket has timed out after|failed to connect to any network address", TIMEOUT, "rank 0 did not answer at its address and port", "does rank 0 run? is its address right, does its name resolve, is the port open?", "[E] [c10d] The client socket has failed to connect to any network address of (n1, 29500)."),
    Message(r"successfully reached monitoredBarrier, but", PEER, "rank 0 gave up at a barrier", "rank 0 names the rank that is missing", "[rank2]: RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs"),
    Message(r"failed to pass monitoredBarrier", TIMEOUT, "a rank did not reach a barrier", "look at the rank that the line names", "[rank0]: RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 3000 ms"),
    Message(r"Timed out waiting \d+ms for|wait timeout after \d+ms|waitForInput: .*timed out|Timeout waiting for key|Socket Timeout\b", TIMEOUT, "it timed out waiting for another rank", "see which rank is behind: `rankdeck inspect` shows who is elsewhere", "torch.distributed.DistStoreError: wait timeout after 4000ms, keys: /nokey"),
    Message(r"Connection closed by peer \[|Read error \[|Write error \[|Application timeout caused pair closure", PEER, "another rank went away", _OTHERS_FIRST, "[rank2]: [pair.cc:553] Connection closed by peer [127.0.0.1]:43921. This is typically caused by a remote worker crashing."),
    Message(r"Connect timeout \[|connect\S* timed out.*\[", TIMEOUT, "another rank could not be reached", "is it up? else firewall, `network` and `interface` in the cluster file", "RuntimeError: Connect timeout [10.0.0.2]:4567"),
    Message(r"Dist(?:Network|Store)Error: (?:Broken pipe|failed to recv|Connection)|(?:sendBytes|recvValue|recvVector|recvBytes) failed|failed to recv, got 0 bytes", PEER, "the process that keeps the rendezvous (rank 0) went away", "look at rank 0: its failure is the first", "torch.distributed.DistNetworkError: Broken pipe"),
    Message(r"No backend type associated|doesn't have \w+ built in|Backend \w+ does not (?:support|implement)", START, "this torch cannot do collectives on that device", "gloo for the CPU, nccl for the GPU; `init_process_group` must name the one that is there", "RuntimeError: Distributed package doesn't have NCCL built in"),
    Message(r"DataLoader worker \(pid\S* [^)]*\) (?:is killed by signal: Bus error|exited unexpectedly with exit code: 135)|Bus error.*shm|insufficient shared memory|creating shared memory segment /dev/shm|unable to (?:open|mmap) shared memory", HOST, "/dev/shm is too small", "`--ipc=host` or a larger shm size for the container", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory."),
    Message(r"DataLoader worker \(pid\S* [^)]*\) (?:is killed by signal|exited unexpectedly)", OWN, "a data loader process was killed", "usually out of memory: use fewer workers; the node's kernel log says", "RuntimeError: DataLoader worker (pid 7722) is killed by signal: Killed."),
    Message(r"received 0 items of ancdata|Too many open files|\[Errno 24\](?! inotify)|shared object file: Error 24", HOST, "too many open files", "raise `ulimit -n`; with torch: `set_sharing_strategy('file_system')`", "RuntimeError: received 0 items of ancdata"),
    Message(r"unexpected pos \d+ vs \d+|PytorchStreamWriter failed writing file|basic_ios::clear: iostream error", HOST, "a checkpoint could not be written, usually a full disk", "`df` on that node at the place of the checkpoint", "RuntimeError: basic_ios::clear: iostream error"),
    Message(r"Collective ops is aborted by|UnavailableError: (?:Graph execution|Collective)|UNAVAILABLE: .*(?:Connection|Socket|failed to connect)", PEER, "another TensorFlow worker went away or is not up", "look at the other workers: theirs is the first failure", "Collective ops is aborted by: Socket closed"),
    Message(r"Signal (?:15|2) \(SIG\w+\) received by PID|Sending process \d+ closing signal SIG", PEER, "torchrun ended the other ranks after the first failure", "look at the rank that it names under `Root Cause`", "traceback : Signal 15 (SIGTERM) received by PID 7409"),
    Message(r"process killed \(SIGTERM\)|SIGTERMException|[Rr]eceived (?:signal )?(?:SIGTERM|SIGINT|signal 15)\b|[Cc]aught (?:signal )?(?:SIGTERM|15\b)", TERMINATED, "it was told to end", "somebody cancelled it, or another rank had failed", "forrtl: error (78): process killed (SIGTERM)"),
    Message(r"return code = -9\b|exitcode\s*: -9\b|died with <Signals\.SIGKILL|terminated with signal SIGKILL|Signal 9 \(SIGKILL\) received by PID", OWN, "a process that it had started was killed (SIGKILL)", "the kernel log of that node says whether for want of memory", "[2026-11-26 11:00:00] [INFO] [launch.py:319:sigkill_handler] exits with return code = -9", warned=True),
    Message(r"return code = -11\b|exitcode\s*: -11\b|died with <Signals\.SIGSEGV|Signal 11 \(SIGSEGV\) received by PID", OWN, "a process that it had started crashed (SIGSEGV)", "a bug, or a library of the wrong version: read what that process wrote", "subprocess.CalledProcessError: Command 'python train.py' died with <Signals.SIGSEGV: 11>.", warned=True),
    Message(r"Error\(s\) in loading state_dict|size mismatch for \S+: copying a param|(?:Missing|Unexpected) key\(s\) in state_dict", OWN, "the checkpoint does not fit the model", "the same model arguments as when it was saved; on one node only: that node has another checkpoint", "RuntimeError: Error(s) in loading state_dict for GPTModel:"),
    Message(r"PytorchStreamReader failed|unexpected EOF, expected \d+ more bytes|EOFError: Ran out of input|pickle data was truncated|SafetensorError|BadZipFile|truncated (?:file|record)|file is truncated|DataLossError|checkpoint .*\b(?:truncated|corrupt)", HOST, "a file that it read (checkpoint, data) was cut short or is damaged", "compare its size and checksum with that of another node; copy it again", "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"),
    Message(r"LocalEntryNotFoundError|OfflineModeIsEnabled|(?:couldn't|[Cc]annot|could not) (?:connect to|reach) '?https://huggingface|HF_HUB_OFFLINE|GatedRepoError|outgoing traffic has been disabled", START, "a model or data set is not on that node, and Hugging Face cannot be reached or is switched off", "download it on a node with network, into a shared HF_HOME; then HF_HUB_OFFLINE=1", "OSError: We couldn't connect to 'https://huggingface.co' to load this file"),
    Message(r"\bReceived a label value of|Target \d+ is out of bounds|index out of range in self", OWN, "a label or an index is outside the range of the model", "compare the number of classes or the vocabulary with the data of that rank", "Received a label value of 7 which is outside the valid range of [0, 5)."),
    Message(r"\b(?:redis\.exceptions|pymongo\.errors|psycopg\d?|botocore\.exceptions|requests\.exceptions|urllib3\.exceptions|aiohttp\.client_exceptions|kafka\.errors)\.\w*(?:Error|Timeout|Refused|Exceeded)|HTTPS?ConnectionPool\(host=|Max retries exceeded with url|Error 111 connecting to|wandb\.errors\.\w+Error", SERVICE, "a service outside the job did not answer", "is that service up, and does this node reach its address and port?", "redis.exceptions.ConnectionError: Error 111 connecting to 10.9.0.5:6379. Connection refused."),
    Message(r"got signal: (?:15|2)\b|Received (?:15|2|SIGTERM|SIGINT) death signal|^Terminated\s*$", TERMINATED, "it was told to end", "somebody cancelled it, or another rank had failed", "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15"),
    Message(r"^(?:\[rank\d+\]: ?)?KeyboardInterrupt\b", TERMINATED, "it was interrupted (SIGINT)", "somebody pressed Ctrl-C, or cancelled it", "KeyboardInterrupt"),
    Message(r"\b[Ll]oss(?: is| =|:|=)? *[Nn]a[Nn](?![\w-])|[Nn]on-finite loss", OWN, "the loss is not a number", "a lower learning rate, or the data of that step; not a fault of the machine", "ValueError: loss is NaN in step 9"),
)  # fmt: skip

_BOXES = (
    Message(r"Detected \d+ oom[_-]kill event|task \d+: Out Of Memory|(?:Out of memory|out of memory): Killed process|oom-kill:", HOST, "the kernel killed a process: out of memory", "more memory for the job, or less per rank; see who else is on the node", "Memory cgroup out of memory: Killed process 812 (python3) total-vm:9kB"),
    Message(r"DUE TO TIME LIMIT", TERMINATED, "Slurm ended the job: its time was up", "ask for more time, or go on from a checkpoint", "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"),
    Message(r"DUE TO PREEMPTION", TERMINATED, "Slurm ended the job for one of higher priority", "start it again, or ask for a partition that is not preempted", "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***"),
    Message(r"DUE TO NODE FAILURE|DUE TO NODE_FAIL", HOST, "a node failed under the job", "leave that node out and look at its health", "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***"),
    Message(r"slurmstepd(?:-[\w.-]+)?: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED", TERMINATED, "Slurm cancelled the job", "somebody called scancel, or another task had failed", "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***"),
    Message(r"pyxis: --container-mounts: source path does not exist", START, "a folder of `container.mounts` is not on that node", "correct `container.mounts`, or make the folder on every node", "slurmstepd-n2: error: pyxis: --container-mounts: source path does not exist: /nosuch"),
    Message(r"pyxis: .*Invalid image format", START, "the file of `container.image` is not an image that Enroot can read", "make it with `enroot import` or `mksquashfs`; was it copied whole?", "slurmstepd-n1: error: pyxis:     [ERROR] Invalid image format: /images/app.sqsh"),
    Message(r"pyxis: couldn't chdir to ", START, "the working folder is not in the image", "correct `container.workdir`, or mount that folder", "slurmstepd-n2: error: pyxis: couldn't chdir to /nosuch: No such file or directory"),
    Message(r"Command not found: nvidia-container-cli", START, "the container cannot have the GPUs: libnvidia-container is not on that node", "leave the node out until it is installed there, or run without `container.gpu`", "slurmstepd-n1: error: pyxis:     [ERROR] Command not found: nvidia-container-cli, see https://github.com/NVIDIA/libnvidia-container"),
    Message(r"pyxis: .*Command not found: ", START, "a program that Enroot needs is not on that node", "leave the node out until it is installed there", "slurmstepd-n1: error: pyxis:     [ERROR] Command not found: column"),
    Message(r"unrecognized option '--container-(?:image|mounts|env)", START, "Slurm there has no Pyxis, which opens the image", "ask its administrators, or use `runtime: apptainer` or `podman`", "srun: unrecognized option '--container-image=/images/app.sqsh'"),
    Message(r"pyxis: .*(?:failed to import|importing .*failed|couldn't start container|container start failed|failed to create container)|enroot-\w+: failed to", START, "Slurm could not start the container", "the lines of pyxis below it say why; try `enroot import` there by hand", "slurmstepd: error: pyxis: failed to import docker image"),
    Message(r"FATAL:\s+(?:could not open image|.*failed to retrieve path|Unable to (?:handle|open))|[Nn]o such image|image not known|manifest unknown|pull access denied|No such file or directory: \S+\.sqsh", START, "the image is not on that node", "correct `container.image`; `rankdeck images` shows where it is", "Error response from daemon: No such image: nothere:latest"),
    Message(r"squashfuse.*(?:not found|fail|error|denied)|container creation failed|failed to create user namespace|[Cc]reating? user namespace.*(?:denied|not permitted)|unshare\S*: Operation not permitted", START, "the container does not start on that node", "user namespaces or /dev/fuse are not allowed there: run `rankdeck preflight` on the job", "INFO: squashfuse not found, will not be able to mount SIF", warned=True),
)  # fmt: skip

_NODE = (
    Message(r"runs on, but .* is gone \(removed", HOST, "what the job kept on that node was removed, or its file system is not mounted; its processes may still run", "`rankdeck cancel` ends what runs there; without the folder its output is lost", "n1: does not answer: rankdeck: job j-1 runs on, but /home/u/jobs/j-1/n1 is gone (removed, or its file system is not mounted)"),
    Message(r"(?i:shmget|semget|shmat|msgget|sys ?v shared memory|shared memory segment)\b.*(?:[Nn]o space left on device|Invalid argument)", HOST, "a limit of the kernel for shared memory or semaphores (SysV) is reached", "`ipcs` there shows what ended jobs left (`ipcrm`); else raise kernel.shmmni, shmall or sem", "shmget() failed: No space left on device"),
    Message(r"(?i:inotify\w*.*(?:limit|No space left|too many open files))|number of file watchers reached", HOST, "the limit of inotify watches of that node is reached", "raise fs.inotify.max_user_watches and max_user_instances there by sysctl", "OSError: [Errno 28] inotify watch limit reached"),
    Message(r"unable to lock file|file locking (?:is )?disabled on this file ?system|HDF5_USE_FILE_LOCKING", HOST, "HDF5 cannot lock the file: another process has it open, or its file system knows no locks", "only one writer; HDF5_USE_FILE_LOCKING=FALSE where the file system cannot lock", "BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11)"),
    Message(r"Transport endpoint is not connected|Cannot send after transport endpoint shutdown|\[Errno 10[78]\]|ENOTCONN\b|ESHUTDOWN\b", HOST, "a file system of that node lost its server: FUSE ended, or Lustre evicted the node", "mount it again there; its kernel log says why it went", "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/data'"),
    Message(r"[Nn]o space left on device|ENOSPC\b", HOST, "a disk is full on that node", "free space there; /dev/shm counts too (`--ipc=host` or a larger shm for containers)", "head: error writing 'standard output': No space left on device"),
    Message(r"Disk quota exceeded|EDQUOT\b", HOST, "the user's quota on that disk is used up", "`quota -s`; delete old checkpoints or write elsewhere", "OSError: [Errno 122] Disk quota exceeded"),
    Message(r"Stale (?:NFS )?file handle|ESTALE\b", HOST, "stale file handle: the file server restarted, or the file was replaced", "mount it again on that node", "OSError: [Errno 116] Stale file handle"),
    Message(rf"Input/output error{_NOTHING_MORE}|I/O error, dev ", HOST, "input/output error of a disk or a network file system", "look at the kernel log of that node; leave the node out", "OSError: [Errno 5] Input/output error: '/data/x'"),
    Message(rf"Read-only file system{_NOTHING_MORE}", HOST, "the place to write to is read-only on that node", "write elsewhere, or mount it there; a disk with errors turns read-only by itself", "OSError: [Errno 30] Read-only file system: 'ro/a'"),
    Message(r"Text file busy", HOST, "a program was replaced while it ran", "copy it under a new name and rename it, or wait until nobody runs it", "bash: line 1: tb: Text file busy"),
    Message(r"Exec format error", START, "the program is not for this CPU, or a script without `#!`", "build it for the machine of that node", "OSError: [Errno 8] Exec format error"),
    Message(r"version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found", START, "the program was built on a newer system than that node's", "build it there, or run it in an image", "./app: /lib/libc.so.6: version `GLIBC_2.38' not found (required by ./app)"),
    Message(r"cannot open shared object file", START, "a library is missing on that node", "install it there, or set LD_LIBRARY_PATH in `env` of the job", "OSError: libnope.so.1: cannot open shared object file: No such file or directory"),
    Message(r"Illegal instruction\b|signal: illegal instruction", START, "illegal instruction: the program was built for another CPU", "build it for the oldest CPU among the nodes", "sh: line 1: 77 Illegal instruction     (core dumped) ./app"),
    Message(r"std::bad_alloc|^(?:\[rank\d+\]: ?)?MemoryError\b|_ArrayMemoryError|DefaultCPUAllocator: can't allocate|Cannot allocate memory|ENOMEM\b", HOST, "no memory was left for it on that node", "fewer ranks per node or a smaller problem; see who else uses the memory", "MemoryError"),
    Message(r"can't start new thread|fork: (?:retry: )?Resource temporarily unavailable|BlockingIOError: \[Errno 11\]|pthread_create.*(?:failed|EAGAIN|Resource temporarily)|libgomp: Thread creation failed", HOST, "no more processes or threads can be started", "raise `ulimit -u` or pids.max of the cgroup; fewer threads: OMP_NUM_THREADS", "RuntimeError: can't start new thread"),
    Message(rf"PermissionError: |: Permission denied{_NOTHING_MORE}|failed: Permission denied", HOST, "permission denied for a file or program", "compare owner and mode on the nodes; a program wants `chmod +x` and no noexec mount", "sh: 1: ./noexec: Permission denied"),
    Message(r"(?i:clock skew detected)|certificate is not yet valid|certificate has expired", HOST, "the clock of that node is wrong", "`timedatectl` there: switch time synchronisation on", "make: warning:  Clock skew detected.  Your build may be incomplete.", warned=True),
    Message(r"Network is unreachable|ENETUNREACH\b", START, "that node has no route to the other one", "`ip route` there; `network` and `interface` in the cluster file", "OSError: [Errno 101] Network is unreachable"),
    Message(r"No route to host|EHOSTUNREACH\b", PEER, "another node does not answer", "is it up? else a firewall", "OSError: [Errno 113] No route to host"),
    Message(r"ConnectionRefusedError|(?:[:\]\-(]\s?|by |\()[Cc]onnection refused" + _NOTHING_MORE, PEER, "connection refused: the other process has ended or is not up yet", "look at the other ranks first; else firewall and `network` in the cluster file", "ConnectionRefusedError: [Errno 111] Connection refused"),
    Message(r"ConnectionResetError|BrokenPipeError|(?:[:\]\-(]\s?)(?:[Cc]onnection reset by peer|Broken pipe)" + _NOTHING_MORE + r"|\bSocket closed$", PEER, "a process on another node went away", _OTHERS_FIRST, "ConnectionResetError: [Errno 104] Connection reset by peer"),
    Message(r"(?:[:\]\-(]\s?)[Cc]onnection timed out" + _NOTHING_MORE, TIMEOUT, "a process on another node did not answer", "look at the other ranks first; else firewall and `network` in the cluster file", "ssh: connect to host n2 port 22: Connection timed out"),
    Message(r"\bdo_signal_stop\b", OWN, "the process is stopped (SIGSTOP): it waits for SIGCONT", "`kill -CONT` with its pid lets it go on; ask who stopped it", "state T, wchan do_signal_stop"),
    Message(r"No module named |\bImportError: ", START, "a Python module is missing on that node", "install it on every node, or use an image that has it", "ModuleNotFoundError: No module named 'mpi4py'"),
    Message(r"\bsh: .*: not found$|: \d+: [^:]+: not found$|[Cc]ommand not found|\benv: .*No such file or directory", START, "a program is not on the PATH of that node", "use its absolute path, or set PATH in `environment` of the cluster file", "sh: 1: trainer: not found"),
)  # fmt: skip

_PROGRAM = (
    Message(r"Signal: Bus error|Caught signal 7|\bBus error\b|\(SIGBUS\)", OWN, "bus error (SIGBUS)", "a full /dev/shm, or a file that shrank under mmap: `df /dev/shm` there", "[n1:04711] Signal: Bus error (7)"),
    Message(r"AddressSanitizer: |ThreadSanitizer: |==ERROR: LeakSanitizer", OWN, "the program used memory that is not its own", "a bug: the first frames below the line show where", "==4711==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602"),
    Message(r"\bline \d+: +\d+ Killed\b", OWN, "a process that it had started was killed (SIGKILL)", "the kernel log of that node says whether for want of memory", "run.sh: line 3: 4711 Killed ./solver"),
    Message(r"Caught signal 11|Signal: Segmentation fault|\bSegmentation fault\b|segfault at |SIGSEGV", OWN, "segmentation fault (SIGSEGV)", "a bug, or a library of the wrong version", "[vm:06950] Signal: Segmentation fault (11)"),
    Message(r"Assertion `.*' failed|double free or corruption|stack smashing detected|free\(\): invalid|malloc\(\): |corrupted size vs", OWN, "the program detected an error and aborted", "a bug: the line says where it was noticed", "app: solver.c:12: main: Assertion `n > 0' failed."),
    Message(r"Fortran runtime error|forrtl: (?:severe|error)|^thread '.{1,80}' panicked at|^panic: |terminate called after throwing|Floating point exception", OWN, "the program ended by an error of its own", "read the line and those around it", "forrtl: severe (24): end-of-file during read", general=True),
    Message(r"\bRecursionError\b", OWN, "a Python function calls itself without end", "a bug: the traceback shows which", "RecursionError: maximum recursion depth exceeded"),
    Message(r"\bFileNotFoundError\b", OWN, "a file is missing on that node", "copy it to every node, or mount it by `container.mounts`", "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'"),
    Message(r"^(?:\[rank\d+\]: ?)?(?:Key|Value|Type|Attribute|Index|Name|Assertion|ZeroDivision|Syntax|NotImplemented|UnboundLocal|UnicodeDecode)Error\b", OWN, "the Python program ended by an error of its own", "read the traceback above the line", "[rank3]: KeyError: 'weights'", general=True),
)  # fmt: skip

MESSAGES: tuple[Message, ...] = (
    *_START_OF_RANKS, *_MPI, *_NCCL, *_TORCH, *_BOXES, *_NODE, *_PROGRAM,
)  # fmt: skip

HARMLESS = (
    r"NCCL INFO NET/Plugin|client socket has failed to connect to \[|libnccl-net\S*: cannot open"
    r"|ORTE_ERROR_LOG: .*show_help|Authorization required, but no authorization protocol"
    r"|to enable device-side assertions|passing CUDA_LAUNCH_BLOCKING|[Tt]o enable traceback see"
    r"|Failed to initialize NumPy|NET/IB : No device found|asynchronous nature of CUDA kernels"
    r"|To avoid data inconsistency|Error importing \w+: No module named"
)
"""Matches lines that look like errors but appear in healthy runs, and what is said under every error."""
WARNING = (
    r"^(?:\[rank\d+\]: ?)?\[?(?:rank\d+\]: ?)?\[?[WI]\d{4} \d\d:\d\d"  # c10d, torchrun, glog
    r"|\d\d:\d\d:\d\d[.,\d]{0,12}: [WI] \w"  # TensorFlow, XLA
    r"|\b[A-Z][a-z]+Warning: |\b(?i:level)['\"]?\s?[=:]\s?['\"]?(?i:warn|info|debug)"
    r"|^(?:(?!ERROR|FATAL|CRITICAL|NCCL WARN|UCX +WARN).){0,80}?(?<![\w-])(?:(?:WARN(?:ING)?|INFO|DEBUG|NOTICE)(?![\w-])|[Ww]arning: )"
    r"|\(ignored\)|\b[Ww]ill (?:be )?(?:retr(?:y|ied)|ignored?)\b|\b[Rr]etrying\b|\b[Ff]alling back\b"
)
"""Matches lines in which a program says that it goes on all the same, or what it does just now."""

STATUSES: dict[int, tuple[str, str]] = {
    14: ("with Open MPI: another rank or the launcher went away", "look at the other ranks: theirs is the first failure"),
    126: ("the program may not be executed", "`chmod +x`, and no noexec mount"),
    127: ("the program was not found", "give its absolute path; is it on every node?"),
    132: ("illegal instruction: the program was built for another CPU", "build it for the oldest CPU among the nodes"),
    134: ("it aborted itself (SIGABRT)", "an assertion or MPI_Abort: see its last lines"),
    135: ("bus error (SIGBUS)", "a full /dev/shm, or a file that shrank under mmap"),
    136: ("arithmetic error (SIGFPE)", "a division by zero: see its last lines"),
    137: ("it was killed (SIGKILL): by whom is not known", "the node's `dmesg` and memory.events say whether the kernel did it"),
    139: ("segmentation fault (SIGSEGV)", "a bug, or a library of the wrong version"),
    143: ("it was told to end (SIGTERM)", "somebody else failed first, or cancelled it"),
}  # fmt: skip
"""Exit status as in a shell -> (what it means, what to try)."""
STATUSES_OF_OTHERS = frozenset({14, 143})
