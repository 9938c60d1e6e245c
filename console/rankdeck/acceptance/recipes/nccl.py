"""nccl-tests, rccl-tests and our own all_reduce for torch: tables of busbw, and the JSON of `-J`.

Layouts: nccl-tests `src/util.cu` (2.19.6) and its older versions. `#wrong` was a float `error`
before 2.11, `-I 1` adds columns, `-S` a time stamp with a blank in it; the header line says which
columns there are. rccl-tests has its own JSON and CSV (`-Z`), with a row for each side of each
size.
"""

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from itertools import chain, islice
from statistics import median
from typing import ClassVar, cast

from rankdeck.acceptance.output_text import (
    CRASHED,
    Layout,
    Row,
    first_line,
    line_at,
    lines_of,
    object_in,
    object_tables,
    parse_cell_integer,
    parse_cell_number,
    split_runs,
    table_rows,
    unique_names,
)
from rankdeck.acceptance.recipe import (
    Commands,
    Endpoints,
    ExpectedResult,
    HardwareFacts,
    OutputReading,
    Traits,
    gpu_network,
    not_measured,
    refused_reading,
)
from rankdeck.acceptance.recipes import node_program_text
from rankdeck.acceptance.values import Outcome
from rankdeck.model.field_checks import is_integer
from rankdeck.model.job_spec import Launch
from rankdeck.model.json_tables import Table, as_table
from rankdeck.model.json_tables import parse_table as parsed
from rankdeck.model.nodeset import fold_ranks
from rankdeck.values import Value, replace

_LAYOUT = Layout("size", "busbw", re.compile(r"\S+"))
_DEVICE = re.compile(
    r"(?:#\s+)?Rank\s+(\d{1,7})\s+(?:Group\s+(\d{1,7})\s+)?(?:Pid\s+\d+\s+)?on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)"
)
_OLD_HEAD = re.compile(r"\bbytes( +)N( +type +)op\b")
"""Layout of the versions of 2017 and 2018."""
_TAG = re.compile(r"\[\d{1,7}(?:,\d{1,7})?\](?:<stdout>)?:?$")
"""Tags of a launcher that tags each piece of a row."""
_BROKEN = re.compile(r"\S: Test (?:(?:NCCL |CUDA |HIP )?failure|timeout)\b")
"""Follows the host or its process and a colon; a text that only
mentions a failure has no colon there.
"""
_IN_USE = ("busy or unavailable", "all CUDA-capable devices are busy")
_NO_GPU = (
    "Invalid number of GPUs",
    "no CUDA-capable device",
    "No HIP GPUs",
    "greater than the number of GPUs available",
    "invalid device ordinal",
)
_NO_MEMORY = ("'out of memory'", "out of memory / ")
_MOST_RUNS = 1000
_MOST_RANKS = 1 << 20
_MOVED = 1e-3
"""If busbw is below this share of algbw, nothing was sent over a network."""


class Device(Value):
    """A line of "Using devices"."""

    rank: int
    group: int
    host: str
    name: str


class NcclReport(Value):
    """The contents of an output, text or JSON."""

    devices: tuple[Device, ...]
    size: int | None
    """Message size of the last row in bytes; None if there is no row."""
    out_of_place: float | None
    in_place: float | None
    algbw: float
    wrong: float
    """Number of wrong values in any row, or out of bounds in the footer."""
    complete: bool
    """Whether the footer is there."""
    too_slow: str = ""
    """What the program prints if the average is below NCCL_TESTS_MIN_BW."""
    program: str = ""
    """Which test it was, if the output says so (since 2.17)."""
    ranks: int = 0
    """The number of ranks, if no lines list them."""
    note: str = ""
    torn: str = ""
    """What is wrong with the last row, if it is not whole."""
    odd: str = ""
    """A busbw of the largest size that is not a finite number: `inf`, `nan`."""

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(one for one in (self.out_of_place, self.in_place) if one is not None)


