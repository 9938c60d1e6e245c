"""Judges the runs of a study: curves, laws, where more ranks stop to pay, what is doubtful."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean, median, pstdev

from rankdeck.model.text import list_names, significant_figures
from rankdeck.scaling.laws import NO_LAW, Fit, fit_amdahl, fit_gustafson, serial_share
from rankdeck.scaling.reasons import find_reasons
from rankdeck.scaling.study import PAYS, Curve, CurvePoint, Judged, ScaleVerdict, VerdictKind
from rankdeck.scaling.values import WALL, ScalePoint, StudyPlan, Trial, TrialOutcome
from rankdeck.values import replace

_NO_SPEED = frozenset({"loss", "gosa", "epoch", "grad_norm", "size", "lr", WALL})
"""Numbers that are not a speed: compared only if asked for by name."""
_COST = re.compile(r"(?:^|_)(?:wall|time|seconds?|secs?|ms|us|latency|lat|duration|elapsed)(?:$|_)")
"""Numbers of which less is better."""
UNSTEADY, DRIFTS = 0.10, 0.05
"""Spread of a point, and difference between blocks, from which they are named."""
_BEYOND = 1.1
_GROWTH = 1.5
"""The serial share by single points grows if the last is so many times the first."""
_LEAST_SHARE = 0.005
_BAD_FIT = 0.08
"""Misfit from which a law is doubtful."""


def is_cost(name: str) -> bool:
    """Whether less of this number is better: a time."""
    return bool(_COST.search(name.lower()))


def choose_number(plan: StudyPlan, trials: Sequence[Trial]) -> str:
    """The number to compare: that of the plan, else the first speed that all good runs print, else
    the wall time.
    """
    if plan.number:
        return plan.number
    good = [one for one in trials if one.outcome is TrialOutcome.MEASURED]
    for name in good[0].numbers if good else ():
        if name not in _NO_SPEED and all(name in one.numbers for one in good):
            return name
    return WALL


def judge_study(plan: StudyPlan, trials: Sequence[Trial], number: str = "") -> Judged:
    """Curves and verdicts by this number ("": that of `choose_number`)."""
    name = number or choose_number(plan, trials)
    offered = tuple(dict.fromkeys(key for one in trials for key in one.numbers))
    unit = (
        "s"
        if name == WALL
        else next((one.unit for one in trials if one.unit and plan.reader == name), "")
    )
    lower = plan.lower_is_better if name == plan.reader else is_cost(name)
    curves = tuple(
        _curve(plan, label, places, trials, (name, lower))
        for label, places in _curves(plan.points).items()
    )
    judged = Judged(name, unit, lower, offered, curves)
    return replace(judged, verdicts=tuple(_verdicts(plan, trials, judged)))


def _curves(points: Sequence[ScalePoint]) -> Mapping[str, list[int]]:
    """Curve -> places of its points, by ranks."""
    found: dict[str, list[int]] = {}
    for place, point in enumerate(points):
        found.setdefault(point.curve, []).append(place)
    return {name: sorted(places, key=lambda at: points[at].ranks) for name, places in found.items()}


# ---- curves


def _curve(
    plan: StudyPlan,
    label: str,
    places: Sequence[int],
    trials: Sequence[Trial],
    by: tuple[str, bool],
) -> Curve:
    name, lower = by
    points = [
        _values(plan.points[place], [one for one in trials if one.point == place], name)
        for place in places
    ]
    base = next((one for one in points if one.median is not None), None)
    if base is None or base.median is None:
        return Curve(name=label, points=tuple(points))
    usual = _rate(base, base.median, base, (plan.weak, lower))
    points = [_scaled(one, base, usual, (plan.weak, lower)) for one in points]
    return Curve(name=label, points=tuple(points), fit=_fit(plan, points, base, lower))


def _values(point: ScalePoint, trials: Sequence[Trial], name: str) -> CurvePoint:
    good = sorted(
        (
            one
            for one in trials
            if one.outcome is TrialOutcome.MEASURED and one.numbers.get(name, 0.0) > 0
        ),
        key=lambda one: one.block,
    )
    values = tuple(one.numbers[name] for one in good)
    if not values:
        return CurvePoint(point=point, trials=tuple(trials))
    middle = median(values)
    spread = (max(values) - min(values)) / 2 / middle if len(values) > 1 else None
    return CurvePoint(
        point=point, trials=tuple(trials), values=values, median=middle, spread=spread
    )


def _rate(one: CurvePoint, value: float, base: CurvePoint, how: tuple[bool, bool]) -> float:
    """Work per time that a value means: a speed as it is; of a time, the work divided by it."""
    weak, lower = how
    work = one.point.ranks / base.point.ranks if weak else 1.0
    return work / value if lower else value


def _scaled(one: CurvePoint, base: CurvePoint, usual: float, how: tuple[bool, bool]) -> CurvePoint:
    """The point with its speed-up over the fewest ranks."""
    times = one.point.ranks / base.point.ranks
    if one.median is None:
        return replace(one, times=times)
    rates = [_rate(one, value, base, how) / usual for value in one.values]
    speedup = _rate(one, one.median, base, how) / usual
    return replace(
        one,
        speedup=speedup,
        low=min(rates),
        high=max(rates),
        times=times,
        efficiency=speedup / times,
        serial=None if how[0] else serial_share(times, speedup),
    )


def _fit(
    plan: StudyPlan, points: Sequence[CurvePoint], base: CurvePoint, lower: bool
) -> Fit | None:
    if plan.weak:
        usual = _rate(base, base.median or 1.0, base, (True, lower))
        return fit_gustafson(
            [
                (one.times, _rate(one, value, base, (True, lower)) / usual)
                for one in points
                for value in one.values
            ]
        )
    return fit_amdahl(
        [
            (one.point.ranks, value if lower else 1.0 / value)
            for one in points
            for value in one.values
        ]
    )


# ---- verdicts


def _verdicts(plan: StudyPlan, trials: Sequence[Trial], judged: Judged) -> Iterator[ScaleVerdict]:
    for curve in judged.curves:
        if curve.scales:
            yield from _paying(plan, curve)
            yield from _laws(plan, curve)
        yield from _unsteady(curve, judged)
    yield from _best(judged)
    yield from _drift(judged)
    yield from _without_result(plan, trials, judged)


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.0995 or share < 5e-4 else f"{share * 100:.1f} %"


def _capped(share: float) -> str:
    return "more than 100 %" if share > 1 else _percent(max(share, 0.0))


def _ranks(one: CurvePoint) -> str:
    return f"{one.point.ranks} rank{'' if one.point.ranks == 1 else 's'}"


def _paying(plan: StudyPlan, curve: Curve) -> Iterator[ScaleVerdict]:
    points = curve.measured
    base, last = points[0], points[-1]
    stops = next((one for one in points[1:] if (one.efficiency or 0.0) < PAYS), None)
    within = [one for one in points if stops is None or one.point.ranks < stops.point.ranks]
    best = within[-1]
    efficiency = _percent(best.efficiency or 0.0)
    if stops is None:
        text = f"pays up to {_ranks(best)}, the most that were tried: efficiency {efficiency}"
        yield ScaleVerdict(VerdictKind.PAYS, text, curve.name)
    else:
        upto = (
            f"more ranks than {base.point.ranks} do not pay"
            if best is base
            else f"pays up to {_ranks(best)} (efficiency {efficiency})"
        )
        text = (
            f"{upto}; with {_ranks(stops)} the efficiency is {_percent(stops.efficiency or 0.0)},"
            f" below {_percent(PAYS)}"
        )
        yield ScaleVerdict(VerdictKind.STOPS, text, curve.name)
    for before, after in pairwise(points):
        if (after.high or 0.0) < (before.low or 0.0):
            text = f"{_ranks(after)} do less together than {_ranks(before)}"
            yield ScaleVerdict(VerdictKind.SLOWER, text, curve.name)
            break
    at = stops or (last if (last.efficiency or 1.0) < 0.9 else None)
    if at is not None:
        for text in find_reasons(base, at):
            yield ScaleVerdict(VerdictKind.WHY, f"with {_ranks(at)}: {text}", curve.name)
    beyond = [one for one in points if (one.efficiency or 0.0) > _BEYOND]
    if beyond:
        text = (
            f"{_ranks(beyond[0])} do more than ideal ({_percent(beyond[0].efficiency or 0.0)}): the data of a"
            f" rank fit a cache, or the run with {_ranks(base)} was disturbed"
        )
        yield ScaleVerdict(VerdictKind.BEYOND, text, curve.name)


def _laws(plan: StudyPlan, curve: Curve) -> Iterator[ScaleVerdict]:
    fit = curve.fit
    if fit is None:
        return
    error = f" ± {_percent(fit.error)}" if fit.error is not None else ""
    doubt = "" if fit.error is not None else "; too few runs to say how surely"
    if fit.misfit > NO_LAW:
        law = "Gustafson" if plan.weak else "Amdahl"
        text = f"{law}'s law does not hold: the points lie {_percent(fit.misfit)} beside it"
    elif plan.weak:
        text = f"Gustafson's law: {_percent(fit.share)}{error} of the time is serial{doubt}"
    else:
        most = (
            f": never more than {significant_figures(fit.most, 3)} times one rank"
            if fit.share > _LEAST_SHARE
            else ""
        )
        text = f"Amdahl's law: {_percent(fit.share)}{error} of the work is serial{most}{doubt}"
    if _BAD_FIT < fit.misfit <= NO_LAW:
        text += f"; it fits badly: points lie {_percent(fit.misfit)} beside it"
    yield ScaleVerdict(VerdictKind.LAW, text, curve.name)
    shares = [(one, one.serial) for one in curve.measured if one.serial is not None]
    if len(shares) > 1 and not plan.weak:
        (first, low), (last, high) = shares[0], shares[-1]
        if low < 1 and high > max(low * _GROWTH, low + 0.02, 0.02):
            text = (
                f"the serial share by single points grows from {_capped(low)} ({_ranks(first)}) to"
                f" {_capped(high)} ({_ranks(last)}): an overhead that grows with the ranks, not a serial part"
            )
            yield ScaleVerdict(VerdictKind.GROWS, text, curve.name)


def _said(value: float, judged: Judged) -> str:
    return f"{significant_figures(value)} {judged.unit}".rstrip()


def _unsteady(curve: Curve, judged: Judged) -> Iterator[ScaleVerdict]:
    odd = [one for one in curve.points if (one.spread or 0.0) > UNSTEADY]
    if odd:
        worst = max(odd, key=lambda one: one.spread or 0.0)
        span = f"{significant_figures(min(worst.values))} to {_said(max(worst.values), judged)}"
        text = (
            f"unsteady: runs of the same point differ by ± {_percent(worst.spread or 0.0)} with"
            f" {_ranks(worst)} ({span}): others use the nodes, or --repeat more"
        )
        yield ScaleVerdict(VerdictKind.UNSTEADY, text, curve.name)


def _best(judged: Judged) -> Iterator[ScaleVerdict]:
    """The best of several curves at the most ranks that all of them have."""
    if len(judged.curves) < 2:
        return
    lower = judged.lower_is_better
    ranks = [{one.point.ranks for one in curve.measured} for curve in judged.curves]
    common = ranks[0].intersection(*ranks[1:])
    found = [
        (curve.name, one)
        for curve in judged.curves
        for one in curve.measured
        if one.point.ranks == max(common, default=0)
    ]
    if not found:
        return
    found.sort(key=lambda each: each[1].median or 0.0, reverse=not lower)
    (name, best), (next_name, second) = found[:2]
    apart = (
        max(best.values) < min(second.values) if lower else min(best.values) > max(second.values)
    )
    sure = "" if apart else "; their runs overlap, so this may be chance"
    text = (
        f"best with {_ranks(best)}: {name} ({_said(best.median or 0.0, judged)}), then {next_name}"
        f" ({_said(second.median or 0.0, judged)}){sure}"
    )
    yield ScaleVerdict(VerdictKind.BEST, text)


def _drift(judged: Judged) -> Iterator[ScaleVerdict]:
    """Whether blocks differ: each run is compared with the median of its point."""
    blocks: dict[int, list[float]] = {}
    for block, share in _shares(judged):
        blocks.setdefault(block, []).append(share)
    if len(blocks) < 2 or min(map(len, blocks.values())) < 2:
        return
    means = {block: fmean(shares) for block, shares in sorted(blocks.items())}
    first, last = min(means, key=lambda at: means[at]), max(means, key=lambda at: means[at])
    noise = sqrt(sum((pstdev(blocks[at]) ** 2) / len(blocks[at]) for at in (first, last)))
    gap = means[last] - means[first]
    if gap > max(DRIFTS, 2 * noise):
        text = (
            f"drift: `{judged.number}` of block {last + 1} is {_percent(gap)} above that of block"
            f" {first + 1}: something changed meanwhile (others' load, clocks, heat)"
        )
        yield ScaleVerdict(VerdictKind.DRIFT, text)


def _shares(judged: Judged) -> Iterator[tuple[int, float]]:
    """(block, value as a share of the median of its point) of each run of a repeated point."""
    for one in (one for curve in judged.curves for one in curve.points if len(one.values) > 1):
        for trial in one.trials:
            value = trial.numbers.get(judged.number, 0.0)
            if trial.outcome is TrialOutcome.MEASURED and value > 0 and one.median:
                yield trial.block, value / one.median


def _without_result(
    plan: StudyPlan, trials: Sequence[Trial], judged: Judged
) -> Iterator[ScaleVerdict]:
    for outcome in TrialOutcome:
        lost = [one for one in trials if one.outcome is outcome]
        if outcome is TrialOutcome.MEASURED:
            lost = [one for one in lost if judged.number not in one.numbers]
        if not lost:
            continue
        where = list_names(list(dict.fromkeys(plan.points[one.point].label for one in lost)), 3)
        kind = (
            VerdictKind.MISSING
            if outcome in (TrialOutcome.MEASURED, TrialOutcome.NO_NUMBER)
            else VerdictKind.FAILED
        )
        word = "no number" if outcome is TrialOutcome.MEASURED else outcome.value
        why = lost[0].text or f"it printed no `{judged.number}`"
        runs = f"{len(lost)} run{'' if len(lost) == 1 else 's'}"
        yield ScaleVerdict(kind, f"{word}: {runs} with {where}: {why}")
