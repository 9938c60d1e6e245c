"""fio: reading and writing files; output as text, JSON or one line per job.

It writes to disks, so it runs only on request.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import ClassVar

from rankdeck.acceptance.output_text import (
    first_line,
    lines_of,
    object_in,
    object_tables,
    parse_cell_integer,
    split_runs,
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
from rankdeck.model.field_checks import is_integer, is_number
from rankdeck.model.job_spec import Launch
from rankdeck.model.json_tables import Table, as_table
from rankdeck.model.safe_text import clean_line
from rankdeck.values import Value

_BEGINS = r"^ ?(?:\{|fio-\d)"
_DONE = r"^ ?(?:\}|Run status group)"


class Fio(WithoutCeiling):
    """fio; results in 10^6 bytes per second."""

    name: ClassVar[str] = "fio"
    needs: ClassVar[tuple[str, ...]] = ("fio",)
    one_node: ClassVar[bool] = True
    traits: ClassVar[Traits] = Traits(
        unit="MB/s",
        tolerance=0.15,
        seconds=12.0,
        writes=True,
        mark=r"(?:\d;)?fio-\d|2;[^;\n]{1,80};\d{1,4};\d{1,3};|Run status group|(?<![ \t])[ \t]*\"fio version\"",
    )

    def commands(self, where: Endpoints) -> Commands:
        """Read a file of 512 MiB in the run folder, which is removed afterwards."""
        argv = (
            *("fio", "--name=seqread", "--rw=read", "--bs=1M", "--size=512M", "--runtime=10"),
            *("--time_based", "--unlink=1", "--output-format=json"),
        )
        return Commands(launch=Launch.PLAIN, argv=argv)

    def read(self, text: str) -> tuple[OutputReading, ...]:
        """One result for each direction of each job, or of all jobs in text."""
        return tuple(
            _latest(some for run in split_runs(text, _BEGINS, _DONE) for some in _reports(run))
        )


class _Report(Value):
    """One report about a job: at its end, or with `--status-interval` before."""

    reading: OutputReading
    of: tuple[object, ...] = ()
    """The job and the direction; () if the report is not a result."""
    moved: int = 0
    """Bytes or KiB so far."""
    runtime: int = 0
    """Runtime in ms."""


_LONGER = 1.02


def _goes_on(before: Sequence[_Report], after: Sequence[_Report]) -> bool:
    """Whether the later reports belong to the same run; another run
    would take as long or move as much.
    """
    same = [one.of for one in before] == [one.of for one in after] and all(one.of for one in after)
    pairs = list(zip(before, after, strict=True)) if same else []
    farther = [a.moved > b.moved and a.runtime > b.runtime * _LONGER for b, a in pairs]
    ended = [(a.moved, a.runtime) == (b.moved, b.runtime) for b, a in pairs]
    return any(farther) and all(more or done for more, done in zip(farther, ended, strict=True))


def _latest(reports: Iterable[list[_Report]]) -> Iterator[OutputReading]:
    """The last reports of each run."""
    last: list[_Report] = []
    for some in reports:
        if last and not _goes_on(last, some):
            yield from (one.reading for one in last)
        last = some
    yield from (one.reading for one in last)


def _reports(text: str) -> list[list[_Report]]:
    """Lists of reports, each for one time; at least one."""
    if line := first_line(text, "verify: bad ", "verify failed at "):
        return [[_Report(failed_reading(f"wrong values: `{line[:160]}`", unit="MB/s"))]]
    found = object_in(text)
    jobs = object_tables(found, "jobs")
    if jobs:
        reports = [one for place, job in enumerate(jobs) for one in _of_job(job, place)]
    elif "Run status group" in text:
        cut = not_measured("no rate behind `Run status group`: the run was cut off")
        reports = list(_of_text(text)) or [_Report(cut)]
    else:
        line = first_line(text, "fio:")
        why = f"it did not run: `{line[:120]}`" if line else "no result of fio"
        return list(_of_terse(text)) or [[_Report(not_measured(why))]]
    return [reports or [_Report(not_measured("nothing was read and nothing written"))]]


def _measured(rate: float, what: str, way: str) -> OutputReading:
    return OutputReading(
        status=Outcome.MEASURED, text=what, value=rate, unit="MB/s", facts={"metric": way}
    )


# ---- text

_GROUP = re.compile(r"^Run status group (\d{1,6})", re.MULTILINE)
_RATE = re.compile(
    r"^ {1,3}(READ|WRITE|TRIM|MIXED): (?:bw=[^ ,]{1,20} \(|.{0,40}?(aggrb=))(\d{1,12}(?:\.\d{1,9})?)([kKMGT]?)(i?)(B|bit)/s",
    re.MULTILINE,
)
"""The rate in the other base is in brackets; fio 2 has `aggrb`, in powers of two."""
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_ERROR = re.compile(r": err= *([1-9]\d{0,5})\b")


def _megabytes(old: str, rate: str, factor: str, binary: str, unit: str) -> float:
    """The rate in 10^6 bytes per second."""
    base = 1024 if old or binary else 1000
    return float(rate) * base ** _POWERS[factor.casefold()] / (1e6 if unit == "B" else 8e6)


def _of_text(text: str) -> Iterator[_Report]:
    """The reports of each group of jobs; if a group is there several times, the last."""
    if error := _ERROR.search(text):
        yield _Report(failed_reading(f"error {error[1]}", unit="MB/s"))
        return
    heads = list(_GROUP.finditer(text))
    ends = [*(head.start() for head in heads), len(text)][1:]
    groups = {head[1]: text[head.end() : end] for head, end in zip(heads, ends, strict=True)}
    for group in groups.values():
        for way, *rate in _RATE.findall(group):
            name = way.casefold()
            yield _Report(_measured(_megabytes(*rate), f"all jobs, {name}", name))


# ---- one line per job (`--minimal`)

_TERSE = {"2": (4, 45), "3": (5, 46), "4": (5, 46), "5": (5, 52)}
"""Version of the format -> columns where reading and writing begin:
KiB, KiB/s, operations per second, ms.
"""
_PERCENTILES, _MOST = 12, 100
"""Columns after these, the first of which is a share; most reports in which a job is searched."""


def _of_terse(text: str) -> Iterator[list[_Report]]:
    """Reports up to the next line of a job that was there already."""
    reports: list[_Report] = []
    for one in chain.from_iterable(map(_of_line, lines_of(text))):
        if one.of in [other.of for other in reports[-_MOST:]]:
            yield reports
            reports = []
        reports.append(one)
    if reports:
        yield reports


def _of_line(line: str) -> Iterator[_Report]:
    cells = line.split(";")
    sides = _TERSE.get(cells[0])
    if sides is None or len(cells) < 2 * sides[1] or "%=" not in cells[sides[0] + _PERCENTILES]:
        return
    name, group, error = (clean_line(cell, 40) for cell in cells[sides[0] - 3 : sides[0]])
    if error != "0":
        yield _Report(failed_reading(f"{name}: error {error}", unit="MB/s"))
        return
    for way, begin in zip(("read", "write"), sides, strict=True):
        moved, rate, operations, ms = (
            parse_cell_integer(cell) or 0 for cell in cells[begin : begin + 4]
        )
        if rate:
            reading = _measured(rate * 1024 / 1e6, f"{name}, {way}, {operations} IO/s", way)
            yield _Report(reading, (name, group, way), moved, ms)


# ---- JSON

_WAYS = ("read", "write", "trim", "mixed")


def _of_job(job: Table, place: int) -> Iterator[_Report]:
    """A report for each direction; with `--unified_rw_reporting` a fourth for both together."""
    name, error = clean_line(job.get("jobname", ""), 40), job.get("error")
    if is_integer(error) and error:
        yield _Report(failed_reading(f"{name}: error {error}", unit="MB/s"))
        return
    for way in _WAYS:
        side = as_table(job.get(way))
        old = side.get("bw")
        # fio 2 has only this, in KiB.
        rate = side.get("bw_bytes", old * 1024 if is_number(old) else None)
        if is_number(rate) and rate > 0:
            iops = side.get("iops")
            note = f"{name}, {way}" + (f", {iops:.0f} IO/s" if is_number(iops) else "")
            moved, ms = (
                int(one) if is_number(one := side.get(key)) else 0
                for key in ("io_bytes", "runtime")
            )
            yield _Report(_measured(rate / 1e6, note, way), (place, name, way), moved, ms)
