"""Opens the session of a cluster after the first picture;
`rankdeck.opening` is imported only then.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankdeck.errors import RankdeckError
from rankdeck.model.cluster import Cluster

if TYPE_CHECKING:
    from rankdeck.session import Session

OpenSession = Callable[[], "AbstractAsyncContextManager[Session]"]
Opener = Callable[[Cluster], "AbstractAsyncContextManager[Session]"]
"""Opens this cluster."""


class NotOpenError(RankdeckError):
    """What was asked for needs a session, and the cluster is not open."""


@asynccontextmanager
async def open_console_session(cluster: Cluster) -> "AsyncGenerator[Session]":
    """Open the cluster."""
    real = await asyncio.to_thread(_loaded, "rankdeck.opening")
    async with real.open_cluster_session(cluster) as session:
        yield session


@asynccontextmanager
async def open_simulated(cluster: Cluster) -> "AsyncGenerator[Session]":
    """The same for a simulated fleet, whose nodes have no SSH; see `demo/fleet.py`."""
    demo = await asyncio.to_thread(_loaded, "rankdeck.demo.fleet")
    async with demo.open_fleet(cluster) as session:
        yield session


def _loaded(module: str) -> Any:  # noqa: ANN401 - a module
    """Import `module`, and what the first message from a node needs, so that
    no key waits for these imports later.
    """
    for name in ("rankdeck.rules.expectations", "rankdeck.state.judgement"):
        import_module(name)
    return import_module(module)