_SIDES = ("out_of_place", "in_place")
MARK = r"(?:#|(?<![# \t]))[ \t]*(?:nThread \d|size[ \t]+count[ \t]+type|bytes[ \t]+N[ \t]+type)|(?:#|(?<![# \t]))[ \t]+Rank[ \t]+\d{1,7}[ \t]+(?:Group|Pid|on) |# (?:gloo|nccl) all_reduce "
_BEGINS = (
    r"^(?:(?:# |(?=nThread))(?:Collective test starting|nThread |(?:gloo|nccl) all_reduce )"
    r'|\{\s{0,9}"version")'
)
_DONE = f'Avg bus bandwidth|"average_bus_bandwidth"|{_BROKEN.pattern}'


def read_nccl_runs(text: str, program: str = "") -> tuple[OutputReading, ...]:
    """The result of each run, at its largest size. Copies that ran side by side,
    each on its own host, are one refused run.

    If `program` is named, runs that say that they are of another program are skipped.
    """
    runs = list(islice(split_runs(text, _BEGINS, _DONE), _MOST_RUNS))
    mine = [run for run in runs if _named(run).startswith((program, "?"))]
    if not mine:
        return (
            refused_reading(
                f"this is the output of {_named(runs[0])}, not of {program}", unit="GB/s"
            ),
        )
    hosts = {tuple(sorted({m[3] for m in _DEVICE.finditer(run)})) for run in mine} - {()}
    apart = len(hosts) < 2 or all(len(some) > 1 for some in hosts)
    found = tuple(chain.from_iterable(map(_read, mine))) if apart else _read(text)
    # Before 2.17 a suite does not name its tests; only their rows tell them apart.
    wanted = tuple(one for one in found if one.facts.get("program") != _ANOTHER)
    return wanted if program.startswith("all_reduce") and wanted else found


_PROGRAM = re.compile(r"# Collective test (?:starting|concluded): (?:\S{0,200}/)?(\w{1,40})")


def _named(text: str) -> str:
    """The name of the program, if the output has it (since 2.17); else "?"."""
    found = _PROGRAM.search(text)
    return found[1] if found else "?"


def _read(text: str) -> tuple[OutputReading, ...]:
    early = _never_began(text)
    if early is not None:
        return (early,)
    whole = text.lstrip().startswith("{") or _VERSIONED.search(text)
    found = object_in(text) if whole else None
    records = _records(text)
    if found is None and not records and _JSON.match(text):
        why = "the JSON is not complete: the run ended early; read its text instead"
        return (not_measured(why),)
    report = (
        _of_json(found)
        if found is not None
        else _of_records(records)
        if records
        else _of_text(text)
    )
    line = first_line(text, *_NO_MEMORY) if report.size is None and not report.torn else ""
    if line:
        return (not_measured(f"no memory on a GPU, taken or too small: `{line[:120]}`"),)
    crashed = _BROKEN.search(text) or (None if report.complete else CRASHED.search(text))
    broken = line_at(text, crashed.start()) if crashed else ""
    return _of_groups(report, found or {}) or (_judged(report, broken),)


_JSON = re.compile(r"\s*(?:\[\s*)?\{")
_VERSIONED = re.compile(r'^\{\s{0,9}"version"', re.MULTILINE)
"""The JSON of `-J`, after lines of a shell."""


def _never_began(text: str) -> OutputReading | None:
    if line := first_line(text, *_IN_USE):
        return not_measured(f"the GPUs are in use, or in exclusive mode: `{line[:120]}`")
    if line := first_line(text, *_NO_GPU):
        return not_measured(f"not enough GPUs: `{line[:120]}`")
    return None


def _judged(report: NcclReport, broken: str) -> OutputReading:
    """Judge the report: wrong values first, then whether it is one complete run."""
    who = OutputReading(
        status=Outcome.MEASURED,
        text=report.note,
        size=report.size,
        unit="GB/s",
        ranks=len(report.devices) or report.ranks or None,
        hosts=unique_names([device.host for device in report.devices]),
        facts=({"gpu": report.devices[0].name} if report.devices else {})
        | ({"program": report.program} if report.program else {}),
    )
    for status, why in _complaints(report, broken):
        return replace(who, status=status, text=why)
    return replace(
        who,
        value=min(report.values),
        out_of_place=report.out_of_place,
        in_place=report.in_place,
    )


