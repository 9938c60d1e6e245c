"""A stand-in for NVIDIA's library, in C: the real nvidia-ml-py talks to it."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("libnvidia-ml.c")
H100: tuple[str, ...] = (
    "driver * 570.86.15",
    "Name * NVIDIA H100 80GB HBM3",
    "Serial * 1562821083900",
    "VbiosVersion * 96.00.74.00.09",
    "PersistenceMode * 1",
    "UtilizationRates * 42 7",
    "MemoryInfo * 10737418240 85899345920",
    "Temperature * 61",
    "TemperatureThreshold * 87",
    "MarginTemperature * 26",
    "PowerUsage * 350500",
    "EnforcedPowerLimit * 700000",
    "TotalEnergyConsumption * 123456789",
    "ClockInfo * 1980 1980 2619",
    "EncoderUtilization * 0",
    "DecoderUtilization * 0",
    "CurrentClocksEventReasons * 4",
    "TotalEccErrors * 3 0 9 1",
    "SramEccErrorStatus * 0",
    "RemappedRows * 2 0 0 0",
    "NvLinks * 18 18",
    "GpuFabricInfo * 3 0",
    "CurrPcieLinkGeneration * 5",
    "MaxPcieLinkGeneration * 5",
    "CurrPcieLinkWidth * 16",
    "MaxPcieLinkWidth * 16",
    "PcieReplayCounter * 1",
    "Processes * 4711 5368709120",
    "field.82 * 70",
    "field.270 * 1500000000",
    "field.269 * 0",
    "field.74 * 2000000000",
    "field.271 * 0",
    "field.230 * 0",
    "field.38 * 1",
    "field.45 * 2",
    "field.52 * 0",
    "field.59 * 0",
)


def missing() -> str:
    """Why the library cannot be built here; "" if it can."""
    return "" if shutil.which("cc") else "no C compiler to build the stand-in for NVML"


def build(folder: Path) -> None:
    """Put libnvidia-ml.so.1 into the folder."""
    target = folder / "libnvidia-ml.so.1"
    argv = ("cc", "-shared", "-fPIC", "-O1", "-o", str(target), str(SOURCE))
    subprocess.run(argv, check=True, timeout=300)


class Machine:
    """The GPUs that the library shows; its answers can be changed at any time."""

    def __init__(self, file: Path, gpus: int = 8, lines: Sequence[str] = H100) -> None:
        self.file = file
        self._lines = [f"count * {gpus}", *lines]
        self._write()

    def say(self, *lines: str) -> None:
        """Add answers; later ones replace earlier ones."""
        self._lines += lines
        self._write()

    def without(self, *functions: str) -> None:
        """These are not supported."""
        gone = {*functions}
        self._lines = [x for x in self._lines if x.split(" ", 1)[0] not in gone]
        self._write()

    def _write(self) -> None:
        # In one step: the library may read at any time.
        fresh = self.file.with_suffix(".new")
        fresh.write_text("\n".join(self._lines) + "\n")
        os.replace(fresh, self.file)  # noqa: PTH105
