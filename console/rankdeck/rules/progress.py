"""How far a job is: step, loss and speed read from its output; phases of
the run; numbers that stand out. No I/O.
"""

import math
import re
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from statistics import median
from typing import TypeVar

from rankdeck.model.job import Job, Phase, Progress
from rankdeck.model.patterns import BadPatternError, Pattern, compile_pattern
from rankdeck.model.rank import State

KEEP = 120
"""Numbers kept under each name."""
MOST_NAMES = 12
_LONGEST = 600
"""Characters of a line that are searched, to limit the cost."""
_NUMBER = r"([-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"

_RATES = {
    "tokens_s": r"tok(?:en)?s?",
    "samples_s": r"samples?",
    "images_s": r"im(?:a)?ge?s?",
}
"""What trainers count in a second -> its unit as they write it."""


def _after_its_label(unit: str) -> str:
    """The pattern of a rate whose number comes after it: `tok/s: 1013`, or `lr 1e-04  tok/s 1013`.

    Without a colon, a number between a word and the unit belongs to the word,
    if nothing else claims the one after.
    """
    plain = _NUMBER.replace("(", "(?:", 1)
    named = (
        rf"[A-Za-z_]+[ :=]+{plain}[\s,|]+{unit}/s(?:ec)?\s+{_NUMBER}(?:\s*$|[\s,|]+[A-Za-z_]+[ :=])"
    )
    return rf"\b{unit}/s(?:ec)?\s*[:=]\s*{_NUMBER}|{named}"


TRAINERS: Mapping[str, Mapping[str, str]] = {
    "hugging face": {
        "loss": rf"['\"]loss['\"]: ['\"]?{_NUMBER}",
        "epoch": rf"['\"]epoch['\"]: ['\"]?{_NUMBER}",
        "grad_norm": rf"['\"]grad_norm['\"]: ['\"]?{_NUMBER}",
        "step": r"['\"](?:current_steps|global_step|step)['\"]: (\d+)",
        "steps": r"['\"](?:total_steps|max_steps)['\"]: (\d+)|\bTotal optimization steps = ([\d,]+)",
    },
    "megatron": {
        "step": r"\biteration\s+(\d+)\s*/\s*\d+",
        "steps": r"\biteration\s+\d+\s*/\s*(\d+)",
        "loss": rf"\blm[ _]loss:\s*{_NUMBER}",
        "tflops": rf"TFLOP/s/GPU\):\s*{_NUMBER}",
    },
    "deepspeed": {"samples_s": rf"SamplesPerSec\s*=\s*{_NUMBER}"},
    "nemo": {
        "step": r"\bglobal_step\s*[:=]\s*(\d+)",
        "loss": rf"\breduced_train_loss:\s*{_NUMBER}",
    },
    "lightning and tqdm": {
        "step": r"\d+%\|[^|]*\|\s*(\d+)/\d+",
        "steps": r"\d+%\|[^|]*\|\s*\d+/(\d+)",
        "steps_s": rf"{_NUMBER}\s?it/s",
        "loss": rf"\b(?:train_)?loss(?:_step)?={_NUMBER}",
    },
    "nccl-tests": {
        "size": r"^\s*(\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+\s+[\d.e+]+\s+[\d.e+]+\s+[\d.e+]+\s+\S+",
        "busbw_gb": r"^\s*\d+\s+\d+\s+\w+\s+\w+\s+-?\d+\s+[\d.e+]+\s+[\d.e+]+\s+([\d.e+]+)\s+\S+",
        "avg_busbw_gb": rf"^# Avg bus bandwidth\s*:\s*{_NUMBER}",
    },
    "himeno": {
        "mflops": rf"MFLOPS(?: measured)?\s*:\s*{_NUMBER}|{_NUMBER}\s+MFLOPS\b",
        "gosa": rf"\bGosa\s*:?\s*{_NUMBER}",
        "step": r"^\s*(\d+) of \d+\b",
        "steps": r"^\s*\d+ of (\d+)\b",
    },
    "PyTorch's examples, Keras, fairseq, NAMD": {
        "step": r"\bEpoch: \[\d+\]\s*\[\s*(\d+)/\d+\]|^\s*(\d+)/\d+ (?:\[[=>.]|\x{2501}|\x{2500})"
        r"|\bepoch \d+:\s+(\d+) / \d+ |^(?:TIMING|ENERGY): +(\d+)\b",
        "steps": r"\bEpoch: \[\d+\]\s*\[\s*\d+/(\d+)\]|^\s*\d+/(\d+) (?:\[[=>.]|\x{2501}|\x{2500})"
        r"|\bepoch \d+:\s+\d+ / (\d+) ",
        "loss": rf"\bLoss\s+{_NUMBER} \(",
    },
    "rates after their labels": {name: _after_its_label(unit) for name, unit in _RATES.items()},
    "plain": {
        "step": r"(?:^|[^\w/])[Ss]teps?[ :=#]+(\d[\d,]*)(?:$|[^\w.,]|[.,](?:$|\D))",
        "steps": r"\b[Ss]teps?\b[ :=]+\d+\s*(?:/|of)\s*(\d+)",
        "loss": rf"\bloss\b[ :=]+{_NUMBER}",
        **{name: rf"{_NUMBER}\s*{unit}/s" for name, unit in _RATES.items()},
    },
}
"""Name of a trainer -> name of a number -> pattern; the number is the first group that matched."""