def _complaints(report: NcclReport, broken: str) -> list[tuple[Outcome, str]]:
    """Why there is no result, the worst reason first."""
    ranks = [device.rank for device in report.devices]
    twice = [rank for rank, times in Counter(ranks).items() if times > 1]
    missing = sorted({*range(min(max(ranks, default=0), _MOST_RANKS))} - {*ranks})
    moved = bool(report.values) and min(report.values) > report.algbw * _MOVED
    table = (
        (Outcome.FAILED, bool(broken), f"it broke: `{broken[:160]}`"),
        (Outcome.FAILED, report.wrong > 0, f"wrong values: {report.wrong:g}; memory, GPU or network corrupts data"),
        (Outcome.FAILED, bool(report.too_slow), f"it says itself that it is too slow (NCCL_TESTS_MIN_BW): `{report.too_slow[:120]}`"),
        (Outcome.REFUSED, bool(twice), f"ranks {fold_ranks(twice)} are there twice: separate runs and not one over the network; "
         "the launcher started programs built without MPI, or each was meant to run alone (then give each a file of its own)"),
        (Outcome.NOT_MEASURED, bool(missing), f"no device lines of ranks {fold_ranks(missing)}: the head of the output was cut off"),
        (Outcome.REFUSED, any(device.group for device in report.devices),
         "split mode: the table is the average over all groups and hides the slow one; read the JSON of `-I 1 -J`"),
        (Outcome.NOT_MEASURED, not ranks and not report.ranks, "no `Using devices` lines: nobody can say which hosts this is of"),
        (Outcome.NOT_MEASURED, report.size is None, report.torn or "no result row"),
        (Outcome.NOT_MEASURED, not report.complete, "no footer: the run was cut off"),
        (Outcome.REFUSED, 1 in (len(ranks), report.ranks), "one rank: nothing was moved between GPUs"),
        (Outcome.NOT_MEASURED, not report.values, "the last row has no busbw"),
        (Outcome.NOT_MEASURED, bool(report.odd), f"a busbw of the last size is `{report.odd}`: its time was not measured"),
        (Outcome.REFUSED, not moved, "busbw is 0: nothing was moved between GPUs"),
    )  # fmt: skip
    return [(status, why) for status, holds, why in table if holds]


# ---- text


def _of_text(text: str) -> NcclReport:
    devices = [match for line in lines_of(text) if (match := _DEVICE.match(line.strip()))]
    text = _OLD_HEAD.sub(r"size\1count\2redop", text)
    table = [_whole(row) for row in table_rows(text, _LAYOUT)]
    known = [row for row in table if row]
    # Our own torch program, and `-O 1`, have only one set of columns: one side.
    places = (1, 0) if known and known[-1].header.count("busbw") == 1 else (0, 1)
    size = parse_cell_integer(table[-1].cell("size")) if table and table[-1] else None
    last = [row for row in known if parse_cell_integer(row.cell("size")) == size]
    footer, average = (
        first_line(text, part) for part in ("Out of bounds values", "Avg bus bandwidth")
    )
    speed = _slowest(
        ((row.cell("type"), row.cell("redop"), row.cell("root")), (row.number("busbw", places[0]), row.number("busbw", places[1])))
        for row in last
    )  # fmt: skip
    return NcclReport(
        devices=tuple(
            Device(int(m[1]), int(m[2] or 0), m[3][:255], m[4].strip()[:80]) for m in devices
        ),
        size=size,
        out_of_place=speed[0],
        in_place=speed[1],
        algbw=max((row.number("algbw", n) or 0.0 for row in last for n in (0, 1)), default=0.0),
        wrong=max(
            [
                _out_of_bounds(text),
                *(parse_cell_number(row.cell("#wrong", n)) or 0.0 for row in known for n in (0, 1)),
            ]
        ),
        complete=bool(footer) and bool(average),
        torn=_TORN if table and not table[-1] else "",
        too_slow=average if average.endswith("FAILED") else "",
        program=program
        if (program := _named(text)) != "?"
        else _guessed(map(last[-1].cell, _KIND))
        if last
        else "",
        odd=next(
            (cell for row in last for n in (0, 1) if _is_odd(cell := row.cell("busbw", n))), ""
        ),
    )


