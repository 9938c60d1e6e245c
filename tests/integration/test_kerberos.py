"""Logins by Kerberos, with MIT's KDC and a real sshd: by asyncssh with the extra
`gssapi`, by ssh, and without a ticket.
"""

import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support import kerberos
from tests.support.kerberos import Realm, realm
from tests.support.person import Person, echoed, nodes_of
from tests.support.real_sshd import RealSshd, missing, real_sshd

from rankdeck.model.cluster import Cluster, Node, Transport
from rankdeck.remote import transports

LACKING = missing() or kerberos.missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(LACKING), reason=LACKING)]
NODES = ("n1", "n2", "n3")
WAYS = pytest.mark.parametrize(
    "transport",
    [
        Transport.OPENSSH,
        pytest.param(
            Transport.ASYNCSSH,
            marks=pytest.mark.skipif(find_spec("gssapi") is None, reason="rankdeck[gssapi] is missing"),
        ),
    ],
    ids=lambda one: one.value,
)  # fmt: skip


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Realm]:
    (tmp_path / "realm").mkdir()
    with realm(tmp_path / "realm", "lab", "127.0.0.1") as made:
        monkeypatch.setenv("KRB5_CONFIG", str(made.config))
        monkeypatch.setenv("KRB5CCNAME", made.tickets)
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        yield made


@pytest.fixture
def sshd(site: Realm, tmp_path: Path) -> Iterator[RealSshd]:
    settings = "GSSAPIAuthentication yes\nGSSAPIStrictAcceptorCheck no\nPubkeyAuthentication no\nPasswordAuthentication no\nKbdInteractiveAuthentication no"
    setup = f"export KRB5_KTNAME=FILE:{site.keytab} KRB5_CONFIG={site.config}"
    with real_sshd(tmp_path, settings, setup) as server:
        yield server


def by_config(sshd: RealSshd, transport: Transport | None, *lines: str) -> Cluster:
    config = sshd.ssh_config("node*", ("GSSAPIAuthentication yes", *lines))
    access = sshd.access(user="", identity="", known_hosts="", config=str(config), transport=transport)  # fmt: skip
    nodes = tuple(Node(name=name, address=f"node{name}") for name in NODES)
    return Cluster(name="c", nodes=nodes, access=access)


@WAYS
async def test_a_ticket_lets_in(sshd: RealSshd, site: Realm, transport: Transport) -> None:
    site.log_in("lab")
    person = Person(lambda _: None)
    async with nodes_of(by_config(sshd, transport), person) as shell:
        said, failed = await echoed(shell, *NODES)

    assert (said, failed, person.questions) == ({b"in\n"}, {}, [])
    assert sshd.log.count("Accepted gssapi-with-mic for lab") == 3


async def test_without_the_package_ssh_is_used_and_that_is_said_once(
    sshd: RealSshd, site: Realm, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transports, "MODULES", frozenset())
    caplog.set_level(logging.INFO, "rankdeck")
    site.log_in("lab")
    async with nodes_of(by_config(sshd, None, "PubkeyAuthentication no"), None) as shell:
        said, failed = await echoed(shell, *NODES)

    assert (said, failed) == ({b"in\n"}, {})
    told = [one for one in caplog.messages if "program ssh" in one]
    assert len(told) == 1
    assert "GSSAPIAuthentication" in told[0]


@WAYS
async def test_without_a_ticket_kinit_is_named(
    sshd: RealSshd, site: Realm, transport: Transport
) -> None:
    assert site.config.exists()
    async with nodes_of(by_config(sshd, transport, "PubkeyAuthentication no"), None) as shell:
        _, failed = await echoed(shell, "n1")

    assert "login refused (Permission denied) for lab" in failed["n1"]
    assert "`kinit`" in failed["n1"]


@WAYS
async def test_a_ticket_of_somebody_else_does_not_let_in(
    sshd: RealSshd, site: Realm, transport: Transport
) -> None:
    site.run("kadmin.local", "-q", f"addprinc -pw {kerberos.PASSWORD} other")
    site.log_in("other")
    async with nodes_of(by_config(sshd, transport), None) as shell:
        _, failed = await echoed(shell, "n1")

    assert "login refused (Permission denied) for lab" in failed["n1"]
