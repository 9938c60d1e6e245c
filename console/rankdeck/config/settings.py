"""The user's own file: how the console looks."""

from dataclasses import dataclass
from pathlib import Path

from rankdeck.config.document import finish, load, take
from rankdeck.config.paths import config_folder

KEYS = ("theme", "ascii", "diff")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `settings.yaml` says."""

    theme: str = ""
    """"": dark, or mono where colour is not wanted."""
    ascii: bool | None = None
    """None: as the locale has it."""
    diff: bool = True
    """Send only changed cells; off for terminals that lose some."""


def read_settings(path: Path | None = None) -> Settings:
    """The settings in `path`, else in the user's folder; no such file there: the defaults."""
    file = path or config_folder() / "settings.yaml"
    if path is None and not file.exists():
        return Settings()
    root = load(file)
    table = root.section(KEYS)
    settings = Settings(
        theme=take(table, "theme", ""),
        ascii=table["ascii"].truth() if "ascii" in table else None,
        diff=table["diff"].truth() if "diff" in table else True,
    )
    finish(root)
    return settings
