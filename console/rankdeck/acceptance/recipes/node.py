"""Tests of one node: Himeno, hpcc, STREAM, sysbench, stress-ng, and dcgmi diag."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import ClassVar

from rankdeck.acceptance.output_text import (
    first_line,
    lines_of,
    object_in,
    object_tables,
    parse_cell_integer,
    parse_cell_number,
)
from rankdeck.acceptance.recipe import (
    Commands,
    Endpoints,
    OutputReading,
    Traits,
    WithoutCeiling,
    failed_reading,
    not_measured,
    refused_reading,
)
from rankdeck.acceptance.values import Outcome
from rankdeck.model.job_spec import Launch
from rankdeck.model.json_tables import Table, as_table
from rankdeck.model.safe_text import clean_line
from rankdeck.values import replace
from rankdeck_agent.wire import RUN_TOKEN

# ---- Himeno

GOSA_S = (
    (3, 3.173872e-03), (10, 3.000179e-03), (30, 2.696433e-03), (100, 2.129627e-03),
    (300, 1.374038e-03), (1000, 4.388119e-04), (2766, 3.072472e-05), (3000, 2.166678e-05),
)  # fmt: skip
"""Loops -> Gosa on grid S (Himeno MPI C, one rank, gcc -O3, x86_64); the program
chooses the number of loops by its speed.
"""
_GOSA_TOLERANCE = 0.05
_GRID_S = "mimax = 65 mjmax = 65 mkmax = 129"
_LOOPS = re.compile(r"Loop executed for {1,20}(\d{1,9}) {1,20}times")
_GOSA = re.compile(r"^[ \t]{0,20}Gosa[ \t]{0,20}:[ \t]{0,20}(\S+)", re.MULTILINE)
_MFLOPS = re.compile(r"MFLOPS(?: measured)?\s*:\s*(\d{1,15}\.\d{6}|\S{1,20}(?=\s))")
"""C's `%f` prints six digits after the point; with fewer at the end of a file, the line was cut."""
_DECOMPOSED = re.compile(
    r"I-decomp\s*=\s*(\d{1,5})\s*J-decomp\s*=\s*(\d{1,5})\s*K-decomp\s*=\s*(\d{1,5})"
)


def expected_gosa(loops: int) -> float | None:
    """Gosa of grid S after so many loops; None outside of the recorded range."""
    for (low, first), (high, last) in pairwise(GOSA_S):
        if low <= loops <= high:
            part = (loops - low) / (high - low)
            return math.exp(math.log(first) + part * (math.log(last) - math.log(first)))
    return None


class Himeno(WithoutCeiling):
    """Himeno MPI C: MFLOPS, valid only if Gosa fits the number of loops."""

    name: ClassVar[str] = "himeno"
    needs: ClassVar[tuple[str, ...]] = ("mpirun",)
    one_node: ClassVar[bool] = True
    traits: ClassVar[Traits] = Traits(
        unit="MFLOPS",
        tolerance=0.15,
        seconds=60.0,
        mark=r"Sequential version array size|(?<! ) *(?:Loop executed for |MFLOPS measured)",
        begins=r"^Sequential version array size",
    )

    def commands(self, where: Endpoints) -> Commands:
        """`bmt` from PATH, or else from the working folder; it is
        built for a fixed number of ranks.
        """
        shell = "command -v bmt >/dev/null && exec bmt; exec ./bmt"
        return Commands(launch=Launch.MPI, argv=("sh", "-c", shell))

    def read(self, text: str) -> tuple[OutputReading, ...]:
        if "Invalid number of PE" in text:
            return (
                not_measured(
                    "Invalid number of PE: the program was built for another number of ranks"
                ),
            )
        loops = _LOOPS.search(text)
        begin = loops.end() if loops else len(text)
        speed, gosa = _MFLOPS.search(text, begin), _GOSA.search(text, begin)
        if not speed or not gosa or not loops:
            return (not_measured("no line `MFLOPS measured`: the run was cut off"),)
        split = _DECOMPOSED.search(text)
        base = OutputReading(
            status=Outcome.MEASURED,
            text="",
            value=parse_cell_number(speed[1]),
            unit="MFLOPS",
            ranks=math.prod(map(int, split.groups())) if split else None,
        )
        if "," in gosa[1] + speed[1]:
            return (not_measured("its numbers have decimal commas: run it with LC_ALL=C"),)
        return (
            _with_gosa(base, parse_cell_number(gosa[1]), int(loops[1]), grid_s=_GRID_S in text),
        )


