"""Passwords and what servers ask at a login: real sshd for passwords, a
server of asyncssh for questions and codes.
"""

import asyncio
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.agent_file import put_agent
from tests.support.asking_server import PASSWORD, AskingServer, asking_server
from tests.support.person import Person, echoed, nodes_of, trusts
from tests.support.polling import until, wait_until
from tests.support.real_sshd import SSH_TRANSPORTS, RealSshd, missing, real_sshd

from rankdeck.model.cluster import Access, Cluster, Node, Transport
from rankdeck.opening import open_cluster_session
from rankdeck.remote.questions import Answers, LoginQuestion, Operator
from rankdeck.remote.shell import run_program
from rankdeck.remote.transports import reach_cluster
from rankdeck.values import replace

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
needs_sshd = pytest.mark.skipif(bool(missing()), reason=missing())
BOTH = pytest.mark.parametrize("transport", SSH_TRANSPORTS, ids=lambda one: one.value)
HASH = "$6$o/pSHmIBQikroghg$rneUBASnkf6r/LL.MvsGkM1JK0ZvKAT.N9QUir.44lkFHNKS2zmVF1es2GOLdNnAG2lgU1/wXo16SfCBrGTSb/"
"""The hash of PASSWORD."""
WITH_PASSWORD = (
    f"sed 's|^lab:x:|lab:{HASH}:|' $SSHD_FOLDER/passwd >$SSHD_FOLDER/new; "
    "cat $SSHD_FOLDER/new >/etc/passwd"
)


# ---- passwords, with sshd


@pytest.fixture
def sshd(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RealSshd]:
    with real_sshd(tmp_path, getattr(request, "param", "PubkeyAuthentication no"), WITH_PASSWORD) as server:  # fmt: skip
        yield server


@BOTH
@needs_sshd
@pytest.mark.parametrize(
    "sshd",
    ["PubkeyAuthentication no", "AuthenticationMethods publickey,password"],
    indirect=True,
    ids=["a password", "a password after a key"],
)
async def test_one_password_serves_all_nodes_and_is_asked_once(
    sshd: RealSshd, transport: Transport
) -> None:
    person = Person(lambda _: (PASSWORD,))
    async with nodes_of(sshd.cluster("n1", "n2", "n3", transport=transport), person) as shell:
        said, failed = await echoed(shell, "n1", "n2", "n3")

    assert (said, failed) == ({b"in\n"}, {})
    (question,) = person.questions
    assert question.prompts[0].text == "Password of lab@127.0.0.1: "
    assert not question.prompts[0].echo


@BOTH
@needs_sshd
async def test_a_wrong_password_goes_to_one_node_and_is_asked_again(
    sshd: RealSshd, transport: Transport
) -> None:
    person = Person(lambda question: (PASSWORD if question.again else "wrong",))
    async with nodes_of(sshd.cluster("n1", "n2", "n3", transport=transport), person) as shell:
        said, failed = await echoed(shell, "n1", "n2", "n3")

    assert (said, failed) == ({b"in\n"}, {})
    assert [one.again for one in person.questions] == [False, True]
    assert sshd.log.count("Failed password") == 1


@BOTH
@needs_sshd
async def test_after_three_wrong_passwords_no_node_is_asked_for(
    sshd: RealSshd, transport: Transport
) -> None:
    person = Person(lambda _: ("wrong",))
    async with nodes_of(sshd.cluster("n1", "n2", "n3", transport=transport), person) as shell:
        _, failed = await echoed(shell, "n1", "n2", "n3")

    assert len(person.questions) == sshd.log.count("Failed password") == 3
    assert len(failed) == 3
    for why in failed.values():
        assert "the server takes a password" in why
        assert "what was given is refused; not asked again" in why


