"""How often jobs failed on each node by its own fault; judged anew when an ended job changes."""

from collections.abc import Iterable, Mapping

from rankdeck.model.job import Job
from rankdeck.rules.lemons import NodeRecord, find_lemons, node_records


class NodeRecords:
    """The records of the nodes, by the jobs that the session knows."""

    def __init__(self) -> None:
        self._of: tuple[Job, ...] = ()
        self._records: Mapping[str, NodeRecord] = {}
        self._lemons: Mapping[str, NodeRecord] = {}

    def judge(self, jobs: Iterable[Job]) -> None:
        """Take in these jobs; does nothing if no ended one is new or another object than before."""
        ended = tuple(job for job in jobs if job.state.final)
        if len(ended) == len(self._of) and all(map(_is_same, ended, self._of)):
            return
        self._of, self._records = ended, node_records(ended)
        self._lemons = find_lemons(self._records)

    @property
    def records(self) -> Mapping[str, NodeRecord]:
        """Node -> its record."""
        return self._records

    @property
    def lemons(self) -> Mapping[str, NodeRecord]:
        """The records of the lemons, the worst first."""
        return self._lemons


def _is_same(one: Job, other: Job) -> bool:
    return one is other
