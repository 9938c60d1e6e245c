"""A Slurm job that hangs and gives up while no console is open: its keeper has asked the ranks."""

from pathlib import Path

import pytest
from tests.integration.slurm.test_root_slurm import training
from tests.support.hanging_torch import hanging_torch
from tests.support.lab.root.people import Operator
from tests.support.polling import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.left_out]


def test_who_held_up_the_others_is_named_by_a_command_afterwards(user: Operator) -> None:
    job = {
        **training(),
        "command": ["${RANKDECK_RUN}/hangs.py"],
        "files": {"hangs.py": hanging_torch(70)},
    }
    started = user.run("--detach", "--no-preflight", **job)["job"]
    over = lambda: not user.on("n3", "squeue --noheader --user=lab").strip()  # noqa: E731
    assert not over()
    assert eventually(over, 240), user.on("n3", "squeue")

    first = user.until(started, lambda one: one["state"] == "failed")["first_failure"]

    assert (first["what"], first["rank"]) == ("rank", 3), first
    assert "never entered all_reduce" in first["evidence"][0]
    boxes = [*Path(user.lab.shared).rglob(f"{started}/*/box/silent/tails")]
    assert len(boxes) == 1, boxes
