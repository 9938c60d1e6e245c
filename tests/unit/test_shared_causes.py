"""What many nodes have in common that are not well."""

import pytest

from rankdeck.rules.shared_causes import NodeCauses
from rankdeck_agent.rules.levels import Health, Level, Reason


def ill(
    text: str, check: str = "mem.used", level: Level = Level.WARN, until: float | None = None
) -> Health:
    reason = Reason(check, level, text, acknowledged_until=until)
    return Health(Level.OK if until else level, (reason,))


def test_nodes_with_one_cause_are_one_line_whatever_their_numbers() -> None:
    causes = NodeCauses()
    for number in range(5):
        causes.judge(f"n{number}", ill(f"memory {90 + number % 2}% used · swaps · use fewer ranks"))
    causes.judge("n7", ill("Xid 79, GPU has fallen off the bus · reboot", "kernel.xid", Level.BAD))

    (shared,) = causes.shared(3)

    assert causes.ill == 6
    assert (shared.check, shared.seen, shared.action) == (
        "mem.used",
        "memory 90% used",
        "use fewer ranks",
    )
    assert shared.nodes == ("n0", "n1", "n2", "n3", "n4")


def test_a_node_that_is_well_again_or_has_another_cause_is_taken_off() -> None:
    causes = NodeCauses()
    for number in range(4):
        causes.judge(f"n{number}", ill("disk / 99% full", "disk.full"))
    causes.judge("n0", Health(Level.OK))
    assert [one.nodes for one in causes.shared(3)] == [("n1", "n2", "n3")]

    causes.judge("n1", ill("memory 97% used"))
    assert causes.shared(3) == []
    assert causes.ill == 3


def test_what_is_acknowledged_is_not_counted() -> None:
    causes = NodeCauses()
    for number in range(4):
        causes.judge(f"n{number}", ill("disk / 99% full", "disk.full", until=9e9))
    assert causes.ill == 0
    assert causes.shared(3) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("GPU 3 at 93 °C", "GPU 0 at 101.5 °C", True),
        ("disk / 99% full", "disk / 95% full", True),
        ("NFS server 10.0.0.9 does not answer", "NFS server 10.0.0.8 does not answer", False),
        ("/data1 does not answer", "/data2 does not answer", False),
        ("server nas-1 does not answer", "server nas-2 does not answer", False),
        ("mlx5_0 is down since 11:41", "mlx5_1 is down since 11:41", False),
    ],
)  # fmt: skip
def test_only_numbers_that_say_how_much_are_left_out(one: str, other: str, same: bool) -> None:
    causes = NodeCauses()
    for number, text in enumerate((one, one, other)):
        causes.judge(f"n{number}", ill(text))
    assert bool(causes.shared(3)) is same


def test_the_cause_of_most_nodes_is_first_with_the_worst_level() -> None:
    causes = NodeCauses()
    for number in range(3):
        causes.judge(f"a{number}", ill("disk / 99% full", "disk.full", Level.BAD))
    for number in range(6):
        level = Level.BAD if number == 5 else Level.WARN
        causes.judge(f"b{number}", ill("memory 97% used", level=level))

    assert [(one.check, one.level) for one in causes.shared(3)] == [
        ("mem.used", Level.BAD),
        ("disk.full", Level.BAD),
    ]
    assert [one.check for one in causes.shared(1)] == ["mem.used"]
