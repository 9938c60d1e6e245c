"""The agent as one file: the same bytes each time, and it runs on the oldest Python."""

import json
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest

from rankdeck.remote.bundle import build_bundle
from tests.support.pythons import AbsentError, python_of

CODE = "import sys; sys.path[:0] = sys.argv[1:]; from rankdeck.remote.bundle import build_bundle; print(build_bundle().digest)"
ROOT = Path(__file__).resolve().parents[3]


@cache
def oldest() -> str:
    """A real Python 3.6; skips where there is none."""
    try:
        return str(python_of("3.6"))
    except AbsentError as error:
        pytest.skip(str(error))


@pytest.fixture
def agent(tmp_path):
    path = tmp_path / build_bundle().name
    path.write_bytes(build_bundle().data)
    return path


def run(*argv, stdin=b""):
    return subprocess.run(
        list(map(str, argv)), input=stdin, capture_output=True, timeout=300, check=False
    )


@pytest.mark.long
def test_the_same_sources_give_the_same_bytes_in_another_process():
    done = run(sys.executable, "-c", CODE, ROOT / "console", ROOT / "agents")

    assert done.stdout.decode().strip() == build_bundle().digest
    assert build_bundle() is build_bundle()
    assert build_bundle().name == f"agent-{build_bundle().digest[:12]}.pyz"


def test_the_bundle_holds_the_agent_paho_and_no_console(agent):
    names = zipfile.ZipFile(agent).namelist()

    assert {"__main__.py", "rankdeck_agent/wire/__init__.py", "paho/mqtt/client.py"} <= set(names)
    assert not [n for n in names if n.startswith(("rankdeck/", "rankdeck_simulator/"))]


def test_an_agent_without_simulated_devices_says_so(agent):
    asked = json.dumps({"host": "localhost", "node": "n1", "cluster": "c", "simulate": ["gpu"]})

    done = run(sys.executable, "-IS", agent, "telemetry", stdin=asked.encode() + b"\n")

    assert done.returncode == 2
    assert b"simulate: this agent has no simulated devices" in done.stderr


def test_nodes_that_simulate_get_an_agent_that_can(tmp_path):
    path = tmp_path / "agent.pyz"
    path.write_bytes(build_bundle(simulating=True).data)

    names = zipfile.ZipFile(path).namelist()

    assert "rankdeck_simulator/devices.py" in names
    assert build_bundle(simulating=True).digest != build_bundle().digest


def test_the_bundle_tells_its_version_on_the_oldest_python(agent):
    done = run(oldest(), "-I", agent, "--version")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"rankdeck-agent ")
    assert b"Python 3.6." in done.stdout


@pytest.mark.long
def test_the_bundle_reads_this_machine_on_the_oldest_python(agent):
    done = run(oldest(), "-I", agent, "sample", "--json")

    sample = json.loads(done.stdout)
    assert sample["values"]["mem.total"][""] > 0
    assert 0 <= sample["values"]["cpu.used"][""] <= 100
    assert done.stderr == b""


@pytest.mark.long
@pytest.mark.parametrize(
    ("argv", "stdin", "words"),
    [
        (["telemetry"], b"", b"no configuration on standard input"),
        (["telemetry"], b"{oops\n", b"not JSON"),
        (
            ["telemetry"],
            b'{"cluster": "c", "host": "h", "poort": 1}\n',
            b"did you mean 'port'",
        ),
        (
            ["telemetry"],
            b'{"cluster":"c","host":"h","tls":true,"ca_file":"/none"}\n',
            b"ca_file '/none': No such file",
        ),
        (["--config", "/none"], b"", b"/none: No such file"),
        (["\x1b[2J"], b"", b"unknown command"),
        (["sample", "--rot"], b"", b"unknown argument"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_and_status_2(agent, argv, stdin, words):
    done = run(sys.executable, "-I", agent, *argv, stdin=stdin)

    first = done.stderr.splitlines()[0]
    assert done.returncode == 2
    assert first.startswith(b"rankdeck-agent: ")
    assert words in first
    assert b"Traceback" not in done.stderr
    assert b"\x1b" not in done.stderr


def test_a_python_that_is_too_old_is_told_so():
    text = (
        zipfile.ZipFile(__import__("io").BytesIO(build_bundle().data)).read("__main__.py").decode()
    )
    head = text.partition("agent = ")[0].replace("(3, 6)", "(99, 0)")

    done = run(sys.executable, "-c", head)

    assert done.returncode == 1
    assert b"needs Python 3.6 or newer" in done.stderr
