"""The background tasks of one open cluster."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """Tasks that run until they end or the cluster is closed; an error in one closes it."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.group = group
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """Run this in the background."""
        task = self.group.create_task(work)
        self.adopt(task)
        return task

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Stop this task of the group with the others."""
        self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)

    def stop(self) -> None:
        """Cancel all tasks; jobs on the nodes go on."""
        for task in self._tasks:
            task.cancel()
