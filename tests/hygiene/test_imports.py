"""What the commands load: each is asked in a fresh interpreter."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROBE = """
import contextlib, json, os, sys
from rankdeck.__main__ import main
with contextlib.redirect_stdout(open(os.devnull, "w")), contextlib.suppress(SystemExit):
    main(sys.argv[1:])
print(json.dumps([name for name in sys.modules if "." not in name]))
"""


def printed(script: str, *arguments: str, **more: str) -> list[str]:
    """The names that a script prints last, in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={"PYTHONPATH": f"{ROOT}/console:{ROOT}/agents", "PATH": "/usr/bin:/bin", **more},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def loaded_by(home: Path, *arguments: str) -> set[str]:
    return set(printed(PROBE, *arguments, HOME=str(home)))


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("run", "--help")])
def test_help_loads_nothing_heavy(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    loaded = loaded_by(tmp_path, *arguments)

    assert not loaded & {
        "textual",
        "rich",
        "asyncssh",
        "aiomqtt",
        "paho",
        "yaml",
        "asyncio",
    }


def test_check_loads_neither_the_screen_nor_the_network(tmp_path: Path) -> None:
    loaded = loaded_by(tmp_path, "check", "/etc/hostname")

    assert "yaml" in loaded
    assert not loaded & {"textual", "rich", "asyncssh", "aiomqtt", "paho"}


@pytest.mark.long
@pytest.mark.parametrize("verb", ["status", "jobs", "nodes"])
def test_verbs_of_the_command_line_load_no_screen(tmp_path: Path, verb: str) -> None:
    loaded = loaded_by(tmp_path, verb, "-c", "/nowhere.yaml")

    assert "sqlite3" in loaded
    assert not loaded & {"textual", "rich", "asyncssh"}


BEHIND = """
import json, sys
from rankdeck.ui.opening import _loaded
_loaded("rankdeck.opening")
before = set(sys.modules)
from rankdeck.model.cluster import Cluster, Node
from rankdeck.state.fleet import Fleet
from rankdeck_agent.wire import HealthReport, Hello, Sample
fleet = Fleet(Cluster(name="c", nodes=(Node(name="n1"),)))
fleet.apply("n1", Hello("n1", True, 1.0, "b", "0", 1.0, {"cpu.model": "x"}))
report = HealthReport(1.0, 0, 10.0, applies=6, judged=6)
fleet.apply("n1", Sample(1, 1.0, {"mem.used": {"": 1.0}}, (), {}, report))
fleet.compare_peers()
fleet.take_changes()
assert fleet.node("n1").health.evaluated, "not judged"
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.mark.long
def test_the_first_message_of_a_node_loads_nothing() -> None:
    """What the first picture did not wait for is there before a key could wait for it."""
    assert printed(BEHIND) == []


FIRST_PICTURE = """
import json, sys, types
import rankdeck.__main__, rankdeck.cli.choose
import rankdeck.ui.app, rankdeck.ui.screens.fleet
out = sys.stdout
rankdeck.ui.app.run_console = lambda *_, **__: print(json.dumps(sorted(sys.modules)), file=out)
sys.stdin = sys.stdout = types.SimpleNamespace(isatty=lambda: True)
rankdeck.__main__.open_console(None)
sys.stdout = out
"""


@pytest.mark.long
def test_the_first_picture_waits_for_nothing_of_jobs_of_rules_nor_of_the_network() -> None:
    loaded = printed(FIRST_PICTURE)

    assert "rankdeck.ui.screens.fleet" in loaded
    late = ("rankdeck.opening", "rankdeck.session", "rankdeck.remote", "rankdeck.backends", "rankdeck.images", "rankdeck.logs",
            "rankdeck.preflight", "rankdeck.demo", "rankdeck.model.job", "rankdeck.state.jobs",
            "rankdeck.state.judgement", "rankdeck.rules.expectations", "rankdeck_agent.rules.facts", "rankdeck_agent.rules.derived",
            "rankdeck_agent.rules.judge", "rankdeck_agent.rules.report", "rankdeck.ui.screens.modals",
            "rankdeck.cli.parser", "argparse", "asyncssh", "aiomqtt", "paho", "ClusterShell", "importlib.metadata", "email")  # fmt: skip
    assert [name for name in loaded if name.startswith(late)] == []
