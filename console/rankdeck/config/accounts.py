"""Accounts of the agents on the site's broker: `name:password` lines, as mosquitto_passwd takes them."""

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from secrets import token_urlsafe
from types import MappingProxyType

from rankdeck.config.safe_files import read_regular
from rankdeck.errors import BrokerError

SIZE_LIMIT = 4 << 20


def read_accounts(path: str) -> Mapping[str, str]:
    """Name -> password; empty where there is no such file yet. Raises BrokerError.

    Each agent that starts asks: the file is read again only where it is another one.
    """
    file = Path(path).expanduser()
    try:
        seen = file.stat()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unreadable(path, error) from error
    return _read(file, path, (seen.st_dev, seen.st_ino, seen.st_ctime_ns, seen.st_size))


@lru_cache(1)
def _read(file: Path, path: str, version: tuple[int, ...]) -> Mapping[str, str]:
    del version
    try:
        text = read_regular(file, SIZE_LIMIT).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error
    pairs = (line.partition(":") for line in text.splitlines() if line.strip())
    accounts = {name: password for name, _, password in pairs}
    if hashed := [n for n, p in accounts.items() if p.startswith("$") or not p]:
        raise BrokerError(
            f"{path}: the password of {hashed[0]} is missing or hashed; keep the plain text here "
            "and hash a copy for the broker (mosquitto_passwd -U)"
        )
    return MappingProxyType(accounts)


def _unreadable(path: str, error: Exception) -> BrokerError:
    return BrokerError(f"cannot read the agents' accounts in {path}: {error}")


def with_new_accounts(accounts: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """`accounts` and a random password for each name that has none."""
    fresh = {name: token_urlsafe(24) for name in names if name not in accounts}
    return {**accounts, **fresh}


def write_accounts(path: str, accounts: Mapping[str, str]) -> None:
    """Replace the file at once, readable by its owner only; raises BrokerError."""
    target = Path(path).expanduser()
    part = target.with_name(f".{target.name}.{os.getpid()}")
    text = "".join(f"{name}:{password}\n" for name, password in accounts.items())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as out:
            out.write(text)
        part.replace(target)
    except OSError as error:
        raise BrokerError(
            f"cannot write the agents' accounts to {path}: {error.strerror or error}"
        ) from error
