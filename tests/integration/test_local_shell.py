"""Programs on this machine by the protocol of SSH's shell: for the one that has kubectl."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.support.polling import until

from rankdeck.errors import AgentError, UnreachableError
from rankdeck.model.cluster import Cluster
from rankdeck.remote.agent import Agents
from rankdeck.remote.dialogue import Dialogue
from rankdeck.remote.shell import THIS_MACHINE, LocalShell, run_program
from rankdeck.remote.transports import reach_cluster


async def test_a_program_gets_its_input_and_gives_output_and_status() -> None:
    done = await run_program(
        LocalShell(), "here", ("sh", "-c", "cat; echo bad >&2; exit 3"), b"text"
    )

    assert (done.code, done.out, done.err) == (3, b"text", b"bad\n")


async def test_a_signal_is_told_as_a_shell_tells_it() -> None:
    done = await run_program(LocalShell(), "here", ("sh", "-c", "kill -9 $$"))

    assert done.code == 128 + signal.SIGKILL


async def test_a_program_that_is_not_there_and_one_that_does_not_end_are_named() -> None:
    with pytest.raises(UnreachableError, match="nosuch cannot be started"):
        await run_program(LocalShell(), "here", ("nosuch",))
    with pytest.raises(UnreachableError, match="no answer within"):
        await run_program(LocalShell(), "here", ("sleep", "60"), limit=0.2)


async def test_a_program_that_sends_without_end_is_refused_before_its_time_is_over() -> None:
    with pytest.raises(AgentError, match="sent more than 32 MB"):
        await run_program(LocalShell(), "here", ("yes",), limit=60)


async def test_what_is_closed_ends_with_all_that_it_started() -> None:
    told: list[bytes] = []
    channel = await LocalShell().open("here", ("sh", "-c", "sleep 60 & echo $!; wait"), told.append)
    await until(lambda: b"\n" in b"".join(told))
    child = int(b"".join(told))
    await channel.close()

    def is_gone() -> bool:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return True
        # Nobody may have reaped it here.
        return Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"

    await until(is_gone)


async def test_output_waits_while_it_is_paused() -> None:
    told: list[bytes] = []
    channel = await LocalShell().open("here", ("sh", "-c", "read x; seq 200000"), told.append)
    channel.pause()
    channel.write(b"go\n")
    done, _ = await asyncio.wait({asyncio.ensure_future(channel.wait())}, timeout=0.3)
    assert not done
    channel.resume()

    assert await channel.wait() == 0
    assert b"".join(told).endswith(b"200000\n")
    await channel.close()


@pytest.mark.long
async def test_this_machine_has_a_name_among_the_nodes_and_gets_the_agent(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    cluster = Cluster(name="c", nodes=(), backend="kubernetes")
    async with reach_cluster(cluster, never) as shell:
        answer = await Agents(shell).call(THIS_MACHINE, ("--version",), limit=60)

        assert answer.out.startswith(b"rankdeck-agent ")
        assert list(tmp_path.rglob("agent-*.pyz"))
        with pytest.raises(UnreachableError, match="no node"):
            await run_program(shell, "n1", ("true",))


async def never(_: object) -> bool:
    raise AssertionError("nobody is asked about a key")


@pytest.mark.parametrize(("patience", "waits"), [(1.0, False), (30.0, True)])
async def test_a_dialogue_waits_as_long_as_slow_nodes_need(patience: float, waits: bool) -> None:
    talk = Dialogue("here", patience)
    says = ("sh", "-c", """sleep 1; echo '{"a": 1}'; exec cat""")
    talk.channel = await LocalShell().open("here", says, talk.take)
    if waits:
        assert await talk.hear(0.2) == {"a": 1}
    else:
        with pytest.raises(UnreachableError, match="no answer within"):
            await talk.hear(0.2)
    await talk.end()
