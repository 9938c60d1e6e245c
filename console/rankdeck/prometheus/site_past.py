"""The past as the site's Prometheus has it: asked in the background, kept for a while."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankdeck.errors import MetricsError
from rankdeck.model.cluster import Cluster, Metrics, Node
from rankdeck.model.past import POINTS, PastNumbers, PastView, Times, times
from rankdeck.prometheus.past import past_numbers

log = logging.getLogger(__name__)
RETRY = 30.0
"""Seconds after which a server that did not answer is asked again."""
_SCRAPES = 20
"""Scrapes that a job must last for the site's numbers to say more than the console's."""
_KEPT = 32
"""Answers that are remembered, for steps back and forth in time."""
Start = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


@dataclass(frozen=True, slots=True)
class JobNumbers:
    """What the site has of the nodes of a job while it ran."""

    rows: Sequence[Mapping[str, Any]] = ()
    """As those of the history: `{at, metrics, of, nodes, simulated}`, see `History.numbers`."""
    source: str = ""
    """Where they come from, for people."""
    gap: float = 0.0
    """Seconds between two rows beyond which something is missing."""
    trouble: str = ""
    """Why there are none, or not all."""


@dataclass(frozen=True, slots=True)
class _Question:
    node: str
    hours: float
    times: Times


class SitePast:
    """Answers at once with what is there, and asks for the rest; made by the session.

    A cluster without `metrics:` has none: `view` gives None then.
    """

    def __init__(self, cluster: Cluster, start: Start) -> None:
        """`start` runs a coroutine for as long as the session is open."""
        self._cluster, self._start = cluster, start
        self._kept: dict[_Question, PastNumbers] = {}
        self._last: dict[tuple[str, float], PastNumbers] = {}
        self._wanted: _Question | None = None
        self._asking: asyncio.Task[None] | None = None
        self._trouble = ""
        self._again = 0.0
        """When the server may be asked again after a failure, monotonic."""

    def view(self, node: str, hours: float, until: float | None = None) -> PastView | None:
        """What is known of the hours before `until` (epoch seconds; None: now). Never waits.

        Until the answer is there it gives the answer before, of the same node and length.
        """
        server = self._cluster.metrics
        if server is None:
            return None
        end = time.time() if until is None else until
        wanted = _Question(node, hours, times(end - hours * 3600, end))
        self._wanted = wanted
        if wanted not in self._kept and self._may_ask():
            self._asking = self._start(self._ask(server))
        found = self._kept.get(wanted) or self._last.get((node, hours))
        return PastView(hours, server.place, found, self._trouble)

    async def of_job(self, nodes: Sequence[str], start: float, end: float, of: int) -> JobNumbers:
        """The numbers of these of the job's `of` nodes between two moments, epoch seconds.

        None of a job that is too short for what is scraped now and then: the console's own are finer.
        """
        server = self._cluster.metrics
        if server is None or end - start < _SCRAPES * server.interval:
            return JobNumbers()
        try:
            found = await past_numbers(server, self._nodes(nodes), times(start, end, 2 * POINTS))
        except MetricsError as error:
            return JobNumbers(trouble=f"The site's metrics are not in it: {server.place} {error}.")
        if not found.series:
            return JobNumbers(trouble=f"{server.place} has no numbers of these nodes at that time.")
        names = sorted({one.source for one in found.series.values()})
        source = f"{server.place}, series of {'; '.join(names)}"
        return JobNumbers(rows_of(found, of), source, 1.5 * found.times.step, found.warning)

    def _may_ask(self) -> bool:
        idle = self._asking is None or self._asking.done()
        return idle and time.monotonic() >= self._again

    async def _ask(self, server: Metrics) -> None:
        """Ask for what is wanted, until that is there: it may change meanwhile."""
        while (wanted := self._wanted) is not None and wanted not in self._kept:
            try:
                found = await past_numbers(server, self._nodes([wanted.node]), wanted.times)
            except MetricsError as error:
                self._failed(f"{server.place} {error}")
                return
            self._trouble = ""
            self._keep(wanted, found)

    def _keep(self, asked: _Question, found: PastNumbers) -> None:
        self._kept[asked] = self._last[asked.node, asked.hours] = found
        for kept in (self._kept, self._last):
            if len(kept) > _KEPT:
                kept.pop(next(iter(kept)))  # pyright: ignore[reportArgumentType]

    def _failed(self, trouble: str) -> None:
        self._again = time.monotonic() + RETRY
        if trouble != self._trouble:
            log.warning("the site's metrics: %s", trouble)
        self._trouble = trouble

    def _nodes(self, names: Sequence[str]) -> list[Node]:
        known = {node.name: node for node in self._cluster.nodes}
        return [known.get(name) or Node(name=name) for name in names]


def rows_of(past: PastNumbers, of: int) -> list[Mapping[str, Any]]:
    """What was read as rows, one for each time; `of` is how many nodes the job has."""
    metrics = sorted({metric for _, metric in past.series})
    names = sorted({node for node, _ in past.series})
    made_up = {metric for (_, metric), one in past.series.items() if one.simulated}
    about = {
        "metrics": metrics,
        "of": of,
        "simulated": sorted({m.partition(".")[0] for m in made_up}),
    }
    columns = {
        name: [past.series[name, metric].values if (name, metric) in past.series else () for metric in metrics]
        for name in names
    }  # fmt: skip
    return [
        {**about, "at": at, "nodes": {
            name: [values[place] if values else None for values in columns[name]] for name in names
        }}
        for place, at in enumerate(past.times)
    ]  # fmt: skip
