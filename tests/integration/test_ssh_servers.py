"""Servers that forbid things, and what is left: with a real sshd,
by asyncssh and by the program ssh.
"""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_file import put_agent
from tests.support.polling import until
from tests.support.real_sshd import SSH_TRANSPORTS, missing, real_sshd

from rankdeck.errors import AgentError, HostKeyError
from rankdeck.model.cluster import Cluster, Node, Transport
from rankdeck.opening import open_cluster_session
from rankdeck.preflight.doctor import examine_nodes
from rankdeck.remote.agent import Agents
from rankdeck.remote.shell import on_each, run_program
from rankdeck.remote.transports import reach_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
BOTH = SSH_TRANSPORTS


@pytest.mark.parametrize("transport", BOTH, ids=lambda one: one.value)
@pytest.mark.parametrize("limits", ["AllowTcpForwarding no", "PermitListen 127.0.0.1:1"])
async def test_where_no_port_may_be_opened_numbers_come_over_the_agents_output(
    tmp_path: Path, transport: Transport, limits: str
) -> None:
    with real_sshd(tmp_path, f"{limits}\nMaxSessions 1") as server:
        await asyncio.to_thread(put_agent, [server.home])
        cluster = server.cluster("n1", transport=transport)
        async with open_cluster_session(cluster) as session:
            session.hearing.want(frozenset({"n1"}))
            await until(lambda: session.fleet.node("n1").values, 300)
            first = session.fleet.node("n1").heard_at
            await until(lambda: session.fleet.node("n1").heard_at > first, 300)


