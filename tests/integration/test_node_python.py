"""Nodes on which python3 is too old, has another name, or is missing; over
SSH, and the rest of the cluster goes on.
"""

import sys
from pathlib import Path

import pytest
from tests.support.polling import until
from tests.support.sshd import nodes

from rankdeck.config.clusters import read_cluster
from rankdeck.errors import UnreachableError
from rankdeck.model.cluster import Access
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.opening import open_cluster_session
from rankdeck.remote.agent import Agents
from rankdeck.remote.node_python import install_command
from rankdeck.remote.ssh import Connections
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level

pytestmark = pytest.mark.slow
WHAT_TO_INSTALL = install_command(Path("/etc/os-release").read_text().replace("\n", ";"))


def put_old_python(folder: Path) -> None:
    """A python3 that is 3.5, and the Python of this test as python3.14."""
    folder.mkdir(parents=True)
    (folder / "python3").write_text("#!/bin/sh\necho '3.5|'\n")
    (folder / "python3.14").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for file in folder.iterdir():
        file.chmod(0o755)


async def test_a_python_beside_the_old_one_runs_the_agent(tmp_path: Path) -> None:
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as connections:
        node = found.sshd["n1"]
        put_old_python(node.home / "bin")
        node.environment["PATH"] = f"{node.home}/bin:/usr/bin:/bin"
        agents = Agents(connections)
        before = node.sessions

        answer = await agents.call("n1", ("--version",), limit=60)
        first = node.sessions - before
        await agents.call("n1", ("--version",), limit=60)

        assert answer.out.startswith(b"rankdeck-agent ")
        # Look, copy, look again, run; then it is known.
        assert (first, node.sessions - before) == (4, 5)
        assert agents._paths["n1"][:2] == ("/usr/bin/env", "python3.14")


async def test_the_first_command_on_a_node_costs_one_start_of_the_login_shell(
    tmp_path: Path,
) -> None:
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as connections:
        node = found.sshd["n1"]
        await Agents(connections).call("n1", ("--version",), limit=60)
        noise = "echo hello; echo 'rankdeck|no answer'\n"
        (node.home / ".bashrc").write_text(noise)
        before = node.sessions

        answer = await Agents(connections).call("n1", ("job", "run"), b"no plan\n", limit=60)

        assert node.sessions - before == 1
        assert answer.row["ok"] is False  # what it read from stdin is no plan
        assert b"hello" not in answer.out


async def test_a_node_without_python_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with nodes(tmp_path) as found:
        first, second = found.cluster.nodes
        ours = (first, replace(second, pythons=("python-x",)))
        async with open_cluster_session(replace(found.cluster, nodes=ours)) as session:
            session.hearing.want(frozenset({"n1", "n2"}))
            await until(lambda: session.fleet.node("n1").values)
            spec = JobSpec(name="t", launch=Launch.PLAIN, command=("true",), nodes=2)
            told = (*await session.nodes.examine(), *await session.control.preflight(spec))
            health = session.fleet.node("n2").health

    why = f"none of `python-x` runs there: {WHAT_TO_INSTALL}, or name one with `ssh: {{python: …}}`"
    bad = [one for one in told if one.level is Level.BAD]
    assert [(one.node, one.check, one.text) for one in bad] == [("n2", "reach", why)] * 2
    assert health.reasons[0].text.startswith(why)


async def test_the_limits_that_follow_from_a_longer_connect_limit_fit_a_slow_python(
    tmp_path: Path,
) -> None:
    """A Python that takes longer to start than an answer may take by default."""
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\ncase "$2" in *.pyz) sleep 4;; esac\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as shell:
        with pytest.raises(UnreachableError, match="no answer within 2 s"):
            await Agents(shell, str(slow)).call("n1", ("job", "list"), limit=2)
        patient = Agents(shell, str(slow), patience=Access(connect_limit=300).patience)
        answer = await patient.call("n1", ("job", "list"), limit=2)

    assert answer.code == 0


def test_patience_alone_makes_waits_longer_and_the_longer_of_both_counts(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("cluster: c\nnodes: [{name: n}]\nssh: {patience: 4, connect_limit: 20}\n")

    access = read_cluster(file).access

    assert (access.patience, access.connect_limit) == (4, 20)
    assert replace(access, connect_limit=60).patience == 6


@pytest.mark.parametrize(("limit", "patience"), [(10.0, 1.0), (2.0, 1.0), (60.0, 6.0)])
def test_waits_grow_with_the_connect_limit_and_never_shrink(limit: float, patience: float) -> None:
    assert Access(connect_limit=limit).patience == patience
