"""`check` and `trust` find cluster and job files by their names, as other commands do."""

from pathlib import Path

import pytest

from rankdeck.cli.main import run_command_line
from rankdeck.config.files import config_folder, find_documents, find_shipped

SAMPLES = find_shipped("sample-clusters")


def test_a_name_may_be_that_of_a_cluster_and_of_a_job() -> None:
    for folder, text in (("clusters", "cluster: x\n"), ("jobs", "job: x\n")):
        (config_folder() / folder).mkdir(parents=True)
        (config_folder() / folder / "x.yaml").write_text(text)

    assert find_documents("x") == (
        config_folder() / "clusters/x.yaml",
        config_folder() / "jobs/x.yaml",
    )
    assert find_documents("himeno") == (SAMPLES / "jobs/himeno.yaml",)
    assert find_documents("a/b.yaml") == (Path("a/b.yaml"),)
    assert find_documents("no-such-name") == (Path("no-such-name"),)


def test_check_reads_what_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command_line(["check", "two-pis", "himeno"], lambda *_, **__: 0)
    lines = capsys.readouterr().out.splitlines()

    assert code == 0
    assert [line.rpartition("/")[2] for line in lines] == [
        "two-pis.yaml: cluster ok",
        "himeno.yaml: job ok",
    ]


def test_a_name_of_nothing_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command_line(["check", "no-such-name"], lambda *_, **__: 0)

    assert code == 2
    assert "no-such-name:1:1: file: no such file" in capsys.readouterr().out
