"""Rankdeck's commands in forks of one process that has loaded its modules: half
of a short command's CPU time is loading.

Each command is a process of its own all the same, with its own environment, output and exit status.
Tests of starting, of signals and of terminals start `python -m rankdeck` themselves.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NoReturn

_PDEATHSIG = 1
_NEVER = ("rankdeck.ui", "rankdeck.__main__", "rankdeck.acceptance.recipes.torch")


class Commands:
    """The client: starts the loaded process when it is first needed, and again if it has ended."""

    def __init__(self, enter: Callable[[Sequence[str]], list[str]] = list) -> None:
        """`enter` changes a command so that it runs in another place, such as a lab's head."""
        self._enter = enter
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def run(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        limit: float,
        cwd: Path | str = "",
        *,
        together: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run `rankdeck` with these arguments in the folder `cwd`; raises
        TimeoutExpired after `limit` seconds. `together`: complaints are among the output, as on a
        terminal.
        """
        request = json.dumps({"arguments": arguments, "env": dict(env), "cwd": str(cwd)}).encode()
        out, err = (os.fdopen(os.memfd_create(name), "w+b") for name in ("out", "err"))
        reply, theirs = socket.socketpair()
        with out, err, reply:
            with theirs:
                complaints = out if together else err
                self._send(request, (out.fileno(), complaints.fileno(), theirs.fileno()))
            reply.settimeout(limit)
            try:
                code = int(reply.recv(16) or b"-9")
            except TimeoutError:
                told = _text(out), _text(err)
                raise subprocess.TimeoutExpired([*arguments], limit, *told) from None
            return subprocess.CompletedProcess([*arguments], code, _text(out), _text(err))

    def close(self) -> None:
        """End the process, and all commands that still run."""
        if self._channel is not None and self._server is not None:
            self._channel.close()
            self._server.kill()
            self._server.wait(60)
            self._channel = None

    def _send(self, request: bytes, files: Sequence[int]) -> None:
        with self._lock:
            if self._channel is None or (self._server and self._server.poll() is not None):
                self._start()
            assert self._channel is not None
            socket.send_fds(self._channel, [request], files)

    def _start(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            script = [sys.executable, "-P", str(Path(__file__).resolve()), str(theirs.fileno())]
            paths = [
                str(Path(__file__).resolve().parents[2] / part) for part in ("console", "agents")
            ]
            self._server = subprocess.Popen(
                self._enter(script),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )


COMMANDS = Commands()
"""For this machine; each lab has its own, in its namespaces."""


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return io.TextIOWrapper(file, "utf-8").read()


def _load() -> None:
    """Import all of Rankdeck except its screens and what runs on nodes."""
    import rankdeck

    for module in pkgutil.walk_packages(rankdeck.__path__, "rankdeck."):
        if not module.name.startswith(_NEVER):
            importlib.import_module(module.name)


def _with_parent() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def _serve(channel: socket.socket) -> None:
    """Fork a process for each request; returns only in that process, ready to run the command."""
    signal.signal(
        signal.SIGCHLD, signal.SIG_IGN
    )  # nobody waits for the first forks, which wait for the commands
    while True:
        data, files, *_ = socket.recv_fds(channel, 1 << 20, 3)
        if not data:
            os._exit(0)
        if not os.fork():
            break
        for file in files:
            os.close(file)
    channel.close()
    _with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    out, err, reply = files
    command = os.fork()
    if command:
        _, status = os.waitpid(command, 0)
        os.write(reply, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    _with_parent()
    os.dup2(out, 1)
    os.dup2(err, 2)
    for file in files:
        os.close(file)
    request = json.loads(data)
    os.environ.clear()
    os.environ.update(request["env"])
    if request["cwd"]:
        os.chdir(request["cwd"])
    sys.argv = ["rankdeck", *request["arguments"]]


def _leave(code: object) -> NoReturn:
    """End as an interpreter does, but without freeing the modules: that
    would first copy the shared memory.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError):  # closed
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _load()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    from rankdeck.__main__ import main

    try:
        status: object = main()
    except SystemExit as ended:
        status = ended.code
    _leave(status)
