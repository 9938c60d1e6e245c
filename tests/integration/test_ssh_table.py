"""What a login comes to: (setting of the server × setting of the client) -> the
agent runs there, or one sentence; real sshd.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.agent_file import put_agent
from tests.support.real_sshd import SSH_TRANSPORTS, RealSshd, missing, real_sshd

from rankdeck.errors import NodeError
from rankdeck.model.cluster import Cluster, Node, Transport
from rankdeck.remote import logins
from rankdeck.remote.agent import Agents
from rankdeck.remote.transports import reach_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.left_out,
]
RUNS = r"(?m)^rankdeck-agent \d"
REFUSED = r"login refused \(Permission denied\) for lab by 127\.0\.0\.1 port \d+: check `ssh: \{user, identity\}`"
WANTED = r"the server takes a password.*nobody can be asked here|ssh says: .*Permission denied \(password"
NO_HOME = "umount /run/home; rmdir /run/home"
READ_ONLY = "mount -o remount,bind,ro /run/home"

FIRST_COPY = "[ -e once ] || rm -rf .cache; touch once; "
"""In a start-up file: the agent must be copied."""
CERTIFICATE = "HostCertificate {folder}/hostkey-cert.pub"


def certified(trusted: str, options: str) -> str:
    """Shell lines that certify the host key, and have known_hosts trust an authority (`ca`, who
    certifies, or `other`) beside the key itself.
    """
    return f"""cd "$SSHD_FOLDER"
for one in ca other; do ssh-keygen -q -t ed25519 -N "" -f $one; done
ssh-keygen -q -s ca -I node -h {options} hostkey.pub
echo "@cert-authority * $(cut -d" " -f 1,2 {trusted}.pub)" >>known_hosts
cd /
"""


def pythons(**files: str) -> str:
    """Lines of a start-up file that puts these programs first in PATH."""
    made = "".join(f"echo '{text}' >~/own/{name}; " for name, text in files.items())
    return f"mkdir -p ~/own; {made}chmod +x ~/own/*; PATH=~/own:$PATH"


@dataclass(frozen=True)
class Row:
    """One server and one client; `expected` is what `--version` of
    the agent prints, or the error.
    """

    expected: str
    server: str = ""
    setup: str = ""
    """Shell lines that run as root of the node before its sshd."""
    client: tuple[str, ...] = ()
    """Lines of ssh_config before the usual ones."""
    hosts: str = ""
    """More of ssh_config, before the node's."""
    rc: str = ""
    """The user's .bashrc."""
    shell: str = ""
    elsewhere: bool = False
    """Whether the agent cannot lie in the home."""
    chosen: bool = False
    """Whether only the transport that is chosen by itself comes to this."""


