"""The layers of ARCHITECTURE.md, as import-linter sees them."""

import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AGENT = ROOT / "agents" / "rankdeck_agent"
OPEN_TO_THE_CONSOLE = {"rankdeck_agent.wire", "rankdeck_agent.rules", "rankdeck_agent.values"}


@pytest.mark.long
def test_every_import_points_down() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    if not linter.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run(
        [linter, "--no-cache"],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}/console:{ROOT}/agents", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for types only count, too: whoever reads one file
    should not have to read them all.
    """
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("rankdeck", "rankdeck_agent", "rankdeck_simulator")

    order = TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    )

    order.prepare()  # raises CycleError, which names the circle


def test_every_module_of_the_agent_is_open_or_closed_to_the_console() -> None:
    """A new module or package of the agent must be in one of the two lists."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [
        one for one in settings["contracts"] if one["name"].startswith("The console takes nothing")
    ]
    modules = {path.stem for path in AGENT.glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in AGENT.glob("*/__init__.py")}

    there = {f"rankdeck_agent.{name}" for name in modules | packages}
    assert there == OPEN_TO_THE_CONSOLE | set(contract["forbidden_modules"])
