"""Asks the witnesses of ranks: threads inside Python ranks (`wire/inside_rank.py`) that say where
the rank is, and which collective operations of torch it has entered.
"""

import os
import selectors
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from rankdeck_agent.job.folder import RunFolder
from rankdeck_agent.text import parse_json_table
from rankdeck_agent.wire.run_folder import INSIDE

ANSWER_LIMIT = 2.0
"""Seconds after a question until which answers are waited for."""
_MOST_BYTES = 1 << 18


class WitnessQuestion:
    """A question to the witnesses of ranks of this node, whose answers are collected in turns: a
    rank in a function of C that keeps Python waiting answers late, or never.
    """

    def __init__(self, sockets: Mapping[int, Path]) -> None:
        """`sockets`: rank -> where its witness waits."""
        self._began = time.monotonic()
        self._said: dict[int, bytes] = {}
        self._links = ExitStack()
        self._chosen = self._links.enter_context(selectors.DefaultSelector())
        for rank, place in sockets.items():
            self._ask(rank, place)

    def __enter__(self) -> "WitnessQuestion":
        return self

    def __exit__(self, *_: object) -> None:
        self._links.close()

    def _ask(self, rank: int, place: Path) -> None:
        link = self._links.enter_context(socket.socket(socket.AF_UNIX))
        link.setblocking(False)
        # A stopped rank with a full queue blocks; then nobody answers for it.
        with suppress(OSError):
            handle = os.open(place.parent, os.O_RDONLY)
            try:
                # The path of a run folder may be longer than an address.
                link.connect(f"/proc/self/fd/{handle}/{place.name}")
            finally:
                os.close(handle)
            self._chosen.register(link, selectors.EVENT_READ, rank)
            self._said[rank] = b""

    def collect(self, limit: float) -> "dict[int, dict[str, Any]]":
        """Rank -> what its witness says, for those that answer within `limit` seconds after they
        were asked; not checked.
        """
        deadline = self._began + limit
        while self._chosen.get_map() and time.monotonic() < deadline:
            for key, _ in self._chosen.select(max(0.0, deadline - time.monotonic())):
                more = _received(key.fileobj)
                self._said[key.data] += more
                if not more or len(self._said[key.data]) > _MOST_BYTES:
                    self._chosen.unregister(key.fileobj)
        said = {rank: data.decode("utf-8", "replace") for rank, data in self._said.items()}
        rows = {rank: parse_json_table(text) for rank, text in said.items()}
        return {rank: row for rank, row in rows.items() if row}


def list_witnesses(folder: RunFolder) -> "dict[int, Path]":
    """Rank -> where its witness waits, of the ranks of which one has ever begun here."""
    with suppress(FileNotFoundError):
        found = [path for path in (folder / INSIDE).iterdir() if path.name.isdigit()]
        return {int(path.name): path for path in sorted(found, key=lambda one: int(one.name))}
    return {}


def _received(link: Any) -> bytes:  # noqa: ANN401 - a selector may hold any file
    try:
        return bytes(link.recv(1 << 16))
    except OSError:
        return b""
