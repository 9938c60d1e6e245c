"""The layers of ARCHITECTURE.md, as import-linter sees them."""

import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


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
    """Imports for types only count, too: whoever reads one file should not have to read them all."""
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("rankdeck", "rankdeck_agent")

    order = TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    )

    order.prepare()  # raises CycleError, which names the circle
