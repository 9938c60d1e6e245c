"""Whether every rank of an MPI job believes that it is alone. No I/O.

Launcher and program of different MPIs do not find each other: each rank computes the whole problem, exits 0, and
the job looks well.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from rankdeck.model.insight import Explained

_NOT_A_PART = r"(?<!local )(?<!local-)(?<!node )(?<!parallel )(?<!parallel-)(?<!group )(?<!stage )"
"""A rank among a few of the ranks may well be the only one: `local rank 0 of 1`."""
_END = r"(?![\w/%]|[.,]\d)"
ALONE = (
    rf"{_NOT_A_PART}\b(?:[Rr]ank|RANK|[Pp]rocess|[Tt]ask)[ :=#]*0,? *(?:/|of|out of|from|size:?) *1{_END}"
    rf"|{_NOT_A_PART}\b(?:[Ww]orld|WORLD|MPI|COMM_WORLD)[ _-][Ss](?:ize|IZE)[ :=]*(?:is )?1{_END}"
    rf"|(?i:\b(?:number of|num|total) (?:MPI )?(?:processes|ranks|tasks|procs) *[:=]? *(?:is )?1{_END})"
    rf"|(?i:\b(?:using|running on) +1 (?:MPI )?(?:process(?:es|ors?)?|procs?|ranks?|tasks?)\b)"
)
"""Words of a rank that sees no other: `rank 0 of 1`, `world size 1`, `running on 1 processor`."""
_ALONE = re.compile(ALONE)
_AMONG_OTHERS = re.compile(
    r"\b(?:[Rr]ank|RANK|[Pp]rocess|[Tt]ask)[ :=#]*\d{1,7},? *(?:/|of|out of|from|size:?) *(?:[2-9]|1\d)"
    r"|\b(?:[Ww]orld|WORLD|MPI|COMM_WORLD)[ _-][Ss](?:ize|IZE)[ :=]*(?:is )?(?:[2-9]|1\d)"
)
"""Words of a rank that sees others."""
_LONGEST = 500
EVERY_RANK_ALONE = Explained(
    "every rank believes it is alone: launcher and program are of different MPIs",
    "start it with the mpirun of the MPI that the program was built with",
)


def believes_alone(ranks_lines: Mapping[int, Sequence[str]]) -> bool:
    """Whether at least two ranks wrote, and each that did says it is the only one.

    Ask it for MPI jobs of several ranks only; `ranks_lines` has the first or last lines of each rank.
    """
    wrote = [lines for lines in ranks_lines.values() if any(map(str.strip, lines))]
    return len(wrote) > 1 and all(map(_says_alone, wrote))


def lone_line(ranks_lines: Mapping[int, Sequence[str]]) -> str:
    """The first line by which a rank says that it is alone; "" without one."""
    lines = (line for rank in sorted(ranks_lines) for line in ranks_lines[rank])
    return next((line.strip() for line in lines if _ALONE.search(line[:_LONGEST])), "")


def _says_alone(lines: Iterable[str]) -> bool:
    short = [line[:_LONGEST] for line in lines]
    if any(_AMONG_OTHERS.search(line) for line in short):
        return False
    return any(_ALONE.search(line) for line in short)
