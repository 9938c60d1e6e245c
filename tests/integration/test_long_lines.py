"""Lines of a rank that are too long to be shown whole: `logs` says
so, and the node has them whole.
"""

import json
from pathlib import Path

import pytest
from tests.integration.test_this_machine import Home

pytestmark = pytest.mark.slow
PROGRAM = r'head -c 25000 /dev/zero | tr "\\0" x; echo; head -c 10000 /dev/zero | tr "\\0" y; echo; echo short'


def test_a_line_that_is_cut_says_so_once_for_each_rank_and_in_json_for_each_line(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    (tmp_path / "long.sh").write_text(PROGRAM.replace("\\\\", "\\"))
    ran = home.rankdeck("run", "--no-preflight", home.job(f"sh {tmp_path}/long.sh"))
    assert ran.returncode == 0, ran.stderr

    said = home.rankdeck("logs", "hello")
    lines = [json.loads(line) for line in home.rankdeck("logs", "hello", "--json").stdout.splitlines()]  # fmt: skip

    told = [line for line in said.stderr.splitlines() if "more than 10,000 characters" in line]
    assert [line.partition(":")[0] for line in told] == ["rank 0", "rank 1"], said.stderr
    shown = {(len(one["text"]), one["cut"]) for one in lines}
    assert shown == {(10_001, True), (10_000, False), (5, False)}
    only = home.rankdeck("logs", "hello", "--rank", "1").stderr
    assert "rank 0" not in only
