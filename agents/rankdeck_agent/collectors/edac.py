"""Memory errors that EDAC counts."""

import re
from collections.abc import Mapping, Sequence

from rankdeck_agent.collectors.base import Reading, parse_unsigned
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text

_EDAC = "sys/devices/system/edac/mc"
_CONTROLLER = re.compile(r"mc\d{1,4}")
_DIMM = re.compile(r"(?:dimm|rank)\d{1,4}")
_ROW = re.compile(r"csrow\d{1,4}")
_DIMMS = 256
_EDAC_LOOK = 300.0
Counts = tuple[str, str]
"""(file of corrected errors, file of uncorrected errors)."""
_COUNTS = ("edac.ce", "edac.ue")
_OF_CONTROLLERS = ("edac.mc_ce", "edac.mc_ue")
_OF_ROWS = ("edac.row_ce", "edac.row_ue")


class EdacCollector:
    """Corrected and uncorrected memory errors since the driver was loaded, per
    DIMM, controller and chip-select row.
    """

    name = "edac"
    lane = "slow"
    period = 10.0
    metrics: tuple[str, ...] = (*_COUNTS, *_OF_CONTROLLERS, *_OF_ROWS)

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._looked = -_EDAC_LOOK
        self._files: dict[str, Counts] = {}
        self._controllers: dict[str, Counts] = {}
        self._rows: dict[str, Counts] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        if now - self._looked >= _EDAC_LOOK:
            self._looked = now
            reading.attempt(_COUNTS, self._look)
        self._read(reading, _COUNTS, self._files)
        self._read(reading, _OF_CONTROLLERS, self._controllers)
        self._read(reading, _OF_ROWS, self._rows)
        return reading

    def _read(self, reading: Reading, metrics: Sequence[str], rows: Mapping[str, Counts]) -> None:
        for device, files in rows.items():
            for metric, file in zip(metrics, files):
                reading.measure(metric, lambda f=file: parse_unsigned(self._tree.read(f)), device)

    def _look(self) -> None:
        files: dict[str, Counts] = {}
        rows: dict[str, Counts] = {}
        controllers = list(filter(_CONTROLLER.fullmatch, self._tree.names(_EDAC)))
        self._controllers = {
            n: (f"{_EDAC}/{n}/ce_count", f"{_EDAC}/{n}/ue_count") for n in controllers
        }
        for name in controllers:
            files.update(_controller(self._tree, name, set(files)))
            rows.update(_chip_select_rows(self._tree, name))
        self._files, self._rows = files, rows


def _controller(tree: Tree, name: str, taken: set[str]) -> dict[str, Counts]:
    base = f"{_EDAC}/{name}"
    dimms = [n for n in tree.names(base) if _DIMM.fullmatch(n)][:_DIMMS]
    # If there are DIMMs, the controller counts only errors that cannot be attributed to one.
    kind = "noinfo_count" if dimms else "count"
    files = {name: (f"{base}/ce_{kind}", f"{base}/ue_{kind}")}
    for dimm in dimms:
        label = clean_text(tree.maybe(f"{base}/{dimm}/dimm_label") or "")
        free = label and label not in taken and label not in files
        device = label if free else f"{name}/{dimm}"
        files[device] = (f"{base}/{dimm}/dimm_ce_count", f"{base}/{dimm}/dimm_ue_count")
    return files


def _chip_select_rows(tree: Tree, name: str) -> dict[str, Counts]:
    """Counts of the older kernel interface
    (Documentation/ABI/testing/sysfs-devices-edac); `unknown`: not of a known row.
    """
    base = f"{_EDAC}/{name}"
    rows = [n for n in tree.names(base) if _ROW.fullmatch(n)][:_DIMMS]
    counts = {f"{name}/{row}": (f"{base}/{row}/ce_count", f"{base}/{row}/ue_count") for row in rows}
    if tree.exists(f"{base}/ce_noinfo_count"):
        counts[f"{name}/unknown"] = (f"{base}/ce_noinfo_count", f"{base}/ue_noinfo_count")
    return counts
