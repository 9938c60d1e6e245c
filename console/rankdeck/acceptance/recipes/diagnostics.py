"""Tests that say pass or fail, or write to disks: dcgmi diag and fio. Both run only when asked for."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import ClassVar

from rankdeck.acceptance.output_text import (
    as_table,
    first_line,
    lines_of,
    object_in,
    tables,
    whole,
)
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
from rankdeck.model.text import Table, clean, integer, number

_OUTCOME = re.compile(r"(?:[A-Z]+ ?\d{1,4}: )?(pass|fail|skip|warn)\b", re.IGNORECASE)
"""`Pass - All`, `Fail - GPU: 0` and `GPU0: Pass`; behind these words it says why."""
_NOT_RUN = (
    "Unable to connect to host engine",
    "Error: unable to establish a connection",
    "is not supported",
    "already running",
)


class Dcgm:
    """dcgmi diag: each test passes, fails or is skipped; text and JSON (`-j`), DCGM 3 and 4."""

    name: ClassVar[str] = "dcgmi"
    traits: ClassVar[Traits] = Traits(
        unit="tests",
        tolerance=0.0,
        seconds=150.0,
        mark=r"Successfully ran diagnostic|\+-{10}|[ \t]*\"DCGM (?:GPU )?Diagnostic\"",
        begins="Successfully ran diagnostic",
        done=r"^\+-+",
    )

    def commands(self, where: Where) -> Commands:
        return Commands(launch=Launch.PLAIN, argv=("dcgmi", "diag", "-r", "1", "-j"))

    def read(self, text: str) -> tuple[Reading, ...]:
        """`value` is the number of tests that passed."""
        found = object_in(text)
        said = list(_of_json(found)) if found is not None else _of_text(text)
        bad = [name for name, outcome in said if outcome == "fail"]
        count = Counter(outcome for _, outcome in said)
        if bad:
            return (failed(f"failed: {', '.join(dict.fromkeys(bad))[:160]}", unit="tests"),)
        if not count["pass"]:
            line = _runtime_error(found) or first_line(text, *_NOT_RUN)
            return (
                not_measured(
                    f"it did not run: `{line[:120]}`" if line else "no test passed or failed"
                ),
            )
        if found is None and not _whole(text):
            return (
                not_measured(
                    "no line `Successfully ran diagnostic`, or no end of its table: it was cut off"
                ),
            )
        note = ", ".join(
            f"{count[word]} {word}" for word in ("pass", "warn", "skip") if count[word]
        )
        return (
            Reading(status=Status.MEASURED, text=note, value=float(count["pass"]), unit="tests"),
        )

    def expect(self, reading: Reading, known: Known) -> Expected | None:
        return None


def _runtime_error(found: Table | None) -> str:
    """Why no test ran, in JSON."""
    tops = (as_table(one) for key, one in (found or {}).items() if "Diagnostic" in key)
    said = (one.get(key) for one in tops for key in ("runtime_error", "Error Message"))
    return next((clean(one, 200) for one in said if isinstance(one, str)), "")


def _whole(text: str) -> bool:
    """Whether the table has its last rule."""
    table = [line for line in lines_of(text) if line.startswith(("|", "+"))]
    return "Successfully ran diagnostic" in text and bool(table) and table[-1].startswith("+--")


def _of_text(text: str) -> list[tuple[str, str]]:
    """`| Memory | Pass - All |`: test, outcome; DCGM 4 has a line for each GPU below, without the name."""
    found: list[tuple[str, str]] = []
    # A line that was written twice over (`tee -a`) is one.
    for line, _ in groupby(lines_of(text)):
        cells = [cell.strip() for cell in line.split("|", 4)]
        outcome = _OUTCOME.match(cells[2]) if len(cells) > 3 and not cells[0] else None
        if outcome:
            last = found[-1][0] if found else "GPU"
            found.append((cells[1][:60] or last, outcome[1].casefold()))
    return found


def _of_json(found: Table) -> Iterator[tuple[str, str]]:
    """Test, outcome, for each GPU; DCGM 4 has a summary of each test, too."""
    top = next((one for key, one in found.items() if "Diagnostic" in key), None)
    for category in tables(top, "test_categories"):
        for test in tables(category, "tests"):
            for result in (as_table(test.get("test_summary")), *tables(test, "results")):
                if "status" in result:
                    yield clean(test.get("name", ""), 60), str(result["status"])[:8].casefold()


class Fio:
    """fio: reading and writing files, JSON or text. It writes to disks: only on request."""

    name: ClassVar[str] = "fio"
    traits: ClassVar[Traits] = Traits(
        unit="MB/s",
        tolerance=0.15,
        seconds=12.0,
        writes=True,
        mark=r"(?:\d;)?fio-\d|Run status group|[ \t]*\"fio version\"",
        begins=r"^(?:\{|fio-\d)",
        done=r"^(?:\}|Run status group)",
    )

    def commands(self, where: Where) -> Commands:
        """512 MiB in the run folder, removed afterwards."""
        argv = (
            *("fio", "--name=seqread", "--rw=read", "--bs=1M", "--size=512M", "--runtime=10"),
            *("--time_based", "--unlink=1", "--output-format=json"),
        )
        return Commands(launch=Launch.PLAIN, argv=argv)

    def read(self, text: str) -> tuple[Reading, ...]:
        """One result for each direction of each job (MB = 10^6)."""
        found = object_in(text)
        jobs = tables(found, "jobs")
        if not jobs and "Run status group" in text:
            return _of_text_of_fio(text)
        if not jobs and (terse := tuple(_of_terse(text))):
            return terse
        if not jobs:
            line = first_line(text, "fio:")
            return (not_measured(f"it did not run: `{line[:120]}`" if line else "no JSON of fio"),)
        results = tuple(one for job in jobs for one in _of_job(job))
        return results or (not_measured("nothing was read and nothing written"),)

    def expect(self, reading: Reading, known: Known) -> Expected | None:
        return None


_GROUP_RATE = re.compile(
    r"^ {1,3}(READ|WRITE): (?:bw=[^ ,]{1,20} \(|.{0,40}?(aggrb=))(\d{1,12}(?:\.\d{1,9})?)([kKMGT]?)(i?)(B|bit)/s",
    re.MULTILINE,
)
"""In brackets is the rate in the other base; fio 2 has `aggrb`, in powers of two."""
_FIO_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _megabytes(old: str, rate: str, factor: str, binary: str, unit: str) -> float:
    """Of a second."""
    base = 1024 if old or binary else 1000
    return float(rate) * base ** _FIO_POWERS[factor.casefold()] / (1e6 if unit == "B" else 8e6)


_FIO_ERROR = re.compile(r": err= *([1-9]\d{0,5})\b")


def _of_text_of_fio(text: str) -> tuple[Reading, ...]:
    """What a group of jobs read and wrote."""
    if error := _FIO_ERROR.search(text):
        return (failed(f"error {error[1]}", unit="MB/s"),)
    found = tuple(
        Reading(
            status=Status.MEASURED, text=f"all jobs, {way.casefold()}", value=_megabytes(*rate),
            unit="MB/s", facts={"metric": way.casefold()},
        )
        for way, *rate in _GROUP_RATE.findall(text)
    )  # fmt: skip
    return found or (not_measured("nothing was read and nothing written"),)


_TERSE = {"read": (5, 7), "write": (46, 48)}
"""Of version 3, fio's own: where the bytes and operations a second of each direction stand."""


