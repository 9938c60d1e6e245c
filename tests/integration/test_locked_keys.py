"""Key files with a passphrase, with a real sshd: asked once for a key, by a
command and by the console; never stored.
"""

import os
import re
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.person import Person, echoed, nodes_of
from tests.support.polling import wait_until
from tests.support.real_sshd import SSH_TRANSPORTS, RealSshd, missing, real_sshd

from rankdeck.model.cluster import Cluster, Node, Transport

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]
PASSPHRASE = "open sesame"
NODES = ("n1", "n2", "n3")
KINDS = {
    "ed25519": ("-t", "ed25519"),
    "many rounds": ("-t", "ed25519", "-a", "40"),
    "RSA in the older form": ("-t", "rsa", "-b", "2048", "-m", "PEM"),
    "ECDSA in PKCS#8": ("-t", "ecdsa", "-m", "PKCS8"),
}


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture(params=SSH_TRANSPORTS, ids=lambda one: one.value)
def transport(request: pytest.FixtureRequest) -> Transport:
    way: Transport = request.param
    return way


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[RealSshd]:
    with real_sshd(tmp_path, f"AuthorizedKeysFile {tmp_path}/keys") as server:
        (tmp_path / "keys").write_text((tmp_path / "id.pub").read_text())
        yield server


def lock_key(sshd: RealSshd, *kind: str, public: bool = True) -> Path:
    """A new key with a passphrase, which the server lets in."""
    key = sshd.folder / "locked"
    words = ("ssh-keygen", "-q", *(kind or KINDS["ed25519"]), "-N", PASSPHRASE, "-f", key)
    subprocess.run(words, check=True)
    beside = Path(f"{key}.pub")
    (sshd.folder / "keys").write_text(beside.read_text())
    if not public:
        beside.unlink()
    return key


def certify(sshd: RealSshd, key: Path) -> None:
    """Let the key in by a certificate alone."""
    authority = sshd.folder / "authority"
    subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", authority), check=True)
    sign = ("ssh-keygen", "-q", "-s", authority, "-I", "me", "-n", "lab", f"{key}.pub")
    subprocess.run(sign, check=True)
    (sshd.folder / "keys").write_text(f"cert-authority {Path(f'{authority}.pub').read_text()}")


@contextmanager
def agent_with(key: Path) -> Generator[Path]:
    """The socket of an ssh-agent that holds this key, until the end of the block."""
    script, socket = key.parent / "answer", key.parent / "agent"
    script.write_text(f"#!/bin/sh\necho '{PASSPHRASE}'\n")
    script.chmod(0o700)
    asked = {"SSH_AUTH_SOCK": str(socket), "SSH_ASKPASS": str(script), "SSH_ASKPASS_REQUIRE": "force"}  # fmt: skip
    agent = subprocess.Popen(("ssh-agent", "-D", "-a", socket), stdout=subprocess.DEVNULL)
    try:
        wait_until(socket.exists, 60)
        words = ("ssh-add", "-q", key)
        subprocess.run(words, env={**os.environ, **asked}, check=True, stdin=subprocess.DEVNULL)
        yield socket
    finally:
        agent.terminate()
        agent.wait(60)


def by_config(sshd: RealSshd, transport: Transport, *lines: str) -> Cluster:
    """Three nodes that an ssh_config leads to, whose first lines for them are these."""
    config = sshd.ssh_config("node*", lines)
    access = sshd.access(
        user="", identity="", known_hosts="", config=str(config), transport=transport
    )
    nodes = tuple(Node(name=name, address=f"node{name}") for name in NODES)
    return Cluster(name="c", nodes=nodes, access=access)


def knows() -> Person:
    return Person(lambda _: (PASSPHRASE,))