ROWS: Mapping[str, Row] = {
    "as it is": Row(RUNS),
    # ---- what the server forbids
    "no port forwarding": Row(RUNS, "AllowTcpForwarding no"),
    "no terminal": Row(RUNS, "PermitTTY no"),
    "one session": Row(RUNS, "MaxSessions 1"),
    "no session": Row("allows no further session.*open failed|allows no further session: ", "MaxSessions 0"),
    "one login at a time": Row(RUNS, "MaxStartups 1:100:1"),
    "one attempt": Row(RUNS, "MaxAuthTries 1"),
    "a banner": Row(RUNS, "Banner /etc/passwd"),
    "slow name service": Row(RUNS, "UseDNS yes"),
    "compression": Row(RUNS, "Compression no", client=("Compression yes",)),
    "a forced command": Row(
        "it says `backups only`.*ForceCommand", "ForceCommand echo backups only"
    ),
    "sftp only": Row("sftp connections only", "ForceCommand internal-sftp"),
    "no folder for the session": Row(
        "accepted the login and then ended the connection|ssh says: .*(closed|reset|Broken)",
        "ChrootDirectory /no/such/folder",
    ),
    "a user who is not let in": Row(REFUSED, "DenyUsers lab"),
    "other users only": Row(REFUSED, "AllowUsers other"),
    "no keys": Row(REFUSED, "PubkeyAuthentication no"),
    "another folder of keys": Row(REFUSED, "AuthorizedKeysFile /nowhere/%u"),
    "a second factor": Row(f"{REFUSED}.*({WANTED})", "AuthenticationMethods publickey,password"),
    "a password only": Row(f"{REFUSED}.*({WANTED})", "AuthenticationMethods password"),
    "a password, and ssh_config forbids to ask": Row(
        REFUSED, "AuthenticationMethods password", client=("BatchMode yes",)
    ),
    "other kinds of keys": Row(REFUSED, "PubkeyAcceptedAlgorithms rsa-sha2-512"),
    "one cipher": Row(RUNS, "Ciphers aes128-ctr"),
    "one key exchange": Row(RUNS, "KexAlgorithms curve25519-sha256"),
    "a key exchange that asyncssh lacks": Row(
        RUNS, "KexAlgorithms sntrup761x25519-sha512@openssh.com", chosen=True
    ),
    "a certified host key": Row(RUNS, CERTIFICATE, certified("ca", "-n 127.0.0.1")),
    "a host key that is certified for another name, and known": Row(
        RUNS, CERTIFICATE, certified("ca", "-n other.example")
    ),
    "a host key whose certificate has expired, and that is known": Row(
        RUNS, CERTIFICATE, certified("ca", "-n 127.0.0.1 -V 20200101:20210101")
    ),
    "a host key that another authority has certified, and that is known": Row(
        RUNS, CERTIFICATE, certified("other", "-n 127.0.0.1")
    ),
    "a host key whose certificate has expired, and that is not known": Row(
        "host key .*not (known|trusted)",
        CERTIFICATE,
        certified("ca", "-n 127.0.0.1 -V 20200101:20210101")
        + "sed -i '/^@/!d' $SSHD_FOLDER/known_hosts\n",
        client=("StrictHostKeyChecking yes",),
    ),
    "no common cipher": Row(
        "no common algorithm with the SSH server of 127.0.0.1 port|before both agreed on algorithms: perhaps .*Ciphers",
        "Ciphers aes128-ctr", client=("Ciphers aes256-ctr",),
    ),
    "no common key exchange": Row(
        "no common algorithm|before both agreed on algorithms: perhaps .*KexAlgorithms", "KexAlgorithms ecdh-sha2-nistp256", client=("KexAlgorithms ecdh-sha2-nistp521",),
    ),
    # ---- the account
    "no login shell": Row("not available", shell="/usr/sbin/nologin"),
    "a shell that says nothing": Row("it says nothing", shell="/bin/false"),
    "a shell that is missing": Row("(?i)refused|says nothing|closed|not available|no such", shell="/no/such/shell"),
    "sh": Row(RUNS, shell="/bin/sh"),
    "start-up files that talk": Row(RUNS, rc="echo Welcome; echo '{\"a\": 1}'; echo to stderr >&2"),
    "start-up files that are slow": Row(RUNS, rc="sleep 2"),
    "start-up files that leave": Row("it says `maintenance`", rc="echo maintenance; exit 1"),
    "modules of another Python": Row(
        RUNS, rc="mkdir -p ~/own; echo 'raise SystemExit(3)' | tee ~/own/json.py >~/own/zipfile.py; export PYTHONPATH=~/own PYTHONHOME=/nowhere"
    ),
    "a start-up file that starts another program": Row("it says.*start-up file", rc="exec cat /no/such/file"),
    "a Python that says what it loads": Row(
        RUNS, rc=FIRST_COPY + pythons(python3='#!/bin/sh\necho loads a module\nexec /usr/bin/python3 "$@"')
    ),
    "shims that hide the Pythons of the system": Row(
        RUNS, rc=pythons(python3="exit 1", **{f"python3.{n}": "exit 127" for n in range(6, 15)})
    ),
    "a limit on the size of files": Row(
        "could not be copied: raise the limit on the size of files.*Errno 27", rc="rm -rf ~/.cache; ulimit -f 100"
    ),
    "another umask": Row(RUNS, rc="umask 777"),
    "no PATH": Row("no Python there|says", rc="PATH=/nowhere"),
    # ---- the disk
    "no home": Row(RUNS, setup=NO_HOME),
    "a home that is read-only": Row(RUNS, setup=READ_ONLY, elsewhere=True),
    "a home that is full": Row(
        RUNS, setup="mount -t tmpfs -o size=64k,mode=777 tmpfs /run/home", elsewhere=True
    ),
    "a home without execution": Row(RUNS, setup="mount -o remount,bind,noexec /run/home"),
    # ---- what ssh_config says
    "another user": Row("login refused.* for other", client=("User other",)),
    "nobody listens": Row("port 1 refused the connection; is sshd running there", client=("Port 1",)),
    "no such name": Row("no-such-host.invalid does not resolve", client=("HostName no-such-host.invalid",)),
    "a key file that is missing": Row(RUNS, client=("IdentitiesOnly yes", "IdentityFile {folder}/none")),
    "an unknown host key, and strict": Row(
        "host key .*(not known|not trusted)",
        client=("UserKnownHostsFile {folder}/none", "StrictHostKeyChecking yes"),
    ),
    "an unknown host key that is taken": Row(
        RUNS, client=("UserKnownHostsFile {folder}/new", "StrictHostKeyChecking accept-new")
    ),
    "no host key is checked": Row(
        RUNS, client=("UserKnownHostsFile /dev/null", "StrictHostKeyChecking no")
    ),
    "host keys from a command": Row(
        RUNS, client=("UserKnownHostsFile /dev/null", "StrictHostKeyChecking yes", "KnownHostsCommand /bin/cat {folder}/known_hosts"),
        chosen=True,
    ),
    "a host key that is revoked": Row(
        "host key must not be used: .*revoked",
        client=("RevokedHostKeys {folder}/hostkey.pub",),
        chosen=True,
    ),
    "a host key of this machine is not asked about": Row(
        RUNS, client=("NoHostAuthenticationForLocalhost yes", "UserKnownHostsFile /dev/null", "StrictHostKeyChecking yes"),
        chosen=True,
    ),
    "an interface": Row(RUNS, client=("BindInterface lo",)),
    "other kinds of host keys": Row(
        "no common algorithm|both agreed on algorithms: perhaps .*HostKeyAlgorithms", client=("HostKeyAlgorithms rsa-sha2-512",)
    ),
    "another host key": Row("host key has changed.*other:1", client=("UserKnownHostsFile {folder}/other",)),
    "a jump host": Row(RUNS, client=("ProxyJump gate",), hosts="Host gate\n  HostName 127.0.0.1\n"),
    "a jump host that forbids to go on": Row(
        "its jump host cannot reach .*it forbids that .AllowTcpForwarding|administratively prohibited|stdio forwarding failed",
        "AllowTcpForwarding no", client=("ProxyJump gate",), hosts="Host gate\n  HostName 127.0.0.1\n",
    ),
    "a jump host that is down": Row(
        "refused", client=("ProxyJump gate",), hosts="Host gate\n  HostName 127.0.0.1\n  Port 1\n"
    ),
    "a jump host with host keys from a command": Row(
        RUNS, client=("ProxyJump gate",),
        hosts="Host gate\n  HostName 127.0.0.1\n  UserKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  KnownHostsCommand /bin/cat {folder}/known_hosts\n",
        chosen=True,
    ),
    "a proxy that says why": Row("the gate is shut", client=("ProxyCommand sh -c 'echo the gate is shut >&2; exit 3'",)),
    "a command for people": Row(RUNS, client=("RemoteCommand top", "RequestTTY yes")),
    "forwardings for people": Row(RUNS, client=("LocalForward 1 127.0.0.1:1", "RemoteForward 1 127.0.0.1:1", "ExitOnForwardFailure yes")),
    "no input, for people": Row(
        RUNS, client=("StdinNull yes",), rc=FIRST_COPY
    ),
    "a shell function called python3": Row(RUNS, rc=FIRST_COPY + "python3() { echo mine; }"),
    "X11": Row(RUNS, client=("ForwardX11 yes", "ForwardX11Trusted yes")),
    "quiet": Row(RUNS, client=("LogLevel QUIET",)),
    "quiet, and refused": Row(REFUSED, "DenyUsers lab", client=("LogLevel QUIET",)),
    "a master that people want": Row(RUNS, client=("ControlMaster auto", "ControlPath {folder}/%C", "ControlPersist 1")),
    "local commands": Row(RUNS, client=("PermitLocalCommand yes", "LocalCommand false")),
}  # fmt: skip


