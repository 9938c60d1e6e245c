"""The network between two nodes: iperf3 over TCP; perftest (`ib_write_bw`,
`ib_read_lat`, …) and rping over RDMA.

For perftest the text is read, never `--out_json`: in version 4.5 that is not valid
JSON, and has a value even after a failure.
"""

import re
from collections.abc import Sequence
from math import ceil, log2
from typing import ClassVar

from rankdeck.acceptance.output_text import (
    Layout,
    Row,
    first_line,
    line_at,
    lines_of,
    object_in,
    object_tables,
    parse_cell_integer,
    split_runs,
    table_rows,
    unique_names,
)
from rankdeck.acceptance.recipe import (
    NEVER_BEGAN,
    Commands,
    Endpoints,
    ExpectedResult,
    HardwareFacts,
    OutputReading,
    Traits,
    all_of,
    failed_reading,
    not_measured,
    rdma_write,
    refused_reading,
    tcp_link,
)
from rankdeck.acceptance.values import Outcome
from rankdeck.model.field_checks import is_integer, is_number
from rankdeck.model.job_spec import Launch
from rankdeck.model.json_tables import Table, as_table
from rankdeck.model.safe_text import clean_line
from rankdeck.values import replace

_BUSY = 95.0
"""From this percentage of one core on, the CPU was measured, not the link."""
_CONNECT = ("--connect-timeout", "5000")
"""Connect time-out in ms; without it the system tries for two
minutes if a firewall drops packets.
"""
_NEVER_BEGAN = (
    "unable to connect",
    "server is busy",
    "unable to start listener",
    "Bad file descriptor",
)
_INTERRUPTED = "interrupt - "
"""One end was stopped by somebody, which is not a fault of the path."""


_BEGINS = (
    r'^ ?(?:\{"event": ?"start"(?:(?:.*\n\s{0,9}\{"event")*+.*\n\s{0,9}\{(?!"event"))?|\{(?!"event")'
    r"|Connecting to host |iperf3: error - unable to connect)"
)
"""The object that --json-stream-full-output adds after its events is not another run."""


class Iperf3:
    """iperf3 from the first node to the last; the server serves one client and ends."""

    name: ClassVar[str] = "iperf3"
    needs: ClassVar[tuple[str, ...]] = ("iperf3",)
    one_node: ClassVar[bool] = False
    traits: ClassVar[Traits] = Traits(
        unit="Gb/s",
        directed=True,
        tolerance=0.10,
        seconds=4.0,
        fabric="network",
        mark=(
            r"Connecting to host |\[ ID\]|iperf3: |Server listening on |iperf"
            r" Done|\{\"event\"|(?<![ \t])[ \t]*\"start\":"
        ),
        begins=_BEGINS,
    )

    def commands(self, where: Endpoints) -> Commands:
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
        # With --json-stream-full-output the same follows the events once more.
        found = events or object_in(text)
        if found is None:
            return _of_text(text)
        # Versions before 3.10 write the error after the object.
        line = "" if found.get("end") else first_line(text, "iperf3: error - ")
        if error := found.get("error") or line.removeprefix("iperf3: error - "):
            return (_error(str(error), began=bool(found.get("intervals"))),)
        return _results(found)

    def expect(self, reading: OutputReading, known: HardwareFacts) -> ExpectedResult | None:
        return tcp_link(reading, known)


def _of_stream(text: str) -> Table | None:
    """The events of `--json-stream`, one per line, joined to the object that `-J` writes."""
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
"""Before 3.7, UDP has no line of the receiver, only what was sent and the share that was lost."""
_ROW = re.compile(r"^ ?\[(?: {0,3}\d{1,4}|SUM)\].{1,80}?/sec", re.MULTILINE)
"""A line of an interval; its header is printed before any traffic."""
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
"""Rates with `-f M` and similar options; units of bits are powers of
ten, those of bytes powers of two.
"""


