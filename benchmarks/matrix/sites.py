"""The clusters on which rows are run: each is brought up by the first row that asks for it."""

from contextlib import ExitStack
from functools import cached_property
from types import TracebackType

from benchmarks.fault_sites import DemoSite, LabSite, demo_site, lab_site


class Sites:
    """Open it with `with`; what was brought up is down at the end."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> "Sites":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @cached_property
    def demo(self) -> DemoSite:
        """Three virtual nodes of this machine, with sshd and the private broker."""
        return self._stack.enter_context(demo_site())

    @cached_property
    def lab(self) -> LabSite:
        """Three namespaces with links that can be cut; raises MissingError."""
        return self._stack.enter_context(lab_site())
