import pytest

from rankdeck.model.health import Level
from rankdeck.rules.health import Expected, Facts, assess
from rankdeck.rules.table import RULES
from rankdeck_agent.wire import METRICS


def judged(**facts):
    return assess(Facts(now=0.0, **facts), {})[0]


def found(check, **facts):
    return [reason for reason in judged(**facts).reasons if reason.check == check]


def held(seconds, **facts):
    """Health after the same facts held for so long."""
    memory = {}
    for now in range(seconds + 1):
        health, memory = assess(Facts(now=float(now), **facts), memory)
    return health


def test_a_silent_node_is_unknown() -> None:
    health = judged(values={"mem.used": {"": 5}}, heard_s=9.0)

    assert health.level is Level.UNKNOWN
    assert health.evaluated == 0


def test_a_node_without_any_known_number_is_unknown_not_ok() -> None:
    assert judged(values={}).level is Level.UNKNOWN
    assert judged(values={"shoe.size": {"": 1}}).level is Level.UNKNOWN


def test_what_a_node_does_not_have_is_not_counted_as_checked() -> None:
    absent = frozenset(
        name for name in METRICS if name.startswith(("gpu", "rdma", "psi"))
    )
    with_all, without = (
        judged(values={"mem.used": {"": 5}}),
        judged(values={"mem.used": {"": 5}}, absent=absent),
    )

    assert (with_all.evaluated, without.evaluated) == (1, 1)
    assert without.checks == with_all.checks - 6


def test_lost_gpus_are_bad_but_unread_ones_are_only_unknown() -> None:
    expected = Expected(gpus=8)

    assert (
        found("gpu.count", expected=expected, values={"gpu.used": {"0": 1}})[0].level
        is Level.BAD
    )
    assert found(
        "gpu.count",
        expected=expected,
        absent=frozenset({"gpu.used"}),
        values={"mem.used": {"": 1}},
    )
    assert not found(
        "gpu.count",
        expected=expected,
        failed={"gpu.used": "driver"},
        values={"mem.used": {"": 1}},
    )
    assert not found(
        "gpu.count",
        expected=expected,
        values={"gpu.used": dict.fromkeys("01234567", 1)},
    )


def test_a_link_is_bad_only_if_it_was_wanted() -> None:
    down = {"net.up": {"eth0": 0, "eth1": 0}}

    assert not found("net.link", values=down)
    assert [
        r.device
        for r in found("net.link", values=down, seen_up=frozenset({("net.up", "eth1")}))
    ] == ["eth1"]
    assert [
        r.device
        for r in found("net.link", values=down, expected=Expected(interface="eth0"))
    ] == ["eth0"]
    ports = {"rdma.up": {"mlx5_0/1": 1, "mlx5_1/1": 0}}
    assert found("rdma.link", values=ports, expected=Expected(rdma=2))
    assert not found("rdma.link", values=ports, expected=Expected(rdma=1))


def test_rates_and_models_are_compared_with_the_cluster_file() -> None:
    told = Expected(other={"rdma_rate_gbps": 100, "gpu_model": "A100"})
    facts = {
        "values": {"rdma.rate": {"mlx5_0/1": 25e9}},
        "inventory": {
            "gpu.0.model": "NVIDIA A100-SXM4-80GB",
            "gpu.1.model": "Tesla T4",
        },
    }

    assert (
        "25 Gbit/s, expected 100 Gbit/s"
        in found("expect.rdma_rate_gbps", expected=told, **facts)[0].text
    )
    assert (
        "gpu.1.model is Tesla T4"
        in found("expect.gpu_model", expected=told, **facts)[0].text
    )


def test_a_killed_process_is_remembered_for_a_while() -> None:
    _, memory = assess(Facts(now=0.0, rates={"mem.oom_kills": {"": 1.0}}), {})
    soon, memory = assess(Facts(now=300.0, rates={"mem.oom_kills": {"": 0.0}}), memory)
    late, _ = assess(Facts(now=700.0, rates={"mem.oom_kills": {"": 0.0}}), memory)

    assert (soon.level, late.level) == (Level.WARN, Level.OK)


def test_only_the_worst_of_one_check_is_shown() -> None:
    reasons = judged(values={"disk.used": {"/": 99, "/data": 85, "/tmp": 10}}).reasons

    assert [(r.device, r.level) for r in reasons] == [
        ("/", Level.BAD),
        ("/data", Level.WARN),
    ]


def test_load_is_judged_per_core() -> None:
    assert (
        held(300, values={"cpu.load1": {"": 15.0}, "cpu.cores": {"": 8}}).level
        is Level.OK
    )
    assert (
        held(300, values={"cpu.load1": {"": 17.0}, "cpu.cores": {"": 8}}).level
        is Level.WARN
    )


def test_a_clock_that_is_off_is_said() -> None:
    assert (
        "30 s behind"
        in found("node.clock", skew=-30.0, values={"mem.used": {"": 1}})[0].text
    )


@pytest.mark.parametrize(
    "rule", RULES, ids=lambda rule: f"{rule.check}-{rule.level.word}"
)
def test_every_row_fires_ends_and_speaks(rule) -> None:
    source = "rates" if rule.rate else "values"
    over = {"values": {rule.over: {"": 1}}} if rule.over else {}

    def facts(now, number):
        numbers = (
            {**over.get("values", {}), rule.metric: {"": number}}
            if source == "values"
            else {rule.metric: {"": number}}
        )
        return Facts(now=now, **{source: numbers})

    memory = {}
    for now in (0.0, rule.hold / 2, rule.hold):
        health, memory = assess(facts(now, rule.enter * 1.001), memory)
    ended, _ = assess(facts(rule.hold + rule.sticky + 1, 0), memory)

    assert any(r.check == rule.check and r.level >= rule.level for r in health.reasons)
    assert ended.level is Level.OK
    assert rule.metric in METRICS
    assert all(r.text.count(" · ") == 2 for r in health.reasons)
