"""What the program ssh says when it cannot log in, as it said it, and what
ssh_config asks of asyncssh that it cannot do.
"""

from pathlib import Path

import pytest

from rankdeck.errors import AlgorithmError, ForwardingError, HostKeyError, UnreachableError
from rankdeck.remote.identities import KeyFile
from rankdeck.remote.login_errors import Destination, DroppedError, from_ssh
from rankdeck.remote.ssh_config import HostSettings
from rankdeck.remote.transports import needs_openssh

TO = Destination("gpu1.example", 2222, "ada")
SAID = {
    "ada@gpu1.example: Permission denied (publickey,password).": (UnreachableError, "login refused (Permission denied) for ada by gpu1.example port 2222"),
    "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures": (UnreachableError, "login refused"),
    "ssh: connect to host gpu1.example port 2222: Connection refused": (UnreachableError, "refused the connection; is sshd running"),
    "ssh: connect to host gpu1.example port 2222: Connection timed out": (UnreachableError, "does not answer; is the node up?"),
    "ssh: connect to host gpu1.example port 2222: No route to host": (UnreachableError, "no route to gpu1.example"),
    "ssh: Could not resolve hostname gpu1.example: Name or service not known": (UnreachableError, "the name gpu1.example does not resolve"),
    "No ED25519 host key is known for gpu1.example and you have requested strict checking.\nHost key verification failed.": (UnreachableError, "a host key on the way is not trusted"),
    "Offending ECDSA key in /home/ada/.ssh/known_hosts:7\nHost key verification failed.": (HostKeyError, "if the machine was set up anew, remove /home/ada/.ssh/known_hosts:7"),
    "Host key ED25519 SHA256:WKA revoked by file /etc/ssh/revoked\nHost key verification failed.": (HostKeyError, "must not be used: Host key ED25519 SHA256:WKA revoked by file /etc/ssh/revoked"),
    "Error checking host key ED25519 SHA256:WKA in revoked keys file /none: No such file or directory\nHost key verification failed.": (HostKeyError, "revoked keys file /none: No such file"),
    "@@@\n@  WARNING: REVOKED HOST KEY DETECTED! @\n@@@\nThe ED25519 host key for gpu1.example is marked as revoked.\nHost key verification failed.": (HostKeyError, "is marked as revoked"),
    "Unable to negotiate with 10.0.0.1 port 22: no matching cipher found. Their offer: aes128-ctr": (AlgorithmError, "no common algorithm"),
    "kex_exchange_identification: read: Connection reset by peer\r\nConnection reset by 10.0.0.1 port 22": (DroppedError, "ended the connection at once, 5 times"),
    "kex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535\nssh: connect to host gate port 22: Connection refused": (UnreachableError, "refused the connection"),
    "the gate is shut\nkex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535": (UnreachableError, "no SSH connection to gpu1.example port 2222; ssh says: the gate is shut"),
    "mux_client_forward: forwarding request failed: remote port forwarding failed for listen port 0\nmuxclient: master forward request failed": (ForwardingError, "refuses port forwarding"),
    "": (UnreachableError, "no SSH connection to gpu1.example port 2222; ssh says: nothing"),
}  # fmt: skip


@pytest.mark.parametrize("said", SAID)
def test_what_ssh_says_is_told_in_our_sentences(said: str) -> None:
    kind, sentence = SAID[said]

    error = from_ssh("n1", said, TO, times=5)

    assert type(error) is kind
    assert sentence in error.why
    assert isinstance(error, HostKeyError) or "ssh says: " in error.why


def settings(**values: str) -> HostSettings:
    found = {option: (value,) for option, value in values.items()}
    return HostSettings(original="n", host="n", port=22, user="ada", values=found, usual={})


ASKS = [
    ({"pkcs11provider": "/usr/lib/opensc-pkcs11.so"}, "PKCS11Provider"),
    ({"pkcs11provider": "none"}, ""),
    ({"securitykeyprovider": "/usr/lib/sk.so"}, "SecurityKeyProvider"),
    ({"securitykeyprovider": "internal"}, ""),
    ({"knownhostscommand": "/usr/bin/keys %H"}, "KnownHostsCommand"),
    ({"knownhostscommand": "none", "bindinterface": "none"}, ""),
    ({"revokedhostkeys": "/etc/ssh/revoked"}, "RevokedHostKeys"),
    ({"bindinterface": "ib0"}, "BindInterface"),
    ({"nohostauthenticationforlocalhost": "yes"}, "NoHostAuthenticationForLocalhost"),
    ({"nohostauthenticationforlocalhost": "no", "verifyhostkeydns": "false"}, ""),
    ({"gssapiauthentication": "yes"}, ""),
    ({"gssapiauthentication": "yes", "pubkeyauthentication": "false"}, "GSSAPIAuthentication"),
    ({"gssapiauthentication": "yes", "preferredauthentications": "gssapi-with-mic"}, "GSSAPIAuthentication"),
    ({"gssapiauthentication": "yes", "preferredauthentications": "gssapi-with-mic,publickey"}, ""),
    ({"gssapiauthentication": "no", "preferredauthentications": "gssapi-with-mic"}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "option"), ASKS)
def test_ssh_is_used_for_what_asyncssh_cannot_do(asked: dict[str, str], option: str) -> None:
    assert needs_openssh(settings(**asked), (), ()) == option
    by_package = option in ("PKCS11Provider", "GSSAPIAuthentication")
    assert needs_openssh(settings(**asked), (), ("gssapi", "pkcs11")) == option * (not by_package)


TOKEN, PLAIN = (
    KeyFile(Path(name), needs_token=name == "token", sealed=b"" if name == "token" else b"1")
    for name in ("token", "plain")
)
NOTHING = KeyFile(Path("none"))


@pytest.mark.parametrize(
    ("files", "option"),
    [((TOKEN, NOTHING), "IdentityFile (a security key)"), ((TOKEN, PLAIN), ""), ((NOTHING,), ""), ((), "")],
)  # fmt: skip
def test_ssh_is_used_where_all_keys_are_security_keys(
    files: tuple[KeyFile, ...], option: str
) -> None:
    assert needs_openssh(settings(), files, ()) == option
    assert needs_openssh(settings(), files, ("fido2",)) == ""
