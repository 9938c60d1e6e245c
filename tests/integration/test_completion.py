"""A real bash completes our commands; the scripts for zsh and fish are those of argcomplete."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.test_history import JOB

from rankdeck.config.files import console_state_folder
from rankdeck.state.history import History
from rankdeck.values import replace

CLUSTER = "cluster: c\nnodes:\n  - {name: sakuya, address: 127.0.0.1}\n  - {name: koishi, address: 127.0.0.2}\n"
ASK = """
rankdeck() {{ {python} -m rankdeck "$@"; }}
eval "$(rankdeck completion bash)"
COMP_LINE={line!r} COMP_POINT={point} COMP_TYPE=9 COMP_WORDS=({line}) COMP_CWORD={word}
_python_argcomplete rankdeck
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def file(own_folders: Path) -> Path:
    own_folders.mkdir(parents=True, exist_ok=True)
    path = own_folders / "c.yaml"
    path.write_text(CLUSTER)
    return path


def completed(line: str) -> list[str]:
    """What bash offers after this line."""
    words = line.split()
    script = ASK.format(
        python=sys.executable, line=line, point=len(line), word=len(words) - (line[-1] != " ")
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return [word.strip() for word in done.stdout.splitlines()]


def test_verbs_and_options_are_completed() -> None:
    assert completed("rankdeck pre") == ["preflight"]
    assert completed("rankdeck logs --foll") == ["--follow"]


def test_nodes_jobs_and_job_files_are_offered_by_name(file: Path) -> None:
    with History(console_state_folder() / "history.db") as history:
        history.save(replace(JOB, id="himeno-1"))

    assert completed(f"rankdeck -c {file} health s") == ["sakuya"]
    assert completed(f"rankdeck -c {file} logs h") == ["himeno-1"]
    assert completed(f"rankdeck -c {file} run sten") == ["stencil"]


def test_a_broken_cluster_file_offers_nothing_and_says_nothing(file: Path) -> None:
    file.write_text("cluster: [")

    assert completed(f"rankdeck -c {file} health s") == [""]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_takes_its_script(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    script = subprocess.run(
        [sys.executable, "-m", "rankdeck", "completion", shell],
        capture_output=True, text=True, timeout=300, check=True,
    ).stdout  # fmt: skip
    taken = subprocess.run([shell, "-n"], input=script, text=True, timeout=300, check=False)

    assert taken.returncode == 0
    assert "rankdeck" in script
