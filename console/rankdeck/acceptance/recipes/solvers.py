"""Programs that solve a problem and check their solution: HPCG, and the NAS Parallel Benchmarks."""

import re
from typing import ClassVar

from rankdeck.acceptance.output_text import first_line, number, whole
from rankdeck.acceptance.recipe import (
    Commands,
    OutputReading,
    Traits,
    Where,
    WithoutCeiling,
    failed,
    not_measured,
)
from rankdeck.model.acceptance import Outcome
from rankdeck.model.job import Launch
from rankdeck_agent.wire import RUN_TOKEN


def _measured(word: str, unit: str, what: str, ranks: str) -> OutputReading:
    value = number(word)
    if value is None or value <= 0:
        return not_measured(f"its rate is `{word[:40]}`", unit=unit)
    return OutputReading(
        status=Outcome.MEASURED, text=what, value=value, unit=unit, ranks=whole(ranks)
    )


# ---- HPCG

_VALID = re.compile(r"HPCG result is VALID with a GFLOP/s rat(?:e|ing) of[:=] ?(\S{1,40})")
_INVALID = re.compile(r"HPCG result is[:=] ?INVALID")
_PROCESSES = re.compile(r"Distributed Processes[:=] ?(\d{1,9})")


class Hpcg(WithoutCeiling):
    """HPCG; it writes HPCG-Benchmark_….txt and nothing to stdout."""

    name: ClassVar[str] = "hpcg"
    traits: ClassVar[Traits] = Traits(
        unit="GFLOP/s",
        tolerance=0.07,
        seconds=90.0,
        mark=r"HPCG-Benchmark|HPCG result is",
        begins=r"^HPCG-Benchmark",
    )

    def commands(self, where: Where) -> Commands:
        """64^3 points a rank are larger than any cache; half a minute compares nodes, and is no record."""
        shell = f"cd {RUN_TOKEN} && xhpcg --nx=64 --rt=30 && for file in HPCG-Benchmark*.txt; do if [ -f $file ]; then cat $file; fi; done"
        return Commands(launch=Launch.MPI, argv=("sh", "-c", shell))

    def read(self, text: str) -> tuple[OutputReading, ...]:
        """The rate counts only on the line that calls the result valid: the summary above it has others."""
        if _INVALID.search(text):
            line = first_line(text, "FAILED", "INVALID")
            return (failed(f"wrong values: HPCG calls its result invalid: `{line[:120]}`"),)
        found, ranks = _VALID.search(text), _PROCESSES.search(text)
        if found is None:
            return (not_measured("no line `HPCG result is VALID`: the run was cut off"),)
        return (_measured(found[1], "GFLOP/s", "HPCG", ranks[1] if ranks else ""),)


# ---- NAS Parallel Benchmarks

_NPB = re.compile(r"^\s*(\w{2}(?:-MZ)?) Benchmark Completed", re.MULTILINE)
_NPB_ROW = re.compile(
    r"^\s*(Class|Total processes|Mop/s total|Verification)\s*=[ \t]*(\S[^\n]{0,60})", re.MULTILINE
)


class Npb(WithoutCeiling):
    """NAS Parallel Benchmarks, each with MPI, OpenMP or alone; several are a result each."""

    name: ClassVar[str] = "npb"
    traits: ClassVar[Traits] = Traits(
        unit="Mop/s",
        tolerance=0.10,
        seconds=60.0,
        mark=r"NAS Parallel Benchmarks|\w\w Benchmark Completed|Mop/s total",
        begins=r"^.{0,40}NAS Parallel Benchmarks",
        done=r"Verification\s+=",
    )

    def commands(self, where: Where) -> Commands:
        """CG: memory and network with little computing."""
        return Commands(launch=Launch.MPI, argv=("cg.C.x",))

    def read(self, text: str) -> tuple[OutputReading, ...]:
        if (name := _NPB.search(text)) is None:
            return (not_measured("no line `Benchmark Completed`: the run was cut off"),)
        said = {key: value.strip() for key, value in _NPB_ROW.findall(text[name.start() :])}
        check = said.get("Verification", "")
        if check == "UNSUCCESSFUL":
            return (failed(f"wrong values: {name[1]} says that its verification was UNSUCCESSFUL"),)
        if check != "SUCCESSFUL":
            why = (
                f"its verification is `{check[:40]}`"
                if check
                else "no line `Verification`: the run was cut off"
            )
            return (not_measured(why),)
        what = f"{name[1]}, class {said.get('Class', '?')}"
        ranks = said.get("Total processes", "")
        return (_measured(said.get("Mop/s total", ""), "Mop/s", what, ranks),)
