"""`preflight`: facts about this node for a job, and whether it can reach the other nodes."""

import fcntl
import hmac
import ipaddress
import os
import platform
import queue
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar, cast

from rankdeck_agent.images.digests import FAR_SETTLED, TooSlowError, file_digest
from rankdeck_agent.images.image_rows import describe_images
from rankdeck_agent.logout import judge_logout, logout_facts
from rankdeck_agent.older_python import find_paths
from rankdeck_agent.rdma_gids import list_rdma_ports
from rankdeck_agent.state_folder import agent_state_folder
from rankdeck_agent.text import parse_json_table, plain_line, print_complaint, print_json_line

PAYLOAD = 32 << 10
"""Bytes sent after the token: several packets of the largest usual size."""
CONNECT_LIMIT = 1.5
_WIDTH = 32
_BACKLOG = 256
_FLAGS, _ADDRESS, _MASK, _MTU = 0x8913, 0x8915, 0x891B, 0x8921
_UP, _RUNNING = 1, 0x40
_DONE = b"ok"
T = TypeVar("T")


def list_interfaces() -> list[dict[str, Any]]:
    """A row per network interface: `name`, IPv4 `address` as a.b.c.d/n or
    "", `mtu`, and whether it is `up`.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return [_interface(probe, name) for _, name in socket.if_nameindex()[:256]]


def _interface(probe: socket.socket, name: str) -> dict[str, Any]:
    flags, mtu = _ask(probe, _FLAGS, name), _ask(probe, _MTU, name)
    address, mask = _ask(probe, _ADDRESS, name), _ask(probe, _MASK, name)
    state = struct.unpack("H", flags[16:18])[0] if flags else 0
    row = {
        "name": plain_line(name, 32),
        "up": bool(state & _UP and state & _RUNNING),
        "mtu": struct.unpack("i", mtu[16:20])[0] if mtu else 0,
        "address": "",
    }
    if address and mask:
        text = f"{socket.inet_ntoa(address[20:24])}/{socket.inet_ntoa(mask[20:24])}"
        row["address"] = str(ipaddress.IPv4Interface(text))
    return row


def _ask(probe: socket.socket, what: int, name: str) -> Optional[bytes]:
    try:
        return fcntl.ioctl(probe, what, struct.pack("256s", name.encode()[:15]))
    except OSError:
        return None


def resolve_name(name: str) -> list[str]:
    """The addresses of a host name, as resolved on this node; raises OSError, UnicodeError."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return sorted({str(row[4][0]) for row in found})[:8]


