"""The mpi-operator of the double."""

from tests.support.kubernetes.store import Store


class MpiJobs:
    """Brings MPIJobs a step on."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def reconcile(self) -> None:
        """One round."""
