"""Frozen values: made, compared, changed and turned into tables as dataclasses are."""

import pytest
from msgspec import field

from rankdeck.values import Value, field_names, replace, value_table
from rankdeck_agent import values as agent_values


class Place(Value):
    node: str
    ranks: tuple[int, ...] = ()


class Found(Value, kw_only=True):
    place: Place
    notes: dict[str, int] = field(default_factory=dict[str, int])


class OfTheAgent(agent_values.Value):
    place: Place
    seconds: float = 1.0


def test_values_are_equal_by_their_fields_and_cannot_be_changed() -> None:
    one = Place("n1", (0, 1))

    assert one == Place("n1", (0, 1))
    assert {one: "known"}[Place("n1", (0, 1))] == "known"
    with pytest.raises(AttributeError):
        one.node = "n2"  # type: ignore[misc]


def test_each_value_has_its_own_default() -> None:
    first, second = Found(place=Place("n1")), Found(place=Place("n2"))
    first.notes["seen"] = 1

    assert second.notes == {}


def test_values_of_both_programs_are_changed_by_one_function() -> None:
    agent = OfTheAgent(Place("n1"))

    assert replace(Place("n1"), node="n2") == Place("n2")
    assert replace(agent, seconds=2.0) == OfTheAgent(Place("n1"), 2.0)
    with pytest.raises(TypeError):
        replace(Place("n1"), rank=3)


def test_a_table_goes_down_to_the_last_field() -> None:
    found = {"place": {"node": "n1", "ranks": (0,)}, "notes": {"ok": 1}}

    assert value_table(Found(place=Place("n1", (0,)), notes={"ok": 1})) == found
    assert value_table(OfTheAgent(Place("n1"))) == {
        "place": {"node": "n1", "ranks": ()}, "seconds": 1.0,
    }  # fmt: skip


def test_fields_are_named_in_their_order() -> None:
    assert field_names(Found) == field_names(Found(place=Place("n1"))) == ("place", "notes")
    assert field_names(OfTheAgent) == ("place", "seconds")
