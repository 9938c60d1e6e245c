"""What Rankdeck says of the nodes of an RDMA lab, from one `rankdeck export` that keeps looking."""

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.polling import seen_until
from tests.support.rdma_lab import RdmaLab

LIMIT = 600.0
"""Seconds: the first contact with an emulated machine among many busy ones takes minutes."""
_LINE = re.compile(r'^(\w+)\{instance="(\w+)",cluster="\w+"(?:,([^}]*))?\} (\S+)$', re.MULTILINE)


class Exporter:
    """Reads the series that a running `rankdeck export` serves at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def series(self, name: str, node: str) -> dict[str, float]:
        """Labels -> value of one series of one node."""
        with urllib.request.urlopen(self.url, timeout=60) as answer:
            text = answer.read().decode()
        return {
            m[3] or "": float(m[4]) for m in _LINE.finditer(text) if m[1] == name and m[2] == node
        }

    def number(self, name: str, node: str) -> float:
        """The value of a series that the node has once; -1 if it has none."""
        return next(iter(self.series(name, node).values()), -1.0)

    def checks(self, node: str) -> set[str]:
        """The checks that have fired there."""
        found = self.series("rankdeck_check", node)
        return {m[1] for labels in found if (m := re.search(r'check="([^"]+)"', labels))}

    def until_above(self, name: str, node: str, least: float) -> float:
        """Wait until that number is above `least`; returns it."""
        return seen_until(lambda: self.number(name, node), lambda n: n > least, LIMIT)

    def until_is(self, name: str, node: str, value: float) -> None:
        """Wait until it is that number."""
        seen_until(lambda: self.number(name, node), lambda n: n == value, LIMIT)

    def until_checks(self, node: str, *, fired: str = "", cleared: str = "") -> None:
        """Wait until one check has fired there, and another one has not."""
        seen_until(
            lambda: self.checks(node),
            lambda found: (not fired or fired in found) and (not cleared or cleared not in found),
            LIMIT,
        )


@contextmanager
def exporting(lab: RdmaLab, file: Path) -> Iterator[Exporter]:
    """An exporter that has heard both nodes."""
    command = [sys.executable, "-m", "rankdeck", "-c", str(file), "export"]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"],
        env={**os.environ, **lab.environment()},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        exporter = Exporter(process.stdout.readline().strip())
        try:
            for node in lab.nodes:
                exporter.until_above("rankdeck_node_up", node, 0)
                exporter.until_above("node_infiniband_state_id", node, 0)
            yield exporter
        finally:
            process.kill()
