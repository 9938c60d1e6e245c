"""Programs of MPI: messages between ranks (mpi4py.bench, OSU micro-benchmarks, Intel MPI
Benchmarks), and solvers that check their solution (HPCG, the NAS Parallel Benchmarks).
"""

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import ClassVar

from rankdeck.acceptance.output_text import (
    CRASHED,
    STOPPED,
    Layout,
    Row,
    first_line,
    line_at,
    parse_cell_integer,
    parse_cell_number,
    split_runs,
    table_rows,
    unique_names,
)
from rankdeck.acceptance.recipe import (
    Commands,
    Endpoints,
    OutputReading,
    Traits,
    WithoutCeiling,
    failed_reading,
    not_measured,
)
from rankdeck.acceptance.values import Outcome
from rankdeck.model.job_spec import Launch
from rankdeck.model.nodeset import fold_ranks
from rankdeck.values import replace
from rankdeck_agent.rules.units import write_size as bytes_text
from rankdeck_agent.wire import RUN_TOKEN

_BEGINS = r"^# +(?:Intel ?\(R\) MPI Benchmarks|MPI \w+ Test|OSU MPI)"
_ROW = r"^ *\d+ +\d"
_MARK = (
    r"#[ \t]+Intel ?\(R\) MPI Benchmarks|# Benchmarking |# MPI \w+ Test|#? ?OSU MPI|#? ?Size[ \t]+(?:\[|[A-Z])"
    r"|(?<![ \t])[ \t]*(?:Group[ \t]+)?#?bytes[ \t]+#?repetitions|Hello, World! I am process |time for \d+ loops"
)
_MB = Traits(unit="MB/s", tolerance=0.10, seconds=15.0, mark=_MARK, begins=_BEGINS, done=_ROW)
_ABORTED = (
    "Primary job  terminated normally",
    "ORTE was unable",
    "PRTE has lost communication",
    "srun: error: ",
    "Assertion failed in file",
)
_NO_ROW = not_measured("no result row")


def _aborted(text: str) -> OutputReading | None:
    """A reading that says that the run broke or was stopped after some rows; None if it did not."""
    if stopped := STOPPED.search(text):
        return not_measured(f"it was stopped: `{line_at(text, stopped.start())[:120]}`")
    crashed = CRASHED.search(text)
    line = line_at(text, crashed.start()) if crashed else first_line(text, *_ABORTED)
    return failed_reading(f"it broke: `{line[:120]}`") if line else None


# ---- mpi4py.bench

_PAIRS = Layout(
    "Size [B]",
    "Bandwidth",
    re.compile(r"[A-Z]\w*(?: [A-Z]\w*)*(?: \[[^\]]{0,40}\])?"),
    re.compile(r"(?<![^\s|])[0-9A-Za-z][^\s|]*"),
)
"""The sign between mean and spread is not a cell: `±`, `+/-`, or the same in a wrong encoding."""
_PINGPONG = (
    *("pingpong", "-a", "none", "-m", "65536", "-n", "4194304", "-s", "2", "-l", "20"),
    *("--skip-large", "2", "--loop-large", "20", "--skip-huge", "2", "--loop-huge", "10"),
)
"""The default of 10,000 loops takes minutes on a slow network; `-a none` needs no numpy."""
_HELLO = re.compile(r"Hello, World! I am process +(\d{1,7}) of (\d{1,7}) on (\S{1,255})\.")
_RING = re.compile(
    r"time for (\d{1,9}) loops = (\d{1,9}(?:\.\d{1,12})?) seconds \((\d{1,7}) processes, (\d{1,15}) bytes\)"
)
_BOTH = """import sys
from mpi4py import MPI, bench
bench.helloworld(MPI.COMM_WORLD, [])
getattr(bench, sys.argv[1])(MPI.COMM_WORLD, sys.argv[2:])
"""
"""`python -m mpi4py.bench` runs only one of them; here both run on the same ranks."""
_FILE = "mpi_bench.py"


