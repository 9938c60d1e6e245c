"""The user's `settings.yaml`: how the console looks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rankdeck.config.document import finish, load, take
from rankdeck.config.files import config_folder

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


def user_theme_folder() -> Path:
    """Where the user's own themes are."""
    return config_folder() / "themes"


def lacks_unicode(environment: Mapping[str, str]) -> bool:
    """True if a locale is set that is not UTF-8; Python itself would pretend that it is."""
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    chosen = next((environment[n] for n in names if environment.get(n)), "UTF-8")
    return "utf8" not in chosen.lower().replace("-", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class UiSettings:
    """Command-line options of the console."""

    theme: str = ""
    """Name of a theme; "" is dark, or mono where colour is not wanted."""
    ascii: bool = False
    """Draw with ASCII only."""
    diff: bool = True
    """Send only the cells that changed to the terminal."""
    theme_folders: tuple[Path, ...] = field(default_factory=lambda: (user_theme_folder(),))
    views_file: Path = field(default_factory=lambda: config_folder() / "views.json")
    """The saved views of the fleet."""