def _with_gosa(
    base: OutputReading, gosa: float | None, loops: int, *, grid_s: bool
) -> OutputReading:
    """The reading, failed if Gosa is off its curve."""
    wanted = expected_gosa(loops) if grid_s else None
    if base.value is None or gosa is None:
        why = "wrong values: Gosa or MFLOPS is not a number"
        return replace(base, status=Outcome.FAILED, value=None, text=why)
    if wanted is None:
        note = f"Gosa {gosa:.4g} not checked: no curve for this grid and {loops} loops"
    else:
        off = abs(gosa / wanted - 1)
        if off > _GOSA_TOLERANCE:
            why = f"wrong values: Gosa {gosa:.4g} after {loops} loops, {wanted:.4g} expected"
            return replace(base, status=Outcome.FAILED, value=None, text=why)
        note = f"correct: Gosa within {off:.1%} after {loops} loops".replace("%", " %")
    return replace(base, text=f"{note}; on unequal nodes the slower one sets the pace")


# ---- hpcc

_HPCC = (
    ("MinPingPongBandwidth_GBytes", "GB/s", "worst pair, ping-pong"),
    ("MaxPingPongLatency_usec", "us", "worst pair, latency"),
    ("StarSTREAM_Triad", "GB/s", "memory of each rank, all at once"),
    ("HPL_Tflops", "Tflop/s", "HPL"),
)
"""Line of the summary -> unit, description."""
_HPL_ROW = re.compile(
    r"^W\w{1,20} +(\d{1,12})(?: +\d{1,9}){3} +\d[\d.]{0,20} +(\S{1,20})", re.MULTILINE
)
"""A row of HPL: the order of the matrix, and Gflop/s."""
_HPL_CHECK = re.compile(r"\.{4,9} ?(PASSED|FAILED)")
_MIXED = ("HPL-AI", "HPL-MxP")
"""Names of benchmarks with the same table that compute in lower precision."""
_HPCC_ORDER = 2500
"""Order of the matrix of one rank: 50 MB, larger than a cache, and ten seconds on a small core."""
_HPCC_INPUT = """HPLinpack benchmark input file
Rankdeck
HPL.out output file name (if any)
8 device out (6=stdout,7=stderr,file)
1 # of problems sizes (N)
{order} Ns
1 # of NBs
80 NBs
0 PMAP process mapping (0=Row-,1=Column-major)
1 # of process grids (P x Q)
{rows} Ps
{columns} Qs
16.0 threshold
1 # of panel fact
2 PFACTs (0=left, 1=Crout, 2=Right)
1 # of recursive stopping criterium
4 NBMINs (>= 1)
1 # of panels in recursion
2 NDIVs
1 # of recursive panel fact.
1 RFACTs (0=left, 1=Crout, 2=Right)
1 # of broadcast
1 BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1 # of lookahead depth
1 DEPTHs (>=0)
2 SWAP (0=bin-exch,1=long,2=mix)
64 swapping threshold
0 L1 in (0=transposed,1=no-transposed) form
0 U in (0=transposed,1=no-transposed) form
1 Equilibration (0=no,1=yes)
8 memory alignment in double (> 0)
"""


