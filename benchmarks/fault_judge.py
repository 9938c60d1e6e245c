"""Judges one run of a fault by what the console showed. Pure."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from benchmarks.fault_model import Answer, Blame, Fault, Kind, Outcome, Seen, Shape

RIGHT, WRONG, SILENT, UNPLANTED = "right", "wrong", "silent", "unplanted"
NOBODY, NOTE = "nobody", "note"


def blame_of(job: Shape) -> Blame | None:
    """Who failed first according to a job's JSON; None if it names nobody."""
    failure: dict[str, Any] | None = job.get("first_failure")
    everybody = tuple(int(one["rank"]) for one in job.get("ranks", ()))
    if failure is not None:
        return _of_failure(failure, everybody)
    named = (blame for stall in job.get("stalled", ()) if (blame := _of_stall(stall)))
    return next(named, None)


def _of_failure(failure: dict[str, Any], everybody: tuple[int, ...]) -> Blame | None:
    if failure.get("what") == "undecided":
        return None
    rank = failure.get("rank")
    what = str(failure.get("what") or ("launcher" if rank is None else "rank"))
    words = [f"exit {failure.get('exit_code')} signal {failure.get('signal')}", what]
    words += _words(failure, "lines", "evidence")
    words += _meanings(failure.get("explained", ()))
    settled = failure.get("settled") is not False
    ranks = everybody if what == "all" else () if rank is None else (int(rank),)
    return Blame(ranks, str(failure.get("node")), what, "\n".join(words), settled)


def _of_stall(stall: dict[str, Any]) -> Blame | None:
    everybody = stall.get("kind") == "all" or bool(stall.get("between"))
    differ = stall.get("odd") or stall.get("first")
    node = str(stall.get("node") or "")
    ranks = tuple(differ or (() if everybody or node else stall.get("ranks", ())))
    if not ranks and not node:
        return None
    words = [str(stall.get("text", "")), *_meanings(stall.get("explained", ()))]
    return Blame(ranks, node, "rank" if ranks else "node", "\n".join(words))


def answer_to(fault: Fault, job: Shape) -> Blame | None:
    """Who failed first according to a job's JSON; where nobody is to blame, also
    a stall that names nobody, a note, or that it is undecided.
    """
    if fault.right.what not in (NOBODY, NOTE):
        return blame_of(job)
    if fault.right.what == NOTE:
        notes = [
            one for one in map(str, job.get("troubles", ())) if "ended with exit 0, but" in one
        ]
        return blame_of(job) or (Blame((), "", NOTE, "\n".join(notes)) if notes else None)
    failure: dict[str, Any] | None = job.get("first_failure")
    if failure and failure.get("what") == "undecided":
        words = [str(failure.get("decides", "")), *_words(failure, "evidence")]
        return Blame((), "", NOBODY, "\n".join(words))
    waits = (one for one in job.get("stalled", ()) if one.get("kind") == "all")
    texts = [str(one.get("text", "")) for one in waits]
    return blame_of(job) or (Blame((), "", NOBODY, "\n".join(texts)) if texts else None)


def _words(table: dict[str, Any], *keys: str) -> list[str]:
    return [str(word) for key in keys for word in table.get(key) or ()]


def _meanings(explained: Iterable[dict[str, Any]]) -> list[str]:
    return [f"{one.get('means')} {one.get('try')} {one.get('line')}" for one in explained]


def is_right(blame: Blame, right: Answer) -> bool:
    """Whether the right one is named, and nobody else."""
    if right.ranks:
        return bool(blame.ranks) and set(blame.ranks) <= right.ranks
    if right.what in (NOBODY, NOTE):
        return blame.what == right.what
    whats = right.what.split("|")
    return not blame.ranks and blame.node == right.node and blame.what in whats


def who(blame: Blame | None) -> str:
    """`rank 4`, `launcher on sakuya`, `nobody`."""
    if blame is None or blame.what in (NOBODY, NOTE):
        return NOBODY
    if blame.ranks:
        return f"rank {','.join(map(str, blame.ranks))}"
    return f"{blame.what} on {blame.node}"


def same(job: Shape, code: int | None, others: Sequence[Shape]) -> bool:
    """Whether `run`'s exit code and the JSON of every other console
    give the same answer as this job.
    """
    failure: dict[str, Any] | None = job.get("first_failure")
    if failure is not None and code is not None and job.get("state") == "failed":
        signal, exit_code = failure.get("signal"), failure.get("exit_code")
        wanted = 128 + signal if signal else exit_code
        if wanted and wanted != code:
            return False
    return all(who(blame_of(other)) == who(blame_of(job)) for other in others)


