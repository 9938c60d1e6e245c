"""The process `kubectl proxy`, through which we reach the API server: started, asked
for its namespace, ended, its folder removed.
"""

import ctypes
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Optional

from rankdeck_agent.older_python import delete_file, find_paths
from rankdeck_agent.schedulers.kubernetes.api import Api
from rankdeck_agent.schedulers.kubernetes.kubectl_errors import (
    ASK_LIMIT,
    ASKED_FOR_LOGIN,
    NO_CREDENTIALS,
    ProxyError,
    in_words,
    kubectl_complaint,
)
from rankdeck_agent.text import plain_line

START_LIMIT = 15.0
_STOP_LIMIT = 2.0
_POLL = 0.02
_PREFIX = "rankdeck-kubectl-"
_FRESH = 20.0
"""Seconds for which a new folder is not removed: its kubectl may be about to start."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class Proxy:
    """Owns one `kubectl proxy` process and the folder of its socket; a context manager.

    Always call `start` from the same thread, and keep that thread alive: kubectl ends with it.
    """

    def __init__(self, context: str = "", program: str = "kubectl") -> None:
        self._context, self._program = context, program
        self._folder: Optional[Path] = None
        self._process: Optional[subprocess.Popen[bytes]] = None

    def __enter__(self) -> "Proxy":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def api(self) -> Api:
        """A client; stays valid when kubectl is started again."""
        assert self._folder is not None
        return Api(str(self._folder / "s"), self._folder / "err")

    @property
    def alive(self) -> bool:
        """Whether kubectl runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start kubectl, or restart it; returns when it accepts connections. Raises ProxyError."""
        if shutil.which(self._program) is None:
            raise ProxyError(
                "no program kubectl in PATH: install it, or name the machine that has it with"
                " `kubernetes: {login: HOST}`"
            )
        self._reap()
        if self._folder is None:
            # Mode 0700: a user who can open the socket has all our rights in the cluster.
            base = _short_folder() or tempfile.gettempdir()
            _sweep(Path(base))
            self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        # A server may be behind a path (https://rancher/k8s/clusters/c-1);
        # kubectl before 1.21 cannot use one.
        if not self._serves(self._folder / "s", "--append-server-path"):
            self._serves(self._folder / "s")

    def _serves(self, path: Path, *options: str) -> bool:
        """Start kubectl with these options; False if it does not know them. Raises ProxyError."""
        assert self._folder is not None
        delete_file(path)
        errors = (self._folder / "err").open("wb")
        context = ("--context", self._context) if self._context else ()
        self._process = subprocess.Popen(
            (self._program, *context, "proxy", f"--unix-socket={path}", *options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
        errors.close()
        deadline = time.monotonic() + START_LIMIT
        while time.monotonic() < deadline:
            if not self.alive:
                if options and "unknown flag" in self._said():
                    return False
                raise ProxyError(self._complaint())
            if _answers(path):
                return True
            time.sleep(_POLL)
        raise ProxyError(f"kubectl proxy did not serve within {START_LIMIT:.0f} s")

    def _said(self) -> str:
        """What kubectl wrote last on stderr."""
        assert self._folder is not None
        return (self._folder / "err").read_bytes()[-4096:].decode("utf-8", "replace").strip()

    def _complaint(self) -> str:
        said = kubectl_complaint(self._said())
        if said == ASKED_FOR_LOGIN:
            return NO_CREDENTIALS
        return in_words(said or "kubectl proxy ended without an error message", self._context)

    def stop(self) -> None:
        """End kubectl and remove its folder."""
        self._reap()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _reap(self) -> None:
        if self._process is None:
            return
        if self.alive:
            self._process.terminate()
        try:
            self._process.wait(_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def namespace(self) -> str:
        """The namespace of the context, `default` if it names none; raises ProxyError."""
        context = ("--context", self._context) if self._context else ()
        what = ("config", "view", "--minify", "--output=jsonpath={.contexts[0].context.namespace}")
        try:
            done = subprocess.run(
                (self._program, *context, *what),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=ASK_LIMIT,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ProxyError(f"kubectl does not answer: {plain_line(str(error), 200)}") from error
        stderr = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode:
            # In a pod kubectl needs no configuration: it uses the pod's service account.
            if "KUBERNETES_SERVICE_HOST" in os.environ and not self._context:
                return _pod_namespace()
            raise ProxyError(in_words(kubectl_complaint(stderr), self._context))
        return plain_line(done.stdout.decode("utf-8", "replace"), 63) or "default"


def _pod_namespace() -> str:
    try:
        file = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
        return plain_line(file.read_text(), 63) or "default"
    except OSError:
        return "default"


def _short_folder() -> Optional[str]:
    """A folder in which the socket's path stays below the limit of 107
    bytes; None: the usual one will do.
    """
    return None if len(tempfile.gettempdir()) < 70 else "/tmp"


def _sweep(base: Path) -> None:
    """Remove folders that are left because a proxy and its owner were killed."""
    for folder in find_paths(base, f"{_PREFIX}*"):
        try:
            about = folder.lstat()
            fresh = time.time() - about.st_mtime < _FRESH
        except OSError:
            continue
        ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
        if ours and not fresh and not _answers(folder / "s"):
            shutil.rmtree(folder, ignore_errors=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def end_tidily() -> None:
    """Make SIGTERM and SIGHUP end this process by SystemExit, so
    that the proxy's folder is removed.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