class Hpcc(WithoutCeiling):
    """hpcc: HPL, STREAM and ping-pong in one program; it writes
    hpccoutf.txt and nothing to stdout.
    """

    name: ClassVar[str] = "hpcc"
    needs: ClassVar[tuple[str, ...]] = ("mpirun", "hpcc")
    one_node: ClassVar[bool] = True
    traits: ClassVar[Traits] = Traits(
        unit="GB/s",
        tolerance=0.10,
        seconds=30.0,
        mark=r"This is the DARPA/DOE HPC|(?:Begin|End) of Summary section|HPLinpack \d|T/V +N +NB",
        begins=r"^(?:This is the DARPA/DOE HPC|HPLinpack 2)",
        done="End of (?:Summary section|Tests)",
    )

    def commands(self, where: Endpoints) -> Commands:
        """A small problem, to compare nodes, not to set records."""
        height = next(n for n in range(math.isqrt(where.ranks), 0, -1) if where.ranks % n == 0)
        order = int(_HPCC_ORDER * math.sqrt(where.ranks))
        text = _HPCC_INPUT.format(order=order, rows=height, columns=where.ranks // height)
        shell = f"cd {RUN_TOKEN} && hpcc && if [ -f hpccoutf.txt ]; then cat hpccoutf.txt; fi"
        return Commands(launch=Launch.MPI, argv=("sh", "-c", shell), files={"hpccinf.txt": text})

    def read(self, text: str) -> tuple[OutputReading, ...]:
        """A result each for network, latency, memory and HPL."""
        if mixed := first_line(text, *_MIXED):
            why = f"this is a benchmark of mixed precision and not HPL: `{mixed[:120]}`"
            return (refused_reading(why),)
        summary = dict(re.findall(r"^(\w{1,60})=(\S{1,40})\s*$", text, re.MULTILINE))
        if "DARPA/DOE HPC" not in text and (row := _HPL_ROW.search(text)):
            return (_hpl(text[row.start() :]),)
        if "DARPA/DOE HPC" not in text and "HPLinpack" in text:
            return (not_measured(_without_row(text)),)
        if "End of Summary section." not in text or not summary:
            return (not_measured("no summary (hpccoutf.txt): the run was cut off"),)
        if summary.get("Success") != "1" or "FAILED" in text:
            line = first_line(text, "FAILED")
            line = line or f"Success={summary.get('Success', '')}"
            return (failed_reading(f"hpcc says that a result is wrong: `{line[:120]}`"),)
        host = re.search(r"^Hostname: '([^'\s]{1,255})'", text, re.MULTILINE)
        base = OutputReading(
            status=Outcome.MEASURED,
            text="",
            ranks=parse_cell_integer(summary.get("CommWorldProcs", "")),
            hosts=(host[1],) if host else (),
        )
        alone = base.ranks == 1
        rows = (row for row in _HPCC if not (alone and "PingPong" in row[0]))
        return tuple(_metric(base, summary.get(row[0], ""), *row) for row in rows)


def _without_row(text: str) -> str:
    """Why HPL has no result: its own error, two lines, or the end of the output."""
    line = first_line(text, ">>> ") if "HPL ERROR" in text else ""
    return f"it did not run: `{line[:160]}`" if line else "no row of HPL: the run was cut off"


def _hpl(text: str) -> OutputReading:
    """The best row of the largest matrix; a check follows each row."""
    rows = [(int(order), parse_cell_number(rate)) for order, rate in _HPL_ROW.findall(text)]
    checks = _HPL_CHECK.findall(text)
    if "FAILED" in checks:
        return failed_reading("HPL says that a result is wrong: its residual check FAILED")
    if len(checks) < len(rows) or "End of Tests" not in text:
        return not_measured(
            "no check behind the last row, or no `End of Tests`: the run was cut off"
        )
    largest = max(order for order, _ in rows)
    rate = max((rate or 0.0) for order, rate in rows if order == largest)
    base = OutputReading(status=Outcome.MEASURED, text="")
    return _metric(base, f"{rate / 1000}", "HPL_Tflops", "Tflop/s", f"HPL, matrix of {largest}")


def _metric(base: OutputReading, word: str, name: str, unit: str, what: str) -> OutputReading:
    value = parse_cell_number(word)
    facts = {"metric": name}
    if value is None or value <= 0:
        return replace(base, status=Outcome.NOT_MEASURED, unit=unit, facts=facts, text=f"no {name}")
    return replace(base, value=value, unit=unit, facts=facts, text=what)


# ---- STREAM

_TRIAD = re.compile(r"^Triad:\s+(\S+)", re.MULTILINE)
_IN_GIGABYTES = re.compile(r"^Function .{0,40}GB/s", re.MULTILINE)
"""The layouts of hpcc, and of versions for GPUs."""


class StreamTriad(WithoutCeiling):
    """STREAM: Triad, in 10^6 bytes per second."""

    name: ClassVar[str] = "stream"
    needs: ClassVar[tuple[str, ...]] = ("stream_c.exe",)
    one_node: ClassVar[bool] = True
    traits: ClassVar[Traits] = Traits(
        unit="MB/s",
        tolerance=0.07,
        seconds=10.0,
        mark=r"STREAM version|Triad: |Solution Validates",
        begins=r"^STREAM version",
        done="Solution Validates|Failed Validation",
    )

    def commands(self, where: Endpoints) -> Commands:
        return Commands(launch=Launch.PLAIN, argv=("stream_c.exe",))

    def read(self, text: str) -> tuple[OutputReading, ...]:
        if "DARPA/DOE HPC" in text:
            return (not_measured("this is the output of hpcc, which runs STREAM several times"),)
        if "Failed Validation" in text:
            return (failed_reading("wrong values: STREAM's own check failed"),)
        found = _TRIAD.search(text)
        value = parse_cell_number(found[1]) if found else None
        if found is None or value is None:
            why = f"the rate of Triad is `{found[1][:40]}`" if found else "no line `Triad:`"
            return (not_measured(why),)
        if "Solution Validates" not in text:
            why = "no line `Solution Validates`: the run was cut off, or this STREAM does not check its values"
            return (not_measured(why),)
        rate = value * (1000 if _IN_GIGABYTES.search(text) else 1)
        return (
            OutputReading(status=Outcome.MEASURED, text="Triad", value=rate, unit="MB/s", ranks=1),
        )


# ---- sysbench, stress-ng

_MEMORY = re.compile(r"Mi?B transferred \((\S+) Mi?B/sec\)")
_EVENTS = re.compile(r"events(?: per second|/s \(eps\)):\s*(\S+)")
"""The layouts since 1.0.5 and since 1.1."""
_PRIMES = re.compile(r"[Pp]rime numbers? limit|Maximum prime number checked")
_OLD_EVENTS = re.compile(
    r"total time:\s+(\d{1,9}\.\d{1,9})s\s+total number of events:\s+(\d{1,15})$", re.MULTILINE
)
"""Older versions print the number of events and the time."""


class Sysbench(WithoutCeiling):
    """sysbench cpu and memory."""

    name: ClassVar[str] = "sysbench"
    needs: ClassVar[tuple[str, ...]] = ("sysbench",)
    one_node: ClassVar[bool] = True
    traits: ClassVar[Traits] = Traits(
        unit="events/s",
        tolerance=0.07,
        seconds=10.0,
        mark=r"sysbench v?\d|(?:General statistics|Throughput|CPU speed):",
        begins=r"^.{0,40}\bsysbench v?\d",
        done="execution time",
    )

    def commands(self, where: Endpoints) -> Commands:
        """As many threads as the node has cores."""
        shell = 'exec sysbench cpu --time=10 --threads="$(nproc)" run'
        return Commands(launch=Launch.PLAIN, argv=("sh", "-c", shell))

    def read(self, text: str) -> tuple[OutputReading, ...]:
        if line := first_line(text, "FATAL:"):
            return (not_measured(f"it did not run: `{line[:120]}`"),)
        if "execution time" not in text:
            return (not_measured("no line `execution time`: the run was cut off"),)
        memory, events, old = (pattern.search(text) for pattern in (_MEMORY, _EVENTS, _OLD_EVENTS))
        found = memory or events
        value = parse_cell_number(found[1]) if found else None
        if found is None and old and _PRIMES.search(text):
            value = int(old[2]) / max(float(old[1]), 1e-9)
        if value is None:
            return (not_measured("it says no speed: only `cpu` and `memory` are read"),)
        unit = "MiB/s" if memory else "events/s"
        return (OutputReading(status=Outcome.MEASURED, text="", value=value, unit=unit, ranks=1),)


_OURS = 0.90
"""Least CPU time per second and worker; with less, other programs used the node."""
_STRESSED = re.compile(
    r"^(?:stress-ng: .{0,40}(?:metrc|info): {1,3}\[\d+\] )?(\w[\w-]*) +\d+"
    + r" +(\d{1,15}\.\d{1,15})" * 5,
    re.MULTILINE,
)
"""Stressor, seconds of wall, user and system time, and two rates;
with `--log-brief` without a prefix.
"""
_COMPUTES = frozenset(
    [
        "bitops",
        "branch",
        "bsearch",
        "cache",
        "cpu",
        "crypt",
        "eigen",
        "fft",
        "fma",
        "fp",
        "hash",
        "heapsort",
        "hsearch",
        "insertionsort",
        "intmath",
        "logmath",
        "lsearch",
        "malloc",
        "matrix",
        "matrix-3d",
        "memcpy",
        "mergesort",
        "monte-carlo",
        "prime",
        "qsort",
        "radixsort",
        "shellsort",
        "stream",
        "str",
        "trig",
        "vecfp",
        "vecmath",
        "vecwide",
        "vm",
        "zlib",
    ]
)
"""Stressors that never wait, and so use a whole core each."""
_HOGS = re.compile(r"dispatching hogs: (.*)")
_UNTRUSTED = re.compile(r"metrics untrustworthy: [1-9].*")


class StressNg(WithoutCeiling):
    """stress-ng --cpu --metrics-brief --verify: bogo operations per second of real time."""

    name: ClassVar[str] = "stress-ng"
    needs: ClassVar[tuple[str, ...]] = ("stress-ng",)
    one_node: ClassVar[bool] = True
    traits: ClassVar[Traits] = Traits(
        unit="bogo-ops/s",
        tolerance=0.07,
        seconds=10.0,
        mark=r"stress-ng: |dispatching hogs: |successful run completed",
        begins="dispatching hogs",
        done="run completed",
    )

    def commands(self, where: Endpoints) -> Commands:
        argv = ("stress-ng", "--cpu", "0", "-t", "10s", "--metrics-brief", "--verify")
        return Commands(launch=Launch.PLAIN, argv=argv)

    def read(self, text: str) -> tuple[OutputReading, ...]:
        """The result; not measured if other programs used more than a tenth of the CPU."""
        if line := first_line(text, "fail:", "unsuccessful run"):
            return (failed_reading(f"its check failed: `{line[:120]}`"),)
        found = {match[0]: match for match in _STRESSED.finditer(text)}
        if line := _UNTRUSTED.search(text):
            return (not_measured(f"it does not trust its own numbers: `{line[0][:120]}`"),)
        if not found or "successful run completed" not in text:
            return (not_measured("no line of metrics, or the run was cut off"),)
        hogs = _HOGS.search(text)
        alone = len(found) == 1
        return tuple(_stressor(one, hogs[1] if hogs else "", alone) for one in found.values())


def _stressor(row: re.Match[str], hogs: str, alone: bool) -> OutputReading:
    """The result of one stressor; `hogs` is the number of workers of each stressor."""
    name, wall, user, system, rate, _ = row.groups()
    count = re.search(rf"(\d{{1,5}}) {re.escape(name)}\b", hogs)
    workers = int(count[1]) if count else 1
    if not float(wall):
        return not_measured(f"{name} did not run", unit="bogo-ops/s", ranks=1)
    share = (float(user) + float(system)) / (float(wall) * workers)
    if share < _OURS and name in _COMPUTES:
        busy = "the node was busy" if alone else "the node was busy, or its stressors shared cores"
        why = f"{busy}: only {share:.0%} of the CPU was ours".replace("%", " %")
        return not_measured(why, unit="bogo-ops/s", ranks=1)
    return OutputReading(
        status=Outcome.MEASURED, text=name, value=float(rate), unit="bogo-ops/s", ranks=1
    )


_OUTCOME = re.compile(r"(?:[A-Z]+ ?\d{1,4}: )?(pass|fail|skip|warn)\b", re.IGNORECASE)
"""`Pass - All`, `Fail - GPU: 0` and `GPU0: Pass`, followed by the reason."""
_FROM_WORST = ("fail", "warn", "pass", "skip")
_GPUS = re.compile(r"GPUs?:? ?(\d[\d, ]{0,60})")
_NOT_RUN = (
    "Error: Diagnostic c",
    "Error: Unable to complete diagnostic",
    "Unable to connect to host engine",
    "Error: unable to establish a connection",
    "is not supported",
    "is incompatible with the diagnostic",
    "already running",
)


class Dcgm(WithoutCeiling):
    """dcgmi diag: each test passes, fails or is skipped; text and JSON (`-j`), DCGM 3 and 4."""

    name: ClassVar[str] = "dcgmi"
    needs: ClassVar[tuple[str, ...]] = ("gpu:nvidia", "dcgmi")
    one_node: ClassVar[bool] = True
    traits: ClassVar[Traits] = Traits(
        unit="tests",
        tolerance=0.0,
        seconds=150.0,
        mark=r"Successfully ran diagnostic|\+[-=]{10,80}\+[-=]{10}|(?<![ \t])[ \t]*\"DCGM (?:GPU )?Diagnostic\"",
        begins="Successfully ran diagnostic",
        done=r"^\+-+",
    )

    def commands(self, where: Endpoints) -> Commands:
        return Commands(launch=Launch.PLAIN, argv=("dcgmi", "diag", "-r", "1", "-j"))

    def read(self, text: str) -> tuple[OutputReading, ...]:
        """`value` is the number of tests that passed, each on all GPUs that it ran on."""
        found = object_in(text)
        outcomes = list(_of_json(found)) if found is not None else _of_text(text)
        tests = _worst(outcomes)
        count = Counter(tests.values())
        if count["fail"]:
            bad = ", ".join(
                _with_gpus(name, outcomes) for name, outcome in tests.items() if outcome == "fail"
            )
            return (failed_reading(f"failed: {bad[:200]}", unit="tests"),)
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
            OutputReading(
                status=Outcome.MEASURED, text=note, value=float(count["pass"]), unit="tests"
            ),
        )