def _of_text(text: str) -> tuple[OutputReading, ...]:
    """The last line of the receiver in each direction; the sum if there are several streams."""
    client, server, behind = text.partition("\nServer output:\n")
    text = f"{client}\niperf Done." if server and "iperf Done." in behind else client
    if line := first_line(text, "iperf3: error"):
        return (_error(line.removeprefix("iperf3: error - "), began=bool(_ROW.search(text))),)
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
    hosts = unique_names(ends.groups()) if ends else ()
    return tuple(replace(one, hosts=hosts) for one in whole) or (
        not_measured("no line of the receiver", unit="Gb/s"),
    )


def _of_line(
    role: str | None, rate: str, factor: str, unit: str, lost: str | None
) -> OutputReading:
    value = float(rate) * (_SCALE if unit == "bits" else _SCALE_BYTES)[factor]
    if not value:
        return failed_reading(_NOTHING, unit="Gb/s")
    notes = (f"{lost} % lost" if lost and lost != "0" else "", _REVERSE if role == "[RX-C]" else "")
    note = ", ".join(filter(None, notes))
    return OutputReading(status=Outcome.MEASURED, text=note, value=value, unit="Gb/s", ranks=2)


def _error(why: str, *, began: bool = False) -> OutputReading:
    quoted = f"`{clean_line(why, 120)}`"
    if why.startswith(_INTERRUPTED):
        return not_measured(f"it was stopped: {quoted}", unit="Gb/s")
    if began and not any(part in why for part in _NEVER_BEGAN):
        return failed_reading(f"it broke after traffic began: {quoted}", unit="Gb/s")
    return not_measured(f"{NEVER_BEGAN}: {quoted}", unit="Gb/s")


def _results(found: Table) -> tuple[OutputReading, ...]:
    """What arrived; with `--bidir` a second result for the other direction."""
    end = as_table(found.get("end"))
    end = end | _of_both_ways(end)
    sides = ("sum_received", "sum_received_bidir_reverse")
    rates = [
        (side, as_table(end.get(side)).get("bits_per_second")) for side in sides if side in end
    ]
    if found.get("intervals") and any(rate == 0 for _, rate in rates):
        # A server does not know what arrived at the client.
        serves = "accepted_connection" in as_table(found.get("start"))
        return (
            not_measured(_SERVER, unit="Gb/s") if serves else failed_reading(_NOTHING, unit="Gb/s"),
        )
    rates = rates or _of_old_udp(found)
    whole = [(side, float(rate)) for side, rate in rates if is_number(rate) and rate > 0]
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
    """The sums of `--bidir` before 3.10, when both directions had the
    same names; streams tell them apart.
    """
    streams = object_tables(end, "streams")
    ways = [as_table(one.get("sender")).get("sender") for one in streams]
    if "sum_received_bidir_reverse" in end or not (True in ways and False in ways):
        return {}
    return {
        f"sum_{what}{name}": {
            key: sum(
                value
                for one, sends in zip(streams, ways, strict=True)
                if sends is way and is_number(value := as_table(one.get(side)).get(key))
            )
        }
        for way, name in ((True, ""), (False, "_bidir_reverse"))
        for what, side, key in (
            ("received", "receiver", "bits_per_second"),
            ("sent", "sender", "retransmits"),
        )
    }


def _of_old_udp(found: Table) -> list[tuple[str, float]]:
    """Before 3.10, UDP has one sum: what was sent and the share that
    was lost; in reverse, what arrived.
    """
    end, asked = (
        as_table(found.get("end")),
        as_table(as_table(found.get("start")).get("test_start")),
    )
    total = as_table(end.get("sum"))
    rate, lost = total.get("bits_per_second"), total.get("lost_percent")
    if asked.get("protocol") != "UDP" or not is_number(rate) or not is_number(lost):
        return []
    return [("sum", rate if asked.get("reverse") else rate * (1 - lost / 100))]


