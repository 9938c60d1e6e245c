"""The agent's part of preflight waits as long as the cluster file says (`patience:`)."""

from pathlib import Path

import pytest

from rankdeck_agent import preflight


@pytest.mark.parametrize(
    ("asked", "found"), [({}, ""), ({"patience": 60}, "slow 1.0"), ({"patience": "long"}, "")]
)
def test_a_program_that_answers_late_is_heard_with_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict, found: str
) -> None:
    monkeypatch.setattr(preflight, "_PROGRAM_LIMIT", 0.1)
    program = tmp_path / "slow"
    program.write_text("#!/bin/sh\nsleep 0.3\necho slow 1.0\n")
    program.chmod(0o755)
    request = {"versions": [str(program)], **asked}

    assert preflight.gather_facts(request)["versions"] == {str(program): found}
