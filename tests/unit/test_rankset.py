"""Sets of ranks as people write them."""

import pytest

from rankdeck.logs.rank_choice import choose_ranks
from rankdeck.model.job import RankState
from rankdeck.model.rank import State

RANKS = tuple(
    RankState(
        rank=r,
        node=f"gpu{r // 4 + 10}",
        state=State.FAILED if r == 5 else State.RUNNING,
    )
    for r in range(12)
)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("", range(12)),
        ("0-2,7", (0, 1, 2, 7)),
        ("node=gpu12", (8, 9, 10, 11)),
        ("node=gpu[10,12]", (0, 1, 2, 3, 8, 9, 10, 11)),
        ("state=failed", (5,)),
        ("0-1, 11,state=fail", (0, 1, 5, 11)),
        ("!0-9", (10, 11)),
        ("node=gpu11,!5", (4, 6, 7)),
        ("state=lost", ()),
    ],
)
def test_a_set_is_what_its_parts_name(text: str, ranks: object) -> None:
    assert choose_ranks(text, RANKS) == tuple(ranks)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("12", "there is no rank 12; there are 0-"),
        ("x", "not a set of ranks"),
        ("0-", "not a set of ranks: `0-`; write 0-7,96 or node=NODES"),
        ("3-1", "the smaller one stands first"),
        ("gpu=1", "not a set of ranks"),
        ("state=odd", "no state `odd`"),
        ("node=gpu99", "no rank is on gpu99"),
        ("node=gpu[", "not a node set"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="^.*" + why.replace("[", r"\[")):
        choose_ranks(text, RANKS)