_REVERSE = "the other direction"
_THREADED = (3, 16)
"""From this version on, each stream has its own thread and so its own core."""


def _threads(found: Table) -> int:
    start = as_table(found.get("start"))
    version = re.search(r"(\d{1,3})\.(\d{1,3})", str(start.get("version", ""))[:40])
    asked = as_table(start.get("test_start"))
    streams = asked.get("num_streams")
    if version is None or tuple(map(int, version.groups())) < _THREADED or not is_integer(streams):
        return 1
    return max(1, streams) * (2 if asked.get("bidir") else 1)


def _lost(end: Table, side: str) -> str:
    """Words for the packets lost with UDP; "" if none."""
    percent = as_table(end.get(side)).get("lost_percent")
    return f"{percent:.3g} % lost" if is_number(percent) and percent > 0 else ""


def _limit(found: Table) -> str:
    """Words for the limit that `-b` set for each stream, which was
    then measured instead of the link.
    """
    rate = as_table(as_table(found.get("start")).get("test_start")).get("target_bitrate")
    return f"-b allowed {rate / 1e9:g} Gb/s a stream" if is_number(rate) and rate > 0 else ""


def _percent(end: Table, which: str) -> float:
    value = as_table(end.get("cpu_utilization_percent")).get(which)
    return float(value) if is_number(value) else 0.0


def _resent(end: Table, side: str) -> str:
    count = as_table(end.get(side.replace("received", "sent"))).get("retransmits")
    return f"{count} retransmits" if type(count) is int and count > 0 else ""


def _hosts(found: Table) -> tuple[str, ...]:
    """The addresses of both ends."""
    connected = object_tables(found.get("start"), "connected")
    first = connected[0] if connected else {}
    ends = (first.get(key) for key in ("local_host", "remote_host"))
    return unique_names([clean_line(one, 60) for one in ends if isinstance(one, str) and one])


_LAYOUT = Layout("#bytes", "#iterations", re.compile(r"(?:BW |[\d.]{1,8}% )?\S+"))
_MIB = (1 << 20) * 8 / 1e9
_BANDWIDTH = {
    "BW average[Gb/sec]": 1.0,
    "BW average[MB/sec]": _MIB,
    "BW average[MiB/sec]": _MIB,
}
"""Column -> Gb/s in one of its unit: perftest's MB is 2^20, and since 2022 it says so."""
_LATENCY = ("t_typical[usec]", "t_avg[usec]")
_NO_NUMBER = re.compile(r"-?(inf|nan)\Z")
_AGAIN = "measure again on an idle node"
_STATUS = re.compile(r"Failed status(?: |-[^()\n]{0,80}\()(\d{1,3})\)?:")
"""Since 2025 the name comes first; `ibv_rc_pingpong` has no colon there."""
_MEANS = {
    "9": "; both ends must run the same program",
    "10": ": the other end refused the access",
    "12": ": the other end did not answer; the path loses packets, or it died",
    "13": ": the other end was not ready to receive",
}
"""Status of a completion -> what it says."""
_AFTER = (
    *("Completion with error", "Failed to complete", "VALIDATION: FAILED"),
    *("Bad wc status", "poll CQ failed", "CQ error status"),
)
"""Messages after traffic began; such a failure counts."""
_GONE = ("Couldn't read remote address", "Failed to exchange data")
"""The other end went away; this counts as a failure if a row shows that traffic had begun."""
_TOO_SLOW = re.compile(
    r"^.{0,40}result is below bw limit|^.{0,40}is below msg_rate limit", re.MULTILINE
)
"""The limits of `--limit_bw` and `--limit_msgrate` were not reached."""
_BEFORE = (
    "Couldn't connect",
    "Unable to init the socket connection",
    "Couldn't listen to port",
    "Unable to find the Infiniband/RoCE device",
    "IB device",
    "Failed to modify QP",
    "unable to bind",
)
"""Messages from before any traffic: another port or device may work, and
nothing is learned about the nodes.
"""
_WAITS = "Waiting for client to connect"
_UNTIMED = "Correlation coefficient"
_MTU = re.compile(r"\bMtu\s*:\s*(\d{3,5})\[?B\b")
_SEPARATE = re.compile(r"^ ?Local results:", re.MULTILINE)
"""With `--report-both`, the tables of each direction follow that of both."""
_BOTH_WAYS = re.compile(r" Bidirectional .{0,40}BW Test")
_HEADLINE = re.compile(
    r"^ +(Send|RDMA_Write|RDMA_Read|Atomic)\S{0,9} (?:\w+ ){0,4}?(BW|Latency) .{0,40}Test *$",
    re.MULTILINE,
)
_VERBS = {
    "Send": "ib_send",
    "RDMA_Write": "ib_write",
    "RDMA_Read": "ib_read",
    "Atomic": "ib_atomic",
}
_TESTS = {"BW": "_bw", "Latency": "_lat"}
_INFINIBAND = re.compile(r"Link type\s*:\s*IB\b")
_TWO_PORTS = re.compile(r"Dual-port\s*:\s*ON")