@BOTH
@needs_sshd
async def test_who_gives_no_answer_is_not_asked_for_the_next_node(
    sshd: RealSshd, transport: Transport
) -> None:
    person = Person(lambda _: None)
    async with nodes_of(sshd.cluster("n1", "n2", transport=transport), person) as shell:
        _, failed = await echoed(shell, "n1", "n2")

    assert len(person.questions) == 1
    assert "Failed password" not in sshd.log
    assert all(why.startswith("not logged in: you stopped the questions") for why in failed.values()), failed  # fmt: skip


@BOTH
@needs_sshd
async def test_where_nobody_can_be_asked_it_is_said_what_is_wanted_and_what_is_left(
    sshd: RealSshd, transport: Transport
) -> None:
    async with nodes_of(sshd.cluster("n1", transport=transport), None) as shell:
        _, failed = await echoed(shell, "n1")

    assert re.search(
        r"the server takes a password.*nobody can be asked here: .*a key, ssh-agent, or .*ControlMaster",
        failed["n1"],
    )


@needs_sshd
async def test_ssh_config_may_forbid_to_ask(sshd: RealSshd) -> None:
    config = sshd.ssh_config("node1", ["PasswordAuthentication no"])
    access = sshd.access(user="", identity="", known_hosts="", config=str(config))
    cluster = Cluster(name="c", nodes=(Node(name="n1", address="node1"),), access=access)
    person = Person(lambda _: (PASSWORD,))
    async with nodes_of(cluster, person) as shell:
        _, failed = await echoed(shell, "n1")

    assert "login refused" in failed["n1"]
    assert person.questions == []


@BOTH
@needs_sshd
async def test_who_types_slowly_is_waited_for(sshd: RealSshd, transport: Transport) -> None:
    async def slow(_: LoginQuestion) -> Answers:
        await asyncio.sleep(4)
        return (PASSWORD,)

    async with reach_cluster(
        sshd.cluster("n1", connect_limit=3.0, transport=transport), trusts, slow
    ) as shell:
        done = await run_program(shell, "n1", ("echo", "in"), limit=3.5)

    assert done.out == b"in\n"


@needs_sshd
async def test_a_wait_for_the_cluster_stands_still_while_somebody_types(sshd: RealSshd) -> None:
    async def slow(_: LoginQuestion) -> Answers:
        await asyncio.sleep(3)
        return (PASSWORD,)

    await asyncio.to_thread(put_agent, [sshd.home])
    cluster = sshd.cluster("n1")
    async with open_cluster_session(
        cluster, brief=True, operator=Operator(trusts, slow)
    ) as session:
        began = asyncio.get_running_loop().time()
        await session.hearing.settle(2.5)

        assert asyncio.get_running_loop().time() - began >= 3


@needs_sshd
async def test_the_console_asks_by_its_session(sshd: RealSshd) -> None:
    async with open_cluster_session(sshd.cluster("n1"), telemetry=False) as session:
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(
                run_program(session.control._agents.shell, "n1", ("echo", "in"), limit=120)
            )
            await until(lambda: session.questions.pending is not None)
            assert isinstance(session.questions.pending, LoginQuestion)
            session.questions.answer((PASSWORD,))
        assert asked.result().out == b"in\n"
        assert session.questions.pending is None


