"""The Kubernetes double for tests: a cluster in this process, and kubectl to ask it."""

import functools
import hashlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.kubernetes.double import Double
from tests.support.lab import rootless
from tests.support.processes import read

_SCRIPT = Path(__file__).parent / "kubectl.sh"
_CACHE = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
"""Read before a test has folders of its own: what is fetched is kept from run to run."""


@functools.cache
def kubectl_or_why() -> tuple[Path | None, str]:
    """kubectl 1.36 or newer from Debian sid, fetched once into the cache folder; or why not."""
    name = hashlib.sha256(_SCRIPT.read_bytes()).hexdigest()[:12]
    found = Path(_CACHE) / "rankdeck-kubectl" / name / "kubectl"
    if not found.exists():
        try:
            subprocess.run([_SCRIPT, found.parent], check=True, capture_output=True, timeout=660)
        except (OSError, subprocess.SubprocessError) as problem:
            told = getattr(problem, "stderr", b"") or str(problem).encode()
            return None, f"needs Debian sid's kubectl: {told.decode(errors='replace')[-200:]}"
    return found, ""


@pytest.fixture(scope="session")
def kubectl() -> Path:
    """The program kubectl; skips the test if it is not available."""
    found, why = kubectl_or_why()
    if found is None:
        pytest.skip(why)
    return found


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[Callable[..., Double]]:
    """`kubernetes()` starts a double, its pods are real processes;
    `kubernetes(processes=False)` pretends.
    """
    started: list[Double] = []

    def start(**options) -> Double:
        if options.get("processes", True) and (why := rootless.missing()):
            pytest.skip(why)
        double = Double(tmp_path / f"kubernetes{len(started)}", **options)
        double.up()
        started.append(double)
        return double

    yield start
    _end_keepers(tmp_path)
    for double in started:
        double.down()


def _end_keepers(folder: Path) -> None:
    """End what a test has left that goes on asking a double of this folder:
    the keepers of jobs that it follows.
    """
    config = b"\0KUBECONFIG=" + bytes(folder) + b"/"
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        if pid != os.getpid() and config in b"\0" + read(pid, "environ"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
