"""The user's own file: how the console looks and which keys it has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rankdeck.config.document import finish, load, take
from rankdeck.config.paths import config_folder

KEYS = ("theme", "ascii", "refresh", "keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `settings.yaml` says."""

    theme: str = "dark"
    ascii: bool = False
    refresh: float = 0.25
    """Seconds from one paint to the next."""
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """Action -> key."""


def read_settings(path: Path | None = None) -> Settings:
    """The settings in `path`, else in the user's folder; no such file there: the defaults."""
    file = path or config_folder() / "settings.yaml"
    if path is None and not file.exists():
        return Settings()
    root = load(file)
    table = root.section(KEYS)
    settings = Settings(
        theme=take(table, "theme", "dark"),
        ascii=table["ascii"].truth() if "ascii" in table else False,
        refresh=table["refresh"].number(0.25, least=0.05, most=60)
        if "refresh" in table
        else 0.25,
        keys=table["keys"].table() if "keys" in table else {},
    )
    finish(root)
    return settings