@needs_sshd
@pytest.mark.parametrize(
    ("typed", "code", "expected"),
    [(f"{PASSWORD}\n", 0, b"inside"), ("\x03", 255, b"not logged in: you stopped the questions")],
    ids=["a password", "Ctrl-C"],
)
def test_a_command_asks_at_the_terminal_and_does_not_show_the_password(
    sshd: RealSshd, tmp_path: Path, typed: str, code: int, expected: bytes
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        f"cluster: c\nnodes:\n  - {{name: n1, address: 127.0.0.1, port: {sshd.port}}}\n"
        f"ssh: {{user: lab, config: none, known_hosts: {sshd.folder}/known_hosts, connect_limit: 60}}\n"
    )
    env = {"PYTHONPATH": f"{ROOT}/console:{ROOT}/agents", "HOME": str(tmp_path), "PATH": os.defpath}
    words = [sys.executable, "-m", "rankdeck", "sh", "-c", str(file), "n1", "--", "echo", "inside"]
    master, terminal = pty.openpty()
    command = subprocess.Popen(
        words, stdin=terminal, stdout=terminal, stderr=terminal, env=env, cwd=tmp_path
    )
    os.close(terminal)
    said = b""

    def heard(what: bytes) -> bool:
        nonlocal said
        try:
            said += os.read(master, 1 << 16)
        except OSError:
            return True
        return what in said

    wait_until(lambda: heard(b"Password of lab@127.0.0.1:"), 120)
    os.write(master, typed.encode())
    wait_until(lambda: heard(b"nothing more"), 120)
    os.close(master)

    assert command.wait(60) == code, said
    assert expected in said
    assert PASSWORD.encode() not in said


# ---- questions and one-time codes


@pytest.fixture
async def known(tmp_path: Path) -> Path:
    (tmp_path / "known_hosts").touch()
    return tmp_path


def at(
    servers: dict[str, AskingServer],
    folder: Path,
    config: str = "none",
    transport: Transport | None = None,
) -> Cluster:
    nodes = tuple(
        Node(name=name, address="127.0.0.1", port=one.port) for name, one in servers.items()
    )
    access = Access(
        user="lab",
        config=config,
        known_hosts=str(folder / "known_hosts"),
        connect_limit=60.0,
        transport=transport,
    )
    return Cluster(name="c", nodes=nodes, access=access)


async def test_what_the_server_asks_is_asked_in_its_words_made_safe(known: Path) -> None:
    person = Person(lambda _: (PASSWORD, "1234"))
    async with (
        asking_server(known, ["1234"]) as server,
        nodes_of(at({"n1": server}, known), person) as shell,
    ):
        assert (await run_program(shell, "n1", ("true",), limit=120)).out == b"in\n"

    (question,) = person.questions
    assert question.words == "Two factors Hello lab"
    assert [(one.text, one.echo) for one in question.prompts] == [("Password: ", False), ("Code of your <U+001B>[31mtoken: ", True)]  # fmt: skip


async def test_a_choice_that_a_server_offers_keeps_its_lines(known: Path) -> None:
    person = Person(lambda _: (PASSWORD,))
    async with (
        asking_server(known, says="Choose:\r\n 1. push\n 2. phone\n") as server,
        nodes_of(at({"n1": server}, known), person) as shell,
    ):
        await run_program(shell, "n1", ("true",), limit=120)

    assert person.questions[0].words == "Two factors Choose:\n 1. push\n 2. phone"


@BOTH
async def test_a_password_that_is_a_question_is_asked_once_for_all_nodes(
    known: Path, transport: Transport
) -> None:
    person = Person(lambda _: (PASSWORD,))
    async with (
        asking_server(known) as one,
        asking_server(known) as two,
        nodes_of(at({"n1": one, "n2": two}, known, transport=transport), person) as shell,
    ):
        said, failed = await echoed(shell, "n1", "n2")

    assert (said, failed, len(person.questions)) == ({b"in\n"}, {}, 1)


@BOTH
async def test_a_refused_code_is_not_tried_at_other_nodes(
    known: Path, transport: Transport
) -> None:
    person = Person(lambda _: (PASSWORD, "old"))
    async with (
        asking_server(known, ["1"]) as one,
        asking_server(known, ["2"]) as two,
        nodes_of(at({"n1": one, "n2": two}, known, transport=transport), person) as shell,
    ):
        _, failed = await echoed(shell, "n1", "n2")

    prompts = [prompt for question in person.questions for prompt in question.prompts]
    assert len([one for one in prompts if "token" in one.text]) == 3
    assert {len(one.got), len(two.got)} == {0, 3}
    assert all("what was given is refused; not asked again" in why for why in failed.values())


