"""Smart cards by a PKCS#11 library, where the extra `pkcs11` is installed: which
are there, and their keys. All of it blocks.
"""

import base64
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from rankdeck.model.safe_text import clean_line
from rankdeck.values import Value


class LockedKeyError(ValueError):
    """A key stays locked; the text is a part of the sentence for the refused login."""


class Card(Value):
    """A card, or what looks like one."""

    label: str
    """Safe to show."""
    raw_label: str
    serial: bytes
    wants_pin: bool


def cards_of(provider: Path) -> Sequence[Card]:
    """The cards that a library reaches. Raises LockedKeyError."""
    import pkcs11
    from pkcs11.constants import TokenFlag

    try:
        found = list(pkcs11.lib(str(provider)).get_tokens(token_flags=TokenFlag.TOKEN_INITIALIZED))
        return [
            Card(
                clean_line(one.label.strip(), 60) or "without a name",
                one.label,
                one.serial,
                bool(one.flags & TokenFlag.LOGIN_REQUIRED),
            )
            for one in found
        ]
    except (pkcs11.PKCS11Error, OSError, RuntimeError) as error:
        raise LockedKeyError(f"PKCS11Provider {provider} cannot be used: {_said(error)}") from error


def keys_on_card(provider: Path, card: Card, pin: str | None) -> Sequence[asyncssh.SSHKeyPair]:
    """The keys of a card. Raises LockedKeyError."""
    import pkcs11

    try:
        return asyncssh.load_pkcs11_keys(
            str(provider),
            pin,
            load_certs=False,
            token_label=card.raw_label,
            token_serial=card.serial,
        )
    except (pkcs11.PinIncorrect, pkcs11.PinInvalid, pkcs11.PinLenRange) as error:
        raise LockedKeyError(f"the PIN of the card {card.label} was wrong") from error
    except (pkcs11.PKCS11Error, ValueError) as error:
        why = f"the card {card.label} cannot be used here ({_said(error)})"
        raise LockedKeyError(f"{why}: try `ssh: {{transport: openssh}}`") from error


def card_public_key(pair: asyncssh.SSHKeyPair) -> asyncssh.SSHKey:
    """The public key of a pair on a card."""
    words = pair.key_algorithm + b" " + base64.b64encode(pair.key_public_data)
    return asyncssh.import_public_key(words)


def signed_by_card(pair: asyncssh.SSHKeyPair, data: bytes, way: bytes) -> bytes:
    """The signature of a key on a card. Raises LockedKeyError."""
    import pkcs11

    pair.set_sig_algorithm(way)
    try:
        return pair.sign(data)
    except pkcs11.PKCS11Error as error:
        raise LockedKeyError(f"a card does not sign: {_said(error)}") from error


def _said(error: Exception) -> str:
    return clean_line(str(error), 200) or type(error).__name__
