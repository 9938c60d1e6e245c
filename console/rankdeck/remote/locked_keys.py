"""Key files with a passphrase: it is asked for once per key, when a server has
accepted the key; kept in memory only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from rankdeck.model.safe_text import clean_line
from rankdeck.remote.identities import KeyFile
from rankdeck.remote.questions import MOST_TRIES, Conversation, Prompt
from rankdeck.remote.smart_cards import (
    Card,
    LockedKeyError,
    card_public_key,
    cards_of,
    keys_on_card,
    signed_by_card,
)
from rankdeck.values import Value

Sign = Callable[[bytes, bytes], Awaitable[bytes]]
"""Signs data in a way that is named by an algorithm; raises LockedKeyError."""


class DeferredKey(asyncssh.SSHKeyPair):
    """A key that signs in its own way, and not before a server has accepted it."""

    def __init__(
        self, public: asyncssh.SSHKey, certificate: asyncssh.SSHCertificate | None, sign: Sign
    ) -> None:
        ways = public.sig_algorithms
        super().__init__(
            public.algorithm, public.algorithm, ways, ways, public.public_data, None, certificate
        )
        self._sign = sign

    async def sign_async(self, data: bytes) -> bytes:
        """What asyncssh awaits for a signature."""
        return await self._sign(data, self.sig_algorithm)


class Cards:
    """Keys on smart cards (PKCS#11): the PIN is asked for once per card.

    One thing at a time is asked of a card.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._known: dict[Path, Sequence[asyncssh.SSHKeyPair]] = {}
        self._refused: dict[str, str] = {}
        """Label of a card -> why its PIN is not asked for again: a card
        locks itself after a few wrong ones.
        """

    async def keys(self, provider: Path, talk: Conversation) -> Sequence[DeferredKey]:
        """The keys of all cards that a library reaches.

        Raises LockedKeyError if there are none for some trouble.
        """
        async with self._turn:
            if provider not in self._known:
                self._known[provider] = await self._load(provider, talk)
        return [self._deferred(pair) for pair in self._known[provider]]

    def _deferred(self, pair: asyncssh.SSHKeyPair) -> DeferredKey:
        async def sign(data: bytes, way: bytes) -> bytes:
            async with self._turn:
                return await asyncio.to_thread(signed_by_card, pair, data, way)

        return DeferredKey(card_public_key(pair), None, sign)

    async def _load(self, provider: Path, talk: Conversation) -> Sequence[asyncssh.SSHKeyPair]:
        found: list[asyncssh.SSHKeyPair] = []
        for card in await asyncio.to_thread(cards_of, provider):
            pin = await self._ask(card, talk) if card.wants_pin else None
            try:
                found += await asyncio.to_thread(keys_on_card, provider, card, pin)
            except LockedKeyError as error:
                self._refused[card.label] = str(error)
                raise
        return found

    async def _ask(self, card: Card, talk: Conversation) -> str:
        """The PIN that the operator types. Raises LockedKeyError."""
        if card.label in self._refused:
            raise LockedKeyError(f"{self._refused[card.label]}; not asked again")
        why = f"no PIN was given for the card {card.label}"
        if not talk.can_ask:
            raise LockedKeyError(f"the card {card.label} wants a PIN, and nobody can be asked here")
        try:
            prompt = Prompt(f"PIN of {card.label}: ")
            answers = await talk.ask(
                f"The card {card.label} wants its PIN.", (prompt,), again=False
            )
        except TimeoutError:
            raise LockedKeyError(f"{why} in time") from None
        if not answers or not answers[0]:
            self._refused[card.label] = why
            raise LockedKeyError(why)
        return answers[0]


class OpenedKey(Value):
    """A key file whose passphrase is known."""

    passphrase: str
    key: asyncssh.SSHKey


@dataclass(slots=True)
class _Lock:
    """What is known about the passphrase of one key file."""

    sealed: bytes
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    opened: OpenedKey | None = None
    refusals: int = 0
    declined: bool = False
    """Whether the operator gave no answer: not asked again."""


class KeyRing:
    """The key files that the operator has opened, by path."""

    def __init__(self) -> None:
        self._locks: dict[Path, _Lock] = {}
        self.cards = Cards()

    async def open(self, file: KeyFile, talk: Conversation) -> OpenedKey:
        """Ask for the passphrase of a file, unless it is known. Raises LockedKeyError."""
        lock = self._locks.get(file.path)
        if lock is None or lock.sealed != file.sealed:
            lock = self._locks[file.path] = _Lock(file.sealed)
        async with lock.turn:
            while lock.opened is None:
                passphrase = await self._ask(file.path, lock, talk)
                lock.opened = await asyncio.to_thread(_unlocked, file.sealed, passphrase)
                lock.refusals += lock.opened is None
        return lock.opened

    async def _ask(self, path: Path, lock: _Lock, talk: Conversation) -> str:
        """A passphrase that the operator types. Raises LockedKeyError."""
        shown = clean_line(str(path), 300)
        left = f"add it to ssh-agent with `ssh-add {shown}`"
        if not talk.can_ask:
            why = f"{shown} has a passphrase, and nobody can be asked here: {left}, or run this in a terminal"
            raise LockedKeyError(why)
        if lock.refusals >= MOST_TRIES:
            raise LockedKeyError(f"the passphrase for {shown} was wrong; not asked again: {left}")
        if not lock.declined:
            words = f"The key {shown} has a passphrase."
            prompt = Prompt(f"Passphrase of {shown}: ")
            try:
                answers = await talk.ask(words, (prompt,), again=lock.refusals > 0)
            except TimeoutError:  # nobody is there: asked again when the node is tried again
                raise LockedKeyError(f"no passphrase was given for {shown} in time") from None
            if answers and answers[0]:
                return answers[0]
            lock.declined = True
        raise LockedKeyError(f"no passphrase was given for {shown}: {left}")


def _unlocked(sealed: bytes, passphrase: str) -> OpenedKey | None:
    """The key, if this is its passphrase."""
    try:
        return OpenedKey(passphrase, asyncssh.import_private_key(sealed, passphrase))
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        return None
