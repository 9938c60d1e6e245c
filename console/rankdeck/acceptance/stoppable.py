"""The work of one run, study or drill: it starts jobs one after the other, and can be stopped."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from rankdeck.acceptance.measure import MeasureSession
from rankdeck.errors import leaf_errors as errors_in


class StoppableWork:
    """At most one piece of work at a time."""

    def __init__(self, session: MeasureSession) -> None:
        self._session = session
        self._task: asyncio.Task[None] | None = None

    @property
    def runs(self) -> bool:
        """Whether it goes on now."""
        return self._task is not None

    async def carry_out(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do the work, whose jobs start faster; returns whether it came to its end, False if it
        was stopped. Raises its first error.
        """
        try:
            async with self._session.control.starting_often(), asyncio.TaskGroup() as tasks:
                task = self._task = tasks.create_task(work)
            return not task.cancelled()
        except BaseExceptionGroup as group:
            raise next(errors_in(group)) from group
        finally:
            self._task = None

    async def stop(self) -> None:
        """Cancel the work, which then cancels and verifies its job; returns once it has ended."""
        if self._task is not None:
            task = self._task
            task.cancel()
            await asyncio.wait((task,))
