"""ssh_config means what OpenSSH says it means: every text that `ssh` accepts leads to
the node, or says in one sentence why not.
"""

import asyncio
import logging
import os
import re
import shutil
import signal
import subprocess
import sys

import asyncssh
import pytest
from tests.support.polling import until
from tests.support.sshd import nodes

from rankdeck.errors import UnreachableError
from rankdeck.model.cluster import Access, Cluster, Node
from rankdeck.remote import logins, ssh_config
from rankdeck.remote.shell import run_program
from rankdeck.remote.ssh import Connections
from rankdeck.remote.ssh_config import SshConfig, SshConfigError
from rankdeck.remote.ssh_files import SshFiles

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs the program ssh")
BASE = """\
Host node*
  HostName 127.0.0.1
  Port {port}
  User tester
  IdentityFile {folder}/id
  UserKnownHostsFile {folder}/known_hosts
"""
NC = "python3 {folder}/relay.py"
RELAY = """\
import os, socket, sys, threading
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while data := os.read(0, 65536):
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := s.recv(65536):
    os.write(1, data)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(logins, "PAUSES", (0.01,))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def cluster_with(folder, text, host="node1", **access):
    config = folder / "ssh_config"
    config.write_bytes(text if isinstance(text, bytes) else text.encode())
    access = Access(config=str(config), config_text=None, connect_limit=8, **access)
    return Cluster(name="c", nodes=(Node(name="n1", address=host),), access=access)


async def tried(cluster, confirm=None):
    """The output of a command on the node, or the sentence that says why there is none."""
    async with Connections(cluster, confirm) as connections:
        try:
            return (await run_program(connections, "n1", ("echo", "here"))).out.decode().strip()
        except UnreachableError as error:
            return str(error)


CONNECTS = {
    "as it is": "",
    "an IdentityFile that is missing": "  IdentityFile {folder}/missing\n",
    "a comment after a value": "  Compression yes  # because it is slow\n",
    "times with units": "  ServerAliveInterval 1m\n  ConnectTimeout 10s\n",
    "PubkeyAuthentication unbound": "  PubkeyAuthentication unbound\n",
    "a PKCS11Provider that is missing": "  PKCS11Provider /usr/lib/none.so\n",
    "a CertificateFile with a token": "  CertificateFile {folder}/%k-cert.pub\n",
    "files with tokens that are rare": "  IdentityFile {folder}/%C\n  CertificateFile {folder}/%C\n",
    "quoted values": '  IdentityFile "{folder}/id"\n',
    "= between option and value": "  Compression=yes\n  ServerAliveCountMax = 3\n",
    "algorithms that only OpenSSH has": "  KexAlgorithms +sntrup761x25519-sha512@openssh.com\n  Ciphers ^aes128-ctr\n",
    "= in Match exec": 'Match exec "test a=a"\n  Compression yes\n',
    "ProxyCommand with =": "  ProxyCommand=" + NC + " %h %p\n",
    "ProxyCommand with a variable that has a default": "  ProxyCommand ${{NOWHERE:-python3}} {folder}/relay.py %h %p\n",
    "ProxyCommand with ~/": "  ProxyCommand python3 ~/relay.py %h %p\n",
    "ProxyCommand with a pipe": "  ProxyCommand cat | " + NC + " %h %p | cat\n",
    "a host key under another name": "  HostKeyAlias the-node\n",
    "a host key under another name, behind a proxy": "  HostKeyAlias the-node\n  ProxyCommand " + NC + " %h %p\n",
    "IdentitiesOnly": "  IdentitiesOnly yes\n  IdentityAgent none\n",
    "options that mean nothing here": "  ControlMaster auto\n  ControlPath {folder}/%C\n  RemoteCommand top\n  RequestTTY yes\n  LocalCommand touch x\n",
    "unknown options that are ignored": "  IgnoreUnknown UseKeychain\n  UseKeychain yes\n",
}  # fmt: skip


@pytest.mark.parametrize("what", CONNECTS)
async def test_what_ssh_accepts_leads_to_the_node(tmp_path, what, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # for the shell of a ProxyCommand
    async with nodes(tmp_path, ["n1"]) as found:
        cluster = prepared(found, tmp_path, BASE + CONNECTS[what])

        assert await tried(cluster) == "here"


def prepared(found, folder, text, **access):
    server = found.sshd["n1"]
    (folder / "relay.py").write_text(RELAY)
    known = folder / "known_hosts"
    known.write_text(known.read_text() + f"the-node {server.host_key.export_public_key().decode()}")
    return cluster_with(folder, text.format(port=server.port, folder=folder), **access)


async def test_a_comment_that_is_not_utf8_is_a_comment(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found:
        text = BASE.format(port=found.sshd["n1"].port, folder=tmp_path)

        assert await tried(cluster_with(tmp_path, b"# caf\xe9\n" + text.encode())) == "here"


async def test_tokens_in_match_exec_choose_the_user(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found:
        text = 'Match exec "test %h = node1"\n  User other\n' + BASE
        cluster_with(tmp_path, text.format(port=found.sshd["n1"].port, folder=tmp_path))
        config = SshConfig(str(tmp_path / "ssh_config"))

        assert (await config.of("node1")).user == "other"
        assert (await config.of("node2")).user == "tester"


REFUSED = {
    "a mistake": ("  Prot 22\n", r"OpenSSH refuses its configuration: .*ssh_config: line 7: Bad configuration option: prot"),
    "a proxy that says why": ("  ProxyCommand echo the gate is shut >&2; exit 3\n", r"no connection to 127.0.0.1 port \d+ through ProxyCommand `echo .*: the gate is shut"),
    "a proxy that is missing": ("  ProxyCommand /no/such/program %h\n", r"through ProxyCommand `/no/such/program 127.0.0.1`: .*(No such file|not found)"),
    "a proxy that ends silently": ("  ProxyCommand false\n", r"through ProxyCommand `false`: exit status 1"),
    "a wrong user's key": ("  User tester\n  IdentityFile none\nHost *\n  IdentitiesOnly yes\n", r"here"),
    "another port": ("Host *\n  HostKeyAlias x\n", r"its host key is not known"),
    "strict checking": ("  StrictHostKeyChecking yes\n  HostKeyAlias x\n", r"its host key is not known: SHA256:\S+; ssh_config says StrictHostKeyChecking yes"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
async def test_what_cannot_work_is_one_sentence(tmp_path, what):
    text, sentence = REFUSED[what]
    async with nodes(tmp_path, ["n1"]) as found:
        said = await tried(prepared(found, tmp_path, BASE + text))

    assert re.search(sentence, said), said
    assert "\n" not in said
    assert "MaxStartups" not in said


async def test_a_refused_login_names_where_it_went_and_what_was_not_used(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found:
        port = found.sshd["n1"].port
        (tmp_path / "broken").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n")
        text = BASE.replace("{folder}/id", "{folder}/broken").format(port=port, folder=tmp_path)
        said = await tried(cluster_with(tmp_path, text))

    assert f"login refused (Permission denied) for tester by 127.0.0.1 port {port}" in said
    assert f"; {tmp_path}/broken cannot be used (" in said
    assert said.endswith("add it to ssh-agent with ssh-add")


async def test_a_jump_host_is_resolved_like_any_other(tmp_path):
    async with nodes(tmp_path, ["gate", "n1"]) as found:
        text = (
            f"Host gate\n  HostName 127.0.0.1\n  Port {found.sshd['gate'].port}\n  User tester\n"
            f"  IdentityFile {tmp_path}/id\n  UserKnownHostsFile {tmp_path}/known_hosts\n"
        )
        inner = BASE.format(port=found.sshd["n1"].port, folder=tmp_path)
        good = await tried(cluster_with(tmp_path, text + inner + "  ProxyJump gate\n"))
        shut = await tried(cluster_with(tmp_path, text + inner + "  ProxyJump gate:1\n"))
        loop = await tried(
            cluster_with(tmp_path, text + "  ProxyJump node2\n" + inner + "  ProxyJump gate\n")
        )

    assert good == "here"
    assert "its jump host gate: 127.0.0.1 port 1 refused the connection" in shut
    assert "leads nowhere" in loop


async def test_keys_of_the_agent_come_in_the_order_of_openssh(tmp_path):
    socket = tmp_path / "agent"
    agent = await asyncio.create_subprocess_exec(
        "ssh-agent", "-D", "-a", str(socket), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        async with nodes(tmp_path, ["n1"]) as found:
            await until(socket.exists)
            names = [tmp_path / f"other{n}" for n in range(7)] + [tmp_path / "id"]
            for name in names[:-1]:
                asyncssh.generate_private_key("ssh-ed25519").write_private_key(name)
                name.chmod(0o600)
            add = await asyncio.create_subprocess_exec(
                "ssh-add", "-q", *map(str, names), env={**os.environ, "SSH_AUTH_SOCK": str(socket)}
            )
            assert await add.wait() == 0
            (tmp_path / "id").rename(tmp_path / "gone")
            shutil.copy(tmp_path / "authorized", tmp_path / "id.pub")
            text = BASE.format(port=found.sshd["n1"].port, folder=tmp_path)
            said = await tried(cluster_with(tmp_path, text + f"  IdentityAgent {socket}\n"))
            only = await tried(
                cluster_with(tmp_path, text + f"  IdentityAgent {socket}\n  IdentitiesOnly yes\n")
            )
    finally:
        agent.send_signal(signal.SIGTERM)
        await agent.wait()

    assert (said, only) == ("here", "here")


async def test_host_keys_that_ssh_config_does_not_check_are_accepted_and_this_is_said_once(
    tmp_path, caplog
):
    nowhere = BASE.replace("{folder}/known_hosts", "/dev/null") + "  StrictHostKeyChecking no\n"
    async with nodes(tmp_path, ["n1"]) as found:
        text = nowhere.format(port=found.sshd["n1"].port, folder=tmp_path)
        with caplog.at_level(logging.WARNING, "rankdeck"):
            async with Connections(cluster_with(tmp_path, text)) as connections:
                await run_program(connections, "n1", ("true",))
                connections.drop("n1")
                await until(lambda: not connections.connected("n1"))
                said = (await run_program(connections, "n1", ("echo", "here"))).out

    assert said == b"here\n"
    assert [
        one.getMessage() for one in caplog.records if "StrictHostKeyChecking" in one.getMessage()
    ] == [
        "n1: its host key is not checked, nor of others: ssh_config says StrictHostKeyChecking no"
    ]


async def test_an_accepted_key_without_a_file_is_kept_until_the_end(tmp_path):
    asked = []

    async def confirm(error):
        asked.append(error)
        return True

    async with nodes(tmp_path, ["n1"]) as found:
        text = BASE.replace("{folder}/known_hosts", "/dev/null")
        cluster = cluster_with(tmp_path, text.format(port=found.sshd["n1"].port, folder=tmp_path))
        async with Connections(cluster, confirm) as connections:
            await run_program(connections, "n1", ("true",))
            connections.drop("n1")
            await until(lambda: not connections.connected("n1"))
            await run_program(connections, "n1", ("true",))

    assert len(asked) == 1


async def test_new_keys_are_accepted_where_ssh_config_says_so_and_changed_ones_are_not(tmp_path):
    async with nodes(tmp_path, ["n1"]) as found:
        server = found.sshd["n1"]
        text = (
            BASE.format(port=server.port, folder=tmp_path) + "  StrictHostKeyChecking accept-new\n"
        )
        (tmp_path / "known_hosts").write_text("")
        first = await tried(cluster_with(tmp_path, text))
        learnt = (tmp_path / "known_hosts").read_text()
        other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
        (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {other}")
        changed = await tried(cluster_with(tmp_path, text))

    assert first == "here"
    assert learnt.startswith(f"[127.0.0.1]:{server.port} ssh-ed25519 ")
    assert "has changed" in changed


SHARED = """\
Host node7
  Compression yes