CASES = [
    pytest.param(what, transport, id=f"{what}-{transport.value if transport else 'chosen'}")
    for what, row in ROWS.items()
    for transport in ((None,) if row.chosen else SSH_TRANSPORTS)
]


@pytest.mark.kept(
    "no port forwarding-asyncssh",
    "a forced command-asyncssh",
    "a second factor-asyncssh",
    "a home that is full-asyncssh",
    "a jump host-asyncssh",
    "as it is-openssh",
    "one session-openssh",
    "no keys-openssh",
    "start-up files that talk-openssh",
    "another host key-openssh",
    "a key exchange that asyncssh lacks-chosen",
    "a host key whose certificate has expired, and that is known-asyncssh",
    "a Python that says what it loads-asyncssh",
    "shims that hide the Pythons of the system-asyncssh",
    "no input, for people-openssh",
)
@pytest.mark.parametrize(("what", "transport"), CASES)
async def test_a_login_comes_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, transport: Transport | None
) -> None:
    monkeypatch.setattr(logins, "PAUSES", (0.01,))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    row = ROWS[what]
    # The file is mounted there: it is written, not replaced.
    file = "$SSHD_FOLDER/passwd"
    as_shell = f"sed 's|/bin/bash|{row.shell}|' {file} >{file}.new; cat {file}.new >/etc/passwd\n"
    settings = row.server.replace("{folder}", str(tmp_path))
    with real_sshd(tmp_path, settings, (as_shell if row.shell else "") + row.setup) as server:
        await asyncio.to_thread(put_agent, [server.home])
        if row.elsewhere:
            await asyncio.to_thread(remove_agent, server.home)
        if row.rc:
            (server.home / ".bashrc").write_text(row.rc + "\n")
        said, elsewhere = await outcome(server, row, transport)

    assert re.search(row.expected, said), said
    assert elsewhere is row.elsewhere


