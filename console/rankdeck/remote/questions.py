"""Questions about host keys, put to whoever looks: one at a time."""

import asyncio

from rankdeck.errors import HostKeyError


class Questions:
    """What only the operator can judge."""

    def __init__(self) -> None:
        self.pending: HostKeyError | None = None
        self._answer: asyncio.Future[bool] | None = None
        self._asking = asyncio.Lock()

    async def confirm(self, error: HostKeyError) -> bool:
        """Put the question where a front end sees it, and wait for the answer."""
        async with self._asking:
            self._answer = asyncio.get_running_loop().create_future()
            self.pending = error
            try:
                return await self._answer
            finally:
                self.pending = None

    def answer(self, accept: bool) -> None:
        """The operator's answer to what is pending."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(accept)
