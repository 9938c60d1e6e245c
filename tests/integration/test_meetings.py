"""Processes of the real JAX that do not meet: who did not come, by what they say."""

from collections.abc import Iterator

import pytest
from tests.integration.test_main_path import Console, demo_console
from tests.support.framework_env import JAX, framework_or_skip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.left_out]
JOB = """
job: {name}
launch: jax
nodes: 2
ranks_per_node: 2
env: {{JAX_PLATFORMS: cpu}}
command: ["{python}", "${{RANKDECK_RUN}}/program.py"]
files:
  program.py: |
    import os, time
    import jax
    rank, at = int(os.environ["JAX_PROCESS_ID"]), os.environ["JAX_COORDINATOR_ADDRESS"]
    def load_batch():
        time.sleep(900)
    {before}
    jax.distributed.initialize(at, 4, rank, initialization_timeout=600, shutdown_timeout_seconds=600)
    print("met", flush=True)
    {after}
"""
ELSEWHERE = "at = at.rpartition(':')[0] + ':9' if rank == 3 else at"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    framework_or_skip(JAX)
    with demo_console(tmp_path_factory.mktemp("jax")) as console:
        yield console


def told(console: Console, name: str, before: str = "pass", after: str = "pass") -> dict:
    """The stall that a console tells of such a job."""
    python = framework_or_skip(JAX)
    text = JOB.format(name=name, python=python, before=before, after=after)
    file = console.file(f"{name}.yaml", text)
    (started,) = console.objects("run", file, "--detach", "--no-preflight")
    try:
        found = console.until(
            started["job"], lambda job: any(one["kind"] == "absent" for one in job["stalled"])
        )
        return found["stalled"][0]
    finally:
        console.run("cancel", started["job"], "--grace", "1")


def test_a_process_that_seeks_the_others_at_another_port_is_named(console: Console) -> None:
    found = told(console, "port", before=ELSEWHERE)

    assert found["ranks"] == [3]
    assert "is not connected to " in found["text"]
    assert "where ranks 0-2 wait in initialize" in found["text"]


def test_a_process_that_does_not_come_to_the_beginning_is_named(console: Console) -> None:
    found = told(console, "late", before="load_batch() if rank == 1 else None")

    assert found["ranks"] == [1]
    assert "never entered initialize (ranks 0,2-3 wait there)" in found["text"]
    assert "it is in load_batch (program.py:5)" in found["text"]


def test_a_process_that_does_not_come_to_the_end_is_named(console: Console) -> None:
    found = told(console, "end", after="load_batch() if rank == 2 else None")

    assert found["ranks"] == [2]
    assert "never entered shutdown (ranks 0-1,3 wait there)" in found["text"]
