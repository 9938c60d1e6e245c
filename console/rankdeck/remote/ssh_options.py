"""OpenSSH's settings for a host as the options of asyncssh, for
all that means something to both.
"""

import socket
from functools import cache
from typing import Any

import asyncssh

from rankdeck.remote.host_keys import HostKeys
from rankdeck.remote.identities import agent_path
from rankdeck.remote.ssh_config import HostSettings

_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
_METHODS = ("gssapi-keyex", "gssapi-with-mic", "hostbased", "publickey", "keyboard-interactive", "password")  # fmt: skip
_ALGORITHMS = {
    "ciphers": "encryption_algs",
    "macs": "mac_algs",
    "kexalgorithms": "kex_algs",
    "hostkeyalgorithms": "server_host_key_algs",
    "pubkeyacceptedalgorithms": "signature_algs",
}
_PREFERRED = {"encryption_algs": "^aes128-gcm@openssh.com"}
"""What asyncssh asks for first if ssh_config does not choose: it takes half the CPU of its own
first choice, ChaCha20.
"""
_LANGUAGE = ("LANG", "LC_")
"""Variables that are not sent although ssh_config says so: programs
would answer in another language.
"""


def chosen_algorithms(settings: HostSettings | None) -> tuple[str, ...]:
    """The options by which ssh_config chooses other algorithms than OpenSSH, in lower case."""
    return tuple(one for one in _ALGORITHMS if settings is not None and settings.algorithms(one))


def connect_options(settings: HostSettings, hostkeys: HostKeys) -> dict[str, Any]:
    """The options of `asyncssh.connect` for this host, without its keys,
    known hosts, jump host and proxy.
    """
    options: dict[str, Any] = {
        "config": None,
        "port": settings.port,
        "client_keys": None,  # the client gives them in OpenSSH's order
        "agent_path": None,
        "tcp_keepalive": settings.yes("tcpkeepalive"),
        "public_key_auth": settings.one("pubkeyauthentication").lower() not in ("no", "false"),
        "password_auth": settings.yes("passwordauthentication"),
        "kbdint_auth": settings.yes("kbdinteractiveauthentication"),
        "host_based_auth": settings.yes("hostbasedauthentication"),
        "client_host_keysign": settings.yes("enablesshkeysign"),
        "gss_auth": settings.yes("gssapiauthentication"),
        "gss_kex": settings.yes("gssapikeyexchange"),
        "gss_delegate_creds": settings.yes("gssapidelegatecredentials"),
    }
    if settings.user:
        options["username"] = settings.user
    options |= _transport(settings) | _session(settings) | _algorithms(settings, hostkeys)
    return options


def _transport(settings: HostSettings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if family := _FAMILIES.get(settings.one("addressfamily").lower()):
        found["family"] = family
    if address := settings.one("bindaddress"):
        found["local_addr"] = (address, 0)
    if settings.yes("compression"):
        found["compression_algs"] = ["zlib@openssh.com", "none"]
    if alias := settings.alias:
        found["host_key_alias"] = alias
    amount, _, seconds = settings.one("rekeylimit").partition(" ")
    if amount.isdecimal() and int(amount):
        found["rekey_bytes"] = int(amount)
    if seconds.isdecimal() and int(seconds):
        found["rekey_seconds"] = int(seconds)
    methods = [
        one for one in settings.one("preferredauthentications").split(",") if one in _METHODS
    ]
    return found | ({"preferred_auth": methods} if methods else {})


def _session(settings: HostSettings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if settings.yes("forwardagent") and (path := agent_path(settings)):
        found["agent_forwarding"] = path
    if pairs := dict(one.split("=", 1) for one in settings.many("setenv") if "=" in one):
        found["env"] = pairs
    names = [one for one in settings.many("sendenv") if not one.startswith(_LANGUAGE)]
    return found | ({"send_env": names} if names else {})


def _algorithms(settings: HostSettings, hostkeys: HostKeys) -> dict[str, Any]:
    """The algorithms that ssh_config chooses, as far as asyncssh has
    them; if it has none of them, its own.
    """
    found: dict[str, Any] = {**_PREFERRED}
    for option, ours in _ALGORITHMS.items():
        names = [one for one in settings.algorithms(option) if _has(ours, one)]
        if names:
            found[ours] = names
    if names := found.get("server_host_key_algs"):
        known = hostkeys.known().match(settings.alias or settings.host, "", _port(settings))[0]
        types = {key.get_algorithm() for key in known}
        found["server_host_key_algs"] = sorted(names, key=lambda one: _type(one) not in types)
    return found


def _port(settings: HostSettings) -> int | None:
    return None if settings.port == 22 or settings.alias else settings.port


def _type(algorithm: str) -> str:
    return "ssh-rsa" if algorithm.startswith("rsa-") else algorithm


@cache
def _has(option: str, algorithm: str) -> bool:
    """Whether asyncssh has an algorithm."""
    chosen: Any = {option: [algorithm]}
    try:
        asyncssh.SSHClientConnectionOptions(
            config=None, client_keys=None, agent_path=None, username="x", **chosen
        )
    except ValueError:
        return False
    return True
