"""Accounts of the agents on the site's broker: `name:password` lines, as mosquitto_passwd takes them."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from secrets import token_urlsafe

from rankdeck.config.safe_files import read_regular
from rankdeck.errors import BrokerError

SIZE_LIMIT = 4 << 20


def read_accounts(path: str) -> dict[str, str]:
    """Name -> password; empty where there is no such file yet. Raises BrokerError."""
    try:
        text = read_regular(Path(path).expanduser(), SIZE_LIMIT).decode()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BrokerError(f"cannot read the agents' accounts in {path}: {error}") from error
    pairs = (line.partition(":") for line in text.splitlines() if line.strip())
    accounts = {name: password for name, _, password in pairs}
    if hashed := [n for n, p in accounts.items() if p.startswith("$") or not p]:
        raise BrokerError(
            f"{path}: the password of {hashed[0]} is missing or hashed; keep the plain text here "
            "and hash a copy for the broker (mosquitto_passwd -U)"
        )
    return accounts


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
