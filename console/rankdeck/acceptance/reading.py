"""From the bytes of an output to its results: what every recipe's result must stand."""

from dataclasses import dataclass, replace
from itertools import islice

from rankdeck.acceptance.expectations import explained
from rankdeck.acceptance.output_text import is_binary, runs_of, text_of
from rankdeck.acceptance.recipe import Known, Reading, Recipe, Status, not_measured
from rankdeck.model.nodeset import fold
from rankdeck.model.text import clean

LARGEST = 32 << 20
"""Bytes of an output that are read; NCCL_DEBUG=INFO of 1,000 ranks stays below."""
MOST = 1000
"""Results of one output."""
_ABSURD = 10.0
"""Times the ceiling: such a number is not a measurement."""
_BOUND = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the run was asked for; empty and None where somebody else ran it."""

    hosts: tuple[str, ...] = ()
    ranks: int = 0
    exit_code: int | None = None


NOBODY = Asked()


def read_output(
    recipe: Recipe, raw: bytes, asked: Asked = NOBODY, known: Known | None = None
) -> tuple[Reading, ...]:
    """Each result with its sentence, at least one: complete, of those asked for, and valid, or why not."""
    text = text_of(raw[:LARGEST])
    if not text.strip():
        return (not_measured("the output is empty"),)
    if is_binary(text):
        return (not_measured("this is no text"),)
    traits = recipe.traits
    runs = runs_of(text, traits.begins, traits.done) if traits.begins else (text,)
    readings = islice((one for run in runs for one in recipe.read(run)), MOST)
    return tuple(_checked(recipe, one, asked, known or Known()) for one in readings)


def _checked(recipe: Recipe, reading: Reading, asked: Asked, known: Known) -> Reading:
    reading = _sane(reading)
    if reading.status is Status.MEASURED:
        expected = recipe.expect(reading, known)
        ceiling = expected.ceiling if expected else 0.0
        reading = _complaint(reading, asked, ceiling, recipe.traits.names_hosts) or explained(
            reading, expected
        )
    if reading.status is not Status.MEASURED:
        return replace(reading, value=None)
    return reading


def _sane(reading: Reading) -> Reading:
    """Text of others made printable."""
    return replace(
        reading,
        text=clean(reading.text, 400),
        hosts=tuple(clean(host, 100) for host in reading.hosts[:10_000]),
    )


def _complaint(reading: Reading, asked: Asked, ceiling: float, names_hosts: bool) -> Reading | None:
    """Why the value may not be used; None if it may."""
    value = reading.value
    if asked.exit_code:
        why = f"it printed a result and ended with {asked.exit_code}"
        return replace(reading, status=Status.FAILED, text=why)
    if asked.hosts and reading.hosts and set(reading.hosts) != set(asked.hosts):
        why = f"it ran on {fold(reading.hosts)}, not on {fold(asked.hosts)}"
        return replace(reading, status=Status.REFUSED, text=why)
    if asked.hosts and names_hosts and not reading.hosts:
        why = "it does not say on which hosts it ran"
        return replace(reading, status=Status.REFUSED, text=why)
    if asked.ranks and reading.ranks not in (None, asked.ranks):
        why = f"it ran with {reading.ranks} ranks, not with {asked.ranks}"
        return replace(reading, status=Status.REFUSED, text=why)
    if value is None or not 0 < value < (_ABSURD * ceiling or _BOUND):
        why = f"the value {value:g} cannot be" if value is not None else "no value"
        return replace(reading, status=Status.NOT_MEASURED, text=why)
    return None