Host node*
  HostName %h.cluster
  ControlPath ~/.ssh/%C
  ProxyCommand nc %h %p
Match originalhost gpu* exec "true"
  User other
Match host *.cluster
  Port 2222
Host *
  User me
"""


@pytest.mark.parametrize(
    "more",
    [
        "",
        'Match exec "test %h = node3"\n  Port 99\n',
        "Match final\n  Port 98\n",
        "CanonicalizeHostname yes\n",
        "Host node3 # one\n  Port 97\n",
    ],
)
async def test_a_shared_answer_is_what_ssh_says_of_the_host_itself(tmp_path, more):
    file = tmp_path / "config"
    (tmp_path / "extra").write_text("Host node2\n  LogLevel DEBUG\n")
    file.write_text(f"Include {tmp_path}/ext*\n" + SHARED + more)
    config = SshConfig(str(file))
    for host in ("node1", "node2", "node3", "node7", "NODE4", "gpu1", "gpu2", "x", "10.0.0.1"):
        told = await config.of(host)
        alone = await SshConfig(str(file)).of(host)
        assert (told.host, told.port, told.user, told.original) == (
            alone.host,
            alone.port,
            alone.user,
            host,
        )
        assert {k: v for k, v in told.values.items() if k not in HOSTS} == {
            k: v for k, v in alone.values.items() if k not in HOSTS
        }


HOSTS = ("host", "hostname", "controlpath")
"""What may differ between hosts that share an answer; the second is filled in for each."""


async def test_hosts_that_are_alike_share_one_call_until_a_file_changes(tmp_path):
    file, more = tmp_path / "config", tmp_path / "more"
    more.write_text("Port 2222\n")
    blocks = "".join(f"Host node{n}\n  HostName 10.0.0.{n}\n  User me\n" for n in range(200))
    file.write_text(f"Include {more}\n{blocks}")
    config = SshConfig(str(file))

    told = [await config.of(f"node{n}") for n in range(200)]
    calls = config.calls
    more.write_text("Port 22222\n")
    later = await config.of("node5")

    assert [one.host for one in told] == [f"10.0.0.{n}" for n in range(200)]
    assert {one.port for one in told} == {2222}
    assert calls == 2  # the second is for OpenSSH's own algorithms
    assert later.port == 22222


def test_patterns_are_matched_as_openssh_matches_them(tmp_path):
    file = tmp_path / "config"
    file.write_text("Host a? !ab *.x\n  Port 1\n")
    files = SshFiles([(file, tmp_path)])

    port = {
        host: ("port", "1") in files.alike(host).lines for host in ("a", "a1", "ab", "c.x", "A1")
    }

    assert port == {"a": False, "a1": True, "ab": False, "c.x": True, "A1": False}


async def test_a_match_that_never_ends_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(ssh_config, "LIMIT", 0.5)
    (tmp_path / "config").write_text('Match exec "sleep 60"\n  Port 1\n')

    with pytest.raises(SshConfigError, match="no answer within"):
        await SshConfig(str(tmp_path / "config")).of("node1")


async def test_without_openssh_our_own_reading_serves_and_says_so_when_it_stumbles(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(ssh_config.shutil, "which", lambda _: None)
    async with nodes(tmp_path, ["n1"]) as found:
        text = BASE.format(port=found.sshd["n1"].port, folder=tmp_path)
        good = await tried(cluster_with(tmp_path, text))
        bad = await tried(cluster_with(tmp_path, text + "  PubkeyAuthentication unbound\n"))

    assert good == "here"
    assert "line 7: Invalid PubkeyAuthentication boolean value: unbound" in bad
    assert "OpenSSH is not installed here" in bad


NOISE = """
import logging, warnings
from rankdeck.__main__ import silence_libraries
silence_libraries()
import rankdeck.remote.logins
warnings.warn("a cipher is old")
logging.getLogger("asyncssh").warning("a key is odd")
"""


def test_warnings_of_libraries_never_reach_the_terminal():
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONWARNINGS"}
    done = subprocess.run(
        [sys.executable, "-c", NOISE], env=environment, capture_output=True, timeout=300, check=True
    )

    assert (done.stdout, done.stderr) == (b"", b"")
