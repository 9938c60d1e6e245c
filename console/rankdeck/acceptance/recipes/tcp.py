"""iperf3: TCP between two nodes, by the JSON of `-J`, which ends with 0 also after a failure."""

import re
from dataclasses import replace
from typing import ClassVar

from rankdeck.acceptance.expectations import tcp_link
from rankdeck.acceptance.output_text import (
    as_table,
    first_line,
    lines_of,
    object_in,
    tables,
    unique,
)
from rankdeck.acceptance.recipe import (
    Commands,
    ExpectedResult,
    Known,
    OutputReading,
    Traits,
    Where,
    failed,
    not_measured,
)
from rankdeck.model.acceptance import Outcome
from rankdeck.model.job import Launch
from rankdeck.model.text import Table, clean, integer, number

_BUSY = 95.0
"""Percent of one core: from here on the CPU was measured, not the link."""
_CONNECT = ("--connect-timeout", "5000")
"""Milliseconds; without it the system asks for two minutes where a firewall drops what is sent."""
_NEVER_BEGAN = (
    "unable to connect",
    "server is busy",
    "unable to start listener",
    "Bad file descriptor",
    "control socket has closed",
)
_INTERRUPTED = "interrupt - "
"""Somebody stopped one end: no fault of the path."""


_BEGINS = (
    r'^ ?(?:\{"event": ?"start"(?:(?:.*\n\s{0,9}\{"event")*+.*\n\s{0,9}\{(?!"event"))?|\{(?!"event")'
    r"|Connecting to host |iperf3: error - unable to connect)"
)
"""The object that --json-stream-full-output puts behind its events is no other run."""


class Iperf3:
    """iperf3 from the first node to the last; the server serves one client and ends."""

    name: ClassVar[str] = "iperf3"
    traits: ClassVar[Traits] = Traits(
        unit="Gb/s",
        directed=True,
        tolerance=0.10,
        seconds=4.0,
        fabric="network",
        mark=r"Connecting to host |\[ ID\]|iperf3: |Server listening on |iperf Done|\{\"event\"|(?<![ \t])[ \t]*\"start\":",
        begins=_BEGINS,
    )

    def commands(self, where: Where) -> Commands:
        port = ("-p", str(where.port))
        time = ("-t", str(where.seconds)) if where.seconds else ("-t", "3", "-O", "1")
        return Commands(
            launch=Launch.PLAIN,
            argv=("iperf3", "-c", where.receiver, *port, *time, *_CONNECT, "-J"),
            server=("iperf3", "-s", "-1", *port),
            waits=("unable to connect to server",),
        )

    def read(self, text: str) -> tuple[OutputReading, ...]:
        events = _of_stream(text)
        # With --json-stream-full-output the same stands behind the events once more.
        found = events or object_in(text)
        if found is None:
            return _of_text(text)
        # Versions before 3.10 write the error behind the object.
        line = "" if found.get("end") else first_line(text, "iperf3: error - ")
        if error := found.get("error") or line.removeprefix("iperf3: error - "):
            return (_error(str(error), began=bool(found.get("intervals"))),)
        return _results(found)

    def expect(self, reading: OutputReading, known: Known) -> ExpectedResult | None:
        return tcp_link(reading, known)


def _of_stream(text: str) -> Table | None:
    """Of `--json-stream`: an event a line, joined into what `-J` writes."""
    if _EVENT not in text:
        return None
    events = [
        one for line in lines_of(text) if line.startswith(_EVENT) and (one := object_in(line))
    ]
    found = {str(one.get("event")): one.get("data") for one in events}
    if not found.keys() & {"end", "error"}:
        return None
    parts = {name: found[name] for name in ("start", "end", "error") if name in found}
    return parts | {"intervals": [found["interval"]] if "interval" in found else []}


