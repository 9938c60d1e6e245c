"""Which ranks the views of a job show: a set, an order, pins, a page."""

from collections.abc import Callable

from rankdeck.logs.order import ORDERS, ordered
from rankdeck.model.job import Job, RankState, State
from rankdeck.model.nodeset import fold_ranks
from rankdeck.model.rankset import choose
from rankdeck.rules.standing import standings


class Choice:
    """Shared by all views of one job screen."""

    def __init__(self) -> None:
        self.text = ""
        """A set of ranks as it was typed; "" is all."""
        self.order = ORDERS[0]
        self.pins: tuple[int, ...] = ()
        self.page = 0
        self.only: tuple[int, ...] = ()
        """Ranks that another view asked for; () for no such limit."""
        self._ordered: tuple[RankState, ...] = ()
        self._key: object = None

    def set(self, text: str, job: Job) -> None:
        """Show only these; raises ValueError where that is no set of ranks."""
        choose(text, job.ranks)
        self.text, self.only, self.page = text.strip(), (), 0

    def limit(self, ranks: tuple[int, ...]) -> None:
        """Show exactly these, () for all again."""
        self.only, self.text, self.page = ranks, "", 0

    def next_order(self) -> str:
        """The next way to order them."""
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        self.page, self._key = 0, None
        return self.order

    def reorder(self) -> None:
        """Look anew who is slow or odd."""
        self._key = None

    def pin(self, rank: int) -> bool:
        """Keep this rank on every page, or no longer; True where it is pinned now."""
        pinned = rank not in self.pins
        others = tuple(one for one in self.pins if one != rank)
        self.pins = (*others, rank) if pinned else others
        return pinned

    def ranks(self, job: Job, lines: Callable[[int], int]) -> tuple[RankState, ...]:
        """The chosen ranks in their order. That changes only when a state or standing does: tiles stay put."""
        states: tuple[State, ...] = tuple(one.state for one in job.ranks)
        known = standings(job)
        key = (self.text, self.only, self.order, states, known)
        if key != self._key:
            self._key = key
            wanted = set(self.only or choose(self.text, job.ranks))
            chosen = [one for one in job.ranks if one.rank in wanted]
            self._ordered = ordered(chosen, self.order, lines, known)
        now = {one.rank: one for one in job.ranks}
        return tuple(now[one.rank] for one in self._ordered)

    def pages(self, count: int, size: int) -> int:
        """How many pages there are with `size` ranks on each."""
        free = max(size - len(self.pins), 1)
        return max(-(-max(count - len(self.pins), 1) // free), 1)

    def on_page(self, ranks: tuple[RankState, ...], size: int) -> tuple[RankState, ...]:
        """The pinned ranks and those of this page."""
        pinned = tuple(one for one in ranks if one.rank in self.pins)[: max(size - 1, 1)]
        others = tuple(one for one in ranks if one not in pinned)
        free = max(size - len(pinned), 1)
        self.page = min(self.page, max(-(-len(others) // free), 1) - 1)
        return (*pinned, *others[self.page * free : (self.page + 1) * free])

    def place(self, ranks: tuple[RankState, ...], size: int, rank: int) -> int | None:
        """The page that shows this rank; None where it is not among them."""
        others = [one.rank for one in ranks if one.rank not in self.pins]
        if rank in self.pins:
            return self.page
        free = max(size - len(self.pins), 1)
        return others.index(rank) // free if rank in others else None

    @property
    def said(self) -> str:
        """What is chosen, in words; "" for all ranks in their order."""
        parts = [f"ranks {fold_ranks(self.only)}"] if self.only else []
        parts += [self.text] if self.text else []
        parts += [f"by {self.order}"] if self.order != ORDERS[0] else []
        return " ".join(parts)
