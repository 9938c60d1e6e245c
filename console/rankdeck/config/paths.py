"""Where things are: what ships with us, and the user's own folders."""

import os
from pathlib import Path

from rankdeck.config.document import suggest
from rankdeck.errors import ConfigError, Problem

_PACKAGE = Path(__file__).resolve().parents[1]
_SUFFIXES = (".yaml", ".yml")


def shipped(name: str) -> Path:
    """The folder `name` that ships with us: inside the package, or at the root of a checkout."""
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parents[1] / name


def _xdg(variable: str, usual: str) -> Path:
    """An XDG folder; a relative value is ignored, as the specification says."""
    value = os.environ.get(variable, "")
    return Path(value) if Path(value).is_absolute() else Path.home() / usual


def config_folder() -> Path:
    """The user's own settings and cluster files."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "rankdeck"


def state_folder() -> Path:
    """What the console keeps: history, log, known demo cluster."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "rankdeck" / "console"


def cache_folder() -> Path:
    """What can be made again: the agent's zipapp."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "rankdeck"


def cluster_folders() -> tuple[Path, ...]:
    """Where a cluster's name is looked up, the user's own first."""
    return (
        config_folder() / "clusters",
        state_folder() / "clusters",
        shipped("sample-clusters"),
    )


def cluster_names() -> tuple[str, ...]:
    """Every cluster that can be opened by name."""
    files = (file for folder in cluster_folders() for file in _yaml_files(folder))
    return tuple(dict.fromkeys(file.stem for file in files))


def find_cluster(name_or_path: str) -> Path:
    """The file of a cluster given by path or by name; raises ConfigError."""
    given = Path(name_or_path).expanduser()
    if given.suffix in _SUFFIXES or len(given.parts) > 1:
        return given
    for folder in cluster_folders():
        for suffix in _SUFFIXES:
            if (folder / f"{name_or_path}{suffix}").is_file():
                return folder / f"{name_or_path}{suffix}"
    known = cluster_names()
    hint = suggest(name_or_path, known) or f"; there are: {', '.join(known) or 'none'}"
    folder = config_folder() / "clusters"
    text = f"no cluster `{name_or_path[:60]}` in {folder} or among the samples{hint}"
    raise ConfigError([Problem(name_or_path[:60], 1, 1, "cluster", text)])


def _yaml_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES)
