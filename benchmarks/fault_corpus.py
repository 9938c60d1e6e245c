"""The corpus of recorded failures: what each rank and launcher wrote, how each rank ended, and who
was to blame; scores the verdicts of any tool on it.

`python -m benchmarks corpus [--verdicts FILE] [--json]`, FILE as `{"tool": NAME, "verdicts":
{CASE: {"ranks": [4], "node": "n3"}}}`; a case that is missing counts as silent. Without FILE: the
launchers' own verdicts, and ours when the failure was recorded. `python -m benchmarks faults
--record FOLDER` records more.
"""

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fault_model import Blame, Fault, Kind, Shape
from rankdeck.drill.judge import launcher_named

FOLDER = Path(__file__).resolve().parents[1] / "tests/recorded/failures"
_MOST = 3000
"""Most characters of a stream that are kept: its end."""
_PLACES = re.compile(
    r"/[^\s\"':,]*/(?=(?:site-packages|bin|jobs|bench)/)|/(?:tmp|root|home)/[^\s\"':,]*/"
)
"""Folders of the machine on which a failure was recorded."""
_ADDRESSES = re.compile(r"\b(?!127\.)(?:\d{1,3}\.){3}\d{1,3}\b")
RIGHT, WRONG, SILENT = "right", "wrong", "silent"


def record_case(fault: Fault, job: Shape, launcher: Mapping[str, str], texts: Mapping[str, str], blame: Blame | None) -> dict[str, Any]:  # fmt: skip
    """A failure as one value; `launcher` is node -> what was written there, `texts` rank -> the end
    of its output, `blame` what was shown at the end.
    """
    right, began = fault.right, job["created"]
    return {
        "case": fault.name,
        "launcher": fault.launcher,
        "kind": fault.kind.value,
        "right": {"ranks": sorted(right.ranks), "node": right.node, "word": right.word},
        "ranks": [
            {
                "rank": one["rank"], "node": one["node"], "state": one["state"],
                "exit_code": one["exit_code"], "signal": one["signal"],
                "started": _after(began, one["started"]), "ended": _after(began, one["ended"]),
                "output": _told(texts.get(str(one["rank"]), "")),
            }
            for one in job["ranks"]
        ],
        "launchers": {node: _told(text) for node, text in launcher.items() if text.strip()},
        "shown": {"ranks": list(blame.ranks), "node": blame.node} if blame else None,
    }  # fmt: skip


def _after(began: float, at: float | None) -> float | None:
    return None if at is None else round(at - began, 3)


def _told(text: str) -> str:
    """The end of an output, without places and addresses of this machine."""
    return _ADDRESSES.sub("192.0.2.1", _PLACES.sub("/", text))[-_MOST:]


def read_cases(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Name -> case."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


@dataclass(frozen=True, slots=True)
class Score:
    """What the verdicts of a tool are worth."""

    tool: str
    verdicts: Mapping[str, str]
    """Case -> right, wrong or silent."""

    def count(self, word: str) -> int:
        return sum(one == word for one in self.verdicts.values())

    @property
    def precision(self) -> float | None:
        """Right of all that were named; None if nobody was."""
        named = self.count(RIGHT) + self.count(WRONG)
        return round(self.count(RIGHT) / named, 3) if named else None

    @property
    def recall(self) -> float | None:
        """Right of all cases."""
        return round(self.count(RIGHT) / len(self.verdicts), 3) if self.verdicts else None


Verdict = Mapping[str, Any]


def score_verdicts(tool: str, cases: Mapping[str, Verdict], verdicts: Mapping[str, Verdict | None]) -> Score:  # fmt: skip
    """Score who was named (`ranks`, else `node`) in each case; names of other cases are ignored."""
    return Score(tool, {name: judge_verdict(case["right"], verdicts.get(name)) for name, case in cases.items()})  # fmt: skip


def judge_verdict(right: Verdict, said: Verdict | None) -> str:
    """Right: one or more of the ranks to blame and no other; without such, the node; if nobody is
    to blame, nobody.
    """
    ranks = set((said or {}).get("ranks") or ())
    node = (said or {}).get("node") or ""
    if not right["ranks"] and not right["node"]:
        return WRONG if ranks or node else RIGHT
    if not ranks and not node:
        return SILENT
    if right["ranks"]:
        return RIGHT if ranks and ranks <= set(right["ranks"]) else WRONG
    return RIGHT if not ranks and node == right["node"] else WRONG


def launcher_verdict(case: Verdict) -> dict[str, Any] | None:
    """Whom the launchers of a case named by themselves."""
    texts = "\n".join(case["launchers"].values())
    who = launcher_named(texts)
    if not who:
        return None
    return {"ranks": [int(who[5:])]} if who.startswith("rank ") else {"node": who}


def main(words: Sequence[str]) -> int:
    """Print the scores; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks corpus", description=__doc__)
    parser.add_argument("--verdicts", type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    cases = read_cases()
    if options.verdicts:
        given = json.loads(options.verdicts.read_text())
        scores = [score_verdicts(str(given["tool"]), cases, given["verdicts"])]
    else:
        launchers = {name: launcher_verdict(case) for name, case in cases.items()}
        shown = {name: case["shown"] for name, case in cases.items()}
        scores = [score_verdicts("rankdeck", cases, shown), *_by_launcher(cases, launchers)]
    for one in scores:
        print(json.dumps(_row(one)) if options.json else ", ".join(f"{k} {v}" for k, v in _row(one).items()))  # fmt: skip
    return 0


def _by_launcher(cases: Mapping[str, Verdict], verdicts: Mapping[str, Verdict | None]) -> Iterable[Score]:  # fmt: skip
    """One score for each launcher that can say anything."""
    for launcher in sorted({case["launcher"] for case in cases.values()} - {"plain"}):
        own = {name: case for name, case in cases.items() if case["launcher"] == launcher}
        yield score_verdicts(launcher, own, verdicts)


def _row(score: Score) -> dict[str, Any]:
    return {
        "tool": score.tool, "cases": len(score.verdicts), RIGHT: score.count(RIGHT),
        WRONG: score.count(WRONG), SILENT: score.count(SILENT),
        "precision": score.precision, "recall": score.recall,
    }  # fmt: skip


def is_recorded(fault: Fault) -> bool:
    """Whether the fault belongs into the corpus: notes beside a good end do not."""
    return fault.right.what != "note" and fault.kind is not Kind.HEALTHY
