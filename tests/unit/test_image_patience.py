"""Copies of images: how long a node may make no progress follows the patience of the site."""

import asyncio

import pytest

from rankdeck.errors import UnreachableError
from rankdeck.images import copy
from rankdeck.images.copy import NodeOutput
from rankdeck.remote.shell import OnData


class SilentChannel:
    """A program on a node that says nothing and does not end."""

    async def wait(self) -> int:
        await asyncio.Event().wait()
        return 0

    async def close(self) -> None:
        return


async def start(offset: int, take: OnData) -> SilentChannel:
    del offset, take
    return SilentChannel()


async def hand(piece: bytes) -> None:
    del piece


def test_a_patient_site_waits_longer_for_a_copy_that_makes_no_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copy, "STALL_LIMIT", 0.01)
    for patience, seconds in ((1.0, 0), (100.0, 1)):
        source = NodeOutput("n1", start, 10, patience)  # type: ignore[arg-type]
        with pytest.raises(UnreachableError, match=f"no progress for {seconds} s"):
            asyncio.run(source.pump(0, hand))