class _Perftest:
    """What all programs of perftest share."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    one_node: ClassVar[bool] = False
    traits: ClassVar[Traits]
    options: ClassVar[tuple[str, ...]]

    def commands(self, where: Endpoints) -> Commands:
        """Both ends must run the same program: write against read breaks both."""
        seconds = str(where.seconds or 3)
        # A latency is that of so many messages, or of the time that was asked for.
        chosen = (
            ("-D", _SECOND) if where.seconds and self.options == _FIVE_THOUSAND else self.options
        )
        options = [seconds if word == _SECOND else word for word in chosen]
        argv = (self.name, *options, *_patient(where), "-F", "-p", str(where.port))
        return Commands(
            launch=Launch.PLAIN,
            argv=(*argv, *_device(where, where.nodes[0]), where.receiver),
            server=(*argv, *_device(where, where.nodes[-1])),
            waits=("Couldn't connect to",),
        )

    def read(self, text: str) -> tuple[OutputReading, ...]:
        """The results of each run; runs of other programs only if there is none of this one."""
        runs = list(split_runs(text, _BANNER, _TABLE))
        if _are_mixed(runs):
            return (refused_reading(_MIXED, unit=self.traits.unit),)
        mine = [run for run in runs if _program(run) in ("", self.name)]
        return tuple(_read(run, self.name, self.traits.unit) for run in mine or runs)

    def expect(self, reading: OutputReading, known: HardwareFacts) -> ExpectedResult | None:
        return None if self.traits.lower_is_better else rdma_write(reading, known)


_USUAL_TIMEOUT, _LONGEST_TIMEOUT = 14, 31
"""An acknowledgement may take 4 µs × 2 to this power, before a packet is sent again."""


def _patient(where: Endpoints) -> tuple[str, ...]:
    """The option with which a slow node gets `patience` times as long for an acknowledgement."""
    if where.patience <= 1:
        return ()
    power = _USUAL_TIMEOUT + ceil(log2(where.patience))
    return ("-u", str(min(power, _LONGEST_TIMEOUT)))


_MIXED = "two clients wrote into one file at the same time: nobody can say whose row is whose; give each a file of its own"


def _are_mixed(runs: Sequence[str]) -> bool:
    """Whether a run has no row, and another has rows behind the end of its
    table that may be those of the first.
    """
    counts = [
        (len(list(table_rows(_table(run), _LAYOUT))), len(list(table_rows(run, _LAYOUT))))
        for run in runs
    ]
    apart = any(map(_SEPARATE.search, runs))
    return not apart and (0, 0) in counts and any(every > own for own, every in counts)


def _device(where: Endpoints, node: str) -> tuple[str, ...]:
    """The options for the device of one end."""
    device, _, port = where.devices.get(node, "").partition(":")
    return (*(("-d", device) if device else ()), *(("-i", port) if port else ()))


def _program(text: str) -> str:
    """The program that the heading names; "" if there is none."""
    found = _HEADLINE.search(text)
    return _VERBS[found[1]] + _TESTS[found[2]] if found else ""


def _read(text: str, program: str, unit: str) -> OutputReading:
    """The largest size of the table; a failure after traffic began counts more than any row."""
    table = list(table_rows(_table(text), _LAYOUT))
    if (other := _program(text)) not in ("", program):
        return refused_reading(f"this is the output of {other}, not of {program}", unit=unit)
    if status := _STATUS.search(text):
        why = line_at(text, status.start()).partition(status[0])[2]
        means = _MEANS.get(status[1], "")
        return failed_reading(f"it broke after traffic began: `{status[0]}{why[:120]}`{means}")
    if line := first_line(text, *_AFTER, *(_GONE if table else ())):
        return failed_reading(f"it broke after traffic began: `{_message(line)}`")
    if not table and "test_info" in text:
        return not_measured(
            "this is the file of --out_json, which has a value even after a failure: give what it printed"
        )
    if not table:
        line = first_line(text, *_BEFORE, *_GONE)
        waits = (
            "no result row: this is the server's output, and no client came"
            if _WAITS in text
            else "no result row"
        )
        return not_measured(f"{NEVER_BEGAN}: `{line[:120]}`" if line else waits)
    if line := _TOO_SLOW.search(text):
        return failed_reading(f"it says itself that it is too slow: `{line[0].strip()}`")
    if not _ended(text) and not _is_endless(text, table):
        return not_measured("no line behind the table: the run was cut off")
    return _of_row(text, table, unit)


def _table(text: str) -> str:
    """The text up to the line of dashes after the rows, or after those of both directions."""
    both = _SEPARATE.split(text, maxsplit=1)[0]
    end = both.find("\n--------", max(both.find("#bytes"), 0))
    return both if end < 0 else both[:end]


def _is_endless(text: str, table: list[Row]) -> bool:
    """Whether the table repeats one size (`--run_infinitely`), and the last row is complete."""
    last = [(row.cell("#sl"), len(row.cells)) for row in table[-2:]]
    sizes = {row.cell("#bytes") for row in table}
    return len(sizes) == 1 and len(last) == 2 and last[0] == last[1] and text.endswith("\n")


def _of_row(text: str, table: list[Row], unit: str) -> OutputReading:
    last = table[-1]
    mtu = _MTU.search(text)
    links = (2 if _BOTH_WAYS.search(text) else 1) * (2 if _TWO_PORTS.search(text) else 1)
    base = OutputReading(
        status=Outcome.NOT_MEASURED,
        text="",
        size=parse_cell_integer(last.cell("#bytes")),
        unit=unit,
        ranks=2,
        facts=({"mtu": mtu[1]} if mtu else {})
        | ({"links": str(links)} if links > 1 else {})
        | ({"link": "InfiniBand"} if _INFINIBAND.search(text) else {}),
    )
    levels = {row.cell("#sl"): row for row in table if row.cell("#bytes") == last.cell("#bytes")}
    each = [_latency(last)] if unit == "us" else list(map(_bandwidth, levels.values()))
    value = None if None in each else sum(one or 0.0 for one in each)
    if value is None and (odd := next((one for one in last.cells if _NO_NUMBER.match(one)), "")):
        # In a run by time nothing came back between its warm-up and its end.
        return replace(base, text=f"the row says {odd}, nothing was counted: {_AGAIN}")
    if value is None:
        known = set(_LATENCY if unit == "us" else _BANDWIDTH).intersection(last.header)
        why = (
            "the last row is not complete"
            if known
            else f"the table has no {unit}: it is of another program"
        )
        return replace(base, text=why)
    if value <= 0:
        why = (
            "the clock could not be calibrated (r^2 < 0.9)"
            if _UNTIMED in text
            else "the row says 0"
        )
        return replace(base, text=f"{why}: {_AGAIN}")
    lost = sum(1 for row in table if (_latency(row) if unit == "us" else _bandwidth(row)) == 0)
    notes = (
        "both directions together" if _BOTH_WAYS.search(text) else "",
        "both ports together" if _TWO_PORTS.search(text) else "",
        f"{len(levels)} service levels together" if len(levels) > 1 else "",
        "" if _ended(text) else "its last report on the way",
        f"{lost} smaller sizes were not measured" if lost else "",
    )
    return replace(base, status=Outcome.MEASURED, value=value, text=", ".join(filter(None, notes)))


def _bandwidth(row: Row) -> float | None:
    """The average bandwidth; the peak is 0 with `-D`."""
    for column, factor in _BANDWIDTH.items():
        if (value := row.number(column)) is not None:
            return value * factor
    return None


def _latency(row: Row) -> float | None:
    return next((value for name in _LATENCY if (value := row.number(name)) is not None), None)


def _ended(text: str) -> bool:
    """Whether the line of dashes that closes the table is there."""
    _, _, behind = text.rpartition("#bytes")
    return "--------" in behind


def _message(line: str) -> str:
    """Only the message; stderr may follow a row on the same line."""
    for part in (*_AFTER, *_GONE):
        if part in line:
            return line[line.index(part) :][:120]
    return line[:120]


_SECOND = "{seconds}"
_SECONDS = ("-D", _SECOND, "--report_gbits")
_FIVE_THOUSAND = ("-n", "5000")
_BANNER = r"^-{20,}\s{1,30}(?:RDMA_|Send|Raw|Atomic).{0,80}Test *$"
_TABLE = r"^ *#bytes"
_MARK = r"(?<![ \t])[ \t]*#bytes[ \t]+#iterations|-{60}|(?<![ \t])[ \t]+(?:RDMA_|Send|Raw|Atomic).{0,80}Test"
_GBPS = Traits(
    unit="Gb/s", directed=True, tolerance=0.05, seconds=5.0, fabric="rdma", mark=_MARK
)  # fmt: skip
_USEC = Traits(
    unit="us",
    directed=True,
    lower_is_better=True,
    tolerance=0.20,
    seconds=3.0,
    fabric="rdma",
    mark=_MARK,
)


class WriteBandwidth(_Perftest):
    """ib_write_bw."""

    name: ClassVar[str] = "ib_write_bw"
    needs: ClassVar[tuple[str, ...]] = ("rdma", "ib_write_bw")
    options, traits = _SECONDS, _GBPS


class ReadBandwidth(_Perftest):
    """ib_read_bw."""

    name: ClassVar[str] = "ib_read_bw"
    needs: ClassVar[tuple[str, ...]] = ("rdma", "ib_read_bw")
    options, traits = _SECONDS, _GBPS


class SendBandwidth(_Perftest):
    """ib_send_bw."""

    name: ClassVar[str] = "ib_send_bw"
    needs: ClassVar[tuple[str, ...]] = ("rdma", "ib_send_bw")
    options, traits = _SECONDS, _GBPS


class WriteLatency(_Perftest):
    """ib_write_lat."""

    name: ClassVar[str] = "ib_write_lat"
    needs: ClassVar[tuple[str, ...]] = ("rdma", "ib_write_lat")
    options, traits = _FIVE_THOUSAND, _USEC


class ReadLatency(_Perftest):
    """ib_read_lat."""

    name: ClassVar[str] = "ib_read_lat"
    needs: ClassVar[tuple[str, ...]] = ("rdma", "ib_read_lat")
    options, traits = _FIVE_THOUSAND, _USEC


class SendLatency(_Perftest):
    """ib_send_lat."""

    name: ClassVar[str] = "ib_send_lat"
    needs: ClassVar[tuple[str, ...]] = ("rdma", "ib_send_lat")
    options, traits = _FIVE_THOUSAND, _USEC


PINGS = 10
_PING = re.compile(r"^ping data: rdma-ping-(\d{1,9}):", re.MULTILINE)
_ASKED = re.compile(r"^count (\d{1,9})$|\brping\b.{0,200}? -C ?(\d{1,9})\b", re.MULTILINE)
_CONNECTED = re.compile(
    r"^(?:ESTABLISHED|client DISCONNECT EVENT|rmda_connect successful)", re.MULTILINE
)
_STOPPED_SHORT = re.compile(
    r"^wait for RDMA_(?:READ|WRITE)_ADV state|^cq completion failed status (?!5$)\d", re.MULTILINE
)
"""Status 5 (flushed) is normal at the end: requests wait in a
queue when the connection is closed.
"""
_RPING_ERRORS = (
    "cma event RDMA_CM_EVENT_",
    "rdma_connect",
    "cq completion failed",
    "connect error",
    "data mismatch",
    "getaddrinfo failed",
)


class Rping:
    """rping: the RDMA connection manager and a few round trips; shows
    whether RDMA works, not how fast.
    """

    name: ClassVar[str] = "rping"
    needs: ClassVar[tuple[str, ...]] = ("rdma", "rping")
    one_node: ClassVar[bool] = False
    traits: ClassVar[Traits] = Traits(
        unit="pings",
        directed=True,
        tolerance=0.0,
        seconds=2.0,
        mark=r"(?:server )?ping data: |cma_event type |rdma_resolve_addr",
    )

    def commands(self, where: Endpoints) -> Commands:
        port = ("-p", str(where.port), "-C", str(PINGS))
        address = ("-a", where.receiver)
        return Commands(
            launch=Launch.PLAIN,
            argv=("rping", "-c", "-V", "-v", *address, *port),
            server=("rping", "-s", "-V", "-v", *address, *port),
            waits=("rdma_connect: Connection refused", "cma event RDMA_CM_EVENT_REJECTED"),
        )

    def read(self, text: str) -> tuple[OutputReading, ...]:
        """The client's pings, compared with the number requested; the server's
        last event is always a disconnect.
        """
        seen = {int(number) for number in _PING.findall(text)}
        asked = _ASKED.search(text)
        wanted = int(asked[1] or asked[2]) if asked else len(seen)
        if "data mismatch" in text:
            return (failed_reading("wrong values: a ping came back changed", unit="pings"),)
        if not seen and ("server received sink adv" in text or "server ping data" in text):
            return (
                not_measured(
                    "this is the server's output: the client's says how many pings came back",
                    ranks=2,
                ),
            )
        if not seen:
            line = first_line(text, *_RPING_ERRORS)
            hint = (
                ": it connected, but only `-v` prints the pings" if _CONNECTED.search(text) else ""
            )
            return (
                not_measured(
                    f"no ping came back: `{line[:120]}`" if line else f"no pings in it{hint}"
                ),
            )
        first = next(number for number in range(len(seen) + 1) if number not in seen)
        if first < max(seen):
            why = f"ping {first} is missing: the output was cut off"
            return (not_measured(why, unit="pings"),)
        if not asked and (short := _STOPPED_SHORT.search(text)):
            line = line_at(text, short.start())
            why = f"it broke after {len(seen)} pings: `{line[:120]}`"
            return (failed_reading(why, unit="pings"),)
        if len(seen) < wanted:
            return (
                failed_reading(
                    f"{len(seen)} of {wanted} pings came back, then it broke", unit="pings"
                ),
            )
        unknown = "" if asked else "how many were asked for is not in it"
        count = float(len(seen))
        return (
            OutputReading(
                status=Outcome.MEASURED, text=unknown, value=count, unit="pings", ranks=2
            ),
        )

    def expect(self, reading: OutputReading, known: HardwareFacts) -> ExpectedResult | None:
        of = "came back" if reading.text else "were asked for"
        return all_of(reading, of, "RDMA works between the two")
