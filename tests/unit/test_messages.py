"""Messages and what they mean: every one of the table, and silence about the rest."""

import re

import pytest

from rankdeck.rules.message_table import MESSAGES, STATUSES, Message, MessageKind
from rankdeck.rules.messages import (
    SURE_OF_GENERAL,
    SURE_OF_SPECIAL,
    explain_end,
    kinds_of,
    use_rows,
)
from tests.support.cases import each
from tests.support.effort import effort

PRINTED = {
    # Open MPI 5.0.11, 4.1.4, MPICH 4.0.2
    "prterun was unable to launch the specified application as it could not": ("missing on a node", "start"),
    "[proxy:0:0@vm] HYDU_create_process (utils/launch/launch.c:73): execvp error on file ./nothere (No such file or directory)": ("missing on a node", "start"),
    "There are not enough slots available in the system to satisfy the 300": ("more ranks than slots", "start"),
    "A daemon failed to report back after being spawned. This could": ("did not come up", "start"),
    "ORTE has lost communication with a remote daemon.": ("lost its daemon", "peer"),
    "[mpiexec@vm] control_cb (pm/pmiserv/pmiserv_cb.c:206): assert (!closed) failed": ("lost its daemon", "peer"),
    "[vm:00000] *** An error occurred in Socket closed": ("another rank went away", "peer"),
    "prterun noticed that process rank 1 with PID 7253 on node vm exited on": ("a rank had failed", "peer"),
    "mpirun.openmpi noticed that process rank 1 with PID 0 on node vm exited on signal 11 (Segmentation fault).": ("a rank had failed", "peer"),
    "prterun detected that one or more processes exited with non-zero status,": ("a rank had failed", "peer"),
    "prterun has exited due to process rank 1 with PID 0 on node vm calling": ("a rank had failed", "peer"),
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES": ("a rank had failed", "peer"),
    "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)": ("a rank was killed", "peer"),
    "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD": ("by MPI_Abort", "own"),
    "Abort(7) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 1": ("by MPI_Abort", "own"),
    "Abort(340333327) on node 4 (rank 4 in comm 0): Fatal error in internal_Allreduce: Other MPI error, error stack:": ("one of them is gone", "peer"),
    "MPIR_Bcast_intra_binomial(174): Failure during collective": ("one of them is gone", "peer"),
    "Abort(1090319) on node 0 (rank 0 in comm 0): Fatal error in internal_Init: Other MPI error, error stack:": ("an MPI call failed", "own"),
    "Abort(139278) on node 1 (rank 1 in comm 0): Fatal error in internal_Recv: Message truncated, error stack:": ("longer than the buffer", "own"),
    "[1795319514.892491] [vm:17316:0]            sock.c:325  UCX  ERROR connect(fd=25, dest_addr=127.0.0.1:54887) failed: Connection refused": ("UCX lost", "peer"),
    "[vm:15783] PML ucx cannot be selected": ("lacks the transport", "start"),
    "Hello from rank 0 of 1": ("believes it is alone", "start"),
    "[vm:06950] Signal: Segmentation fault (11)": ("segmentation fault", "own"),
    "[vm:6878 :0:6878] Caught signal 11 (Segmentation fault: tkill(2) or tgkill(2) at address 0x1ade)": ("segmentation fault", "own"),
    "rank 0 cannot start: Argument list too long": ("longer than the system takes", "start"),
    "rank 0 cannot start: there is no folder /scratch/run7 on n1": ("working directory is not there", "start"),
    "n1: does not answer: rankdeck: job j-1 runs on, but /home/u/jobs/j-1/n1 is gone (removed, or its file system is not mounted)": ("its processes may still run", "host"),
    # torch 2.11 and NCCL 2.28.9 on an H200
    "[rank1]: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60": ("use the same GPU", "own"),
    "[rank1]: torch.AcceleratorError: CUDA error: invalid device ordinal": ("a number that the node does not have", "own"),
    "[rank1]: torch.AcceleratorError: CUDA error: device-side assert triggered": ("computation on the GPU failed", "own"),
    # torch 2.13 with gloo
    "RuntimeError: [enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: eth9": ("interface of that name", "start"),
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29622, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use": ("port is taken", "start"),
    "torch.distributed.DistNetworkError: The client socket has timed out after 4000ms while trying to connect to (127.0.0.1, 29623).": ("rank 0 did not answer", "timeout"),
    "torch.distributed.DistStoreError: wait timeout after 4000ms, keys: /nokey": ("timed out waiting", "timeout"),
    "torch.distributed.DistNetworkError: Broken pipe": ("keeps the rendezvous", "peer"),
    "[rank0]: RuntimeError: [unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete": ("timed out waiting", "timeout"),
    "[rank0]: RuntimeError: [pair.cc:537] Read error [127.0.0.1]:23759: Connection reset by peer. This is typically caused by a remote worker": ("another rank went away", "peer"),
    "[rank2]: [pair.cc:553] Connection closed by peer [127.0.0.1]:43921. This is typically caused by a remote worker crashing.": ("another rank went away", "peer"),
    "[rank0]: RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 3000 ms": ("did not reach a barrier", "timeout"),
    "[rank2]: RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs": ("rank 0 gave up", "peer"),
    "  traceback : Signal 15 (SIGTERM) received by PID 7409": ("ended the other ranks", "peer"),
    "E1122 03:42:28.657000 7407 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 9) local_rank: 1 (pid: 7410) of binary: /usr/bin/python": ("a rank had failed", "peer"),
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ": ("a rank had failed", "peer"),
    "RuntimeError: Distributed package doesn't have NCCL built in": ("cannot do collectives", "start"),
    "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534": ("checkpoint", "host"),
    "RuntimeError: basic_ios::clear: iostream error": ("checkpoint", "host"),
    "RuntimeError: write(): fd 3 failed with No space left on device": ("disk is full", "host"),
    "RuntimeError: [enforce fail at inline_container.cc:747] . open file failed with strerror: Read-only file system": ("read-only", "host"),
    "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 17179869184 bytes.": ("no memory was left", "host"),
    "RuntimeError: DataLoader worker (pid 7722) is killed by signal: Killed. ": ("data loader", "own"),
    "RuntimeError: Too many open files. Communication with the workers is no longer possible.": ("too many open files", "host"),
    # Python 3.11, bash, dash, glibc
    "socket.gaierror: [Errno -2] Name or service not known": ("host name", "start"),
    "ConnectionRefusedError: [Errno 111] Connection refused": ("connection refused", "peer"),
    "OSError: [Errno 24] Too many open files: '/dev/null'": ("too many open files", "host"),
    "MemoryError": ("no memory was left", "host"),
    "RuntimeError: can't start new thread": ("processes or threads", "host"),
    "BlockingIOError: [Errno 11] Resource temporarily unavailable": ("processes or threads", "host"),
    "RecursionError: maximum recursion depth exceeded": ("calls itself", "own"),
    "KeyboardInterrupt": ("interrupted", "terminated"),
    "OSError: libnope.so.1: cannot open shared object file: No such file or directory": ("library is missing", "start"),
    "OSError: [Errno 30] Read-only file system: 'ro/a'": ("read-only", "host"),
    "OSError: [Errno 8] Exec format error": ("not for this CPU", "start"),
    "  what():  std::bad_alloc": ("no memory was left", "host"),
    "./u: error while loading shared libraries: libx1.so: cannot open shared object file: No such file or directory": ("library is missing", "start"),
    "cat: error while loading shared libraries: libc.so.6: cannot open shared object file: Error 24": ("too many open files", "host"),
    "bash: line 1: ./arm: cannot execute binary file: Exec format error": ("not for this CPU", "start"),
    "sh: 1: ./noexec: Permission denied": ("permission denied", "host"),
    "bash: line 1: tb: Text file busy": ("replaced while it ran", "host"),
    "head: error writing 'standard output': No space left on device": ("disk is full", "host"),
}  # fmt: skip
DOCUMENTED = {
    # From sources, manuals and issues of the programs: what this machine cannot provoke.
    "Host key verification failed.": ("host key", "start"),
    "root@n2: Permission denied (publickey,password).": ("no key", "start"),
    "ssh: Could not resolve hostname n2:2: Name or service not known": ("number of slots", "start"),
    "Missing privilege separation directory: /run/sshd": ("sshd cannot start", "start"),
    "sshd: no hostkeys available -- exiting.": ("sshd cannot start", "start"),
    "socket.gaierror: [Errno -3] Temporary failure in name resolution": ("host name", "start"),
    "bash: line 1: orted: command not found": ("MPI daemon", "start"),
    "[mpiexec@n1] token slots not supported at this time": ("hostfile of Open MPI", "start"),
    "slurmstepd: error: execve(): /opt/app: No such file or directory": ("missing on a node", "start"),
    "No PMIx server was reachable, but a PMI1/2 was detected.": ("finds no launcher", "start"),
    "PMIx server unreachable": ("finds no launcher", "start"),
    "launcher not compatible with PMI1 client": ("MPICH", "start"),
    "[n2:00507] PMIX ERROR: PMIX_ERR_FILE_OPEN_FAILURE in file ../../../../../../src/mca/gds/shmem2/gds_shmem2.c at line 1056": ("cannot map the shared memory", "start"),
    "  Framework: gds  Component: shmem2": ("PMIx", "start"),
    "conflicting directives were given: OPAL_PREFIX and PMIX_INSTALL_PREFIX": ("second MPI", "start"),
    "rankdeck: no console started the daemon within 60 s": ("no Rankdeck", "start"),
    "rankdeck: preflight: not every node is fit for the job: no rank was started": ("bad node", "start"),
    "Error event PMIX_ERR_LOST_CONNECTION reported, that usually means that my daemon died thus I need to go away.": ("lost its daemon", "peer"),
    "Fatal error in PMPI_Recv: Unknown error class, error stack: Communication error with rank 1": ("MPI lost a rank", "peer"),
    "Fatal error in PMPI_Send: Invalid rank, error stack:": ("a wrong argument", "own"),
    "Assertion failed in file src/mpid/ch4/netmod/ofi/ofi_events.c at line 1053: 0": ("assertion inside MPI", "own"),
    "mm_ep.c:148  UCX  ERROR Connection reset by remote peer": ("UCX lost", "peer"),
    "ud_ep.c:278  Fatal: UD endpoint 0x1 to n2: unhandled timeout error": ("network gave up", "timeout"),
    "An MPI communication peer process has unexpectedly disconnected.  This": ("MPI lost the TCP", "peer"),
    "Read -1, expected 524288, errno = 1": ("user namespaces", "start"),
    "ib_md.c:309  UCX  ERROR ibv_reg_mr(address=0x1, length=4096) failed: Cannot allocate memory": ("locked memory", "host"),
    "ib_log.c:1  UCX ERROR ibv_create_cq(cqe=4096) failed: Cannot allocate memory : Please set max locked memory (ulimit -l) to 'unlimited'": ("locked memory", "host"),
    "WARNING: there are no active ports detected (or Open MPI was unable to use them)": ("no RDMA port", "host"),
    "NET/IB : no active IB ports": ("no RDMA port", "host"),
    "Couldn't read GID index 3 of mlx5_0": ("no such GID", "start"),
    "[n1] ibv_create_srq() failed: Operation not supported": ("network card", "start"),
    "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=18237, OpType=ALLREDUCE": ("never joined", "timeout"),
    "n1:9:9 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found": ("no usable network interface", "start"),
    "n1:9:9 [0] init.cc:1 NCCL WARN Mismatched NCCL version detected : rank 0 version 21403 rank 1 version 21805": ("different versions of NCCL", "start"),
    "[0] allocator.cc:79 NCCL WARN Cuda failure 711 'peer mapping resources exhausted'": ("map each other", "host"),
    "[3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'": ("GPU is out of memory", "own"),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB": ("GPU is out of memory", "own"),
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor": ("GPU is out of memory", "own"),
    "RuntimeError: CUDA error: uncorrectable ECC error encountered": ("GPU has a fault", "host"),
    "RuntimeError: CUDA error: no kernel image is available for execution on the device": ("another GPU", "start"),
    "RuntimeError: No CUDA GPUs are available": ("finds no GPU", "host"),
    "RuntimeError: CUDA error: device-side assert triggered": ("computation on the GPU", "own"),
    "DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited or there was a network error, NCCL version 2.21.5": ("NCCL lost another", "peer"),
    "misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer node2<47861>": ("NCCL lost another", "peer"),
    "misc/socket.cc:518 NCCL WARN Net : Call to recv from 10.200.84.247<58355> failed : Broken pipe": ("NCCL lost another", "peer"),
    "n1:9:9 [0] NCCL WARN Call to connect returned Connection refused": ("does not reach", "peer"),
    "misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> failed : Software caused connection abort": ("does not reach", "peer"),
    "NCCL WARN NET/IB : Got completion from peer 10.0.35.1<49189> with error 4, opcode 5327": ("RDMA connection", "peer"),
    "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:911, unhandled system error, NCCL version 2.14.3": ("network or a peer", "peer"),
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15": ("told to end", "terminated"),
    "[E] [c10d] The client socket has failed to connect to any network address of (n1, 29500).": ("rank 0 did not answer", "timeout"),
    "torch.distributed.elastic.rendezvous.api.RendezvousClosedError": ("rendezvous", "peer"),
    "RuntimeError: Connect timeout [10.0.0.2]:4567": ("could not be reached", "timeout"),
    "[c10d] sendBytes failed on SocketImpl(fd=3, remote=[10.0.0.2]:29500): Broken pipe": ("keeps the rendezvous", "peer"),
    "recvValue failed on SocketImpl(fd=3): Connection reset by peer": ("keeps the rendezvous", "peer"),
    "RuntimeError: No backend type associated with device type cpu": ("cannot do collectives", "start"),
    "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.": ("/dev/shm", "host"),
    "RuntimeError: received 0 items of ancdata": ("too many open files", "host"),
    "RuntimeError: PytorchStreamWriter failed writing file data/3: file write failed": ("checkpoint", "host"),
    "Collective ops is aborted by: Socket closed": ("TensorFlow worker", "peer"),
    "UNAVAILABLE: failed to connect to all addresses; last error: Connection refused": ("TensorFlow worker", "peer"),
    "ValueError: loss is NaN in step 9": ("not a number", "own"),
    "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step tasks have been OOM Killed.": ("killed a process: out of memory", "host"),
    "Memory cgroup out of memory: Killed process 812 (python3) total-vm:9kB": ("killed a process: out of memory", "host"),
    "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***": ("time was up", "terminated"),
    "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***": ("higher priority", "terminated"),
    "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***": ("a node failed", "host"),
    "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***": ("Slurm cancelled", "terminated"),
    "slurmstepd-n1: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***": ("Slurm cancelled", "terminated"),
    "slurmstepd-n2: error: pyxis: --container-mounts: source path does not exist: /nosuch": ("`container.mounts` is not on", "start"),
    "slurmstepd-n1: error: pyxis:     [ERROR] Invalid image format: /images/app.sqsh": ("not an image", "start"),
    "slurmstepd-n2: error: pyxis: couldn't chdir to /nosuch: No such file or directory": ("not in the image", "start"),
    "slurmstepd-n1: error: pyxis:     [ERROR] Command not found: nvidia-container-cli, see https://github.com/NVIDIA/libnvidia-container": ("cannot have the GPUs", "start"),
    "slurmstepd-n1: error: pyxis:     [ERROR] Command not found: column": ("Enroot needs", "start"),
    "srun: unrecognized option '--container-image=/images/app.sqsh'": ("no Pyxis", "start"),
    "slurmstepd: error: pyxis: failed to import docker image": ("could not fetch or unpack the image", "start"),
    "slurmstepd: error: pyxis: importing docker image failed": ("could not fetch or unpack the image", "start"),
    "FATAL:   could not open image /x.sif: open /x.sif: permission denied": ("permission denied", "host"),
    "FATAL:   container creation failed: while setting up overlay: no space left on device": ("disk is full", "host"),
    "[ERROR] Invalid image format: /x.sqsh": ("not an image", "start"),
    "FATAL:   could not open image /x.sif: failed to retrieve path for /x.sif: lstat /x.sif: no such file or directory": ("image is not on that node", "start"),
    "Error response from daemon: No such image: nothere:latest": ("image is not on that node", "start"),
    "FATAL:   container creation failed: mount hook function failure": ("does not start on that node", "start"),
    "OSError: [Errno 122] Disk quota exceeded": ("quota", "host"),
    "OSError: [Errno 116] Stale file handle": ("stale file handle", "host"),
    "OSError: [Errno 5] Input/output error: '/data/x'": ("input/output error", "host"),
    "./app: /lib/libc.so.6: version `GLIBC_2.38' not found (required by ./app)": ("newer system", "start"),
    "sh: line 1: 77 Illegal instruction     (core dumped) ./app": ("another CPU", "start"),
    "ssl.SSLCertVerificationError: certificate verify failed: certificate is not yet valid": ("clock of that node", "host"),
    "make: warning:  Clock skew detected.  Your build may be incomplete.": ("clock of that node", "host"),
    "bash: fork: retry: Resource temporarily unavailable": ("processes or threads", "host"),
    "OSError: [Errno 101] Network is unreachable": ("no route", "start"),
    "OSError: [Errno 113] No route to host": ("does not answer", "peer"),
    "ConnectionResetError: [Errno 104] Connection reset by peer": ("went away", "peer"),
    "ssh: connect to host n2 port 22: Connection timed out": ("did not answer", "timeout"),
    "state T, wchan do_signal_stop": ("is stopped", "own"),
    "ModuleNotFoundError: No module named 'mpi4py'": ("Python module", "start"),
    "sh: 1: trainer: not found": ("PATH", "start"),
    "app: solver.c:12: main: Assertion `n > 0' failed.": ("detected an error", "own"),
    "forrtl: severe (24): end-of-file during read": ("error of its own", "own"),
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'": ("file is missing", "own"),
    "[rank3]: KeyError: 'weights'": ("Python program", "own"),
    'RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.': ('the rank finds no GPU that it can use', 'host'),
    'RuntimeError: CUDA error: the launch timed out and was terminated': ('a computation on the GPU failed', 'own'),
    'RuntimeError: HIP error: the operation cannot be performed in the present state': ('a computation on the GPU failed', 'own'),
    'HSA exception: MemoryRegion::Allocate failed': ('the GPU is out of memory', 'own'),
    'rocblas_status_internal_error': ('a computation on the GPU failed', 'own'),
    'NCCL WARN Error: network not found.': ('NCCL found no usable network interface', 'start'),
    'NCCL WARN comm 0x55 has already been destroyed': ('NCCL was aborted: another rank had failed', 'peer'),
    '[rank2]:[F1105 09:11:02.123 ProcessGroupNCCL.cpp:1554] [PG ID 0 PG GUID 0 Rank 2] [PG ID 0] terminating the process after attempting to dump debug info, due to collective timeout or exception.': ('a collective operation timed out: some rank never joined it', 'timeout'),
    '[rank1]:[E1105 ProcessGroupNCCL.cpp:1414] [PG 0 Rank 1] First PG on this rank that detected no heartbeat of its watchdog.': ('a collective operation timed out: some rank never joined it', 'timeout'),
    'RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn': ('tensors of this rank do not fit each other', 'own'),
    'RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same': ('tensors of this rank do not fit each other', 'own'),
    'FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.': ('the numbers overflowed: the loss is not a number', 'own'),
    "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.": ('a part of the program is compiled at start, and that fails on this node', 'start'),
    'google.api_core.exceptions.ServiceUnavailable: 503 Getting metadata from plugin failed': ('a service outside the job did not answer', 'service'),
    'pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.': ('a file that it read (checkpoint, data) was cut short or is damaged', 'host'),
    "PIL.UnidentifiedImageError: cannot identify image file '/data/x.jpg'": ('a file that it read (checkpoint, data) was cut short or is damaged', 'host'),
    'json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)': ('a file that it read (checkpoint, data) was cut short or is damaged', 'host'),
    "_pickle.UnpicklingError: invalid load key, 'v'.": ('a file that it read (checkpoint, data) was cut short or is damaged', 'host'),
    'OSError: [Errno 99] Cannot assign requested address': ('it binds to an address that is not of that node', 'start'),
    'pure virtual method called': ('the program ended by an error of its own', 'own'),
    'julia: ERROR: LoadError: OutOfMemoryError()': ('no memory was left for it on that node', 'host'),
    'ERROR: LoadError: BoundsError: attempt to access 10-element Vector{Float64} at index [11]': ('the program ended by an error of its own', 'own'),
    'Error in mpi.bcast : object not found': ('the program ended by an error of its own', 'own'),
    'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space': ('the heap of its Java is full', 'own'),
    'fatal error: all goroutines are asleep - deadlock!': ('the program ended by an error of its own', 'own'),
    'memory allocation of 8589934592 bytes failed': ('no memory was left for it on that node', 'host'),
    'ERROR: Unknown command: fixx (src/input.cpp:314)': ('the program ended by an error of its own', 'own'),
    'VASP: internal error in subroutine SGRCON:': ('the program ended by an error of its own', 'own'),
    'EEEEEEE  RRRRRR   I REFUSE TO CONTINUE WITH THIS SICK JOB': ('the program ended by an error of its own', 'own'),
    'Error in routine cdiaghg (1): problems computing cholesky': ('the program ended by an error of its own', 'own'),
    'FLOATING INVALID:': ('the program ended by an error of its own', 'own'),
    'MPIDI_CH3I_Progress: poll failed': ('an MPI call failed for a reason that lies outside of it: often another rank is gone', 'peer'),
    'MPI_ERR_PROC_ABORTED': ('an MPI call failed for a reason that lies outside of it: often another rank is gone', 'peer'),
    'MPI_ERR_NO_MEM: out of memory': ('no memory was left for it on that node', 'host'),
    'PMIX ERROR: OUT-OF-RESOURCE in file dstore_base.c at line 1198': ('no memory was left for it on that node', 'host'),
    'An ORTE daemon has unexpectedly failed after launch and before communicating back to mpirun.': ('an MPI daemon did not come up on a node', 'start'),
    'slurmstepd: error: pyxis: child 1234 failed with error code: 1': ('Slurm could not start the container', 'start'),
    'FATAL:   unable to use user namespaces: not allowed': ('user namespaces are not allowed', 'start'),
    'docker: Error response from daemon: Conflict. The container name "/x" is already in use': ('the container runtime of that node refuses', 'host'),
    'Back-off pulling image "x"': ('the image cannot be fetched from its registry', 'start'),
    'Error: ImagePullBackOff': ('the image cannot be fetched from its registry', 'start'),
    'hfi_userinit: assign_context command failed: Device or resource busy': ('libfabric (OFI) finds no provider on that node: its network card or its driver', 'start'),
    'The InfiniBand retry count between two MPI processes has been exceeded.': ('the network gave up: the other side did not answer', 'peer'),
    'Open MPI failed an OFI Libfabric library call (fi_domain).': ('libfabric (OFI) finds no provider on that node: its network card or its driver', 'start'),
    'A requested component was not found, or was unable to be opened.': ('the MPI lacks the transport that the job asks for', 'start'),
    'An invalid value was supplied for an enum variable.': ('the MPI lacks the transport that the job asks for', 'start'),
    'Your job failed to map. Either no mapper was available, or none of the available mappers was able to perform the requested mapping operation.': ('ranks cannot be bound to cores as asked', 'start'),
    'The value of the MCA parameter "btl_tcp_if_include" was set incorrectly': ('the MPI lacks the transport that the job asks for', 'start'),
    'cgroup: out of memory': ('no memory was left for it on that node', 'host'),
}  # fmt: skip
FIELD = {
    # in the style of such lines, written from memory; roles and reasons by hand
    "RuntimeError: Error building extension 'cpu_adam': [1/3] c++ -MMD ninja: build stopped: subcommand failed.": (
        "compiled at start",
        "start",
    ),
    "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.": (
        "compiled at start",
        "start",
    ),
    "AssertionError: global batch size (1024) is not divisible by micro batch size (3) times data parallel size (16)": (
        "batch sizes",
        "start",
    ),
    "ValueError: Total number of attention heads (40) must be divisible by tensor parallel size (6).": (
        "parallel sizes",
        "start",
    ),
    "AssertionError: Rank 3: found NaN in local grad norm in backward pass before data-parallel communication collective. Device: 3, node: n2": (
        "numbers overflowed",
        "own",
    ),
    "[2024-05-01 10:00:00,000] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python', '-u', 'train.py', '--local_rank=3'] exits with return code = 1": (
        "a rank had failed",
        "peer",
    ),
    "RuntimeError: Lightning can't create new processes if CUDA is already initialized.": (
        "forked after CUDA",
        "own",
    ),
    "lightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!": (
        "no GPU",
        "host",
    ),
    "AssertionError: Torch not compiled with CUDA enabled": ("no GPU", "host"),
    "RuntimeError: No HIP GPUs are available": ("no GPU", "host"),
    "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver to a newer version": (
        "another GPU or a newer driver",
        "start",
    ),
    "RuntimeError: HIP error: invalid device function": ("another GPU or a newer driver", "start"),
    "HW Exception by GPU node-1 (Agent handle: 0x5) reason :GPU Hang": (
        "the GPU has a fault",
        "host",
    ),
    "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources.": (
        "out of memory",
        "own",
    ),
    "n1:123:456 [2] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-GzRJqS to 33030532 bytes, error: No space left on device (28)": (
        "/dev/shm is too small",
        "host",
    ),
    "It appears as if there is not enough space for /dev/shm/vader_segment.n1.0 (the shared-memory backing file).": (
        "/dev/shm is too small",
        "host",
    ),
    "RuntimeError: NCCL Error 5: invalid usage": ("called in a wrong way", "own"),
    "jax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: Timed out waiting for topology: /job:jax_worker/replica:0/task:3": (
        "did not come",
        "timeout",
    ),
    "nvidia_resiliency_ext: Rank monitor: Did not get subsequent heartbeat. Waited 300.00 seconds.": (
        "did not come",
        "timeout",
    ),
    "RuntimeError: Gradient allreduce: Mismatched allreduce tensor shapes: One rank sent an allreduce with shape [10], but another sent shape [11]": (
        "different collective",
        "peer",
    ),
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.": (
        "vLLM engine failed",
        "own",
    ),
    "(raylet) A worker died or was killed while executing a task by an unexpected system error.": (
        "Ray went away",
        "peer",
    ),
    "RuntimeError: You set `--nodes=2` in your SLURM bash script, but the number of tasks per node does not match `devices=4`": (
        "more processes or GPUs",
        "start",
    ),
    "train.py: error: unrecognized arguments: --local-rank=0": (
        "does not take these settings",
        "start",
    ),
    "Attempting to use an MPI routine after finalizing MPICH": ("before MPI_Init or after", "own"),
    "Fatal error in internal_Bcast: Invalid root, error stack:": ("a wrong argument", "own"),
    "[proxy:0:1@n2] HYD_pmcd_pmip_control_cmd_cb (pm/pmiserv/pmip_cb.c:480): assert (!closed) failed": (
        "lost its daemon",
        "peer",
    ),
    "No objects of the specified type were found on at least one node:": (
        "bound to cores",
        "start",
    ),
    "prterun was unable to find the specified executable file, and therefore": (
        "missing on a node",
        "start",
    ),
    "srun: error: Unable to create step for job 1234: Memory required by task is not available": (
        "Slurm cannot give",
        "start",
    ),
    "srun: error: n2: task 4: Killed": ("a rank was killed", "peer"),
    "srun: error: Job step 1234.0 aborted before step completely launched.": (
        "did not start in time",
        "timeout",
    ),
    "slurmstepd: error: Munge decode failed: Expired credential": (
        "could not start a task",
        "host",
    ),
    "FATAL:   stat /opt/app: no such file or directory": ("not in the image", "start"),
    "FATAL:   container creation failed: mount hook function failure: mount /scratch->/scratch error: while mounting /scratch: destination /scratch doesn't exist in container": (
        "no folder at the place of a mount",
        "start",
    ),
    "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all": (
        "does not know its GPUs",
        "host",
    ),
    'Error: creating container storage: the container name "rank0" is already in use by 3f2a': (
        "runtime of that node refuses",
        "host",
    ),
    "./app: relocation error: /lib64/libc.so.6: symbol _dl_exception_create, version GLIBC_PRIVATE not defined in file ld-linux-x86-64.so.2 with link time reference": (
        "different versions",
        "start",
    ),
    "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject": (
        "different versions",
        "start",
    ),
    "pkg_resources.DistributionNotFound: The 'tokenizers>=0.14' distribution was not found and is required by transformers": (
        "module is missing",
        "start",
    ),
    "OMP: Error #15: Initializing libiomp5.so, but found libiomp5.so already initialized.": (
        "run-time library",
        "start",
    ),
    "*** buffer overflow detected ***: terminated": ("aborted", "own"),
    "[3]PETSC ERROR: Out of memory. Allocated: 0, Used by process: 1234": (
        "no memory was left",
        "host",
    ),
    "ERROR: Lost atoms: original 4000 current 3999 (src/thermo.cpp:481)": (
        "an error of its own",
        "own",
    ),
    "LustreError: 11-0: lustre-OST0003-osc-ffff: operation ost_connect to node 10.0.0.5@o2ib failed: rc = -19": (
        "does not reach its server",
        "host",
    ),
    "OSError: [Errno 112] Host is down: '/cifs/data'": ("does not reach its server", "host"),
    "NetCDF: HDF error": ("HDF5, NetCDF", "host"),
    "sqlite3.OperationalError: database is locked": ("cannot be locked", "host"),
    "FLEXnet Licensing error:-15,570. System Error: 115": ("licence server", "service"),
    "FlexNet Licensing error:-15,10032": ("server does not answer", "service"),
    "Licensing error: -15,570. System Error: 115": ("server does not answer", "service"),
    "License Manager Error -15": ("server does not answer", "service"),
    "MATLAB is unable to connect to the license server.": ("server does not answer", "service"),
    "Error: A license for Comp-CL is not available now (-15,570,115).": (
        "server does not answer",
        "service",
    ),
    "Failed to connect to token server 'lic1' (port 41954)": ("server does not answer", "service"),
    "Error communicating with license server: Communications error with license server (-17)": (
        "server does not answer",
        "service",
    ),
    "FNP error:-4,132": ("are in use", "service"),
    "FlexNet Licensing error:-5,357": ("feature or version", "service"),
    "FlexNet Licensing error:-39, 147": ("does not serve this user", "service"),
    "gurobipy.GurobiError: License expired 2026-11-28": ("has expired", "service"),
    "FlexNet Licensing error:-10,32.": ("has expired", "service"),
    "No valid license file found": ("finds no licence", "service"),
    "icpc: error #10052: could not checkout FLEXlm license": ("gave no licence", "service"),
    "License path:  1055@lic7.example;": ("where it asked", "service"),
    "FATAL: domain 1: the domain size is too small for this many processors": (
        "among so many ranks",
        "start",
    ),
    '"/case" number of processor directories = 4 is not equal to the number of processors = 8': (
        "among so many ranks",
        "start",
    ),
    "FATAL:   container creation failed: mount hook function failure: while mounting image /proc/self/fd/3: kernel reported a bad superblock for squashfs image partition": (
        "cut or damaged",
        "host",
    ),
    "forrtl: severe (174): SIGSEGV, segmentation fault occurred": ("stack was too small", "own"),
}
FOUND = {
    # in the form of outputs that users have reported in public, in our own words and numbers
    "RuntimeError: CUDA error: out of memory": ("GPU is out of memory", "own"),
    "RuntimeError: CUDA driver error: out of memory": ("GPU is out of memory", "own"),
    "RuntimeError: NPU out of memory. Tried to allocate 20.00 MiB": ("GPU is out of memory", "own"),
    "RuntimeError: DefaultCPUAllocator: not enough memory: you tried to allocate 8589934592 bytes.": ("no memory was left", "host"),
    "Error: cannot allocate vector of size 7.5 Gb": ("no memory was left", "host"),
    "torch.AcceleratorError: CUDA error: hardware stack error": ("GPU has a fault", "host"),
    "Unable to determine the device handle for GPU0000:8D:00.0: Unknown Error": ("GPU has a fault", "host"),
    "[rank5]: ncclInternalError: Internal check failed.": ("failed inside", "peer"),
    "n1:7:9 [0] proxy.cc:1143 NCCL WARN Socket recv failed while polling for opId=0x55a51966cc80": ("failed inside", "peer"),
    "n1:7:9 [1] proxy.cc:1521 NCCL WARN [Proxy Service 3] Failed to execute operation Connect from rank 3, retcode 2": ("failed inside", "peer"),
    "n1:7:9 [1] NCCL WARN NET/OFI Request 0x7f14cc completed with error. RC: 113. Error: 2 (UNDELIVERABLE)": ("RDMA connection to another", "peer"),
    "n1:7:9 [1] NCCL WARN NET/OFI Request completed with error. RC: 12. Error: unknown error": ("RDMA connection to another", "peer"),
    "n1:7:9 [7] create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument": ("RDMA does not work", "host"),
    "[rank3]:[E1105 09:11:02.12 ProcessGroupNCCL.cpp:2271] [PG ID 0 Rank 3] failure detected by watchdog at work sequence id: 4817": ("watchdog ended it", "timeout"),
    "[rank3]:[F1105 09:11:02.12 ProcessGroupNCCL.cpp:1557] [PG ID 0 Rank 3] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.": ("watchdog ended it", "timeout"),
    "[rank1]:[E614 11:14:03.08 ProcessGroupNCCL.cpp:1319] [PG 0 Rank 1] Failed to get exception dump flag from the global store.Connection reset by peer": ("keeps the rendezvous", "peer"),
    "RuntimeError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms": ("rank 0 did not come", "timeout"),
    "[rank: 1] Child process with PID 812 terminated with code 1. Forcefully terminating all other processes": ("a rank had failed", "peer"),
    "[2026-11-28 10:00:00,120] [ERROR] [launch.py:321:sigkill_handler] ['python', 'a.py'] exits with return code = -6": ("a rank had failed", "peer"),
    "pdsh@head: n3: ssh exited with exit code 1": ("a rank had failed", "peer"),
    "srun: error: n3: tasks 4-7: Exited with exit code 1": ("a rank had failed", "peer"),
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.": ("a rank had failed", "peer"),
    "ZeRORuntimeException: The checkpoint being loaded used a DP world size of 16 but the current world size is 8.": ("does not fit the model", "own"),
    "tensorflow.python.framework.errors_impl.NotFoundError: /data/x.tfrecord; No such file or directory": ("file is missing", "own"),
    "python: can't open file '/w/train.py': [Errno 2] No such file or directory": ("file is missing", "own"),
    "Fortran runtime error: Cannot open file 'input.nml': No such file or directory": ("file is missing", "own"),
    'Exception in thread "main" java.lang.NullPointerException': ("error of its own", "own"),
    "locale.Error: unsupported locale setting": ("the locale", "start"),
    "  what():  locale::facet::_S_create_c_locale name not valid": ("the locale", "start"),
    "E tensorflow/x.cc:249] BaseCollectiveExecutor::StartAbort DEADLINE_EXCEEDED: Deadline Exceeded": ("did not come to an operation", "timeout"),
    "ERROR:tensorflow:Cluster check alive failed, /job:worker/replica:0/task:2 is down, aborting collectives": ("TensorFlow worker", "peer"),
    "FailedPreconditionError: Device /job:worker/replica:0/task:1/device:GPU:0 current incarnation doesn't match with one in the group.": ("TensorFlow worker", "peer"),
    "tensorflow.python.framework.errors_impl.UnknownError: Could not start gRPC server": ("port is taken", "start"),
    "JaxRuntimeError: UNAVAILABLE: Failed to send RPC to coordination service. Either the leader task was preempted or this task has network issues.": ("task of JAX went away", "peer"),
    "F1128 10:00:40 rendezvous.cc:127] Termination timeout for `all reduce` of 40 seconds exceeded. Expected 8 threads, but only 7 of them arrived on time.": ("barrier of JAX", "timeout"),
    "ray.exceptions.LocalRayletDiedError: The task's local raylet died.": ("Ray went away", "peer"),
    "ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.": ("Ray does not run", "start"),
    "[4711] signal (15): Terminated": ("told to end", "terminated"),
    "[3]PETSC ERROR: Caught signal number 15 Terminate: Some process (or the batch system) has told this process to end": ("told to end", "terminated"),
    "MPIDI_OFI_mpi_init_hook(1382): OFI get address vector map failed": ("libfabric", "start"),
    "[n1:2:0:2] ib_mlx5_log.c:177  Remote access on mlx5_0:1/IB (synd 0x13 vend 0x88 hw_synd 0/0)": ("UCX lost", "peer"),
    "ucp_context.c:1060 UCX  ERROR   none of the specified transports are available: dc": ("UCX asks for", "start"),
    "[n1][[61898,1],0][btl_tcp_endpoint.c:668:mca_btl_tcp_endpoint_recv_connect_ack] received unexpected process identifier [[61898,1],3]": ("answered at the address", "start"),
    "[n1:mpi_rank_2][handle_mt_peer] Error while reading PMI socket. MPI process died?": ("MVAPICH lost", "peer"),
    "[n1:12] OPAL ERROR: Unreachable in file ext3x_client.c at line 112": ("finds no launcher", "start"),
    "[mpiexec@n1] HYDT_bscu_wait_for_completion (bscu_wait.c:76): one of the processes terminated badly; aborting": ("lost its daemon", "peer"),
    "command terminated with exit code 137": ("lost its daemon", "peer"),
    "[LightGBM] [Fatal] Socket recv error, Connection reset by peer (code: 104)": ("went away", "peer"),
    "EI0002: The wait execution of the Notify register times out. Reason: no record from remote rank [2].": ("timed out waiting", "timeout"),
    "srun: error: task 0 launch failed: Plugin initialization failed": ("could not start a task", "host"),
    "slurmstepd: error: mpi/pmix_v4: pmixp_coll_ring_reset_if_to: n1 [0]: 0x1: collective timeout seq=0": ("did not start in time", "timeout"),
    "slurmstepd: error: pyxis:     nvidia-container-cli: ldcache error: process ldconfig failed with error code: 1": ("cannot have the GPUs", "host"),
    "slurmstepd: error: pyxis:     [ERROR] URL https://registry.lab/token returned error code: 429 Too Many Requests": ("cannot be fetched", "start"),
    "slurmstepd: error: pyxis: couldn't mkdir /run/pyxis/1000: No such file or directory": ("could not start the container", "start"),
    "FATAL:   exec /usr/local/bin/train failed: no such file or directory": ("not in the image", "start"),
    "FATAL:   exec /opt/app failed: exec format error": ("not for this CPU", "start"),
    "ERROR  : Failed to create user namespace: user namespace disabled": ("user namespaces are not allowed", "start"),
    "container main: OOMKilled": ("killed a process: out of memory", "host"),
    "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([3, 5])": ("its part of the checkpoint", "peer"),
    "ADIO_OPEN(246): open failed on a remote node": ("another rank could not open", "peer"),
    "Abort(872542) on node 2 (rank 2 in comm 0): Fatal error in PMPI_File_open: File does not exist, error stack:": ("file is missing", "own"),
    "EOFError: Compressed file ended before the end-of-stream marker was reached": ("cut short", "host"),
    "RuntimeError: DeepEP error: CPU recv timeout": ("timed out waiting", "timeout"),
    "PMIx_Init failed for the following reason:": ("finds no launcher", "start"),
    "[n1:1] A request was made to bind to that would result in binding more": ("bound to cores", "start"),
    "processes than cpus on a resource:": ("bound to cores", "start"),
    "status = StatusCode.DEADLINE_EXCEEDED": ("timed out waiting", "timeout"),
    "status = StatusCode.UNAVAILABLE": ("went away", "peer"),
    "distributed.comm.core.CommClosedError: in <TCP (closed) local=tcp://n2:1 remote=tcp://n1:2>: Stream is closed": ("went away", "peer"),
    "n7: shepherd died from signal 9": ("lost its daemon", "peer"),
    "n7.lab: rank 12 died from signal 11": ("a rank had failed", "peer"),
    "srun: error: n1: tasks 4-6,9: Aborted": ("a rank had failed", "peer"),
    "srun: error: n1: task 4: Segmentation fault (core dumped)": ("a rank had failed", "peer"),
    "rank 3 in job 9  n1_4711   caused collective abort of all ranks": ("a rank had failed", "peer"),
    "TERM_RUNLIMIT: job killed after its run time limit.": ("its time was up", "terminated"),
    "=>> PBS: job killed: walltime 61 exceeded limit 60": ("its time was up", "terminated"),
    "The node was low on resource: memory. Threshold quantity: 10Mi": ("more memory or disk", "host"),
    "n1.7PSM2 no hfi units are active (err=23)": ("Omni-Path", "host"),
    "n1:rank0: PSM3 can't open nic unit: 0 (err=23)": ("Omni-Path", "host"),
    "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)": ("GPU has a fault", "host"),
    "Native API failed. Native API returns: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)": ("GPU is out of memory", "own"),
    "ucx.c:88  UCX  ERROR process_vm_readv(pid=8) returned -1: No such process": ("same node went away", "peer"),
    "mm_posix.c:195  UCX  ERROR Not enough memory to write total of 42 bytes. Please check that /dev/shm or the directory": ("/dev/shm is too small", "host"),
    "SUMMARY: MemorySanitizer: use-of-uninitialized-value a.cc:3 in main": ("not its own", "own"),
    "a.cc:7:2: runtime error: signed integer overflow: 1 + 2147483647 cannot be represented": ("does not allow", "own"),
    "Fatal glibc error: malloc.c:1 (_int_malloc): assertion failed: size >= nb": ("detected an error", "own"),
    "FATAL from PE   12: negative thickness": ("error of its own", "own"),
    "Error in solve.default(A, b) : ": ("error of its own", "own"),
    "pair.cc:446] op.preamble.length <= op.nbytes. 8192 vs 4096": ("different shapes", "peer"),
    # behind what launchers and loggers put before a line
    "3: KeyError: 'weights'": ("Python program", "own"),
    "n1: [rank3]: KeyError: 'weights'": ("Python program", "own"),
    "2026-11-28T10:00:00.123456789Z stderr F KeyError: 'weights'": ("Python program", "own"),
    "2026-11-28 10:00:00,123 - root - ERROR - KeyError: 'weights'": ("Python program", "own"),
}  # fmt: skip
SAID = {**PRINTED, **DOCUMENTED, **FIELD, **FOUND}
UNLIKE_A_REASON = "lib/torch/nn/f.py:12: UserWarning: Failed to initialize NumPy: No module named 'numpy' (Triggered internally)"
WARNINGS = (
    "WARNING: there are no active ports detected (or Open MPI was unable to use them)",
    "make: warning:  Clock skew detected.  Your build may be incomplete.",
    "INFO: squashfuse not found, will not be able to mount SIF",
    UNLIKE_A_REASON,
    "[W1126 11:00:02.1 socket.cpp:697] [c10d] The IPv6 network addresses of (n0, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
    "[rank3]:[W1126 11:00:02.1 x.cpp:9] Connection closed by peer [10.0.0.2]:80",
    "3: [W1126 11:00:02.1 x.cpp:9] Connection closed by peer [10.0.0.2]:80",
    "n1: [default3]:[rank3]:[W1126 11:00:02.1 x.cpp:9] recvValue failed on SocketImpl(fd=84): failed to recv, got 0 bytes",
    "W1126 03:42:28.657000 7407 torch/distributed/elastic/x.py:9] Sending process 7 closing signal SIGTERM",
    "2026-11-26 11:09:01.1: W tensorflow/stream_executor/dso.cc:64] Could not load libcudnn: cannot open shared object file",
    "2026-11-26 11:09:01,123 - root - WARNING - POST /metrics: [Errno 111] Connection refused",
    "[2026-11-26 11:00:00,120] [WARNING] [ckpt.py:9:save] No space left on device",
    '{"level": "warn", "msg": "ConnectionResetError: [Errno 104]"}',
    "sending metrics: Connection refused (ignored)",
    "upload failed: Connection reset by peer, will retry",
    "n1:9:9 [0] NCCL INFO Call to connect returned Connection refused, retrying",
)  # fmt: skip
ORDINARY = (
    "step 3 loss 2.1",
    "rank 0 of 16 ready",
    "rank 0 of 1000 done",
    "rank 0/16",
    "rank 0/1.5 TFLOPS",
    "[rank0] local rank 0 of 1",
    "tensor model parallel rank 0 of 1",
    "world size 16",
    "world size 128",
    "local_world_size: 1",
    "port 9800",
    "done",
    "",
    "connection refused rate 0.1",
    "net: connection refused rate 0.1, reset rate 0.0",
    "connection timed out count 0",
    "loss nan-free for 100 steps",
    "loss 0.12 (nan: 0)",
    "permission denied: 0 files",
    "checkpoint cache: not found, computing",
    "memory error correction enabled",
    "no route change; broken pipe test passed",
    "n1:9:9 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory",
    "n1:9:9 [0] NCCL INFO NET/IB : No device found.",
    "n1:9:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE GID index 3",
    "n1:9:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0",
    "NCCL version 2.18.3+cuda12.2",
    "n1:7:7 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]",
    "[W1122 socket.cpp:769] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 111 - Connection refused).",
    "  world_size ...................................... 1",
    " iteration 10/ 500 | lm loss: 9.1E+00 | loss scale: 1.0 | number of skipped iterations: 0 | number of nan iterations: 0 |",
    "exitcode  : 0",
    "slurmstepd: pyxis: importing docker image ...",
    "[vm:06930] [[30700,0],0] ORTE_ERROR_LOG: Out of resource in file ../../../orte/util/show_help.c at line 507",
    "Downloading: 12 MB, 0 errors, time limit 10 s",
    "abort threshold 7, rank 3, node 3",
    "epoch 1: 100%|##########| 10/10 [00:01<00:00, 9.9it/s]",
    "validation AssertionErrors: 0, KeyErrors: 0",
    "n1:9:9 [0] NCCL INFO NVLS multicast support is available on dev 0",
    "ERROR: ld.so: object '/usr/lib/libtcmalloc.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.",
    "INFO:    Could not find any nv files on this host!",
    "Using world size: 16, tensor-model-parallel size: 8, pipeline-model-parallel size: 1",
    "UCX  WARN  network device 'mlx5_9:1' is not available, please use one or more of: 'eth0'(tcp)",
    "> global batch size 1024 is divisible by micro batch size 4",
    "clock skew 0.001 s",
    "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
    "ERROR:root:cannot reach statsd at n9:8125, continuing without metrics",
    "2026-11-28 10:00:00,000 ERROR [prefetch] decode error in img_0001.jpg, skipped",
    "E0000 00:00:1747830000.123456 7 cuda_dnn.cc:8310] Unable to register cuDNN factory: one has already been registered",
    "[3]PETSC ERROR: to get more information on the crash.",
    "Error termination. Backtrace:",
    "n1:9:9 [0] NCCL INFO comm 0x55d5 rank 3 nranks 8 - Abort COMPLETE",
    "max abs error = 2.1e-7 (tolerance 1e-5)",
    "[rank3]:[W917 10:00:00.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3): failed to recv, got 0 bytes",
    "Loss is nan at step 0, skipping",
    "n1:1:2 [0] ras.cc:310 NCCL WARN RAS could not bind to port 28028: Address already in use",
    "INFO: rank 3 exited with code 0",
)