_EVENT = '{"event"'
_ENDS = re.compile(r"\] local (\S{1,60}) port \d{1,5} connected to (\S{1,60}) port")
_RECEIVED = re.compile(
    r"^ ?\[(?: {0,3}\d{1,4}|SUM)\](\[..-.\])?.{1,80}? (\d{1,9}(?:\.\d{1,9})?) ([KMGT]?)(bits|Bytes)/sec(?:.{0,60}\((\d[\d.e+-]{0,9})%\))?.{0,60}receiver",
    re.MULTILINE,
)
_OLD_UDP = re.compile(
    r"^ ?\[(?: {0,3}\d{1,4}|SUM)\].{1,80}? (\d{1,9}(?:\.\d{1,9})?) ([KMGT]?)(bits|Bytes)/sec +[\d.]{1,12} ms +\d{1,12}/\d{1,12} \((\d[\d.e+-]{0,9})%\) *$",
    re.MULTILINE,
)
"""Before 3.7 UDP has no line of the receiver: what was sent, and the share of it that was lost."""
_SERVER = "this is the server's output: give the client's"
_NOTHING = "it connected, but no data arrived: large packets are lost on the way (compare the MTU of both ends), or a firewall stops them"
_SCALE = {"": 1e-9, "K": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3}
_SCALE_BYTES = {
    "": 8e-9,
    "K": 8e-9 * 2**10,
    "M": 8e-9 * 2**20,
    "G": 8e-9 * 2**30,
    "T": 8e-9 * 2**40,
}
"""With `-f M` and its like; its units of bits are powers of ten, those of bytes of two."""


def _of_text(text: str) -> tuple[OutputReading, ...]:
    """The last line of the receiver in each direction: the sum, where there are several streams."""
    client, server, behind = text.partition("\nServer output:\n")
    text = f"{client}\niperf Done." if server and "iperf Done." in behind else client
    if line := first_line(text, "iperf3: error"):
        return (_error(line.removeprefix("iperf3: error - "), began="[ ID]" in text),)
    if "iperf Done." not in text:
        server = "Server listening on" in text
        why = (
            _SERVER
            if server
            else "this is iperf 2, which says nothing of the receiver: use iperf3"
            if "Client connecting to" in text
            else "the run was cut off: `iperf Done.` is missing"
            if "[ ID]" in text
            else "no JSON of `iperf3 -J`, or not all of it"
        )
        return (not_measured(why, unit="Gb/s"),)
    received = list(_RECEIVED.finditer(text))
    rates = {found[1]: found for found in received}
    many = "[SUM]" in text or len({found[0].partition("]")[0] for found in received}) > len(rates)
    if many and not all(found[0].lstrip().startswith("[SUM]") for found in rates.values()):
        return (not_measured("no line of the receiver with the sum of all streams", unit="Gb/s"),)
    whole = tuple(_of_line(*found.groups()) for found in rates.values())
    if not whole and (old := list(_OLD_UDP.finditer(text))):
        rate, factor, unit, lost = old[-1].groups()
        whole = (_of_line(None, str(float(rate) * (1 - float(lost) / 100)), factor, unit, lost),)
    ends = _ENDS.search(text)
    hosts = unique(ends.groups()) if ends else ()
    return tuple(replace(one, hosts=hosts) for one in whole) or (
        not_measured("no line of the receiver", unit="Gb/s"),
    )


def _of_line(
    role: str | None, rate: str, factor: str, unit: str, lost: str | None
) -> OutputReading:
    value = float(rate) * (_SCALE if unit == "bits" else _SCALE_BYTES)[factor]
    if not value:
        return failed(_NOTHING, unit="Gb/s")
    notes = (f"{lost} % lost" if lost and lost != "0" else "", _REVERSE if role == "[RX-C]" else "")
    note = ", ".join(filter(None, notes))
    return OutputReading(status=Outcome.MEASURED, text=note, value=value, unit="Gb/s", ranks=2)


def _error(why: str, *, began: bool = False) -> OutputReading:
    said = f"`{clean(why, 120)}`"
    if why.startswith(_INTERRUPTED):
        return not_measured(f"it was stopped: {said}", unit="Gb/s")
    if began and not any(part in why for part in _NEVER_BEGAN):
        return failed(f"it broke after traffic began: {said}", unit="Gb/s")
    return not_measured(f"it never began: {said}", unit="Gb/s")


