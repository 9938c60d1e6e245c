"""Explains messages of programs by the rows of rules/message_table.py; finds the
ranks and nodes that they name. No I/O.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache

from rankdeck.model.patterns import Pattern, compile_pattern
from rankdeck.model.stall import Explained
from rankdeck.rules.message_table import (
    ALONE,
    HARMLESS,
    MESSAGES,
    OF_OTHERS,
    STATUSES,
    STATUSES_OF_OTHERS,
    WARNING,
    Message,
    MessageKind,
)

_LONGEST = 500
_MARK = (
    r"\[[\w,. :/-]{1,60}\](?:<std\w{3}>)?:? ?|\([A-Za-z][\w=,. :-]{0,80}\) |(?:ERROR|CRITICAL|FATAL)[:| -]{1,3}"
    r"|\d{2,4}-\d\d(?:-\d\d)?[ T]\d\d:\d\d:\d\d\S{0,16} |\d\d:\d\d:\d\d\S{0,10} "
    r"|- [\w.]{1,60} - (?:ERROR|CRITICAL|FATAL) - |std(?:out|err) [FP] "
    r"| *\d{1,6}: |[a-z0-9][\w.-]{0,60}\d[\w.-]{0,60}: "  # rank or host: srun --label, pdsh
)
"""What launchers and loggers put before a line."""
_MOST_MARKS = 6
_MOST_RANKS = 4096
_NUMBER = r"(\d{1,9})\b"
_RANKS = (
    # MPICH's "node" is the rank in MPI_COMM_WORLD; the rank after it
    # may be that of another communicator.
    rf"\bAbort\(-?\d+\) on node {_NUMBER}",
    rf"\bapplication called MPI_Abort\(.{{1,80}}\) - process {_NUMBER}",
    rf"\bMPI_ABORT was invoked on rank {_NUMBER}(?! in communicator (?!MPI_COMM_WORLD))",
    rf"^\s*Proc: \[\[\d+,\d+\],{_NUMBER}",
    rf"\bProcess name: \[[^\s\]]+\]?,{_NUMBER}\]",
    rf"\bprocess rank {_NUMBER} with PID",
    rf"\bRANK {_NUMBER} PID \d+ RUNNING AT",
    rf"\bCommunication error with rank {_NUMBER}",
    r"\bRanks? (\d[\d, ]*) failed to pass monitoredBarrier",
    r"\bsrun: error: [^\s:]+: tasks? \[?(\d[\d,-]*)\]?:",
    rf"^\s*rank\s+: {_NUMBER} \(local_rank: ",
    rf"\bnon-zero exit code: \{{{_NUMBER}: ProcessFailure\(",
    rf"\bbut Rank {_NUMBER} is running collective",
    # c10d's report of a desync; the heading stands above it.
    r"\[(\d[\d, ]*)\] (?:finished collective #\d+, but didn't join|joined but didn't finish) collective #",
    rf"\bwhile rank {_NUMBER} has inconsistent",
    rf"\b[Rr]ank {_NUMBER} (?:has|got|sees) (?:a )?different\b",
    rf"\bsame param in process {_NUMBER}",
    rf"\bretrieving ncclUniqueId from \[{_NUMBER}\]",
    rf"\bfrom remote rank \[{_NUMBER}\]",
    r"\bCheckpointException ranks:dict_keys\(\[(\d[\d, ]*)\]",
    rf"/job:\w{{1,60}}/replica:\d{{1,9}}/task:{_NUMBER}",
    r"\[missing ranks: (\d[\d, ]*)\]",
    # Horovod's list of those that are missing, a line for each.
    rf"(?:^|>:? ?){_NUMBER}: \[[\w./]*(?:[Hh]orovod|[Aa]llreduce|[Aa]llgather|[Bb]roadcast|[Aa]lltoall)",
)
_ROOT_CAUSE = re.compile(r"\bRoot Cause \(first observed failure\)")
_LATER_FAILURES = re.compile(r"\s*(?:Other )?Failures:\s*$")
_ENDED_BY_LAUNCHER = re.compile(
    r"(?i)(?:killed by|died from|exited on) signal:? (?:9|15)\b|: tasks? \S+: (?:Killed|Terminated)$"
)
_END_OF_A_RANK = (
    r"\b(?:died|exited|terminated|killed|aborted)\b.{0,60}\b(?:signal|code|status|rank)\b"
    r"|caused collective abort|(?:exited|failed) and exit-|Called CmiAbort"
)
"""Of PALS, Flux, jsrun, MVAPICH, Fujitsu's plexec, MPD, Charm++."""
_ENDED_WELL = r"\b(?:code|status)[ :=]*0\b"
_ENDED_RANK = rf"\b(?:[Rr]ank|[Tt]ask|Processor)(?:: |[ =]){_NUMBER}"
_NO_HEARTBEAT = rf"\[RankMonServer\d+@[^\]]{{0,253}}:{_NUMBER}\] Did not get \w+ heartbeat\b"
"""Of NVRx's ft_launcher, before it kills the rank."""
_OPERATION = r"(?:\bPG GUID (\S{1,80}).{0,200})?\bSeqNum=(\d{1,12})"
_VALUE = re.compile(r"\d[\d.,:e+-]*")
_CRASH_REPORT = r"^\[[^\]]{1,260}:\d+\] Signal: [\w /-]{1,60}\((\d{1,2})\)"
"""Of Open MPI: the process that crashed writes it about itself, mpirun too."""
_CUT_MESSAGE = r"MPI_ERR_TRUNCATE|\b[Mm]essage truncated|collective mismatch error"
_UNKNOWN_NAME = (
    r"Name or service not known|[Tt]emporary failure in name resolution|[Cc]ould not resolve host"
    r"|[Hh]ost(?:name)? not found|No address associated with hostname|\bno such host\b"
)
_STACK_FRAME = (
    r"\s*(?:\[bt\] \(\d|Stack trace:|#\d+ |\[[^\]]{1,80}:\d+\] \[ *\d+\] )|.*\[0x[0-9a-f]+\]$"
)
"""Of dmlc (XGBoost), gdb, Open MPI, glibc."""
_MORE_RANKS = r"\b(\d{1,6}) more process(?:es)? ha(?:s|ve) sent help message help-mpi-"
_OF_ERROR, _OF_ABORT = rf"{_MORE_RANKS}errors", rf"{_MORE_RANKS}api\.txt / mpi-abort"
"""Of Open MPI: as many others have said the same, which it does not print."""
_MEMORY_USED_UP = r"(?i)out of memory|oom.kill|Killed process"
_GIVES_UP = (
    r"(?i)time[- ]?d?[- ]?out|deadline|deadlock|g[ai]ve?s? up|giving up|watchdog|heart-?beat|alarm"
    r"|no (?:progress|answer|response|reply|sign of life)|not (?:respond|answer|progress)"
    r"|\b(?:hang|hung|stuck|stalled|waited|unresponsive)\b"
)
_LOST_NODE = (
    r"\bsrun: error: Node failure on ([\w.-]{1,253})|^\s*Remote daemon: \S+ on node ([\w.-]{1,253})"
)
"""Of srun and, below the words that it has lost communication, of mpirun."""
_READY = r"\[ready ranks: (\d[\d, ]*)\]"
"""Of Horovod: all others are missing."""
_OVER_MEMORY = r"\bexceeded (?:job |step )?memory limit \(.*being killed"
"""Of Slurm, where it polls how much memory a job uses, and then kills all of it."""
_ENDED_BY_SCHEDULER = (
    r"\*\*\* JOB \S+ ON \S+ CANCELLED|\bDUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE|NODE_FAIL)\b"
    r"|\bTERM_(?:RUNLIMIT|PREEMPT|OWNER|ADMIN)\b|PBS: job killed: |type=timeout severity=0"
)
"""Of Slurm, LSF, PBS and Flux; a step is cancelled because a task failed, too."""
_TASKS_OUT_OF_MEMORY = r"\bsrun: error: [^\s:]+: tasks? \S+: Out Of Memory"
_PORT = r":\d{1,5}\b"
_ADDRESS = r"[0-9A-Fa-f:.]{3,45}(?:%\w{1,15})?"
_HOST = r"([\w.-]{1,253})"
_PEERS = (
    # Gloo and c10d; the address after `addr=` is the local end.
    rf"(?<!addr=)\[({_ADDRESS})\]{_PORT}",
    rf"\bconnect to \[{_HOST}\]{_PORT}",
    rf"\b(?:connect to|address of) \({_HOST}, \d+\)",
    # NCCL
    r"\b(?:[Cc]onnect to|recv from|send to|peer) ([^\s<>]{1,253})<\d+>",
    # Open MPI, MPICH, Slurm
    rf"^\s*(?:[Pp]eer(?: host| hostname)?|[Hh]ostname|Remote host):\s+{_HOST}(?:\s|$)",
    rf"\bRemote daemon: \S+ on node {_HOST}",
    rf"\bprocess rank \d+ with PID \d+ on node {_HOST}",
    rf"\bRUNNING AT {_HOST}",
    rf"\bsrun: error: {_HOST}: tasks? ",
    # UCX, libfabric, gRPC, ssh
    rf"\bdest_addr=({_ADDRESS}){_PORT}",
    rf"<-> ({_ADDRESS}){_PORT}",
    rf"\bremote peer \(({_ADDRESS}){_PORT}\)",
    rf"\bfi_sockaddr_in6?://\[?({_ADDRESS})\]?{_PORT}",
    rf"\bipv[46]:(?:\[|%5B)?({_ADDRESS})(?:\]|%5D)?{_PORT}",
    rf"\bssh: connect to host {_HOST} port \d",
    r"\b[Cc]ould not resolve hostname ([\w.-]{1,253})",
)


