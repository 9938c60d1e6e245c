"""Opens a cluster: the user's records, the connections, telemetry,
and the session that owns them all.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing

from rankdeck.acceptance.store import AcceptanceRuns
from rankdeck.config.files import console_state_folder
from rankdeck.model.cluster import Cluster
from rankdeck.remote.questions import Operator, Questions
from rankdeck.remote.shell import Shell
from rankdeck.scaling.store import ScalingStudies
from rankdeck.session import Session
from rankdeck.state.history_thread import open_history
from rankdeck.values import Value

log = logging.getLogger(__name__)


class Reach(Value):
    """How nodes are reached, and whether their telemetry is received; see
    `open_cluster_session` for the parameters.
    """

    shell: Callable[[Questions], AbstractAsyncContextManager[Shell]]
    telemetry: bool = True
    brief: bool = False


@asynccontextmanager
async def open_cluster_session(
    cluster: Cluster,
    *,
    telemetry: bool = True,
    brief: bool = False,
    operator: Operator | None = None,
    progress: Callable[[str], None] | None = None,
) -> AsyncGenerator[Session]:
    """Open a cluster: follow the running jobs of earlier sessions
    again. SSH connections open when needed.

    With `telemetry`, health messages of all nodes are received; with `brief` (for commands that run
    a moment) full samples of all, and a problem in two samples counts as lasting. `operator` is
    asked about unknown host keys and what servers ask at a login; without one, the question is in
    `Session.pending_question`. `progress` is called with lines for the user. Raises BrokerError if
    the private broker cannot listen.
    """

    def over_ssh(questions: Questions) -> AbstractAsyncContextManager[Shell]:
        # asyncssh is slow to load, and a simulated fleet does not need it.
        from rankdeck.remote.transports import reach_cluster

        asked = operator or Operator(questions.confirm, questions.ask)
        return reach_cluster(cluster, asked.confirm, asked.answer)

    reach = Reach(over_ssh, telemetry=telemetry, brief=brief)
    async with open_session_on(cluster, reach, progress or (lambda _: None)) as session:
        yield session


@asynccontextmanager
async def open_session_on(
    cluster: Cluster, reach: Reach, tell: Callable[[str], None] = lambda _: None
) -> AsyncGenerator[Session]:
    """Like `open_cluster_session`, but `reach` may replace SSH, e.g. with simulated nodes.

    `tell` gets lines for the user.
    """
    async with AsyncExitStack() as stack:
        history = await stack.enter_async_context(
            open_history(console_state_folder() / "history.db")
        )
        accepted = await asyncio.to_thread(AcceptanceRuns, console_state_folder() / "acceptance.db")
        studies = ScalingStudies(console_state_folder() / "scaling.db")
        stack.enter_context(closing(accepted))
        stack.enter_context(closing(studies))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        questions = Questions()
        shell = await stack.enter_async_context(reach.shell(questions))
        session = Session(cluster, (history, accepted, studies), questions, shell, tasks)
        logger = logging.getLogger("rankdeck")
        logger.setLevel(logging.INFO)
        logger.addHandler(session.messages)
        found = history.state
        # Both lie in one folder: what keeps one from being written is told once.
        troubles = (found.trouble,) if found.trouble else accepted.troubles
        for said in filter(None, (*troubles, found.mended)):
            log.warning("%s", said)
            tell(f"rankdeck: {said}")
        stack.callback(logger.removeHandler, session.messages)
        link = None
        if reach.telemetry:
            # Slow to load, as SSH.
            from rankdeck.telemetry.link import open_link

            link = await stack.enter_async_context(open_link(cluster, session.fleet))
        if reach.brief:
            session.hearing.want(None)
        session.begin(await history.read_kept(cluster.name, time.time()), link, brief=reach.brief)
        stack.callback(session.end)
        yield session