_KIND = ("size", "count", "type", "redop", "root")
_ANOTHER = "another test"
_BYTES = {
    1: ("int8", "uint8", "char", "f8e4m3", "f8e5m2"), 2: ("half", "bfloat16"),
    4: ("float", "int32", "uint32", "int"), 8: ("double", "int64", "uint64"),
}  # fmt: skip


def _guessed(row: Iterable[object]) -> str:
    """A name for a test that does not print its own and is not all_reduce, from one of its rows.

    Only all_reduce has an operation, no root, and all of its elements on each rank.
    """
    size, count, kind, operation, root = ("" if cell is None else str(cell).strip() for cell in row)
    each, elements = (
        next((of for of, kinds in _BYTES.items() if kind in kinds), 0),
        parse_cell_integer(count),
    )
    parts = bool(each and elements is not None) and parse_cell_integer(size) != each * (
        elements or 0
    )
    return _ANOTHER if operation in ("", "none") or root not in ("", "-1") or parts else ""


def _is_odd(cell: str) -> bool:
    """Whether the cell is an invalid number; `N/A` is not, because nothing was measured."""
    return bool(cell) and parse_cell_number(cell) is None and cell != "N/A"


_Speeds = tuple[float | None, float | None]
"""Out of place, in place."""


def _slowest(rows: Iterable[tuple[object, _Speeds]]) -> _Speeds:
    """From the rows of the largest size: the best repeat (`-N`) of each kind (`-o
    all`, `-d all`), then the slowest kind.
    """
    kinds: defaultdict[object, list[_Speeds]] = defaultdict(list)
    for kind, speeds in rows:
        kinds[kind].append(speeds)
    best = [
        (_best(one[0] for one in some), _best(one[1] for one in some)) for some in kinds.values()
    ]
    known = [one for one in best if one != (None, None)]
    return min(
        known,
        key=lambda one: min(speed for speed in one if speed is not None),
        default=(None, None),
    )


def _best(speeds: Iterable[float | None]) -> float | None:
    return max((one for one in speeds if one is not None), default=None)


_TORN = "the last row is not whole: it was cut or wrapped, or another line was printed into it"


def _whole(row: Row) -> Row | None:
    """The row, if each column has its cell; a time stamp has two cells, and a
    test without an operation leaves it blank.

    After its last cell another line may begin.
    """
    row = Row(row.header, tuple(_TAG.sub("", cell) if "]" in cell else cell for cell in row.cells))
    if parse_cell_number(row.cell("redop")) is not None:
        row = Row(tuple(name for name in row.header if name != "redop"), row.cells)
    more = len(row.cells) - len(row.header)
    if more in (0, "timestamp" in row.header):
        return row
    speeds = [row.cell(name, which) for name in ("time", "algbw", "busbw") for which in (0, 1)]
    return row if more > 0 and not any(map(_is_odd, speeds)) else None


_OUT_OF_BOUNDS = re.compile(
    r"(?<!`)Out of bounds values[ \t]*:[ \t]*(?:(\d{1,15})\b)?(?:.{0,40}(FAILED))?"
)


def _out_of_bounds(text: str) -> float:
    """The out-of-bounds values in the footer; a line quoted between backticks does not count."""
    found = _OUT_OF_BOUNDS.findall(text)
    return max((float(count or 0) or float(bool(bad)) for count, bad in found), default=0.0)


