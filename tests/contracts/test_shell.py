"""Each way to a node keeps the contract of `shell.Shell`: on this machine, by
asyncssh and by ssh, with a real sshd; by srun, whose place a script takes that
starts the program (a real one: tests/integration/slurm/test_root_slurm_allocation.py).
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from rankdeck.errors import AgentError, UnreachableError
from rankdeck.remote.logins import Logins
from rankdeck.remote.openssh import OpenSsh
from rankdeck.remote.shell import Shell, run_program
from rankdeck.remote.srun import SrunShell
from rankdeck.remote.ssh import Connections
from rankdeck.remote.this_machine import shell_here
from rankdeck.values import replace
from tests.support.polling import until
from tests.support.real_sshd import RealSshd, missing, real_sshd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
WAYS = ("here", "asyncssh", "openssh", "srun")
OVER_SSH = ("asyncssh", "openssh")
SRUN = """#!/bin/sh
while case $1 in --*) true;; *) false;; esac; do shift; done
exec "$@"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSshd]:
    with real_sshd(tmp_path_factory.mktemp("sshd")) as found:
        yield found


@asynccontextmanager
async def shell_to(server: RealSshd, way: str, *names: str, **more: object) -> AsyncIterator[Shell]:
    """The node n1, or these, by this way; `more` are fields of Access."""
    cluster = server.cluster(*(names or ("n1",)), **more)
    if way == "here":
        yield shell_here(cluster)
    elif way == "srun":
        program = server.home / "bin" / "srun"
        program.parent.mkdir(exist_ok=True)
        program.write_text(SRUN)
        program.chmod(0o755)
        path = f"{program.parent}:{os.environ['PATH']}"
        yield SrunShell(replace(cluster, environment={"PATH": path}))
    elif way == "asyncssh":
        async with Connections(cluster) as connections:
            yield connections
    else:
        async with OpenSsh(cluster, Logins(cluster, None)) as openssh:
            yield openssh


def sh(text: str) -> tuple[str, str, str]:
    return ("sh", "-c", text)


@pytest.mark.parametrize("way", WAYS)
async def test_arguments_input_output_and_status_arrive_as_they_are(server, way):
    words = ("a b", "$HOME", "'\"`", "*", "", "ä", "!x", "\\", "two\nlines", "%h")
    async with shell_to(server, way) as shell:
        said = await run_program(shell, "n1", ("printf", "%s|", *words), limit=120)
        echoed = await run_program(
            shell, "n1", sh("cat; echo oops >&2; exit 7"), b"\0\xff" * 500_000, limit=120
        )

    assert said.out.decode() == "".join(f"{word}|" for word in words)
    assert (echoed.code, echoed.out, echoed.err) == (7, b"\0\xff" * 500_000, b"oops\n")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("exit 255", 255),
        ("kill -9 $$", 128 + signal.SIGKILL),
        ("kill -15 $$", 128 + signal.SIGTERM),
        ("true", 0),
    ],
)
async def test_every_end_is_told_as_a_shell_tells_it(server, way, text, code):
    async with shell_to(server, way) as shell:
        assert (await run_program(shell, "n1", sh(text), limit=120)).code == code


@pytest.mark.parametrize("way", WAYS)
async def test_a_program_is_talked_to_while_it_runs(server, way):
    said: list[bytes] = []
    async with shell_to(server, way) as shell:
        channel = await shell.open(
            "n1", sh("while read x; do echo got $x; done; echo end"), said.append
        )
        channel.write(b"one\n")
        await until(lambda: b"".join(said) == b"got one\n")
        channel.write(b"two\n")
        await channel.drain()
        await until(lambda: b"".join(said) == b"got one\ngot two\n")
        channel.end()

        assert await channel.wait() == 0
        assert b"".join(said).endswith(b"end\n")
        channel.write(b"after its end\n")
        await channel.close()


@pytest.mark.parametrize("way", WAYS)
async def test_output_waits_while_it_is_paused(server, way):
    said: list[bytes] = []
    async with shell_to(server, way) as shell:
        channel = await shell.open("n1", sh("read x; seq 2000000; echo done >&2"), said.append)
        channel.pause()
        channel.write(b"go\n")
        await asyncio.sleep(0.3)
        assert len(b"".join(said)) < 10_000_000
        channel.resume()

        assert await channel.wait() == 0
        assert b"".join(said).endswith(b"2000000\n")
        assert channel.complaint == "done"
        await channel.close()


@pytest.mark.parametrize("way", WAYS)
async def test_a_limit_ends_the_wait_and_the_next_program_runs(server, way):
    async with shell_to(server, way) as shell:
        await run_program(shell, "n1", ("true",), limit=120)
        with pytest.raises(UnreachableError, match="no answer within"):
            await run_program(shell, "n1", ("sleep", "600"), limit=1)
        assert (await run_program(shell, "n1", ("echo", "on"), limit=120)).out == b"on\n"


@pytest.mark.parametrize("way", WAYS)
async def test_a_program_that_sends_too_much_is_refused_and_ended(server, way):
    async with shell_to(server, way) as shell:
        with pytest.raises(AgentError, match="sent more than 32 MB"):
            await run_program(shell, "n1", ("yes",), limit=300)
        assert (await run_program(shell, "n1", ("echo", "on"), limit=120)).out == b"on\n"


