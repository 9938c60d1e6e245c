"""Several measurements between two nodes in one job: the script that both ranks run, and what it wrote. Pure.

A server has no place in a launcher: rank 0 and rank 1 take turns at being the server. The client asks
again while nobody listens; the server of a step ends with its client, so both go on together. Only a
POSIX shell and `timeout` are needed, also in a container.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from shlex import join, quote

MARK = "#rankdeck-step"
FILE = "steps.sh"
_WAITS = 100
"""Times that a client asks again, a tenth of a second apart."""
_HEAD = r"""# Made by Rankdeck: measurements between two nodes, one after the other.
rank=${RANK:-${RANKDECK_RANK:-${SLURM_PROCID:-${JOB_COMPLETION_INDEX:-0}}}}
now() { read -r up _ </proc/uptime; }
begin() { now; began=$up; printf '%s begin %s\n' "$mark" "$1"; }
end() { now; printf '\n%s end %s %s %s %s\n' "$mark" "$1" "$2" "$began" "$up"; }
waits() { case $1 in @WAITS@) return 0 ;; esac; return 1; }
serve() {
    step=$1 limit=$2; shift 2; began=0; now; began=$up
    out=$(timeout -k 1 "$limit" "$@" 2>&1 </dev/null) || { code=$?; begin "$step"; printf %s "$out"; end "$step" "$code"; }
}
ask() {
    step=$1 limit=$2; shift 2; tries=0; begin "$step"
    while now; began=$up; out=$(timeout -k 1 "$limit" "$@" 2>&1 </dev/null); code=$?; [ $tries -lt @TRIES@ ] && waits "$out"; do
        tries=$((tries + 1)); sleep 0.1
    done
    printf %s "$out"; end "$step" "$code"
}
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement from `sender` (0 or 1) to the other rank."""

    number: int
    sender: int
    client: tuple[str, ...]
    server: tuple[str, ...]
    limit: float
    """Seconds after which both programs are ended."""


def script(steps: Sequence[Step], waits: Sequence[str]) -> str:
    """The shell script of both ranks; `waits` are words of a client that found nobody listening."""
    patterns = "|".join(f"*{quote(word)}*" for word in waits) or "''"
    head = _HEAD.replace("@WAITS@", patterns).replace("@TRIES@", str(_WAITS))
    sides = [
        f"{rank})\n" + "".join(_line(step, rank) for step in steps) + "    ;;\n" for rank in (0, 1)
    ]
    return f"mark='{MARK}'\n{head}case $rank in\n{''.join(sides)}esac\n"


def _line(step: Step, rank: int) -> str:
    verb, argv = ("ask", step.client) if step.sender == rank else ("serve", step.server)
    return f"    {verb} {step.number} {step.limit:.0f} {join(argv)}\n"


@dataclass(frozen=True, slots=True)
class Said:
    """What one rank wrote in one step."""

    number: int
    output: bytes
    exit_code: int | None
    """None: it had not ended."""
    seconds: float


_BEGIN = re.compile(rb"^" + MARK.encode() + rb" begin (\d{1,6})\r?\n", re.MULTILINE)
_END = re.compile(
    rb"^"
    + MARK.encode()
    + rb" end (\d{1,6}) (\d{1,3}) (\d{1,10}\.?\d{0,4}) (\d{1,10}\.?\d{0,4})\r?$",
    re.MULTILINE,
)


def said(output: bytes) -> Iterator[Said]:
    """Each step in the output of a rank, in order; the last one may have no end."""
    begins = list(_BEGIN.finditer(output))
    ends = [one.start() for one in begins[1:]] + [len(output)]
    for begin, until in zip(begins, ends[: len(begins)], strict=True):
        part = output[begin.end() : until]
        end = next((one for one in _END.finditer(part) if one[1] == begin[1]), None)
        if end is None:
            yield Said(int(begin[1]), part, None, 0.0)
        else:
            seconds = max(0.0, float(end[4]) - float(end[3]))
            yield Said(int(begin[1]), part[: end.start()], int(end[2]), seconds)


def first_of(parts: Iterable[Said], number: int) -> Said | None:
    """The step of that number; a node that says it twice is not believed the second time."""
    return next((one for one in parts if one.number == number), None)
