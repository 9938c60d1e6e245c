"""Values and records of the agent do what dataclasses do, without compiling anything."""

import copy
import json
import pickle

import pytest

from rankdeck_agent.values import Record, Value, field, list_fields, replace


class Port(Value):
    name: str
    rate: float = 0.0
    lanes: list = field(default_factory=list)

    KIND = "port"

    @property
    def fast(self) -> bool:
        return self.rate > 100


class Named(Port):
    """Adds no field."""


class Bonded(Port):
    parts: tuple = ()
    rate: float = 200.0


class Count(Record):
    seen: int = 0
    of: dict = field(default_factory=dict)


def test_fields_are_taken_in_their_order_or_by_name() -> None:
    port = Port("mlx5_0", lanes=[1])

    assert (port.name, port.rate, port.lanes, port.fast, port.KIND) == ("mlx5_0", 0.0, [1], False, "port")  # fmt: skip
    assert list(vars(port)) == list(list_fields(port)) == ["name", "rate", "lanes"]
    assert repr(port) == "Port(name='mlx5_0', rate=0.0, lanes=[1])"


def test_what_is_made_for_a_field_is_made_anew_for_each_value() -> None:
    assert Port("a").lanes is not Port("a").lanes
    assert Count().of is not Count().of


@pytest.mark.parametrize(
    ("args", "given", "says"),
    [
        ((), {}, "Port needs 'name'"),
        (("a", 1.0, [], 4), {}, "at most 3 fields"),
        (("a",), {"speed": 1}, "'speed'"),
        (("a",), {"name": "b"}, "'name'"),
    ],
)
def test_a_field_too_few_or_too_many_is_a_type_error(args: tuple, given: dict, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Port(*args, **given)


def test_a_value_is_frozen_and_a_record_is_not() -> None:
    port, count = Port("a"), Count()

    with pytest.raises(AttributeError, match="frozen"):
        port.rate = 1.0
    with pytest.raises(AttributeError, match="frozen"):
        del port.rate
    count.seen += 1
    assert count == Count(1)
    with pytest.raises(TypeError):
        hash(count)


def test_values_are_equal_by_class_and_fields() -> None:
    assert Bonded("a") == Bonded("a", rate=200.0)
    assert Port("a") != Named("a")
    assert Port("a") != "a"
    assert hash(Bonded("a", lanes=())) == hash(Bonded("a", lanes=()))


def test_a_subclass_has_the_fields_of_its_base_and_may_change_their_defaults() -> None:
    assert list(list_fields(Named)) == ["name", "rate", "lanes"]
    assert list(list_fields(Bonded)) == ["name", "rate", "lanes", "parts"]
    assert Named("a").lanes == []
    assert Bonded("a").rate == 200.0


def test_copies_are_equal_and_frozen() -> None:
    port = Port("a", 1.0, [2])

    for other in (
        copy.copy(port),
        copy.deepcopy(port),
        pickle.loads(pickle.dumps(port)),
        replace(port),
    ):
        assert other == port
        with pytest.raises(AttributeError):
            other.rate = 2.0
    assert replace(port, rate=3.0) == Port("a", 3.0, [2])
    with pytest.raises(TypeError):
        replace(port, speed=3.0)
    assert json.dumps([port], default=vars) == '[{"name": "a", "rate": 1.0, "lanes": [2]}]'
