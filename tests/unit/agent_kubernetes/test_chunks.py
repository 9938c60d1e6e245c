"""HTTP's chunked encoding, in whatever pieces it comes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck_agent.kubernetes.api import Chunks


def encoded(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.lists(st.integers(1, 9)))
def test_the_text_is_the_same_however_it_is_cut(parts: list[bytes], sizes: list[int]) -> None:
    raw, chunks, found = encoded(parts), Chunks(), b""
    for size in [*sizes, len(raw)]:
        piece, raw = raw[:size], raw[size:]
        found += chunks.feed(piece)

    assert found == b"".join(parts)
    assert chunks.over


def test_what_is_no_chunk_is_refused() -> None:
    chunks = Chunks()

    with pytest.raises(ValueError, match="no chunks"):
        chunks.feed(b"x" * 2000)
