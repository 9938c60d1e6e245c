"""Makes SSH keys: `python -m rankdeck.demo.keys FILE COMMENT [FILE COMMENT …]`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from rankdeck.demo.files import public_part

_ALGORITHM = "ssh-ed25519"


def make(path: Path, comment: str) -> None:
    """Write a fresh key and its public half."""
    key = asyncssh.generate_private_key(  # pyright: ignore[reportUnknownMemberType]
        _ALGORITHM, comment=comment
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.export_private_key())
    public_part(path).write_bytes(key.export_public_key())


def main(words: Sequence[str]) -> None:
    """Make a key for each pair of words."""
    for path, comment in zip(words[::2], words[1::2], strict=True):
        make(Path(path), comment)


if __name__ == "__main__":
    main(sys.argv[1:])
