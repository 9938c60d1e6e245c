"""NVMe controllers: whether they are live, and which they are."""

from rankdeck_agent.collectors.base import Reading
from rankdeck_agent.files import Tree, clean

_BASE = "sys/class/nvme"
_LIMIT = 64
_IDENTITY = (("model", "model"), ("firmware", "firmware_rev"))


class NvmeCollector:
    """State per controller: anything but "live" means that its disks do not answer."""

    name = "nvme"
    lane = "slow"
    period = 10.0
    metrics: tuple[str, ...] = ("nvme.live",)

    def __init__(self, root: str = "/") -> None:
        self.doing = ""
        self._tree = Tree(root)
        self._inventory: dict[str, str] = {}

    def collect(self, now: float) -> Reading:
        reading = Reading()
        names: list[str] = []
        reading.attempt(self.metrics, lambda: names.extend(self._tree.names(_BASE)))
        for name in names[:_LIMIT]:
            self.doing = name
            device = clean(name)
            reading.attempt(
                self.metrics, lambda n=name, d=device: self._state(reading, n, d), device
            )  # fmt: skip
        self.doing = ""
        reading.inventory = self._inventory
        return reading

    def _state(self, reading: Reading, name: str, device: str) -> None:
        state = self._tree.text(f"{_BASE}/{name}/state")
        reading.put("nvme.live", int(state == "live"), device)
        if f"nvme.{device}.model" not in self._inventory:
            for what, file in _IDENTITY:
                text = self._tree.maybe(f"{_BASE}/{name}/{file}") or ""
                self._inventory[f"nvme.{device}.{what}"] = clean(text)
