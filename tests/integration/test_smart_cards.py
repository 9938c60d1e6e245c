"""Keys on a smart card (SoftHSM by PKCS#11) and on a security key
(OpenSSH's stand-in for one), with a real sshd.
"""

import asyncio
import gc
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support.person import Person, echoed, nodes_of
from tests.support.programs import UNPACKED, search_path
from tests.support.real_sshd import RealSshd, missing, real_sshd

from rankdeck.model.cluster import Cluster, Node, Transport
from rankdeck.remote import transports
from rankdeck.remote.login_errors import of_node
from rankdeck.remote.logins import Logins
from rankdeck.remote.ssh_questions import AskProgram
from rankdeck.remote.user_ssh import text_file

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]
PIN, NODES = "5678", ("n1", "n2", "n3")
LIBRARY = Path("/usr/lib/softhsm/libsofthsm2.so")
UTIL = shutil.which("softhsm2-util", path=search_path())
needs_card = pytest.mark.skipif(not (UTIL and LIBRARY.exists()), reason="SoftHSM (softhsm2) is missing")  # fmt: skip
needs_module = pytest.mark.skipif(find_spec("pkcs11") is None, reason="rankdeck[pkcs11] is missing")
SECURITY_KEY = UNPACKED / "openssh-tests/usr/lib/openssh/regress/misc/sk-dummy/sk-dummy.so"
needs_security_key = pytest.mark.skipif(not SECURITY_KEY.exists(), reason="sk-dummy.so of OpenSSH's tests (openssh-tests) is missing")  # fmt: skip


@dataclass(frozen=True)
class Card:
    public: str
    """A line of authorized_keys."""


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Card]:
    """A card for the whole module: the library reads where it lies once in a process."""
    folder = tmp_path_factory.mktemp("card")
    (folder / "tokens").mkdir()
    (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder}/tokens\n")
    key = folder / "key.pem"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTHSM2_CONF", str(folder / "softhsm2.conf"))
        init = ("--init-token", "--free", "--label", "lab card", "--so-pin", "1234", "--pin", PIN)
        subprocess.run((UTIL, *init), check=True, capture_output=True)
        # asyncssh reads the point of an EC key from its private part, where SoftHSM has none.
        make = ("openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")
        subprocess.run((*make, "-out", key), check=True, capture_output=True)
        put = ("--import", key, "--token", "lab card", "--pin", PIN, "--label", "me", "--id", "01")
        subprocess.run((UTIL, *put), check=True, capture_output=True)
        listed = subprocess.run(("ssh-keygen", "-D", LIBRARY), check=True, capture_output=True)
        yield Card(listed.stdout.decode())


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealSshd]:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    gc.collect()  # an open card of the test before would need no PIN
    with real_sshd(tmp_path, f"AuthorizedKeysFile {tmp_path}/keys") as server:
        yield server


def by_config(sshd: RealSshd, transport: Transport | None, *lines: str) -> Cluster:
    config = sshd.ssh_config("node*", (*lines, "PasswordAuthentication no", "KbdInteractiveAuthentication no"))  # fmt: skip
    access = sshd.access(user="", identity="", known_hosts="", config=str(config), transport=transport)  # fmt: skip
    nodes = tuple(Node(name=name, address=f"node{name}") for name in NODES)
    return Cluster(name="c", nodes=nodes, access=access)


@needs_card
@pytest.mark.parametrize(
    "transport", [Transport.OPENSSH, pytest.param(Transport.ASYNCSSH, marks=needs_module)],
    ids=lambda one: one.value,
)  # fmt: skip
async def test_the_pin_of_a_card_is_asked_once(
    sshd: RealSshd, card: Card, transport: Transport
) -> None:
    (sshd.folder / "keys").write_text(card.public)
    person = Person(lambda _: (PIN,))
    cluster = by_config(sshd, transport, f"PKCS11Provider {LIBRARY}")
    async with nodes_of(cluster, person) as shell:
        said, failed = await echoed(shell, *NODES)

    assert (said, failed) == ({b"in\n"}, {})
    (question,) = person.questions
    assert "lab card" in question.prompts[0].text
    assert not question.prompts[0].echo


@needs_card
async def test_ssh_asks_again_after_a_wrong_pin(sshd: RealSshd, card: Card) -> None:
    (sshd.folder / "keys").write_text(card.public)
    person = Person(lambda question: (PIN if question.again else "0000",))
    cluster = by_config(sshd, Transport.OPENSSH, f"PKCS11Provider {LIBRARY}")
    async with nodes_of(cluster, person) as shell:
        said, failed = await echoed(shell, *NODES)

    assert (said, failed) == ({b"in\n"}, {})
    assert [one.again for one in person.questions] == [False, True]