def outcome(
    fault: Fault,
    seen: Sequence[Seen],
    fault_at: float | None,
    launcher_said: str,
    *,
    alike: bool,
    note: str = "",
) -> Outcome:
    """Judge one run; `fault_at`: time of the fault (epoch seconds), None if it never happened."""
    blames = [(one.at, answer_to(fault, one.job)) for one in seen]
    last = blames[-1][1] if blames else None
    if fault.kind is Kind.HEALTHY:  # one word is too much, also where it was taken back
        last = next((blame for _, blame in blames if blame), None)
    verdict, explained = _verdict(fault, last, fault_at, [b for _, b in blames])
    told = _stood_since(blames)
    seconds = None if told is None or fault_at is None else max(told - fault_at, 0.0)
    final = who(last)
    changed = any(b is not None and b.settled and who(b) != final for _, b in blames)
    return Outcome(
        fault=fault.name, verdict=verdict, named=final, explained=explained,
        seconds=seconds if verdict in (RIGHT, WRONG) else None, changed=changed,
        same=alike, launcher_said=launcher_said, said=last.text if last else "", note=note,
    )  # fmt: skip


def _verdict(
    fault: Fault, last: Blame | None, fault_at: float | None, blames: Sequence[Blame | None]
) -> tuple[str, bool]:
    if fault.kind is Kind.HEALTHY:
        # What is right may be said while it lasts: that a node does not answer.
        said = [blame for blame in blames if blame and not is_right(blame, fault.right)]
        return (WRONG if said or (blames and blames[-1]) else RIGHT), True
    if fault_at is None:
        return UNPLANTED, False
    if last is None:
        return SILENT, False
    right = is_right(last, fault.right)
    return (RIGHT if right else WRONG), right and fault.right.explained_by(last.text)


def _stood_since(blames: Sequence[tuple[float, Blame | None]]) -> float | None:
    """Since when the final answer has been shown without a break."""
    if not blames or blames[-1][1] is None:
        return None
    final, since = who(blames[-1][1]), blames[-1][0]
    for at, blame in reversed(blames):
        if blame is None or who(blame) != final:
            break
        since = at
    return since


# ---- the table ----------------------------------------------------------------------------

HEADS = (
    "fault", "launcher", "runs", "right", "wrong", "silent", "explained", "changed",
    "p50 s", "worst s", "same", "launcher said", "wrongly named", "notes",
)  # fmt: skip


def row(fault: Fault, outcomes: Sequence[Outcome]) -> dict[str, object]:
    """One row of the table, as a value by its head."""
    planted = [one for one in outcomes if one.verdict != UNPLANTED]
    told = sorted(one.seconds for one in planted if one.seconds is not None)
    wrong = [one for one in planted if one.verdict == WRONG]
    notes = [one.note for one in outcomes if one.note]
    if len(planted) < len(outcomes):
        notes.insert(0, f"{len(outcomes) - len(planted)} never came to the fault")
    return {
        "fault": fault.name,
        "launcher": fault.launcher,
        "runs": len(planted),
        "right": _count(planted, RIGHT),
        "wrong": len(wrong),
        "silent": _count(planted, SILENT),
        "explained": sum(one.explained for one in planted),
        "changed": sum(one.changed for one in planted),
        "p50 s": round(median(told), 1) if told else None,
        "worst s": round(told[-1], 1) if told else None,
        "same": sum(one.same for one in planted),
        "launcher said": _tally(one.launcher_said for one in planted),
        "wrongly named": _tally(one.named for one in wrong),
        "notes": "; ".join(dict.fromkeys(notes)),
    }


def _count(outcomes: Iterable[Outcome], verdict: str) -> int:
    return sum(one.verdict == verdict for one in outcomes)


def _tally(names: Iterable[str]) -> str:
    """`rank 3 ×2, nobody`."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(name + (f" ×{n}" if n > 1 else "") for name, n in ordered)


def total(kind: str, outcomes: Sequence[tuple[Fault, Outcome]]) -> dict[str, object]:
    """One line about all runs of a kind."""
    own = [one for fault, one in outcomes if fault.kind == kind]
    planted = [one for one in own if one.verdict != UNPLANTED]
    told = sorted(one.seconds for one in planted if one.seconds is not None)
    return {
        "kind": kind,
        "runs": len(planted),
        "unplanted": len(own) - len(planted),
        "right": _count(planted, RIGHT),
        "wrong": _count(planted, WRONG),
        "silent": _count(planted, SILENT),
        "explained": sum(one.explained for one in planted),
        "p50 s": round(median(told), 1) if told else None,
        "worst s": round(told[-1], 1) if told else None,
    }
