"""`rankdeck accept --read`: one result a line, exit codes, and input that is no output."""

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankdeck.cli.main import run_command_line
from tests.support.targets import CORPUS

KEYS = {"recipe", "status", "size", "value", "out_of_place", "in_place", "unit", "ranks", "hosts", "text"}  # fmt: skip


def accept(*words: str) -> int:
    return run_command_line(["accept", *words], lambda *_, **__: 0)


@pytest.fixture
def output_of(tmp_path: Path):
    """A recorded output as a file."""

    def make(name: str) -> str:
        path = tmp_path / name
        path.write_bytes((CORPUS / "accept" / name).read_bytes().partition(b"\n")[2])
        return str(path)

    return make


def test_each_result_is_one_object_on_a_line(output_of, capsys) -> None:
    code = accept("--read", "nccl-tests", output_of("nccl-2x1"), output_of("nccl-1x8"), "--json")

    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert code == 0
    assert first.keys() == KEYS
    assert first["text"].endswith("22.5 Gb/s: network-bound, healthy")
    assert {key: first[key] for key in KEYS - {"text"}} == {
        "recipe": "nccl-tests", "status": "measured", "size": 10737418240, "value": 2.81, "out_of_place": 2.81,
        "in_place": 2.81, "unit": "GB/s", "ranks": 2, "hosts": ["gpu-pod0", "gpu-pod1"],
    }  # fmt: skip
    assert second["value"] == 232.83


@pytest.mark.parametrize(
    ("recipe", "files", "code"),
    [
        ("ib_write_bw", ["write-bw"], 0),
        ("ib_write_bw", ["write-bw", "write-bw-server-killed", "write-bw-no-server"], 1),
        ("ib_write_bw", ["write-bw-no-server", "write-bw"], 2),
        ("mpi4py.bench", ["mpi4py-hello"], 2),
    ],
)
def test_the_exit_code_is_that_of_the_gravest_result(output_of, recipe, files, code) -> None:
    assert accept("--read", recipe, *map(output_of, files)) == code


def test_a_run_and_a_recipe_that_are_not_there_are_bad_input(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    """1 would say that the cluster is bad, 3 that nobody may be measured."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "lab.yaml"
    file.write_text("cluster: lab\nnodes: [{name: n1, address: 127.0.0.1, port: 1}]\n")

    for words, said in (
        (("--show", "r1"), "no acceptance run `r1`"),
        (("--resume", "r1"), "no acceptance run `r1`"),
        (("--recipe", "iperf4"), "no recipe `iperf4`"),
    ):
        assert (accept("-c", str(file), *words, "--yes"), words) == (2, words)
        assert said in capsys.readouterr().err


def test_a_refused_result_and_a_slow_one_have_codes_of_their_own(tmp_path: Path, capsys) -> None:
    one, slow = tmp_path / "one", tmp_path / "slow"
    one.write_text("time for 20 loops = 0.2 seconds (1 processes, 1048576 bytes)\n")
    recorded = (CORPUS / "accept" / "nccl-2x8").read_text().partition("\n")[2]
    slow.write_text(recorded.replace("164.07", "100.07"))

    assert accept("--read", "mpi4py.bench", str(one)) == 3
    assert accept("--read", "nccl-tests", str(slow)) == 1
    assert "slow; below OCI's present limit of 185" in capsys.readouterr().out


def test_a_minus_is_stdin(output_of, monkeypatch, capsys) -> None:
    raw = Path(output_of("iperf3-text")).read_bytes()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(raw)))

    assert accept("--read", "iperf3", "-") == 0
    assert capsys.readouterr().out.startswith("-: iperf3: measured: 13.5 Gb/s")


def test_input_that_cannot_be_meant_is_one_sentence(output_of, tmp_path: Path, capsys) -> None:
    os.mkfifo(tmp_path / "pipe")
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    good = output_of("nccl-2x1")
    for words, said in (
        (("--read", "nccl-test", good), "did you mean `nccl-tests`?"),
        (("--read", "nccl-tests"), "needs a file"),
        (("--read", "nccl-tests", good, str(tmp_path / "none")), "No such file"),
        (("--read", "nccl-tests", str(tmp_path)), "is a folder"),
        (("--read", "nccl-tests", str(tmp_path / "pipe")), "is a pipe"),
        (("--read", "nccl-tests", str(huge)), "larger than 32768 KiB"),
    ):
        assert accept(*words) == 2
        streams = capsys.readouterr()
        assert said in streams.err
        assert streams.err.count("\n") == 1
        assert streams.out == ""


def test_nothing_in_an_output_steers_the_terminal(tmp_path: Path, capsys) -> None:
    bad = tmp_path / "bad"
    bad.write_text("n1\x1b]0;x\x07: Test NCCL failure \x1b[2Jcommon.cu \u202eabc\n")

    assert accept("--read", "nccl-tests", str(bad)) == 1
    said = capsys.readouterr().out.rstrip("\n")
    assert "Test NCCL failure" in said
    assert said.isprintable()