@pytest.mark.parametrize("transport", BOTH, ids=lambda one: one.value)
@pytest.mark.parametrize("most", [1, 2])
async def test_where_few_sessions_are_allowed_programs_run_on_more_connections_and_it_is_said_once(
    tmp_path: Path, transport: Transport, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    with real_sshd(tmp_path, f"MaxSessions {most}") as server:
        async with reach_cluster(server.cluster("n1", transport=transport), refuse) as shell:
            both = [await shell.open("n1", ("cat",), lambda _: None) for _ in range(most)]
            done = [
                await run_program(shell, "n1", ("echo", str(one)), limit=300) for one in range(4)
            ]
            for channel in both:
                await channel.close()
            after = await run_program(shell, "n1", ("echo", "after"), limit=300)
            logins = server.logins

    assert [one.out for one in (*done, after)] == [b"0\n", b"1\n", b"2\n", b"3\n", b"after\n"]
    assert logins > 1
    said = [one.getMessage() for one in caplog.records if "MaxSessions" in one.getMessage()]
    assert len(said) == 1


@pytest.mark.parametrize("transport", BOTH, ids=lambda one: one.value)
@pytest.mark.parametrize(("most", "said"), [(1, True), (10, False)])
async def test_doctor_names_a_server_that_allows_few_sessions(
    tmp_path: Path, transport: Transport, most: int, said: bool
) -> None:
    with real_sshd(tmp_path, f"MaxSessions {most}") as server:
        await asyncio.to_thread(put_agent, [server.home])
        cluster = server.cluster("n1", transport=transport)
        async with reach_cluster(cluster, refuse) as shell:
            found = await examine_nodes(cluster, Agents(shell, patience=6), lambda _: None)

    texts = [one.text for one in found if one.check == "sessions"]
    assert bool(texts) is said, found
    assert all("MaxSessions" in text for text in texts)


async def test_nodes_that_share_a_home_get_the_agent_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, sent = Agents._put, []

    async def noted(self: Agents, node: str, *words: Any) -> str:
        sent.append(node)
        return await put(self, node, *words)

    monkeypatch.setattr(Agents, "_put", noted)
    names = [f"n{number}" for number in range(6)]
    with real_sshd(tmp_path) as server:
        async with reach_cluster(server.cluster(*names), refuse) as shell:
            agents = Agents(shell)
            done, failed = await on_each(
                names, lambda node: agents.call(node, ("--version",), limit=300)
            )

    assert (len(sent), failed) == (1, {})
    assert {one.out[:15] for one in done.values()} == {b"rankdeck-agent "}


async def test_the_agent_lies_in_the_folder_that_the_cluster_file_names(tmp_path: Path) -> None:
    with real_sshd(tmp_path) as server:
        async with reach_cluster(server.cluster("n1"), refuse) as shell:
            agents = Agents(shell, folder="~/on/scratch")
            first = await agents.call("n1", ("--version",), limit=300)
            refused = Agents(shell, folder="/proc/none")
            with pytest.raises(
                AgentError,
                match=r"could not be copied: make one of .* writable.*; tried /proc/none: ",
            ):
                await refused.call("n1", ("--version",), limit=300)

        assert first.code == 0
        assert list((server.home / "on/scratch").glob("agent-*.pyz"))
        assert not (server.home / ".cache").exists()


async def test_an_open_master_of_the_user_is_used_and_left(tmp_path: Path) -> None:
    with real_sshd(tmp_path) as server:
        path = tmp_path / "m"
        config = server.ssh_config("node1", [f"ControlPath {path}"])
        access = server.access(user="", identity="", known_hosts="", config=str(config))
        cluster = Cluster(name="c", nodes=(Node(name="n1", address="node1"),), access=access)
        ssh = ["ssh", "-F", str(config)]
        await called([*ssh, "-MNf", "node1"])
        try:
            async with reach_cluster(cluster, refuse) as shell:
                said = await run_program(shell, "n1", ("echo", "here"), limit=300)
                await shell.reverse_tunnel("n1", "127.0.0.1", 9)
            left = await called([*ssh, "-O", "check", "node1"])
        finally:
            await called([*ssh, "-O", "exit", "node1"])

        assert (said.out, left, server.logins) == (b"here\n", 0, 1)


async def called(argv: list[str]) -> int:
    done = await asyncio.to_thread(subprocess.run, argv, check=False, timeout=300)
    return done.returncode


async def refuse(_: object) -> bool:
    return False


@pytest.mark.parametrize("transport", BOTH, ids=lambda one: one.value)
@pytest.mark.parametrize("way", ["by ssh_config", "by the cluster file"])
async def test_an_unknown_host_key_is_asked_about_and_remembered(
    tmp_path: Path, transport: Transport, way: str
) -> None:
    asked: list[HostKeyError] = []

    async def accept(error: HostKeyError) -> bool:
        asked.append(error)
        return True

    with real_sshd(tmp_path) as server:
        known = tmp_path / "new hosts"
        if way == "by ssh_config":
            config = server.ssh_config("node1", [f'UserKnownHostsFile "{known}"'])
            access = server.access(user="", identity="", known_hosts="", config=str(config), transport=transport)  # fmt: skip
            node = Node(name="n1", address="node1")
        else:
            access = server.access(known_hosts=str(known), transport=transport)
            node = Node(name="n1", address="127.0.0.1", port=server.port)
        cluster = Cluster(name="c", nodes=(node,), access=access)
        async with reach_cluster(cluster, accept) as shell:
            first = await run_program(shell, "n1", ("echo", "in"), limit=120)
        async with reach_cluster(cluster, accept) as shell:
            second = await run_program(shell, "n1", ("echo", "in"), limit=120)
        key = (tmp_path / "hostkey.pub").read_text().split()[1]

    assert (first.out, second.out) == (b"in\n", b"in\n")
    (question,) = asked
    assert question.fingerprint.startswith("SHA256:")
    assert key in known.read_text()


@pytest.mark.parametrize("transport", BOTH, ids=lambda one: one.value)
async def test_a_host_key_that_is_not_accepted_is_asked_about_once(
    tmp_path: Path, transport: Transport
) -> None:
    asked: list[HostKeyError] = []

    async def no(error: HostKeyError) -> bool:
        asked.append(error)
        return False

    with real_sshd(tmp_path) as server:
        known = str(tmp_path / "new")
        cluster = server.cluster("n1", known_hosts=known, transport=transport)
        async with reach_cluster(cluster, no) as shell:
            for _ in range(2):
                with pytest.raises(HostKeyError, match="its host key is not known: SHA256:"):
                    await run_program(shell, "n1", ("echo", "in"), limit=120)

    assert len(asked) == 1