def _runtime_error(found: Table | None) -> str:
    """Why no test ran, in JSON."""
    tops = (as_table(one) for key, one in (found or {}).items() if "Diagnostic" in key)
    errors = (one.get(key) for one in tops for key in ("runtime_error", "Error Message"))
    return next((clean_line(one, 200) for one in errors if isinstance(one, str)), "")


_ENDED = re.compile(r"^\+-+\+-+\+$|^(\|[^|\n]{0,80}\| *(?i:pass|fail|skip|warn)\b)", re.MULTILINE)
"""The rule above a section contains the section's name."""


def _whole(text: str) -> bool:
    """Whether a rule follows the last test of the table."""
    last = [found[1] for found in _ENDED.finditer(text)][-1:]
    return "Successfully ran diagnostic" in text and last == [None]


_Said = tuple[str, str, str]
"""Test, outcome, GPUs."""


def _worst(outcomes: Iterable[_Said]) -> dict[str, str]:
    """Test -> its worst outcome on any GPU."""
    found: dict[str, str] = {}
    for name, outcome, _ in outcomes:
        found[name] = min(found.get(name, "skip"), outcome, key=_FROM_WORST.index)
    return found


def _with_gpus(name: str, outcomes: Iterable[_Said]) -> str:
    """The test, and on which GPUs it failed if that is known."""
    gpus = dict.fromkeys(
        of for test, outcome, of in outcomes if (test, outcome) == (name, "fail") and of
    )
    return f"{name} (GPU {', '.join(gpus)})" if gpus else name