def _defaults() -> dict[str, tuple[Pattern, ...]]:
    table: dict[str, tuple[Pattern, ...]] = {}
    for patterns in TRAINERS.values():
        for name, pattern in patterns.items():
            table[name] = (*table.get(name, ()), compile_pattern(pattern))
    return table


def _own(patterns: Mapping[str, str]) -> tuple[dict[str, tuple[Pattern, ...]], tuple[str, ...]]:
    """The patterns of a job, and a sentence for each that cannot be used (in an old job)."""
    table: dict[str, tuple[Pattern, ...]] = {}
    refused: list[str] = []
    for name, text in list(patterns.items())[:MOST_NAMES]:
        try:
            table[name] = (compile_pattern(text),)
        except BadPatternError as error:
            refused.append(f"progress.{name[:60]} is ignored: its pattern {error}")
    return table, tuple(refused)


_DEFAULTS = _defaults()
_OTHER_WORK = compile_pattern(
    r"(?i)^[^|]*\b(?:load|map\b|mapping|tokeniz|download|fetch|filter|eval|valid|sanity|test|predict"
    r"|generat|captur|saving|prepar|packing|processing|convert|extract|cach|compil|shuffl|inferenc"
    r"|safetensors)[^|]*\d+%\|| examples/s\]|[kMGT]i?B/s\]"
)
"""A progress bar of something else than training."""
_SETTING = compile_pattern(
    r"(?i)\b(?:accumulation|optimization|warm-?up|eval(?:uation)?|save|saving|logging|log|total|max"
    r"|average|avg|mean|per|between|decay|num|number of)[ _-]+steps?[ :=#]+[\d.,]+"
)
"""A number of steps that is a setting or a mean, not how far the job is."""
_OF_BARS = ("step", "steps", "steps_s")
_DIGIT = re.compile(r"\d")


def named_numbers(line: str, patterns: Mapping[str, Iterable[Pattern]]) -> dict[str, float]:
    """The named numbers of one line."""
    line = line[:_LONGEST]
    if not _DIGIT.search(line):
        return {}
    found: dict[str, float] = {}
    for name, several in patterns.items():
        ours = name == "step" and several is _DEFAULTS["step"]
        searched = _without_settings(line) if ours else line
        for pattern in several:
            text = pattern.first_group(searched)
            if text is not None and (value := _value(text)) is not None:
                found[name] = value
                break
    bar = [name for name in _OF_BARS if name in found and patterns[name] is _DEFAULTS[name]]
    if bar and "%|" in line and _OTHER_WORK.within(line):
        return {name: value for name, value in found.items() if name not in bar}
    return found


def _without_settings(line: str) -> str:
    """The line without numbers of steps that say nothing of how far the job is."""
    if "teps" not in line and "step" not in line:
        return line
    for begin, end in reversed(_SETTING.spans(line)):
        line = line[:begin] + line[end:]
    return line


