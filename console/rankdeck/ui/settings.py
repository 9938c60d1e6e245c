"""What the user chose about how the console looks."""

import os
from dataclasses import dataclass, field
from pathlib import Path


def user_theme_folder() -> Path:
    """Where the user's own themes are."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "rankdeck" / "themes"


@dataclass(frozen=True, slots=True, kw_only=True)
class UiSettings:
    """Command-line options of the console."""

    theme: str = ""
    """Name of a theme; "" is dark, or mono where colour is not wanted."""
    ascii: bool = False
    """Draw with ASCII only."""
    diff: bool = True
    """Send only the cells that changed to the terminal."""
    theme_folders: tuple[Path, ...] = field(
        default_factory=lambda: (user_theme_folder(),)
    )
