"""A wrong span of time is told with the option that it was given to."""

import pytest

from rankdeck.cli.output import UsageError
from rankdeck.cli.spans import parse_option_span


@pytest.mark.parametrize("option", ["--for", "--limit", "--soak"])
def test_a_wrong_span_names_its_own_option(option: str) -> None:
    with pytest.raises(UsageError, match=f"^{option}: "):
        parse_option_span("soon", option)


def test_a_span_is_seconds() -> None:
    assert parse_option_span("4h", "--for") == 4 * 3600
