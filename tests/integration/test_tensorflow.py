"""The sample tensorflow-mnist with the real TensorFlow and Keras 3, on two nodes: it trains, and a
worker that is killed is named.
"""

import json
from pathlib import Path

import pytest
from tests.integration.test_lab_jobs import Operator
from tests.support.framework_env import TENSORFLOW, framework_or_skip
from tests.support.lab import Lab
from tests.support.polling import seen_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.left_out]


@pytest.fixture(scope="module")
def python() -> Path:
    return framework_or_skip(TENSORFLOW)


@pytest.fixture(scope="module")
def operator(lab: Lab) -> Operator:
    return Operator(lab)


def options(python: Path, epochs: int) -> tuple[str, ...]:
    command = f"{python} ${{RANKDECK_RUN}}/mnist.py --epochs {epochs}"
    return "tensorflow-mnist", "--set", f"command={command}", "--set", "env.CUDA_VISIBLE_DEVICES="


def printed(operator: Operator, job: str) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {0: [], 1: []}
    for line in map(json.loads, operator.run("logs", job, "--json").stdout.splitlines()):
        found.setdefault(line["rank"], []).append(line["text"])
    return found


def test_two_workers_train_one_model(operator: Operator, python: Path) -> None:
    job = operator.objects("run", *options(python, 2))[-1]
    said = printed(operator, job["job"])

    assert job["state"] == "done", said
    last = [next(line for line in reversed(lines) if "loss:" in line) for lines in said.values()]
    results = [line.split(" images/s")[0].rsplit(" ", 1)[0] for line in last]
    assert results[0] == results[1]
    assert "accuracy: 1.0000" in results[0]
    assert job["progress"]["step"] == job["progress"]["steps"] == 92


def test_a_worker_that_is_killed_is_the_first_failure_and_nothing_is_left(
    operator: Operator, python: Path
) -> None:
    job = operator.run("run", *options(python, 5000), "--detach", "--no-preflight").stdout.strip()
    seen_until(lambda: printed(operator, job), lambda said: any("epoch 1/" in line for line in said[1]), 200)  # fmt: skip
    operator.kill_rank(job, 1, 120)