# ---- JSON


def _of_json(found: Table) -> NcclReport:
    """The JSON of `-J`, version 3: booleans and NaN are text,
    `nwrong` is null if nothing was checked.
    """
    results, bounds = object_tables(found, "results"), as_table(found.get("out_of_bounds"))
    average = as_table(found.get("average_bus_bandwidth"))
    size = results[-1].get("size") if results else None
    last = [row for row in results if row.get("size") == size]
    sides = [as_table(row.get(side)) for row in results for side in _SIDES]
    speed = _slowest(
        (
            str([row.get(key) for key in ("type", "redop", "root")]),
            (_of_side(row, _SIDES[0]), _of_side(row, _SIDES[1])),
        )
        for row in last
    )
    return NcclReport(
        devices=tuple(map(_device, object_tables(found.get("config"), "devices"))),
        size=size if is_integer(size) and size >= 0 else None,
        out_of_place=speed[0],
        in_place=speed[1],
        algbw=max(
            (
                _float(as_table(row.get(side)).get("alg_bw")) or 0.0
                for row in last
                for side in _SIDES
            ),
            default=0.0,
        ),
        wrong=max(
            _float(count) or 0.0
            for count in (
                bounds.get("count"),
                float(bounds.get("okay") == "false"),
                *(side.get("nwrong") for side in sides),
            )
        ),
        complete="average_bus_bandwidth" in found and "okay" in bounds,
        too_slow="average_bus_bandwidth: okay: false" if average.get("okay") == "false" else "",
        program=_guessed(map(last[-1].get, _KIND)) if last and "redop" in last[-1] else "",
    )


def _of_side(row: Table, side: str) -> float | None:
    return _float(as_table(row.get(side)).get("bus_bw"))


def _of_groups(report: NcclReport, found: Table) -> tuple[OutputReading, ...]:
    """For split mode with `-I 1 -J`, a result for each group, from the
    times of its own processes; else none.

    The row is the average over all groups, so its bandwidth times its
    time is the amount that a group moves.
    """
    groups = sorted({device.group for device in report.devices})
    whole = _judged(
        replace(report, devices=tuple(replace(one, group=0) for one in report.devices)), ""
    )
    row = as_table((object_tables(found, "results") or [{}])[-1])
    times = {side: _times(as_table(row.get(f"{side}_per_iter")), report.devices) for side in _SIDES}
    if len(groups) < 2 or whole.value is None or not all(times.values()):
        return ()
    return tuple(_of_group(whole, report.devices, group, row, times) for group in groups)


