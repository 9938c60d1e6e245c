"""The corpus of recorded failures: complete, free of the machine it was recorded on, scored."""

import json
import re
from pathlib import Path

import pytest
from benchmarks import fault_corpus as corpus
from benchmarks.fault_list import FAULTS

CASES = corpus.read_cases()


@pytest.mark.parametrize(
    ("right", "said", "verdict"),
    [
        ({"ranks": [4], "node": ""}, {"ranks": [4]}, "right"),
        ({"ranks": [2, 3], "node": ""}, {"ranks": [3]}, "right"),
        ({"ranks": [4], "node": ""}, {"ranks": [3, 4]}, "wrong"),
        ({"ranks": [4], "node": ""}, {"node": "n3"}, "wrong"),
        ({"ranks": [4], "node": ""}, {"ranks": [], "node": ""}, "silent"),
        ({"ranks": [4], "node": ""}, None, "silent"),
        ({"ranks": [], "node": "n3"}, {"node": "n3"}, "right"),
        ({"ranks": [], "node": "n3"}, {"ranks": [5], "node": "n3"}, "wrong"),
        ({"ranks": [], "node": ""}, None, "right"),
        ({"ranks": [], "node": ""}, {"ranks": [1]}, "wrong"),
    ],
)
def test_a_verdict_is_right_only_if_it_names_nobody_else(right, said, verdict: str) -> None:
    assert corpus.judge_verdict(right, said) == verdict


def test_precision_counts_what_was_named_and_recall_all_cases() -> None:
    cases = {name: {"right": {"ranks": [1], "node": ""}} for name in "abcd"}
    said = {"a": {"ranks": [1]}, "b": {"ranks": [2]}, "c": {"ranks": [1]}, "other": {"ranks": [9]}}
    score = corpus.score_verdicts("t", cases, said)

    assert (score.precision, score.recall) == (0.667, 0.5)
    assert (score.count("right"), score.count("wrong"), score.count("silent")) == (2, 1, 1)


def test_the_corpus_has_failures_of_every_launcher_and_hangs() -> None:
    assert len(CASES) >= 25
    assert {case["launcher"] for case in CASES.values()} == {"openmpi5", "mpich", "torchrun", "plain"}  # fmt: skip
    assert {case["kind"] for case in CASES.values()} == {"failure", "hang"}


@pytest.mark.parametrize("name", CASES)
def test_a_case_fits_the_fault_that_made_it_and_names_no_machine(name: str) -> None:
    case, (fault,) = CASES[name], [one for one in FAULTS if one.name == name]
    text = json.dumps(case)

    assert case["right"] == {"ranks": sorted(fault.right.ranks), "node": fault.right.node, "word": fault.right.word}  # fmt: skip
    assert len(case["ranks"]) >= 2
    assert len(text) < 40_000
    assert not re.search(r"/(?:tmp|root|home)/|site-packages/\.\.|\b(?!127\.|192\.0\.2\.)(?:\d{1,3}\.){3}\d{1,3}\b", text)  # fmt: skip


def test_places_and_addresses_are_left_out_of_what_is_recorded() -> None:
    told = corpus._told('File "/tmp/x/y/.venv/lib/site-packages/torch/a.py" on 10.1.2.3 by /root/z/run.py')  # fmt: skip
    assert told == 'File "/site-packages/torch/a.py" on 192.0.2.1 by /run.py'


def test_any_tool_is_scored_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    perfect = {name: {"ranks": case["right"]["ranks"][:1], "node": case["right"]["node"]} for name, case in CASES.items()}  # fmt: skip
    file = tmp_path / "verdicts.json"
    file.write_text(json.dumps({"tool": "oracle", "verdicts": perfect}))

    corpus.main(["--json", "--verdicts", str(file)])

    row = json.loads(capsys.readouterr().out)
    assert (row["tool"], row["right"], row["precision"], row["recall"]) == ("oracle", len(CASES), 1.0, 1.0)  # fmt: skip


def test_without_a_file_the_launchers_are_scored(capsys: pytest.CaptureFixture[str]) -> None:
    corpus.main(["--json"])

    rows = {row["tool"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert {"rankdeck", "openmpi5", "mpich", "torchrun"} == rows.keys()
    assert rows["rankdeck"]["cases"] == len(CASES)
