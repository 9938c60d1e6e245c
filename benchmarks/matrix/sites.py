"""The clusters on which rows are run: each is brought up by the first row that asks for it."""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from tests.support.kubernetes import kubectl_or_why
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.site import Site, doubled
from tests.support.lab import RootLab, running
from tests.support.lab.root import missing as root_lab_missing
from tests.support.lab.root import slurm
from tests.support.lab.root.people import Operator

from benchmarks.fault_sites import DemoSite, LabSite, demo_site, lab_site
from benchmarks.result import MissingError


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """A real Slurm in the root lab: n1 and n2 work, n3 controls, n4 is to log in."""

    user: Operator
    root: Operator


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

    @cached_property
    def kubernetes(self) -> Site:
        """The tests' double of Kubernetes, with pods that pretend, and the
        real kubectl; raises MissingError.
        """
        kubectl, why = kubectl_or_why()
        if kubectl is None:
            raise MissingError(why)
        folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="kube.")))
        double = self._stack.enter_context(Double(folder / "double", processes=False))
        return Site(folder / "site", doubled(double, pretends=True), kubectl)

    @cached_property
    def slurm(self) -> SlurmSite:
        """A real Slurm; raises MissingError."""
        if why := root_lab_missing():
            raise MissingError(why)
        lab = self._stack.enter_context(running(RootLab, ("n1", "n2", "n3", "n4")))
        root = Operator(lab, "root")
        slurm.start(root)
        return SlurmSite(user=slurm.through(Operator(lab, "lab")), root=slurm.through(root))
