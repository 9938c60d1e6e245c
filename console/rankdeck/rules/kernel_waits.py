"""What a process waits for, by the function of Linux in which it stands. No I/O.

The names are those of /proc/PID/wchan in kernels 4.18 to 6.12.
"""

import re
from functools import lru_cache

_WAITS = (
    (r"hrtimer_nanosleep|do_nanosleep|common_nsleep", "a sleep"),
    (r"ep_poll|do_epoll_wait|poll_schedule_timeout|do_sys_poll|do_poll|do_select", "a socket or a timer"),
    (r"futex_", "a lock or another thread"),
    (r"wait_for_partner|fifo_open", "a FIFO that nobody else has open"),
    (r"pipe_read|anon_pipe_read|pipe_wait", "an empty pipe"),
    (r"pipe_write|anon_pipe_write", "a full pipe"),
    (r"do_wait|kernel_wait4|kernel_waitid", "a child process"),
    (r"unix_(?:stream|dgram|wait)", "a Unix socket"),
    (r"inet_csk_accept", "a connection that nobody opens"),
    (r"sk_wait_data|tcp_recvmsg|wait_woken|sk_stream_wait|__skb_wait|skb_wait", "the network"),
    (r"rpc_|nfs4?_", "an NFS server"),
    (r"ptlrpc_|ldlm_|osc_|cl_sync|ll_|cl_lock", "a Lustre server"),
    (r"ceph_|wait_on_sync_kiocb", "a Ceph server"),
    (r"request_wait_answer|fuse_", "a FUSE file system"),
    (r"flock_lock|locks_lock|fcntl_setlk|posix_lock", "a file lock"),
    (r"folio_wait|wait_on_page|io_schedule|bit_wait_io|blk_|blkdev_|submit_bio|jbd2_|xfs_|ext4_|btrfs_", "a disk"),
    (r"uvm_|nv_|_nv|os_acquire", "the driver of the GPU"),
    (r"n_tty_read|tty_", "the terminal"),
)  # fmt: skip
"""How functions begin -> what is waited for there; the first that matches counts."""


@lru_cache(maxsize=1024)
def name_kernel_wait(function: str) -> str:
    """`hrtimer_nanosleep (a sleep)`; a function that is not known as it is."""
    found = next((words for begins, words in _WAITS if re.match(begins, function)), "")
    return f"{function} ({found})" if found else function
