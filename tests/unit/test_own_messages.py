"""A user's own messages: read once, before ours; a mistake names its
line and never stops the verdict.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rankdeck.errors import ConfigError
from rankdeck.rules.messages import explain_end, kinds_of, use_rows
from rankdeck.state.own_messages import read_messages, use_own_messages

ROW = """messages:
- pattern: 'licence \\S+ denied'
  kind: service
  means: the licence server has none left
  do: ask who uses it
  example: "error: licence cfd denied"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "rankdeck").mkdir()
    use_own_messages.cache_clear()
    yield tmp_path / "rankdeck/messages.yaml"
    use_own_messages.cache_clear()
    use_rows(())


def test_a_row_of_the_user_explains_before_ours(own: Path) -> None:
    own.write_text(ROW)

    assert use_own_messages() is None
    (found,) = explain_end(["KeyError: licence cfd denied"])
    assert (found.means, found.remedy) == ("the licence server has none left", "ask who uses it")
    assert kinds_of([found.line]) == (("service", found.line),)


def test_without_a_file_nothing_changes(own: Path) -> None:
    assert not own.exists()
    assert use_own_messages() is None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("licence cfd", "license cfd", "does not match the pattern"),
        ("service", "sevice", "did you mean `service`"),
        ("\\S+ denied", "(", "missing"),
        ("  do: ask who uses it\n", "", "`do` is missing"),
        ("\\S+", "(?=a)", "pattern"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_no_row_is_used(
    own: Path, old: str, new: str, why: str
) -> None:
    own.write_text(ROW.replace(old, new))

    with pytest.raises(ConfigError, match=why):
        read_messages(own)
    assert use_own_messages().problems[0].line > 1
    assert explain_end(["licence cfd denied"]) == ()