def port_trouble(port: int) -> str:
    """Why no program can listen on this TCP port; "" if one can."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            probe.listen(1)
    except OSError as error:
        return plain_line(error.strerror or str(error))
    return ""


# ---- connections -----------------------------------------------------------------------


class Listener:
    """Listens on a free port until the process ends; answers peers that know the token."""

    def __init__(self, token: str, patience: float = 1.0) -> None:
        self._token, self._limit = token.encode(), 2 * CONNECT_LIMIT * patience
        self._socket = _listening()
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        try:
            with peer:
                peer.settimeout(self._limit)
                received = _exactly(peer, len(self._token))
                if hmac.compare_digest(received, self._token):
                    _exactly(peer, PAYLOAD)
                    peer.sendall(_DONE)
        except OSError:
            return


def _listening() -> socket.socket:
    """A socket on a free port of every address, IPv6 and IPv4; only IPv4 if there is no IPv6."""
    try:
        return _server(socket.AF_INET6)
    except OSError:
        return _server(socket.AF_INET)


def _server(family: int) -> socket.socket:
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("", 0))
        server.listen(_BACKLOG)
    except OSError:
        server.close()
        raise
    return server


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = peer.recv(min(65536, size - len(data)))
        if not piece:
            raise ConnectionError("the other side ended the connection")
        data += piece
    return data


def try_connection(
    token: str, host: str, port: int, limit: float = CONNECT_LIMIT
) -> dict[str, str]:
    """One attempt to reach a Listener: `error` ("" if all bytes arrived), `local`
    (our address), `stage` (connect or data).
    """
    try:
        peer = socket.create_connection((host, port), limit)
    except OSError as error:
        return {"error": _why(error, limit), "local": "", "stage": "connect"}
    with peer:
        local = str(peer.getsockname()[0])
        try:
            peer.sendall(token.encode() + bytes(PAYLOAD))
            _exactly(peer, len(_DONE))
        except OSError as error:
            return {"error": _why(error, limit), "local": local, "stage": "data"}
    return {"error": "", "local": local, "stage": ""}


def _why(error: OSError, limit: float) -> str:
    if isinstance(error, (TimeoutError, socket.timeout)):
        return f"no answer within {limit:g} s"
    return plain_line(error.strerror or str(error))


def side_by_side(work: Callable[[T], Any], items: Iterable[T], limit: float) -> list[Any]:
    """The results of `work` for all items, in order, run in threads; None for
    those not done within `limit` seconds.
    """
    todo: Sequence[T] = list(items)
    found: list[Any] = [None] * len(todo)
    waiting: queue.Queue[int] = queue.Queue()
    done = threading.Semaphore(0)
    for index in range(len(todo)):
        waiting.put(index)

    def run() -> None:
        while True:
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            found[index] = work(todo[index])
            done.release()

    for _ in range(min(_WIDTH, len(todo))):
        threading.Thread(target=run, daemon=True).start()
    deadline = time.monotonic() + limit
    for _ in todo:
        if not done.acquire(timeout=max(0.0, deadline - time.monotonic())):
            break
    return list(found)


_FACTS_LIMIT = 15.0
_MOST_PATIENCE = 100.0
_PROGRAM_LIMIT = 4.0
_DIGEST_LIMIT = 1.0
_RESOLVE_LIMIT = 2.0
_MOST_FOUND = 8
_GPU = "index,uuid,name,memory.total,memory.used,ecc.errors.uncorrected.volatile.total"
_USERS = "gpu_uuid,pid,used_memory,process_name"
_FOUND = "found:"
_FIND = (
    "import sys; from importlib.util import find_spec; "
    f"print({_FOUND!r}, *filter(find_spec, sys.argv[1:]))"
)
"""Program that prints which top-level modules exist, without importing them."""
Facts = dict[str, Any]


def read_patience(request: Mapping[str, Any]) -> float:
    """By how much longer than usual everything may take: `patience` of the request; else 1."""
    asked = request.get("patience")
    if not isinstance(asked, (int, float)) or not 1.0 <= asked <= _MOST_PATIENCE:
        return 1.0
    return float(asked)


def gather_facts(request: Mapping[str, Any]) -> Facts:
    """All facts; what could not be read is missing or has an `error`.

    Keys of the request: base, path, programs, modules, versions, images, hosts, port, gpus and
    patience, by which all limits are multiplied.
    """
    base = Path.home() / Path(str(request.get("base") or "~")).expanduser()
    path = str(request.get("path") or "") or None
    asked = _RequestedFacts(request, base, path)
    jobs = (
        *(asked.programs, asked.modules, asked.versions),
        *(asked.images, asked.names, asked.gpus, asked.machine),
    )
    found: Facts = {}
    for facts in side_by_side(lambda job: job(), jobs, _FACTS_LIMIT * read_patience(request)):
        found.update(facts or {})

    port = int(request.get("port") or 0)
    return {
        **found,
        "base": {"path": plain_line(str(base)), "there": base.is_dir()},
        "port": port_trouble(port) if port else "",
        "at": time.time(),
    }


class _RequestedFacts:
    """The parts of the facts that the request names."""

    def __init__(self, request: Mapping[str, Any], base: Path, path: Optional[str]) -> None:
        self._request, self._base, self._path = request, base, path
        self._patience = read_patience(request)

    def _words(self, key: str) -> list[str]:
        found = self._request.get(key)
        words = cast("list[object]", found) if isinstance(found, list) else []
        return [str(word) for word in words[:4096]]

    def programs(self) -> Facts:
        """Name -> path ("" if there is none), size and digest of each program;
        `refused`: it is there, but may not be run.
        """
        names = self._words("programs")
        return {"programs": {name: self._program(name) for name in names}}

    def _program(self, name: str) -> Facts:
        path = self._find(name)
        if not path:
            place = self._place(name)
            return {
                "path": "",
                "refused": plain_line(str(place)) if place and place.is_file() else "",
            }
        row = {"path": plain_line(path), "size": Path(path).stat().st_size, "digest": ""}
        try:
            # Programs are small, and often in home folders on a file server.
            row["digest"] = file_digest(Path(path).resolve(), _DIGEST_LIMIT, settled=FAR_SETTLED)
        except (OSError, TooSlowError):
            return row
        return row

    def _find(self, name: str) -> str:
        """The path of a command or a Python file; "" if there is
        none, or it cannot be run or read.
        """
        place = self._place(name)
        if place is None:
            return shutil.which(name, path=self._path) or ""
        mode = os.R_OK if name.endswith(".py") else os.X_OK
        return str(place) if place.is_file() and os.access(place, mode) else ""

    def _place(self, name: str) -> Optional[Path]:
        """Where a program that is named by a path, or a Python file,
        must be; None for a command in PATH.
        """
        if "/" not in name and not name.endswith(".py"):
            return None
        return self._base / Path(name).expanduser()

    def modules(self) -> Facts:
        """For each `PYTHON MODULE`: whether this interpreter finds the
        module; left out if it did not answer.
        """
        wanted: dict[str, list[str]] = {}
        for word in self._words("modules"):
            python, _, name = word.rpartition(" ")
            wanted.setdefault(python, []).append(name)
        found: Facts = {}
        for python, names in wanted.items():
            path = self._find(python)
            head, *there = self._say(path, "-c", _FIND, *names).split() if path else [""]
            if head == _FOUND:
                found.update({f"{python} {name}": name in there for name in names})
        return {"modules": found}

    def versions(self) -> Facts:
        """Program -> the first line of its `--version`."""
        names = [path for name in self._words("versions") for path in _expanded(name)]
        found: Facts = {}
        for name in names:
            path = self._find(name)
            found[name] = self._say(path, "--version") if path else ""
        return {"versions": found}

    def _say(self, *argv: str) -> str:
        return _first_line(argv, _PROGRAM_LIMIT * self._patience)

    def images(self) -> Facts:
        """The rows of the images; see `image.look`."""
        return {"images": describe_images(self._request)}

    def names(self) -> Facts:
        """Host name -> its addresses or an error; `own`: the same for this node's name."""
        hosts = self._words("hosts")
        own = socket.gethostname()
        limit = _RESOLVE_LIMIT * self._patience
        found = side_by_side(_resolved, [*hosts, own], limit)
        late = {"error": f"no answer within {limit:g} s"}
        rows = [row or late for row in found]
        return {"names": dict(zip(hosts, rows)), "own": {"name": plain_line(own), **rows[-1]}}

    def gpus(self) -> Facts:
        """GPUs and the processes on them, if the request asks for them."""
        limit = _PROGRAM_LIMIT * self._patience
        return {"gpus": _gpus(limit)} if self._request.get("gpus") else {}

    def machine(self) -> Facts:
        """The facts that do not depend on the request."""
        return gather_machine_facts(_PROGRAM_LIMIT * self._patience)