def remove_agent(home: Path) -> None:
    for file in (home / ".cache/rankdeck").iterdir():
        file.unlink()


async def outcome(server: RealSshd, row: Row, transport: Transport | None) -> tuple[str, bool]:
    """What the agent says, or why it does not run; and whether it lies elsewhere."""
    folder = server.folder
    (folder / "other").write_text(f"[127.0.0.1]:{server.port} {(folder / 'id.pub').read_text()}")
    lines = [line.replace("{folder}", str(folder)) for line in row.client]
    config = server.ssh_config("node1", lines)
    gate = f"  Port {server.port}\n  User lab\n  IdentityFile {folder}/id\n  UserKnownHostsFile {folder}/known_hosts\n"
    if row.hosts:
        hosts = row.hosts.replace("{folder}", str(folder))
        config.write_text(hosts + gate + config.read_text())
    access = server.access(
        user="", identity="", known_hosts="", config=str(config), transport=transport
    )
    cluster = Cluster(name="c", nodes=(Node(name="n1", address="node1"),), access=access)
    async with reach_cluster(cluster, refuse) as shell:
        agents = Agents(shell)
        try:
            done = await agents.call("n1", ("--version",), limit=300)
        except NodeError as error:
            return error.why, False
        return done.out.decode() or done.complaint, "n1" in agents.elsewhere


async def refuse(_: object) -> bool:
    return False