@cache
def _compile_all(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """Compiled when the first line is judged: most commands judge none, and compiling all takes
    longer than their other work.
    """
    return tuple(map(re.compile, patterns))


@cache
def _compile_long(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@lru_cache(maxsize=4096)
def bare_message(line: str) -> str:
    """The line without what launchers and loggers put before it."""
    for _ in range(_MOST_MARKS):
        mark = _compile_long(_MARK).match(line)
        if mark is None:
            break
        line = line[mark.end() :]
    return line


@lru_cache(maxsize=8192)
def named_ranks(line: str) -> tuple[int, ...]:
    """The ranks that have failed or are missing according to this line, each once."""
    found: list[int] = []
    for pattern in _compile_all(_RANKS):
        for match in pattern.finditer(line[:_LONGEST]):
            found += _numbers(match[1])
    return tuple(dict.fromkeys(found))[:_MOST_RANKS]


@lru_cache(maxsize=512)
def first_by_launcher(lines: tuple[str, ...], *, killed: bool = True) -> tuple[int, ...]:
    """The ranks that failed first according to a launcher; () if
    its lines name none, or all alike.

    `killed`: also if it only says that they were killed, as it kills the others.
    """
    roots = [at for at, line in enumerate(lines) if _ROOT_CAUSE.search(line)]
    told = lines[roots[-1] :] if roots else lines
    found = [(at, ranks) for at, line in enumerate(told) if (ranks := _ranks_of_launcher(line))]
    # Intel's mpiexec and PALS list every rank; those that they killed themselves say nothing.
    ended = [at for at, _ in found if _ended_by_launcher(*told[at : at + 2])]
    if not killed or len(ended) > 1 or len(found) > len(ended):
        found = [one for one in found if one[0] not in ended]
    return found[0][1] if found else ()


def first_failure_only(lines: tuple[str, ...]) -> tuple[str, ...]:
    """These lines without those in which torchrun lists the failures after the first."""
    root = next((at for at, line in enumerate(lines) if _ROOT_CAUSE.search(line)), 0)
    later = next((at for at, line in enumerate(lines[:root]) if _LATER_FAILURES.match(line)), root)
    return lines[:later] + lines[root:]


@lru_cache(maxsize=8192)
def numbered_operation(line: str) -> tuple[str, int] | None:
    """(group, number) of the collective operation in which NCCL's watchdog stopped the rank that
    wrote this line, or None; of older ones the group is "".
    """
    found = _compile_long(_OPERATION).search(line[:_LONGEST])
    return (found[1] or "", int(found[2])) if found else None


def rank_without_heartbeat(line: str) -> int | None:
    """The rank that a launcher kills, by this line, because it has sent no heartbeat; or None."""
    found = _compile_long(_NO_HEARTBEAT).search(line[:_LONGEST])
    return int(found[1]) if found else None


def tells_kill_for_memory(line: str) -> bool:
    """Whether a scheduler says in this line that it kills the whole job for its use of memory."""
    return _compile_long(_OVER_MEMORY).search(line) is not None


def node_lost_by_launcher(line: str) -> str:
    """The node that its launcher has lost, according to this line; "" if it tells of none."""
    found = _compile_long(_LOST_NODE).search(line[:_LONGEST])
    return found[1] or found[2] if found else ""


def ready_ranks(lines: Iterable[str]) -> frozenset[int]:
    """The ranks that are there according to the last of these lines that lists them: the others
    are missing; empty if none does.
    """
    found = (_compile_long(_READY).search(line[:_LONGEST]) for line in lines)
    return frozenset(_numbers(next((match[1] for match in [*found][::-1] if match), "")))


def tells_end_by_scheduler(line: str) -> bool:
    """Whether a scheduler says in this line that it ended the job, whatever its ranks did."""
    return _compile_long(_ENDED_BY_SCHEDULER).search(line) is not None


def ranks_out_of_memory(line: str) -> tuple[int, ...]:
    """The ranks of which srun says in this line that memory was used up: it reads their cgroups."""
    return named_ranks(line) if _compile_long(_TASKS_OUT_OF_MEMORY).search(line) else ()


def signal_in_report(line: str) -> int | None:
    """The signal that ended the process which wrote this line, by Open MPI's report; or None."""
    found = _compile_long(_CRASH_REPORT).search(line[:_LONGEST])
    return int(found[1]) if found else None


def tells_cut_message(line: str) -> bool:
    """Whether MPI says in this line that a message was longer than the buffer of its receiver."""
    return _compile_long(_CUT_MESSAGE).search(line) is not None


def tells_unknown_name(line: str) -> bool:
    """Whether a program says in this line that it does not know a host by its name."""
    return _compile_long(_UNKNOWN_NAME).search(line[:_LONGEST]) is not None


def tells_giving_up(line: str) -> bool:
    """Whether a program says in this line that it has waited in vain."""
    return _compile_long(_GIVES_UP).search(line) is not None


def replace_numbers(line: str) -> str:
    """The line with `#` in place of each number: lines that a program writes again and again
    become equal.
    """
    return _VALUE.sub("#", line)


def is_stack_frame(line: str) -> bool:
    """Whether this line is part of a native stack."""
    return _compile_long(_STACK_FRAME).match(line[:_LONGEST]) is not None


def others_with_error(line: str) -> int:
    """How many more ranks than the one that is shown have failed by the same MPI error."""
    return _count_in(_OF_ERROR, line)


def others_that_aborted(line: str) -> int:
    """How many more ranks than the one that is shown have called MPI_Abort."""
    return _count_in(_OF_ABORT, line)


def _count_in(pattern: str, line: str) -> int:
    found = _compile_long(pattern).search(line[:_LONGEST])
    return int(found[1]) if found else 0


def tells_used_up_memory(line: str) -> bool:
    """Whether the kernel says in this line that it ended a process because memory was used up."""
    return _compile_long(_MEMORY_USED_UP).search(line) is not None


def _ended_by_launcher(line: str, following: str = "") -> bool:
    """Whether the launcher killed the rank that it names in this line; Intel's says how it ended
    in the next one.
    """
    same = "" if _ranks_of_launcher(following) else following
    return bool(_ENDED_BY_LAUNCHER.search(line) or _ENDED_BY_LAUNCHER.search(same))


def _ranks_of_launcher(line: str) -> tuple[int, ...]:
    """The ranks that ended badly according to this line of a launcher."""
    if named := named_ranks(line):
        return named
    end, well, rank = _compile_all((_END_OF_A_RANK, _ENDED_WELL, _ENDED_RANK))
    if well.search(line[:_LONGEST]) or not end.search(line[:_LONGEST]):
        return ()
    return tuple(dict.fromkeys(int(match[1]) for match in rank.finditer(line[:_LONGEST])))


@lru_cache(maxsize=8192)
def named_peers(line: str) -> tuple[str, ...]:
    """The addresses and host names of other nodes in a line, without their ports."""
    hits = (
        match for pattern in _compile_all(_PEERS) for match in pattern.finditer(line[:_LONGEST])
    )
    found = (match[1].removeprefix("::ffff:").rstrip(".") for match in hits)
    return tuple(dict.fromkeys(name for name in found if name))


_SOUGHT = (
    r"\[c10d\].*\baddresses of \(([^\s,()]+), \d+\)"
    r"|\b(?:trying to connect to|connect to any network address of) \(([^\s,()]+), \d+\)"
)
"""PyTorch's `socket.cpp`: the host of the store at which all ranks meet."""


def sought_host(line: str) -> str:
    """The host at which a rank sought the others when it started, and which it did not reach; "" if
    the line names none.
    """
    found = _compile_long(_SOUGHT).search(line[:_LONGEST])
    return (found[1] or found[2]) if found else ""


def _numbers(text: str) -> list[int]:
    """The numbers in `0`, `2, 5` or `0-3,7`; for a very long range only its two ends."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit():
            continue
        low, high = int(first[:9]), int(last[:9]) if last.isdigit() else int(first[:9])
        found += range(low, high + 1) if 0 <= high - low < _MOST_RANKS else (low, high)
    return found


_AMONG_OTHERS = (
    r"\b(?:[Rr]ank|RANK|[Pp]rocess|[Tt]ask)[ :=#]*\d{1,7},? *(?:/|of|out of|from|size:?) *(?:[2-9]|1\d)"
    r"|\b(?:[Ww]orld|WORLD|MPI|COMM_WORLD)[ _-][Ss](?:ize|IZE)[ :=]*(?:is )?(?:[2-9]|1\d)"
)
"""Matches output of a rank that knows of others."""
EVERY_RANK_ALONE = Explained(
    "every rank believes it is alone: launcher and program are of different MPIs",
    "start it with the mpirun of the MPI that the program was built with",
)


def believes_alone(ranks_lines: Mapping[int, Sequence[str]]) -> bool:
    """Whether at least two ranks wrote, and each that did says that it is the only one.

    Only for MPI jobs with several ranks; `ranks_lines` has the first or last lines of each rank.
    """
    wrote = [lines for lines in ranks_lines.values() if any(map(str.strip, lines))]
    return len(wrote) > 1 and all(map(_says_alone, wrote))


def lone_line(ranks_lines: Mapping[int, Sequence[str]]) -> str:
    """The first line in which a rank says that it is alone; "" if there is none."""
    lines = (line for rank in sorted(ranks_lines) for line in ranks_lines[rank])
    return next(
        (line.strip() for line in lines if _compile_long(ALONE).search(line[:_LONGEST])), ""
    )


def _says_alone(lines: Iterable[str]) -> bool:
    short = [line[:_LONGEST] for line in lines]
    if any(_compile_long(_AMONG_OTHERS).search(line) for line in short):
        return False
    return any(_compile_long(ALONE).search(line) for line in short)


SURE_OF_SPECIAL, SURE_OF_GENERAL = 0.89, 0.75
"""How sure what a line means is. Of 222 lines of public outputs that no row was made for, 190 were
explained by a special row, 184 rightly, and 32 by a general one, 29 rightly: told is the lower end
of Wilson's interval, and below 90 %.
"""
MOST = 4
"""Most explanations of one failure: more would hide the first."""
_OURS = tuple(row.pattern for row in MESSAGES)
_of_user: list[tuple[Pattern, Message]] = []
"""Rows of the user, whose patterns are RE2's: they cannot make a search slow."""


def use_rows(own: Sequence[Message]) -> None:
    """Look for these rows of a user first, from now on, instead of those of an earlier call.

    Raises BadPatternError.
    """
    _of_user[:] = [(compile_pattern(row.pattern), row) for row in own]
    _row.cache_clear()


def explain_end(lines: Iterable[str], status: int | None = None) -> tuple[Explained, ...]:
    """What these last lines and the exit status mean, newest line first; at most MOST explanations.

    What is said under many causes comes after the rest; last what only says that others failed, or
    that the rank was told to end. Of warnings only the rows count that say so.
    """
    found: list[dict[str, Explained]] = [{}, {}, {}, {}]
    for row, line in _known(lines):
        warning = is_warning(line)
        if not warning or row.warned:
            place = 3 if row.kind in OF_OTHERS else 2 if row.general else 1 if warning else 0
            told = Explained(row.means, row.remedy, line, _sure_of(row))
            found[place].setdefault(row.means, told)
    # A special row says more than the exit status, or contradicts it: killed, by whom is not known.
    if status in STATUSES and not found[0]:
        means, remedy = STATUSES[status]
        place = 3 if status in STATUSES_OF_OTHERS else 2
        if not any(means in group for group in found):
            found[place][means] = Explained(means, remedy)
    answers: dict[str, Explained] = {}
    for group in found:
        answers |= {means: one for means, one in group.items() if means not in answers}
    return tuple(answers.values())[:MOST]


def _sure_of(row: Message) -> float | None:
    if any(row is own for _, own in _of_user):
        return None
    return SURE_OF_GENERAL if row.general else SURE_OF_SPECIAL


def message_rows(lines: Iterable[str]) -> tuple[tuple[Message, str], ...]:
    """(row, line) for each line that the table knows and that is no warning, newest first."""
    return tuple((row, line) for row, line in _known(lines) if not is_warning(line))


@lru_cache(maxsize=4096)
def missing_ranks(lines: tuple[str, ...]) -> frozenset[int]:
    """The ranks that did not come, according to these lines; a warning may say it as well."""
    waited = (line for row, line in _known(lines) if row.kind is MessageKind.TIMEOUT)
    return frozenset(rank for line in waited for rank in named_ranks(line))


def kinds_of(lines: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """(value of `MessageKind`, line) for each line that the table knows
    and that is no warning, newest first.
    """
    return tuple((row.kind.value, line) for row, line in message_rows(lines))


def _known(lines: Iterable[str]) -> Iterable[tuple[Message, str]]:
    """The lines that the table knows, newest first, each with its row."""
    for line in reversed([line[:_LONGEST].strip() for line in lines]):
        row = _row(line)
        if row is not None:
            yield row, line


@lru_cache(maxsize=4096)
def is_warning(line: str) -> bool:
    """Whether a program says in this line that it goes on all the
    same, or what it does just now.
    """
    return _compile_long(WARNING).search(line[:_LONGEST]) is not None


@lru_cache(maxsize=4096)
def _row(line: str) -> Message | None:
    """The first row of the table that matches a line; cached, because many ranks print the same."""
    if not line or _compile_long(HARMLESS).search(line):
        return None
    own = next((row for pattern, row in _of_user if pattern.within(line)), None)
    bare = bare_message(line)
    return own or _our_row(line) or (_our_row(bare) if bare != line else None)


def _our_row(line: str) -> Message | None:
    rows = zip(_compile_all(_OURS), MESSAGES, strict=True)
    return next((row for pattern, row in rows if pattern.search(line)), None)
