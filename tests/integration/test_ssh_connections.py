"""Connections: reuse, loss, host keys, tunnels, and every refusal in one sentence."""

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

import asyncssh
import pytest
from tests.support.polling import until
from tests.support.sshd import nodes

from rankdeck.errors import AgentError, ForwardingError, HostKeyError, UnreachableError
from rankdeck.images.bring import WantedImage, look_for_images
from rankdeck.model.cluster import Access, Cluster, Node
from rankdeck.remote import logins
from rankdeck.remote.agent import Agents, AgentSetup
from rankdeck.remote.bundle import build_bundle
from rankdeck.remote.logins import FAN_OUT, JUMP_FAN_OUT, Logins
from rankdeck.remote.shell import run_program
from rankdeck.remote.ssh import Connections
from rankdeck.values import replace


def with_access(cluster, **values):
    return replace(cluster, access=replace(cluster.access, **values))


def with_node(cluster, **values):
    return replace(cluster, nodes=(replace(cluster.nodes[0], **values),))


async def failure(cluster, confirm=None):
    async with Connections(cluster, confirm) as connections:
        with pytest.raises(UnreachableError) as caught:
            await run_program(connections, cluster.nodes[0].name, ("true",))
    return caught.value


async def agent_words(agents: Agents) -> tuple[str, ...]:
    """The words before a command of the agent on n1, where it is copied if it is missing."""
    answer = await agents.call("n1", ("--version",), limit=60)
    assert answer.out.startswith(b"rankdeck-agent ")
    return agents._paths["n1"]


