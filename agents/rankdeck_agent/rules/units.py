"""Formats numbers with their units."""

import math
from typing import Optional

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")
MISSING = "–"


def write_digits(number: float) -> str:
    """Three significant digits without an exponent: 0.25, 7.5, 42, 1024."""
    size = abs(number)
    if size >= 99.95 or number == int(number):
        return f"{number:.0f}"
    return f"{number:.1f}" if size >= 0.995 else f"{number:.2f}"


def _scaled(number: Optional[float], step: int, units: tuple[str, ...], tail: str = "") -> str:
    if number is None or not math.isfinite(number):
        return MISSING
    power = 0
    while abs(number) >= step - 0.5 and power < len(units) - 1:
        number /= step
        power += 1
    return f"{write_digits(number)} {units[power]}{tail}".rstrip()


def write_size(number: Optional[float]) -> str:
    """Bytes: `1.5 GiB`."""
    return _scaled(number, 1024, _BINARY)


def write_speed(number: Optional[float]) -> str:
    """Bytes per second: `12 MiB/s`."""
    return _scaled(number, 1024, _BINARY, "/s")


def write_bits(number: Optional[float]) -> str:
    """Bits per second, in decimal units: `25 Gbit/s`."""
    return _scaled(number, 1000, _DECIMAL, "bit/s")


def write_percent(number: Optional[float]) -> str:
    """`7.5%`, `42%`."""
    if number is None or not math.isfinite(number):
        return MISSING
    return f"{number:.1f}%" if 0 < abs(number) < 9.95 else f"{number:.0f}%"


def write_celsius(number: Optional[float]) -> str:
    """`61 °C`."""
    return MISSING if number is None or not math.isfinite(number) else f"{number:.0f} °C"


def write_hertz(number: Optional[float]) -> str:
    """`2.4 GHz`."""
    return _scaled(number, 1000, _DECIMAL, "Hz")


def write_duration(seconds: Optional[float]) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`, `2 h 05 min`, `4 d 3 h`."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 9.95:
        return f"{seconds:.1f} s" if seconds % 1 else f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


_WRITERS = {
    "B": write_size,
    "B/s": write_speed,
    "%": write_percent,
    "C": write_celsius,
    "Hz": write_hertz,
    "bit/s": write_bits,
    "s": write_duration,
}


def write_number(number: Optional[float], unit: str) -> str:
    """A number of a metric with its unit; `unit` as in wire.METRICS."""
    if number is None or not math.isfinite(number):
        return MISSING
    writer = _WRITERS.get(unit)
    return writer(number) if writer else f"{write_digits(number)} {unit}".rstrip()
