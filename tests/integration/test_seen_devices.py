"""A machine is judged twice by an agent that runs only for a moment: the
second knows what the first has seen.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def judged(state: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "rankdeck_agent", "health", "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "agents"), "RANKDECK_STATE": str(state)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return json.loads(done.stdout)


def test_what_an_earlier_look_in_this_boot_has_seen_and_is_not_there_has_gone(
    tmp_path: Path,
) -> None:
    first = judged(tmp_path)
    (kept,) = tmp_path.glob("seen.*")
    seen = json.loads(kept.read_text())
    seen["devices"]["nvme.live/nvme77"] = "present"
    kept.write_text(json.dumps(seen))

    second = judged(tmp_path)
    kept.write_text(json.dumps({**seen, "boot": "another"}))
    after_reboot = judged(tmp_path)

    gone = lambda told: [one for one in told["reasons"] if one["device"] == "nvme77"]  # noqa: E731
    assert "disk.readonly//" in seen["devices"]
    assert gone(first) == gone(after_reboot) == []
    assert [(one["check"], one["level"]) for one in gone(second)] == [("disk.nvme", "bad")]
    assert "nvme.live/nvme77" not in json.loads(kept.read_text())["devices"]
