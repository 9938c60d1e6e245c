"""The manual page says what the options say."""

from tests.support.manual import PAGE, manual


def test_the_manual_page_is_up_to_date() -> None:
    assert PAGE.read_text() == manual(), "run `make man`"
