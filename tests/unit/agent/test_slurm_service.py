"""Which nodes an order for Slurm takes, and the exact command."""

import pytest

from rankdeck_agent.schedulers.slurm.node_change import (
    Order,
    drain_reason,
    node_change_command,
    node_change_complaint,
    parse_node_order,
    refused_node_change,
    typed_command,
)

IDLE = {"state": "idle", "reason": "", "by": ""}
OURS = {"state": "drained", "reason": "rankdeck: fan", "by": "ann"}
THEIRS = {"state": "draining", "reason": "bad cable", "by": "root"}
DOWN = {"state": "down", "reason": "", "by": ""}


@pytest.mark.parametrize(
    ("do", "row", "anyway", "why"),
    [
        ("drain", IDLE, False, ""),
        ("drain", OURS, False, ""),
        ("drain", DOWN, False, ""),
        ("drain", THEIRS, True, "draining by root (bad cable)"),
        ("drain", None, False, "Slurm has no node of this name"),
        ("resume", IDLE, True, "it is in service: idle"),
        ("resume", OURS, False, ""),
        ("resume", THEIRS, False, "draining by root (bad cable)"),
        ("resume", THEIRS, True, ""),
        ("resume", DOWN, False, "down by somebody else (no reason given)"),
    ],
)
def test_only_what_is_nobody_elses_is_changed(do, row, anyway, why) -> None:
    assert refused_node_change(Order(do, ("n1",), anyway=anyway), row) == why


@pytest.mark.parametrize(
    ("why", "kept"),
    [
        ('fan"; rm -rf $HOME `x`\n\x1b[31m', "rankdeck: fan rm -rf HOME x 31m"),
        ("", "rankdeck: taken out of service by hand"),
        ("rankdeck: fan", "rankdeck: fan"),
        ("x" * 500, "rankdeck: " + "x" * 160),
    ],
)
def test_a_reason_is_ours_short_and_no_command(why, kept) -> None:
    asked = Order("drain", ("n1",), why=why)

    assert drain_reason(why) == kept
    assert typed_command(node_change_command(asked, "n[1-2]")) == f'scontrol update nodename=n[1-2] state=drain reason="{kept}"'  # fmt: skip


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"do": "reboot", "nodes": ["n1"]},
        {"do": "drain", "nodes": []},
        {"do": "drain", "nodes": ["n1 state=down"]},
        {"do": "drain", "nodes": ["--all"]},
        {"do": "drain", "nodes": ["n[1-2]"]},
        {"do": "drain", "nodes": "n1"},
        {"do": "drain", "nodes": [1]},
    ],
)
def test_an_order_that_makes_no_sense_is_none(row) -> None:
    assert parse_node_order(row) is None


def test_a_want_of_rights_is_told_from_other_refusals() -> None:
    asked = Order("resume", ("n1",))

    assert node_change_complaint(asked, "Invalid user id").startswith(
        "you may not give nodes back: "
    )
    assert (
        node_change_complaint(asked, "Invalid node state") == "Slurm refused it: Invalid node state"
    )