class Mpi4py(WithoutCeiling):
    """mpi4py.bench: helloworld, which names the ranks that take part, then pingpong."""

    name: ClassVar[str] = "mpi4py.bench"
    needs: ClassVar[tuple[str, ...]] = ("mpirun", "module:mpi4py")
    traits: ClassVar[Traits] = replace(
        _MB,
        names_hosts=True,
        seconds=4.0,
        begins=r"^(?:# MPI \w+ Test|Hello, World! I am process +0 of )",
        done=rf"{_ROW}|^time for \d+ loops",
    )

    def commands(self, where: Endpoints) -> Commands:
        words = _PINGPONG if len(where.nodes) < 3 else ("ringtest", "-n", "1048576", "-l", "20")
        argv = ("python3", f"${{RANKDECK_RUN}}/{_FILE}", *words)
        return Commands(launch=Launch.MPI, argv=argv, files={_FILE: _BOTH})

    def read(self, text: str) -> tuple[OutputReading, ...]:
        """The largest size of pingpong (MB = 10^6, one way), or the one line of ringtest."""
        who = _hello(text)
        if who.status is not Outcome.MEASURED:
            return (who,)
        ring = _RING.search(text)
        if ring:
            return (_ring(ring, who),)
        table = list(table_rows(text, _PAIRS))
        if table:
            return (_aborted(text) or _pingpong(table[-1], who),)
        if who.ranks:
            return (
                not_measured(
                    "helloworld alone: nothing was measured", ranks=who.ranks, hosts=who.hosts
                ),
            )
        return (_NO_ROW,)


def _hello(text: str) -> OutputReading:
    """The ranks that take part; each must be there once, all of them, and more than one."""
    hellos = [(int(m[1]), int(m[2]), m[3]) for m in _HELLO.finditer(text)]
    ranks = sorted(rank for rank, _, _ in hellos)
    worlds = {world for _, world, _ in hellos}
    hosts = unique_names([host for _, _, host in sorted(hellos)])
    base = OutputReading(
        status=Outcome.MEASURED, text="", unit="MB/s", ranks=len(ranks) or None, hosts=hosts
    )
    if not hellos:
        return base
    if len(set(ranks)) < len(ranks) or worlds == {1}:
        text = (
            "separate runs of one rank each"
            if worlds == {1}
            else f"ranks {fold_ranks(ranks)}, some twice"
        )
        return replace(
            base,
            status=Outcome.REFUSED,
            text=f"{text}: the launcher started programs of another MPI",
        )
    if worlds != {len(ranks)}:
        return replace(
            base,
            status=Outcome.NOT_MEASURED,
            text=f"only ranks {fold_ranks(ranks)} of {max(worlds)} said hello",
        )
    return base


def _pingpong(row: Row, who: OutputReading) -> OutputReading:
    mean, spread = row.number("Time Mean [s]"), row.number("StdDev [s]")
    value, size = row.number("Bandwidth [MB/s]"), parse_cell_integer(row.cell("Size [B]"))
    base = replace(who, size=size)
    if value is None or mean is None or spread is None or len(row.cells) != len(row.header):
        return replace(base, status=Outcome.NOT_MEASURED, text="the last row is not complete")
    if spread > mean:
        why = (
            f"the spread ({spread:.2g} s) is larger than the mean ({mean:.2g} s): the nodes were"
            " busy, or nothing left the process"
        )
        return replace(base, status=Outcome.NOT_MEASURED, text=why)
    note = "" if who.hosts else "it does not say which ranks took part: run helloworld first"
    return replace(base, value=value, text=note)


def _ring(found: re.Match[str], who: OutputReading) -> OutputReading:
    loops, seconds, ranks, size = (
        int(found[1]),
        parse_cell_number(found[2]) or 0.0,
        int(found[3]),
        int(found[4]),
    )
    base = replace(who, ranks=ranks, size=size)
    if who.ranks not in (None, ranks):
        return replace(
            base,
            status=Outcome.REFUSED,
            text=f"{ranks} processes in the ring, {who.ranks} said hello",
        )
    if ranks < 2:
        return replace(base, status=Outcome.REFUSED, text="one process: nothing was moved")
    if not seconds:
        return replace(base, status=Outcome.NOT_MEASURED, text="no time")
    return replace(base, value=loops * ranks * size / seconds / 1e6, text=f"ring of {ranks}")


