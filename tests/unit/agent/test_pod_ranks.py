"""The ranks of a pod are found by the folders of their shims, and asked by an agent that is only a
part of the whole one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankdeck.remote.bundle import build_bundle
from rankdeck.schedulers.kubernetes.manifest import POD_SHIM
from rankdeck_agent.schedulers.kubernetes.inside_pods import pack_agent
from rankdeck_agent.schedulers.kubernetes.pod_ranks import INSPECT, WITNESS, find_pod_ranks
from tests.support.polling import wait_until

RANK = 1_234_567
"""Other tests may run shims here, too: /dev/shm is one for all."""


def ours() -> list[int]:
    return [one.pid for one in find_pod_ranks() if one.rank == RANK]


@pytest.fixture
def shim(tmp_path: Path) -> Iterator[subprocess.Popen]:
    """The shim of a rank that sleeps."""
    (tmp_path / "rank-shim").write_text(POD_SHIM)
    words = ["sh", str(tmp_path / "rank-shim"), "sleep", "600"]
    env = {"PATH": os.environ["PATH"], "RANK": str(RANK)}
    running = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)
    yield running
    running.terminate()
    running.wait()


def test_a_rank_is_found_while_its_shim_runs(shim: subprocess.Popen) -> None:
    wait_until(ours, 30, "the rank")

    (pid,) = ours()
    assert Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x00600\x00"
    shim.terminate()
    shim.wait()
    assert ours() == []


def test_a_folder_that_names_a_process_of_somebody_else_is_no_rank(tmp_path: Path) -> None:
    place = Path(f"/dev/shm/rankdeck.{RANK}.{os.getpid()}")
    place.mkdir()
    try:
        for word in (str(os.getpid()), "1", "x", "9" * 30, ""):
            (place / "pid").write_text(word)
            assert ours() == []
    finally:
        (place / "pid").unlink()
        place.rmdir()


@pytest.mark.parametrize("question", [INSPECT, WITNESS])
def test_the_agent_for_pods_answers_alone(
    question: str, shim: subprocess.Popen, tmp_path: Path
) -> None:
    whole = tmp_path / "agent.pyz"
    whole.write_bytes(build_bundle().data)
    packed = pack_agent(whole)
    (tmp_path / "packed.pyz").write_bytes(packed)
    wait_until(ours, 30, "the rank")

    words = [sys.executable, str(tmp_path / "packed.pyz"), "inside", question]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    rows = {row["rank"]: row for row in json.loads(done.stdout)["ranks"]}
    assert RANK in rows
    assert len(packed) < len(build_bundle().data) / 3
