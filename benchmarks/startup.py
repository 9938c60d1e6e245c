"""How long `rankdeck --help`, `check` and loading a session take, beside clush and asyncssh."""

import shutil
import sys
import tempfile

from benchmarks.measure import alternate, environment
from benchmarks.result import Result

ROUNDS = 9


CLUSTER = "cluster: two\nnodes:\n  - {name: 'n[1-2]', slots: 2}\n"


def run() -> list[Result]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(CLUSTER)
        file.flush()
        return _run(file.name)


def _run(file: str) -> list[Result]:
    commands: dict[str, tuple[str, ...]] = {
        "help": (sys.executable, "-m", "rankdeck", "--help"),
        "check": (sys.executable, "-m", "rankdeck", "check", file),
        "session": (sys.executable, "-c", "import rankdeck.session"),
        "python": (sys.executable, "-c", "pass"),
        "asyncssh": (sys.executable, "-c", "import asyncssh"),
    }
    clush = shutil.which("clush") or shutil.which("clush", path=sys.executable.rpartition("/")[0])
    if clush:
        commands["clush"] = (clush, "--help")
    found = alternate(commands, ROUNDS, environment())
    peer = "clush" if clush else "python"
    return [
        Result(
            name="startup.help", value=found["help"][1] * 1000, unit="ms CPU", peer=f"{peer} --help",
            peer_value=found[peer][1] * 1000, budget=100, on_ratio=False,
            limit="the start of Python",
        ),
        Result(
            name="startup.check", value=found["check"][1] * 1000, unit="ms CPU",
            peer="import asyncssh", peer_value=found["asyncssh"][1] * 1000, budget=0.6,
            limit="imports",
        ),
        Result(
            name="startup.session", value=found["session"][1] * 1000, unit="ms CPU",
            peer="import asyncssh", peer_value=found["asyncssh"][1] * 1000, budget=0.67,
            limit="imports: 180 modules",
        ),
    ]  # fmt: skip