# ---- OSU

_OSU = Layout(
    "Size",
    "# Size",
    re.compile(
        r"(?:Avg |Min |Max |P\d\d Tail |Pure |Coll\. )?[A-Z][\w/]*(?: ?[(\[][^)\]]{0,40}[)\]])?"
    ),
)
_PAIR, _COLLECTIVE = ((0, 1), 1 << 22), ((0, 1, 4), 1 << 20)
"""(default first sizes, last size) of a table; no line says that a table is complete."""
_OSU_VALUES = (
    ("Bandwidth (MB/s)", "MB/s", _PAIR), ("MB/s", "MB/s", _PAIR), ("Max Latency(us)", "us", _COLLECTIVE),
    ("Avg Latency(us)", "us", _COLLECTIVE), ("Latency (us)", "us", _PAIR), ("Overall(us)", "us", _COLLECTIVE),
)  # fmt: skip
"""Column, its unit, its usual sizes."""
_OSU_HEAD = re.compile(r"^[\\# ]{0,4}(?=Size +[A-Z])", re.MULTILINE)
"""Text copied from a ticket may lack the number sign."""
_OSU_BARRIER = re.compile(
    r"^[\\# ]{0,20}((?:Avg Latency|Overall)\(us\).{0,200})\s{1,40}^ *(\d{1,9}\.\d\d(?: +[\d.]{1,20}){0,9}) *$",
    re.MULTILINE,
)
"""It has no sizes; with `-f`, least and most follow the average, with `-z` percentiles."""
_OSU_OF_PAIR = re.compile(r"OSU MPI\S{0,20} (?:Multi\S{0,20} |Persistent ){0,2}Latency Test")
"""With `-z` its column has the same name as that of a collective."""
_OSU_WHOLE = re.compile(r"(?i:pass)|\d{1,20}\.\d\d")
"""A last word that is complete even without a line end: that of
`-c`, or a number with two decimals.
"""
_OSU_PAIRS = re.compile(r"\[ pairs: (\d{1,6}) \]")
_OSU_LEAST = 1 << 14
_OSU_GROWS = re.compile(r"OSU .{0,60}(?:All-?to-?all|gather|scatter)", re.IGNORECASE)
"""Their buffers grow with the ranks, so the memory limit (`-M`, 512 MiB) ends their
tables earlier: at 16 KiB on 32,768 ranks.
"""


class Osu(WithoutCeiling):
    """osu_bw between two nodes, osu_allreduce over more; reads
    every table of bandwidth or latency.
    """

    name: ClassVar[str] = "osu"
    needs: ClassVar[tuple[str, ...]] = ("mpirun", "osu_bw")
    traits: ClassVar[Traits] = _MB

    def commands(self, where: Endpoints) -> Commands:
        program = "osu_bw" if len(where.nodes) == 2 else "osu_allreduce"
        # Values are checked if the program can do so; before 6.0 it could not, and `-c` ended it.
        shell = f'grep -qs validation "$(command -v {program})" && set -- -c; exec {program} "$@"'
        return Commands(launch=Launch.MPI, argv=("sh", "-c", shell))

    def read(self, text: str) -> tuple[OutputReading, ...]:
        table = list(table_rows(_OSU_HEAD.sub("# ", text), _OSU))
        if not table:
            return (_barrier(text) or _of_few(text) or _NO_ROW,)
        wrong = [row.cell("Size") for row in table if "fail" in map(str.casefold, row.cells)]
        if wrong:
            return (failed_reading(f"wrong values at {wrong[-1]} bytes"),)
        if broken := _aborted(text):
            return (broken,)
        last = table[-1]
        ends = text.rstrip(" \t").endswith(last.cells[-1])
        if ends and not _OSU_WHOLE.fullmatch(last.cells[-1]):
            return (not_measured("the last line has no end: it may have been cut"),)
        for column, unit, usual in _OSU_VALUES:
            if (value := last.number(column)) is not None:
                size = parse_cell_integer(last.cell("Size")) or 0
                if _is_part(text, [row.cell("Size") for row in table], usual):
                    why = (
                        f"the table ends at {bytes_text(size)}: cut off, or asked for with -m,"
                        " which nothing in it tells"
                    )
                    return (not_measured(why, size=size, unit=unit),)
                return (replace(_osu_measured(text), value=value, unit=unit, size=size),)
        return (not_measured("the last row is not complete"),)


