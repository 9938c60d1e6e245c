"""all_reduce under torchrun, on gloo or NCCL, where nccl-tests is not built."""

from functools import cache
from importlib.resources import files
from typing import ClassVar

from rankdeck.acceptance.expectations import gpu_network
from rankdeck.acceptance.recipe import Commands, Expected, Known, Reading, Traits, Where
from rankdeck.acceptance.recipes.nccl import MARK, read
from rankdeck.model.job import Launch

_PROGRAM = "torch_all_reduce.py"


@cache
def program() -> str:
    """The text of the file that runs on the nodes."""
    return files(__package__ or "").joinpath(_PROGRAM).read_text("utf-8")


class _Torch:
    """What both have in common; the table is that of nccl-tests, in place only."""

    name: ClassVar[str]
    traits: ClassVar[Traits]
    library: ClassVar[str]

    def commands(self, where: Where) -> Commands:
        argv = ("python3", f"${{RANKDECK_RUN}}/{_PROGRAM}", self.library)
        return Commands(launch=Launch.TORCHRUN, argv=argv, files={_PROGRAM: program()})

    def read(self, text: str) -> tuple[Reading, ...]:
        return read(text)

    def expect(self, reading: Reading, known: Known) -> Expected | None:
        return gpu_network(reading, known) if self.library == "nccl" else None


class Gloo(_Torch):
    """Over TCP, on CPUs."""

    name: ClassVar[str] = "torch-gloo"
    traits: ClassVar[Traits] = Traits(
        unit="GB/s", tolerance=0.15, seconds=15.0, names_hosts=True, mark=MARK
    )
    library = "gloo"


class Nccl(_Torch):
    """On GPUs."""

    name: ClassVar[str] = "torch-nccl"
    traits: ClassVar[Traits] = Traits(
        unit="GB/s", tolerance=0.07, seconds=30.0, names_hosts=True, mark=MARK
    )
    library = "nccl"
