"""The verdict of a scheduler in a run folder, and as a row of JSON that may be anything."""

import json
from pathlib import Path

import pytest

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.job.verdict import VERDICT, read_verdict, write_verdict
from rankdeck_agent.rules.scheduler_verdict import (
    SchedulerVerdict,
    VerdictKind,
    parse_scheduler_verdict,
    verdict_row,
)

FOUND = SchedulerVerdict(VerdictKind.TAKEN_AWAY, "pod a-0-x was evicted", "n1", "a-0-x", 3, False)


def test_a_verdict_comes_back_from_its_run_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "a-1", "n1")

    assert read_verdict(folder) is None
    write_verdict(folder, SchedulerVerdict(VerdictKind.UNKNOWN, "not yet"))
    write_verdict(folder, FOUND)
    assert read_verdict(folder) == FOUND
    assert (tmp_path / VERDICT).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"kind": 3}', '{"kind": "rank"}'])
def test_a_torn_file_has_no_verdict(tmp_path: Path, text: str) -> None:
    (tmp_path / VERDICT).write_text(text)

    assert read_verdict(RunFolder(tmp_path, "a-1", "n1")) is None


def test_a_kind_of_a_newer_agent_is_not_known_and_its_text_is_kept() -> None:
    row = json.loads(json.dumps({**verdict_row(FOUND), "kind": "moved"}))

    assert parse_scheduler_verdict(row) == SchedulerVerdict(
        VerdictKind.UNKNOWN, FOUND.text, "n1", "a-0-x", 3, False
    )


def test_what_a_node_sends_is_checked() -> None:
    row = {
        "kind": "rank",
        "text": "a\x1b[2Jb" + "x" * 5000,
        "node": 7,
        "pod": None,
        "rank": -1,
        "ours": 0,
    }
    found = parse_scheduler_verdict(row)

    assert found is not None
    assert (found.node, found.pod, found.rank, found.ours) == ("", "", None, True)
    assert found.text.isprintable()
    assert len(found.text) <= 1000
