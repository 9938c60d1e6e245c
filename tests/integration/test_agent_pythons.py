"""The agent runs on every Python from 3.6 on: numbers, health, a job from its
start to its end, a cancel, processes.
"""

import subprocess
from pathlib import Path

import pytest
from tests.support.polling import until
from tests.support.pythons import AbsentError, python_of
from tests.support.sshd import nodes

from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.rank import State
from rankdeck.opening import open_cluster_session
from rankdeck.values import replace

pytestmark = [pytest.mark.slow, pytest.mark.left_out]
VERSIONS = tuple(f"3.{minor}" for minor in range(6, 15))


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    try:
        return python_of(request.param)
    except AbsentError as error:
        pytest.skip(str(error))


@pytest.mark.kept("3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
async def test_a_node_with_this_python_sends_numbers_and_runs_and_cancels_jobs(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with nodes(tmp_path) as found:
        access = replace(found.cluster.access, pythons=(str(python),))
        async with open_cluster_session(replace(found.cluster, access=access)) as session:
            session.hearing.want(frozenset({"n1", "n2"}))
            # On a busy machine the first numbers come without those of a collector that is late.
            await until(
                lambda: all(
                    (session.fleet.node(n).value("mem.total") or 0) > 0 for n in ("n1", "n2")
                ),
                60,
            )
            assert session.fleet.node("n1").inventory["python"] == _version(python)

            words = "echo here $RANKDECK_RANK; echo there >&2; exec {end}"
            said = spec(words.format(end="true"))
            done = await session.control.launch(said)
            await until(lambda: session.jobs.job(done).state is State.DONE, 60)
            endless = await session.control.launch(spec(words.format(end="sleep 600")))
            await until(lambda: session.jobs.job(endless).state is State.RUNNING, 60)
            report = await session.control.cancel(endless)
            assert (report.left, dict(report.unverified)) == ((), {})
        folder = found.sshd["n1"].home / ".cache/rankdeck"
        assert len([*folder.glob("*.pyz.cpython-*")]) == 1  # compiled there


def _version(python: Path) -> str:
    asked = "import platform; print(platform.python_version())"
    return subprocess.run(
        [python, "-c", asked], capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()


def spec(script: str) -> JobSpec:
    return JobSpec(name="t", launch=Launch.PLAIN, command=("sh", "-c", script), nodes=2, grace=1.0)