def _is_part(text: str, sizes: list[str], usual: tuple[tuple[int, ...], int]) -> bool:
    """Whether a table ends before its default last size, unless it has only one size (`-m 8:8`)."""
    first, last = _PAIR if _OSU_OF_PAIR.search(text) else usual
    last = _OSU_LEAST if _OSU_GROWS.search(text) else last
    asked = len(sizes) == 1 and int(sizes[0]) not in first
    return not asked and int(sizes[-1]) < last


_OSU_TITLE = re.compile(r"OSU (?:MPI-\S{1,20}|\S{1,20}) (.{1,60}?) Test\b")


def _osu_measured(text: str) -> OutputReading:
    """The reading with the name of the test; for osu_mbw_mr the value is the sum of all pairs."""
    title, found = _OSU_TITLE.search(text), _OSU_PAIRS.search(text)
    count = int(found[1]) if found else 0
    sum_of = f"{count} pairs together: the sum hides a slow one" if count > 1 else ""
    note = "; ".join(filter(None, (title[1] if title else "", sum_of)))
    return OutputReading(status=Outcome.MEASURED, text=note, ranks=2 * count or None)


def _of_few(text: str) -> OutputReading | None:
    """A reading that says that too few ranks ran together, if the program says so; else None."""
    line = first_line(text, "This test requires")
    why = f"`{line[:120]}`: the launcher started programs of another MPI, or too few ranks"
    return not_measured(f"it did not run: {why}") if line else None


def _barrier(text: str) -> OutputReading | None:
    """The reading of osu_barrier, by the slowest rank; None for other tests."""
    found = _OSU_BARRIER.search(text)
    if found is None or _aborted(text):
        return None
    names, cells = _OSU.names.findall(found[1]), found[2].split()
    row = dict(zip(names, cells, strict=False))
    if len(names) != len(cells):
        return not_measured("the last row is not complete")
    column = next(
        one for one in ("Max Latency(us)", "Avg Latency(us)", "Overall(us)") if one in row
    )
    value = parse_cell_number(row[column])
    return OutputReading(status=Outcome.MEASURED, text="barrier", value=value, unit="us")


# ---- Intel MPI Benchmarks

_IMB = Layout("#bytes", "#repetitions", re.compile(r"\S+"))
_IMB_BARRIER = Layout("#repetitions", "t_max", re.compile(r"\S+"))
"""It has no sizes."""
_IMB_VALUES = ("Mbytes/sec", "t_max[usec]", "t[usec]")
_GROUP = re.compile(r"^#[ \t]{0,9}Group[ \t]{1,9}(\d{1,7}):((?:[ \t]+\d{1,7})+)", re.MULTILINE)
_PROCESSES = re.compile(r"#processes = (\d{1,7})")
_LARGEST = re.compile(r"^# Maximum message length in bytes: +(\d{1,15})", re.MULTILINE)
_MOST_TABLES = 1000
_BENCHMARK = r"^# Benchmarking "
_BENCHMARK_NAME = re.compile(_BENCHMARK + r"(?:Multi-)?(\w{1,40})", re.MULTILINE)


class Imb(WithoutCeiling):
    """IMB-MPI1 PingPong between two ranks, Allreduce over more; `-multi` has a row per group."""

    name: ClassVar[str] = "imb"
    needs: ClassVar[tuple[str, ...]] = ("mpirun", "IMB-MPI1")
    traits: ClassVar[Traits] = _MB

    def commands(self, where: Endpoints) -> Commands:
        test = "PingPong" if len(where.nodes) == 2 else "Allreduce"
        argv = ("IMB-MPI1", test, "-npmin", str(where.ranks), "-msglog", "20:22", "-time", "10")
        return Commands(launch=Launch.MPI, argv=argv)

    def read(self, text: str) -> tuple[OutputReading, ...]:
        """A result for each benchmark, number of processes and group; one for all
        if it has wrong values or was cut off.
        """
        parts = [
            part for part in islice(split_runs(text, _BENCHMARK), _MOST_TABLES) if _imb_rows(part)
        ]
        if not parts:
            return (_NO_ROW,)
        if broken := _aborted(text):
            return (broken,)
        until = int(found[1]) if (found := _LARGEST.search(text)) else 0
        ended = "entering MPI_Finalize" in text
        alone = len(parts) == 1
        found = [one for part in parts for one in _imb_table(part, until, ended=ended, alone=alone)]
        wrong = [one for one in found if one.status is Outcome.FAILED]
        return (wrong[0],) if wrong else (found[-1],) if not ended else tuple(found)


