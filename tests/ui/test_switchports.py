"""Switch ports on the Node screen."""

from rankdeck.model.cluster import Cluster, Node, Switch
from rankdeck.state.fleet import Switches
from rankdeck.ui.node_page import switch_lines
from rankdeck.ui.themes import UNICODE as GLYPHS


def lines(tell=()):
    switch = Switch(name="leaf1", ports={"Ethernet1": "n1:mlx5_0/1"})
    switches = Switches(Cluster(name="lab", nodes=(Node(name="n1"),), switches=(switch,)))
    for up, values in tell:
        switches.apply("leaf1", "Ethernet1", up, values)
    found = switch_lines(switches.of_node("n1"), GLYPHS)
    return ["".join(text for text, _ in line) for line in found]


def test_a_port_that_was_not_heard_has_no_numbers() -> None:
    row = lines()[-1]

    assert "leaf1 Ethernet1" in row
    assert "not heard" in row
    assert "0" not in row.replace("mlx5_0", "")


def test_a_port_shows_state_errors_and_discards_of_both_ways() -> None:
    counters = {"in-octets": 5, "in-discards": 2, "out-discards": 3, "in-errors": 0}
    row = lines([(True, counters)])[-1]

    assert "up" in row
    assert "errors 0" in row
    assert "discards 5" in row


def test_a_node_without_switches_has_no_lines() -> None:
    assert switch_lines((), GLYPHS) == []