def _expanded(name: str) -> list[str]:
    """The name, or if it has `*`, the first few paths that match here."""
    if "*" not in name:
        return [name]
    return [str(path) for path in find_paths(Path("/"), name.lstrip("/"))[:_MOST_FOUND]]


def _resolved(name: str) -> Facts:
    try:
        return {"addresses": resolve_name(name)}
    except (OSError, UnicodeError) as error:
        return {"error": plain_line(getattr(error, "strerror", "") or str(error))}


def gather_machine_facts(limit: float) -> Facts:
    """What this machine has; `limit`: the seconds that a program may take for its answer."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return {
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memlock": None if soft == resource.RLIM_INFINITY else soft,
        "interfaces": list_interfaces(),
        "rdma": list_rdma_ports(),
        "spaces": {
            "run": _space(agent_state_folder()),
            "tmp": _space(Path("/tmp")),
            "shm": _space(Path("/dev/shm")),
        },
        "userns": _first_line(["unshare", "-U", "true"], limit, "yes"),
        "fuse": os.access("/dev/fuse", os.R_OK | os.W_OK),
        "logout": judge_logout(logout_facts()).ends,
    }


def _space(path: Path) -> Facts:
    """Bytes and inodes free for this user at a path, which need not exist yet."""
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        found = os.statvfs(path)
    except OSError as error:
        return {"path": plain_line(str(path)), "error": plain_line(error.strerror or str(error))}
    return {
        "path": plain_line(str(path)),
        "total": found.f_blocks * found.f_frsize,
        "free": found.f_bavail * found.f_frsize,
        # Some file systems do not count inodes: 0 of 0 does not mean that none is left.
        "inodes": found.f_favail if found.f_files else None,
        "writable": os.access(path, os.W_OK),
    }


def _first_line(argv: Sequence[str], limit: float, silent: str = "") -> str:
    """The first line that a program prints; `silent` if it succeeds
    without output, "" if it fails.
    """
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=limit,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return plain_line(lines[0]) if lines else silent if done.returncode == 0 else ""


def _gpus(limit: float) -> Facts:
    """`rows`, the GPUs according to nvidia-smi, and `users`, the
    processes on them; or an `error`.
    """
    try:
        rows = _table(_GPU, "--query-gpu", limit)
        users = _table(_USERS, "--query-compute-apps", limit)
    except FileNotFoundError:
        return {"error": "no nvidia-smi here"}
    except (OSError, subprocess.SubprocessError) as error:
        output: bytes = getattr(error, "stdout", None) or b""
        return {"error": plain_line(output.decode("utf-8", "replace").strip() or str(error))}
    return {"rows": rows, "users": users}


def _table(fields: str, question: str, limit: float) -> list[Facts]:
    argv = ["nvidia-smi", f"{question}={fields}", "--format=csv,noheader,nounits"]
    done = subprocess.run(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=limit,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    names = fields.split(",")
    found: list[Facts] = []
    for line in done.stdout.decode("utf-8", "replace").splitlines()[:512]:
        cells = [plain_line(cell, 100) for cell in line.split(",", len(names) - 1)]
        if len(cells) == len(names):
            found.append(dict(zip(names, cells)))
    return found


_LONGEST = 4 << 20
_MOST_SECONDS = 6000
_ROUND_LIMIT = 8.0


def main() -> int:
    """Read the request, print the facts, then on a second request connect to
    the other nodes; returns the exit code.
    """
    request = _read_request()
    if request is None:
        return print_complaint("rankdeck: preflight needs a request as JSON on stdin", 2)
    # End soon if the console is gone, so that nobody has to clean up.
    patience = read_patience(request)
    lives = int(request.get("seconds") or 20) * patience
    signal.alarm(max(1, min(round(lives), _MOST_SECONDS)))

    token = str(request.get("token") or "")
    listen = Listener(token, patience).port if len(token) >= 16 else 0
    print_json_line({**gather_facts(request), "listen": listen})

    order = _read_request()
    if order is not None:
        print_json_line({"connected": _connect(token, order.get("connect"), patience)})
        sys.stdin.buffer.read(1)
    return 0


def _read_request() -> Any:  # noqa: ANN401 - decoded JSON
    line = sys.stdin.buffer.readline(_LONGEST)
    return parse_json_table(line.decode("utf-8", "replace")) if line else None


def _connect(token: str, targets: object, patience: float) -> dict[str, Any]:
    rows = cast("list[Any]", targets) if isinstance(targets, list) else []
    asked = [(str(name), str(host), int(port)) for name, host, port in rows]
    each, limit = CONNECT_LIMIT * patience, _ROUND_LIMIT * patience
    found = side_by_side(lambda row: try_connection(token, row[1], row[2], each), asked, limit)
    late = {"error": f"no answer within {limit:g} s", "local": "", "stage": "connect"}
    return {row[0]: answer or late for row, answer in zip(asked, found)}