def _of_text(text: str) -> list[_Said]:
    """Tests in the text, such as `| Memory | Pass - All |`; DCGM 4 adds a
    line for each GPU without the name.
    """
    found: list[_Said] = []
    # A line that was written twice (`tee -a`) counts once.
    for line, _ in groupby(lines_of(text)):
        cells = [cell.strip() for cell in line.split("|", 4)]
        outcome = _OUTCOME.match(cells[2]) if len(cells) > 3 and not cells[0] else None
        if outcome:
            last = found[-1][0] if found else "GPU"
            gpus = _GPUS.search(cells[2])
            found.append(
                (cells[1][:60] or last, outcome[1].casefold(), gpus[1].strip() if gpus else "")
            )
    return found


def _of_json(found: Table) -> Iterator[_Said]:
    """Each test for each GPU; DCGM 4 also has a summary of each test."""
    top = next((one for key, one in found.items() if "Diagnostic" in key), None)
    for category in object_tables(top, "test_categories"):
        for test in object_tables(category, "tests"):
            for result in (as_table(test.get("test_summary")), *object_tables(test, "results")):
                outcome = str(result.get("status"))[:8].casefold()
                of = next(
                    (result[key] for key in ("gpu_ids", "gpu_id", "entity_id") if key in result), ""
                )
                if outcome in _FROM_WORST:
                    yield clean_line(test.get("name", ""), 60), outcome, clean_line(of, 60)
