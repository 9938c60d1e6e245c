"""Software RAID (md): members that are missing, arrays that do not work,
and how far a rebuild or check has come.

From /sys/block/md*/md (linux Documentation/admin-guide/md.rst), or from
/proc/mdstat where that is not to be seen.
"""

import re
from collections.abc import Iterable
from typing import Optional

from rankdeck_agent.collectors.base import DEVICE_LIMIT, Reading, parse_unsigned
from rankdeck_agent.system_files import Tree
from rankdeck_agent.text import clean_text
from rankdeck_agent.values import Value

_BLOCK = "sys/block"
_MDSTAT = "proc/mdstat"
_SPARE = {"raid4": 1, "raid5": 1, "raid6": 2}
"""Level -> members that may be missing; of a raid1 or raid10 all but one of each pair."""
_ARRAY = re.compile(
    r"^(?P<name>md[\w.-]{0,60}) : (?P<state>active|inactive)(?: \([\w-]+\))*(?: (?P<level>raid\d+|linear|multipath))?\b.*\n"
    r"(?P<rest>(?:[ \t]+.*\n?)*)",
    re.MULTILINE,
)
_MEMBERS = re.compile(r"\[(?P<wanted>\d{1,5})/(?P<there>\d{1,5})\]")
_PROGRESS = re.compile(
    r"(?P<what>resync|recovery|reshape|check|repair) = *(?P<percent>\d{1,3}(?:\.\d+)?)%"
)
_COMPLETED = re.compile(r"(?P<done>\d{1,20}) / (?P<all>\d{1,20})")
_GONE = frozenset({"inactive", "broken"})
_NONE = frozenset({"", "clear"})
_REBUILDS = frozenset({"recovery", "recover", "resync", "reshape"})


class Array(Value):
    """One array with redundancy, or one that should have it."""

    name: str
    level: str
    works: bool
    wanted: Optional[int] = None
    """Members that it should have; None if its level has no redundancy."""
    missing: int = 0
    doing: str = ""
    """check, repair, recover, resync, reshape; "" if nothing."""
    percent: Optional[float] = None
    """How far that has come; None if nothing goes on, or it waits for another array."""

    @property
    def failed(self) -> bool:
        """Whether it does not work: it could not be started, or more members
        are missing than it can do without.
        """
        most = _SPARE.get(self.level, (self.wanted or 1) - 1)
        return not self.works or (self.wanted is not None and self.missing > most)


class RaidCollector:
    """Members and progress of each array."""

    name = "raid"
    lane = "slow"
    period = 10.0
    metrics: tuple[str, ...] = ("md.degraded", "md.disks", "md.failed", "md.rebuilt", "md.checked")

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)

    def collect(self, now: float) -> Reading:
        reading = Reading()
        reading.attempt(self.metrics, lambda: self._read(reading))
        return reading

    def _read(self, reading: Reading) -> None:
        tree = self._tree
        names = [n for n in tree.names(_BLOCK) if tree.exists(f"{_BLOCK}/{n}/md/array_state")]
        text = "" if names else tree.read(_MDSTAT).decode("utf-8", "replace")
        arrays = [_array(tree, name) for name in names] if names else parse_mdstat(text)
        for array in filter(None, arrays):
            reading.put("md.failed", int(array.failed), array.name)
            if array.wanted is not None:
                reading.put("md.disks", array.wanted, array.name)
                reading.put("md.degraded", array.missing, array.name)
            if array.percent is not None:
                metric = "md.rebuilt" if array.doing in _REBUILDS else "md.checked"
                reading.put(metric, array.percent, array.name)


def _array(tree: Tree, name: str) -> Optional[Array]:
    """The array of a block device; None for what is no array by itself.

    Raises OSError, ValueError.
    """
    base = f"{_BLOCK}/{name}/md"
    level, state = tree.maybe(f"{base}/level") or "", tree.text(f"{base}/array_state")
    if state in _NONE or not level.startswith(("raid", "linear", "multipath")):
        # A container of other arrays, or one that is being put together.
        return None
    wanted, missing = None, 0
    if tree.exists(f"{base}/degraded"):
        wanted = parse_unsigned(tree.read(f"{base}/raid_disks"))
        missing = parse_unsigned(tree.read(f"{base}/degraded"))
    doing = tree.maybe(f"{base}/sync_action") or ""
    done = _COMPLETED.fullmatch(tree.maybe(f"{base}/sync_completed") or "")
    percent = round(100.0 * int(done["done"]) / max(1, int(done["all"])), 1) if done else None
    works = state not in _GONE
    return Array(clean_text(name), level, works, wanted, missing, doing, percent)


def parse_mdstat(text: str) -> Iterable[Array]:
    """The arrays in /proc/mdstat; what does not fit is skipped."""
    for number, found in enumerate(_ARRAY.finditer(text)):
        if number >= DEVICE_LIMIT:
            break
        level, rest = found["level"] or "", found["rest"]
        if not level:
            continue
        members, progress = _MEMBERS.search(rest), _PROGRESS.search(rest)
        wanted = int(members["wanted"]) if members else None
        missing = max(0, wanted - int(members["there"])) if members and wanted else 0
        yield Array(
            found["name"],
            level,
            found["state"] == "active",
            wanted,
            missing,
            progress["what"] if progress else "",
            float(progress["percent"]) if progress else None,
        )
