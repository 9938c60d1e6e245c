"""Ranks and peers that a line names."""

import pytest

from rankdeck.rules.messages import first_by_launcher, named_peers, named_ranks

RANKS = {
    # printed by MPICH 4.0.2
    "Abort(7) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 1": (1,),
    "Abort(139278) on node 5 (rank 0 in comm 3): Fatal error in internal_Recv: Message truncated, error stack:": (5,),
    # printed by Open MPI 5.0.11 and 4.1.4
    "MPI_ABORT was invoked on rank 12 in communicator MPI_COMM_WORLD": (12,),
    "MPI_ABORT was invoked on rank 2": (2,),
    "  Proc: [[14388,1],3]": (3,),
    "prterun noticed that process rank 1 with PID 7259 on node vm exited on": (1,),
    "mpirun.openmpi noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).": (1,),
    "prterun has exited due to process rank 4 with PID 0 on node vm calling": (4,),
    "   Process name: [prterun-vm-7259@1,6]": (6,),
    "  Process name: [[30657,1],1]": (1,),
    # printed by torch 2.13
    "RuntimeError: [Rank 0]: Ranks 2, 5 failed to pass monitoredBarrier in 3000 ms": (2, 5),
    "[ERROR] [ft_launcher9@n1] Some rank(s) exited with non-zero exit code: {2: ProcessFailure(local_rank=2, pid=7": (2,),
    "[rank0]: RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms": (1,),
    # in the form of torch 2.9 and of Ascend's torch
    "CheckpointException: CheckpointException ranks:dict_keys([3, 5])": (3, 5),
    "[4] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store": (0,),
    "EI0002: The Notify register times out. Reason: no Notify record from remote rank [2].": (2,),
    # from the documentation of Intel MPI, MPICH and Slurm
    "=   RANK 3 PID 17313 RUNNING AT n2": (3,),
    "MPIDI_CH3I_Progress(1): Communication error with rank 7": (7,),
    "srun: error: n1: task 3: Killed": (3,),
    "srun: error: n1: tasks 0-2,7: Exited with exit code 1": (0, 1, 2, 7),
    "srun: error: n1: tasks 0-999999999: Killed": (0, 999999999),
}  # fmt: skip
PEERS = {
    # printed by torch 2.13
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4567. This is": ("10.0.0.2",),
    "RuntimeError: [pair.cc:537] Read error [::ffff:10.0.0.2]:80: Connection reset by peer.": ("10.0.0.2",),
    "[c10d] waitForInput: poll for socket SocketImpl(fd=13, addr=[::ffff:10.0.0.1]:33612, remote=[::ffff:10.0.0.2]:29624) returned 0": ("10.0.0.2",),
    "The client socket has timed out after 4000ms while trying to connect to (no-such-node.invalid, 29623).": ("no-such-node.invalid",),
    "[E] The client socket has failed to connect to any network address of (n1, 29500).": ("n1",),
    # from the issues of NCCL
    "node0:1:1 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45678> failed : Software caused connection abort": ("10.0.0.2",),
    "NCCL WARN socketProgress: Connection closed by remote peer node2<42830>": ("node2",),
    "NCCL WARN Net : Call to recv from 10.200.84.247<58355> failed : Broken pipe": ("10.200.84.247",),
    "NCCL WARN NET/IB : Got completion from peer 10.0.35.1<49189> with error 4": ("10.0.35.1",),
    "NCCL WARN Connect to fe80::966d:ae03:a2:8cf0%ib1<17943> failed": ("fe80::966d:ae03:a2:8cf0%ib1",),
    # printed by Open MPI 4.1.4 and MPICH 4.0.2 with UCX
    "  Remote daemon: [[20599,0],1] on node other": ("other",),
    "mpirun.openmpi noticed that process rank 1 with PID 0 on node n2 exited on signal 9 (Killed).": ("n2",),
    "=   PID 6878 RUNNING AT vm": ("vm",),
    "[1795319514.892491] [vm:17316:0] sock.c:325  UCX  ERROR connect(fd=25, dest_addr=10.0.0.7:54887) failed: Connection refused": ("10.0.0.7",),
    # from the help texts and sources of Open MPI, UCX, libfabric and gRPC
    "  Peer host:  n2": ("n2",),
    "  Peer hostname:       n2 (n2.cluster)": ("n2",),
    "Hostname: n2": ("n2",),
    "peer: n2": ("n2",),
    "tcp_ep 0x1: detected that [10.0.0.1:4000 <-> 10.0.0.2:5000]:7 connection was closed by the peer": ("10.0.0.2",),
    "libfabric:9:core: fi_sockaddr_in://10.0.0.2:4567 closed": ("10.0.0.2",),
    "last error: UNKNOWN: ipv4:10.0.0.1:2222: Failed to connect to remote host: Connection refused": ("10.0.0.1",),
    "ssh: connect to host n2 port 22: Connection refused": ("n2",),
    "ssh: Could not resolve hostname n2: Name or service not known": ("n2",),
}  # fmt: skip
ORDINARY = (
    "rank 0 of 1000",
    "[Rank 3] step 7 loss 2.1",
    "node0:1:1 [0] NCCL INFO Bootstrap : Using ib1:fe80::966d:ae03:b2:62c4%ib1<0>",
    "  Local host: n1",
    "[2026-11-22 03:42:28]:12 step",
    "[1]: 3 of 4",
    "MPI_ABORT was invoked on rank 0 in communicator MPI COMMUNICATOR 3 SPLIT FROM 0",
    "",
)