@each(SAID.items())
def test_a_message_is_put_into_plain_words(line: str, means: tuple[str, str]) -> None:
    found = explain_end(["step 1 loss 2.3", line])

    assert means[0] in found[0].means
    assert found[0].remedy
    assert found[0].line == line.strip()


@each([case for case in SAID.items() if case[0] not in WARNINGS])
def test_a_message_tells_who_failed(line: str, means: tuple[str, str]) -> None:
    assert kinds_of(["step 1", line]) == ((means[1], line.strip()),)


def test_how_sure_it_is_what_a_line_means_depends_on_how_special_its_row_is() -> None:
    own, code = explain_end(["EADDRINUSE", "[rank3]: KeyError: 'x'"])

    assert (own.sure, code.sure) == (SURE_OF_SPECIAL, SURE_OF_GENERAL)
    assert explain_end(["step 7"], 139)[0].sure is None


@each(WARNINGS)
def test_a_warning_tells_nothing_of_who_failed(line: str) -> None:
    assert kinds_of([line]) == ()


def test_a_warning_explains_only_where_its_row_says_so() -> None:
    line = "UserWarning: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"

    assert [one.line for one in explain_end(["KeyError: 'a'", line, UNLIKE_A_REASON])] == [
        line,
        "KeyError: 'a'",
    ]


