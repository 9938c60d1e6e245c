"""The agent stays what a bare Python 3.6 can run."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cases import each

AGENT = Path(__file__).resolve().parents[2] / "agents" / "rankdeck_agent"
ALLOWED = {"rankdeck_agent", "rankdeck_simulator", "paho"}
SOURCES = sorted([*AGENT.rglob("*.py"), *(AGENT.parent / "rankdeck_simulator").glob("*.py")])


def is_for_type_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imported(source: Path) -> set[str]:
    """The packages that a module imports when it runs."""
    found: set[str] = set()
    module = ast.parse(source.read_text(), feature_version=(3, 6))
    module.body = [one for one in module.body if not is_for_type_checkers(one)]
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.long
@each(SOURCES)
def test_a_module_of_the_agent_needs_only_python_and_paho(source):
    assert imported(source) - sys.stdlib_module_names <= ALLOWED


def test_the_job_side_and_the_dispatcher_load_neither_paho_nor_a_collector():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import rankdeck_agent.__main__ as m; m.main(['--version']);"
        "print([n for n in sys.modules if n.startswith(('paho', 'json', 'rankdeck_agent.collectors'))])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(AGENT.parent)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "[]"


def test_the_keeper_of_slurm_jobs_which_stays_for_days_loads_no_large_module():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import rankdeck_agent.schedulers.slurm.keeper;"
        "print([n for n in ('ctypes', 'subprocess', 'threading') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(AGENT.parent)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )

    assert done.stdout.strip() == "[]"
