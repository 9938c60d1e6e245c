"""Raw outputs of measurements: one private file each, in a folder of the run."""

import logging
from pathlib import Path

from rankdeck.config.safe_files import private_folder, read_regular, write_private
from rankdeck.model.acceptance import Result
from rankdeck.model.nodeset import PLAIN
from rankdeck.model.text import strip_controls

log = logging.getLogger(__name__)


class RawOutputs:
    """The files below one folder of the user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, run: str, one: Result, raw: bytes) -> str:
        """Keep an output; its path, or "" where there is none, or the disk takes none (that is logged)."""
        if not raw:
            return ""
        path = self._folder / run / f"{_name(one)}.txt"
        try:
            private_folder(path.parent)
            write_private(path, raw.decode("utf-8", "replace"))
        except OSError as error:
            log.warning("%s: the output is not kept: %s", path, error.strerror or error)
            return ""
        return str(path)

    def read(self, one: Result, most: int) -> str:
        """At most so many characters of it, safe to show; "" where it is gone."""
        path = Path(one.raw)
        if not one.raw or self._folder not in path.parents:
            return ""
        try:
            text = read_regular(path).decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(strip_controls(line) for line in text[:most].split("\n"))


def _name(one: Result) -> str:
    """`003-pairs-iperf3-n1-n2-0-1`: round, stage, recipe, nodes, port, repeat."""
    nodes = (one.sender, one.receiver or (f"{len(one.group)}nodes" if one.group else ""))
    words = (
        f"{one.round:03}",
        one.stage.value,
        one.recipe,
        *filter(None, nodes),
        *([f"rail{one.rail}"] if one.rail else []),
        str(one.port),
        str(one.repeat),
    )
    return "-".join(word if PLAIN.fullmatch(word) else "x" for word in words)[:200]
