"""Fixtures and settings of all tests: private folders, the labs, the tiers."""

import gc
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.kubernetes import kubectl, kubernetes
from tests.support.lab import lab, root_lab, slurm_lab
from tests.support.parallel import order, pytest_xdist_make_scheduler
from tests.support.programs import search_path
from tests.support.rdma_lab import rdma_lab
from tests.support.tiers import is_thorough

__all__ = [
    "kubectl",
    "kubernetes",
    "lab",
    "pytest_xdist_make_scheduler",
    "rdma_lab",
    "root_lab",
    "slurm_lab",
]
os.environ["PATH"] = search_path()
# Keep compiled modules, as an installation does: this saves a third of the time of each command.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Background jobs of a shell ignore SIGINT, programs under nohup SIGHUP.
# Without this, all programs that tests start
# would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
# No deadline: a slow machine is no bug. `python -m benchmarks fuzz` makes far more examples.
for name, examples in (("all", 25), ("fast", 15)):
    settings.register_profile(
        name, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


_NUMBERS = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """The fast tier (`make fast`) tries fewer examples than `make test`."""
    settings.load_profile("fast" if "not long" in config.option.markexpr else "all")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable garbage collection while tests are collected, and exclude them
    from later collections: a third less work.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark thorough tests, and run a failed slow test a second time:
    real programs have races of their own.
    """
    for item in items:
        if is_thorough(item):
            item.add_marker(pytest.mark.thorough)
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.flaky(reruns=1))
    if hasattr(config, "workerinput"):  # one of several processes
        order(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why a test needed a second run: the plugin that reruns tests only names them."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"first run of {report.nodeid}")
        terminalreporter.line(report.longreprtext[-4000:])


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's own folders; most need none, so none is made."""
    home = tmp_path_factory.getbasetemp() / f"own{next(_NUMBERS)}"
    for variable, part in {
        "XDG_STATE_HOME": "state",
        "XDG_CONFIG_HOME": "config",
        "XDG_CACHE_HOME": "cache",
        "RANKDECK_STATE": "rankdeck",
    }.items():
        monkeypatch.setenv(variable, str(home / part))
    return home


@pytest.fixture
def need() -> Callable[..., None]:
    """`need("mosquitto", "tmux")` skips the test and names the program that is missing."""

    def check(*programs: str) -> None:
        for program in programs:
            if not shutil.which(program):
                pytest.skip(f"needs {program}")

    return check
