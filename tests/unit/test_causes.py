"""Reasons that follow from another one are told with it, and nothing is lost on the way."""

from hypothesis import given
from hypothesis import strategies as st

from rankdeck.model.health import Occurrence, leading_events
from rankdeck_agent.rules.levels import CAUSES, Level, Reason, by_cause
from rankdeck_agent.rules.table import RULES

CHECKS = sorted({*CAUSES, *(check for causes in CAUSES.values() for check in causes)})


def reason(check: str, level: Level = Level.WARN, device: str = "1", **more) -> Reason:
    return Reason(check, level, f"{check} of {device}", device, **more)


def test_what_heat_brings_with_it_is_told_under_the_temperature() -> None:
    hot, near, slow = reason("gpu.temp"), reason("gpu.margin", Level.BAD), reason("gpu.slowdown")
    other = reason("gpu.slowdown", device="2")

    (cause, consequences), (alone, none) = by_cause((near, slow, other, hot))

    assert (cause.check, cause.level) == ("gpu.temp", Level.BAD)
    assert consequences == (near, slow)
    assert (alone, none) == (other, ())


def test_an_acknowledged_cause_hides_no_new_consequence() -> None:
    hot = reason("gpu.temp", acknowledged_until=2e9)
    slow = reason("gpu.slowdown")

    assert [cause.check for cause, _ in by_cause((slow, hot))] == ["gpu.slowdown", "gpu.temp"]


def test_a_lost_gpu_explains_the_count_which_names_none() -> None:
    lost, count = reason("gpu.lost", Level.BAD), reason("gpu.count", Level.BAD, "")

    ((cause, consequences),) = by_cause((count, lost))

    assert (cause, consequences) == (lost, (count,))


@given(
    st.lists(
        st.builds(reason, st.sampled_from(CHECKS), st.sampled_from(Level), st.sampled_from("01")),
        unique_by=lambda one: (one.check, one.device),
    )
)
def test_every_reason_is_told_once_and_the_worst_stays_the_worst(some: list[Reason]) -> None:
    told = by_cause(some)

    assert sorted(
        (one.check, one.device) for cause, others in told for one in (cause, *others)
    ) == sorted((one.check, one.device) for one in some)
    worst = max((one.level for one in some), default=Level.OK)
    assert max((cause.level for cause, _ in told), default=Level.OK) is worst


def event(check: str, at: float, device: str = "1", **more) -> Occurrence:
    told = {"node": "n1", "kind": "began", "level": Level.WARN, "text": check, **more}
    return Occurrence(at=at, check=check, device=device, **told)


def test_of_events_that_belong_together_the_cause_is_told() -> None:
    hot = event("gpu.temp", 160.0)
    brought = [event("gpu.slowdown", 100.0), event("gpu.margin", 160.0)]
    others = [
        event("gpu.slowdown", 100.0, "2"),
        event("gpu.slowdown", 100.0, node="n2"),
        event("gpu.slowdown", 900.0),
        event("gpu.slowdown", 161.0, kind="ended"),
    ]

    assert leading_events([*brought, hot, *others], lambda one: one.kind) == [hot, *others]
    assert leading_events(brought) == brought[1:]


def test_the_table_names_real_checks_and_what_is_a_cause_of_all_comes_first() -> None:
    known = {rule.check for rule in RULES} | {"agent.reads"}
    assert set(CHECKS) <= known
    for check, causes in CAUSES.items():
        for place, cause in enumerate(causes):
            assert set(CAUSES.get(cause, ())) <= set(causes[:place]), (check, cause)