def _imb_table(text: str, until: int, *, ended: bool, alone: bool) -> Iterator[OutputReading]:
    """The last row of each group; the text names the benchmark if there are several."""
    groups = {int(m[1]): tuple(map(int, m[2].split())) for m in _GROUP.finditer(text)}
    ranks, name = _PROCESSES.findall(text), _BENCHMARK_NAME.search(text)
    table = _imb_rows(text)
    wrong = [row for row in table if (row.number("defects") or 0.0) > 0]
    together = len(groups) > 1 and "Group" not in table[-1].header
    # Without groups all rows count as those of group 0.
    last = {parse_cell_integer(row.cell("Group")) or 0: row for row in wrong or table}
    for group, row in sorted(last.items()):
        members = [*chain(*groups.values())] if together else groups.get(group, ())
        many = len(members) or (int(ranks[-1]) if ranks else None)
        of = "" if alone or name is None else f"{name[1]} of {many or '?'} ranks"
        who = f"group {group}: ranks {fold_ranks(members)}" if members else ""
        who = f"the slowest of {len(groups)} groups at once" if together else who
        what = ", ".join(filter(None, (of, who)))
        yield _imb(row, until if ended else None, many, what)


def _imb_rows(text: str) -> list[Row]:
    return list(table_rows(text, _IMB)) or list(table_rows(text, _IMB_BARRIER))


def _imb(row: Row, until: int | None, ranks: int | None, group: str) -> OutputReading:
    """The reading of the last row; `until` is the largest size that was requested, 0
    if not known, None if the run did not end.
    """
    size = parse_cell_integer(row.cell("#bytes"))
    unit = "MB/s" if any("Mbytes" in name for name in row.header) else "us"
    base = OutputReading(status=Outcome.NOT_MEASURED, text=group, size=size, ranks=ranks, unit=unit)
    lead = f"{group}: " if group else ""
    if (row.number("defects") or 0.0) > 0:
        return replace(base, status=Outcome.FAILED, text=f"{lead}wrong values at {size} bytes")
    if "time-out" in " ".join(row.cells):
        return replace(base, text=f"{lead}the time ran out at {size} bytes: ask for more (`-time`)")
    if "out-of-mem" in " ".join(row.cells):
        return replace(base, text=f"{lead}no memory for {size} bytes: ask for more (`-mem`)")
    if until is None or (size is not None and size < until):
        end = f": it ends at {size} bytes of {until}" if until else ""
        return replace(base, text=f"{lead}the run was cut off{end}")
    if len(row.cells) != len(row.header):
        return replace(base, text=f"{lead}the last row is not complete")
    for column in _IMB_VALUES[:1] if unit == "MB/s" else _IMB_VALUES[1:]:
        if (value := row.number(column)) is not None:
            return replace(base, status=Outcome.MEASURED, value=value)
    return replace(base, text=f"{lead}{_no_value(row)}")


def _no_value(row: Row) -> str:
    """Why a row has no value: IMB-NBC and others have columns that nothing here reads."""
    if not set(_IMB_VALUES).isdisjoint(row.header):
        return "the last row is not complete"
    return f"of these columns none is read: {', '.join(row.header[2:])[:120]}"


def _measured(word: str, unit: str, what: str, ranks: str) -> OutputReading:
    value = parse_cell_number(word)
    if value is None or value <= 0:
        return not_measured(f"its rate is `{word[:40]}`", unit=unit)
    return OutputReading(
        status=Outcome.MEASURED, text=what, value=value, unit=unit, ranks=parse_cell_integer(ranks)
    )


