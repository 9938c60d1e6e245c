"""Makes SSH keys: `python -m rankdeck.demo.keys FILE COMMENT [FILE COMMENT …]`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from rankdeck.config.files import write_private
from rankdeck.demo.cluster import public_part

_ALGORITHM = "ssh-ed25519"


def make(path: Path, comment: str) -> None:
    """Write a fresh key and its public half."""
    key = asyncssh.generate_private_key(  # pyright: ignore[reportUnknownMemberType]
        _ALGORITHM, comment=comment
    )
    write_private(path, key.export_private_key().decode())
    write_private(public_part(path), key.export_public_key().decode())


def main(words: Sequence[str]) -> None:
    """Make a key for each pair of words."""
    for path, comment in zip(words[::2], words[1::2], strict=True):
        make(Path(path), comment)


if __name__ == "__main__":
    main(sys.argv[1:])