@BOTH
async def test_after_one_code_it_is_said_how_many_logins_will_ask_and_all_can_be_stopped(
    known: Path, transport: Transport
) -> None:
    names = [f"n{number}" for number in range(12)]

    def says(question: LoginQuestion) -> Answers:
        answers = {"Password: ": PASSWORD}
        found = tuple(answers.get(one.text, "1") for one in question.prompts)
        return None if question.more else found

    person = Person(says)
    async with asking_server(known, ["1"]) as server:
        cluster = at(dict.fromkeys(names, server), known, transport=transport)
        async with nodes_of(cluster, person) as shell:
            said, failed = await echoed(shell, *names)

    assert said == {b"in\n"}
    assert set(failed.values()) == {"not logged in: you stopped the questions; the server takes answers to its questions (a password or code)"}  # fmt: skip
    assert len(failed) == 11
    # Nobody's account is locked: no other login has sent anything that is wrong.
    assert len(server.got) == server.let_in == 1
    assert person.questions[-1].more == 10
    assert "up to 10 more will ask" in person.questions[-1].warning
    assert not any(one.warning for one in person.questions[:-1])


@BOTH
async def test_a_jump_host_asks_once_and_not_for_every_node(
    known: Path, transport: Transport
) -> None:
    """By ssh, where ssh_config has it hold the connection to the jump host open."""
    answers = {"Password: ": PASSWORD}
    person = Person(lambda asked: tuple(answers.get(one.text, "1") for one in asked.prompts))
    async with asking_server(known, ["1"]) as gate, asking_server(known) as node:
        config = known / "ssh_config"
        config.write_text(
            f"Host gate\n  HostName 127.0.0.1\n  Port {gate.port}\n  User lab\n"
            f"  UserKnownHostsFile {known}/known_hosts\n"
            f"  ControlMaster auto\n  ControlPath {known}/gate\n  ControlPersist 30\n"
            "Host node*\n  HostName 127.0.0.1\n  ProxyJump gate\n"
        )
        nodes = tuple(Node(name=f"node{n}", port=node.port) for n in range(4))
        access = Access(user="lab", config=str(config), known_hosts=str(known / "known_hosts"), connect_limit=60.0, transport=transport)  # fmt: skip
        cluster = Cluster(name="c", nodes=nodes, access=access)
        async with nodes_of(cluster, person) as shell:
            said, failed = await echoed(shell, *(one.name for one in nodes))
            after, _ = await echoed(shell, "node0")

    assert (said, failed, after) == ({b"in\n"}, {}, {b"in\n"})
    assert (gate.let_in, node.let_in) == (1, 4)
    # ssh hands over the two prompts of the jump host one after the other.
    by_ssh = transport is Transport.OPENSSH
    assert [len(one.prompts) for one in person.questions] == ([1, 1, 1] if by_ssh else [2, 1])


@pytest.mark.parametrize("says", ["yes", "no"])
async def test_ssh_asks_about_the_host_key_of_a_jump_host_in_its_own_words(
    known: Path, says: str
) -> None:
    person = Person(lambda asked: (says if asked.prompts[0].echo else PASSWORD,))
    async with asking_server(known) as gate, asking_server(known) as node:
        config = known / "ssh_config"
        config.write_text(
            f"Host gate\n  HostName 127.0.0.1\n  Port {gate.port}\n  User lab\n"
            f"  UserKnownHostsFile {known}/new\n"
            "Host node\n  HostName 127.0.0.1\n  ProxyJump gate\n"
        )
        one = at({"node": node}, known, str(config), Transport.OPENSSH)
        cluster = replace(one, nodes=(replace(one.nodes[0], address="node"),))
        async with nodes_of(cluster, person) as shell:
            said, failed = await echoed(shell, "node")

    first = person.questions[0].prompts[0]
    assert "The authenticity of host" in first.text
    assert first.echo
    assert (said == {b"in\n"}) is (says == "yes"), failed