def test_kinds_come_newest_first_and_only_of_known_lines() -> None:
    found = kinds_of(
        [
            "KeyError: 'a'",
            "step 3",
            "  Broken news",
            "[pair.cc:553] Connection closed by peer [10.0.0.2]:9.",
        ]
    )

    assert [kind for kind, _ in found] == ["peer", "own"]


def test_the_newest_message_comes_first_and_each_once() -> None:
    found = explain_end(["EADDRINUSE", "No space left on device", "EADDRINUSE again"])

    assert [one.line for one in found] == [
        "EADDRINUSE again",
        "No space left on device",
    ]


def test_what_only_says_that_others_failed_comes_last() -> None:
    lines = ["MemoryError", "prterun noticed that process rank 1 with PID 7 on node n1 exited on"]
    found = explain_end(lines, 137)

    assert [one.means.split(":")[0] for one in found] == [
        "no memory was left for it on that node",
        "the launcher ended the job",
    ]
    assert len(explain_end(["MemoryError"], 137)) == 1, "killed by whom is known"


def test_a_licence_that_is_refused_is_told_by_its_words_with_the_server_that_was_asked() -> None:
    printed = "Cannot connect to license server system.|Feature:       cfd_solve|License path:  1055@lic7;|FlexNet Licensing error:-15,10032"
    silent, asked = explain_end(printed.split("|"), 1)

    assert (silent.line, silent.sure) == (
        "Cannot connect to license server system.",
        SURE_OF_SPECIAL,
    )
    assert (asked.line, "PORT@HOST" in asked.remedy) == ("License path:  1055@lic7;", True)


