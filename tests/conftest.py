"""What every test starts from: folders of its own, and the labs."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.lab import lab, root_lab

__all__ = ["lab", "root_lab"]
# How fast the machine is says nothing of what is tested.
settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's own folders."""
    home = tmp_path / "own"
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
    """`need("mosquitto", "tmux")` skips the test by name where a program is missing."""

    def check(*programs: str) -> None:
        for program in programs:
            if not shutil.which(program) and not shutil.which(program, path="/usr/sbin:/sbin"):
                pytest.skip(f"needs {program}")

    return check
