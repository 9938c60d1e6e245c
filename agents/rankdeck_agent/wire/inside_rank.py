"""The program that runs inside each Python rank that uses torch.distributed, mpi4py or JAX, before
its own: a thread that says, when it is asked, where the rank is and which collective operations of
torch it has entered (`rankdeck_agent.job.witness` asks). TensorFlow lets no thread speak while it
waits.

The shim of a rank puts the folder with this file first on PYTHONPATH, so that Python runs it as
`sitecustomize`. It does nothing before one of these modules is imported; then a thread waits on
the socket that RANKDECK_WITNESS names. `RANKDECK_WITNESS=off` leaves it out.
"""

INSIDE_FILE = "sitecustomize.py"
"""Its name in the folder `run_folder.INSIDE`."""
INSIDE_RANK = r'''"""Answers for Rankdeck where this rank is, and which collective operations it has entered.

It only waits in a thread until it is asked; RANKDECK_WITNESS=off in the job's `env` leaves it out.
"""
import os
import sys

_RECENT = 8  # operations of each group
_LONGEST = 30  # frames of a stack
_WORRIES = (AttributeError, ImportError, KeyError, OSError, RuntimeError, TypeError, ValueError)


class _Notice:
    """Does each part of _PARTS once, when its module is imported; finds no module itself.

    It stays among the finders: Python would pass over the one after it if it left in its turn.
    """

    def __init__(self):
        self._left = {_keep_operations, _begin}

    def find_spec(self, name, path=None, target=None):
        for part in self._left.intersection(_PARTS.get(name, ())):
            self._left.remove(part)
            try:
                part()
            except _WORRIES:
                pass
        return None


def _keep_operations():
    """Switch on the flight recorder of a PyTorch before 2.8: new ones warn of its old name."""
    version = sys.modules["torch"].__version__.split(".")
    if (int(version[0]), int(version[1])) < (2, 8):
        size = os.environ["TORCH_FR_BUFFER_SIZE"]
        os.environ.setdefault("TORCH_NCCL_TRACE_BUFFER_SIZE", size)


def _begin():
    import atexit
    import json  # in this thread: Python can crash if it ends while another one imports
    import socket
    import threading

    folder, name = os.path.split(os.environ["RANKDECK_WITNESS"])
    handle = os.open(folder, os.O_RDONLY)
    address = "/proc/self/fd/%d/%s" % (handle, name)  # an address has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(address)
            return  # another process of this rank answers already
        except OSError:
            pass
    try:
        os.unlink(address)
    except OSError:
        pass
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(4)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=listener.close)
    thread = threading.Thread(target=_serve, args=(listener, json), name="rankdeck", daemon=True)
    thread.start()
    atexit.register(_end, listener, thread, os.getpid())


def _end(listener, thread, process):
    """End the thread before Python ends, which may crash otherwise; a fork has no such thread."""
    import socket

    if os.getpid() == process:
        listener.shutdown(socket.SHUT_RDWR)  # wakes it
        thread.join(3)


def _serve(listener, json):
    while True:
        try:
            link, _ = listener.accept()
        except OSError:
            return
        with link:
            try:
                link.settimeout(2)
                link.sendall(json.dumps(_answer()).encode())
            except _WORRIES:
                pass


def _answer():
    frames = _main_frames()
    said = {"stack": [[f.f_code.co_name, f.f_code.co_filename, f.f_lineno] for f in frames]}
    for part in (_groups, _recorded, lambda: _peer(frames)):
        try:
            said.update(part())
        except _WORRIES:
            pass
    return said


def _main_frames():
    import threading

    frame = sys._current_frames().get(threading.main_thread().ident)
    frames = []
    while frame is not None and len(frames) < _LONGEST:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _groups():
    """Name of each group -> its ranks and what the program calls it."""
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    found = {}
    for group, name in list(world.pg_names.items())[:64]:
        ranks = sorted(world.pg_group_ranks.get(group, {}))
        found[str(name)] = {"ranks": ranks, "called": str(getattr(group, "group_desc", ""))}
    return {"groups": found}


def _recorded():
    """Group -> the number of the last operation that was entered, and the newest operations."""
    import json
    import time

    c10d = sys.modules["torch._C._distributed_c10d"]
    dump = getattr(c10d, "_dump_fr_trace_json", None) or c10d._dump_nccl_trace_json
    told = json.loads(dump(True, False))
    now, of = time.time_ns(), {}
    for one in told.get("entries") or []:
        name = str(one["process_group"][0])
        of.setdefault(name, []).append(
            {
                "number": one["collective_seq_id"],
                "what": one["profiling_name"],
                "sizes": one["input_sizes"][:4],
                "types": one["input_dtypes"][:4],
                "over": bool(one["retired"]) or one["state"] == "completed",
                "ago": round((now - one["time_created_ns"]) / 1e9, 1),
                "between": bool(one["is_p2p"]),
            }
        )
    return {"recorded": {name: some[-_RECENT:] for name, some in of.items()}}


def _peer(frames):
    """The rank with which this one exchanges a message, if it waits in `send` or `recv`."""
    for frame in frames[:6]:
        name, own = frame.f_code.co_name, frame.f_locals
        if name in ("recv", "send") and frame.f_code.co_filename.endswith("distributed_c10d.py"):
            peer = own.get("src" if name == "recv" else "dst")
            return {"peer": [name, peer if isinstance(peer, int) else -1]}
    return {}


_PARTS = {
    "torch.distributed.distributed_c10d": (_keep_operations, _begin),
    "mpi4py.MPI": (_begin,),
    "jax._src.distributed": (_begin,),
}
if "RANKDECK_WITNESS" in os.environ and sys.version_info >= (3, 6):
    sys.meta_path.insert(0, _Notice())

# Python takes only the first `sitecustomize` it finds: go on with the one that it would have had.
_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _here]
_mine = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError as _error:
    # Python 2 tells the name in words only.
    if (getattr(_error, "name", None) or str(_error).split()[-1]) != "sitecustomize":
        raise
    if _mine is not None:
        sys.modules["sitecustomize"] = _mine
'''
