"""Servers that forbid things, and what is left: with a real sshd, by asyncssh and by the program ssh."""

import asyncio
from pathlib import Path

import pytest
from tests.support.agent_file import put_agent
from tests.support.polling import until
from tests.support.real_sshd import missing, real_sshd

from rankdeck.model.cluster import Transport
from rankdeck.opening import open_session

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
BOTH = tuple(Transport)


@pytest.mark.parametrize("transport", BOTH, ids=lambda one: one.value)
@pytest.mark.parametrize("limits", ["AllowTcpForwarding no", "PermitListen 127.0.0.1:1"])
async def test_where_no_port_may_be_opened_numbers_come_over_the_agents_output(
    tmp_path: Path, transport: Transport, limits: str
) -> None:
    with real_sshd(tmp_path, f"{limits}\nMaxSessions 1") as server:
        await asyncio.to_thread(put_agent, [server.home])
        cluster = server.cluster("n1", transport=transport)
        async with open_session(cluster) as session:
            session.want(frozenset({"n1"}))
            await until(lambda: session.fleet.node("n1").values, 300)
            first = session.fleet.node("n1").heard_at
            await until(lambda: session.fleet.node("n1").heard_at > first, 300)