# ---- HPCG

_VALID = re.compile(r"HPCG result is VALID with a GFLOP/s rat(?:e|ing) of[:=] ?(\S{1,40})")
_INVALID = re.compile(r"HPCG result is[:=] ?INVALID")
_OF_HPCG = re.compile(r"Distributed Processes[:=] ?(\d{1,9})")


class Hpcg(WithoutCeiling):
    """HPCG; it writes HPCG-Benchmark_….txt and nothing to stdout."""

    name: ClassVar[str] = "hpcg"
    needs: ClassVar[tuple[str, ...]] = ("mpirun", "xhpcg")
    one_node: ClassVar[bool] = True
    traits: ClassVar[Traits] = Traits(
        unit="GFLOP/s",
        tolerance=0.07,
        seconds=90.0,
        mark=r"HPCG-Benchmark|HPCG result is",
        begins=r"^HPCG-Benchmark",
    )

    def commands(self, where: Endpoints) -> Commands:
        """64^3 points per rank are larger than any cache; half a
        minute is enough to compare nodes.
        """
        shell = (
            f"cd {RUN_TOKEN} && xhpcg --nx=64 --rt=30 && for file in HPCG-Benchmark*.txt; do if ["
            " -f $file ]; then cat $file; fi; done"
        )
        return Commands(launch=Launch.MPI, argv=("sh", "-c", shell))

    def read(self, text: str) -> tuple[OutputReading, ...]:
        """The rate, which counts only on the line that calls the result
        valid; the summary above it has others.
        """
        if _INVALID.search(text):
            line = first_line(text, "FAILED", "INVALID")
            return (failed_reading(f"wrong values: HPCG calls its result invalid: `{line[:120]}`"),)
        found, ranks = _VALID.search(text), _OF_HPCG.search(text)
        if found is None:
            return (not_measured("no line `HPCG result is VALID`: the run was cut off"),)
        return (_measured(found[1], "GFLOP/s", "HPCG", ranks[1] if ranks else ""),)


# ---- NAS Parallel Benchmarks

_NPB = re.compile(r"^\s*(\w{2}(?:-MZ)?) Benchmark Completed", re.MULTILINE)
_NPB_ROW = re.compile(
    r"^\s*(Class|Total processes|Mop/s total|Verification)\s*=[ \t]*(\S[^\n]{0,60})", re.MULTILINE
)


class Npb(WithoutCeiling):
    """NAS Parallel Benchmarks, with MPI, OpenMP or serial; each is a result."""

    name: ClassVar[str] = "npb"
    needs: ClassVar[tuple[str, ...]] = ("mpirun", "cg.C.x")
    one_node: ClassVar[bool] = True
    traits: ClassVar[Traits] = Traits(
        unit="Mop/s",
        tolerance=0.10,
        seconds=60.0,
        mark=r"NAS Parallel Benchmarks|\w\w Benchmark Completed|Mop/s total",
        begins=r"^.{0,40}NAS Parallel Benchmarks",
        done=r"Verification\s+=",
    )

    def commands(self, where: Endpoints) -> Commands:
        """Run CG, which stresses memory and network with little computing."""
        return Commands(launch=Launch.MPI, argv=("cg.C.x",))

    def read(self, text: str) -> tuple[OutputReading, ...]:
        if (name := _NPB.search(text)) is None:
            return (not_measured("no line `Benchmark Completed`: the run was cut off"),)
        rows = {key: value.strip() for key, value in _NPB_ROW.findall(text[name.start() :])}
        check = rows.get("Verification", "")
        if check == "UNSUCCESSFUL":
            return (
                failed_reading(
                    f"wrong values: {name[1]} says that its verification was UNSUCCESSFUL"
                ),
            )
        if check != "SUCCESSFUL":
            why = (
                f"its verification is `{check[:40]}`"
                if check
                else "no line `Verification`: the run was cut off"
            )
            return (not_measured(why),)
        what = f"{name[1]}, class {rows.get('Class', '?')}"
        ranks = rows.get("Total processes", "")
        return (_measured(rows.get("Mop/s total", ""), "Mop/s", what, ranks),)
