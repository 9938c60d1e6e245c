"""Node sets with patterns, and the nodes of the cluster that they mean."""

import pytest

from rankdeck.model.nodeset import expand_known_nodes

KNOWN = ("n1", "n2", "n3", "gpu1", "gpu2")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-2]", ("n1", "n2")),
        ("n1,n1", ("n1",)),
        ("n9", ("n9",)),
        ("all", KNOWN),
        ("*", KNOWN),
        ("gpu*", ("gpu1", "gpu2")),
        ("?1", ("n1",)),
        ("all!n3", ("n1", "n2", "gpu1", "gpu2")),
        ("all!n[1-2]!gpu*", ("n3",)),
        ("gpu*, n[1,3]", ("gpu1", "gpu2", "n1", "n3")),
        ("*1&n*", ("n1",)),
        ("n*^n1,gpu1", ("n2", "n3", "gpu1")),
        ("all!all", ()),
    ],
)
def test_a_set_is_read_from_the_left(text: str, names: tuple[str, ...]) -> None:
    assert expand_known_nodes(text, KNOWN) == names


def test_a_node_named_all_is_that_node() -> None:
    assert expand_known_nodes("all", ("all", "n1")) == ("all",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x*", "no node matches `x\\*`"),
        ("n[1-2]*", "cannot stand beside brackets"),
        ("n*,@gpu", "a group of nodes"),
        ("n*,n[1-", "not a node set"),
    ],
)
def test_what_means_no_node_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        expand_known_nodes(text, KNOWN)
