"""iperf3: TCP between two nodes, by the JSON of `-J`, which ends with 0 also after a failure."""

import re
from typing import ClassVar

from rankdeck.acceptance.expectations import tcp_link
from rankdeck.acceptance.output_text import as_table, first_line, object_in, tables, unique
from rankdeck.acceptance.output_text import number as number_in
from rankdeck.acceptance.recipe import (
    Commands,
    Expected,
    Known,
    Reading,
    Status,
    Traits,
    Where,
    failed,
    not_measured,
)
from rankdeck.model.job import Launch
from rankdeck.model.text import Table, clean, number

_BUSY = 95.0
"""Percent of one core: from here on the CPU was measured, not the link."""
_NEVER_BEGAN = (
    "unable to connect",
    "server is busy",
    "unable to start listener",
    "Bad file descriptor",
    "control socket has closed",
)


class Iperf3:
    """iperf3 from the first node to the last; the server serves one client and ends."""

    name: ClassVar[str] = "iperf3"
    traits: ClassVar[Traits] = Traits(
        unit="Gb/s",
        directed=True,
        tolerance=0.10,
        seconds=4.0,
        fabric="network",
        begins=r'^(?:\{(?!"event")|Connecting to host |iperf3: error - unable to connect)',
    )

    def commands(self, where: Where) -> Commands:
        port = ("-p", str(where.port))
        time = ("-t", str(where.seconds)) if where.seconds else ("-t", "3", "-O", "1")
        return Commands(
            launch=Launch.PLAIN,
            argv=("iperf3", "-c", where.receiver, *port, *time, "-J"),
            server=("iperf3", "-s", "-1", *port),
            waits=("unable to connect to server",),
        )

    def read(self, text: str) -> tuple[Reading, ...]:
        found = object_in(text)
        if found is None:
            return (_of_text(text),)
        if "error" in found:
            return (_error(str(found["error"]), began=bool(found.get("intervals"))),)
        return _results(found)

    def expect(self, reading: Reading, known: Known) -> Expected | None:
        return tcp_link(reading, known)


_RECEIVED = re.compile(
    r"^\[(?: {0,3}\d{1,4}|SUM)\].{1,80}? (\d{1,9}(?:\.\d{1,9})?) ([KMGT]?)bits/sec.{0,60}receiver",
    re.MULTILINE,
)
_SCALE = {"": 1e-9, "K": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3}


def _of_text(text: str) -> Reading:
    """The last line of the receiver: the sum, where there are several streams."""
    if line := first_line(text, "iperf3: error"):
        return _error(line.removeprefix("iperf3: error - "), began="[ ID]" in text)
    found = list(_RECEIVED.finditer(text))
    rate = number_in(found[-1][1]) if found else None
    if rate is None or "iperf Done." not in text:
        return not_measured("no JSON of `iperf3 -J`, or not all of it", unit="Gb/s")
    value = rate * _SCALE[found[-1][2]]
    return Reading(status=Status.MEASURED, text="", value=value, unit="Gb/s", ranks=2)


def _error(why: str, *, began: bool = False) -> Reading:
    said = f"`{clean(why, 120)}`"
    if began and not any(part in why for part in _NEVER_BEGAN):
        return failed(f"it broke after traffic began: {said}", unit="Gb/s")
    return not_measured(f"it never began: {said}", unit="Gb/s")


def _results(found: Table) -> tuple[Reading, ...]:
    """What arrived; with `--bidir` one more, of the other direction."""
    end = as_table(found.get("end"))
    sides = ("sum_received", "sum_received_bidir_reverse")
    rates = [
        (side, as_table(end.get(side)).get("bits_per_second")) for side in sides if side in end
    ]
    whole = [(side, float(rate)) for side, rate in rates if number(rate) and rate > 0]
    if not whole:
        return (not_measured("`end` has no `sum_received`: the run was cut off", unit="Gb/s"),)
    cpu = max(_percent(end, "host_total"), _percent(end, "remote_total"))
    if cpu >= _BUSY:
        why = f"one core was {min(cpu, 100):.0f} % busy: the CPU was measured, not the link"
        return (not_measured(why, unit="Gb/s"),)
    return tuple(
        Reading(
            status=Status.MEASURED,
            value=rate / 1e9,
            unit="Gb/s",
            ranks=2,
            hosts=_hosts(found),
            text=", ".join(filter(None, (_resent(end, side), "the other direction" if "reverse" in side else ""))),
        )
        for side, rate in whole
    )  # fmt: skip


def _percent(end: Table, which: str) -> float:
    value = as_table(end.get("cpu_utilization_percent")).get(which)
    return float(value) if number(value) else 0.0


def _resent(end: Table, side: str) -> str:
    count = as_table(end.get(side.replace("received", "sent"))).get("retransmits")
    return f"{count} retransmits" if type(count) is int and count > 0 else ""


def _hosts(found: Table) -> tuple[str, ...]:
    """The addresses of both ends."""
    connected = tables(found.get("start"), "connected")
    first = connected[0] if connected else {}
    ends = (first.get(key) for key in ("local_host", "remote_host"))
    return unique([clean(one, 60) for one in ends if isinstance(one, str) and one])