@needs_card
@needs_module
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("0000", "the PIN of the card lab card was wrong"),
        ("", "no PIN was given for the card lab card"),
        (None, "the card lab card wants a PIN, and nobody can be asked here"),
    ],
)
async def test_a_wrong_pin_is_not_tried_for_each_node(
    sshd: RealSshd, card: Card, typed: str | None, expected: str
) -> None:
    (sshd.folder / "keys").write_text(card.public)
    person = None if typed is None else Person(lambda _: (typed,))
    cluster = by_config(sshd, Transport.ASYNCSSH, f"PKCS11Provider {LIBRARY}")
    async with nodes_of(cluster, person) as shell:
        _, failed = await echoed(shell, *NODES)

    assert set(failed) == set(NODES)
    assert all(expected in why for why in failed.values()), failed
    assert person is None or len(person.questions) == 1


@needs_module
async def test_a_library_that_is_no_such_library_is_named(sshd: RealSshd) -> None:
    library = sshd.folder / "none.so"
    cluster = by_config(sshd, Transport.ASYNCSSH, f"PKCS11Provider {library}")
    (sshd.folder / "keys").write_text("")
    async with nodes_of(cluster, None) as shell:
        _, failed = await echoed(shell, "n1")

    assert f"PKCS11Provider {library} cannot be used" in failed["n1"]


@needs_card
async def test_without_the_package_for_cards_ssh_is_used_and_that_is_said_once(
    sshd: RealSshd, card: Card, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transports, "MODULES", frozenset())
    caplog.set_level(logging.INFO, "rankdeck")
    (sshd.folder / "keys").write_text(card.public)
    person = Person(lambda _: (PIN,))
    async with nodes_of(by_config(sshd, None, f"PKCS11Provider {LIBRARY}"), person) as shell:
        said, failed = await echoed(shell, *NODES)

    assert (said, failed, len(person.questions)) == ({b"in\n"}, {}, 1)
    told = [one.getMessage() for one in caplog.records if "program ssh" in one.getMessage()]
    assert len(told) == 1
    assert "PKCS11Provider" in told[0]


@needs_security_key
async def test_a_security_key_is_used_by_ssh(
    sshd: RealSshd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transports, "MODULES", frozenset())
    caplog.set_level(logging.INFO, "rankdeck")
    key = sshd.folder / "touch"
    make = ("ssh-keygen", "-q", "-t", "ed25519-sk", "-w", str(SECURITY_KEY), "-N", "", "-f", str(key))  # fmt: skip
    done = subprocess.run(make, check=False, capture_output=True, env=dict(os.environ))  # noqa: ASYNC221
    assert done.returncode == 0, done.stderr
    shutil.copy(f"{key}.pub", sshd.folder / "keys")
    person = Person(lambda _: None)
    lines = (f"SecurityKeyProvider {SECURITY_KEY}", f"IdentityFile {key}")
    async with nodes_of(by_config(sshd, None, *lines), person) as shell:
        said, failed = await echoed(shell, *NODES)

    assert (said, failed, person.questions) == ({b"in\n"}, {}, [])
    told = [one.getMessage() for one in caplog.records if "program ssh" in one.getMessage()]
    assert len(told) == 1
    assert "SecurityKeyProvider" in told[0]


async def test_that_a_security_key_waits_to_be_touched_is_said(
    sshd: RealSshd, caplog: pytest.LogCaptureFixture
) -> None:
    """As ssh says it; the stand-in for a key waits for nobody."""
    logins = Logins(sshd.cluster("n1"), None, Person(lambda _: None).answer)
    node = sshd.cluster("n1").nodes[0]
    talk = await logins.talk_by_ssh(node, of_node(node), None)
    words = (
        "sh",
        "-c",
        "SSH_ASKPASS_PROMPT=none \"$SSH_ASKPASS\" 'Confirm user presence for key me'",
    )
    with text_file("") as said:
        async with AskProgram(sshd.folder / "ask", talk) as asks:
            program = await asyncio.create_subprocess_exec(*words, env=asks.variables)
            code = await asks.wait_for(program, said)

    assert code == 1
    assert "Confirm user presence for key me" in caplog.messages
