"""The samples jax-ddp and lightning-fit with the real JAX and Lightning on two nodes: they train,
and a process that is killed is named.
"""

from pathlib import Path

import pytest
from tests.integration.test_lab_jobs import Operator, text_of
from tests.support.framework_env import JAX, LIGHTNING, framework_or_skip
from tests.support.lab import Lab
from tests.support.polling import seen_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.left_out]


@pytest.fixture(scope="module")
def operator(lab: Lab) -> Operator:
    return Operator(lab)


def jax_options(steps: int) -> tuple[str, ...]:
    command = f"{framework_or_skip(JAX)} ${{RANKDECK_RUN}}/jax_ddp.py --steps {steps}"
    return "jax-ddp", "--set", f"command={command}", "--set", "env.JAX_PLATFORMS=cpu"


def losses(text: str, rank: int) -> list[str]:
    mine = (line for line in text.splitlines() if line.startswith(f"{rank}: step"))
    return [line.rpartition(" ")[2] for line in mine]


def test_jax_processes_train_one_model(operator: Operator) -> None:
    job = operator.objects("run", *jax_options(200), "--set", "ranks_per_node=2")[-1]
    text = text_of(operator.objects("logs", job["job"]))

    assert job["state"] == "done", text
    for rank in range(4):
        assert f"{rank}: rank {rank} of 4 on n{1 + rank // 2}, 4 cpu devices" in text
        assert losses(text, rank) == losses(text, 0)
    assert float(losses(text, 0)[-1]) < float(losses(text, 0)[0]) / 2
    operator.ends(job["job"])


def test_a_jax_process_that_is_killed_is_the_first_failure_and_nothing_is_left(
    operator: Operator,
) -> None:
    options = (*jax_options(10_000_000), "--detach", "--no-preflight")
    job = operator.run("run", *options).stdout.strip()
    seen_until(lambda: text_of(operator.objects("logs", job)), lambda said: "1: step" in said, 200)
    operator.kill_rank(job, 1, 200)


def test_lightning_finds_its_place_by_torchruns_variables(operator: Operator) -> None:
    python: Path = framework_or_skip(LIGHTNING)
    command = f"{python} ${{RANKDECK_RUN}}/lightning_fit.py --steps 100"
    job = operator.objects("run", "lightning-fit", "--set", f"command={command}")[-1]
    text = text_of(operator.objects("logs", job["job"]))

    assert job["state"] == "done", text
    for rank in (0, 1):
        assert f"{rank}: rank {rank} of 2 on n{rank + 1}" in text
        assert len(losses(text, rank)) == 10
    assert float(losses(text, 0)[-1]) < float(losses(text, 0)[0])
    operator.ends(job["job"])
