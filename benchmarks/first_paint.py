"""From the start of the process to the first picture, in a terminal:
ours, the smallest Textual app, top.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.support.terminal import terminal

from benchmarks.measure import cpu_of, environment
from benchmarks.result import MissingError, Result

ROUNDS = 7
BUDGET = 350.0
CLUSTER = "cluster: two\nnodes:\n  - {name: n1, address: 127.0.0.1, port: 1, slots: 2}\n"
SMALLEST = """
from textual.app import App
from textual.widgets import Static
class Hello(App):
    def compose(self):
        yield Static("hello there")
Hello().run()
"""


def run() -> list[Result]:
    """Milliseconds of wall time and of CPU: a busy machine spoils only the first."""
    if not shutil.which("top"):
        raise MissingError("no `top` (procps) to compare with")
    with tempfile.TemporaryDirectory() as folder:
        return _run(Path(folder))


def _run(folder: Path) -> list[Result]:
    file = folder / "two.yaml"
    file.write_text(CLUSTER)
    own = {f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "STATE", "CACHE")}
    env = environment(HOME=str(folder), **own)
    commands = {
        "ours": ((sys.executable, "-m", "rankdeck", "-c", str(file)), "1 Fleet"),
        "Textual's smallest": ((sys.executable, "-c", SMALLEST), "hello there"),
        "top": (("top",), "Tasks:"),
    }
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(ROUNDS + 1):
        for name, (argv, text) in commands.items():
            with terminal(argv, env) as shown:
                wall = shown.wait_for(text)
                runs[name].append((wall * 1000, cpu_of(shown.process.pid) * 1000))
    wall = {name: median(w for w, _ in each[1:]) for name, each in runs.items()}
    cpu = {name: median(c for _, c in each[1:]) for name, each in runs.items()}
    busy = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    small = "Textual's smallest"
    return [
        Result(
            name="first_paint.wall", value=wall["ours"], unit="ms", peer=small, peer_value=wall[small],
            budget=BUDGET, on_ratio=False, note=f"{busy}; top {wall['top']:.0f} ms",
        ),
        Result(
            name="first_paint.cpu", value=cpu["ours"], unit="ms CPU", peer=small, peer_value=cpu[small],
            budget=1.3, limit="imports", note=f"top {cpu['top']:.0f} ms",
        ),
    ]  # fmt: skip
