"""Somebody who answers what servers ask at a login, and what the nodes say to whom they let in."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rankdeck.model.cluster import Cluster
from rankdeck.remote.questions import Answers, LoginQuestion
from rankdeck.remote.shell import Shell, on_each, run_program
from rankdeck.remote.transports import reach_cluster


class Person:
    """Somebody who answers as `says` has it."""

    def __init__(self, says: Callable[[LoginQuestion], Answers]) -> None:
        self.questions: list[LoginQuestion] = []
        self._says, self._busy = says, False

    async def answer(self, question: LoginQuestion) -> Answers:
        assert not self._busy, "two questions at a time"
        self._busy = True
        self.questions.append(question)
        await asyncio.sleep(0.05)
        self._busy = False
        return self._says(question)


async def trusts(_: object) -> bool:
    return True


@asynccontextmanager
async def nodes_of(cluster: Cluster, person: Person | None) -> AsyncIterator[Shell]:
    async with reach_cluster(cluster, trusts, person.answer if person else None) as shell:
        yield shell


async def echoed(shell: Shell, *nodes: str) -> tuple[set[bytes], dict[str, str]]:
    """What the nodes print, and why others do not."""
    done, failed = await on_each(
        nodes, lambda node: run_program(shell, node, ("echo", "in"), limit=120)
    )
    return {one.out for one in done.values()}, {node: error.why for node, error in failed.items()}
