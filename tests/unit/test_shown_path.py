"""A path as a person would type it."""

from pathlib import Path

import pytest

from rankdeck.config.files import shown_path


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/ann/work/jobs/a.yaml", "jobs/a.yaml"),
        ("/home/ann/other/a.yaml", "~/other/a.yaml"),
        ("/data/a.yaml", "/data/a.yaml"),
    ],
)
def test_a_path_is_shown_from_here_or_from_home_or_whole(
    monkeypatch: pytest.MonkeyPatch, path: str, shown: str
) -> None:
    monkeypatch.setattr(Path, "cwd", lambda: Path("/home/ann/work"))
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ann"))

    assert shown_path(Path(path)) == shown
