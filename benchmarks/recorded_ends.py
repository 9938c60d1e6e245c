"""Recorded failures as timelines: the corpus of this repository, and plays of public failures where
they lie beside it. Each is also told with other clocks and later records (`NAME#1`, …).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.fault_corpus import FOLDER, read_cases
from benchmarks.planted_ends import ABORT, Timeline, Who
from rankdeck.rules.ends import LAUNCHER_ENDINGS, End
from rankdeck.rules.failed_job import FailedJob
from rankdeck.values import replace

PLAYS = Path(__file__).resolve().parents[2] / "shared/data/failures"
COPIES = 5
"""How often each is told with other clocks."""
SLACK = 0.01
"""Seconds by which the clock of a node of the embedded cluster may be off."""
_LAST = 40


def read_corpus(folder: Path = FOLDER) -> Iterator[Timeline]:
    """The failures of the corpus; without hangs, of which nothing has ended, and launchers that
    were killed: how launchers ended was not recorded.
    """
    for name, case in read_cases(folder).items():
        if case["kind"] == "failure" and case["right"]["ranks"]:
            yield from _with_copies(_of_case(name, case))


def _of_case(name: str, case: dict[str, Any]) -> Timeline:
    flavour = str(case["launcher"]).replace("plain", "")
    last = max((one["ended"] or 0.0 for one in case["ranks"]), default=0.0)
    launchers = tuple(
        End(
            what="launcher", name=LAUNCHER_ENDINGS[flavour].name or "supervisor", node=node, code=1,
            at=last + 0.1, lines=_lines(text),
        )
        for node, text in case["launchers"].items()
    )  # fmt: skip
    ends = tuple(
        End(
            rank=one["rank"], node=one["node"], code=one["exit_code"], signal=one["signal"],
            at=one["ended"] if one["state"] in ("done", "failed", "cancelled") else None,
            slack=SLACK, stopped=one["state"] == "cancelled", lines=_lines(one["output"]),
        )
        for one in case["ranks"]
    )  # fmt: skip
    right: frozenset[Who] = frozenset(("rank", rank) for rank in case["right"]["ranks"])
    return Timeline(name, _job(ends, launchers, flavour), right, "corpus")


def read_plays(folder: Path = PLAYS) -> Iterator[Timeline]:
    """Plays of public failures, with what their launcher does; none if the folder is absent."""
    want_file = folder / "want.json"
    if not want_file.is_file():
        return
    for name, want in json.loads(want_file.read_text()).items():
        if want["rank"] is not None:
            play = json.loads((folder / f"{name}.json").read_text())
            ranks = want["rank"] if isinstance(want["rank"], list) else [want["rank"]]
            flavour = "openmpi5" if want["launch"] == "mpi" else ""
            right: frozenset[Who] = frozenset(("rank", rank) for rank in ranks)
            job = _job(_of_play(play, flavour), (), flavour)
            yield from _with_copies(Timeline(name, job, right, "play"))


def _of_play(play: dict[str, Any], flavour: str) -> tuple[End, ...]:
    count = int(play["n"])
    parts = [play["ranks"].get(str(rank)) or play["ranks"]["*"] for rank in range(count)]
    own = [float(one["at"]) for one in parts if one["end"] not in ("hang", "exit:0")]
    stop = min(own, default=60.0) + (0.2 if flavour else ABORT)
    return tuple(_played(rank, one, stop, count, told=bool(flavour)) for rank, one in enumerate(parts))  # fmt: skip


def _played(rank: int, one: dict[str, Any], stop: float, count: int, *, told: bool) -> End:
    """The end of a rank of a play, if all that still run are told to end at `stop`."""
    node = f"n{rank // max(count // 3, 1) + 1}"
    said = [
        (float(at), text.replace("{r}", str(rank)))
        for at, text in one["say"]
        if isinstance(text, str)
    ]
    at, how = float(one["at"]), str(one["end"])
    code, signal = (int(how[5:]), None) if how.startswith("exit:") else (None, None)
    signal = int(how[5:]) if how.startswith("kill:") else signal
    stopped = False
    if how == "hang" or at > stop:
        term: dict[str, Any] = one.get("on_term") or {"lines": [], "code": None}
        said += [(stop, str(line)) for line in term["lines"]]
        code, at, stopped = term["code"], stop + 0.05, not told
        signal = 15 if code is None else None
    parts = [(when, line) for when, text in said if when <= at for line in _lines(text)]
    return End(
        rank=rank, node=node, code=code, signal=signal, at=1000.0 + at, slack=SLACK,
        stopped=stopped, lines=tuple(line for _, line in parts)[-_LAST:],
        ago=tuple(at - when for when, _ in parts)[-_LAST:],
    )  # fmt: skip


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.replace("\0", "").splitlines() if line.strip())[-_LAST:]


def _job(ends: tuple[End, ...], launchers: tuple[End, ...], flavour: str) -> FailedJob:
    names = {one.node: one.node for one in ends}
    return FailedJob(ends=ends, launchers=launchers, names=names, ending=LAUNCHER_ENDINGS[flavour])


def _with_copies(one: Timeline) -> Iterator[Timeline]:
    yield one
    for number in range(1, COPIES + 1):
        name = f"{one.name}#{number}"
        rng = Random(name)
        slack = {end.node: rng.choice((0.005, 0.02, 0.2)) for end in one.job.ends}
        wrong = {node: rng.uniform(-most, most) for node, most in slack.items()}
        ends = tuple(
            replace(end, slack=slack[end.node], at=end.at + wrong[end.node] + rng.expovariate(400))
            if end.at is not None
            else end
            for end in one.job.ends
        )
        yield replace(one, name=name, job=replace(one.job, ends=ends))
