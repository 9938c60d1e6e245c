"""A job that hangs and gives up while no console is open: the next one knows who held up the
others.
"""

import json
import sys
import time
from pathlib import Path

import pytest
from tests.integration.test_main_path import demo_console

TORCHRUN = Path(sys.executable).with_name("torchrun")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.left_out,
    pytest.mark.timeout(500),
    pytest.mark.skipif(not TORCHRUN.exists(), reason="PyTorch is not installed"),
]
PROGRAM = """\
import datetime, time
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=90))
for step in range(1000):
    if step == 8 and dist.get_rank() == 3:
        while True:
            pass
    dist.all_reduce(torch.ones(1))
    print("step", step, flush=True)
    time.sleep(0.2)
"""
JOB = {
    "job": "hangs", "launch": "torchrun", "nodes": 2, "ranks_per_node": 2, "grace": 1,
    "torch": {"path": str(TORCHRUN)}, "files": {"prog.py": PROGRAM},
    "command": ["python3", "${RANKDECK_RUN}/prog.py"],
}  # fmt: skip


def test_who_held_up_the_others_is_named_by_a_console_that_opens_afterwards(
    tmp_path: Path,
) -> None:
    with demo_console(tmp_path) as console:
        file = console.file("hangs.yaml", json.dumps(JOB))
        (started,) = console.objects("run", file, "--detach", "--no-preflight")
        places = list((console.folder / "state").rglob(f"jobs/{started['job']}/*/"))
        limit = time.monotonic() + 300
        while not all((place / "box/end/tails").exists() for place in places):
            assert time.monotonic() < limit
            time.sleep(1)
        time.sleep(10)  # torchrun ends the other ranks

        job = console.wait_for(started["job"], "failed")

    first = job["first_failure"]
    assert (first["what"], first["rank"], first["between"]) == ("rank", 3, []), first
    assert "never entered all_reduce" in first["evidence"][0]