async def test_arguments_arrive_as_they_are_and_one_connection_serves_all(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        words = ("a b", "$HOME", "'\"`", "*", "", "ä")
        result = await run_program(c, "n1", ("printf", "%s|", *words))
        echoed = await run_program(
            c, "n1", ("sh", "-c", "cat; echo oops >&2; exit 7"), b"\0\xff" * 100_000
        )

        assert result.out.decode() == "".join(f"{word}|" for word in words)
        assert (echoed.code, echoed.out, echoed.err) == (
            7,
            b"\0\xff" * 100_000,
            b"oops\n",
        )
        assert len(found.sshd["n1"].connections) == 1


async def test_a_lost_connection_is_opened_again(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        await run_program(c, "n1", ("true",))
        found.sshd["n1"].cut()
        await until(lambda: not c.connected("n1"))

        assert (await run_program(c, "n1", ("echo", "back"))).out == b"back\n"


async def test_many_channels_share_out_over_connections(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        channels = [await c.open("n1", ("cat",), lambda _: None) for _ in range(10)]
        await run_program(c, "n1", ("true",))
        for channel in channels:
            await channel.close()

        assert len(found.sshd["n1"].connections) == 2


async def test_a_command_has_a_limit(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        with pytest.raises(UnreachableError, match="no answer within"):
            await run_program(c, "n1", ("sleep", "60"), limit=0.3)


async def test_an_answer_without_end_is_cut_off_and_its_program_ended(tmp_path):
    pid = tmp_path / "pid"
    endless = ("sh", "-c", f"echo $$ >{pid}; exec cat /dev/zero")
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        with pytest.raises(AgentError, match="n1: sent more than 32 MB as an answer"):
            await run_program(c, "n1", endless, limit=600)

        await until(lambda: not Path(f"/proc/{int(pid.read_text())}").exists())
        assert (await run_program(c, "n1", ("echo", "on"))).out == b"on\n"


async def test_an_unknown_host_key_is_asked_about_once_and_remembered(tmp_path):
    asked = []

    async def confirm(error):
        asked.append(error)
        return True

    async with nodes(tmp_path, ["n1"]) as found:
        (tmp_path / "known_hosts").write_text("other ssh-ed25519 AAAA")
        for _ in range(2):
            async with Connections(found.cluster, confirm) as c:
                await run_program(c, "n1", ("true",))

        assert len(asked) == 1
        assert asked[0].fingerprint == found.sshd["n1"].host_key.get_fingerprint()
        assert asked[0].fingerprint.startswith("SHA256:")
        assert (tmp_path / "known_hosts").read_text().splitlines()[1] == asked[0].line


async def test_an_unknown_host_key_is_refused_without_a_yes(tmp_path):
    async def refuse(_):
        return False

    async with nodes(tmp_path, ["n1"]) as found:
        (tmp_path / "known_hosts").write_text("")

        assert isinstance(await failure(found.cluster), HostKeyError)
        assert isinstance(await failure(found.cluster, refuse), HostKeyError)
        assert (tmp_path / "known_hosts").read_text() == ""


async def test_a_changed_host_key_is_refused_and_its_line_named(tmp_path):
    async def never(_):
        raise AssertionError("a changed key is no question")

    async with nodes(tmp_path, ["n1"]) as found:
        port = found.sshd["n1"].port
        other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
        (tmp_path / "known_hosts").write_text(f"# mine\n[127.0.0.1]:{port} {other}")
        error = await failure(found.cluster, never)

        assert isinstance(error, HostKeyError)
        assert error.line == ""
        assert f"{tmp_path / 'known_hosts'}:2" in str(error)


async def test_every_refusal_is_one_sentence(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found:
        cluster = found.cluster
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "other")
        (tmp_path / "junk").write_text("no key")
        refused = await failure(with_access(cluster, identity=str(tmp_path / "other")))
        junk = await failure(with_access(cluster, identity=str(tmp_path / "junk")))
        missing = await failure(with_access(cluster, identity=str(tmp_path / "none")))
        closed = await failure(with_node(cluster, port=1))
        nameless = await failure(with_node(cluster, address="no-such-host.invalid"))

    assert "Permission denied" in str(refused)
    assert "identity" in str(junk)
    assert "No such file" in str(missing)
    assert "refused the connection; is sshd running" in str(closed)
    assert "does not resolve" in str(nameless)
    assert not any("\n" in str(error) for error in (refused, junk, missing, closed, nameless))


async def test_a_login_that_the_server_drops_at_once_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(logins, "PAUSES", (0.01, 0.01, 0.01))
    async with nodes(tmp_path, ["n1"]) as found:
        server = found.sshd["n1"]
        server.dropping = 3
        async with Connections(found.cluster) as connections:
            await run_program(connections, "n1", ("true",))
        assert server.dropping == 0

        server.dropping = 9
        error = await failure(found.cluster)
        assert server.dropping == 9 - 4

    assert "ended the connection at once, 4 times" in str(error)
    assert "MaxStartups" in str(error)


async def test_a_login_that_is_refused_is_not_tried_again(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found:
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "other")
        await failure(with_access(found.cluster, identity=str(tmp_path / "other")))

        assert len(found.sshd["n1"].connections) == 1


async def test_a_server_that_says_nothing_is_given_up(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found:
        silent = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        cluster = with_node(with_access(found.cluster, connect_limit=0.3), port=port)
        error = await failure(cluster)
        silent.close()

    assert "does not answer" in str(error)


async def test_a_reverse_tunnel_leads_back_to_us(tmp_path):
    async def hello(_, writer):
        writer.write(b"hello")
        writer.close()

    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        server = await asyncio.start_server(hello, "127.0.0.1", 0)
        port = await c.reverse_tunnel("n1", "127.0.0.1", server.sockets[0].getsockname()[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        heard = await reader.read()
        writer.close()
        server.close()

    assert heard == b"hello"


async def test_a_server_that_forbids_forwarding_is_named(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        found.sshd["n1"].forwards = False
        with pytest.raises(ForwardingError) as caught:
            await c.reverse_tunnel("n1", "127.0.0.1", 9)

    where = f"127.0.0.1 port {found.sshd['n1'].port}"
    assert f"the SSH server of {where} refuses port forwarding" in str(caught.value)


async def test_what_a_server_says_before_it_refuses_a_login_is_quoted(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found:
        found.sshd["n1"].banner = "Welcome.\nThe system is going down: only root may log in.\n"
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "other")
        error = await failure(with_access(found.cluster, identity=str(tmp_path / "other")))

    assert str(error).endswith("the server says: The system is going down: only root may log in.")


async def test_the_clock_of_this_machine_is_our_own(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        clock = await c.clock("n1")

        assert abs(clock.offset) <= clock.uncertainty + 0.005
        assert clock.uncertainty < 0.5


_TAG = "import sys; print(sys.implementation.cache_tag)"


@pytest.mark.long
async def test_the_agent_is_put_on_a_node_once(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        path = found.sshd["n1"].home / ".cache/rankdeck" / build_bundle().name
        words = await agent_words(Agents(c))
        before = path.stat().st_ino
        again = await agent_words(Agents(c))

        assert words == again == ("/usr/bin/env", "python3", "-ES", str(path))
        assert path.read_bytes() == build_bundle().data
        assert path.stat().st_ino == before
        tag = (await run_program(c, "n1", ("python3", "-c", _TAG))).out.decode().strip()
        beside = f"{path.name}.{tag}"
        assert sorted(file.name for file in path.parent.iterdir()) == [path.name, beside]


@pytest.mark.long
async def test_the_agent_loads_modules_that_were_compiled_when_it_was_put_there(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        *_, python, _, path = await agent_words(Agents(c))
        fast = await run_program(c, "n1", (python, "-v", path, "--version"))
        (compiled,) = Path(path).parent.glob("*.pyz.*")
        compiled.write_bytes(b"not a zip file")
        slow = await run_program(c, "n1", (python, path, "--version"))

        assert f"{compiled}/rankdeck_agent".encode() in fast.err
        assert f"{path}/rankdeck_agent".encode() not in fast.err
        assert fast.out == slow.out
        assert slow.code == 0


@pytest.mark.long
async def test_agents_that_nobody_used_for_long_go_when_another_is_put_there(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        folder = found.sshd["n1"].home / ".cache/rankdeck"
        folder.mkdir(parents=True)
        ages = {"unused": 31, "lately": 29, "running": 400}
        for number, (what, days) in enumerate(ages.items()):
            for end in ("", ".cpython-39"):
                file = folder / f"agent-{number:012x}.pyz{end}"
                file.write_text(f"import sys\nsys.stdin.read()  # {what}\n")
                os.utime(file, (time.time() - days * 86400,) * 2)
        (folder / "agent-of-mine.pyz").touch()
        os.utime(folder / "agent-of-mine.pyz", (0, 0))
        running = await c.open(
            "n1", ("python3", str(folder / "agent-000000000002.pyz")), lambda _: None
        )
        await until_runs(b"agent-000000000002.pyz")
        *_, path = await agent_words(Agents(c))
        left = sorted(
            file.name
            for file in folder.glob("*.pyz*")
            if not file.name.startswith(build_bundle().name)
        )
        there = [str(file) for file in folder.iterdir()]
        await running.close()

    lately, kept = "agent-000000000001.pyz", "agent-000000000002.pyz"
    assert left == sorted(
        [lately, f"{lately}.cpython-39", kept, f"{kept}.cpython-39", "agent-of-mine.pyz"]
    )
    assert path in there


async def until_runs(words: bytes) -> None:
    """Until some process has these words in its command."""
    await until(lambda: any(words in line for line in _command_lines()))


def _command_lines():
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield file.read_bytes()


@pytest.mark.long
async def test_an_agent_that_is_looked_for_counts_as_used(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        *_, path = await agent_words(Agents(c))
        os.utime(path, (1e9, 1e9))
        await agent_words(Agents(c))

        assert time.time() - os.stat(path).st_mtime < 3600  # noqa: PTH116


@pytest.mark.long
async def test_an_agent_with_other_bytes_of_the_same_length_is_replaced(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        path = found.sshd["n1"].home / ".cache/rankdeck" / build_bundle().name
        await agent_words(Agents(c))
        path.write_bytes(b"#" * len(build_bundle().data))

        await agent_words(Agents(c))

        assert path.read_bytes() == build_bundle().data


@pytest.mark.long
async def test_an_agent_that_is_changed_on_its_way_is_not_started(tmp_path, monkeypatch):
    sent = Agents._put
    monkeypatch.setattr(
        Agents,
        "_put",
        lambda self, n, path, agent: sent(
            self, n, path, replace(agent, data=agent.data[:-1] + b"x")
        ),
    )
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        with pytest.raises(
            AgentError, match=f"is not what was sent .SHA-256 {build_bundle().digest}"
        ):
            await agent_words(Agents(c))


async def test_a_missing_or_old_python_is_named(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found, Connections(found.cluster) as c:
        old = tmp_path / "python3.5"
        old.write_text("#!/bin/sh\necho '3.5|'\n")
        old.chmod(0o755)
        with pytest.raises(AgentError, match="none of `python-x` runs there"):
            await agent_words(Agents(c, "python-x"))
        with pytest.raises(AgentError, match=r"is 3\.5, too old"):
            await agent_words(Agents(c, str(old)))


@pytest.mark.long
async def test_telemetry_is_started_again_when_the_link_breaks(tmp_path, monkeypatch):
    monkeypatch.setattr("rankdeck.remote.agent.BACKOFF", (0.1,))
    said = []

    class Wanted:
        async def configure(self, _):
            config = {"cluster": "c", "node": "n1", "host": "127.0.0.1", "port": 9, "period": 1.0}
            return AgentSetup(config)

        async def superseded(self, _):
            await asyncio.Event().wait()

        def started(self, node, write):
            write(b'{"samples": true}\n')

        def ended(self, node):
            pass

        def report(self, *words):
            said.append(words)

    async with (
        nodes(tmp_path, ["n1"]) as found,
        Connections(found.cluster) as c,
        asyncio.TaskGroup() as tasks,
    ):
        agents = Agents(c, sys.executable)
        task = agents.attach_telemetry("n1", Wanted(), tasks)
        await until(lambda: any(ok for _, _, ok in said))
        found.sshd["n1"].cut()
        await until(lambda: sum(ok for _, _, ok in said) >= 2)
        task.cancel()

    assert any(not ok and "again" in sentence for _, sentence, ok in said)


async def test_an_ssh_config_that_changes_while_it_is_used_is_not_followed(tmp_path):
    config, proof = tmp_path / "ssh_config", tmp_path / "proof"
    config.write_text("Compression no\n")
    async with nodes(tmp_path, ["n1"]) as found:
        agreed = with_access(found.cluster, config=str(config), config_text=config.read_text())
        async with Connections(agreed) as c:
            await run_program(c, "n1", ("true",))
            config.write_text(f"ProxyCommand sh -c 'touch {proof}; nc %h %p'\n")
            found.sshd["n1"].cut()
            await until(lambda: not c.connected("n1"))

            again = await run_program(c, "n1", ("echo", "here"))

    assert again.out == b"here\n"
    assert not proof.exists()


SLOW = """#!/bin/sh
case "$3 $4" in
"image look") {first} ;;
esac
exec {python} "$@"
"""


def slow_python(folder, first):
    """A Python that does something else before the agent looks for images."""
    program = folder / "python"
    program.write_text(SLOW.format(first=first, python=sys.executable))
    program.chmod(0o755)
    return str(program)


async def looked(found, python):
    async with Connections(found.cluster) as c:
        wanted = WantedImage("apptainer", "/none.sif")
        return (await look_for_images(Agents(c, python), ["n1"], wanted))["n1"]


@pytest.mark.long
async def test_a_node_that_says_nothing_of_its_images_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("rankdeck.images.bring.SILENCE", 1.0)
    async with nodes(tmp_path, ["n1"]) as found:
        # Longer than it is waited for, but not for ever: nobody ends it.
        answer = await looked(found, slow_python(tmp_path, "exec sleep 5"))

    assert str(answer) == "n1: no answer within 1 s"


@pytest.mark.long
async def test_a_node_that_is_busy_with_an_image_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("rankdeck.images.bring.SILENCE", 3.0)
    busy = """for i in 1 2 3 4 5; do sleep 1; echo '{"kind": "busy"}'; done"""
    async with nodes(tmp_path, ["n1"]) as found:
        answer = await looked(found, slow_python(tmp_path, busy))

    assert answer.kind == "missing"


@pytest.mark.parametrize("logins", [1, 3])
async def test_no_more_logins_are_under_way_than_allowed(tmp_path, logins):
    names = [f"n{n}" for n in range(8)]
    async with nodes(tmp_path, names) as found:
        cluster = with_access(found.cluster, logins=logins)
        async with Connections(cluster) as c, asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(run_program(c, name, ("true",)))

        assert 1 <= found.logins.most <= logins
        assert sum(server.sessions for server in found.sshd.values()) == len(names)


def test_through_a_jump_host_few_logins_are_under_way_unless_told_otherwise(tmp_path):
    config = tmp_path / "config"
    config.write_text("Host behind*\n  ProxyJump me@gate:2222\n")
    behind, direct = Node(name="behind1"), Node(name="n1")
    cluster = Cluster(name="c", nodes=(behind, direct), access=Access(config=str(config)))

    usual = Logins(cluster, None)
    told = Logins(with_access(cluster, logins=30), None)

    assert gate(usual, behind) is gate(usual, Node(name="behind2"))
    assert gate(usual, behind) is not gate(usual, direct)
    assert places(gate(usual, behind)) == JUMP_FAN_OUT < 10
    assert places(gate(usual, direct)) == FAN_OUT
    assert places(gate(told, behind)) == places(gate(told, direct)) == 30


@pytest.mark.parametrize(
    ("command", "most"), [("ssh -W %h:%p gate", JUMP_FAN_OUT), ("nc %h %p", FAN_OUT)]
)
def test_a_proxy_that_is_ssh_counts_as_a_jump_host(tmp_path, command, most):
    (tmp_path / "config").write_text(f"ProxyCommand {command}\n")
    access = Access(config=str(tmp_path / "config"))
    cluster = Cluster(name="c", nodes=(Node(name="n1"),), access=access)

    assert places(gate(Logins(cluster, None), Node(name="n1"))) == most


def gate(logins, node):
    return asyncio.run(logins.gate_of(node))


def places(gate):
    """How many may pass at once."""
    found = 0
    while not gate.locked():
        asyncio.run(gate.acquire())
        found += 1
    return found
