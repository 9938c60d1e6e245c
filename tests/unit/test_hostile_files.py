"""Files that a colleague sent: each is one clear answer with its
place, in little time and memory.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rankdeck.cli.check import look_at
from rankdeck.errors import ConfigError
from tests.support.bombs import HEAD, NODE_SETS, TEXTS, UPCALLS

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = f"{ROOT}/console:{ROOT}/agents:{ROOT}"
PROBE = """
import os, signal, sys
from pathlib import Path
from rankdeck.cli.check import look_at
from rankdeck.errors import ConfigError
from tests.support.effort import effort
def answer(name):
    try:
        look_at(Path(name))[0]
    except ConfigError as error:
        said.append(str(error.problems[0])[len(name) + 1:][:200].encode("unicode_escape").decode())
for name in sys.argv[1:]:
    if os.fork():
        os.wait()
        continue
    # A process each, all of them with what is loaded here: they are many.
    signal.alarm(60)
    said = []
    spent = effort(lambda: answer(name))
    # Not ru_maxrss: that remembers how large the process was that started this one.
    peak = next(row for row in open("/proc/self/status") if row.startswith("VmHWM"))
    print("".join(said), spent, int(peak.split()[1]) >> 10, sep="\\0", flush=True)
    break
"""


def looked_at(folder: Path, paths: Sequence[Path], **env: str) -> list[tuple[str, float, int]]:
    """What is said of each of these files, the effort and the MiB that it took."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *map(str, paths)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": IMPORTS, **env},
        capture_output=True,
        text=True,
        timeout=350,
        check=True,
    )
    rows = [line.split("\0") for line in done.stdout.splitlines()]
    return [(said, float(spent), int(size)) for said, spent, size in rows]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, float, int]]:
    folder = tmp_path_factory.mktemp("hostile")
    paths = [folder / f"{number}.yaml" for number in range(len(TEXTS))]
    for path, (text, _) in zip(paths, TEXTS.values(), strict=True):
        path.write_bytes(text)
    return dict(zip(TEXTS, looked_at(folder, paths), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("name", TEXTS)
def test_a_file_that_is_made_to_hurt_is_one_clear_answer(
    answers: dict[str, tuple[str, float, int]], name: str
) -> None:
    said, spent, mebibytes = answers[name]

    assert said.startswith(TEXTS[name][1].encode("unicode_escape").decode())
    assert spent < 300, "a file of the largest size that is taken costs some 80"
    assert mebibytes < 200


def test_a_mark_at_the_beginning_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + HEAD.encode())

    assert look_at(path)[0]


@pytest.mark.long
def test_a_node_set_of_a_file_runs_no_program(tmp_path: Path) -> None:
    (tmp_path / "clustershell").mkdir()
    (tmp_path / "clustershell/groups.conf").write_text(UPCALLS)
    lines = [
        line.format(json.dumps(text))
        for text in NODE_SETS
        for line in ("cluster: c\nnodes: [{}]\n", HEAD + "on: {}\n")
    ]
    paths = [tmp_path / f"{number}.yaml" for number in range(len(lines))]
    for path, line in zip(paths, lines, strict=True):
        path.write_text(line)

    answers = looked_at(tmp_path, paths, XDG_CONFIG_HOME=str(tmp_path))

    for line, (said, *_) in zip(lines, answers, strict=True):
        wanted = "a group of nodes (`@\\u2026`) cannot be used here: write their names"
        assert wanted in said, line
    assert not (tmp_path / "X").exists()


@pytest.mark.timeout(400)
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