def _results(found: Table) -> tuple[OutputReading, ...]:
    """What arrived; with `--bidir` one more, of the other direction."""
    end = as_table(found.get("end"))
    end = end | _of_both_ways(end)
    sides = ("sum_received", "sum_received_bidir_reverse")
    rates = [
        (side, as_table(end.get(side)).get("bits_per_second")) for side in sides if side in end
    ]
    if found.get("intervals") and any(rate == 0 for _, rate in rates):
        # A server knows nothing of what arrived at the client.
        serves = "accepted_connection" in as_table(found.get("start"))
        return (not_measured(_SERVER, unit="Gb/s") if serves else failed(_NOTHING, unit="Gb/s"),)
    rates = rates or _of_old_udp(found)
    whole = [(side, float(rate)) for side, rate in rates if number(rate) and rate > 0]
    if not whole:
        return (not_measured("`end` has no `sum_received`: the run was cut off", unit="Gb/s"),)
    cpu = max(_percent(end, "host_total"), _percent(end, "remote_total")) / _threads(found)
    if cpu >= _BUSY:
        why = f"one core was {min(cpu, 100):.0f} % busy: the CPU was measured, not the link"
        return (not_measured(why, unit="Gb/s"),)
    return tuple(
        OutputReading(
            status=Outcome.MEASURED,
            value=rate / 1e9,
            unit="Gb/s",
            ranks=2,
            hosts=_hosts(found),
            text=", ".join(filter(None, (_resent(end, side), _lost(end, side), _limit(found), _REVERSE if "reverse" in side else ""))),
        )
        for side, rate in whole
    )  # fmt: skip


def _of_both_ways(end: Table) -> Table:
    """The sums of `--bidir` before 3.10, where those of both directions have the same names: their streams tell them apart."""
    streams = tables(end, "streams")
    ways = [as_table(one.get("sender")).get("sender") for one in streams]
    if "sum_received_bidir_reverse" in end or not (True in ways and False in ways):
        return {}
    return {
        f"sum_{what}{name}": {
            key: sum(
                value for one, sends in zip(streams, ways, strict=True)
                if sends is way and number(value := as_table(one.get(side)).get(key))
            )
        }
        for way, name in ((True, ""), (False, "_bidir_reverse"))
        for what, side, key in (("received", "receiver", "bits_per_second"), ("sent", "sender", "retransmits"))
    }  # fmt: skip


def _of_old_udp(found: Table) -> list[tuple[str, float]]:
    """Before 3.10 UDP has one sum: what was sent, and the share of it that was lost; backwards what arrived."""
    end, asked = (
        as_table(found.get("end")),
        as_table(as_table(found.get("start")).get("test_start")),
    )
    total = as_table(end.get("sum"))
    rate, lost = total.get("bits_per_second"), total.get("lost_percent")
    if asked.get("protocol") != "UDP" or not number(rate) or not number(lost):
        return []
    return [("sum", rate if asked.get("reverse") else rate * (1 - lost / 100))]


_REVERSE = "the other direction"
_THREADED = (3, 16)
"""From this version on each stream has a thread, and so a core, of its own."""


def _threads(found: Table) -> int:
    start = as_table(found.get("start"))
    version = re.search(r"(\d{1,3})\.(\d{1,3})", str(start.get("version", ""))[:40])
    asked = as_table(start.get("test_start"))
    streams = asked.get("num_streams")
    if version is None or tuple(map(int, version.groups())) < _THREADED or not integer(streams):
        return 1
    return max(1, streams) * (2 if asked.get("bidir") else 1)


def _lost(end: Table, side: str) -> str:
    """Of UDP."""
    percent = as_table(end.get(side)).get("lost_percent")
    return f"{percent:.3g} % lost" if number(percent) and percent > 0 else ""


def _limit(found: Table) -> str:
    """What `-b` allowed each stream: then that was measured, not the link."""
    rate = as_table(as_table(found.get("start")).get("test_start")).get("target_bitrate")
    return f"-b allowed {rate / 1e9:g} Gb/s a stream" if number(rate) and rate > 0 else ""


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
