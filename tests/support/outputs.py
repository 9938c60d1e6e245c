"""What `rankdeck accept --read` finds in the output of a program, written out or recorded."""

from rankdeck import plugins
from rankdeck.acceptance.output_text import read_output
from rankdeck.acceptance.recipe import HardwareFacts, OutputReading
from tests.support.targets import TARGETS

SEEDS = TARGETS["accept"].seeds()


def recorded(file: str) -> str:
    """The output alone, without the line that names its recipe."""
    return SEEDS[file].partition(b"\n")[2].decode()


def read(
    recipe: str, output: str | bytes, known: HardwareFacts | None = None
) -> tuple[OutputReading, ...]:
    raw = output if isinstance(output, bytes) else output.encode()
    return read_output(plugins.find_plugin("recipes", recipe)(), raw, known=known)


def values(recipe: str, output: str | bytes) -> list[float | None]:
    return [one.value for one in read(recipe, output)]


def said(recipe: str, output: str | bytes) -> list[tuple[str, str]]:
    """The status and text of each result."""
    return [(one.status.value, one.text) for one in read(recipe, output)]