def _of_terse(text: str) -> Iterator[Reading]:
    """`--minimal`: a line a job, in KiB/s."""
    for line in lines_of(text):
        cells = line.split(";")
        if not line.startswith("3;fio-") or len(cells) < 100:
            continue
        name = clean(cells[2], 40)
        if cells[4] != "0":
            yield failed(f"{name}: error {clean(cells[4], 20)}", unit="MB/s")
            continue
        for way, (begin, end) in _TERSE.items():
            _, rate, operations = (whole(cell) or 0 for cell in cells[begin : end + 1])
            if rate:
                yield Reading(
                    status=Status.MEASURED, text=f"{name}, {way}, {operations} IO/s", value=rate * 1024 / 1e6,
                    unit="MB/s", facts={"metric": way},
                )  # fmt: skip


def _of_job(job: Table) -> Iterator[Reading]:
    name, error = clean(job.get("jobname", ""), 40), job.get("error")
    if integer(error) and error:
        yield failed(f"{name}: error {error}", unit="MB/s")
        return
    for way in ("read", "write"):
        side = as_table(job.get(way))
        rate = side.get("bw_bytes")
        if number(rate) and rate > 0:
            iops = side.get("iops")
            note = f"{name}, {way}" + (f", {iops:.0f} IO/s" if number(iops) else "")
            yield Reading(
                status=Status.MEASURED,
                text=note,
                value=rate / 1e6,
                unit="MB/s",
                facts={"metric": way},
            )
