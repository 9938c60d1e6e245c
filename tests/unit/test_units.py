import pytest

from rankdeck_agent.rules import units


@pytest.mark.parametrize(
    ("writer", "number", "text"),
    [
        (units.size, 0, "0 B"), (units.size, 1536, "1.5 KiB"), (units.size, 1023.9, "1.0 KiB"), (units.size, 85e9, "79.2 GiB"),
        (units.speed, 12.5 * 2**20, "12.5 MiB/s"), (units.bits, 25e9, "25 Gbit/s"), (units.bits, 2.5e9, "2.5 Gbit/s"),
        (units.percent, 7.46, "7.5%"), (units.percent, 99.6, "100%"), (units.percent, 0, "0%"), (units.celsius, 61.4, "61 °C"),
        (units.duration, 0.42, "0.4 s"), (units.duration, 12, "12 s"), (units.duration, 59.9, "1 min 00 s"), (units.duration, 200, "3 min 20 s"),
        (units.duration, 7500, "2 h 05 min"), (units.duration, 360000, "4 d 4 h"), (units.hertz, 2.4e9, "2.4 GHz"), (units.count, 1_200_000, "1.2 M"),
        (units.size, None, "–"), (units.percent, float("nan"), "–"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_people_read_them(writer, number, text) -> None:
    assert writer(number) == text


def test_a_number_is_written_with_the_unit_of_its_metric() -> None:
    assert [units.written(n, u) for n, u in ((300.0, "W"), (2, ""), (50, "%"))] == [
        "300 W",
        "2",
        "50%",
    ]