@pytest.mark.parametrize("way", WAYS)
async def test_a_closed_channel_ends_a_program_that_reads_or_writes(server, way):
    mark = server.home / f"ended-{way}"
    said: list[bytes] = []
    async with shell_to(server, way) as shell:
        text = f"trap '' TERM HUP; echo up; while read x; do :; done; echo x >{mark}"
        channel = await shell.open("n1", sh(text), said.append)
        await until(lambda: b"up\n" in b"".join(said))
        await channel.close()
        if way != "here":  # it is killed there
            await until(mark.exists)


@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_start_leaves_a_shell_that_works(server, way):
    async with shell_to(server, way) as shell, asyncio.TaskGroup() as tasks:
        started = tasks.create_task(run_program(shell, "n1", ("sleep", "600"), limit=120))
        await asyncio.sleep(0.05)
        started.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await started
        assert (await run_program(shell, "n1", ("echo", "on"), limit=120)).out == b"on\n"


@pytest.mark.parametrize("way", [way for way in WAYS if way != "srun"])
async def test_a_tunnel_leads_back(server, way):
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"from the console\n")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    text = "exec 3<>/dev/tcp/127.0.0.1/$0; cat <&3"
    async with listening, shell_to(server, way) as shell:
        there = await shell.reverse_tunnel("n1", "127.0.0.1", port)
        said = await run_program(shell, "n1", ("bash", "-c", text, str(there)), limit=120)

    assert said.out == b"from the console\n"
    assert way == "here" or there != port


@pytest.mark.parametrize("way", WAYS)
async def test_the_clock_is_the_same_machines(server, way):
    async with shell_to(server, way) as shell:
        clock = await shell.clock("n1")

    assert abs(clock.offset) <= clock.uncertainty + 0.5


@pytest.mark.parametrize("way", OVER_SSH)
async def test_one_login_serves_many_programs_at_once(tmp_path, way):
    with real_sshd(tmp_path) as server:
        async with shell_to(server, way) as shell:
            done = await asyncio.gather(
                *(run_program(shell, "n1", ("echo", str(one)), limit=120) for one in range(8))
            )
        assert [one.out for one in done] == [f"{one}\n".encode() for one in range(8)]
        assert server.logins == 1


@pytest.mark.parametrize("way", OVER_SSH)
async def test_a_cut_connection_is_told_and_opened_again(tmp_path, way):
    said: list[bytes] = []
    with real_sshd(tmp_path) as server:
        async with shell_to(server, way) as shell:
            channel = await shell.open("n1", sh("echo up; sleep 600"), said.append)
            await until(lambda: b"up\n" in b"".join(said))
            server.cut()
            with pytest.raises(UnreachableError):
                async with asyncio.timeout(120):
                    await channel.wait()
            await channel.close()
            await until(lambda: not shell.connected("n1"))
            assert (await run_program(shell, "n1", ("echo", "back"), limit=120)).out == b"back\n"


@pytest.mark.parametrize("way", OVER_SSH)
async def test_a_node_that_the_cluster_does_not_have_is_named(server, way):
    async with shell_to(server, way) as shell:
        with pytest.raises(UnreachableError, match="n9: no node of that name"):
            await run_program(shell, "n9", ("true",))


@pytest.mark.parametrize("way", OVER_SSH)
async def test_nothing_is_left_when_the_shell_is_closed(tmp_path, way):
    with real_sshd(tmp_path) as server:
        async with shell_to(server, way) as shell:
            await shell.reverse_tunnel("n1", "127.0.0.1", 1)
            await shell.open("n1", ("cat",), lambda _: None)
        await until(lambda: server.log.count("Disconnected from user") == server.logins == 1)


@pytest.mark.parametrize("way", OVER_SSH)
async def test_no_more_login_shells_start_at_once_than_logins_may(tmp_path, way):
    names = [f"n{number}" for number in range(6)]
    with real_sshd(tmp_path) as server:
        (server.home / ".bashrc").write_text("echo + >>~/log; sleep 0.2\n")
        async with shell_to(server, way, *names, logins=2) as shell, asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(run_program(shell, name, sh("echo - >>~/log"), limit=120))
        log = (server.home / "log").read_text().split()

    most = now = 0
    for sign in log:
        now += 1 if sign == "+" else -1
        most = max(most, now)
    assert log.count("+") == log.count("-") == len(names)
    assert most <= 2


@pytest.mark.parametrize("way", OVER_SSH)
async def test_a_first_program_that_says_nothing_does_not_hold_up_other_nodes(
    tmp_path, monkeypatch, way
):
    monkeypatch.setattr("rankdeck.remote.logins.START_LIMIT", 0.5)
    with real_sshd(tmp_path) as server:
        async with shell_to(server, way, "n1", "n2", logins=1) as shell:
            silent = await shell.open("n1", ("cat",), lambda _: None)
            done = await run_program(shell, "n2", ("echo", "on"), limit=120)
            await silent.close()

    assert done.out == b"on\n"