@pytest.mark.parametrize("status", STATUSES)
def test_an_exit_status_speaks_where_the_lines_do_not(status: int) -> None:
    (found,) = explain_end(["step 7"], status)

    assert found.line == ""


@each(ORDINARY)
def test_an_ordinary_line_means_nothing(line: str) -> None:
    assert explain_end([line], 1) == ()


def test_every_row_has_a_line_that_it_explains() -> None:
    for row in MESSAGES:
        assert explain_end([row.example])[0].means == row.means


@each([row.remedy for row in MESSAGES] + [remedy for _, remedy in STATUSES.values()])
def test_advice_leaves_nothing_for_the_reader_to_fill_in(remedy: str) -> None:
    assert not re.search(r"…|\b(?:FILE|NODES|JOB|INTERFACE)\b", remedy)


def test_a_taken_port_promises_a_new_one_only_where_none_is_fixed() -> None:
    (found,) = explain_end(["EADDRINUSE"])

    assert "without `torch.port`" in found.remedy


@pytest.mark.parametrize("word", ["NCCL WARN ", "Fatal error in ", "[10.0.0.1]:1 ", "sh: ", ": 1: ", "UNAVAILABLE: "])  # fmt: skip
def test_a_hostile_line_costs_no_more_than_a_few_milliseconds(word: str) -> None:
    assert effort(lambda: kinds_of([word * 5000])) < 10


def test_a_row_of_a_user_comes_before_ours_and_can_be_taken_away() -> None:
    row = Message(
        r"licence .* denied", MessageKind.SERVICE, "no licence", "ask for one", "licence x denied"
    )
    line = "KeyError: licence 7 denied"
    use_rows((row,))
    try:
        assert [one.means for one in explain_end([line])] == ["no licence"]
        assert kinds_of([line]) == (("service", line),)
    finally:
        use_rows(())

    assert [one.means for one in explain_end([line])] != ["no licence"]