@pytest.mark.parametrize("public", [True, False], ids=["with .pub", "without"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_passphrase_is_asked_once_for_a_key_and_not_for_each_node(
    sshd: RealSshd, transport: Transport, kind: str, public: bool
) -> None:
    key = lock_key(sshd, *KINDS[kind], public=public)
    person = knows()
    async with nodes_of(by_config(sshd, transport, f"IdentityFile {key}"), person) as shell:
        said, failed = await echoed(shell, *NODES)

    assert (said, failed) == ({b"in\n"}, {})
    (question,) = person.questions
    assert question.words == f"The key {key} has a passphrase."
    assert not question.prompts[0].echo


@pytest.mark.parametrize("config", ["none", ""])
async def test_the_key_of_the_cluster_file_may_have_a_passphrase(
    sshd: RealSshd, transport: Transport, config: str
) -> None:
    key = lock_key(sshd)
    person = knows()
    cluster = sshd.cluster(*NODES, identity=str(key), config=config, transport=transport)
    async with nodes_of(cluster, person) as shell:
        said, failed = await echoed(shell, *NODES)

    assert (said, failed, len(person.questions)) == ({b"in\n"}, {}, 1)


async def test_a_wrong_passphrase_is_told_and_goes_to_no_server(
    sshd: RealSshd, transport: Transport
) -> None:
    key = lock_key(sshd)
    person = Person(lambda question: (PASSPHRASE if question.again else "wrong",))
    async with nodes_of(by_config(sshd, transport, f"IdentityFile {key}"), person) as shell:
        said, failed = await echoed(shell, *NODES)

    assert (said, failed) == ({b"in\n"}, {})
    assert [one.again for one in person.questions] == [False, True]
    assert "Failed" not in sshd.log


@pytest.mark.parametrize(
    ("typed", "times", "expected"),
    [
        ("wrong", 3, r"the passphrase for \S+/locked was wrong; not asked again: .*`ssh-add \S+/locked`"),
        ("", 1, r"no passphrase was given for \S+/locked: .*`ssh-add \S+/locked`"),
    ],
)  # fmt: skip
async def test_who_does_not_know_it_is_asked_no_more_and_the_file_is_named(
    sshd: RealSshd, transport: Transport, typed: str, times: int, expected: str
) -> None:
    key = lock_key(sshd)
    person = Person(lambda _: (typed,))
    cluster = by_config(sshd, transport, f"IdentityFile {key}", "PasswordAuthentication no")
    async with nodes_of(cluster, person) as shell:
        _, failed = await echoed(shell, *NODES)

    assert len(person.questions) == times
    assert set(failed) == set(NODES)
    assert all(re.search(expected, why) for why in failed.values()), failed


async def test_where_nobody_can_be_asked_one_sentence_names_the_key_and_what_to_do(
    sshd: RealSshd,
    transport: Transport,
) -> None:
    key = lock_key(sshd)
    async with nodes_of(by_config(sshd, transport, f"IdentityFile {key}"), None) as shell:
        _, failed = await echoed(shell, "n1")

    assert f"{key} has a passphrase, and nobody can be asked here: add it to ssh-agent with `ssh-add {key}`" in failed["n1"]  # fmt: skip


async def test_a_key_that_the_server_does_not_take_is_not_asked_for(
    sshd: RealSshd, transport: Transport
) -> None:
    key = lock_key(sshd)
    (sshd.folder / "keys").write_text((sshd.folder / "id.pub").read_text())
    person = knows()
    async with nodes_of(by_config(sshd, transport, f"IdentityFile {key}"), person) as shell:
        said, failed = await echoed(shell, *NODES)

    assert (said, failed, person.questions) == ({b"in\n"}, {}, [])


async def test_a_certificate_of_a_locked_key_is_used(sshd: RealSshd, transport: Transport) -> None:
    key = lock_key(sshd)
    certify(sshd, key)
    person = knows()
    async with nodes_of(by_config(sshd, transport, f"IdentityFile {key}"), person) as shell:
        said, failed = await echoed(shell, *NODES)

    assert (said, failed, len(person.questions)) == ({b"in\n"}, {}, 1)


async def test_an_agent_that_has_the_key_spares_the_question(
    sshd: RealSshd, transport: Transport
) -> None:
    key = lock_key(sshd)
    person = knows()
    with agent_with(key) as socket:
        cluster = by_config(sshd, transport, f"IdentityFile {key}", f"IdentityAgent {socket}")
        async with nodes_of(cluster, person) as shell:
            said, failed = await echoed(shell, *NODES)

    assert (said, failed, person.questions) == ({b"in\n"}, {}, [])