def _times(per_iteration: Table, devices: Sequence[Device]) -> Mapping[int, Sequence[float]]:
    """Rank -> the time of each iteration in µs; empty if ranks cannot be assigned to groups."""
    rows = per_iteration.get("per_process_max_times_us")
    processes = cast("list[object]", rows) if isinstance(rows, list) else []
    known = [cast("list[object]", one) for one in processes if isinstance(one, list)]
    found = [[value for one in row if (value := _float(one)) and value > 0] for row in known]
    ranks = sorted(device.rank for device in devices)
    if not found or len(ranks) % len(found) or not all(found) or len(set(map(len, found))) != 1:
        return {}
    each = len(ranks) // len(found)
    group = {device.rank: device.group for device in devices}
    # The time of a process counts for all its GPUs.
    if any(group[one] != group[ranks[place // each * each]] for place, one in enumerate(ranks)):
        return {}
    return {rank: found[place // each] for place, rank in enumerate(ranks)}


def _of_group(
    whole: OutputReading, devices: Sequence[Device], group: int, row: Table, times: Mapping[str, Mapping[int, Sequence[float]]]
) -> OutputReading:  # fmt: skip
    """A group is as slow as its slowest process in each iteration; the median iteration counts."""
    mine = [device for device in devices if device.group == group]
    speeds: list[float] = []
    for side in _SIDES:
        values = as_table(row.get(side))
        took = median(map(max, zip(*(times[side][one.rank] for one in mine), strict=True)))
        speeds.append(
            (_float(values.get("bus_bw")) or 0.0) * (_float(values.get("time")) or 0.0) / took
        )
    return replace(
        whole,
        value=min(speeds),
        out_of_place=speeds[0],
        in_place=speeds[1],
        ranks=len(mine),
        hosts=unique_names([one.host for one in mine]),
        text=f"group {group}, ranks {fold_ranks(sorted(one.rank for one in mine))}",
    )


def _device(one: Table) -> Device:
    rank, group = one.get("rank"), one.get("group")
    return Device(
        rank if is_integer(rank) else -1,
        group if is_integer(group) else 0,
        str(one.get("hostname", ""))[:255],
        str(one.get("device_info", "")).strip()[:80],
    )


def _float(value: object) -> float | None:
    """A number, even if written as text; None for "nan" and null."""
    return parse_cell_number(str(value)) if isinstance(value, int | float | str) else None


# ---- JSON and CSV of rccl-tests


def _records(text: str) -> list[dict[str, str]]:
    """Each row as column -> cell; names of columns are in lower case, without blanks."""
    stripped = text.strip()
    found = (
        parsed(f'{{"rows": {stripped}}}'.encode("utf-8", "replace"))
        if stripped[:1] == "["
        else None
    )
    head = stripped.partition("\n")[0].casefold()
    lines = (
        csv.DictReader(StringIO(stripped), skipinitialspace=True)
        if "busbw" in head and "," in head
        else ()
    )
    return [
        {str(key).casefold().strip(): str(cell).strip() for key, cell in row.items()}
        for row in (object_tables(found, "rows") or islice(lines, _MOST_RUNS))
    ]


def _of_records(records: Sequence[Mapping[str, str]]) -> NcclReport:
    """Read the records.

    A CSV has no end mark, so each size needs as many rows as the one before.
    """
    size = parse_cell_integer(records[-1].get("size", ""))
    last = [row for row in records if parse_cell_integer(row.get("size", "")) == size]
    rates = [_float(row.get("busbw")) for row in last]
    inside = [row.get("inplace", "").casefold() in ("1", "true") for row in last]
    counts = Counter(row.get("size") for row in records)
    speed = _slowest(
        ((row.get("type"), row.get("redop")), (None, rate) if place else (rate, None))
        for row, rate, place in zip(last, rates, inside, strict=True)
    )
    return NcclReport(
        devices=(),
        size=size,
        out_of_place=speed[0],
        in_place=speed[1],
        algbw=max((_float(row.get("algbw")) or 0.0 for row in last), default=0.0),
        wrong=max(_float(row.get("wrong")) or 0.0 for row in records),
        complete=None not in rates and len(last) == max(counts.values()),
        ranks=parse_cell_integer(records[-1].get("ranks", "")) or 0,
        note=f"{nodes} nodes" if (nodes := records[-1].get("nodes", "")) else "",
    )


# ---- the recipes


class _NcclTests:
    """What all programs of nccl-tests share."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    one_node: ClassVar[bool] = False
    program: ClassVar[str]
    traits: ClassVar[Traits] = Traits(
        unit="GB/s", tolerance=0.07, seconds=41.0, names_hosts=True, gpus=True, mark=MARK
    )

    def commands(self, where: Endpoints) -> Commands:
        """One process per GPU, 1 and 8 GiB, three repeats in one launch.

        JSON is not requested, because it contains the environment.
        """
        argv = (
            self.program,
            "-b",
            "1G",
            "-e",
            "8G",
            "-f",
            "8",
            "-n",
            "20",
            "-w",
            "5",
            "-N",
            "3",
            "-g",
            "1",
        )
        return Commands(launch=Launch.MPI, argv=argv)

    def read(self, text: str) -> tuple[OutputReading, ...]:
        return read_nccl_runs(text, self.program)

    def expect(self, reading: OutputReading, known: HardwareFacts) -> ExpectedResult | None:
        """The expected result; only all_reduce has published limits."""
        program = reading.facts.get("program", self.program)
        return gpu_network(reading, known) if program.startswith("all_reduce") else None


class AllReduce(_NcclTests):
    """all_reduce_perf."""

    name: ClassVar[str] = "nccl-tests"
    needs: ClassVar[tuple[str, ...]] = ("gpu:nvidia", "mpirun", "all_reduce_perf")
    program = "all_reduce_perf"


class AllGather(_NcclTests):
    """all_gather_perf."""

    name: ClassVar[str] = "nccl-all_gather"
    needs: ClassVar[tuple[str, ...]] = ("gpu:nvidia", "mpirun", "all_gather_perf")
    program = "all_gather_perf"


class ReduceScatter(_NcclTests):
    """reduce_scatter_perf."""

    name: ClassVar[str] = "nccl-reduce_scatter"
    needs: ClassVar[tuple[str, ...]] = ("gpu:nvidia", "mpirun", "reduce_scatter_perf")
    program = "reduce_scatter_perf"


class AllToAll(_NcclTests):
    """alltoall_perf."""

    name: ClassVar[str] = "nccl-alltoall"
    needs: ClassVar[tuple[str, ...]] = ("gpu:nvidia", "mpirun", "alltoall_perf")
    program = "alltoall_perf"


class Broadcast(_NcclTests):
    """broadcast_perf."""

    name: ClassVar[str] = "nccl-broadcast"
    needs: ClassVar[tuple[str, ...]] = ("gpu:nvidia", "mpirun", "broadcast_perf")
    program = "broadcast_perf"


class SendReceive(_NcclTests):
    """sendrecv_perf."""

    name: ClassVar[str] = "nccl-sendrecv"
    needs: ClassVar[tuple[str, ...]] = ("gpu:nvidia", "mpirun", "sendrecv_perf")
    program = "sendrecv_perf"


class RcclTests(_NcclTests):
    """all_reduce_perf of rccl-tests, for AMD GPUs; the same tables."""

    name: ClassVar[str] = "rccl-tests"
    needs: ClassVar[tuple[str, ...]] = ("gpu:amd", "mpirun", "all_reduce_perf")
    program = "all_reduce_perf"


_TORCH_PROGRAM = "torch_all_reduce.py"


class _Torch:
    """What both torch recipes share; their table is that of nccl-tests, in place only."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    one_node: ClassVar[bool] = False
    traits: ClassVar[Traits]
    library: ClassVar[str]

    def commands(self, where: Endpoints) -> Commands:
        argv = ("python3", f"${{RANKDECK_RUN}}/{_TORCH_PROGRAM}", self.library)
        return Commands(
            launch=Launch.TORCHRUN,
            argv=argv,
            files={_TORCH_PROGRAM: node_program_text(_TORCH_PROGRAM)},
        )

    def read(self, text: str) -> tuple[OutputReading, ...]:
        return read_nccl_runs(text)

    def expect(self, reading: OutputReading, known: HardwareFacts) -> ExpectedResult | None:
        return gpu_network(reading, known) if self.library == "nccl" else None


class Gloo(_Torch):
    """Our all_reduce on gloo: over TCP, on CPUs."""

    name: ClassVar[str] = "torch-gloo"
    needs: ClassVar[tuple[str, ...]] = ("torchrun", "module:torch")
    traits: ClassVar[Traits] = Traits(
        unit="GB/s", tolerance=0.15, seconds=15.0, names_hosts=True, mark=MARK
    )
    library = "gloo"


class Nccl(_Torch):
    """Our all_reduce on NCCL: on GPUs."""

    name: ClassVar[str] = "torch-nccl"
    needs: ClassVar[tuple[str, ...]] = ("gpu:nvidia", "torchrun", "module:torch")
    traits: ClassVar[Traits] = Traits(
        unit="GB/s", tolerance=0.07, seconds=30.0, names_hosts=True, gpus=True, mark=MARK
    )
    library = "nccl"