@pytest.mark.parametrize(("line", "ranks"), RANKS.items())
def test_a_line_names_ranks(line: str, ranks: tuple[int, ...]) -> None:
    assert named_ranks(line) == ranks


@pytest.mark.parametrize(("line", "peers"), PEERS.items())
def test_a_line_names_peers(line: str, peers: tuple[str, ...]) -> None:
    assert named_peers(line) == peers


@pytest.mark.parametrize("line", ORDINARY)
def test_an_ordinary_line_names_nobody(line: str) -> None:
    assert (named_ranks(line), named_peers(line)) == ((), ())


LAUNCHERS = {
    # in the form of PALS, Flux, jsrun, MVAPICH, Fujitsu, MPD and Charm++
    ("n1: rank 2 died from signal 15", "n2: rank 7 died from signal 6 and dumped core"): (7,),
    ("n1: rank 2 died from signal 9",): (2,),
    ("n1: rank 3 exited with code 1", "n1: rank 0 died from signal 15"): (3,),
    ("flux-shell[0]: FATAL: doom: app: rank 3 on host n1 exited and exit-timeout=30s has expired",): (3,),
    ("flux-shell[0]: FATAL: task-exit: app: task rank 1 on host n1 failed and exit-on-error is set",): (1,),
    ("ERROR:  One or more process (first noticed rank 4) terminated with signal 11 (core dumped)",): (4,),
    ("[n1:mpispawn_0][child_handler] MPI process (rank: 2, pid: 17) terminated with signal 9 -> abort job",): (2,),
    ("[WARN] PLE 0610 plexec The process terminated with the signal.(rank=3)(nid=0x2)(sig=11)",): (3,),
    ("rank 5 in job 1  n1_4711   caused collective abort of all ranks", "  exit status of rank 5: killed by signal 11 "): (5,),
    ("------------- Processor 5 Exiting: Called CmiAbort ------------",): (5,),
    ("rank 0 exited with code 0", "rank 2 passed with status 0", "rank 3 took 15 signal samples"): (),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "ranks"), LAUNCHERS.items())
def test_a_launcher_names_the_rank_that_it_did_not_kill_itself(
    lines: tuple[str, ...], ranks: tuple[int, ...]
) -> None:
    assert first_by_launcher(lines) == ranks
