"""Ranks of torchrun that really wait for each other: who never came, by what the ranks say."""

from collections.abc import Iterator

import pytest
from tests.integration.test_main_path import Console, demo_console
from tests.integration.test_stalls import need

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
JOB = """
job: {name}
launch: torchrun
nodes: 2
ranks_per_node: 2
env: {{OMP_NUM_THREADS: "1"{env}}}
command: ["${{RANKDECK_RUN}}/program.py"]
files:
  program.py: |
    import time, torch
    import torch.distributed as d
    d.init_process_group("gloo")
    rank = d.get_rank()
    some = torch.ones(1000)
    def load_batch():
        time.sleep(900)
    two = d.new_group([0, 3], group_desc="tensor_parallel")
    for step in range(12):
        print("step", step, flush=True)
        d.all_reduce(some)
    {does}
    d.barrier()
"""
SLEEPS = "load_batch() if rank == 2 else d.all_reduce(some)"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    need("torchrun")
    with demo_console(tmp_path_factory.mktemp("arrivals")) as console:
        yield console


def told(console: Console, name: str, does: str, env: str = "") -> dict:
    """The first stall of such a job, as a console that was just opened tells it."""
    file = console.file(f"{name}.yaml", JOB.format(name=name, does=does, env=env))
    (started,) = console.objects("run", file, "--detach", "--no-preflight")
    try:
        console.told(started["job"])
        found = console.until(
            started["job"], lambda job: any(env or said_itself(one) for one in job["stalled"])
        )
        return found["stalled"][0]
    finally:
        console.run("cancel", started["job"], "--grace", "1")


def said_itself(stall: dict) -> bool:
    return stall["kind"] == "absent" or "a deadlock, ranks " in stall["text"]


def test_a_rank_that_never_enters_an_operation_is_named_with_the_operation_and_its_place(
    console: Console,
) -> None:
    found = told(console, "sleeps", SLEEPS)

    assert found["ranks"] == [2]
    assert found["text"].startswith("rank 2 on ")
    assert "never entered all_reduce 13 (ranks 0-1,3 wait there since " in found["text"]
    assert "; it is in load_batch (program.py:7)" in found["text"]


@pytest.mark.left_out
def test_of_several_groups_the_rank_at_the_root_is_named(console: Console) -> None:
    does = "d.all_reduce(some, group=two) if rank == 0 else load_batch() if rank == 3 else None"

    found = told(console, "groups", does)

    assert found["ranks"] == [3]
    assert "never entered" in found["text"]


@pytest.mark.left_out
@pytest.mark.parametrize(
    ("name", "does", "ranks", "words"),
    [
        (
            "other", "d.broadcast(some, 0) if rank == 1 else d.all_reduce(some)", [1],
            "is in broadcast 13; ranks 0,2-3 are in all_reduce",
        ),
        (
            "recv", "d.recv(some, 1 - rank) if rank < 2 else None", [0, 1],
            "rank 0 waits to receive from rank 1; rank 1 waits to receive from rank 0",
        ),
    ],
)  # fmt: skip
def test_what_does_not_match_is_told_as_such(
    console: Console, name: str, does: str, ranks: list[int], words: str
) -> None:
    found = told(console, name, does)

    assert set(ranks) <= set(found["ranks"])
    assert words in found["text"]


@pytest.mark.left_out
def test_a_job_may_leave_the_witnesses_out(console: Console) -> None:
    found = told(console, "alone", SLEEPS, env=", RANKDECK_WITNESS: 'off'")

    assert found["kind"] == "all"
