import pytest

from rankdeck_agent.rules import units


@pytest.mark.parametrize(
    ("writer", "number", "text"),
    [
        (units.write_size, 0, "0 B"), (units.write_size, 1536, "1.5 KiB"), (units.write_size, 1023.9, "1.0 KiB"), (units.write_size, 85e9, "79.2 GiB"),
        (units.write_speed, 12.5 * 2**20, "12.5 MiB/s"), (units.write_bits, 25e9, "25 Gbit/s"), (units.write_bits, 2.5e9, "2.5 Gbit/s"),
        (units.write_percent, 7.46, "7.5%"), (units.write_percent, 99.6, "100%"), (units.write_percent, 0, "0%"), (units.write_celsius, 61.4, "61 °C"),
        (units.write_duration, 0.42, "0.4 s"), (units.write_duration, 12, "12 s"), (units.write_duration, 59.9, "1 min 00 s"), (units.write_duration, 200, "3 min 20 s"),
        (units.write_duration, 7500, "2 h 05 min"), (units.write_duration, 360000, "4 d 4 h"), (units.write_hertz, 2.4e9, "2.4 GHz"),
        (units.write_size, None, "–"), (units.write_percent, float("nan"), "–"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_people_read_them(writer, number, text) -> None:
    assert writer(number) == text


def test_a_number_is_written_with_the_unit_of_its_metric() -> None:
    assert [units.write_number(n, u) for n, u in ((300.0, "W"), (2, ""), (50, "%"))] == [
        "300 W",
        "2",
        "50%",
    ]