def _value(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def step_pace(lines: Iterable[tuple[float, str]]) -> tuple[float | None, float | None]:
    """(newest step, seconds per step) of these (time, line) pairs.

    The step is None if no line has one; the seconds are None if fewer
    than two different steps are found.
    """
    steps = {"step": _DEFAULTS["step"]}
    steps_seen = [
        (at, found["step"]) for at, line in lines if (found := named_numbers(line, steps))
    ]
    if not steps_seen:
        return None, None
    (began, first), (ended, last) = steps_seen[0], steps_seen[-1]
    took = (ended - began) / (last - first) if last > first and ended > began else None
    return last, took


class ProgressReader:
    """Reads lines as they arrive; only one rank counts, the first that
    prints a number that is searched for.
    """

    def __init__(self, patterns: Mapping[str, str] | None, before: Progress | None) -> None:
        own, self.refused = _own(patterns or {})
        """`refused`: a sentence for each pattern that is ignored."""
        self._patterns = own if patterns else _DEFAULTS
        self.rank: int | None = before.rank if before else None
        """The rank whose lines count."""
        self._at = before.at if before else 0.0
        self._values: dict[str, deque[float]] = {}
        if before is not None:
            for name, numbers in before.series.items():
                self._values[name] = deque(numbers, KEEP)
        self._now: Progress | None = before

    def take(self, line: str, rank: int, at: float) -> bool:
        """Read a line of a rank, written `at` epoch seconds; returns whether it had a number."""
        if at < self._at or (self.rank is not None and rank != self.rank):
            return False
        found = named_numbers(line, self._patterns)
        if not found:
            return False
        self.rank, self._at, self._now = rank, at, None
        for name, value in found.items():
            if name in self._values or len(self._values) < MOST_NAMES:
                self._values.setdefault(name, deque(maxlen=KEEP)).append(value)
        return True

    @property
    def now(self) -> Progress | None:
        """The progress of the job; None if no line was understood."""
        if self._now is None and self._values:
            newest = {name: numbers[-1] for name, numbers in self._values.items()}
            self._now = Progress(
                step=newest.pop("step", None),
                steps=newest.pop("steps", None),
                values=newest,
                series={n: tuple(v) for n, v in self._values.items() if len(v) > 1},
                rank=self.rank,
                at=self._at,
            )
        return self._now


ORDER = (("copy", "ready"), ("start", "started"), ("rendezvous", "output"), ("first step", "step"))
"""(phase, mark that ends it). The phases end when: files are written and supervisors run on every
node; every rank has begun; any rank has written its first line; the first step is reported.
"""


def job_phases(job: Job) -> tuple[Phase, ...]:
    """The phases of the run so far; a phase without its end mark is joined to the next.

    () for a job that others started: its phases before the ranks began are not known.
    """
    if job.plan.owner:
        return ()
    found: list[Phase] = []
    begin = job.created
    for name, mark in ORDER:
        at = job.marks.get(mark)
        if at is None:
            continue
        # Clocks of nodes differ a little: a phase never has a negative length.
        at = max(at, begin)
        found.append(Phase(name, begin, at))
        begin = at
    end = job.ended
    if "started" in job.marks or found:
        return (*found, Phase("running", begin, None if end is None else max(end, begin)))
    return (Phase("copy", begin, end),)


def last_run(job: Job, others: Iterable[Job]) -> Job | None:
    """The newest earlier job of the same name that succeeded, else the
    newest that ended; None if there is none.
    """
    earlier = [
        one
        for one in others
        if one.name == job.name
        and one.id != job.id
        and one.created < job.created
        and one.state.final
    ]
    well = [one for one in earlier if one.state is State.DONE]
    return max(well or earlier, key=lambda one: one.created, default=None)


LEAST_NUMBERS = 4
"""Fewest numbers for which odd ones are searched."""
FAR = 6.0
"""A number is odd if it is more than this many median absolute deviations from the median."""
SHARE = 0.25
"""It must also differ by this share of the median, however close the others are."""
Key = TypeVar("Key", bound=Hashable)


def odd_ones(numbers: Mapping[Key, float], least: float = 0.0) -> frozenset[Key]:
    """The keys of numbers far from the median: see FAR and SHARE, and by more than `least`.

    Empty if that would be more than a third of them.
    """
    if len(numbers) < LEAST_NUMBERS:
        return frozenset()
    usual = median(numbers.values())
    deviation = median(abs(value - usual) for value in numbers.values())
    bound = max(FAR * deviation, SHARE * abs(usual), least)
    odd = frozenset(key for key, value in numbers.items() if abs(value - usual) > bound)
    return odd if 3 * len(odd) <= len(numbers) else frozenset()
