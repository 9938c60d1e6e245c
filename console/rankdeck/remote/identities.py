"""The keys for a login, in the order of OpenSSH: agent keys that
IdentityFile names, other agent keys, key files.

A key file that cannot be used is left out, as OpenSSH does, and is named when the login is refused.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import asyncssh

from rankdeck.config.files import expand_path, read_regular
from rankdeck.remote.ssh_config import HostSettings, SshConfigError
from rankdeck.remote.ssh_files import Stamp, file_stamp
from rankdeck.values import Value

MODULES = frozenset(one for one in ("gssapi", "pkcs11", "fido2") if find_spec(one))
"""Packages that are here by which asyncssh can do more; see the extras of pyproject.toml."""
_MOST = 1 << 20
"""Most bytes of a key file."""
Usable = asyncssh.SSHKey | asyncssh.SSHKeyPair | tuple[asyncssh.SSHKey, asyncssh.SSHCertificate]


class KeyFile(Value):
    """What an IdentityFile has."""

    path: Path
    private: asyncssh.SSHKey | None = None
    public: asyncssh.SSHKey | None = None
    sealed: bytes = b""
    """The bytes of a file that has a passphrase."""
    needs_token: bool = False
    """Whether a security key (FIDO) must be touched for it."""
    trouble: str = ""
    """Why the private key is not used; "" if it is, or if there is no such file."""


class Identities:
    """Reads key files, each once unless it changes, and asks the agent."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[Stamp, KeyFile]] = {}

    async def files(self, settings: HostSettings) -> tuple[KeyFile, ...]:
        """The key files of a host; one whose name has a token that
        is not known counts as missing.
        """
        named = settings.many("identityfile")
        return await asyncio.to_thread(lambda: tuple(self._named(settings, one) for one in named))

    async def own(self, named: str) -> KeyFile:
        """The key file that a cluster file names. Raises KeyImportError."""
        file = await asyncio.to_thread(self._file, expand_path(named))
        if not (file.public or file.sealed):
            raise asyncssh.KeyImportError(file.trouble or f"{file.path}: No such file or directory")
        return file

    def _named(self, settings: HostSettings, named: str) -> KeyFile:
        try:
            return self._file(settings.path(named))
        except SshConfigError as error:
            return KeyFile(Path(named), trouble=str(error))

    def _file(self, path: Path) -> KeyFile:
        now = file_stamp(path)
        known = self._files.get(path)
        if known is None or known[0] != now:
            known = self._files[path] = now, read_key_file(path)
        return known[1]


def read_key_file(path: Path) -> KeyFile:
    """The keys in a file, and of the `.pub` beside it."""
    try:
        data = read_regular(path, _MOST)
    except FileNotFoundError:
        return KeyFile(path, public=_public(Path(f"{path}.pub")))
    except (OSError, ValueError) as error:
        return KeyFile(path, trouble=f"{path}: {getattr(error, 'strerror', '') or error}")
    try:
        key = asyncssh.import_private_key(data)
    except ValueError as error:
        public = _public(path) or _public(Path(f"{path}.pub"))
        if str(error).startswith("Passphrase must be"):
            return KeyFile(path, public=public, sealed=data)
        if b"PRIVATE KEY" not in data:
            return KeyFile(path, public=public, trouble="" if public else f"{path}: {error}")
        trouble = f"{path} cannot be used ({error}): add it to ssh-agent with ssh-add"
        return KeyFile(path, public=public, trouble=trouble)
    if not key.get_algorithm().startswith("sk-"):
        return KeyFile(path, key, key)
    if "fido2" in MODULES:
        return KeyFile(path, key, key, needs_token=True)
    trouble = f"{path} needs a security key: use `ssh: {{transport: openssh}}`, ssh-agent, or rankdeck[fido]"
    return KeyFile(path, public=key, needs_token=True, trouble=trouble)


def _public(path: Path) -> asyncssh.SSHKey | None:
    try:
        return asyncssh.import_public_key(read_regular(path, _MOST))
    except (OSError, ValueError):
        return None


def _certificate(path: Path) -> asyncssh.SSHCertificate | None:
    try:
        return asyncssh.import_certificate(read_regular(path, _MOST))
    except (OSError, ValueError):
        return None


def match_certificates(
    settings: HostSettings | None, files: Sequence[KeyFile]
) -> Mapping[bytes, asyncssh.SSHCertificate]:
    """Public key -> its certificate: of CertificateFile, else of `-cert.pub` beside the key."""
    named: list[Path] = []
    if settings is not None:
        for one in settings.many("certificatefile"):
            with suppress(SshConfigError):  # a token that is not known: as if the file were missing
                named.append(settings.path(one))
    beside = [Path(f"{file.path}-cert.pub") for file in files if file.private or file.sealed]
    found = filter(None, map(_certificate, named or beside))
    return {one.key.public_data: one for one in found}


def agent_path(settings: HostSettings | None) -> str:
    """The socket of the agent for a host; "" if there is none."""
    usual = os.environ.get("SSH_AUTH_SOCK", "")
    named = settings.values.get("identityagent", ("SSH_AUTH_SOCK",))[0] if settings else ""
    if settings is None or named == "SSH_AUTH_SOCK":
        return usual
    if named.lower() == "none":
        return ""
    if named.startswith("$"):
        return os.environ.get(named[1:].strip("{}"), "")
    return str(expand_path(named))  # OpenSSH has filled in its tokens


async def from_agent(
    agent: asyncssh.SSHAgentClient, settings: HostSettings | None, files: Sequence[KeyFile]
) -> list[Usable]:
    """The agent's keys: those of these files first, and no others with IdentitiesOnly."""
    wanted = [file.public.public_data for file in files if file.public]
    held = {key.public_data: key for key in await agent.get_keys()}
    first: list[Usable] = [held.pop(one) for one in wanted if one in held]
    alone = settings is not None and settings.yes("identitiesonly")
    return first if alone else [*first, *held.values()]


def kerberos_remark(settings: HostSettings | None) -> Sequence[str]:
    """What to do where Kerberos alone could have let somebody in."""
    if (
        settings is None
        or not settings.yes("gssapiauthentication")
        or not by_kerberos_alone(settings)
    ):
        return ()
    return (
        "Kerberos alone may let you in: get a ticket with `kinit`, and look at it with `klist`",
    )


_KERBEROS = frozenset(("gssapi-with-mic", "gssapi-keyex"))


def by_kerberos_alone(settings: HostSettings) -> bool:
    """Whether ssh_config leaves no other way to log in than Kerberos."""
    asked = frozenset(filter(None, settings.one("preferredauthentications").split(",")))
    no_keys = settings.one("pubkeyauthentication").lower() in ("no", "false")
    return asked <= _KERBEROS if asked else no_keys


def unused_remarks(settings: HostSettings, files: Sequence[KeyFile]) -> tuple[str, ...]:
    """What was not used for a login, for the sentence when it is refused."""
    found = [file.trouble for file in files if file.trouble]
    if settings.one("pkcs11provider") and "pkcs11" not in MODULES:
        found.append(
            "keys of PKCS11Provider need `ssh: {transport: openssh}`, ssh-agent (`ssh-add -s`), or rankdeck[pkcs11]"
        )
    return (*found[:3], *kerberos_remark(settings))
