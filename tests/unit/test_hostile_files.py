"""Files that a colleague sent: each is one clear answer with its place, in little time and memory."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rankdeck.config.files import look_at
from rankdeck.errors import ConfigError
from tests.support.bombs import HEAD, NODE_SETS, TEXTS, UPCALLS

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = f"{ROOT}/console:{ROOT}/agents:{ROOT}"
PROBE = """
import sys, time
from pathlib import Path
from rankdeck.config.files import look_at
from rankdeck.errors import ConfigError
from tests.support.bombs import HEAD, NODE_SETS, TEXTS, UPCALLS
try:
    look_at(Path(sys.argv[1]))[0]
except ConfigError as error:
    print(str(error.problems[0])[len(sys.argv[1]) + 1:][:200].encode("unicode_escape").decode())
# Not ru_maxrss: that remembers how large the process was that started this one.
peak = next(row for row in open("/proc/self/status") if row.startswith("VmHWM"))
print(time.process_time(), int(peak.split()[1]) >> 10)
"""


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_that_is_made_to_hurt_is_one_clear_answer(tmp_path: Path, name: str) -> None:
    text, wanted = TEXTS[name]
    path = tmp_path / "f.yaml"
    path.write_bytes(text)

    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(path)],
        env={**os.environ, "PYTHONPATH": IMPORTS},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )

    said, spent = done.stdout.splitlines()
    seconds, mebibytes = (float(number) for number in spent.split())
    assert said.startswith(wanted.encode("unicode_escape").decode())
    assert seconds < 2
    assert mebibytes < 200


def test_a_mark_at_the_beginning_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + HEAD.encode())

    assert look_at(path)[0]


@pytest.mark.parametrize("text", NODE_SETS)
@pytest.mark.parametrize("line", ["cluster: c\nnodes: [{}]\n", HEAD + "on: {}\n"])
def test_a_node_set_of_a_file_runs_no_program(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "clustershell").mkdir()
    (tmp_path / "clustershell/groups.conf").write_text(UPCALLS)
    path = tmp_path / "f.yaml"
    path.write_text(line.format(json.dumps(text)))

    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(path)],
        cwd=tmp_path,
        env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": IMPORTS},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )

    assert "a group of nodes (`@\\u2026`) cannot be used here: write their names" in done.stdout
    assert not (tmp_path / "X").exists()


@pytest.mark.timeout(5)
@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "device"])
def test_what_is_no_file_is_refused_by_name_and_not_waited_for(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f.yaml"
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "socket":
            monkeypatch.chdir(tmp_path)  # the path of a socket must be short
            listener.bind(path.name)
        else:
            path = Path("/dev/zero")

        with pytest.raises(ConfigError, match=f"is a {kind}, not a regular file"):
            look_at(path)[0]
