"""`kubectl proxy` on a Unix socket of our own: all authentication is kubectl's; and its complaints in words."""

import ctypes
import os
import re
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

from rankdeck_agent.job.journal import plain
from rankdeck_agent.kubernetes.api import UNREACHABLE, Api, ApiError

START_LIMIT = 15.0
ASK_LIMIT = 15.0
_STOP_LIMIT = 2.0
_POLL = 0.02
_PREFIX = "rankdeck-kubectl-"
_FRESH = 20.0
"""Seconds for which a folder is left alone: its kubectl may be about to start."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class ProxyError(Exception):
    """kubectl does not serve us; the text is a sentence that says what to do."""


_COMPLAINTS = (
    (r"context .*(?:does not exist|nosuch|was not found)|cannot locate context",
     "kubectl knows no context `{context}`: `kubectl config get-contexts` lists those there are"),
    (r"current-context must exist|no configuration has been provided|127\.0\.0\.1:8080|localhost:8080",
     "kubectl has no configuration here: put one in ~/.kube/config, or set KUBECONFIG"),
    (r"error loading config|couldn't get version/kind|yaml: |cannot unmarshal",
     "kubectl cannot read its configuration: {said}"),
    (r"getting credentials|exec: executable|exec plugin|refresh token|oauth2|invalid_grant|AADSTS",
     "kubectl could not log in: log in again as you do for kubectl ({said})"),
    (r"Unauthorized|must be logged in|token (?:has|is) expired",
     "your login to Kubernetes has expired or is not known there: log in again as you do for kubectl"),
    (r"x509|certificate|tls:",
     "the certificate of the Kubernetes server is not accepted: compare the clock here, and `kubectl cluster-info` ({said})"),
    (r"connection refused|no such host|no route|timeout|timed out|network is unreachable|EOF|connection reset|deadline exceeded",
     "the Kubernetes server does not answer: is it up, and the VPN? `kubectl cluster-info` asks it too ({said})"),
)  # fmt: skip
"""What kubectl or the server write, and the sentence for it; the first that fits."""


def in_words(said: str, context: str = "") -> str:
    """A complaint of kubectl or of the server as one sentence that says what to do; else itself."""
    said = plain(said.removeprefix("error: "), 300)
    for pattern, sentence in _COMPLAINTS:
        if re.search(pattern, said, re.IGNORECASE):
            return sentence.format(said=said, context=plain(context, 60))
    return said


def refusal(error: ApiError) -> str:
    """Why a request failed, in a sentence; what the server says of objects and rights is left as it is."""
    if error.status in (0, 401, 500, 502, 503, 504) or error.reason == UNREACHABLE:
        return in_words(error.message or error.reason)
    return error.message or error.reason


class Proxy:
    """Owns one kubectl process and the folder of its socket; a context manager.

    Begun and begun again by one thread, which has to live as long as it: kubectl ends with that thread.
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
        """A client for it; stays valid when kubectl is started anew."""
        assert self._folder is not None
        return Api(str(self._folder / "s"))

    @property
    def alive(self) -> bool:
        """Whether kubectl runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start kubectl, or start it anew; returns when it serves. Raises ProxyError."""
        if shutil.which(self._program) is None:
            raise ProxyError(
                "no program kubectl in PATH: install it, or name the machine that has it with `kubernetes: {login: HOST}`"
            )
        self._reap()
        if self._folder is None:
            # Mode 0700: whoever can open the socket has all rights of this user in the cluster.
            base = _short_folder() or tempfile.gettempdir()
            _sweep(Path(base))
            self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        path = self._folder / "s"
        path.unlink(missing_ok=True)
        errors = (self._folder / "err").open("wb")
        context = ("--context", self._context) if self._context else ()
        self._process = subprocess.Popen(
            (self._program, *context, "proxy", f"--unix-socket={path}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
        errors.close()
        self._await(path)

    def _await(self, path: Path) -> None:
        deadline = time.monotonic() + START_LIMIT
        while time.monotonic() < deadline:
            if not self.alive:
                raise ProxyError(self._complaint())
            if _answers(path):
                return
            time.sleep(_POLL)
        raise ProxyError(f"kubectl proxy did not serve within {START_LIMIT:.0f} s")

    def _complaint(self) -> str:
        assert self._folder is not None
        said = (self._folder / "err").read_bytes()[-4096:].decode("utf-8", "replace").strip()
        last = said.splitlines()[-1] if said else "kubectl proxy ended without a word"
        return in_words(last, self._context)

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
        """The namespace of the context, `default` where it names none; raises ProxyError."""
        context = ("--context", self._context) if self._context else ()
        what = ("config", "view", "--minify", "--output=jsonpath={.contexts[0].context.namespace}")
        try:
            done = subprocess.run(
                (self._program, *context, *what),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=ASK_LIMIT,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ProxyError(f"kubectl does not answer: {plain(str(error), 200)}") from error
        said = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode:
            # In a pod kubectl needs no configuration: it takes the pod's own account.
            if "KUBERNETES_SERVICE_HOST" in os.environ and not self._context:
                return _pod_namespace()
            raise ProxyError(in_words(said.splitlines()[-1] if said else "", self._context))
        return plain(done.stdout.decode("utf-8", "replace"), 63) or "default"


def _pod_namespace() -> str:
    try:
        file = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
        return plain(file.read_text(), 63) or "default"
    except OSError:
        return "default"


def _short_folder() -> Optional[str]:
    """Where the socket's path fits into the 107 bytes that it may have."""
    return None if len(tempfile.gettempdir()) < 70 else "/tmp"


def _sweep(base: Path) -> None:
    """Remove the folders of proxies that were killed, and whose owner could not do it."""
    for folder in base.glob(f"{_PREFIX}*"):
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
    """From now on SIGTERM and SIGHUP end this process by SystemExit, so that a proxy's folder goes with it."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
